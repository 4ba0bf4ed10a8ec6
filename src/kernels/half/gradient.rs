//! The gradient of a weight in bf16: the rows of `x` and `dy` are rounded, and pairs of rows are multiplied.

use ::half::bf16;

use super::numbers_of;
use super::rounding::{LANES, Rounding, RoundingLoop, ToBf16, numbers_at, put_first, round_by};
use crate::kernels::column_sums::{SUM_ROWS, put};
use crate::kernels::float::Assign;
use crate::kernels::gradient::{
    EngineCpu, GROUP, GradientSizes, NextColumns, TurnColumns, panel_width, part,
};
use crate::kernels::path::{ProductEngine, sweep};
use crate::kernels::picked::RowSource;
use crate::kernels::product::{aligned, even_blocks};
use crate::kernels::products::{BiasGradient, Gradients, LeftMatrix, Transpose};
use crate::kernels::tile::{PANEL_VECTORS, Size, Tile};
use crate::kernels::view::{Extent2, View, ViewMut};

/// Computes the gradients in four nested loops: over blocks of rows, over parts of the columns of `x`, over groups of panels of
/// `dy`, which are packed together, and over the panels of a group. The bias's gradient sums the rounded rows of `dy`, in f32.
pub(in crate::kernels) fn blocks(on: EngineCpu, all: Gradients<'_, f32>, room: &mut [f32]) {
    let Gradients { x, dy, dw: (mut dw, assign, transpose), mut db, .. } = all;
    let engine = on.0;
    let (rows, k, n, width) = (x.rows(), x.width(), dy.width(), panel_width(engine));
    let part = part(on, k);
    let sizes = GradientSizes::of(on, k, true, n, transpose);
    let start = aligned(room);
    let (panels, rest) = room[start..].split_at_mut(sizes.panels);
    let (left, turned) = rest.split_at_mut(sizes.left);
    for row in (0..rows).step_by(SUM_ROWS) {
        let end = rows.min(row + SUM_ROWS);
        let words = engine.words(end - row);
        let later = |assign: Assign| if row > 0 { Assign::Add } else { assign };
        for first in (0..k).step_by(part) {
            let part = first..k.min(first + part);
            turn_pairs(x.rows_range(row, end).columns(part.start, part.end), words, left);
            for column in (0..n).step_by(GROUP * width) {
                let group = column..n.min(column + GROUP * width);
                let dy_part = dy.rows_range(row, end).columns(group.start, group.end);
                let db = db.as_mut().filter(|_| first == 0);
                let db = db.map(|(db, assign)| (&mut db[group.clone()], later(*assign)));
                match dy_part {
                    LeftMatrix::Full(dy) => round_by(PackPairs { dy, words, panels, db }),
                    LeftMatrix::Rounded(dy) => round_by(PackPairs { dy, words, panels, db }),
                }
                let mut next = NextColumns::after(dy, row, (group.end, part.end < k), GROUP * width);
                let tiles = part.len().div_ceil(engine.max_rows(PANEL_VECTORS)) * group.len().div_ceil(width);
                let share = SUM_ROWS.div_ceil(tiles);
                for (panel, column) in panels.chunks(words * width).zip(group.clone().step_by(width)) {
                    let columns = column..group.end.min(column + width);
                    let product = PairProduct { engine, left, panel, rows: part.len(), words };
                    let prefetch = &mut || next.ask(share);
                    match transpose {
                        Transpose::No => {
                            let dw = dw.reborrow().columns(columns.start, columns.end);
                            let (dw, _) = dw.split_rows(part.start).1.split_rows(part.len());
                            product.write(dw, later(assign), prefetch);
                        }
                        Transpose::Yes => {
                            let extent = Extent2 { rows: part.len(), width: columns.len(), stride: width };
                            product.write(ViewMut::strided(turned, extent), Assign::Write, prefetch);
                            let dw = dw.reborrow().columns(part.start, part.end);
                            let (dw, _) = dw.split_rows(columns.start).1.split_rows(columns.len());
                            sweep(TurnColumns { from: turned, width, to: dw, assign: later(assign) });
                        }
                    }
                }
            }
        }
    }
}

/// Packs the columns of `x` as rows of `words` pairs: a pair has two successive numbers of a column.
fn turn_pairs(x: RowSource<'_, f32>, words: usize, to: &mut [f32]) {
    for word in (0..words).step_by(LANES) {
        let (from, end) = ((2 * word).min(x.rows()), (2 * (word + LANES)).min(x.rows()));
        match x.rows_range(from, end) {
            RowSource::Rounded(x) => {
                let mut rows: [&[bf16]; 2 * LANES] = [&[]; 2 * LANES];
                rows.iter_mut().zip(x.iter()).for_each(|(to, row)| *to = row);
                round_by(TurnRows { rows, word, words, to });
            }
            x => {
                let mut rows: [&[f32]; 2 * LANES] = [&[]; 2 * LANES];
                let mut places = rows.iter_mut();
                x.each(|row| places.next().into_iter().for_each(|to| *to = row));
                round_by(TurnRows { rows, word, words, to });
            }
        }
    }
}

