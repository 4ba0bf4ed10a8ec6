//! The operands of a matrix product, and its two implementations: packed tiles for each CPU path in f32 and bf16 (`single.rs`), and
//! the crate `matrixmultiply` in f64 (`double.rs`).

use std::ops::Range;

use ::half::bf16;

use super::float::Assign;
use super::path::{MatrixUnit, ProductEngine};
use super::picked::RowSource;
use super::view::{View, ViewMut};

/// Whether the operand is a stored matrix or its transpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transpose {
    /// The operand is the stored matrix.
    No,
    /// The operand is the transpose of the stored matrix.
    Yes,
}

impl Transpose {
    /// Returns the opposite setting, for the transposed matrix.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Transpose::No => Transpose::Yes,
            Transpose::Yes => Transpose::No,
        }
    }

    /// Returns the numbers of rows and columns of the operand, from the numbers of rows and columns of the stored matrix.
    pub fn shape<N>(self, (rows, columns): (N, N)) -> (N, N) {
        match self {
            Transpose::No => (rows, columns),
            Transpose::Yes => (columns, rows),
        }
    }
}

/// A row and a column of a matrix.
pub(super) type Corner = (usize, usize);

/// The right-hand matrix of a product, K × N, prepared for fast reading. In f32 and bf16, the matrix is stored panel by panel,
/// and a panel is a few columns. In f64, the matrix is stored row by row.
#[derive(Debug)]
pub struct PackedMatrix<T> {
    pub(super) data: Vec<T>,
    pub(super) start: usize,
    pub(super) k: usize,
    pub(super) n: usize,
    /// The number of columns per panel.
    pub(super) width: usize,
    /// What computes the products with the matrix.
    pub(super) engine: ProductEngine,
}

/// Scratch of weight gradients, which the caller keeps between calls. For each thread, the scratch holds packed panels of
/// `dy`, packed columns of `x`, and, if the result is transposed, a part of the result before transposition.
#[derive(Debug, Default)]
pub struct GradientRoom<T>(pub(super) Vec<Vec<T>>);

/// Scratch for the left matrix of products in bf16: its rows, rounded.
#[derive(Debug, Default)]
pub struct RoundedRows<T>(pub(super) Vec<T>);

/// The left matrix of a product: numbers, or numbers that were rounded to bf16 before ([`round_rows`](super::round_rows)).
#[derive(Clone, Copy)]
pub enum LeftMatrix<'a, T> {
    /// Numbers, which a product in bf16 rounds.
    Full(View<'a, T>),
    /// Numbers in bf16, for a product of f32 numbers in bf16.
    Rounded(View<'a, bf16>),
}

impl<'a, T> From<View<'a, T>> for LeftMatrix<'a, T> {
    fn from(rows: View<'a, T>) -> Self {
        LeftMatrix::Full(rows)
    }
}

impl<T> LeftMatrix<'_, T> {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        match self {
            LeftMatrix::Full(rows) => rows.rows(),
            LeftMatrix::Rounded(rows) => rows.rows(),
        }
    }

    /// Returns the number of columns.
    pub fn width(&self) -> usize {
        match self {
            LeftMatrix::Full(rows) => rows.width(),
            LeftMatrix::Rounded(rows) => rows.width(),
        }
    }

    /// Returns the rows `from..to`.
    ///
    /// # Panics
    /// If the matrix does not have these rows.
    #[must_use]
    pub fn rows_range(&self, from: usize, to: usize) -> Self {
        match self {
            LeftMatrix::Full(rows) => LeftMatrix::Full(rows.rows_range(from, to)),
            LeftMatrix::Rounded(rows) => LeftMatrix::Rounded(rows.rows_range(from, to)),
        }
    }

    /// Returns the columns `from..to`.
    ///
    /// # Panics
    /// If the matrix does not have these columns.
    #[must_use]
    pub fn columns(&self, from: usize, to: usize) -> Self {
        match self {
            LeftMatrix::Full(rows) => LeftMatrix::Full(rows.columns(from, to)),
            LeftMatrix::Rounded(rows) => LeftMatrix::Rounded(rows.columns(from, to)),
        }
    }
}

/// The result of a product: numbers, or, for a product of f32 numbers in bf16, numbers that are rounded to bf16.
pub enum ResultMatrix<'a, T> {
    /// Numbers as they are computed.
    Full(ViewMut<'a, T>),
    /// Numbers that are rounded to bf16. A product can write them, but not add to them.
    Rounded(ViewMut<'a, bf16>),
}

impl<'a, T> From<ViewMut<'a, T>> for ResultMatrix<'a, T> {
    fn from(rows: ViewMut<'a, T>) -> Self {
        ResultMatrix::Full(rows)
    }
}

