//! The gradients beside naive sums, on every path, on any number of threads and for other machines.

use super::*;
use crate::kernels::cpu::tests::CPUS;
use crate::kernels::numbers;

fn naive<T: Float>(x: View<'_, T>, dy: View<'_, T>) -> Vec<f64> {
    let n = dy.width();
    let mut dw = vec![0.0; x.width() * n];
    for (x, dy) in x.iter().zip(dy.iter()) {
        for (i, &x) in x.iter().enumerate() {
            for (j, &dy) in dy.iter().enumerate() {
                dw[i * n + j] += x.to_f64() * dy.to_f64();
            }
        }
    }
    dw
}

fn check<T: Float>(on: On, (rows, k, n): (usize, usize, usize), tolerance: f64) -> Vec<f64> {
    let path = on.0;
    let x = numbers::<T>((rows + 1) * (k + 1), 1);
    let dy = numbers::<T>((rows + 1) * (n + 2), 2);
    let x = View::strided(&x, Extent2 { rows, width: k, stride: k + 1 });
    let dy = View::strided(&dy, Extent2 { rows, width: n, stride: n + 2 });
    let extent = Extent2 { rows: k, width: n, stride: n + 3 };
    let mut dw = vec![T::from_f64(f64::NAN); k * (n + 3)];
    let mut db = vec![T::from_f64(f64::NAN); n];
    let mut room = GradientRoom::default();
    let source = RowSource::Lying(x);
    let mut run = |dw: &mut [T], db: &mut [T], store, threads| {
        let (dw, db) = ((ViewMut::strided(dw, extent), store, Transpose::No), Some((db, store)));
        weight_gradient(on, Gradients { x: source, dy, dw, db }, &mut room, threads);
    };
    run(&mut dw, &mut db, Store::Write, 1);
    let (once, sums) = (dw.clone(), db.clone());
    run(&mut dw, &mut db, Store::Add, 2);
    let extent = Extent2 { rows: n, width: k, stride: k + 5 };
    let mut turned = vec![T::from_f64(f64::NAN); n * (k + 5)];
    for (store, threads, expected) in [(Store::Write, 1, &once), (Store::Add, 2, &dw)] {
        let to = (ViewMut::strided(&mut turned, extent), store, Transpose::Yes);
        weight_gradient(on, Gradients { x: source, dy, dw: to, db: None }, &mut room, threads);
        for (i, j) in (0..k).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let (ours, theirs) = (turned[j * (k + 5) + i], expected[i * (n + 3) + j]);
            assert!(ours == theirs, "{path:?} {rows}x{k}x{n}, transposed: {ours} is not {theirs}");
        }
        let past = turned.chunks(k + 5).all(|row| row[k..].iter().all(|x| !x.is_finite()));
        assert!(past, "{path:?} {rows}x{k}x{n}, transposed: wrote past a row");
    }
    for j in 0..n {
        let sum: f64 = dy.iter().map(|row| row[j].to_f64()).sum();
        let off = (sums[j].to_f64() - sum).abs();
        assert!(off <= tolerance * (1.0 + rows as f64), "{rows}x{k}x{n}: {} {sum}", sums[j]);
        let off = (db[j].to_f64() - 2.0 * sum).abs();
        assert!(off <= tolerance * (1.0 + rows as f64), "{rows}x{k}x{n}: {} twice {sum}", db[j]);
    }
    let expected = naive(x, dy);
    for i in 0..k {
        for j in 0..n {
            let (a, b, y) =
                (once[i * (n + 3) + j].to_f64(), dw[i * (n + 3) + j].to_f64(), expected[i * n + j]);
            let bound = tolerance * (1.0 + rows as f64).sqrt();
            assert!(
                (a - y).abs() <= bound && (b - 2.0 * y).abs() <= 2.0 * bound,
                "{rows}x{k}x{n}: {a} {b} {y}"
            );
        }
    }
    dw.chunks(n + 3).flat_map(|row| &row[..n]).map(|x| x.to_f64()).collect()
}

#[test]
fn weight_gradients_match_the_naive_sum_and_are_the_same_for_every_machine() {
    for shape in [
        (0, 3, 4),
        (1, 1, 1),
        (1, 7, 33),
        (3, 64, 5),
        (200, 17, 31),
        (700, 40, 130),
        (5, 0, 3),
        (260, 300, 520),
    ] {
        for path in Path::available() {
            let [first, others @ ..] = CPUS;
            let single = check::<f32>((path, first), shape, 2e-6);
            let double = check::<f64>((path, first), shape, 1e-14);
            for other in others {
                assert!(
                    check::<f32>((path, other), shape, 2e-6) == single,
                    "{path:?} {shape:?} on {other:?}"
                );
                assert!(
                    check::<f64>((path, other), shape, 1e-14) == double,
                    "{path:?} {shape:?} on {other:?}"
                );
            }
        }
    }
}

