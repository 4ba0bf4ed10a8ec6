//! Products in bf16 compared with sums in f64, and an instruction compared with its twin.

use super::rounding::{EveryWay, LANES, PlainLoop, round_by};
use super::*;
use crate::kernels::checks::{multiplied, numbers, plain_sums, turned, within_roundings};
use crate::kernels::column_sums::bias_gradient;
use crate::kernels::cpu::cpu;
use crate::kernels::engine::awkward_pairs;
use crate::kernels::float::Assign;
use crate::kernels::gradient::by_tiles;
use crate::kernels::path::{Implementation, MatrixUnit, ProductEngine, sweep};
use crate::kernels::picked::{PickedRows, RowSource};
use crate::kernels::product::product_by_tiles;
use crate::kernels::products::{
    GradientRoom, Gradients, LeftMatrix, PackedMatrix, ResultMatrix, RoundedRows, Transpose,
};
use crate::kernels::view::{Extent2, View, ViewMut};
use crate::kernels::{affine, product, round_rows};

/// Every engine that this CPU can run.
fn engines() -> Vec<ProductEngine> {
    let mut engines =
        vec![ProductEngine::Pairs(Implementation::Twin), ProductEngine::Tiles(Implementation::Twin)];
    engines.extend(pairs::has_instruction().then_some(ProductEngine::Pairs(Implementation::Instruction)));
    engines.extend(tiles::has_instruction().then_some(ProductEngine::Tiles(Implementation::Instruction)));
    let fused = [ProductEngine::Pairs(Implementation::Fused), ProductEngine::Tiles(Implementation::Fused)];
    engines.extend(fused.into_iter().filter(|_| fused::is_available()));
    engines
}

/// The second number of each pair of [`awkward_pairs`].
fn awkward(shape: (usize, usize), seed: u64, line: impl Fn(usize) -> usize) -> Vec<f32> {
    awkward_pairs(shape, seed, line).into_iter().map(|pair| numbers_of(pair).1).collect()
}

fn bf16(x: f32) -> f32 {
    f32::from_bits(round(x) << 16)
}

/// Rounds to the nearest bf16 number with integers of 64 bits, another way than [`round`].
fn nearest(x: f32) -> f32 {
    if !x.is_normal() && !x.is_nan() && x.is_finite() {
        return 0.0 * x.signum();
    }
    if !x.is_finite() {
        return x;
    }
    let (below, above) = (x.to_bits() & 0xffff_0000, (x.to_bits() & 0xffff_0000).wrapping_add(0x1_0000));
    let value = |bits: u32| match bits & 0x7fff_ffff {
        // Beyond the largest number, as if the exponents went on.
        0x7f80_0000 => 2f64.powi(128),
        _ => f64::from(f32::from_bits(bits)).abs(),
    };
    let (low, high) = (f64::from(x).abs() - value(below), value(above) - f64::from(x).abs());
    let up = high < low || high == low && above & 0x1_0000 == 0;
    f32::from_bits(if up { above } else { below })
}

#[test]
fn numbers_are_rounded_to_the_nearest_and_ties_to_even() {
    let mut state = 7u32;
    for at in 0..3_000_000u32 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Ties, numbers beside ties, and numbers of all kinds.
        let bits = match at % 4 {
            0 => state & 0xffff_0000 | 0x8000,
            1 => (state & 0xffff_0000 | 0x8000).wrapping_add(at / 4 % 3).wrapping_sub(1),
            _ => state ^ at << 16,
        };
        let x = f32::from_bits(bits);
        let (ours, theirs) = (bf16(x), nearest(x));
        assert!(
            ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
            "{x:e}: {ours:e} {theirs:e}"
        );
    }
}

