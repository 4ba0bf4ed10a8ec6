//! Operators on variables that are not dense: csr (coo lies like it) and selected rows.
//!
//! Where one has the kernels of a dense operator for other storages, it stands for that one: see
//! [`Declaration::stands_for`](crate::program::Declaration::stands_for).

mod among;
#[macro_use]
pub(in crate::ops) mod convert;
pub(in crate::ops) mod linear;