#[test]
fn weight_gradients_have_the_same_bits_on_any_number_of_threads() {
    let shapes = [
        (16000, 128, 1024),
        (16000, 256, 1024),
        (1, 128, 1024),
        (7, 256, 1024),
        (63, 300, 777),
        (1000, 33, 2000),
        (3000, 512, 65),
        (20000, 300, 1),
        (20000, 1, 300),
        (40, 2000, 300),
    ];
    for (rows, k, n) in shapes {
        let (x, dy) = (numbers::<f32>(rows * k, 1), numbers::<f32>(rows * n, 2));
        let run = |threads, transpose: Transpose| {
            let (mut dw, mut db) = (vec![0.5; k * n], vec![0.5; n]);
            let (x, dy) = (View::new(&x, rows, k), View::new(&dy, rows, n));
            let (height, width) = transpose.shape((k, n));
            let weight = Some((x, (ViewMut::new(&mut dw, height, width), Store::Add, transpose)));
            let room = &mut GradientRoom::default();
            affine_gradient(dy, weight, Some((&mut db, Store::Add)), room, threads);
            (dw, db)
        };
        for transpose in [Transpose::No, Transpose::Yes] {
            let one = run(1, transpose);
            for threads in [2, 3] {
                assert!(run(threads, transpose) == one, "{rows}x{k}x{n} on {threads} threads");
            }
        }
    }
}

#[test]
fn bias_gradients_have_the_same_bits_on_any_number_of_threads() {
    for (rows, n) in [(9000, 130), (1050, 1001), (600_000, 2), (2_000_000, 1)] {
        let dy = numbers::<f32>(rows * n, 1);
        let run = |threads| {
            let mut db = vec![0.5; n];
            bias_gradient(View::new(&dy, rows, n), &mut db, Store::Add, threads);
            db
        };
        let one = run(1);
        for threads in [2, 3] {
            assert!(run(threads) == one, "{rows}x{n} on {threads} threads");
        }
    }
}

#[test]
fn bias_gradients_match_the_naive_sum() {
    for (rows, n) in [(0, 3), (1, 1), (5, 0), (300, 129), (1000, 256), (128, 500)] {
        let dy = numbers::<f32>((rows + 1) * (n + 2), 1);
        let dy = View::strided(&dy, Extent2 { rows, width: n, stride: n + 2 });
        let mut db = vec![f32::NAN; n];
        bias_gradient(dy, &mut db, Store::Write, 1);
        let once = db.clone();
        bias_gradient(dy, &mut db, Store::Add, 1);
        for j in 0..n {
            let expected: f64 = dy.iter().map(|row| f64::from(row[j])).sum();
            assert!((f64::from(once[j]) - expected).abs() < 1e-4, "{} {expected}", once[j]);
            let twice = 2.0 * expected;
            assert!((f64::from(db[j]) - twice).abs() < 2e-4, "{} {twice}", db[j]);
        }
    }
}

/// So it does not matter where the rows of a batch are cut into calls, if it is between two blocks.
#[test]
fn sums_go_on_from_call_to_call_by_whole_blocks() {
    let (rows, k, n) = (1100, 9, 40);
    let (x, dy) = (numbers::<f32>(rows * k, 1), numbers::<f32>(rows * n, 2));
    let (x, dy) = (View::new(&x, rows, k), View::new(&dy, rows, n));
    let run = |cuts: &[usize], with_weight: bool| {
        let (mut dw, mut db) = (vec![0.0; k * n], vec![0.0; n]);
        let (mut room, mut store, mut from) = (GradientRoom::default(), Store::Write, 0);
        for &to in cuts.iter().chain(&[rows]) {
            let dw = (ViewMut::new(&mut dw, k, n), store, Transpose::No);
            let weight = with_weight.then_some((x.rows_range(from, to), dw));
            affine_gradient(dy.rows_range(from, to), weight, Some((&mut db, store)), &mut room, 2);
            (store, from) = (Store::Add, to);
        }
        (dw, db)
    };
    for with_weight in [false, true] {
        let whole = run(&[], with_weight);
        for cuts in [&[256, 512, 768, 1024][..], &[768], &[512, 1024]] {
            assert!(run(cuts, with_weight) == whole, "cut at {cuts:?}, with weight: {with_weight}");
        }
    }
    assert!(run(&[300], true) != run(&[], true), "a cut inside a block is another sum");
    assert_eq!(run(&[], false).1, run(&[], true).1, "the bias alone");
}
