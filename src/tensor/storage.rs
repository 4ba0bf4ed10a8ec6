//! The four storages of a tensor, as an enum. The enum is exhaustive: a `match` that omits a storage does not compile.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use ndarray::{Array, Dimension};

use super::named::{named, stored_by_name};
use super::{Coo, Csr, DType, Dense, Element, SelectedRows};
use crate::error::{AtCaller, Error, Result};

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
#[non_exhaustive]
pub enum Storage {
    /// A dense tensor, which stores every number.
    Dense(Dense),
    /// Selected rows: some rows of a table. If several stored rows have the same number, the row of the table is their
    /// sum.
    SelectedRows(SelectedRows),
    /// Csr: a sparse matrix that is stored by rows.
    Csr(Csr),
    /// Coo: a sparse tensor that is stored by coordinates.
    Coo(Coo),
}

/// The kind of a storage, without the tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum StorageKind {
    /// Dense: every number is stored.
    #[default]
    Dense,
    /// Selected rows: some rows of a table.
    SelectedRows,
    /// Csr: a sparse matrix that is stored by rows.
    Csr,
    /// Coo: a sparse tensor that is stored by coordinates.
    Coo,
}

named!(StorageKind, "storage", Dense = "dense", SelectedRows = "selected_rows", Csr = "csr", Coo = "coo",);
stored_by_name!(StorageKind);

impl Storage {
    /// Returns the kind of this storage.
    pub fn kind(&self) -> StorageKind {
        match self {
            Self::Dense(_) => StorageKind::Dense,
            Self::SelectedRows(_) => StorageKind::SelectedRows,
            Self::Csr(_) => StorageKind::Csr,
            Self::Coo(_) => StorageKind::Coo,
        }
    }

    /// Returns the dtype of the values.
    pub fn dtype(&self) -> DType {
        match self {
            Self::Dense(x) => x.dtype(),
            Self::SelectedRows(x) => x.dtype(),
            Self::Csr(x) => x.dtype(),
            Self::Coo(x) => x.dtype(),
        }
    }

