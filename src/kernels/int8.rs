//! Matrix products of 8-bit integers, for prediction.
//!
//! A weight is stored as *codes*, integers of 8 bits (-127 to 127 where this crate rounds), with one scale per column: a number is its code times the scale of
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

use super::balance::{boundary, join_measured};
use super::float::{Assign, Float};
use super::fork::join;
use super::path::{Arithmetic, Sweep, sweep};
use super::product::emptied;
use super::products::Transpose;
use super::view::{View, ViewMut};
use instructions::{CODES, IntegerEngine, PanelRow, PanelSums, WIDTH};

/// The largest code.
const LARGEST_CODE: i8 = 127;
/// The maximum number of rows of a matrix of codes: a sum of more products could overflow.
pub const MAX_CODE_ROWS: usize = 1 << 16;
/// The number of words of a column is a multiple of this number.
const WORDS: usize = 4;
/// The stored code of 0 in the left matrix.
const ZERO_CODE: i32 = 128;
/// Below this number of numbers to round, a second thread costs more than it gains.
const WORTH_ROWS: usize = 1 << 17;

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
    fn encode(&mut self, a: View<'_, T>, threads: usize) {
        let (rows, words) = (a.rows(), words_of(a.width()));
        emptied(&mut self.words, rows * words).resize(rows * words, 0);
        emptied(&mut self.scales, rows).resize(rows, T::ZERO);
        encode_rows(a, (&mut self.words, &mut self.scales), threads);
    }
}

fn encode_rows<T: Float>(a: View<'_, T>, (words, scales): (&mut [i32], &mut [T]), threads: usize) {
    let rows = a.rows();
    if threads < 2 || rows < 2 || rows * a.width() < WORTH_ROWS {
        return sweep(EncodeRows { from: a, words, scales });
    }
    let left = threads / 2;
    let middle = (rows * left / threads).max(1);
    let (words_above, words_below) = words.split_at_mut(middle * words_of(a.width()));
    let (scales_above, scales_below) = scales.split_at_mut(middle);
    join(
        || encode_rows(a.rows_range(0, middle), (words_above, scales_above), left),
        || encode_rows(a.rows_range(middle, rows), (words_below, scales_below), threads - left),
    );
}

struct EncodeRows<'a, T> {
    from: View<'a, T>,
    words: &'a mut [i32],
    scales: &'a mut [T],
}

impl<T: Float> Sweep for EncodeRows<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let words = words_of(self.from.width()).max(1);
        for ((row, words), to) in self.from.iter().zip(self.words.chunks_exact_mut(words)).zip(self.scales) {
            let (inverse, scale) = scale_of(row.iter().copied());
            let (full, rest) = row.as_chunks::<CODES>();
            let of_four = |four: &[T; CODES]| {
                let mut word = 0;
                for (index, &number) in four.iter().enumerate() {
                    word |= stored_code(number, inverse) << (8 * index);
                }
                word
            };
            words.iter_mut().zip(full).for_each(|(word, four)| *word = of_four(four));
            // Words beyond the row stay 0; they meet codes of 0.
            if let (Some(word), false) = (words.get_mut(full.len()), rest.is_empty()) {
                let mut last = [T::ZERO; CODES];
                last[..rest.len()].copy_from_slice(rest);
                *word = of_four(&last);
            }
            *to = scale;
        }
    }
}

impl CodedMatrix {
    /// Returns the size in bytes of a matrix of `k` rows and `n` columns.
    pub fn bytes_of(k: usize, n: usize) -> usize {
        let panels = n.div_ceil(WIDTH);
        let of_columns =
            words_of(k).saturating_mul(size_of::<PanelRow>()).saturating_add(size_of::<PanelSums>());
        panels.saturating_mul(of_columns)
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

/// The left operand of a product, or some of its rows, and what is the same for all columns.
#[derive(Clone, Copy)]
struct Product<'a, T> {
    engine: IntegerEngine,
    words: &'a [i32],
    row_scales: &'a [T],
    matrix: &'a CodedMatrix,
    assign: Assign,
}

impl<T> Product<'_, T> {
    fn split_rows(self, at: usize) -> (Self, Self) {
        let (words_above, words_below) = self.words.split_at(at * words_of(self.matrix.k));
        let (above, below) = self.row_scales.split_at(at);
        (
            Self { words: words_above, row_scales: above, ..self },
            Self { words: words_below, row_scales: below, ..self },
        )
    }
}

/// Returns the name of the instructions that sum products of 8-bit integers on this CPU: `int8-amx`, `int8-avx512`, `int8-avx2`, or
/// `int8` for plain code. All of them give the same bits.
pub fn int8_unit() -> &'static str {
    IntegerEngine::best().name()
}