#[test]
fn the_instruction_rounds_and_transposes_as_plain_code() {
    #[cfg(target_arch = "x86_64")]
    assert_eq!(
        rounding::has_instruction(),
        pairs::has_instruction(),
        "the instruction differs from plain code"
    );
    let mut state = 3u64;
    for _ in 0..20_000 {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = (state >> 32) as u32;
            // Ties, subnormal numbers, NaN and infinities, and numbers of all kinds.
            f32::from_bits(match bits % 8 {
                0 => bits & 0xffff_0000 | 0x8000,
                1 => bits & 0x807f_ffff,
                2 => bits | 0x7f80_0000,
                3 => bits & 0x8000_0000 | 0x7f80_0000,
                4 => bits & 0x807f_ffff | 0x7f00_0000,
                _ => bits,
            })
        };
        let from = [[(); 2 * LANES]; LANES].map(|row| row.map(|()| next()));
        let [mut ours, mut plain] = [[[[0.0; LANES]; LANES]; 3]; 2];
        round_by(EveryWay { numbers: &from, words: &mut ours });
        sweep(PlainLoop(EveryWay { numbers: &from, words: &mut plain }));
        let [ours, plain] =
            [ours, plain].map(|ways| ways.map(|words| words.map(|row| row.map(f32::to_bits))));
        assert_eq!(ours, plain, "{from:x?}");
        let [along, turned, across] = plain;
        for (i, row) in from.iter().enumerate() {
            for j in 0..LANES {
                let word = round(row[2 * j]) | round(row[2 * j + 1]) << 16;
                assert_eq!((along[i][j], turned[j][i]), (word, word));
                assert_eq!(across[i][j], round(row[j]) | round(row[j + LANES]) << 16);
            }
        }
    }
}

/// Computes a fused multiply-add with integers: exact for operands of a small range of exponents.
#[test]
fn a_product_is_added_with_one_rounding() {
    let mut state = 11u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for _ in 0..1_000_000 {
        // a and b have 8 bits, sum has 24 bits, and all sums of their multiples of 2^-60 fit into 128 bits.
        let (a, b) = (next() as i64 % 256, next() as i64 % 256);
        let (sum, shift) = (next() as i64 % (1 << 24), next() as i32 % 40);
        let (a, b, sum) = (a as f32, b as f32, sum as f32 * 2f32.powi(-shift));
        let exact = (a as i128 * b as i128) * (1i128 << 60) - (sum as f64 * 2f64.powi(60)) as i128;
        // `as` rounds an integer to the nearest number, ties to even.
        let expected = (exact as f32) * 2f32.powi(-60);
        assert_eq!(add_product(-sum, a, b).to_bits(), (expected + 0.0).to_bits(), "{a} · {b} - {sum:e}");
    }
    let tiny = f32::MIN_POSITIVE;
    assert_eq!(add_product(0.0, tiny, 0.5).to_bits(), 0, "a subnormal result is flushed");
    assert_eq!(add_product(0.0, -tiny, 0.5).to_bits(), (-0.0f32).to_bits());
    assert_eq!(add_product(tiny, 1.0, tiny), 2.0 * tiny);
    assert_eq!(add_product(f32::MAX, f32::MAX, 1.0), f32::INFINITY);
    assert!(add_product(0.0, f32::INFINITY, 0.0).is_nan());
    // Below the smallest normal number by less than half a unit of 24 bits: rounded up, not flushed.
    let below = f64::from(tiny) * (1.0 - 2f64.powi(-26));
    assert_eq!((rounded(below), rounded(f64::from(tiny) * (1.0 - 2f64.powi(-24)))), (tiny, 0.0));
}

type Sizes = (usize, usize, usize);

const SIZES: [Sizes; 12] = [
    (1, 1, 1),
    (1, 300, 70),
    (2, 2, 33),
    (3, 31, 32),
    (5, 32, 31),
    (12, 33, 96),
    (13, 64, 40),
    (17, 65, 64),
    (33, 127, 100),
    (70, 96, 5),
    (4, 0, 3),
    (0, 5, 7),
];

fn packed(engine: ProductEngine, b: View<'_, f32>, transpose: Transpose) -> PackedMatrix<f32> {
    let mut packed = PackedMatrix::by(engine);
    // What was packed before leaves no trace.
    packed.pack(View::new(&[f32::NAN; 35 * 67], 35, 67), Transpose::No, 1);
    packed.pack(b, transpose, 1);
    packed
}