    /// Returns the shape that the tensor has as a dense tensor.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::Dense(x) => x.shape(),
            Self::SelectedRows(x) => x.shape(),
            Self::Csr(x) => x.shape(),
            Self::Coo(x) => x.shape(),
        }
    }

    /// Returns the number of rows, which is the first extent of the shape; for selected rows, this is the height. The
    /// result is 1 for a single number without dimensions.
    pub(crate) fn rows(&self) -> usize {
        self.shape().first().copied().unwrap_or(1)
    }

    /// Returns the tensor as a dense tensor, borrowed if the tensor is dense already.
    ///
    /// # Errors
    /// Fails if the dense tensor does not fit into memory.
    #[track_caller]
    pub fn to_dense(&self) -> Result<Cow<'_, Dense>> {
        match self {
            Self::Dense(x) => Ok(Cow::Borrowed(x)),
            Self::SelectedRows(x) => x.densify().map(Cow::Owned),
            Self::Csr(x) => x.to_dense().map(Cow::Owned),
            Self::Coo(x) => x.to_dense().map(Cow::Owned),
        }
    }

    /// Converts the tensor to a dense tensor, without a copy if it is dense already.
    ///
    /// # Errors
    /// Fails if the dense tensor does not fit into memory.
    #[track_caller]
    pub fn into_dense(self) -> Result<Dense> {
        match self {
            Self::Dense(x) => Ok(x),
            other => other.to_dense().map(Cow::into_owned),
        }
    }

    /// Converts the tensor to the storage `kind`; a tensor that has this storage already is returned unchanged.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::{Storage, StorageKind};
    /// let dense = Storage::from(array![[0.0f32, 1.0], [0.0, 0.0]]);
    /// let rows = dense.clone().convert(StorageKind::SelectedRows)?;
    /// assert_eq!(rows.as_selected_rows()?.row_ids(), [0]);
    /// assert_eq!(rows.convert(StorageKind::Csr)?.convert(StorageKind::Dense)?, dense);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the storage does not support the rank of the tensor, or if the result does not fit into memory. Csr
    /// supports only two dimensions; coo and selected rows need at least one dimension.
    #[track_caller]
    pub fn convert(self, kind: StorageKind) -> Result<Self> {
        match kind {
            StorageKind::Dense => self.into_dense().map(Self::Dense),
            StorageKind::SelectedRows => self.to_selected_rows().map(|x| Self::SelectedRows(x.into_owned())),
            StorageKind::Csr => self.to_csr().map(|x| Self::Csr(x.into_owned())),
            StorageKind::Coo => self.to_coo().map(|x| Self::Coo(x.into_owned())),
        }
    }

    /// Returns the tensor as csr, borrowed if the tensor is csr already.
    ///
    /// # Errors
    /// Fails if the rank of the tensor is not 2, or if the row offsets of the result do not fit into memory.
    #[track_caller]
    pub fn to_csr(&self) -> Result<Cow<'_, Csr>> {
        match self {
            Self::Dense(x) => Csr::from_dense(x).map(Cow::Owned),
            Self::SelectedRows(x) => x.to_csr().map(Cow::Owned),
            Self::Csr(x) => Ok(Cow::Borrowed(x)),
            Self::Coo(x) => x.to_csr().map(Cow::Owned),
        }
    }

    /// Returns the tensor as coo, borrowed if the tensor is coo already.
    ///
    /// # Errors
    /// Fails if the tensor has no dimensions.
    #[track_caller]
    pub fn to_coo(&self) -> Result<Cow<'_, Coo>> {
        match self {
            Self::Dense(x) => Coo::from_dense(x).map(Cow::Owned),
            Self::SelectedRows(x) => x.to_coo().map(Cow::Owned),
            Self::Csr(x) => x.to_coo().map(Cow::Owned),
            Self::Coo(x) => Ok(Cow::Borrowed(x)),
        }
    }

    /// Returns the tensor as selected rows, borrowed if the tensor has this storage already.
    ///
    /// # Errors
    /// Fails if the tensor has no dimensions, or if the stored rows do not fit into memory.
    #[track_caller]
    pub fn to_selected_rows(&self) -> Result<Cow<'_, SelectedRows>> {
        match self {
            Self::Dense(x) => SelectedRows::from_dense(x).map(Cow::Owned),
            Self::SelectedRows(x) => Ok(Cow::Borrowed(x)),
            Self::Csr(x) => x.to_selected_rows().map(Cow::Owned),
            Self::Coo(x) => x.to_selected_rows().map(Cow::Owned),
        }
    }

    /// Copies the rows in a range; the result has the same storage.
    ///
    /// # Errors
    /// Fails if the range ends before it starts or beyond the last row, or if the tensor has no dimensions. Also fails
    /// for selected rows, because they are rows of a table and not of a batch.
    #[track_caller]
    pub fn slice_rows(&self, part: Range<usize>) -> Result<Self> {
        match self {
            Self::Dense(x) => x.slice_rows(part).map(Self::Dense),
            Self::Csr(x) => x.slice_rows(part).map(Self::Csr),
            Self::Coo(x) => x.slice_rows(part).map(Self::Coo),
            Self::SelectedRows(_) => Err(no_batch("slice", self.kind())),
        }
    }

    /// Concatenates the rows of tensors that have the same storage.
    ///
    /// # Errors
    /// Fails if `parts` is empty, or if tensors differ in storage, in dtype or in the shape of a row. Also fails for
    /// selected rows.
    #[track_caller]
    pub fn concat_rows(parts: &[&Storage]) -> Result<Self> {
        let Some(first) = parts.first() else {
            return Err(Error::new("tensors to concatenate", "at least one", "none"));
        };
        match first {
            Self::Dense(_) => Dense::concat_rows(&each(parts, Self::as_dense).at_caller()?).map(Self::Dense),
            Self::Csr(_) => Csr::concat_rows(&each(parts, Self::as_csr).at_caller()?).map(Self::Csr),
            Self::Coo(_) => Coo::concat_rows(&each(parts, Self::as_coo).at_caller()?).map(Self::Coo),
            Self::SelectedRows(_) => Err(no_batch("concatenate", first.kind())),
        }
    }

    /// Borrows the dense tensor.
    ///
    /// # Errors
    /// Fails if the tensor is not dense; the tensor is not converted.
    #[track_caller]
    pub fn as_dense(&self) -> Result<&Dense> {
        match self {
            Self::Dense(x) => Ok(x),
            Self::SelectedRows(_) | Self::Csr(_) | Self::Coo(_) => Err(not(self.kind(), StorageKind::Dense)),
        }
    }

    /// Returns the tensor of the stored numbers, without a conversion.
    pub(crate) fn numbers(&self) -> &Dense {
        match self {
            Self::Dense(x) => x,
            Self::SelectedRows(x) => x.value(),
            Self::Csr(x) => x.values(),
            Self::Coo(x) => x.values(),
        }
    }

    /// Checks that no stored number is NaN or infinite; `what` is the name of the tensor in the message.
    ///
    /// # Errors
    /// Fails if a stored number is NaN or infinite. The message has the index and the value of the number.
    pub(crate) fn check_finite(&self, what: &str) -> Result<()> {
        self.numbers().check_finite(what)
    }

    /// Borrows the dense tensor mutably.
    ///
    /// # Errors
    /// Fails if the tensor is not dense; the tensor is not converted.
    #[track_caller]
    pub fn as_dense_mut(&mut self) -> Result<&mut Dense> {
        let kind = self.kind();
        match self {
            Self::Dense(x) => Ok(x),
            Self::SelectedRows(_) | Self::Csr(_) | Self::Coo(_) => Err(not(kind, StorageKind::Dense)),
        }
    }

    /// Borrows the selected rows.
    ///
    /// # Errors
    /// Fails if the tensor has another storage; the tensor is not converted.
    #[track_caller]
    pub fn as_selected_rows(&self) -> Result<&SelectedRows> {
        match self {
            Self::SelectedRows(x) => Ok(x),
            Self::Dense(_) | Self::Csr(_) | Self::Coo(_) => Err(not(self.kind(), StorageKind::SelectedRows)),
        }
    }

    /// Borrows the csr matrix.
    ///
    /// # Errors
    /// Fails if the tensor has another storage; the tensor is not converted.
    #[track_caller]
    pub fn as_csr(&self) -> Result<&Csr> {
        match self {
            Self::Csr(x) => Ok(x),
            Self::Dense(_) | Self::SelectedRows(_) | Self::Coo(_) => Err(not(self.kind(), StorageKind::Csr)),
        }
    }

    /// Borrows the coo tensor.
    ///
    /// # Errors
    /// Fails if the tensor has another storage; the tensor is not converted.
    #[track_caller]
    pub fn as_coo(&self) -> Result<&Coo> {
        match self {
            Self::Coo(x) => Ok(x),
            Self::Dense(_) | Self::SelectedRows(_) | Self::Csr(_) => Err(not(self.kind(), StorageKind::Coo)),
        }
    }
}

