//! The gradient of a weight in bf16: the rows of `x` and `dy` are rounded, and pairs of rows are multiplied.

use super::{ToBf16, round};
use crate::kernels::float::Assign;
use crate::kernels::gradient::{EngineCpu, GradientSizes, SUM_ROWS, TurnColumns, panel_width, part, put};
use crate::kernels::path::{Arithmetic, ProductEngine, Sweep, sweep};
use crate::kernels::picked::RowSource;
use crate::kernels::product::{aligned, even_blocks};
use crate::kernels::products::{BiasGradient, Gradients, Transpose};
use crate::kernels::tile::{PANEL_VECTORS, Size, Tile};
use crate::kernels::view::{Extent2, View, ViewMut};

/// Computes the gradients in three nested loops: over blocks of rows, over parts of the columns of `x`, and over packed
/// panels of `dy`. The bias's gradient sums numbers in f32.
pub(in crate::kernels) fn blocks(on: EngineCpu, all: Gradients<'_, f32>, room: &mut [f32]) {
    let Gradients { x, dy, dw: (mut dw, assign, transpose), mut db, .. } = all;
    let engine = on.0;
    let (rows, k, n, width) = (x.rows(), x.width(), dy.width(), panel_width(engine));
    let part = part(on, k);
    let sizes = GradientSizes::of(on, k, true, n, transpose);
    let start = aligned(room);
    let (panel, rest) = room[start..].split_at_mut(sizes.panel);
    let (left, turned) = rest.split_at_mut(sizes.left);
    for row in (0..rows).step_by(SUM_ROWS) {
        let end = rows.min(row + SUM_ROWS);
        let words = engine.words(end - row);
        let later = |assign: Assign| if row > 0 { Assign::Add } else { assign };
        for first in (0..k).step_by(part) {
            let part = first..k.min(first + part);
            turn_pairs(x.rows_range(row, end).columns(part.start, part.end), words, left);
            for column in (0..n).step_by(width) {
                let columns = column..n.min(column + width);
                let dy = dy.rows_range(row, end).columns(columns.start, columns.end);
                let db = db.as_mut().filter(|_| first == 0);
                let db = db.map(|(db, assign)| (&mut db[columns.clone()], later(*assign)));
                sweep(PackPairs { dy, panel: &mut panel[..words * width], db });
                let product = PairProduct { engine, left, panel, rows: part.len(), words };
                match transpose {
                    Transpose::No => {
                        let dw = dw.reborrow().columns(columns.start, columns.end);
                        let (dw, _) = dw.split_rows(part.start).1.split_rows(part.len());
                        product.write(dw, later(assign));
                    }
                    Transpose::Yes => {
                        let extent = Extent2 { rows: part.len(), width: columns.len(), stride: width };
                        product.write(ViewMut::strided(turned, extent), Assign::Write);
                        let dw = dw.reborrow().columns(part.start, part.end);
                        let (dw, _) = dw.split_rows(columns.start).1.split_rows(columns.len());
                        sweep(TurnColumns { from: turned, width, to: dw, assign: later(assign) });
                    }
                }
            }
        }
    }
}

/// Packs the columns of `x` as rows of `words` pairs: a pair has two successive numbers of a column.
fn turn_pairs(x: RowSource<'_, f32>, words: usize, to: &mut [f32]) {
    let (rows, width) = (x.rows(), x.width());
    if words != rows / 2 {
        let full = rows / 2;
        to[..width * words].chunks_exact_mut(words).for_each(|row| row[full..].fill(0.0));
    }
    match x {
        RowSource::Rounded(x) => {
            let mut turned = TurnedRows { even: &[], row: 0, words, to };
            x.iter().for_each(|numbers| turned.add(numbers));
            turned.end();
        }
        x => {
            let mut turned = TurnedRows { even: &[], row: 0, words, to };
            x.each(|numbers| turned.add(numbers));
            turned.end();
        }
    }
}

/// Columns of words, to which rows are added: a word has the numbers of two successive rows.
struct TurnedRows<'a, N> {
    /// The last row, if the number of rows so far is odd.
    even: &'a [N],
    /// The number of rows so far.
    row: usize,
    words: usize,
    to: &'a mut [f32],
}

impl<'a, N: ToBf16> TurnedRows<'a, N> {
    fn add(&mut self, numbers: &'a [N]) {
        match self.row % 2 {
            0 => self.even = numbers,
            _ => sweep(TurnRows {
                even: self.even,
                odd: numbers,
                word: self.row / 2,
                words: self.words,
                to: self.to,
            }),
        }
        self.row += 1;
    }

    /// Writes the last row, if the number of rows is odd.
    fn end(self) {
        if self.row % 2 == 1 {
            for (i, &number) in self.even.iter().enumerate() {
                self.to[i * self.words + self.row / 2] = f32::from_bits(number.to_bf16());
            }
        }
    }
}

/// Writes the pairs of two successive rows into a column of words.
struct TurnRows<'a, N> {
    even: &'a [N],
    odd: &'a [N],
    word: usize,
    words: usize,
    to: &'a mut [f32],
}

impl<N: ToBf16> Sweep for TurnRows<'_, N> {
    type Output = ();
    const PORTABLE: bool = false;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let numbers = self.even.iter().zip(self.odd);
        for ((&even, &odd), to) in numbers.zip(self.to.chunks_exact_mut(self.words)) {
            to[self.word] = f32::from_bits(even.to_bf16() | odd.to_bf16() << 16);
        }
    }
}

/// Packs rows of at most 32 columns into a panel of pairs of rows, padded with zeros, and sums the rows for the bias's gradient
/// if this gradient is requested.
struct PackPairs<'a> {
    dy: View<'a, f32>,
    panel: &'a mut [f32],
    db: Option<BiasGradient<'a, f32>>,
}

impl Sweep for PackPairs<'_> {
    type Output = ();
    const PORTABLE: bool = false;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        const WIDTH: usize = super::pairs::WIDTH;
        let mut sums = [0.0; WIDTH];
        let mut rows = self.dy.iter();
        for to in self.panel.as_chunks_mut::<WIDTH>().0 {
            let [even, odd] = [rows.next(), rows.next()].map(|row| {
                let mut numbers = [0.0; WIDTH];
                if let Some(row) = row {
                    numbers[..row.len()].copy_from_slice(row);
                }
                numbers
            });
            for (((to, even), odd), sum) in to.iter_mut().zip(even).zip(odd).zip(&mut sums) {
                *to = f32::from_bits(round(even) | round(odd) << 16);
                *sum += even;
                *sum += odd;
            }
        }
        if let Some((db, assign)) = self.db {
            put(&sums[..db.len()], db, assign);
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
    /// Writes the product to `dw`, or adds it.
    fn write(&self, mut dw: ViewMut<'_, f32>, assign: Assign) {
        let PairProduct { engine, left, panel, rows, words } = *self;
        let width = panel_width(engine);
        assert!(left.len() >= rows * words && panel.len() >= words * width, "packed operands");
        assert!(dw.rows() == rows && dw.width() <= width, "the shape of a part of a gradient");
        let (to, stride, columns) = (dw.as_mut_ptr(), dw.stride(), dw.width());
        for part in even_blocks(rows, engine.max_rows(PANEL_VECTORS)) {
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
                    bias: std::ptr::null(),
                    add: assign == Assign::Add,
                });
            }
        }
    }
}
