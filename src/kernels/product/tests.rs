//! The products beside naive sums and those in f64, on every path, in any part and for other machines.

use super::*;
use crate::kernels::cpu::tests::CPUS;
use crate::kernels::numbers;
use crate::kernels::view::Extent2;

fn naive<T: Float>(a: View<'_, T>, b: View<'_, T>, transpose: Transpose) -> Vec<f64> {
    let n = if transpose == Transpose::No { b.width() } else { b.rows() };
    let at = |k: usize, j: usize| if transpose == Transpose::No { b.row(k)[j] } else { b.row(j)[k] };
    let mut out = vec![];
    for row in a.iter() {
        for j in 0..n {
            out.push(row.iter().enumerate().map(|(k, &x)| x.to_f64() * at(k, j).to_f64()).sum());
        }
    }
    out
}

fn check<T: Float>(path: Path, (m, k, n): (usize, usize, usize), transpose: Transpose, tolerance: f64) {
    let (b_rows, b_width) = if transpose == Transpose::No { (k, n) } else { (n, k) };
    let a = numbers::<T>((m + 1) * (k + 3), 1);
    let b = numbers::<T>((b_rows + 1) * (b_width + 2), 2);
    let a = View::strided(&a, Extent2 { rows: m, width: k, stride: k + 3 });
    let b = View::strided(&b, Extent2 { rows: b_rows, width: b_width, stride: b_width + 2 });
    let mut packed = Packed::on(path);
    packed.pack(View::new(&numbers::<T>(15, 3), 3, 5), Transpose::No);
    packed.pack(b, transpose);
    assert_eq!((packed.k(), packed.n()), (k, n));
    let stride = n + 5;
    let mut c = vec![T::from_f64(f64::NAN); m * stride];
    let extent = Extent2 { rows: m, width: n, stride };
    product(a, &packed, ViewMut::strided(&mut c, extent), Store::Write);
    let once = c.clone();
    product(a, &packed, ViewMut::strided(&mut c, extent), Store::Add);
    let bias = numbers::<T>(n, 8);
    let mut biased = vec![T::from_f64(f64::NAN); m * stride];
    affine(a, &packed, Some(&bias), ViewMut::strided(&mut biased, extent), Store::Write, 1);
    let first = biased.clone();
    affine(a, &packed, Some(&bias), ViewMut::strided(&mut biased, extent), Store::Add, 1);
    let expected = naive(a, b, transpose);
    for i in 0..m {
        for j in 0..n {
            let (x, twice, y) = (once[i * stride + j], c[i * stride + j], expected[i * n + j]);
            assert!((x.to_f64() - y).abs() <= tolerance * (k as f64).sqrt(), "{path:?} {m}x{k}x{n}: {x} {y}");
            assert!(twice == x + x, "{path:?} {m}x{k}x{n}: {twice} is not {x} twice");
            let (first, both) = (first[i * stride + j], biased[i * stride + j]);
            assert!(first == bias[j] + x && both == first + first, "{path:?} {m}x{k}x{n}: a bias");
        }
        assert!(once[i * stride + n..(i + 1) * stride].iter().all(|x| !x.is_finite()), "wrote past a row");
    }
}

