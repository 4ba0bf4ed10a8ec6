//! The products compared with naive sums and with products in f64, on every path, in any part and for other machines.

use super::*;
use crate::kernels::checks::{self, multiplied, numbers, packed, plain_sums};
use crate::kernels::cpu::tests::CPUS;
use crate::kernels::tile;
use crate::kernels::view::Extent2;

/// Computes the sums of the products, and of their magnitudes, in f64 with naive loops.
fn naive<T: Float>(a: View<'_, T>, b: View<'_, T>, transpose: Transpose) -> [Vec<f64>; 2] {
    let n = if transpose == Transpose::No { b.width() } else { b.rows() };
    let at = |k: usize, j: usize| if transpose == Transpose::No { b.row(k)[j] } else { b.row(j)[k] };
    plain_sums([a.rows(), a.width(), n], |i, k, j| a.row(i)[k].to_f64() * at(k, j).to_f64())
}

/// Computes the sums of the products, and of their magnitudes, with [`product`] in f64.
fn in_double(a: View<'_, f32>, b: View<'_, f32>, transpose: Transpose) -> [Vec<f64>; 2] {
    let converted = |x: View<'_, f32>, map: fn(f64) -> f64| -> Vec<f64> {
        x.iter().flatten().map(|&x| map(f64::from(x))).collect()
    };
    [|x| x, f64::abs].map(|map| {
        let packed = packed(Path::best(), View::new(&converted(b, map), b.rows(), b.width()), transpose);
        multiplied(View::new(&converted(a, map), a.rows(), a.width()), &packed, 1)
    })
}

type Expected<T> = fn(View<'_, T>, View<'_, T>, Transpose) -> [Vec<f64>; 2];

/// Checks that each sum differs from the expected sum by at most a few roundings of `epsilon`, relative to the sum of
/// the magnitudes of its terms.
fn check<T: Float>(
    path: Path,
    (m, k, n): (usize, usize, usize),
    transpose: Transpose,
    (expected, epsilon): (Expected<T>, f64),
) {
    let (b_rows, b_width) = transpose.shape((k, n));
    let a = numbers::<T>((m + 1) * (k + 3), 1);
    let b = numbers::<T>((b_rows + 1) * (b_width + 2), 2);
    let a = View::strided(&a, Extent2 { rows: m, width: k, stride: k + 3 });
    let b = View::strided(&b, Extent2 { rows: b_rows, width: b_width, stride: b_width + 2 });
    let mut packed = PackedMatrix::on(path);
    packed.pack(View::new(&numbers::<T>(15, 3), 3, 5), Transpose::No, 1);
    packed.pack(b, transpose, 1);
    assert_eq!((packed.k(), packed.n()), (k, n));
    let stride = n + 5;
    let mut c = vec![T::from_f64(f64::NAN); m * stride];
    let extent = Extent2 { rows: m, width: n, stride };
    let run = |bias: Option<&[T]>, to: &mut [T], assign| {
        let to = ViewMut::strided(to, extent);
        affine(a.into(), &packed, bias, to.into(), assign, &mut RoundedRows::default(), 1);
    };
    run(None, &mut c, Assign::Write);
    let once = c.clone();
    run(None, &mut c, Assign::Add);
    let bias = numbers::<T>(n, 8);
    let mut biased = vec![T::from_f64(f64::NAN); m * stride];
    run(Some(&bias), &mut biased, Assign::Write);
    let first = biased.clone();
    run(Some(&bias), &mut biased, Assign::Add);
    let [expected, magnitudes] = expected(a, b, transpose);
    for i in 0..m {
        for j in 0..n {
            let (x, twice, y) = (once[i * stride + j], c[i * stride + j], expected[i * n + j]);
            let bound = epsilon * (1.0 + (k as f64).sqrt()) * magnitudes[i * n + j];
            assert!((x.to_f64() - y).abs() <= bound, "{path:?} {m}x{k}x{n}: {x} {y}");
            assert!(twice == x + x, "{path:?} {m}x{k}x{n}: {twice} is not {x} twice");
            let (first, both) = (first[i * stride + j], biased[i * stride + j]);
            assert!(first == bias[j] + x && both == first + first, "{path:?} {m}x{k}x{n}: a bias");
        }
        assert!(once[i * stride + n..(i + 1) * stride].iter().all(|x| !x.is_finite()), "wrote past a row");
    }
}

