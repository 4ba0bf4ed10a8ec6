//! The operands of products in bf16: rows of the left matrix, rounded, and panels of pairs of the right matrix.

use std::mem::transmute;

use ::half::bf16;

use super::rounding::{LANES, Rounding, RoundingLoop, ToBf16, Words, numbers_at, put_first, round_by};
use super::{round, word};
use crate::kernels::cpu::cpu;
use crate::kernels::float::Float;
use crate::kernels::fork::join;
use crate::kernels::panels::PanelCopy;
use crate::kernels::path::{Arithmetic, MatrixUnit, ProductEngine, Sweep, sweep};
use crate::kernels::prefetch;
use crate::kernels::product::lengthen;
use crate::kernels::products::{LeftMatrix, RoundedRows, Transpose};
use crate::kernels::view::{Extent2, View, ViewMut};

/// Below this number of numbers, a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 17;

impl<T: Float> RoundedRows<T> {
    /// Returns how many rows of the left matrix of a product are rounded at a time; `None` if the engine reads the rows as they
    /// are. The rounded rows stay in cache, and the product reads the right matrix again for each block of rows anyway.
    pub(in crate::kernels) fn at_once(engine: ProductEngine) -> Option<usize> {
        let rounds = !engine.is_f32() && size_of::<T>() == size_of::<f32>();
        rounds.then(|| cpu().product_rows())
    }

    /// Returns whether products of numbers of this type by a unit round their operands to bf16.
    pub fn rounds(unit: MatrixUnit) -> bool {
        Self::at_once(unit.engine()).is_some()
    }

    /// Returns whether a product by a unit reads a left matrix of `k` columns where it lies, if it is stored as whole pairs of
    /// bf16 numbers.
    pub fn reads_pairs(unit: MatrixUnit, k: usize) -> bool {
        Self::rounds(unit) && 2 * unit.engine().words(k) == k
    }

    /// Returns the size in bytes of the scratch for the left matrix of a product by a unit, of `rows` rows and `k` columns.
    pub fn bytes_of(unit: MatrixUnit, rows: usize, k: usize) -> usize {
        let engine = unit.engine();
        let bytes =
            |most: usize| rows.min(most).saturating_mul(engine.words(k)).saturating_mul(size_of::<T>());
        Self::at_once(engine).map_or(0, bytes)
    }
}

/// Returns the rows of the left matrix of a product as an engine reads them: in bf16, rounded to pairs in `room`. Rows that are in
/// bf16 are read where they are, if their pairs lie in memory as the engine reads them.
///
/// # Panics
/// If the rows are in bf16, but the engine computes in f32.
pub(in crate::kernels) fn left<'a>(
    engine: ProductEngine,
    a: LeftMatrix<'a, f32>,
    room: &'a mut Vec<f32>,
    threads: usize,
) -> View<'a, f32> {
    let (rows, words) = (a.rows(), engine.words(a.width()));
    match a {
        LeftMatrix::Full(a) if engine.is_f32() => return a,
        LeftMatrix::Rounded(_) if engine.is_f32() => panic!("a product in f32 of numbers in bf16"),
        LeftMatrix::Rounded(a) => {
            if let Some(pairs) = as_pairs(a).filter(|pairs| pairs.width() == words) {
                return pairs;
            }
        }
        LeftMatrix::Full(_) => {}
    }
    lengthen(room, rows * words);
    let to = ViewMut::new(room, rows, words);
    match a {
        LeftMatrix::Full(a) => pair_rows(a, to, threads),
        LeftMatrix::Rounded(a) => pair_rows(a, to, threads),
    }
    View::new(room, rows, words)
}