#[test]
fn every_cpu_makes_the_same_bits() {
    // Long sums, a last panel that is not full, rows that make several blocks; written and added.
    for (m, k, n) in [(1, 2000, 40), (13, 3001, 33), (130, 1200, 70), (800, 300, 20)] {
        for path in Path::available() {
            let (a, b) = (numbers::<f32>(m * k, 4), numbers::<f32>(k * n, 5));
            let (bias, start) = (numbers::<f32>(n, 6), numbers::<f32>(m * n, 7));
            let mut packed = Packed::on(path);
            packed.pack(View::new(&b, k, n), Transpose::No);
            let run = |cpu, store, bias| {
                let mut c = start.clone();
                let to = ViewMut::new(&mut c, m, n);
                product_on(cpu, View::new(&a, m, k), &packed, 0..packed.panels(), bias, to, store);
                c
            };
            for (store, bias) in
                [(Store::Write, None), (Store::Write, Some(&bias[..])), (Store::Add, Some(&bias[..]))]
            {
                let [first, others @ ..] = CPUS;
                let expected = run(first, store, bias);
                for other in others {
                    assert!(
                        run(other, store, bias) == expected,
                        "{path:?} {m}x{k}x{n} {store:?} on {other:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn products_match_the_naive_sum() {
    for path in Path::available() {
        for m in [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 29] {
            for (k, n) in [(0, 5), (1, 1), (7, 33), (64, 64), (30, 131), (17, 0), (5, 200)] {
                for transpose in [Transpose::No, Transpose::Yes] {
                    check::<f32>(path, (m, k, n), transpose, 1e-6);
                    check::<f64>(path, (m, k, n), transpose, 1e-14);
                }
            }
        }
    }
}

#[test]
fn matrices_side_by_side_or_below_each_other_pack_as_the_one_they_make() {
    let (k, widths) = (37, [5, 0, 40, 1, 70]);
    let n = widths.iter().sum::<usize>();
    let b = numbers::<f32>(k * n, 9);
    let b = View::new(&b, k, n);
    for path in Path::available() {
        for transpose in [Transpose::No, Transpose::Yes] {
            let mut whole = Packed::on(path);
            whole.pack(b, transpose);
            let numbers =
                |p: &Packed<f32>| p.data[p.start..p.start + p.panels() * p.panel_width() * p.k].to_vec();
            let room = || {
                let mut parts = Packed::on(path);
                // What was there before does not shine through.
                parts.pack(View::new(&self::numbers::<f32>(200 * 90, 3), 200, 90), Transpose::No);
                let (k, n) = transpose.shape((k, n));
                parts.resize(k, n);
                parts
            };
            let place = |row, column| transpose.shape((row, column));
            let (mut beside, mut at) = (room(), 0);
            for width in widths {
                beside.put(b.columns(at, at + width), transpose, place(0, at));
                at += width;
            }
            assert_eq!(numbers(&whole), numbers(&beside), "{path:?}, {transpose:?}");
            let mut below = room();
            for (from, to) in [(0, 20), (20, 20), (20, 21), (21, k)] {
                below.put(b.rows_range(from, to), transpose, place(from, 0));
            }
            assert_eq!(numbers(&whole), numbers(&below), "{path:?}, {transpose:?}");
        }
    }
}

#[test]
fn products_match_matrixmultiply() {
    let (m, k, n) = (37, 300, 120);
    let (a, b) = (numbers::<f64>(m * k, 6), numbers::<f64>(k * n, 7));
    let mut packed = Packed::new();
    packed.pack(View::new(&b, k, n), Transpose::No);
    let mut ours = vec![0.0; m * n];
    product(View::new(&a, m, k), &packed, ViewMut::new(&mut ours, m, n), Store::Write);
    let mut theirs = vec![0.0; m * n];
    let (ka, na) = (k as isize, n as isize);
    // SAFETY: the three matrices have the sizes and strides that are given.
    unsafe {
        let (a, b, c) = (a.as_ptr(), b.as_ptr(), theirs.as_mut_ptr());
        matrixmultiply::dgemm(m, k, n, 1.0, a, ka, 1, b, na, 1, 0.0, c, na, 1);
    }
    approx::assert_abs_diff_eq!(ours[..], theirs[..], epsilon = 1e-12);
}

#[test]
fn bits_depend_on_neither_rows_nor_columns() {
    // Enough for a second thread; of the two widths one is in panels of two vectors, one of three.
    for n in [150, 140] {
        same_bits(57, 1100, n);
    }
}

fn same_bits(m: usize, k: usize, n: usize) {
    let (a, b) = (numbers::<f32>(m * k, 4), numbers::<f32>(k * n, 5));
    for path in Path::available() {
        let mut packed = Packed::on(path);
        packed.pack(View::new(&b, k, n), Transpose::No);
        let mut whole = vec![0.0; m * n];
        product(View::new(&a, m, k), &packed, ViewMut::new(&mut whole, m, n), Store::Write);
        for rows in [1, 2, 3, 5, 8, 13, 40] {
            for from in [0, 1, m - rows] {
                let mut part = vec![0.0; rows * n];
                let view = View::new(&a, m, k).rows_range(from, from + rows);
                product(view, &packed, ViewMut::new(&mut part, rows, n), Store::Write);
                assert!(part == whole[from * n..(from + rows) * n], "{path:?}: {rows} rows from {from}");
            }
        }
        let mut split = vec![0.0; m * n];
        let at = packed.panels() / 2 + 1;
        let (left, right) = ViewMut::new(&mut split, m, n).split_columns(packed.columns(0..at).end);
        product_panels(View::new(&a, m, k), &packed, 0..at, None, left, Store::Write);
        product_panels(View::new(&a, m, k), &packed, at..packed.panels(), None, right, Store::Write);
        assert!(split == whole, "{path:?}: split columns");
        for threads in [2, 3, 9] {
            let mut shared = vec![0.0; m * n];
            let c = ViewMut::new(&mut shared, m, n);
            affine(View::new(&a, m, k), &packed, None, c, Store::Write, threads);
            assert!(shared == whole, "{path:?}: columns on {threads} threads");
        }
        let mut alone = Packed::on(path);
        alone.pack(View::new(&b, k, n).columns(70, 117), Transpose::No);
        let mut few = vec![0.0; m * 47];
        product(View::new(&a, m, k), &alone, ViewMut::new(&mut few, m, 47), Store::Write);
        for i in 0..m {
            assert!(few[i * 47..(i + 1) * 47] == whole[i * n + 70..i * n + 117], "{path:?}: fewer columns");
        }
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
    let mut packed = Packed::new();
    packed.pack(View::new(&[1.0f32; 6], 2, 3), Transpose::No);
    product(View::new(&[1.0; 3], 1, 3), &packed, ViewMut::new(&mut [0.0; 3], 1, 3), Store::Write);
}
