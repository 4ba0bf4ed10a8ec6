//! Variables, the values that operators read and write: a variable is a tensor with the LoD of its rows.

use std::ops::Range;
use std::sync::Arc;

use ndarray::{Array, ArrayD, Dimension};

use super::{DType, Dense, Element, Storage};
use crate::error::{AtCaller, Error, Result};
use crate::lod::Lod;

/// A tensor and, if the rows of the tensor are grouped into sequences, the [`Lod`] of the rows.
///
/// The constructors check that the tensor has as many rows as the LoD.
///
/// ```
/// use unpadded::Variable;
/// let words = Variable::from_sequences(&[vec![7i64, 8, 9], vec![], vec![7]])?;
/// assert_eq!((words.rows(), words.batch_size()), (4, 3));
/// let last = words.slice_sequences(1..3)?;
/// assert_eq!(last.lod().map(|lod| lod.to_string()), Some("[[0, 1]]".into()));
/// assert_eq!(last.into_array::<i64>()?.into_raw_vec_and_offset().0, [7]);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    storage: Storage,
    lod: Option<Arc<Lod>>,
}

impl Variable {
    /// Makes a variable from a tensor and the LoD of its rows (`None` if the rows are not grouped into sequences).
    ///
    /// # Errors
    /// Fails if the last offset of the LoD is not the tensor's number of rows.
    #[track_caller]
    pub fn new(storage: impl Into<Storage>, lod: Option<Arc<Lod>>) -> Result<Self> {
        let storage = storage.into();
        if let Some(lod) = &lod {
            lod.check_rows(storage.rows())?;
        }
        Ok(Self { storage, lod })
    }

    /// Makes a variable without a LoD, from a dense tensor: an ndarray array or a [`Dense`].
    pub fn dense(array: impl Into<Dense>) -> Self {
        Self { storage: Storage::Dense(array.into()), lod: None }
    }

    /// Makes a variable whose rows are grouped into sequences, from an ndarray array or a tensor of any storage.
    ///
    /// ```
    /// use unpadded::tensor::Csr;
    /// use unpadded::{Lod, Variable};
    /// let bags = Csr::from_bags(&[vec![3, 0], vec![2, 2], vec![]], 4)?; // of three sentences
    /// let documents = Variable::sequences(bags, Lod::from_lengths1(&[2, 1])?)?;
    /// assert_eq!(documents.slice_sequences(0..1)?.storage().as_csr()?.shape(), [2, 4]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the last offset of the LoD is not the tensor's number of rows.
    #[track_caller]
    pub fn sequences(storage: impl Into<Storage>, lod: Arc<Lod>) -> Result<Self> {
        Self::new(storage, Some(lod))
    }

    /// Makes a ragged batch of sequences, such as the ids of sentences: a tensor of shape `[rows]` whose LoD has one
    /// level.
    ///
    /// # Errors
    /// Fails if the sum of the lengths overflows, which is impossible for sequences in memory.
    #[doc(alias = "ragged")]
    #[track_caller]
    pub fn from_sequences<T: Element>(sequences: &[Vec<T>]) -> Result<Self> {
        let lengths: Vec<usize> = sequences.iter().map(Vec::len).collect();
        Self::flat(sequences.concat(), Lod::from_lengths1(&lengths)?).at_caller()
    }

    /// Makes a batch of one sequence without a copy, for example to predict for the ids of one text. The result is a
    /// tensor of shape `[rows]` whose LoD has one level.
    ///
    /// # Errors
    /// Never fails for a sequence in memory.
    #[track_caller]
    pub fn from_sequence<T: Element>(sequence: Vec<T>) -> Result<Self> {
        let lod = Lod::from_lengths1(&[sequence.len()])?;
        Self::flat(sequence, lod).at_caller()
    }

    /// Makes a ragged batch of groups of sequences, such as documents of sentences: a tensor of shape `[rows]` whose
    /// LoD has two levels.
    ///
    /// # Errors
    /// Fails if the sum of the lengths overflows, which is impossible for sequences in memory.
    #[track_caller]
    pub fn from_nested<T: Element>(groups: &[Vec<Vec<T>>]) -> Result<Self> {
        let outer = groups.iter().map(Vec::len).collect();
        let inner = groups.iter().flatten().map(Vec::len).collect();
        let numbers = groups.iter().flatten().flatten().copied().collect();
        Self::flat(numbers, Lod::from_lengths(&[outer, inner])?).at_caller()
    }

    /// Returns the tensor.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Returns the LoD of the rows; `None` if the rows are not grouped into sequences.
    pub fn lod(&self) -> Option<&Arc<Lod>> {
        self.lod.as_ref()
    }

    /// Returns the parts of the variable: the tensor, and the LoD of the rows (`None` if the rows are not grouped into
    /// sequences).
    pub fn into_parts(self) -> (Storage, Option<Arc<Lod>>) {
        (self.storage, self.lod)
    }