/// Returns rows of bf16 numbers as rows of pairs, if every row begins at the start of a pair and has an even number of numbers.
fn as_pairs(a: View<'_, bf16>) -> Option<View<'_, f32>> {
    let (start, stride, width) = (a.as_ptr().cast::<f32>(), a.stride(), a.width());
    let fits = start.is_aligned() && width.is_multiple_of(2) && (stride.is_multiple_of(2) || a.rows() <= 1);
    let extent = Extent2 { rows: a.rows(), width: width / 2, stride: (stride / 2).max(width / 2) };
    // SAFETY: the words of a row are its pairs, the address is aligned, rows begin a whole number of words apart, and any bits
    // are an f32 number.
    fits.then(|| unsafe { View::from_raw(start, extent) })
}

fn pair_rows<N: ToBf16>(a: View<'_, N>, to: ViewMut<'_, f32>, threads: usize) {
    let rows = a.rows();
    if threads < 2 || rows < 2 || rows * a.width() < WORTH_A_THREAD {
        return round_by(PairRows { from: a, to });
    }
    let left = threads / 2;
    let middle = (rows * left / threads).max(1);
    let (above, below) = to.split_rows(middle);
    join(
        || pair_rows(a.rows_range(0, middle), above, left),
        || pair_rows(a.rows_range(middle, rows), below, threads - left),
    );
}

/// Turns rows of numbers into rows of pairs; words beyond the numbers become 0.
struct PairRows<'a, N> {
    from: View<'a, N>,
    to: ViewMut<'a, f32>,
}

impl<N: ToBf16> RoundingLoop for PairRows<'_, N> {
    #[inline(always)]
    fn run<R: Rounding>(mut self) {
        for (from, to) in self.from.iter().zip(self.to.iter_mut()) {
            for (chunk, to) in to.chunks_mut(LANES).enumerate() {
                put_first(&N::along::<R>(&numbers_at(from, chunk * 2 * LANES)), to);
            }
        }
    }
}

/// Returns a number, or zero if its magnitude is less than `least`, as [`flush`](crate::kernels::flush()) does.
#[inline(always)]
fn flushed(x: f32, least: f32) -> f32 {
    if x.abs() < least { 0.0 } else { x }
}

fn least(flushes: bool) -> f32 {
    if flushes { f32::FLUSH_BELOW } else { 0.0 }
}

/// Rounds a number as [`round_rows`] does.
pub fn round_number(x: f32, flushes: bool) -> bf16 {
    bf16::from_bits(round(flushed(x, least(flushes))) as u16)
}

/// Rounds every number of `from` to bf16, as a product in bf16 rounds its operands. If `flushes` is true, first replaces numbers
/// by zero as [`flush`](crate::kernels::flush()) does.
///
/// # Panics
/// If the two views do not have the same shape.
pub fn round_rows(from: View<'_, f32>, to: ViewMut<'_, bf16>, flushes: bool) {
    assert_eq!((from.rows(), from.width()), (to.rows(), to.width()), "the shape of rows to round");
    round_by(RoundRows { from, to, least: least(flushes) });
}

struct RoundRows<'a> {
    from: View<'a, f32>,
    to: ViewMut<'a, bf16>,
    least: f32,
}

impl RoundingLoop for RoundRows<'_> {
    #[inline(always)]
    fn run<R: Rounding>(mut self) {
        for (from, to) in self.from.iter().zip(self.to.iter_mut()) {
            for (chunk, to) in to.chunks_mut(2 * LANES).enumerate() {
                let mut numbers: [f32; 2 * LANES] = numbers_at(from, chunk * 2 * LANES);
                numbers.iter_mut().for_each(|x| *x = flushed(*x, self.least));
                // SAFETY: both types are 64 bytes of any bits; the first number of a pair is in the lower half, and so comes
                // first in memory.
                let rounded = unsafe { transmute::<Words, [bf16; 2 * LANES]>(R::along(&numbers)) };
                put_first(&rounded, to);
            }
        }
    }
}

/// Returns how many rows of bf16 numbers are converted to f32 at a time: as many as stay in the nearest caches.
pub fn rows_to_widen(width: usize) -> usize {
    ((1 << 14) / width.max(1)).max(1)
}

/// Copies rows of bf16 numbers as numbers of another type.
///
/// # Panics
/// If the two views do not have the same shape.
pub fn widen_rows<T: Float>(from: View<'_, bf16>, to: ViewMut<'_, T>) {
    assert_eq!((from.rows(), from.width()), (to.rows(), to.width()), "the shape of rows to widen");
    sweep(WidenRows { from, to });
}

struct WidenRows<'a, T> {
    from: View<'a, bf16>,
    to: ViewMut<'a, T>,
}

impl<T: Float> Sweep for WidenRows<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for (from, to) in self.from.iter().zip(self.to.iter_mut()) {
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = T::from_bf16(from));
        }
    }
}

