//! The gradients compared with naive sums, on every path, on any number of threads and for other machines.

use super::*;
use crate::kernels::checks::{numbers, plain_sums};
use crate::kernels::cpu::tests::CPUS;
use crate::kernels::double;

/// Computes the sums of the products, and of their magnitudes, in f64 with naive loops.
fn naive<T: Float>(x: View<'_, T>, dy: View<'_, T>) -> [Vec<f64>; 2] {
    let term = |i: usize, row: usize, j: usize| x.row(row)[i].to_f64() * dy.row(row)[j].to_f64();
    plain_sums([x.width(), x.rows(), dy.width()], term)
}

/// Computes the sums of the products, and of their magnitudes, with [`affine_gradient`] in f64.
fn in_double(x: View<'_, f32>, dy: View<'_, f32>) -> [Vec<f64>; 2] {
    let converted = |x: View<'_, f32>, map: fn(f64) -> f64| -> Vec<f64> {
        x.iter().flatten().map(|&x| map(f64::from(x))).collect()
    };
    [|x| x, f64::abs].map(|map| {
        let (rows, k, n) = (x.rows(), x.width(), dy.width());
        let mut dw = vec![f64::NAN; k * n];
        let to = (ViewMut::new(&mut dw, k, n), Assign::Write, Transpose::No);
        let (x, dy) = (converted(x, map), converted(dy, map));
        let weight = Some((View::new(&x, rows, k).into(), to));
        affine_gradient(
            View::new(&dy, rows, n).into(),
            weight,
            None,
            MatrixUnit::F32,
            &mut GradientRoom::default(),
            1,
        );
        dw
    })
}

/// The function that computes a type's gradients, the function that returns their expected values and the magnitudes
/// that bound their rounding errors, and the type's epsilon.
struct Kind<T: Float> {
    gradients: fn(EngineCpu, Gradients<'_, T>, &mut GradientRoom<T>, usize),
    expected: fn(View<'_, T>, View<'_, T>) -> [Vec<f64>; 2],
    epsilon: f64,
}

const SINGLE: Kind<f32> = Kind {
    gradients: |on, all, room, threads| by_tiles(blocks, on, all, room, threads),
    expected: in_double,
    epsilon: f32::EPSILON as f64,
};
const DOUBLE: Kind<f64> = Kind {
    gradients: |_, all, _, threads| double::gradients(all, threads),
    expected: naive,
    epsilon: f64::EPSILON,
};

fn check<T: Float>(on: EngineCpu, (rows, k, n): (usize, usize, usize), kind: &Kind<T>) -> Vec<f64> {
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
    let mut run = |dw: &mut [T], db: &mut [T], assign, threads| {
        let (dw, db) = ((ViewMut::strided(dw, extent), assign, Transpose::No), Some((db, assign)));
        let all = Gradients { unit: MatrixUnit::F32, x: source, dy: dy.into(), dw, db };
        (kind.gradients)(on, all, &mut room, threads);
    };
    run(&mut dw, &mut db, Assign::Write, 1);
    let (once, sums) = (dw.clone(), db.clone());
    run(&mut dw, &mut db, Assign::Add, 2);
    let extent = Extent2 { rows: n, width: k, stride: k + 5 };
    let mut turned = vec![T::from_f64(f64::NAN); n * (k + 5)];
    for (assign, threads, expected) in [(Assign::Write, 1, &once), (Assign::Add, 2, &dw)] {
        let to = (ViewMut::strided(&mut turned, extent), assign, Transpose::Yes);
        (kind.gradients)(
            on,
            Gradients { unit: MatrixUnit::F32, x: source, dy: dy.into(), dw: to, db: None },
            &mut room,
            threads,
        );
        for (i, j) in (0..k).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let (ours, theirs) = (turned[j * (k + 5) + i], expected[i * (n + 3) + j]);
            assert!(ours == theirs, "{path:?} {rows}x{k}x{n}, transposed: {ours} is not {theirs}");
        }
        let past = turned.chunks(k + 5).all(|row| row[k..].iter().all(|x| !x.is_finite()));
        assert!(past, "{path:?} {rows}x{k}x{n}, transposed: wrote past a row");
    }
    let bound = |magnitude: f64| kind.epsilon * (2.0 + (rows as f64).sqrt()) * magnitude;
    for j in 0..n {
        let sum: f64 = dy.iter().map(|row| row[j].to_f64()).sum();
        let bound = bound(dy.iter().map(|row| row[j].to_f64().abs()).sum());
        let off = (sums[j].to_f64() - sum).abs();
        assert!(off <= bound, "{path:?} {rows}x{k}x{n}: {} {sum}", sums[j]);
        let off = (db[j].to_f64() - 2.0 * sum).abs();
        assert!(off <= 2.0 * bound, "{path:?} {rows}x{k}x{n}: {} twice {sum}", db[j]);
    }
    let [expected, magnitudes] = (kind.expected)(x, dy);
    for i in 0..k {
        for j in 0..n {
            let (a, b, y) =
                (once[i * (n + 3) + j].to_f64(), dw[i * (n + 3) + j].to_f64(), expected[i * n + j]);
            let bound = bound(magnitudes[i * n + j]);
            assert!(
                (a - y).abs() <= bound && (b - 2.0 * y).abs() <= 2.0 * bound,
                "{path:?} {rows}x{k}x{n}: {a} {b} {y}"
            );
        }
    }
    dw.chunks(n + 3).flat_map(|row| &row[..n]).map(|x| x.to_f64()).collect()
}