/// Returns the innermost loop of the products, on codes of 0 in the nearest cache, for measurements. A run returns the number of its
/// operations.
pub(super) fn code_loop() -> impl FnMut() -> usize {
    const CODES_IN_A_SUM: usize = 1024;
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
/// columns, or the rows of a product with few columns. The bits depend neither on the number of threads, nor on the other rows, nor on the CPU.
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
    room.encode(a, threads);
    let (words, row_scales) = (&room.words[..], &room.scales[..]);
    let product = Product { engine: IntegerEngine::best(), words, row_scales, matrix: b, assign };
    share(product, 0..b.panels(), (scales, bias, c), threads);
}

fn share<T: Float>(
    product: Product<'_, T>,
    panels: Range<usize>,
    (scales, bias, c): (&[T], Option<&[T]>, ViewMut<'_, T>),
    threads: usize,
) {
    let (matrix, rows) = (product.matrix, c.rows());
    let work = rows * matrix.k * matrix.columns(&panels).len();
    if threads < 2 || work < product.engine.worth_a_thread() || panels.len().max(rows) < 2 {
        return multiply(product, panels, (scales, bias, c));
    }
    let left = threads / 2;
    if panels.len() < threads {
        let middle = (rows * left / threads).max(1).min(rows);
        let (above, below) = product.split_rows(middle);
        let (c_above, c_below) = c.split_rows(middle);
        join(
            || share(above, panels.clone(), (scales, bias, c_above), left),
            || share(below, panels.clone(), (scales, bias, c_below), threads - left),
        );
        return;
    }
    let at = boundary(panels.len(), left, threads);
    let middle = panels.start + at;
    let columns = matrix.columns(&(panels.start..middle)).len();
    let (left_scales, right_scales) = scales.split_at(columns);
    let (left_bias, right_bias) = bias.map(|bias| bias.split_at(columns)).unzip();
    let (left_c, right_c) = c.split_columns(columns);
    join_measured(
        (at, panels.len()),
        || share(product, panels.start..middle, (left_scales, left_bias, left_c), left),
        || share(product, middle..panels.end, (right_scales, right_bias, right_c), threads - left),
    );
}

/// Computes the columns of a product in a range of panels; `scales`, `bias` and `c` have only these columns.
fn multiply<T: Float>(
    Product { engine, words: of_rows, row_scales, matrix, assign }: Product<'_, T>,
    panels: Range<usize>,
    (scales, bias, mut c): (&[T], Option<&[T]>, ViewMut<'_, T>),
) {
    let words = words_of(matrix.k);
    let first = matrix.columns(&panels).start;
    let mut sums = [[0; WIDTH]; instructions::MAX_SUMS];
    let mut panel = panels.start;
    while panel < panels.end {
        let most = engine.size(c.rows(), words).1;
        let taken = if panels.end - panel < most { 1 } else { most };
        let columns = matrix.columns(&(panel..panel + taken));
        let part = columns.start - first..columns.end - first;
        let mut row = 0;
        while row < c.rows() {
            let block = engine.size(c.rows() - row, words).0;
            let left = &of_rows[row * words..][..block * words];
            let right = &matrix.rows[panel * words..][..taken * words];
            engine.multiply(left, right, (block, taken, words), &mut sums);
            let finish = BlockSums {
                sums: &sums[..block * taken],
                corrections: &matrix.sums[columns.clone()],
                row_scales: &row_scales[row..row + block],
                scales: &scales[part.clone()],
                bias: bias.map(|bias| &bias[part.clone()]),
                assign,
            };
            sweep(FinishRows { finish, to: &mut c, row, first: part.start });
            row += block;
        }
        panel += taken;
    }
}

/// The sums of a block of rows and columns, and what turns them into numbers.
struct BlockSums<'a, T> {
    sums: &'a [PanelSums],
    corrections: &'a [i32],
    row_scales: &'a [T],
    scales: &'a [T],
    bias: Option<&'a [T]>,
    assign: Assign,
}

/// Turns sums into the numbers of `to`, from row `row` and column `first` on.
struct FinishRows<'a, 'v, T> {
    finish: BlockSums<'a, T>,
    to: &'a mut ViewMut<'v, T>,
    row: usize,
    first: usize,
}

impl<T: Float> Sweep for FinishRows<'_, '_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Self {
            finish: BlockSums { sums, corrections, row_scales, scales, bias, assign },
            to,
            row,
            first,
        } = self;
        let panels = sums.len() / row_scales.len().max(1);
        for (i, (&row_scale, sums)) in row_scales.iter().zip(sums.chunks_exact(panels.max(1))).enumerate() {
            let to = &mut to.row(row + i)[first..][..scales.len()];
            let numbers = sums.as_flattened().iter().zip(corrections).zip(scales);
            let numbers = numbers.map(|((&sum, &of_column), &scale)| {
                T::from_i32(sum.wrapping_sub(ZERO_CODE * of_column)) * (row_scale * scale)
            });
            match bias {
                Some(bias) => {
                    to.iter_mut()
                        .zip(numbers)
                        .zip(bias)
                        .for_each(|((to, x), &bias)| assign.put(to, x + bias));
                }
                None => to.iter_mut().zip(numbers).for_each(|(to, x)| assign.put(to, x)),
            }
        }
    }
}
