//! Rows of a matrix that are picked by index, in any order, with zeros for missing rows.

use ::half::bf16;

use super::float::Float;
use super::view::View;

/// Rows that are picked by index: the indices count the rows of `x` first, then the rows of `beside`; every higher index means
/// a row of zeros.
#[derive(Clone, Copy)]
pub(super) struct PickedRows<'a, T> {
    /// The matrix whose rows have the indices from 0 on.
    pub(super) x: View<'a, T>,
    /// A second matrix, as wide as `x`, whose rows have the next indices; `None` if there is only `x`.
    pub(super) beside: Option<View<'a, T>>,
    /// The row of zeros: at least one zero per column of `x`.
    pub(super) zeros: &'a [T],
    /// The indices of the picked rows, in the order of the operand's rows.
    pub(super) index: &'a [usize],
}

/// The rows of an operand: all rows of a view, or rows that are picked by index.
#[derive(Clone, Copy)]
pub(super) enum RowSource<'a, T> {
    /// All rows of a view, in order.
    Lying(View<'a, T>),
    /// The rows of a matrix that are picked by index.
    Picked(PickedRows<'a, T>),
    /// All rows of a view in bf16, in order, for a gradient in bf16.
    Rounded(View<'a, bf16>),
}

impl<'a, T: Float> PickedRows<'a, T> {
    fn row(&self, number: usize) -> &'a [T] {
        let rows = self.x.rows();
        match self.beside.filter(|beside| number >= rows && number - rows < beside.rows()) {
            _ if number < rows => self.x.row(number),
            Some(beside) => beside.row(number - rows),
            None => &self.zeros[..self.x.width()],
        }
    }
}

impl<'a, T: Float> RowSource<'a, T> {
    pub(super) fn rows(&self) -> usize {
        match self {
            RowSource::Lying(x) => x.rows(),
            RowSource::Rounded(x) => x.rows(),
            RowSource::Picked(picked) => picked.index.len(),
        }
    }

    /// Returns the number of columns of the operand.
    pub(super) fn width(&self) -> usize {
        match self {
            RowSource::Lying(x) => x.width(),
            RowSource::Rounded(x) => x.width(),
            RowSource::Picked(picked) => picked.x.width(),
        }
    }

    pub(super) fn rows_range(&self, from: usize, to: usize) -> Self {
        match *self {
            RowSource::Lying(x) => RowSource::Lying(x.rows_range(from, to)),
            RowSource::Rounded(x) => RowSource::Rounded(x.rows_range(from, to)),
            RowSource::Picked(picked) => {
                RowSource::Picked(PickedRows { index: &picked.index[from..to], ..picked })
            }
        }
    }

    pub(super) fn columns(&self, from: usize, to: usize) -> Self {
        match *self {
            RowSource::Lying(x) => RowSource::Lying(x.columns(from, to)),
            RowSource::Rounded(x) => RowSource::Rounded(x.columns(from, to)),
            RowSource::Picked(picked) => RowSource::Picked(PickedRows {
                x: picked.x.columns(from, to),
                beside: picked.beside.map(|beside| beside.columns(from, to)),
                ..picked
            }),
        }
    }

    /// Calls `each` with every row of the operand, in order; the rows must not be in bf16.
    #[inline]
    pub(super) fn each(&self, each: impl FnMut(&'a [T])) {
        match self {
            RowSource::Lying(x) => x.iter().for_each(each),
            RowSource::Picked(picked) => picked.index.iter().map(|&number| picked.row(number)).for_each(each),
            RowSource::Rounded(_) => {
                unreachable!("only a gradient in bf16 gets rows in bf16, and reads their bits")
            }
        }
    }
}
