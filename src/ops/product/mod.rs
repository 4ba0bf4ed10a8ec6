//! Products of matrices, and products of rows that hold matrices.

pub(super) mod int8;
pub(super) mod linear;
pub(super) mod matmul;
pub(super) mod row_matrix;

operators! {
    int8::Int8Linear,
    linear::Linear,
    matmul::Matmul,
    row_matrix::Matvec,
    row_matrix::Outer,
}