fn bits(matrix: &PackedMatrix<f32>) -> Vec<u32> {
    matrix.numbers()[..matrix.panels() * 32 * matrix.words()].iter().map(|x| x.to_bits()).collect()
}

#[test]
fn products_are_those_of_the_rounded_operands() {
    for engine in engines() {
        for (m, k, n) in SIZES {
            let (a, b, bias) = (numbers::<f32>(m * k, 1), numbers::<f32>(k * n, 2), numbers::<f32>(n, 3));
            let (a, b) = (View::new(&a, m, k), View::new(&b, k, n));
            let matrix = packed(engine, b, Transpose::No);
            let other = packed(engine, View::new(&turned(b), n, k), Transpose::Yes);
            assert_eq!(bits(&matrix), bits(&other));
            let (mut c, mut room) = (vec![f32::NAN; m * n], RoundedRows::default());
            product(a, &matrix, ViewMut::new(&mut c, m, n), Assign::Write, &mut room);
            let once = c.clone();
            product(a, &matrix, ViewMut::new(&mut c, m, n), Assign::Add, &mut room);
            let mut biased = vec![f32::NAN; m * n];
            affine(
                a.into(),
                &matrix,
                Some(&bias),
                ViewMut::new(&mut biased, m, n).into(),
                Assign::Write,
                &mut room,
                2,
            );
            let what = format!("{engine:?} {m}x{k}x{n}");
            let term =
                |i: usize, l: usize, j: usize| f64::from(bf16(a.row(i)[l])) * f64::from(bf16(b.row(l)[j]));
            let roundings = f64::from(f32::EPSILON) * (1.0 + (k as f64).sqrt());
            within_roundings(&once, &plain_sums([m, k, n], term), roundings, &what);
            for (at, x) in once.iter().enumerate() {
                assert_eq!((c[at], biased[at]), (x + x, bias[at % n] + x), "{what}");
            }
        }
    }
}

#[test]
fn parts_of_a_matrix_are_packed_as_the_whole() {
    let (k, n) = (37, 50);
    let b = numbers::<f32>(k * n, 2);
    let b = View::new(&b, k, n);
    for engine in engines() {
        let whole = packed(engine, b, Transpose::No);
        let from_odd = [(0..13, 0..50), (13..37, 0..9), (13..37, 9..50)];
        let odd_first = [(13..37, 9..50), (13..37, 0..9), (0..13, 0..50)];
        let single = [(14..37, 0..50), (0..13, 0..50), (13..14, 0..50)];
        for order in [from_odd, odd_first, single] {
            let mut parts = packed(engine, View::new(&[f32::NAN; 37 * 50], k, n), Transpose::No);
            parts.resize(k, n);
            let mut others = packed(engine, View::new(&[f32::NAN; 37 * 50], k, n), Transpose::No);
            others.resize(k, n);
            for (rows, columns) in order.clone() {
                let part = b.rows_range(rows.start, rows.end).columns(columns.start, columns.end);
                parts.put(part, Transpose::No, (rows.start, columns.start), 1);
                let turned = turned(part);
                let turned = View::new(&turned, part.width(), part.rows());
                others.put(turned, Transpose::Yes, (rows.start, columns.start), 1);
            }
            assert_eq!(bits(&whole), bits(&parts), "{engine:?} {order:?}");
            assert_eq!(bits(&whole), bits(&others), "{engine:?} {order:?}, transposed");
        }
    }
}

#[test]
fn threads_pack_what_one_thread_packs() {
    let b = numbers::<f32>(1031 * 1033, 2);
    for (engine, transpose) in engines().into_iter().flat_map(|e| [(e, Transpose::No), (e, Transpose::Yes)]) {
        let by = |threads| {
            let mut packed = PackedMatrix::by(engine);
            packed.pack(View::new(&b, 1031, 1033), transpose, threads);
            packed.numbers()[..1024 * packed.words()].to_vec()
        };
        assert!([2, 3, 7].map(by).iter().all(|numbers| *numbers == by(1)), "{engine:?} {transpose:?}");
    }
}

