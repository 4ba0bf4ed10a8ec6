//! Creates csr matrices: zeros, and matrices of rows, triples, bags of ids or arrays.

use ndarray::Array2;

use super::{Csr, pointers};
use crate::error::{AtCaller, Error, Result};
use crate::tensor::{DType, Dense, Element};

impl Csr {
    /// Makes a matrix without entries: every number is 0.
    ///
    /// ```
    /// use unpadded::DType;
    /// use unpadded::tensor::Csr;
    /// let nothing = Csr::zeros(DType::F32, [2, 1_000_000])?;
    /// assert_eq!((nothing.shape(), nothing.entries()), (&[2, 1_000_000][..], 0));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `indptr`, with an element per row, does not fit into memory.
    #[doc(alias = "empty")]
    #[track_caller]
    pub fn zeros(dtype: DType, shape: [usize; 2]) -> Result<Self> {
        let indptr = pointers(&[], shape[0]).at_caller()?;
        Ok(Self { shape, indptr, indices: Vec::new(), values: Dense::zeros(dtype, &[0])? })
    }

    /// Makes a matrix from triples (row, column, value), in any order. Values with equal positions are added. The
    /// resulting matrix is canonical.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let counts = Csr::from_triples([2, 3], [(1, 2, 1.0f32), (0, 1, 5.0), (1, 2, 2.0)])?;
    /// assert_eq!(counts.to_dense()?, array![[0.0f32, 5.0, 0.0], [0.0, 0.0, 3.0]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a row or a column is negative or not less than its extent; the message has the index of the triple.
    /// Also fails if `indptr` does not fit into memory.
    #[doc(alias = "coo_matrix")]
    #[track_caller]
    pub fn from_triples<T: Element>(
        shape: [usize; 2],
        triples: impl IntoIterator<Item = (i64, i64, T)>,
    ) -> Result<Self> {
        let (mut places, mut values) = (Vec::new(), Vec::new());
        for (i, (row, column, value)) in triples.into_iter().enumerate() {
            for (at, extent, name) in [(row, shape[0], "row"), (column, shape[1], "column")] {
                if usize::try_from(at).map_or(true, |at| at >= extent) {
                    let expected = format!("0 or more and less than {extent}, the number of {name}s");
                    return Err(Error::new(format!("{name} of triple {i}"), expected, at.to_string()));
                }
            }
            places.push((row, column));
            values.push(value);
        }
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|&i| places[i]);
        let values = Dense::from_vec(&[values.len()], values)?;
        let (values, heads) = values.sum_runs(&order, &|a, b| places[a] == places[b]).at_caller()?;
        let rows: Vec<usize> = heads.iter().map(|&i| places[i].0 as usize).collect();
        let indices = heads.iter().map(|&i| places[i].1).collect();
        Ok(Self { shape, indptr: pointers(&rows, shape[0]).at_caller()?, indices, values })
    }

    /// Makes a matrix from one list of entries (column, value) per row. The entries are stored in the listed order;
    /// values of a repeated column count as their sum.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let x = Csr::from_rows(3, [vec![(2, 1i64)], vec![], vec![(0, 4), (1, 5)]])?;
    /// assert_eq!(x.to_dense()?, array![[0i64, 0, 1], [0, 0, 0], [4, 5, 0]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a column is negative or not less than the number of columns.
    #[track_caller]
    pub fn from_rows<T: Element, R: IntoIterator<Item = (i64, T)>>(
        columns: usize,
        rows: impl IntoIterator<Item = R>,
    ) -> Result<Self> {
        let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in rows {
            for (column, value) in row {
                indices.push(column);
                values.push(value);
            }
            indptr.push(indices.len() as i64);
        }
        let values = Dense::from_vec(&[values.len()], values)?;
        Self::new([indptr.len() - 1, columns], indptr, indices, values)
    }

    /// Makes an `f32` matrix from bags of words: row *b*, column *i* has the number of times that id *i* occurs in bag
    /// *b*. [`Vocabulary::bags`](crate::data::Vocabulary::bags) makes bags from tokens.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::tensor::Csr;
    /// let bags = Csr::from_bags(&[vec![3, 0, 3], vec![]], 4)?;
    /// assert_eq!(bags.to_dense()?, array![[1.0f32, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0]].into());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if an id is negative or not less than `columns`. The message has the index of the bag and the position of
    /// the id in the bag.
    #[doc(alias = "CountVectorizer")]
    #[track_caller]
    pub fn from_bags<B: AsRef<[i64]>>(bags: &[B], columns: usize) -> Result<Self> {
        let (mut indptr, mut indices, mut counts) = (vec![0], Vec::new(), Vec::new());
        let mut sorted = Vec::new();
        for (bag, ids) in bags.iter().enumerate() {
            let ids = ids.as_ref();
            if let Some(index) =
                ids.iter().position(|&id| usize::try_from(id).map_or(true, |id| id >= columns))
            {
                let what = format!("id at place {index} of bag {bag}");
                let expected = format!("0 or more and less than {columns}, the number of columns");
                return Err(Error::new(what, expected, ids[index].to_string()));
            }
            sorted.clear();
            sorted.extend_from_slice(ids);
            sorted.sort_unstable();
            for run in sorted.chunk_by(|a, b| a == b) {
                indices.push(run[0]);
                counts.push(run.len() as f32);
            }
            indptr.push(indices.len() as i64);
        }
        let values = Dense::from_vec(&[counts.len()], counts)?;
        Ok(Self { shape: [bags.len(), columns], indptr, indices, values })
    }
}

/// Converts an ndarray array; only numbers that are not 0 become entries.
///
/// ```
/// use ndarray::{Array2, array};
/// use unpadded::tensor::Csr;
/// let x = Csr::try_from(array![[0.0f32, 2.0], [0.0, 0.0]])?;
/// assert_eq!((x.entries(), x.get::<f32>(0, 1)?), (1, 2.0));
/// assert_eq!(Array2::<f32>::try_from(x)?, array![[0.0, 2.0], [0.0, 0.0]]);
/// # Ok::<(), unpadded::Error>(())
/// ```
impl<T: Element> TryFrom<Array2<T>> for Csr {
    type Error = Error;

    #[track_caller]
    fn try_from(array: Array2<T>) -> Result<Self> {
        Self::from_dense(&array.into())
    }
}

impl<T: Element> TryFrom<Csr> for Array2<T> {
    type Error = Error;

    #[track_caller]
    fn try_from(csr: Csr) -> Result<Self> {
        csr.to_dense()?.try_into()
    }
}