#[test]
fn every_cpu_makes_the_same_bits() {
    // The products have long sums, a last panel that is not full, or enough rows for several blocks. The results are
    // written and added.
    for (m, k, n) in [(1, 2000, 40), (13, 3001, 33), (130, 1200, 70), (800, 300, 20)] {
        for path in Path::available() {
            let (a, b) = (numbers::<f32>(m * k, 4), numbers::<f32>(k * n, 5));
            let (bias, start) = (numbers::<f32>(n, 6), numbers::<f32>(m * n, 7));
            let packed = packed(path, View::new(&b, k, n), Transpose::No);
            let run = |cpu, assign, bias| {
                let mut c = start.clone();
                let (a, to) = (View::new(&a, m, k), ViewMut::new(&mut c, m, n));
                product_by_tiles(cpu, a, &packed, 0..packed.panels(), bias, to.into(), assign);
                c
            };
            for (assign, bias) in
                [(Assign::Write, None), (Assign::Write, Some(&bias[..])), (Assign::Add, Some(&bias[..]))]
            {
                let [first, others @ ..] = CPUS;
                let expected = run(first, assign, bias);
                for other in others {
                    assert!(
                        run(other, assign, bias) == expected,
                        "{path:?} {m}x{k}x{n} {assign:?} on {other:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn products_match_the_sums_in_double() {
    for path in Path::available() {
        for m in [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 29] {
            for (k, n) in [(0, 5), (1, 1), (7, 33), (64, 64), (30, 131), (17, 0), (5, 200), (700, 50)] {
                for transpose in [Transpose::No, Transpose::Yes] {
                    check::<f32>(path, (m, k, n), transpose, (in_double, f64::from(f32::EPSILON)));
                }
            }
        }
    }
}

/// Covers each number of rows and of panels of a tile, and each number of columns that is less than a panel.
#[test]
fn products_of_any_size_match_the_sums_in_double() {
    for path in Path::available() {
        let widest = 4 * tile::PANEL_VECTORS * tile::lanes(path) + 1;
        for m in 1..=13 {
            for n in 1..=widest {
                check::<f32>(path, (m, 3, n), Transpose::No, (in_double, f64::from(f32::EPSILON)));
            }
        }
    }
}

#[test]
fn products_in_double_match_the_naive_sum() {
    for m in [0, 1, 2, 3, 5, 7, 8, 9, 29, 300] {
        for (k, n) in [(0, 5), (1, 1), (7, 33), (64, 64), (17, 0), (5, 200), (600, 9), (513, 1)] {
            for transpose in [Transpose::No, Transpose::Yes] {
                check::<f64>(Path::best(), (m, k, n), transpose, (naive, f64::EPSILON));
            }
        }
    }
}

#[test]
fn matrices_side_by_side_or_below_each_other_pack_as_the_one_they_make() {
    for path in Path::available() {
        parts_pack_as_the_whole::<f32>(path, |p| p.panels() * p.panel_width() * p.k());
    }
    parts_pack_as_the_whole::<f64>(Path::best(), |p| p.k() * p.n());
}

fn parts_pack_as_the_whole<T: Float>(path: Path, len: fn(&PackedMatrix<T>) -> usize) {
    let (k, widths) = (37, [5, 0, 40, 1, 70]);
    let n = widths.iter().sum::<usize>();
    let b = numbers::<T>(k * n, 9);
    let b = View::new(&b, k, n);
    for transpose in [Transpose::No, Transpose::Yes] {
        let mut whole = PackedMatrix::on(path);
        whole.pack(b, transpose, 1);
        let numbers = |p: &PackedMatrix<T>| p.numbers()[..len(p)].to_vec();
        let room = || {
            let mut parts = PackedMatrix::on(path);
            // The previous contents leave no trace.
            parts.pack(View::new(&self::numbers::<T>(200 * 90, 3), 200, 90), Transpose::No, 1);
            let (k, n) = transpose.shape((k, n));
            parts.resize(k, n);
            parts
        };
        let index = |row, column| transpose.shape((row, column));
        let (mut beside, mut at) = (room(), 0);
        for width in widths {
            beside.put(b.columns(at, at + width), transpose, index(0, at), 1);
            at += width;
        }
        assert_eq!(numbers(&whole), numbers(&beside), "{path:?}, {transpose:?}");
        let mut below = room();
        for (from, to) in [(0, 20), (20, 20), (20, 21), (21, k)] {
            below.put(b.rows_range(from, to), transpose, index(from, 0), 1);
        }
        assert_eq!(numbers(&whole), numbers(&below), "{path:?}, {transpose:?}");
    }
}

#[test]
fn bits_depend_on_neither_rows_nor_columns() {
    // The products are large enough for a second thread. One width has panels of two vectors, the other width has
    // panels of three vectors.
    for n in [150, 140] {
        for path in Path::available() {
            same_bits::<f32>(path, (57, 1100, n));
        }
        same_bits::<f64>(Path::best(), (57, 1100, n));
    }
}

/// Covers the blocks of `matrixmultiply`, which cuts rows, columns and long sums for its caches.
#[test]
fn a_row_has_the_same_bits_in_a_batch_of_any_size() {
    for (k, n) in [(1, 1), (5, 3), (300, 7), (257, 36)] {
        let most = 2048;
        let (a, b) = (numbers::<f64>(most * k, 4), numbers::<f64>(k * n, 5));
        let packed = packed(Path::best(), View::new(&b, k, n), Transpose::No);
        let a = View::new(&a, most, k);
        let run = |from: usize, rows: usize| multiplied(a.rows_range(from, from + rows), &packed, 1);
        let whole = run(0, most);
        // If the product is small, the test takes all numbers of rows. Otherwise it takes the numbers below 80, and the
        // numbers at or just above a multiple of 576, at which `matrixmultiply` cuts rows.
        let sizes = (1..=most).filter(|rows| k * n < 20 || *rows < 80 || rows % 576 < 10);
        for rows in sizes {
            let from = (rows * 7919) % (most - rows + 1);
            assert!(run(from, rows) == whole[from * n..(from + rows) * n], "{rows} of {k}x{n} from {from}");
        }
    }
}

fn same_bits<T: Float>(path: Path, (m, k, n): (usize, usize, usize)) {
    let (a, b) = (numbers::<T>(m * k, 4), numbers::<T>(k * n, 5));
    let (a, b) = (View::new(&a, m, k), View::new(&b, k, n));
    let packed = packed(path, b, Transpose::No);
    let whole = multiplied(a, &packed, 1);
    for rows in [1, 2, 3, 5, 8, 13, 40] {
        for from in [0, 1, m - rows] {
            let part = multiplied(a.rows_range(from, from + rows), &packed, 1);
            assert!(part == whole[from * n..(from + rows) * n], "{path:?}: {rows} rows from {from}");
        }
    }
    let mut split = vec![T::ZERO; m * n];
    let at = packed.panels() / 2 + 1;
    let (left, right) = ViewMut::new(&mut split, m, n).split_columns(packed.columns(0..at).end);
    product_panels(a, &packed, 0..at, None, left.into(), Assign::Write);
    product_panels(a, &packed, at..packed.panels(), None, right.into(), Assign::Write);
    assert!(split == whole, "{path:?}: split columns");
    for threads in [2, 3, 9] {
        assert!(multiplied(a, &packed, threads) == whole, "{path:?}: columns on {threads} threads");
    }
    let few = multiplied(a, &checks::packed(path, b.columns(70, 117), Transpose::No), 1);
    for i in 0..m {
        assert!(few[i * 47..(i + 1) * 47] == whole[i * n + 70..i * n + 117], "{path:?}: fewer columns");
    }
}

#[test]
fn blocks_are_even() {
    let sizes = |len, most| even_blocks(len, most).map(|r| r.len()).collect::<Vec<_>>();
    assert_eq!(sizes(13, 12), [6, 7]);
    assert_eq!(sizes(12, 12), [12]);
    assert_eq!(sizes(32, 12), [10, 11, 11]);
    assert!(sizes(0, 12).is_empty());
}

#[test]
#[should_panic(expected = "inner sizes")]
fn an_inner_mismatch_panics() {
    let packed = packed(Path::best(), View::new(&[1.0f32; 6], 2, 3), Transpose::No);
    multiplied(View::new(&[1.0; 3], 1, 3), &packed, 1);
}
