//! The packed numbers compared with a copy number by number, for any place, shape and number of threads.

use crate::kernels::checks::numbers;
use crate::kernels::path::{Path, ProductEngine};
use crate::kernels::products::{Corner, PackedMatrix, Transpose};
use crate::kernels::view::{Extent2, View};

/// What the packed matrix holds where nothing is copied.
const UNTOUCHED: f32 = -7.0;

/// Checks the copy of a part of a matrix of K × N. The part begins at `at`, and ends `end` rows and columns before the end.
fn check((k, n): (usize, usize), at: Corner, end: Corner, threads: &[usize]) {
    let (rows, columns) = (k - at.0 - end.0, n - at.1 - end.1);
    for (path, transpose) in
        Path::available().into_iter().flat_map(|p| [(p, Transpose::No), (p, Transpose::Yes)])
    {
        let (height, width) = transpose.shape((rows, columns));
        let from = numbers::<f32>(height * (width + 3), 5);
        let b = View::strided(&from, Extent2 { rows: height, width, stride: width + 3 });
        let mut packed = PackedMatrix::by(ProductEngine::F32(path));
        packed.resize(k, n);
        let panel = packed.panel_width();
        let mut expected = vec![UNTOUCHED; packed.panels() * panel * k];
        for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
            let ((row, column), (line, number)) = ((at.0 + i, at.1 + j), transpose.shape((i, j)));
            expected[column / panel * panel * k + row * panel + column % panel] = b.row(line)[number];
        }
        for &threads in threads {
            let len = expected.len();
            packed.numbers_mut()[..len].fill(UNTOUCHED);
            packed.put(b, transpose, at, threads);
            let same = packed.numbers()[..len] == expected;
            assert!(same, "{path:?} {transpose:?} {k}x{n}, {at:?} to {end:?}, {threads} threads");
        }
    }
}

#[test]
fn parts_of_any_shape_are_copied_to_their_place() {
    for (k, n) in [(0, 5), (5, 0), (1, 1), (16, 16), (37, 50), (64, 150), (33, 97), (50, 140)] {
        check((k, n), (0, 0), (0, 0), &[1]);
    }
    for at in [(0, 1), (3, 0), (7, 8), (9, 31), (1, 33), (20, 48), (8, 100)] {
        [(0, 0), (1, 1), (5, 20), (30, 50)].into_iter().for_each(|end| check((61, 151), at, end, &[1]));
    }
}

#[test]
fn threads_copy_what_one_thread_copies() {
    check((1031, 1033), (2, 5), (3, 4), &[1, 2, 3, 7]);
    check((9001, 61), (0, 0), (0, 0), &[2, 7]);
}
