//! Matrix products of 8-bit integers, for prediction.
//!
//! A weight is stored as *codes*, integers from -127 to 127, with one scale per column: a number is its code times the scale of
//! its column. Each row of the left matrix is rounded to codes, too, with a scale of its own: the largest magnitude of the row
//! divided by 127. A sum of products of codes is an exact integer, so every instruction gives the same bits.
//!
//! Panels have 32 columns. A *word* has four successive codes of a row or of a column, the first in the lowest byte. The codes of
//! the left matrix are stored plus 128, as the instructions of CPUs multiply bytes without a sign by bytes with a sign; the
//! product is corrected by 128 times the sum of the column's codes.

mod instructions;
#[cfg(test)]
mod tests;

use std::ops::Range;

use super::float::{Assign, Float};
use super::fork::join;
use super::path::{Arithmetic, Sweep, sweep};
use super::products::Transpose;
use super::view::{View, ViewMut};
use instructions::IntegerEngine;

/// The largest code.
const LARGEST_CODE: i8 = 127;
/// The maximum number of rows of a matrix of codes: a sum of more products could overflow.
pub const MAX_CODE_ROWS: usize = 1 << 16;
/// The number of columns of a panel.
const WIDTH: usize = 32;
/// The number of codes in a word.
const CODES: usize = 4;
/// The number of words of a column is a multiple of this number.
const WORDS: usize = 4;
/// The stored code of 0 in the left matrix.
const ZERO_CODE: i32 = 128;
/// Below this number of multiply-adds (about twenty microseconds), a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 21;

/// One word of each column of a panel.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct PanelRow([[i8; CODES]; WIDTH]);

/// The sums of one row of a product over the columns of a panel.
type PanelSums = [i32; WIDTH];

/// A matrix of codes, K × N, in panels of columns, as the right-hand matrix of products.
#[derive(Debug, Default)]
pub struct CodedMatrix {
    rows: Vec<PanelRow>,
    /// For each column, the sum of its codes.
    sums: Vec<i32>,
    k: usize,
    n: usize,
}

/// Scratch for the left matrix of products: the codes and the scales of its rows.
#[derive(Debug, Default)]
pub struct CodedRows<T> {
    words: Vec<i32>,
    scales: Vec<T>,
}

/// Returns the number of words of a column with `k` codes.
fn words_of(k: usize) -> usize {
    k.div_ceil(CODES).next_multiple_of(WORDS)
}

/// Writes the codes of numbers to `codes`, and returns their scale; 0 if all numbers are 0.
///
/// A code is x / scale, rounded to the nearest integer, with scale = max |x| / 127. The scale of numbers of which one is NaN or
/// infinite is NaN.
pub fn encode<T: Float>(numbers: impl Iterator<Item = T> + Clone, codes: &mut [i8]) -> T {
    let (inverse, scale) = scale_of(numbers.clone());
    for (code, number) in codes.iter_mut().zip(numbers) {
        *code = (stored_code(number, inverse) - ZERO_CODE) as i8;
    }
    scale
}

/// Returns the factor from numbers to codes, and the scale, which is the factor from codes to numbers.
#[inline(always)]
fn scale_of<T: Float>(numbers: impl Iterator<Item = T>) -> (T, T) {
    let largest = T::from_f64(f64::from(LARGEST_CODE));
    let (mut most, mut numeric) = (T::ZERO, true);
    for number in numbers {
        most = most.max(number.abs());
        numeric &= number.partial_cmp(&number).is_some();
    }
    let inverse = largest / most;
    match (numeric && most.is_finite(), inverse.is_finite()) {
        (false, _) => (T::ZERO, T::from_f64(f64::NAN)),
        // Numbers so close to 0 that the factor overflows have the code 0.
        (true, false) => (T::ZERO, T::ZERO),
        (true, true) => (inverse, most / largest),
    }
}

/// Returns the code of a number plus 128.
#[inline(always)]
fn stored_code<T: Float>(number: T, inverse: T) -> i32 {
    // The sum is positive, so the integer below it is the nearest integer of the number.
    (number * inverse + T::from_f64(f64::from(ZERO_CODE) + 0.5)).truncated()
}

impl<T: Float> CodedRows<T> {
    /// Returns the size in bytes of the scratch for a left matrix of `rows` rows and `k` columns.
    pub fn bytes_of(rows: usize, k: usize) -> usize {
        rows.saturating_mul(words_of(k).saturating_mul(size_of::<i32>()).saturating_add(size_of::<T>()))
    }

    /// Replaces the rows by the codes of the rows of `a`.
    fn encode(&mut self, a: View<'_, T>) {
        let words = words_of(a.width());
        self.words.clear();
        self.words.reserve_exact(a.rows() * words);
        self.scales.clear();
        self.scales.reserve_exact(a.rows());
        sweep(EncodeRows { from: a, to: self });
    }
}