/// Applies a function such as [`Storage::as_csr`] to each tensor.
fn each<'a, T>(parts: &[&'a Storage], one: fn(&'a Storage) -> Result<&'a T>) -> Result<Vec<&'a T>> {
    parts.iter().map(|part| one(part)).collect()
}

#[track_caller]
fn no_batch(verb: &str, kind: StorageKind) -> Error {
    Error::new(format!("rows of a batch to {verb}"), "dense, csr or coo", kind.name())
}

/// Shows the numbers of a dense tensor as ndarray does, and the first and last entries of a sparse tensor.
impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dense(x) => write!(f, "dense {} {:?}\n{x}", x.dtype(), x.shape()),
            Self::SelectedRows(x) => x.fmt(f),
            Self::Csr(x) => x.fmt(f),
            Self::Coo(x) => x.fmt(f),
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

/// Adds the row numbers that a value selects to `to`: the numbers of a dense value, or the column indices of a sparse matrix.
/// Returns `false` for a value that selects no rows.
pub(crate) fn add_row_numbers(value: &Storage, to: &mut Vec<i64>) -> bool {
    match value {
        Storage::Dense(ids) => {
            ids.cast(DType::I64).as_slice::<i64>().map(|ids| to.extend_from_slice(ids)).is_ok()
        }
        Storage::Csr(matrix) => {
            to.extend_from_slice(matrix.indices());
            true
        }
        Storage::Coo(_) | Storage::SelectedRows(_) => false,
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
            assert_eq!(storage.as_csr().is_ok(), kind == StorageKind::Csr);
            assert_eq!(storage.as_coo().is_ok(), kind == StorageKind::Coo);
            for other in StorageKind::ALL {
                let converted = storage.clone().convert(other).unwrap();
                assert_eq!(converted.kind(), other);
                assert_eq!(*converted.to_dense().unwrap(), dense);
            }
            assert!(storage.to_string().starts_with(&format!("{kind} f32 [3, 2]").replace('_', " ")));
            assert_eq!(storage.into_dense().unwrap(), dense);
            assert_eq!(kind.name().parse::<StorageKind>().unwrap(), kind);
        }
        assert!("sparse".parse::<StorageKind>().is_err());
    }
}
