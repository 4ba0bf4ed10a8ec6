//! Operators on variables that are not dense: csr (coo lies like it) and selected rows.
//!
//! Where one has the kernels of a dense operator for other storages, it stands for that one: see
//! [`Declaration::stands_for`](crate::program::Declaration::stands_for).

mod among;
pub(in crate::ops) mod columns;
#[macro_use]
pub(in crate::ops) mod convert;
pub(in crate::ops) mod binary;
pub(in crate::ops) mod entrywise;
mod meet;
mod samples;
#[macro_use]
pub(in crate::ops) mod dot;
pub(in crate::ops) mod linear;
#[macro_use]
pub(in crate::ops) mod projection;
#[macro_use]
pub(in crate::ops) mod retain;
#[macro_use]
pub(in crate::ops) mod take;
#[macro_use]
pub(in crate::ops) mod transposed;
#[cfg(test)]
mod products_tests;
