//! Operators on sparse variables, in the storages csr, coo (with the memory layout of csr) and selected rows.
//!
//! For sparse inputs, the builder appends an operator of this folder in place of the dense operator: see
//! [`crate::operator::Declaration::stands_for`].
//!
//! | file | what it holds |
//! |---|---|
//! | `convert.rs`, `copy.rs` | conversions to another storage; copies |
//! | `entrywise.rs`, `binary.rs` | functions of one number, and of two numbers; `meet.rs` pairs the rows of two operands |
//! | `reduce.rs` | sums and means |
//! | `linear.rs`, `dot.rs`, `transposed.rs`, `projection.rs` | products |
//! | `take.rs`, `retain.rs`, `columns.rs` | selection of rows or columns; `among.rs` finds the entries with certain columns |
//! | `twin.rs` | the wrapper of the operators that replace a dense operator with the same function |
//! | `samples.rs` | check cases |

mod among;
pub(in crate::ops) mod binary;
pub(in crate::ops) mod columns;
pub(in crate::ops) mod convert;
pub(in crate::ops) mod copy;
pub(in crate::ops) mod dot;
pub(in crate::ops) mod entrywise;
pub(in crate::ops) mod linear;
mod meet;
#[cfg(test)]
mod products_tests;
pub(in crate::ops) mod projection;
pub(in crate::ops) mod reduce;
pub(in crate::ops) mod retain;
mod samples;
pub(in crate::ops) mod take;
pub(in crate::ops) mod transposed;
pub(in crate::ops) mod twin;

operators! {
    [binary::OPERATORS, copy::OPERATORS, entrywise::OPERATORS, reduce::PER_ROW, reduce::WHOLE]
    columns::SparseConcat,
    columns::SparseSlice,
    convert::ToCsr,
    convert::ToDense,
    convert::ToSelectedRows,
    dot::Dot,
    dot::SparseMatmul,
    linear::SparseLinear,
    projection::RandomProjection,
    reduce::SumRows,
    retain::Retain,
    take::TakeRows,
    transposed::TransposedDot,
}