#[test]
fn weight_gradients_match_the_sums_in_double_and_are_the_same_for_every_machine() {
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
        let [first, others @ ..] = CPUS;
        for path in Path::available() {
            let single = check((ProductEngine::F32(path), first), shape, &SINGLE);
            for other in others {
                assert!(
                    check((ProductEngine::F32(path), other), shape, &SINGLE) == single,
                    "{path:?} {shape:?} on {other:?}"
                );
            }
        }
        check((ProductEngine::F32(Path::best()), first), shape, &DOUBLE);
    }
}

/// Covers each number of columns of `x` that a tile takes, and each number of columns of `dy` that is less than a
/// panel.
#[test]
fn weight_gradients_of_any_size_match_the_sums_in_double() {
    for path in Path::available() {
        let widest = PACKED_FROM * PANEL_VECTORS * lanes(path) + 1;
        for k in 1..=13 {
            for n in (1..=widest).filter(|n| *n <= 33 || n % 7 == 0 || *n + 3 > widest) {
                check((ProductEngine::F32(path), CPUS[0]), (3, k, n), &SINGLE);
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
    for shape in shapes {
        same_bits::<f32>(shape, &[2, 3]);
    }
    for shape in [(600, 40, 300), (7, 256, 1024), (1000, 900, 5), (15000, 300, 1), (40, 170, 700)] {
        same_bits::<f64>(shape, &[2, 3, 9]);
    }
}

fn same_bits<T: Float>((rows, k, n): (usize, usize, usize), others: &[usize]) {
    let (x, dy) = (numbers::<T>(rows * k, 1), numbers::<T>(rows * n, 2));
    let run = |threads, transpose: Transpose| {
        let (mut dw, mut db) = (vec![T::from_f64(0.5); k * n], vec![T::from_f64(0.5); n]);
        let (x, dy) = (View::new(&x, rows, k), View::new(&dy, rows, n));
        let (height, width) = transpose.shape((k, n));
        let weight = Some((x.into(), (ViewMut::new(&mut dw, height, width), Assign::Add, transpose)));
        let room = &mut GradientRoom::default();
        affine_gradient(dy.into(), weight, Some((&mut db, Assign::Add)), MatrixUnit::F32, room, threads);
        (dw, db)
    };
    for transpose in [Transpose::No, Transpose::Yes] {
        let one = run(1, transpose);
        for &threads in others {
            assert!(run(threads, transpose) == one, "{rows}x{k}x{n} on {threads} threads");
        }
    }
}

#[test]
fn rows_that_are_picked_give_the_bits_of_the_same_rows_as_they_lie() {
    for path in Path::available() {
        same_bits_of_picked((ProductEngine::F32(path), CPUS[0]), &SINGLE);
    }
    same_bits_of_picked((ProductEngine::F32(Path::best()), CPUS[0]), &DOUBLE);
}

fn same_bits_of_picked<T: Float>(on: EngineCpu, kind: &Kind<T>) {
    let (rows, k, n) = (300, 19, 21);
    let x = numbers::<T>(rows * k, 1);
    let (beside, zeros, dy) = (numbers::<T>(2 * k, 2), vec![T::ZERO; k], numbers::<T>(rows * n, 3));
    let index: Vec<usize> = (0..rows).map(|row| row * 7 % (rows + 4)).collect();
    let (x, beside) = (View::new(&x, rows, k), View::new(&beside, 2, k));
    let picked = PickedRows { x, beside: Some(beside), zeros: &zeros, index: &index };
    let mut copied = vec![];
    RowSource::Picked(picked).each(|row| copied.extend_from_slice(row));
    let run = |x: RowSource<'_, T>| {
        let mut dw = vec![T::from_f64(f64::NAN); k * n];
        let to = (ViewMut::new(&mut dw, k, n), Assign::Write, Transpose::No);
        let all =
            Gradients { unit: MatrixUnit::F32, x, dy: View::new(&dy, rows, n).into(), dw: to, db: None };
        (kind.gradients)(on, all, &mut GradientRoom::default(), 1);
        dw
    };
    let lying = RowSource::Lying(View::new(&copied, rows, k));
    assert!(run(RowSource::Picked(picked)) == run(lying), "{on:?}");
}

#[test]
fn bias_gradients_have_the_same_bits_on_any_number_of_threads() {
    for (rows, n) in [(9000, 130), (1050, 1001), (600_000, 2), (2_000_000, 1)] {
        let dy = numbers::<f32>(rows * n, 1);
        let run = |threads| {
            let mut db = vec![0.5; n];
            bias_gradient((View::new(&dy, rows, n).into(), false), &mut db, Assign::Add, threads);
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
        bias_gradient((dy.into(), false), &mut db, Assign::Write, 1);
        let once = db.clone();
        bias_gradient((dy.into(), false), &mut db, Assign::Add, 1);
        for j in 0..n {
            let expected: f64 = dy.iter().map(|row| f64::from(row[j])).sum();
            assert!((f64::from(once[j]) - expected).abs() < 1e-4, "{} {expected}", once[j]);
            let twice = 2.0 * expected;
            assert!((f64::from(db[j]) - twice).abs() < 2e-4, "{} {twice}", db[j]);
        }
    }
}

/// Dividing the rows of a batch over several calls changes no bit if every cut is at the end of a block of [`SUM_ROWS`] rows.
#[test]
fn sums_go_on_from_call_to_call_by_whole_blocks() {
    sums_go_on::<f32>();
    sums_go_on::<f64>();
}

fn sums_go_on<T: Float>() {
    let (rows, k, n) = (1100, 9, 40);
    let (x, dy) = (numbers::<T>(rows * k, 1), numbers::<T>(rows * n, 2));
    let (x, dy) = (View::new(&x, rows, k), View::new(&dy, rows, n));
    let run = |cuts: &[usize], with_weight: bool| {
        let (mut dw, mut db) = (vec![T::ZERO; k * n], vec![T::ZERO; n]);
        let (mut room, mut assign, mut from) = (GradientRoom::default(), Assign::Write, 0);
        for &to in cuts.iter().chain(&[rows]) {
            let dw = (ViewMut::new(&mut dw, k, n), assign, Transpose::No);
            let weight = with_weight.then_some((x.rows_range(from, to).into(), dw));
            affine_gradient(
                dy.rows_range(from, to).into(),
                weight,
                Some((&mut db, assign)),
                MatrixUnit::F32,
                &mut room,
                2,
            );
            (assign, from) = (Assign::Add, to);
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