/// The bits of a row depend on no other row, on no thread, and not on the columns beside.
#[test]
fn the_bits_of_a_row_are_its_own() {
    // More rows than one block of rounded rows.
    let (m, n) = (203, 130);
    for (engine, k) in engines().into_iter().flat_map(|engine| [(engine, 704), (engine, 701)]) {
        let (a, b) = (numbers::<f32>(m * k, 1), numbers::<f32>(k * n, 2));
        let a = View::new(&a, m, k);
        let matrix = packed(engine, View::new(&b, k, n), Transpose::No);
        let product = |a: LeftMatrix<'_, f32>, threads| multiplied(a, &matrix, threads);
        let whole = product(a.into(), 1);
        // A result in bf16 is the rounded result in f32.
        let bias = numbers::<f32>(n, 7);
        let rounded = |threads, bias| {
            let mut c = vec![::half::bf16::NAN; m * n];
            let to = ResultMatrix::Rounded(ViewMut::new(&mut c, m, n));
            affine(a.into(), &matrix, bias, to, Assign::Write, &mut RoundedRows::default(), threads);
            c
        };
        for bias in [None, Some(&bias[..])] {
            let (mut full, mut expected) = (vec![f32::NAN; m * n], vec![::half::bf16::NAN; m * n]);
            let to = ViewMut::new(&mut full, m, n);
            affine(a.into(), &matrix, bias, to.into(), Assign::Write, &mut RoundedRows::default(), 1);
            round_rows(View::new(&full, m, n), ViewMut::new(&mut expected, m, n), false);
            assert!([1, 2, 7].iter().all(|&threads| rounded(threads, bias) == expected), "{engine:?}");
        }
        assert!([2, 3, 7].iter().all(|&threads| product(a.into(), threads) == whole), "{engine:?}");
        for (from, to) in [(0, 1), (5, 18), (30, 67), (90, 202)] {
            assert_eq!(
                product(a.rows_range(from, to).into(), 1),
                whole[from * n..to * n],
                "{engine:?} {from}..{to}"
            );
        }
        // Rows that were rounded before: even and odd strides, and rows that begin within a pair.
        for (first, stride) in [(0, k), (0, k + 1), (1, k + 2)] {
            let mut rounded = vec![::half::bf16::NAN; (m - 1) * stride + first + k];
            let extent = Extent2 { rows: m, width: k, stride };
            round_rows(a, ViewMut::strided(&mut rounded[first..], extent), false);
            let rounded = LeftMatrix::Rounded(View::strided(&rounded[first..], extent));
            assert!(
                [1, 3].iter().all(|&threads| product(rounded, threads) == whole),
                "{engine:?} {first} {stride}"
            );
        }
        // A sum that is cut into parts for other caches has the same bits.
        for cpu in crate::kernels::cpu::tests::CPUS {
            let mut c = vec![f32::NAN; m * n];
            let mut room = vec![];
            let rows = pack::left(engine, a.into(), &mut room, 1);
            let to = ViewMut::new(&mut c, m, n);
            product_by_tiles(cpu, rows, &matrix, 0..matrix.panels(), None, to.into(), Assign::Write);
            assert_eq!(c, whole, "{engine:?} {cpu:?}");
            c.fill(1.0);
            let to = ViewMut::new(&mut c, m, n);
            product_by_tiles(cpu, rows, &matrix, 0..matrix.panels(), None, to.into(), Assign::Add);
            assert!(c.iter().zip(&whole).all(|(c, x)| *c == 1.0 + x), "{engine:?} {cpu:?}");
        }
    }
}