    /// Replaces the LoD of the rows; `None` removes the LoD.
    ///
    /// # Errors
    /// Fails if the last offset of the LoD is not the tensor's number of rows.
    #[doc(alias = "lod_reset")]
    #[track_caller]
    pub fn with_lod(self, lod: Option<Arc<Lod>>) -> Result<Self> {
        Self::new(self.storage, lod)
    }

    /// Returns the dtype of the values.
    pub fn dtype(&self) -> DType {
        self.storage.dtype()
    }

    /// Returns the shape that the tensor has as a dense tensor.
    pub fn shape(&self) -> &[usize] {
        self.storage.shape()
    }

    /// Returns the number of rows: the first extent of the shape; 1 for a single number without dimensions.
    pub fn rows(&self) -> usize {
        self.storage.rows()
    }

    /// Returns the size in bytes of the variable: the numbers, the indices of a sparse tensor, and the LoD offsets.
    pub(crate) fn bytes(&self) -> usize {
        let (number, index) = (self.dtype().size_of(), size_of::<i64>());
        let width = || self.shape().iter().skip(1).product::<usize>();
        let values = match &self.storage {
            Storage::Dense(dense) => dense.len() * number,
            Storage::SelectedRows(rows) => rows.row_ids().len() * (index + width() * number),
            Storage::Csr(csr) => csr.bytes(),
            Storage::Coo(coo) => coo.entries() * (coo.shape().len() * index + number),
        };
        let levels = std::iter::successors(self.lod.as_deref(), |lod| lod.upper().map(|lod| &**lod));
        values + levels.map(|lod| size_of_val(lod.offsets())).sum::<usize>()
    }

    /// Returns the batch size: the number of sequences of the top LoD level; without a LoD, the number of rows.
    pub fn batch_size(&self) -> usize {
        self.lod.as_ref().map_or_else(|| self.rows(), |lod| lod.sequences())
    }

    /// Borrows the numbers as a slice, in row-major order.
    ///
    /// # Errors
    /// Fails if the tensor is not dense, or `T` is not the Rust type of the tensor's dtype.
    #[track_caller]
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.storage.as_dense()?.as_slice()
    }

    /// Borrows the numbers as a mutable slice, in row-major order.
    ///
    /// # Errors
    /// Fails if the tensor is not dense, or `T` is not the Rust type of the tensor's dtype.
    #[track_caller]
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        self.storage.as_dense_mut()?.as_mut_slice()
    }

    /// Converts a dense tensor to an ndarray array, without a copy.
    ///
    /// # Errors
    /// Fails if the tensor is not dense, or `T` is not the Rust type of the tensor's dtype.
    #[track_caller]
    pub fn into_array<T: Element>(self) -> Result<ArrayD<T>> {
        self.storage.as_dense()?;
        self.storage.into_dense()?.into_array()
    }

    /// Slices a batch: returns the top-level sequences in a range, with their rows. Without a LoD, returns the rows in
    /// the range.
    ///
    /// # Errors
    /// Fails if the range ends before it starts or beyond the last sequence. Also fails for selected rows, because
    /// they are rows of a table and not of a batch.
    #[track_caller]
    pub fn slice_sequences(&self, part: Range<usize>) -> Result<Self> {
        match &self.lod {
            None => Self::new(self.storage.slice_rows(part)?, None),
            Some(lod) => {
                let rows = lod.row_range(part.clone())?;
                Self::new(self.storage.slice_rows(rows)?, Some(lod.slice(part)?))
            }
        }
    }

    /// Returns the listed top-level sequences, in the listed order, with their rows. Without a LoD, returns the listed
    /// rows.
    ///
    /// # Errors
    /// Fails if a listed index is not less than the batch size. Also fails for selected rows, because they are rows of
    /// a table and not of a batch.
    #[track_caller]
    pub fn take_sequences(&self, sequences: &[usize]) -> Result<Self> {
        let (rows, lod) = match &self.lod {
            None => (sequences.to_vec(), None),
            Some(lod) => (lod.take_rows(sequences)?, Some(lod.take(sequences)?)),
        };
        let storage = match &self.storage {
            Storage::Dense(dense) => dense.gather_rows(&rows)?.into(),
            Storage::Csr(csr) => csr.take(&rows)?.into(),
            Storage::Coo(coo) => coo.take(&rows)?.into(),
            Storage::SelectedRows(_) => self.storage.slice_rows(0..0)?,
        };
        Self::new(storage, lod)
    }

    /// Concatenates batches: the rows of the tensors, and the sequences of each LoD level.
    ///
    /// # Errors
    /// Fails if `parts` is empty, or if only some of the batches have a LoD. Also fails if batches differ in storage,
    /// in dtype, in the shape of a row or in the number of levels. Also fails for selected rows.
    #[doc(alias = "concat")]
    #[track_caller]
    pub fn merge(parts: &[Variable]) -> Result<Self> {
        let storages: Vec<&Storage> = parts.iter().map(|part| &part.storage).collect();
        let lods: Vec<Arc<Lod>> = parts.iter().filter_map(|part| part.lod.clone()).collect();
        if !lods.is_empty() && lods.len() != parts.len() {
            let got = format!("{} of {} with LoD", lods.len(), parts.len());
            return Err(Error::new("variables to merge", "all with LoD or none", got));
        }
        let lod = if lods.is_empty() { None } else { Some(Lod::merge(&lods)?) };
        Self::new(Storage::concat_rows(&storages)?, lod)
    }

    fn flat<T: Element>(numbers: Vec<T>, lod: Arc<Lod>) -> Result<Self> {
        Self::new(Dense::from_vec(&[numbers.len()], numbers)?, Some(lod))
    }
}

