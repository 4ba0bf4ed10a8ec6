//! The operands of products in bf16: rows of the left matrix, rounded, and panels of pairs of the right matrix.

use super::round;
use crate::kernels::float::Float;
use crate::kernels::fork::join;
use crate::kernels::path::{Arithmetic, MatrixUnit, ProductEngine, Sweep, sweep};
use crate::kernels::product::lengthen;
use crate::kernels::products::{PackedMatrix, RoundedRows, Transpose};
use crate::kernels::view::{View, ViewMut};

/// Below this number of numbers, a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 17;

impl<T: Float> RoundedRows<T> {
    /// Returns the size in bytes of the scratch for the left matrix of a product by a unit, of `rows` rows and `k` columns.
    pub fn bytes_of(unit: MatrixUnit, rows: usize, k: usize) -> usize {
        match (unit.engine(), size_of::<T>() == size_of::<f32>()) {
            (ProductEngine::F32(_), _) | (_, false) => 0,
            (engine, true) => rows.saturating_mul(engine.words(k)).saturating_mul(size_of::<T>()),
        }
    }
}

/// Returns the rows of the left matrix of a product as an engine reads them: in bf16, rounded to pairs in `room`.
pub(in crate::kernels) fn left<'a>(
    engine: ProductEngine,
    a: View<'a, f32>,
    room: &'a mut Vec<f32>,
    threads: usize,
) -> View<'a, f32> {
    if engine.is_f32() {
        return a;
    }
    let (rows, words) = (a.rows(), engine.words(a.width()));
    lengthen(room, rows * words);
    round_rows(a, ViewMut::new(room, rows, words), threads);
    View::new(room, rows, words)
}

fn round_rows(a: View<'_, f32>, to: ViewMut<'_, f32>, threads: usize) {
    let rows = a.rows();
    if threads < 2 || rows < 2 || rows * a.width() < WORTH_A_THREAD {
        return sweep(RoundRows { from: a, to });
    }
    let left = threads / 2;
    let middle = (rows * left / threads).max(1);
    let (above, below) = to.split_rows(middle);
    join(
        || round_rows(a.rows_range(0, middle), above, left),
        || round_rows(a.rows_range(middle, rows), below, threads - left),
    );
}

/// Rounds rows of numbers to rows of pairs; words beyond the numbers become 0.
struct RoundRows<'a> {
    from: View<'a, f32>,
    to: ViewMut<'a, f32>,
}

impl Sweep for RoundRows<'_> {
    type Output = ();
    const PORTABLE: bool = false;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for (from, to) in self.from.iter().zip(self.to.iter_mut()) {
            let (pairs, last) = from.as_chunks::<2>();
            let (to, rest) = to.split_at_mut(pairs.len());
            for (&[even, odd], to) in pairs.iter().zip(to) {
                *to = f32::from_bits(round(even) | round(odd) << 16);
            }
            rest.fill(0.0);
            if let (Some(to), Some(&last)) = (rest.first_mut(), last.first()) {
                *to = f32::from_bits(round(last));
            }
        }
    }
}

/// Copies a matrix into the panels of a packed matrix in bf16, from row `row` and column `column` on.
pub(in crate::kernels) fn put_pairs(
    packed: &mut PackedMatrix<f32>,
    b: View<'_, f32>,
    transpose: Transpose,
    (row, column): (usize, usize),
) {
    let (words, width, panels) = (packed.engine.words(packed.k), packed.width, packed.panels());
    let (rows, columns) = transpose.shape((b.rows(), b.width()));
    let data = &mut packed.numbers_mut()[..panels * width * words];
    for (p, panel) in data.chunks_exact_mut((width * words).max(1)).enumerate() {
        let first = p * width;
        let (from, to) = (first.max(column), (first + width).min(column + columns));
        if from >= to {
            continue;
        }
        let (within, part) = (from - first..to - first, from - column..to - column);
        match transpose {
            Transpose::No => {
                sweep(PutPairs { b: b.columns(part.start, part.end), row, panel, width, first: within.start })
            }
            Transpose::Yes => {
                for (j, numbers) in b.rows_range(part.start, part.end).iter().enumerate() {
                    for (k, &number) in numbers.iter().enumerate().take(rows) {
                        let word = &mut panel[(row + k) / 2 * width + within.start + j];
                        *word = with_half(*word, (row + k) % 2, number);
                    }
                }
            }
        }
    }
}

/// Replaces one number of a pair: the first (`half` 0) or the second.
#[inline(always)]
fn with_half(pair: f32, half: usize, number: f32) -> f32 {
    let (shift, kept) = if half == 0 { (0, 0xffff_0000) } else { (16, 0xffff) };
    f32::from_bits(pair.to_bits() & kept | round(number) << shift)
}

/// Copies rows of a matrix into rows of pairs of a panel.
struct PutPairs<'a> {
    b: View<'a, f32>,
    row: usize,
    panel: &'a mut [f32],
    width: usize,
    first: usize,
}

impl Sweep for PutPairs<'_> {
    type Output = ();
    const PORTABLE: bool = false;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        for (k, numbers) in self.b.iter().enumerate() {
            let (word, half) = ((self.row + k) / 2, (self.row + k) % 2);
            let to = &mut self.panel[word * self.width + self.first..][..numbers.len()];
            to.iter_mut().zip(numbers).for_each(|(to, &number)| *to = with_half(*to, half, number));
        }
    }
}
