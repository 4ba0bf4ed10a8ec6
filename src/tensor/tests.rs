//! Tests of sparse tensors: comparison with dense tensors for random entries, error messages, and damaged parts.

mod damage;
mod laws;
mod messages;

use ndarray::Array2;

use super::*;

/// The row, the column and the value of an entry. A list of entries may have any order, and may repeat positions.
type Triple = (usize, usize, i8);

/// Makes a csr matrix that stores the entries of each row in the listed order.
fn csr(shape: [usize; 2], triples: &[Triple], dtype: DType) -> Csr {
    let mut rows = vec![Vec::new(); shape[0]];
    for &(row, column, value) in triples.iter().filter(|_| shape[0] * shape[1] > 0) {
        rows[row % shape[0]].push(((column % shape[1]) as i64, f64::from(value)));
    }
    let (indptr, indices, values) = Csr::from_rows(shape[1], rows).unwrap().into_parts();
    Csr::new(shape, indptr, indices, values.cast(dtype)).unwrap()
}

/// Converts the numbers of a tensor of any dtype to `f64`.
fn wide(dense: &Dense) -> Array2<f64> {
    Array2::try_from(dense.cast(DType::F64)).unwrap()
}
