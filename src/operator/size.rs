//! The size of a variable in bytes, as a function of counts that are known only in a run.

use std::fmt;

use super::extent::{Extent, Spec};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::StorageKind;

/// The maximum number of positions of a csr or coo matrix, stored or not: the known number of rows times the number of columns.
const MOST_PLACES: usize = bits_of_word(60);

/// Returns 2 to the power of `bits`, or the largest number of this CPU if a word has fewer bits.
pub(crate) const fn bits_of_word(bits: u32) -> usize {
    match 1usize.checked_shl(bits) {
        Some(number) => number,
        None => usize::MAX,
    }
}

impl Spec {
    /// Checks that every dimension except the first (the number of rows) is known before a run, that the last LoD level counts the
    /// rows, and that the size does not overflow.
    pub(crate) fn check_layout(&self) -> Result<()> {
        if let Some(extent) = self.shape.iter().skip(1).find(|e| e.known().is_none()) {
            return Err(Error::new("shape", "known dimensions after the first", extent.to_string()));
        }
        let wrong = |what, expected| Err(Error::of(ErrorKind::Program, what, expected, self.to_string()));
        match (self.lod.last(), self.shape.first()) {
            (Some(&level), first) if first != Some(&Extent::Rows(level)) => {
                wrong("shape", "the rows of its last LoD level first")
            }
            (None, Some(Extent::Rows(_))) => wrong("LoD", "the level that counts its rows"),
            _ => self.check_size(),
        }
    }

    /// Checks that the known dimensions are not too large. A dense tensor, or a row of selected rows, may have fewer than
    /// 2^63 bytes; a csr or coo matrix may have at most 2^60 positions. A dimension of 0 is skipped, so that the width of a
    /// row is checked even if there are no rows.
    pub(crate) fn check_size(&self) -> Result<()> {
        // The height of selected rows needs no memory, so it is skipped.
        let height = usize::from(self.storage == StorageKind::SelectedRows);
        let known = self.shape.iter().skip(height).filter_map(|e| e.known()).filter(|&n| n > 0);
        let places = known.fold(1, usize::saturating_mul);
        let bytes = places.saturating_mul(self.dtype.size_of());
        let (fits, expected) = match self.storage {
            StorageKind::Csr | StorageKind::Coo => {
                (places <= MOST_PLACES, "rows and columns of which there are at most 2^60, multiplied")
            }
            StorageKind::SelectedRows => (isize::try_from(bytes).is_ok(), "fewer than 2^63 bytes in a row"),
            StorageKind::Dense => {
                let expected = "a number of elements that memory can hold: fewer than 2^63 bytes";
                (isize::try_from(bytes).is_ok(), expected)
            }
        };
        if fits { Ok(()) } else { Err(Error::of(ErrorKind::Program, "shape", expected, self.to_string())) }
    }
}

/// The size of a variable in bytes: a fixed number of bytes, a number per row and a number per stored entry.
///
/// ```
/// use unpadded::op::{Extent, Size, Spec};
/// use unpadded::DType;
/// use unpadded::tensor::StorageKind;
/// let dense = Spec::rows_of(DType::F32, Extent::Batch, &[1000], Default::default())?;
/// let size = Size::of(&dense, Extent::Known(0));
/// assert_eq!((size.to_string().as_str(), size.bytes(3, 0)), ("4000 × batch bytes", 12_000));
/// let csr = Size::of(&Spec { storage: StorageKind::Csr, ..dense }, Extent::Data(7));
/// assert_eq!(csr.to_string(), "8 + 8 × batch + 12 × data7 bytes");
/// assert_eq!(csr.bytes(3, 10), 8 + 24 + 120);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The number of bytes that do not depend on the number of rows or entries.
    pub(crate) fixed: usize,
    /// The number of bytes per row.
    pub(crate) row: usize,
    /// The extent that counts the rows of the variable.
    pub(crate) rows: Extent,
    /// The number of bytes per stored entry of a sparse matrix, or per selected row.
    pub(crate) entry: usize,
    /// The extent that counts the stored entries, or the selected rows.
    pub(crate) entries: Extent,
}

impl Size {
    /// Returns the size of a variable with this spec; `entries` is the extent that counts the entries, or the selected rows, of a
    /// sparse variable.
    pub fn of(spec: &Spec, entries: Extent) -> Self {
        let number = spec.dtype.size_of();
        let index = size_of::<i64>();
        // The multiplication saturates, since a program may declare a shape that is larger than any memory.
        let row = spec.width().saturating_mul(number);
        let none = Self { fixed: 0, row: 0, rows: spec.rows(), entry: 0, entries };
        match spec.storage {
            StorageKind::Dense => match spec.rows() {
                Extent::Known(rows) => Self { fixed: rows.saturating_mul(row), ..none },
                _ => Self { row, ..none },
            },
            StorageKind::SelectedRows => Self { entry: row.saturating_add(index), ..none },
            StorageKind::Csr | StorageKind::Coo => match spec.rows() {
                Extent::Known(rows) => {
                    let fixed = rows.saturating_add(1).saturating_mul(index);
                    Self { fixed, entry: index + number, ..none }
                }
                _ => Self { fixed: index, row: index, entry: index + number, ..none },
            },
        }
    }

    /// Returns the size in bytes for `rows` rows and `entries` entries.
    pub fn bytes(&self, rows: usize, entries: usize) -> usize {
        let many = self.row.saturating_mul(rows).saturating_add(self.entry.saturating_mul(entries));
        self.fixed.saturating_add(many)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut terms = Vec::new();
        if self.fixed > 0 {
            terms.push(self.fixed.to_string());
        }
        if self.row > 0 {
            terms.push(format!("{} × {}", self.row, self.rows));
        }
        if self.entry > 0 {
            terms.push(format!("{} × {}", self.entry, self.entries));
        }
        if terms.is_empty() {
            terms.push("0".to_owned());
        }
        write!(f, "{} bytes", terms.join(" + "))
    }
}
