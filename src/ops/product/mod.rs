//! Products of matrices, and products of rows that hold matrices.

pub(super) mod int8;
#[macro_use]
pub(super) mod linear;
#[macro_use]
pub(super) mod matmul;
#[macro_use]
pub(super) mod row_matrix;