#[test]
fn gradients_are_sums_over_rounded_rows() {
    for engine in engines() {
        for (rows, k, n) in
            [(1, 1, 1), (2, 3, 40), (33, 70, 33), (256, 40, 100), (257, 5, 64), (600, 150, 300), (0, 3, 4)]
        {
            let (x, dy) = (numbers::<f32>(rows * k, 1), numbers::<f32>(rows * n, 2));
            let (x, dy) = (View::new(&x, rows, k), View::new(&dy, rows, n));
            let index: Vec<usize> = (0..rows).collect();
            let zeros = vec![0.0; k];
            let picked = RowSource::Picked(PickedRows { x, beside: None, zeros: &zeros, index: &index });
            let on = |cpu, x: RowSource<'_, f32>, dy: LeftMatrix<'_, f32>, transpose: Transpose, threads| {
                let (height, width) = transpose.shape((k, n));
                let (mut dw, mut db) = (vec![1.0; k * n], vec![f32::NAN; n]);
                let to = (ViewMut::new(&mut dw, height, width), Assign::Add, transpose);
                let all =
                    Gradients { unit: Default::default(), x, dy, dw: to, db: Some((&mut db, Assign::Write)) };
                by_tiles(gradient::blocks, (engine, cpu), all, &mut GradientRoom::default(), threads);
                (dw, db)
            };
            let product = |x, transpose, threads| on(cpu(), x, dy.into(), transpose, threads);
            let (dw, db) = product(RowSource::Lying(x), Transpose::No, 1);
            // With a small cache, the columns of x are packed in several parts.
            for cpu in crate::kernels::cpu::tests::CPUS {
                assert_eq!(
                    on(cpu, picked, dy.into(), Transpose::No, 2),
                    (dw.clone(), db.clone()),
                    "{engine:?} {cpu:?}"
                );
            }
            let mut sums = vec![f32::NAN; n];
            bias_gradient((dy.into(), true), &mut sums, Assign::Write, 1);
            assert_eq!(db, sums, "{engine:?}: the bias is summed as without a weight");
            let mut rounded = vec![::half::bf16::NAN; rows * k];
            round_rows(x, ViewMut::new(&mut rounded, rows, k), false);
            let rounded = RowSource::Rounded(View::new(&rounded, rows, k));
            assert_eq!(product(rounded, Transpose::No, 2), (dw.clone(), db.clone()), "{engine:?}");
            let mut halves = vec![::half::bf16::NAN; rows * n];
            round_rows(dy, ViewMut::new(&mut halves, rows, n), false);
            let halves = LeftMatrix::Rounded(View::new(&halves, rows, n));
            for threads in [1, 2, 3] {
                assert_eq!(on(cpu(), rounded, halves, Transpose::No, threads), (dw.clone(), db.clone()));
                bias_gradient((halves, false), &mut sums, Assign::Write, threads);
                assert_eq!(db, sums, "{engine:?}: the bias is summed from rounded numbers");
            }
            for threads in [1, 2, 3, 7] {
                assert_eq!(
                    product(picked, Transpose::No, threads),
                    (dw.clone(), db.clone()),
                    "{engine:?} {threads}"
                );
                let (turned, sums) = product(RowSource::Lying(x), Transpose::Yes, threads);
                assert!(
                    (0..k * n).all(|at| turned[at % n * k + at / n] == dw[at]) && sums == db,
                    "{engine:?}"
                );
            }
            // The gradient was added to ones.
            let term =
                |i: usize, r: usize, j: usize| f64::from(bf16(x.row(r)[i])) * f64::from(bf16(dy.row(r)[j]));
            let sums = plain_sums([k, rows, n], term).map(|sums| sums.iter().map(|sum| 1.0 + sum).collect());
            let roundings = f64::from(f32::EPSILON) * (2.0 + (rows as f64).sqrt());
            within_roundings(&dw, &sums, roundings, &format!("{engine:?} {rows}x{k}x{n}"));
            let sum = |j: usize| dy.iter().map(|row| f64::from(bf16(row[j]))).sum::<f64>();
            assert!((0..n).all(|j| (f64::from(db[j]) - sum(j)).abs() < 1e-4), "the bias is summed in f32");
        }
    }
}

