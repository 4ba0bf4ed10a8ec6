//! Tensors, which are stored in one of four storages, and variables: a variable is a tensor with the nested offsets of
//! its sequences.
//!
//! [`Dense`] is an ndarray array of one of the [`DType`]s; [`SelectedRows`], [`Csr`] and [`Coo`] are sparse and hold
//! their numbers in a [`Dense`]. [`Storage`] is an enum of these four storages; a [`Variable`] is a [`Storage`] with
//! the [`Lod`](crate::Lod) of its rows.

mod convert;
mod coo;
mod csr;
mod dense;
mod display;
pub(crate) mod dtype;
pub(crate) mod floats;
mod meeting;
pub(crate) mod named;
mod selected_rows;
mod serial;
mod storage;
pub(crate) mod variable;

pub use coo::Coo;
pub use csr::{Csr, Dot};
pub use dense::Dense;
pub(crate) use dense::elements;
pub use dtype::Element;
pub(crate) use dtype::{DType, Number, with_element};
pub(crate) use floats::FloatsMut;
pub use selected_rows::SelectedRows;
pub(crate) use storage::add_row_numbers;
pub use storage::{Storage, StorageKind};
pub(crate) use variable::Variable;

#[cfg(test)]
mod tests;
