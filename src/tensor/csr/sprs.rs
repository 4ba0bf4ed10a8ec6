//! Conversions to and from the matrices of the crate `sprs`.

use sprs::CsMat;

use super::Csr;
use crate::error::{Error, Result};
use crate::tensor::{Dense, Element};

/// Converts a matrix of `sprs`, which is stored by rows (csr) or by columns (csc).
///
/// ```
/// use sprs::CsMat;
/// use unpadded::tensor::Csr;
/// let x: Csr = CsMat::<f32>::eye(3).try_into()?;
/// assert_eq!(CsMat::<f32>::try_from(x)?, CsMat::eye(3));
/// # Ok::<(), unpadded::Error>(())
/// ```
impl<T: Element> TryFrom<CsMat<T>> for Csr {
    type Error = Error;

    #[track_caller]
    fn try_from(matrix: CsMat<T>) -> Result<Self> {
        let by_columns = matrix.is_csc();
        let shape = if by_columns { [matrix.cols(), matrix.rows()] } else { [matrix.rows(), matrix.cols()] };
        let indptr = matrix.proper_indptr().iter().map(|&end| end as i64).collect();
        let (_, indices, values) = matrix.into_raw_storage();
        let values = Dense::from_vec(&[values.len()], values)?;
        let csr = Self::new(shape, indptr, indices.into_iter().map(|at| at as i64).collect(), values)?;
        if by_columns { csr.transpose() } else { Ok(csr) }
    }
}

/// Converts a matrix to a matrix of `sprs`. The result is stored by rows and is canonical.
impl<T: Element> TryFrom<Csr> for CsMat<T> {
    type Error = Error;

    #[track_caller]
    fn try_from(csr: Csr) -> Result<Self> {
        let [rows, columns] = csr.shape;
        let (indptr, indices, values) = csr.canonicalize()?.into_parts();
        let index = |list: Vec<i64>| list.into_iter().map(|at| at as usize).collect::<Vec<_>>();
        let values = values.as_slice::<T>()?.to_vec();
        match CsMat::try_new((rows, columns), index(indptr), index(indices), values) {
            Ok(matrix) => Ok(matrix),
            Err((.., error)) => {
                Err(Error::new("csr for sprs", "a matrix that `sprs` accepts", error.to_string()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn both_layouts_come_in() {
        let x = Csr::from_triples([2, 3], [(1, 2, 4.0f32), (0, 1, 7.0), (1, 0, 1.0)]).unwrap();
        let theirs = CsMat::<f32>::try_from(x.clone()).unwrap();
        assert_eq!(Dense::from(theirs.to_dense()), x.to_dense().unwrap());
        assert_eq!(Csr::try_from(theirs.to_csc()).unwrap(), x);
        assert_eq!(Csr::try_from(theirs).unwrap(), x);
        let twice = Csr::new([1, 2], vec![0, 3], vec![1, 0, 1], array![1i64, 2, 3]).unwrap();
        assert_eq!(CsMat::<i64>::try_from(twice.clone()).unwrap().to_dense(), array![[2i64, 4]]);
        assert!(CsMat::<f32>::try_from(twice).is_err());
        let part = CsMat::<f32>::eye(4).slice_outer(1..3).to_owned();
        assert_eq!(Csr::try_from(part).unwrap().indices(), [1, 2]);
    }
}
