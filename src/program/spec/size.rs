//! How many bytes a variable takes, as a function of what only a run knows.

use std::fmt;

use super::extent::{Extent, Spec};
use crate::tensor::StorageKind;

/// The bytes of a variable: so many, and so many for each row and for each entry that is stored.
///
/// ```
/// use unpadded::program::{Extent, Size, Spec};
/// use unpadded::tensor::{DType, StorageKind};
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
        let none = Self { fixed: 0, row: 0, rows: spec.rows(), entry: 0, entries };
        match spec.storage {
            StorageKind::Dense => match spec.rows() {
                Extent::Known(rows) => Self { fixed: rows * spec.width() * number, ..none },
                _ => Self { row: spec.width() * number, ..none },
            },
            StorageKind::SelectedRows => Self { entry: index + spec.width() * number, ..none },
            StorageKind::Csr | StorageKind::Coo => match spec.rows() {
                Extent::Known(rows) => Self { fixed: index * (rows + 1), entry: index + number, ..none },
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