impl<'a, T> ResultMatrix<'a, T> {
    /// Returns the numbers of rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        match self {
            ResultMatrix::Full(rows) => (rows.rows(), rows.width()),
            ResultMatrix::Rounded(rows) => (rows.rows(), rows.width()),
        }
    }

    /// Borrows the matrix again.
    pub fn reborrow(&mut self) -> ResultMatrix<'_, T> {
        match self {
            ResultMatrix::Full(rows) => ResultMatrix::Full(rows.reborrow()),
            ResultMatrix::Rounded(rows) => ResultMatrix::Rounded(rows.reborrow()),
        }
    }

    /// Returns the matrix for reading, as an operand of another product.
    pub fn as_left(&self) -> LeftMatrix<'_, T> {
        match self {
            ResultMatrix::Full(rows) => LeftMatrix::Full(rows.as_view()),
            ResultMatrix::Rounded(rows) => LeftMatrix::Rounded(rows.as_view()),
        }
    }

    /// Divides the matrix into the rows before row `at` and the other rows.
    ///
    /// # Panics
    /// If the matrix has fewer than `at` rows.
    #[must_use]
    pub fn split_rows(self, at: usize) -> (Self, Self) {
        match self {
            ResultMatrix::Full(rows) => {
                let (above, below) = rows.split_rows(at);
                (ResultMatrix::Full(above), ResultMatrix::Full(below))
            }
            ResultMatrix::Rounded(rows) => {
                let (above, below) = rows.split_rows(at);
                (ResultMatrix::Rounded(above), ResultMatrix::Rounded(below))
            }
        }
    }

    /// Divides the matrix into the columns before column `at` and the other columns.
    ///
    /// # Panics
    /// If the matrix has fewer than `at` columns.
    #[must_use]
    pub fn split_columns(self, at: usize) -> (Self, Self) {
        match self {
            ResultMatrix::Full(rows) => {
                let (left, right) = rows.split_columns(at);
                (ResultMatrix::Full(left), ResultMatrix::Full(right))
            }
            ResultMatrix::Rounded(rows) => {
                let (left, right) = rows.split_columns(at);
                (ResultMatrix::Rounded(left), ResultMatrix::Rounded(right))
            }
        }
    }
}

/// The view that receives the gradient of a weight, whether the gradient is written or added, and whether the weight is
/// stored transposed.
pub type WeightGradient<'a, T> = (ViewMut<'a, T>, Assign, Transpose);
/// The slice that receives the gradient of a bias, and whether the gradient is written or added.
pub(super) type BiasGradient<'a, T> = (&'a mut [T], Assign);

/// The inputs and outputs of the gradients of a weight and a bias, which are summed over the same rows.
pub struct Gradients<'a, T> {
    pub(super) unit: MatrixUnit,
    pub(super) x: RowSource<'a, T>,
    pub(super) dy: LeftMatrix<'a, T>,
    pub(super) dw: WeightGradient<'a, T>,
    pub(super) db: Option<BiasGradient<'a, T>>,
}

/// The matrix products of an element type. The trait is sealed: only `f32` and `f64` implement it.
pub trait Products: Sized {
    /// Returns the number of columns per panel of a packed matrix with `n` columns.
    fn panel_width(engine: ProductEngine, n: usize) -> usize;
    /// Returns the number of elements in a column of a panel of a matrix with `k` rows.
    fn words(engine: ProductEngine, k: usize) -> usize;
    /// Sets the elements of a packed matrix to zero that no number of the matrix fills completely.
    fn clear_ends(packed: &mut PackedMatrix<Self>);
    /// Returns the rows of the left matrix of a product as the engine reads them.
    ///
    /// # Panics
    /// If the rows are in bf16, but the engine reads numbers as they are.
    fn left<'a>(
        engine: ProductEngine,
        a: LeftMatrix<'a, Self>,
        room: &'a mut RoundedRows<Self>,
        threads: usize,
    ) -> View<'a, Self>;
    /// Implements [`PackedMatrix::put`]; the caller has checked that the copied part fits.
    fn put(to: &mut PackedMatrix<Self>, b: View<'_, Self>, transpose: Transpose, at: Corner, threads: usize);
    /// Computes `product_panels`.
    fn product(
        a: View<'_, Self>,
        b: &PackedMatrix<Self>,
        panels: Range<usize>,
        bias: Option<&[Self]>,
        c: ResultMatrix<'_, Self>,
        assign: Assign,
    );
    /// Rounds rows to bf16, as a product rounds its operands.
    ///
    /// # Panics
    /// If the two views do not have the same shape, or if the numbers are in f64.
    fn round_to_bf16(from: View<'_, Self>, to: ViewMut<'_, bf16>);
    /// Returns a bf16 number as a number of this type.
    fn from_bf16(number: bf16) -> Self;
    /// Computes the gradients of a weight and a bias, on up to `threads` threads.
    fn gradients(all: Gradients<'_, Self>, room: &mut GradientRoom<Self>, threads: usize);
}