/// Copies numbers into panels of pairs, rounded to bf16.
pub(in crate::kernels) fn copy_pairs(copy: PanelCopy<'_>) {
    let ((row, _), width, transpose) = (copy.at, copy.width, copy.transpose);
    for (b, panel, first) in copy.panels() {
        match transpose {
            Transpose::No => round_by(PutPairs { b, row, panel, width, first }),
            Transpose::Yes => round_by(TurnPairs { b, row, panel, width, first }),
        }
    }
}

/// Replaces one number of a pair: the first (`half` 0) or the second.
#[inline(always)]
fn with_half(pair: f32, half: usize, number: f32) -> f32 {
    let (first, second) = (pair.to_bits() & 0xffff, pair.to_bits() >> 16);
    if half == 0 { word(round(number), second) } else { word(first, round(number)) }
}

/// Returns how many of the rows from `row` on, of `rows` rows, are both rows of a pair.
#[inline(always)]
fn in_pairs(row: usize, rows: usize) -> usize {
    if row.is_multiple_of(2) { rows / 2 * 2 } else { 0 }
}

/// Copies rows of a matrix into rows of pairs of a panel.
struct PutPairs<'a> {
    b: View<'a, f32>,
    row: usize,
    panel: &'a mut [f32],
    width: usize,
    first: usize,
}

impl RoundingLoop for PutPairs<'_> {
    #[inline(always)]
    fn run<R: Rounding>(self) {
        /// How many rows before a row is read it is prefetched; rows are far apart in memory.
        const AHEAD: usize = 16;
        let Self { b, row, panel, width, first } = self;
        let paired = in_pairs(row, b.rows());
        for k in (0..paired).step_by(2) {
            for ahead in [k + AHEAD, k + AHEAD + 1].into_iter().filter(|&ahead| ahead < paired) {
                prefetch::ask(b.row(ahead));
            }
            let (even, odd) = (b.row(k), b.row(k + 1));
            let to = &mut panel[(row + k) / 2 * width + first..][..even.len()];
            for (chunk, to) in to.chunks_mut(LANES).enumerate() {
                put_first(&R::across(numbers_at(even, chunk * LANES), numbers_at(odd, chunk * LANES)), to);
            }
        }
        for k in paired..b.rows() {
            let (word, half) = ((row + k) / 2, (row + k) % 2);
            let to = &mut panel[word * width + first..][..b.width()];
            to.iter_mut().zip(b.row(k)).for_each(|(to, &number)| *to = with_half(*to, half, number));
        }
    }
}

/// Copies rows of a matrix into columns of pairs of a panel.
struct TurnPairs<'a> {
    b: View<'a, f32>,
    row: usize,
    panel: &'a mut [f32],
    width: usize,
    first: usize,
}

impl RoundingLoop for TurnPairs<'_> {
    #[inline(always)]
    fn run<R: Rounding>(self) {
        /// How many chunks before a chunk of a row is read it is prefetched. Sixteen rows are read in turn, more than the CPU
        /// prefetches by itself.
        const CHUNKS_AHEAD: usize = 8;
        let Self { b, row, panel, width, first } = self;
        let paired = in_pairs(row, b.width());
        for j in (0..b.rows()).step_by(LANES) {
            let columns = LANES.min(b.rows() - j);
            for k in (0..paired).step_by(2 * LANES) {
                let mut square = [[0.0; LANES]; LANES];
                for (i, words) in square.iter_mut().enumerate().take(columns) {
                    let numbers = b.row(j + i);
                    prefetch::ask_some::<f32, { 2 * LANES }>(
                        numbers.as_ptr().wrapping_add(k + CHUNKS_AHEAD * 2 * LANES),
                    );
                    *words = R::along(&numbers_at(numbers, k));
                }
                R::turn(&mut square);
                for (word, words) in square.iter().enumerate().take((paired - k) / 2) {
                    put_first(words, &mut panel[((row + k) / 2 + word) * width + first + j..][..columns]);
                }
            }
        }
        for (j, numbers) in b.iter().enumerate() {
            for (k, &number) in numbers.iter().enumerate().skip(paired) {
                let word = &mut panel[(row + k) / 2 * width + first + j];
                *word = with_half(*word, (row + k) % 2, number);
            }
        }
    }
}