impl<T: Element, D: Dimension> From<Array<T, D>> for Variable {
    fn from(array: Array<T, D>) -> Self {
        Self::dense(array)
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::tensor::{Csr, SelectedRows};

    #[test]
    fn rows_must_fit_the_offsets() {
        let lod = Lod::from_lengths1(&[2, 1]).unwrap();
        assert!(Variable::sequences(array![[1.0f32], [2.0], [3.0]], lod.clone()).is_ok());
        let message = Variable::sequences(array![1.0f32, 2.0], lod).unwrap_err().to_string();
        assert_eq!(message, "number of rows: expected 3, the last offset of its LoD, got 2");
    }

    #[test]
    fn nested_batches_are_cut_and_put_together() {
        let batch = Variable::from_nested(&[vec![vec![1, 2], vec![]], vec![], vec![vec![3]]]).unwrap();
        assert_eq!(batch.lod().unwrap().to_string(), "[[2, 0, 1], [2, 0, 1]]");
        let parts: Vec<_> =
            [0..1, 1..1, 1..3].map(|part| batch.slice_sequences(part).unwrap()).into_iter().collect();
        assert_eq!(parts[0].as_slice::<i32>().unwrap(), [1, 2]);
        assert_eq!(Variable::merge(&parts).unwrap(), batch);
        assert!(batch.slice_sequences(2..4).is_err());
        let flat = batch.clone().with_lod(None).unwrap();
        assert!(Variable::merge(&[batch, flat.clone()]).is_err());
        assert_eq!(flat.slice_sequences(1..3).unwrap(), array![2, 3].into());
        assert!(Variable::merge(&[]).is_err());
    }

    #[test]
    fn sparse_storage_is_never_converted_in_silence() {
        let rows = SelectedRows::new(3, vec![1], array![[1.0f32]]).unwrap();
        let mut sparse = Variable::new(rows, None).unwrap();
        assert_eq!((sparse.rows(), sparse.batch_size(), sparse.dtype()), (3, 3, DType::F32));
        assert!(sparse.as_mut_slice::<f32>().is_err());
        let message = sparse.slice_sequences(0..1).unwrap_err().to_string();
        assert_eq!(message, "rows of a batch to slice: expected dense, csr or coo, got selected_rows");
        assert!(Variable::merge(&[sparse.clone()]).is_err());
        let message = sparse.into_array::<f32>().unwrap_err().to_string();
        assert_eq!(message, "storage: expected dense, got selected_rows");
    }

    #[test]
    fn sparse_batches_are_cut_and_put_together() {
        let bags = Csr::from_bags(&[vec![3, 0], vec![], vec![2, 2]], 4).unwrap();
        let lod = Lod::from_lengths1(&[1, 0, 2]).unwrap();
        for storage in [Storage::from(bags.to_coo().unwrap()), bags.into()] {
            let batch = Variable::sequences(storage, lod.clone()).unwrap();
            assert_eq!((batch.rows(), batch.batch_size()), (3, 3));
            let parts = [0..1, 1..1, 1..3].map(|part| batch.slice_sequences(part).unwrap());
            assert_eq!(parts.each_ref().map(Variable::rows), [1, 0, 2]);
            assert_eq!(Variable::merge(&parts).unwrap(), batch);
            let dense = Variable::sequences(batch.storage().to_dense().unwrap().into_owned(), lod.clone());
            assert!(Variable::merge(&[batch.clone(), dense.unwrap()]).is_err());
            assert!(batch.slice_sequences(2..4).is_err());
            assert!(Variable::new(batch.into_parts().0, Some(Lod::from_lengths1(&[2]).unwrap())).is_err());
        }
    }

    #[test]
    fn writing_does_not_move_the_offsets() {
        let mut x = Variable::from_sequences(&[vec![1.0f32], vec![2.0, 3.0]]).unwrap();
        x.as_mut_slice::<f32>().unwrap()[0] = 9.0;
        assert_eq!(x.as_slice::<f32>().unwrap(), [9.0, 2.0, 3.0]);
        assert_eq!(x.into_array::<f32>().unwrap().shape(), [3]);
        assert_eq!(Variable::from_sequences::<i64>(&[]).unwrap().batch_size(), 0);
    }
}
