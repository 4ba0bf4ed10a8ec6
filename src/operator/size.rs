//! How many bytes a variable takes, as a function of what only a run knows.

use std::fmt;

use super::extent::{Extent, Spec};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::StorageKind;

/// Most places that a csr or coo matrix has, with entries or without: its rows, if they are known, times its columns.
const MOST_PLACES: usize = 1 << 60;

impl Spec {
    /// Checks that no size that follows from the known dimensions is larger than can be counted. A dimension of 0 is left out,
    /// so that the width of a row is checked even where there are no rows.
    pub(crate) fn check_size(&self) -> Result<()> {
        // The height of selected rows takes nothing.
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

/// The bytes of a variable: so many, and so many for each row and for each entry that is stored.
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
    /// Whatever the rows.
    pub fixed: usize,
    /// For each row.
    pub row: usize,
    /// What counts the rows.
    pub rows: Extent,
    /// For each entry of a sparse matrix, or each of the selected rows.
    pub entry: usize,
    /// What counts them.
    pub entries: Extent,
}

impl Size {
    /// The size of a variable; `entries` counts what is stored of one that is not dense.
    pub fn of(spec: &Spec, entries: Extent) -> Self {
        let number = spec.dtype.size_of();
        let index = size_of::<i64>();
        // What a program says may be more than any memory has.
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

    /// The bytes of so many rows and entries.
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
