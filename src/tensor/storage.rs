//! The four ways to store a tensor, as a closed list: forgetting one in a `match` does not compile.

use std::borrow::Cow;

use ndarray::{Array, Dimension};

use super::named::named;
use super::{Coo, Csr, DType, Dense, Element, SelectedRows};
use crate::error::{Error, Result};

/// A tensor in one of the four storages.
///
/// ```
/// use ndarray::array;
/// use unpadded::tensor::{SelectedRows, Storage, StorageKind};
/// let grad = Storage::from(SelectedRows::new(3, vec![1], array![[1.0f32, 2.0]])?);
/// assert_eq!((grad.kind(), grad.shape()), (StorageKind::SelectedRows, &[3, 2][..]));
/// assert_eq!(grad.to_dense()?.as_slice::<f32>()?, [0.0, 0.0, 1.0, 2.0, 0.0, 0.0]);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Storage {
    /// Every number.
    Dense(Dense),
    /// Some rows of a table; repeated ones add up.
    SelectedRows(SelectedRows),
    /// A sparse matrix by rows.
    Csr(Csr),
    /// A sparse tensor by coordinates.
    Coo(Coo),
}

/// Which of the four storages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StorageKind {
    /// Every number.
    #[default]
    Dense,
    /// Some rows of a table.
    SelectedRows,
    /// A sparse matrix by rows.
    Csr,
    /// A sparse tensor by coordinates.
    Coo,
}

named!(StorageKind, "storage", Dense = "dense", SelectedRows = "selected_rows", Csr = "csr", Coo = "coo",);

impl Storage {
    /// Which of the four it is.
    pub fn kind(&self) -> StorageKind {
        match self {
            Self::Dense(_) => StorageKind::Dense,
            Self::SelectedRows(_) => StorageKind::SelectedRows,
            Self::Csr(_) => StorageKind::Csr,
            Self::Coo(_) => StorageKind::Coo,
        }
    }

    /// The dtype of the values.
    pub fn dtype(&self) -> DType {
        match self {
            Self::Dense(x) => x.dtype(),
            Self::SelectedRows(x) => x.dtype(),
            Self::Csr(x) => x.dtype(),
            Self::Coo(x) => x.dtype(),
        }
    }

    /// The shape of the dense meaning.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Dense(x) => x.shape(),
            Self::SelectedRows(x) => x.shape(),
            Self::Csr(x) => x.shape(),
            Self::Coo(x) => x.shape(),
        }
    }

    /// The first extent of the shape, of selected rows the height; 1 for a single number without dimensions.
    pub fn rows(&self) -> usize {
        self.shape().first().copied().unwrap_or(1)
    }

    /// The dense meaning, borrowed if it is dense already.
    ///
    /// # Errors
    /// If it does not fit into memory.
    #[track_caller]
    pub fn to_dense(&self) -> Result<Cow<'_, Dense>> {
        match self {
            Self::Dense(x) => Ok(Cow::Borrowed(x)),
            Self::SelectedRows(x) => x.densify().map(Cow::Owned),
            Self::Csr(x) => x.to_dense().map(Cow::Owned),
            Self::Coo(x) => x.to_dense().map(Cow::Owned),
        }
    }

    /// The dense meaning, without a copy if it is dense already.
    ///
    /// # Errors
    /// If it does not fit into memory.
    #[track_caller]
    pub fn into_dense(self) -> Result<Dense> {
        match self {
            Self::Dense(x) => Ok(x),
            other => other.to_dense().map(Cow::into_owned),
        }
    }

    /// The dense tensor.
    ///
    /// # Errors
    /// If it is not dense: this never converts.
    #[track_caller]
    pub fn as_dense(&self) -> Result<&Dense> {
        match self {
            Self::Dense(x) => Ok(x),
            Self::SelectedRows(_) | Self::Csr(_) | Self::Coo(_) => Err(not(self.kind(), StorageKind::Dense)),
        }
    }

    /// The numbers that are stored, of dtype and layout as they are.
    pub(crate) fn numbers(&self) -> &Dense {
        match self {
            Self::Dense(x) => x,
            Self::SelectedRows(x) => x.value(),
            Self::Csr(x) => x.values(),
            Self::Coo(x) => x.values(),
        }
    }

    /// Refuses a number that is NaN or infinite; `what` says what the tensor is.
    ///
    /// # Errors
    /// With its index among the numbers that are stored, and what it is.
    pub(crate) fn check_finite(&self, what: &str) -> Result<()> {
        self.numbers().check_finite(what)
    }

    /// The dense tensor, to write.
    ///
    /// # Errors
    /// If it is not dense: this never converts.
    #[track_caller]
    pub fn as_dense_mut(&mut self) -> Result<&mut Dense> {
        let kind = self.kind();
        match self {
            Self::Dense(x) => Ok(x),
            Self::SelectedRows(_) | Self::Csr(_) | Self::Coo(_) => Err(not(kind, StorageKind::Dense)),
        }
    }

    /// The selected rows.
    ///
    /// # Errors
    /// If it is another storage: this never converts.
    #[track_caller]
    pub fn as_selected_rows(&self) -> Result<&SelectedRows> {
        match self {
            Self::SelectedRows(x) => Ok(x),
            Self::Dense(_) | Self::Csr(_) | Self::Coo(_) => Err(not(self.kind(), StorageKind::SelectedRows)),
        }
    }
}

#[track_caller]
fn not(kind: StorageKind, wanted: StorageKind) -> Error {
    Error::new("storage", wanted.name(), kind.name())
}

impl From<Dense> for Storage {
    fn from(x: Dense) -> Self {
        Self::Dense(x)
    }
}

impl From<SelectedRows> for Storage {
    fn from(x: SelectedRows) -> Self {
        Self::SelectedRows(x)
    }
}

impl From<Csr> for Storage {
    fn from(x: Csr) -> Self {
        Self::Csr(x)
    }
}

impl From<Coo> for Storage {
    fn from(x: Coo) -> Self {
        Self::Coo(x)
    }
}

impl<T: Element, D: Dimension> From<Array<T, D>> for Storage {
    fn from(array: Array<T, D>) -> Self {
        Self::Dense(array.into())
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn the_four_mean_the_same() {
        let dense = Dense::from(array![[0.0f32, 1.0], [0.0, 0.0], [2.0, 0.0]]);
        let all = [
            Storage::from(dense.clone()),
            SelectedRows::from_dense(&dense).unwrap().into(),
            Csr::from_dense(&dense).unwrap().into(),
            Coo::from_dense(&dense).unwrap().into(),
        ];
        for (storage, kind) in all.into_iter().zip(StorageKind::ALL) {
            assert_eq!((storage.kind(), storage.dtype(), storage.rows()), (kind, DType::F32, 3));
            assert_eq!(storage.shape(), dense.shape());
            assert_eq!(*storage.to_dense().unwrap(), dense);
            assert_eq!(storage.as_dense().is_ok(), kind == StorageKind::Dense);
            assert_eq!(storage.as_selected_rows().is_ok(), kind == StorageKind::SelectedRows);
            assert_eq!(storage.into_dense().unwrap(), dense);
            assert_eq!(kind.name().parse::<StorageKind>().unwrap(), kind);
        }
        assert!("sparse".parse::<StorageKind>().is_err());
    }
}
