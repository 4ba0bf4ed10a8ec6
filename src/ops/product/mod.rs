//! Products of matrices, and of rows that are matrices.

#[macro_use]
pub(super) mod linear;
#[macro_use]
pub(super) mod matmul;
#[macro_use]
pub(super) mod row_matrix;