struct EncodeRows<'a, T> {
    from: View<'a, T>,
    to: &'a mut CodedRows<T>,
}

impl<T: Float> Sweep for EncodeRows<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let words = words_of(self.from.width());
        for row in self.from.iter() {
            let (inverse, scale) = scale_of(row.iter().copied());
            let (full, rest) = row.as_chunks::<CODES>();
            let of_four = |four: &[T; CODES]| {
                let mut word = 0;
                for (place, &number) in four.iter().enumerate() {
                    word |= stored_code(number, inverse) << (8 * place);
                }
                word
            };
            self.to.words.extend(full.iter().map(of_four));
            if !rest.is_empty() {
                let mut last = [T::ZERO; CODES];
                last[..rest.len()].copy_from_slice(rest);
                self.to.words.push(of_four(&last));
            }
            // Words beyond the row meet codes of 0.
            self.to.words.resize(self.to.words.len() + words - row.len().div_ceil(CODES), 0);
            self.to.scales.push(scale);
        }
    }
}

impl CodedMatrix {
    /// Returns the size in bytes of a matrix of `k` rows and `n` columns.
    pub fn bytes_of(k: usize, n: usize) -> usize {
        let panels = n.div_ceil(WIDTH);
        panels.saturating_mul(words_of(k)).saturating_mul(size_of::<PanelRow>())
            + panels * WIDTH * size_of::<i32>()
    }

    /// Sets the shape of the matrix to K × N, before [`Self::put`] fills the matrix.
    ///
    /// # Panics
    /// If `k` exceeds [`MAX_CODE_ROWS`].
    pub fn resize(&mut self, k: usize, n: usize) {
        assert!(k <= MAX_CODE_ROWS, "{k} rows of codes");
        (self.k, self.n) = (k, n);
        let panels = n.div_ceil(WIDTH);
        let fill = |len: usize, room: &mut Vec<PanelRow>| {
            room.clear();
            room.reserve_exact(len);
            room.resize(len, PanelRow([[0; CODES]; WIDTH]));
        };
        fill(panels * words_of(k), &mut self.rows);
        self.sums.clear();
        self.sums.reserve_exact(panels * WIDTH);
        self.sums.resize(panels * WIDTH, 0);
    }

    /// Copies `codes`, or the transpose of `codes`, into the matrix, from column `first` on.
    ///
    /// # Panics
    /// If the codes have another number of rows than the matrix, or reach beyond its columns.
    pub fn put(&mut self, codes: View<'_, i8>, transpose: Transpose, first: usize) {
        let (rows, columns) = transpose.shape((codes.rows(), codes.width()));
        assert!(rows == self.k && first + columns <= self.n, "a part of a matrix of codes");
        let words = words_of(self.k);
        let mut put = |row: usize, column: usize, code: i8| {
            let (panel, within) = (column / WIDTH, column % WIDTH);
            self.rows[panel * words + row / CODES].0[within][row % CODES] = code;
            self.sums[column] += i32::from(code);
        };
        for (i, line) in codes.iter().enumerate() {
            for (j, &code) in line.iter().enumerate() {
                let (row, column) = transpose.shape((i, j));
                put(row, first + column, code);
            }
        }
    }

    fn panels(&self) -> usize {
        self.n.div_ceil(WIDTH)
    }

    fn columns(&self, panels: &Range<usize>) -> Range<usize> {
        (panels.start * WIDTH).min(self.n)..(panels.end * WIDTH).min(self.n)
    }
}

/// The part of a product that is the same for all of its columns.
#[derive(Clone, Copy)]
struct Product<'a, T> {
    engine: IntegerEngine,
    rows: &'a CodedRows<T>,
    matrix: &'a CodedMatrix,
    assign: Assign,
}

/// Returns the name of the instructions that sum products of 8-bit integers on this CPU: `int8-amx`, `int8-avx512`, `int8-avx2`, or
/// `int8` for plain code. All of them give the same bits.
pub fn int8_unit() -> &'static str {
    IntegerEngine::best().name()
}

/// Returns the innermost loop of the products, on codes of 0 in the nearest cache, for measurements. A run returns the number of its
/// operations.
pub(super) fn code_loop() -> impl FnMut() -> usize {
    const CODES_IN_A_SUM: usize = 256;
    let (engine, words) = (IntegerEngine::best(), words_of(CODES_IN_A_SUM));
    let (rows, panels) = engine.size(instructions::MAX_SUMS, words);
    let (a, b) = (vec![0; rows * words], vec![PanelRow([[0; CODES]; WIDTH]); panels * words]);
    let mut sums = [[0; WIDTH]; instructions::MAX_SUMS];
    move || {
        engine.multiply(&a, &b, (rows, panels, words), &mut sums);
        std::hint::black_box(&sums);
        2 * rows * panels * WIDTH * CODES_IN_A_SUM
    }
}