/// Writes the pairs of successive rows into columns, from the word `word` of each column on. Rows that are missing count as zeros.
struct TurnRows<'a, N> {
    rows: [&'a [N]; 2 * LANES],
    word: usize,
    words: usize,
    to: &'a mut [f32],
}

impl<N: ToBf16> RoundingLoop for TurnRows<'_, N> {
    #[inline(always)]
    fn run<R: Rounding>(self) {
        let Self { rows, word, words, to } = self;
        let height = LANES.min(words - word);
        for first in (0..rows[0].len()).step_by(LANES) {
            let mut square = [[0.0; LANES]; LANES];
            for (pair, [even, odd]) in square.iter_mut().zip(rows.as_chunks().0) {
                *pair = N::across::<R>(numbers_at(even, first), numbers_at(odd, first));
            }
            R::turn(&mut square);
            for (i, column) in square.iter().enumerate().take(rows[0].len() - first) {
                put_first(column, &mut to[(first + i) * words + word..][..height]);
            }
        }
    }
}

/// Packs rows into panels of pairs of rows, padded with zeros, and sums the rows for the bias's gradient if this gradient is
/// requested. The rows have at most [`GROUP`] panels of columns, so that a row's numbers are read from memory together: rows are
/// far apart, and each begins another page.
struct PackPairs<'a, N> {
    dy: View<'a, N>,
    /// The number of words in a column of a panel.
    words: usize,
    panels: &'a mut [f32],
    db: Option<BiasGradient<'a, f32>>,
}

/// Returns a row, or no numbers if there is no such row.
#[inline(always)]
fn row_or_none<N>(rows: View<'_, N>, row: usize) -> &[N] {
    if row < rows.rows() { rows.row(row) } else { &[] }
}

impl<N: ToBf16> RoundingLoop for PackPairs<'_, N> {
    #[inline(always)]
    fn run<R: Rounding>(self) {
        const WIDTH: usize = super::pairs::WIDTH;
        const CHUNKS: usize = WIDTH / LANES;
        let Self { dy, words, panels, db } = self;
        let mut sums = [[0.0; LANES]; GROUP * CHUNKS];
        for word in 0..words {
            let (even, odd) = (row_or_none(dy, 2 * word), row_or_none(dy, 2 * word + 1));
            for (chunk, sums) in sums.iter_mut().enumerate().take(dy.width().div_ceil(WIDTH) * CHUNKS) {
                let even = numbers_at(even, chunk * LANES);
                let odd = numbers_at(odd, chunk * LANES);
                let to = chunk / CHUNKS * words * WIDTH + word * WIDTH + chunk % CHUNKS * LANES;
                let pairs = N::across::<R>(even, odd);
                panels[to..to + LANES].copy_from_slice(&pairs);
                for (sum, pair) in sums.iter_mut().zip(pairs) {
                    let (even, odd) = numbers_of(pair);
                    *sum += even;
                    *sum += odd;
                }
            }
        }
        if let Some((db, assign)) = db {
            put(&sums.as_flattened()[..db.len()], db, assign);
        }
    }
}

/// The product of packed rows and a packed panel.
struct PairProduct<'a> {
    engine: ProductEngine,
    left: &'a [f32],
    panel: &'a [f32],
    rows: usize,
    words: usize,
}

impl PairProduct<'_> {
    /// Writes the product to `dw`, or adds it; calls `before` before each tile.
    fn write(&self, mut dw: ViewMut<'_, f32>, assign: Assign, before: &mut dyn FnMut()) {
        let PairProduct { engine, left, panel, rows, words } = *self;
        let width = panel_width(engine);
        assert!(left.len() >= rows * words && panel.len() >= words * width, "packed operands");
        assert!(dw.rows() == rows && dw.width() <= width, "the shape of a part of a gradient");
        let (to, stride, columns) = (dw.as_mut_ptr(), dw.stride(), dw.width());
        for part in even_blocks(rows, engine.max_rows(PANEL_VECTORS)) {
            before();
            let size = Size { rows: part.len(), panels: 1, vectors: PANEL_VECTORS };
            // SAFETY: `part` is a range of the packed rows and of the rows of `dw`, and `columns` is the width of `dw`. Packed
            // rows and the panel have `words` words. The CPU has the instructions of the engine, since `MatrixUnit::engine`
            // chose the engine for this CPU.
            unsafe {
                engine.of_rows(size)(&Tile {
                    rows: part.len(),
                    panels: 1,
                    k: words,
                    a: left.as_ptr().add(part.start * words),
                    a_stride: words,
                    b: panel.as_ptr(),
                    b_stride: 0,
                    c: to.add(part.start * stride),
                    c_stride: stride,
                    columns,
                    from: std::ptr::null(),
                    from_stride: 0,
                    ahead: 0,
                    bias: std::ptr::null(),
                    add: assign == Assign::Add,
                });
            }
        }
    }
}
