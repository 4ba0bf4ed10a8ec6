//! The input rows of a convolution: rows of sequences, and padding rows beyond the ends of the sequences.

use crate::kernels::float::Float;
use crate::kernels::view::View;

use super::window::{Source, Window};

/// The rows that a convolution reads: the rows of the sequences and the padding rows.
#[derive(Clone, Copy)]
pub struct ConvRows<'a, T> {
    /// The rows of all sequences, one sequence after the other.
    pub x: View<'a, T>,
    /// The padding rows before and after each sequence, numbered as in [`Window::padding_rows`]; `None` if padding is zeros.
    pub padding: Option<View<'a, T>>,
    /// The offset of each sequence's first row, then the offset after the last row. The first sequence begins at row 0 of
    /// `x`, even if the first offset is not 0.
    pub offsets: &'a [usize],
    /// The window: the rows that the convolution reads for each row of the result.
    pub window: Window,
}

impl<'a, T: Float> ConvRows<'a, T> {
    /// Returns the same rows, restricted to the columns `from..to`.
    #[must_use]
    pub fn columns(&self, from: usize, to: usize) -> Self {
        let padding = self.padding.map(|padding| padding.columns(from, to));
        Self { x: self.x.columns(from, to), padding, ..*self }
    }

    /// Returns the numbers of a row that a tap reads; `None` if the row is padding of zeros.
    pub(super) fn numbers(&self, from: Source) -> Option<&'a [T]> {
        match from {
            Source::Row(row) => Some(self.x.row(row)),
            Source::Padding(row) => self.padding.map(|padding| padding.row(row)),
        }
    }

    pub(super) fn check(&self) {
        let rows = self.offsets.last().zip(self.offsets.first()).map_or(0, |(last, first)| last - first);
        assert_eq!(rows, self.x.rows(), "the rows of the sequences of a convolution");
        if let Some(padding) = self.padding {
            let shape = (self.window.padding_rows(), self.x.width());
            assert_eq!((padding.rows(), padding.width()), shape, "the shape of padding rows");
        }
    }
}
