//! Every tile of every path compared with the products in f64.

use super::*;
use crate::kernels::checks::{numbers, plain_sums};

const K: usize = 9;
const SPARE: usize = 3;

/// How a tile uses its sums.
#[derive(Debug, Clone, Copy)]
struct Use {
    add: bool,
    bias: bool,
    /// The number of terms after which the sums are stored and then continued; 0 if the sums are not stored.
    split: usize,
}

/// Returns numbers of existing columns: from one column of the last panel to all columns. The last existing column is
/// at different positions of a vector.
fn tails(first: usize, width: usize) -> impl Iterator<Item = usize> {
    (1..=width)
        .filter(move |columns| *columns == width || columns % 5 < 2)
        .map(move |columns| first + columns)
}

fn check(path: Path, size: Size, transposed: bool, uses: &[Use]) {
    let Size { rows, panels, vectors } = size;
    let panel = vectors * lanes(path);
    let width = panels * panel;
    let (a, b) = (numbers::<f32>(rows * K, 1), numbers::<f32>(K * width, 2));
    let (bias, start) = (numbers::<f32>(width, 3), numbers::<f32>(rows * (width + SPARE), 4));
    let term = |i: usize, k: usize, j: usize| f64::from(a[i * K + k]) * f64::from(b[k * width + j]);
    let [sums, magnitudes] = plain_sums([rows, K, width], term);
    let turned: Vec<f32> = (0..K * rows).map(|at| a[at % rows * K + at / rows]).collect();
    let (a, a_stride, run) = match transposed {
        false => (&a, K, of_rows(path, size)),
        true => (&turned, rows, of_columns(path, rows)),
    };
    let packed: Vec<f32> = (0..panels)
        .flat_map(|p| (0..K).flat_map(move |k| (0..panel).map(move |j| k * width + p * panel + j)))
        .map(|at| b[at])
        .collect();
    for columns in tails(width - panel, panel) {
        for &Use { add, bias: biased, split } in uses {
            let mut c = start.clone();
            let mut stored = vec![f32::NAN; rows * (width + SPARE)];
            let stride = width + SPARE;
            let null = std::ptr::null();
            let mut part = |from: usize, to: usize| {
                let (first, last) = (from == 0, to == K);
                // SAFETY: the arrays have the given sizes, and this CPU can run the path.
                unsafe {
                    let kept = stored.as_mut_ptr();
                    run(&Tile {
                        rows,
                        panels,
                        k: to - from,
                        a: a.as_ptr().add(if transposed { from * a_stride } else { from }),
                        a_stride,
                        b: packed.as_ptr().add(from * panel),
                        b_stride: K * panel,
                        c: if last { c.as_mut_ptr() } else { kept },
                        c_stride: stride,
                        columns,
                        from: if first { null } else { kept },
                        from_stride: stride,
                        ahead: 0,
                        bias: if biased && last { bias.as_ptr() } else { null },
                        add: add && last,
                    });
                }
            };
            if split > 0 {
                part(0, split);
            }
            part(split, K);
            let what = format!(
                "{path:?} {size:?}, transposed: {transposed}, {columns} columns, {add} {biased} {split}"
            );
            for (at, (&made, &before)) in c.iter().zip(&start).enumerate() {
                let (i, j) = (at / stride, at % stride);
                if j >= columns {
                    assert!(made == before, "{what}: wrote past a row");
                    continue;
                }
                let (bias, before) = (if biased { bias[j] } else { 0.0 }, if add { before } else { 0.0 });
                let expected = sums[i * width + j] + f64::from(bias) + f64::from(before);
                let magnitude = magnitudes[i * width + j] + f64::from(bias.abs()) + f64::from(before.abs());
                let off = (f64::from(made) - expected).abs();
                assert!(off <= 4.0 * f64::from(f32::EPSILON) * magnitude, "{what}: {made} for {expected}");
            }
        }
    }
}

#[test]
fn every_tile_matches_the_sums_in_double() {
    let all: Vec<Use> = [0, 4]
        .into_iter()
        .flat_map(|split| [false, true].map(|add| [false, true].map(|bias| Use { add, bias, split })))
        .flatten()
        .collect();
    for path in Path::available() {
        let most = if max_rows(path, 3) < max_rows(path, PANEL_VECTORS) { 3 } else { PANEL_VECTORS };
        for vectors in PANEL_VECTORS..=most {
            for rows in 1..=max_rows(path, vectors) {
                for panels in 1..=max_panels(path, vectors, rows) {
                    check(path, Size { rows, panels, vectors }, false, &all);
                }
            }
        }
        let sums = [false, true].map(|add| Use { add, bias: false, split: 0 });
        for rows in 1..=max_rows(path, PANEL_VECTORS) {
            check(path, Size { rows, panels: 1, vectors: PANEL_VECTORS }, true, &sums);
        }
    }
}

/// Neither the position at which a sum is cut nor the size of the tile changes a bit.
#[test]
fn bits_depend_on_neither_cuts_nor_sizes() {
    let (k, columns) = (50, 7);
    for path in Path::available() {
        let panel = PANEL_VECTORS * lanes(path);
        let (a, b) = (numbers::<f32>(12 * k, 1), numbers::<f32>(k * panel, 2));
        let run = |rows: usize, cuts: &[usize]| {
            let mut c = vec![f32::NAN; rows * columns];
            for pair in cuts.windows(2) {
                // SAFETY: the arrays have the given sizes, and this CPU can run the path.
                unsafe {
                    let to = c.as_mut_ptr();
                    of_rows(path, Size { rows, panels: 1, vectors: PANEL_VECTORS })(&Tile {
                        rows,
                        panels: 1,
                        k: pair[1] - pair[0],
                        a: a.as_ptr().add(pair[0]),
                        a_stride: k,
                        b: b.as_ptr().add(pair[0] * panel),
                        b_stride: k * panel,
                        c: to,
                        c_stride: columns,
                        columns,
                        from: if pair[0] > 0 { to } else { std::ptr::null() },
                        from_stride: columns,
                        ahead: 0,
                        bias: std::ptr::null(),
                        add: false,
                    });
                }
            }
            c
        };
        let whole = run(max_rows(path, PANEL_VECTORS), &[0, k]);
        for rows in 1..=max_rows(path, PANEL_VECTORS) {
            for cuts in [&[0, k][..], &[0, 1, k], &[0, 17, 33, k]] {
                assert!(run(rows, cuts) == whole[..rows * columns], "{path:?}, {rows} rows, cut at {cuts:?}");
            }
        }
    }
}