/// The two instructions sum in different orders.
#[test]
fn each_twin_has_the_order_of_its_instruction() {
    let sum = |engine, factors: &[(f32, f32)]| {
        let (a, b): (Vec<f32>, Vec<f32>) = factors.iter().copied().unzip();
        let matrix = packed(engine, View::new(&b, b.len(), 1), Transpose::No);
        multiplied(View::new(&a, 1, a.len()), &matrix, 1)[0]
    };
    // 2^24 is so large that a 1 added to it is lost.
    let (one, large, less) = ((1.0, 1.0), (4096.0, 4096.0), (-4096.0, 4096.0));
    for (factors, by_pairs, by_tiles) in [
        // Pairs add the odd number first: 2^24, then three lost numbers, then 2^24 - 2^24 + 1. Tiles: 1 + 1 + 1, and 2^24 - 2^24.
        ([one, large, one, one, one, less], 1.0, 3.0),
        // Pairs: 1 + 2^24, then three lost numbers, then - 2^24. Tiles: 2^24 - 2^24, and 1 + 1 + 1.
        ([large, one, one, one, less, one], 0.0, 3.0),
        // Pairs: 2^24 - 2^24, then 1 + 1. Tiles: 2^24 - 2^24 + 1, and 1 + 1 + 1.
        ([large, one, less, one, one, one], 2.0, 4.0),
    ] {
        assert_eq!(sum(ProductEngine::Pairs(Implementation::Twin), &factors), by_pairs, "{factors:?}");
        assert_eq!(sum(ProductEngine::Tiles(Implementation::Twin), &factors), by_tiles, "{factors:?}");
    }
}

/// Millions of random operands of each instruction that this CPU has, and of fused multiply-adds; `same_bits` takes fewer at the
/// start of a process.
#[test]
fn every_implementation_has_the_bits_of_its_twin() {
    type Engine = fn(Implementation) -> ProductEngine;
    let engines: [(Engine, MatrixUnit, bool); 2] = [
        (ProductEngine::Pairs, MatrixUnit::Bf16Pairs, pairs::has_instruction()),
        (ProductEngine::Tiles, MatrixUnit::Bf16Tiles, tiles::has_instruction()),
    ];
    for (engine, unit, has_instruction) in engines {
        assert_eq!(unit.is_native(), has_instruction, "{unit:?}");
        let all =
            [(Implementation::Instruction, has_instruction), (Implementation::Fused, fused::is_available())];
        for seed in 0..200 {
            let (m, k, n) =
                ([32, 1, 2, 3, 4, 7][seed as usize % 6], 192 - seed as usize / 2, 260 - seed as usize);
            let (a, b) = (awkward((m, k), seed, |at| at / k), awkward((k, n), seed + 1000, |at| at % n));
            let result = |by| {
                let matrix = packed(engine(by), View::new(&b, k, n), Transpose::No);
                let mut c = vec![0.5; m * n];
                let to = ViewMut::new(&mut c, m, n);
                product(View::new(&a, m, k), &matrix, to, Assign::Add, &mut RoundedRows::default());
                c
            };
            let twin = result(Implementation::Twin);
            for (by, _) in all.into_iter().filter(|(_, available)| *available) {
                for (at, (a, b)) in result(by).iter().zip(&twin).enumerate() {
                    assert!(
                        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
                        "{engine:?} {by:?} {seed} {at}: {a:e} {b:e}"
                    );
                }
            }
        }
    }
}

/// Awkward operands reach what the twins must get right: results near the smallest normal number, infinities and NaN.
#[test]
fn awkward_operands_give_numbers_of_all_kinds() {
    for engine in [ProductEngine::Pairs(Implementation::Twin), ProductEngine::Tiles(Implementation::Twin)] {
        let (m, k, n) = (32, 64, 64);
        let (a, b) = (awkward((m, k), 1, |at| at / k), awkward((k, n), 2, |at| at % n));
        let matrix = packed(engine, View::new(&b, k, n), Transpose::No);
        let c = multiplied(View::new(&a, m, k), &matrix, 1);
        assert!(c.iter().all(|x| !x.is_subnormal()));
        let tiny = c.iter().filter(|x| x.is_normal() && x.abs() < 1e-36).count();
        let [nan, infinite, usual] =
            [f32::is_nan, f32::is_infinite, f32::is_normal].map(|is| c.iter().filter(|&&x| is(x)).count());
        assert!(
            tiny > 50 && nan > 5 && infinite > 0 && usual > 1000,
            "{engine:?}: {tiny} {nan} {infinite} {usual}"
        );
    }
}