/// Computes `c = bias + a·b`, or adds the finished sums to `c`, where the numbers of `b` are the codes of a matrix times the
/// scales of its columns, and the rows of `a` are rounded to codes in `room`. Up to `threads` threads of rayon's pool divide the
/// columns. The bits depend neither on the number of threads, nor on the other rows, nor on the CPU.
///
/// # Panics
/// If `a` is not M × K, or if `c` is not M × N, or if `scales` or `bias` does not have N numbers.
#[expect(clippy::too_many_arguments, reason = "the operands of a product")]
pub fn coded_affine<T: Float>(
    a: View<'_, T>,
    b: &CodedMatrix,
    scales: &[T],
    bias: Option<&[T]>,
    c: ViewMut<'_, T>,
    assign: Assign,
    room: &mut CodedRows<T>,
    threads: usize,
) {
    assert_eq!(a.width(), b.k, "the inner sizes of a product");
    assert_eq!((c.rows(), c.width(), scales.len()), (a.rows(), b.n, b.n), "the shape of a product");
    assert!(bias.is_none_or(|bias| bias.len() == b.n), "the length of a bias");
    room.encode(a);
    let product = Product { engine: IntegerEngine::best(), rows: room, matrix: b, assign };
    share(product, 0..b.panels(), (scales, bias, c), threads);
}

fn share<T: Float>(
    product: Product<'_, T>,
    panels: Range<usize>,
    (scales, bias, c): (&[T], Option<&[T]>, ViewMut<'_, T>),
    threads: usize,
) {
    let matrix = product.matrix;
    let work = c.rows() * matrix.k * matrix.columns(&panels).len();
    if threads < 2 || panels.len() < 2 || work < WORTH_A_THREAD {
        return multiply(product, panels, (scales, bias, c));
    }
    let left = threads / 2;
    let middle = panels.start + (panels.len() * left / threads).max(1);
    let columns = matrix.columns(&(panels.start..middle)).len();
    let (left_scales, right_scales) = scales.split_at(columns);
    let (left_bias, right_bias) = bias.map(|bias| bias.split_at(columns)).unzip();
    let (left_c, right_c) = c.split_columns(columns);
    join(
        || share(product, panels.start..middle, (left_scales, left_bias, left_c), left),
        || share(product, middle..panels.end, (right_scales, right_bias, right_c), threads - left),
    );
}

/// Computes the columns of a product in a range of panels; `scales`, `bias` and `c` have only these columns.
fn multiply<T: Float>(
    Product { engine, rows, matrix, assign }: Product<'_, T>,
    panels: Range<usize>,
    (scales, bias, mut c): (&[T], Option<&[T]>, ViewMut<'_, T>),
) {
    let words = words_of(matrix.k);
    let count = c.rows();
    let mut sums = [[0; WIDTH]; instructions::MAX_SUMS];
    let mut panel = panels.start;
    while panel < panels.end {
        let most = engine.size(count, words).1;
        let taken = if panels.end - panel < most { 1 } else { most };
        let mut row = 0;
        while row < count {
            let block = engine.size(count - row, words).0;
            let of_rows = &rows.words[row * words..][..block * words];
            let of_panels = &matrix.rows[panel * words..][..taken * words];
            engine.multiply(of_rows, of_panels, (block, taken, words), &mut sums);
            for (i, sums) in sums[..block * taken].chunks_exact(taken).enumerate() {
                let scale = rows.scales[row + i];
                for (p, sums) in sums.iter().enumerate() {
                    let columns = matrix.columns(&(panel + p..panel + p + 1));
                    let from = columns.start - matrix.columns(&panels).start;
                    let part = from..from + columns.len();
                    sweep(Finish {
                        sums,
                        corrections: &matrix.sums[columns],
                        scale,
                        scales: &scales[part.clone()],
                        bias: bias.map(|bias| &bias[part.clone()]),
                        to: &mut c.row(row + i)[part],
                        assign,
                    });
                }
            }
            row += block;
        }
        panel += taken;
    }
}

/// Turns the sums of a row into numbers.
struct Finish<'a, T> {
    sums: &'a PanelSums,
    corrections: &'a [i32],
    scale: T,
    scales: &'a [T],
    bias: Option<&'a [T]>,
    to: &'a mut [T],
    assign: Assign,
}

impl<T: Float> Sweep for Finish<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Self { sums, corrections, scale, scales, bias, to, assign } = self;
        let numbers = sums.iter().zip(corrections).zip(scales);
        let numbers = numbers.map(|((&sum, &of_column), &of_scale)| {
            T::from_i32(sum.wrapping_sub(ZERO_CODE * of_column)) * (scale * of_scale)
        });
        match bias {
            Some(bias) => {
                to.iter_mut().zip(numbers).zip(bias).for_each(|((to, x), &bias)| assign.put(to, x + bias));
            }
            None => to.iter_mut().zip(numbers).for_each(|(to, x)| assign.put(to, x)),
        }
    }
}
