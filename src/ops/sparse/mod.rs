//! Operators on variables that are not dense: csr (coo lies like it) and selected rows.
//!
//! Where one has the kernels of a dense operator for other storages, it stands for that one: see
//! [`Declaration::stands_for`](crate::program::Declaration::stands_for).

//!
//! | file | what it holds |
//! |---|---|
//! | `convert.rs` | another storage of the same numbers |
//! | `entrywise.rs` | functions of one number |
//! | `binary.rs` | functions of two; `meet.rs` is how their rows meet |
//! | `reduce.rs` | sums and means |
//! | `copy.rs` | copies |
//! | `samples.rs` | what they are tried on |

pub(in crate::ops) mod binary;
#[macro_use]
pub(in crate::ops) mod convert;
pub(in crate::ops) mod copy;
pub(in crate::ops) mod entrywise;
mod meet;
#[macro_use]
pub(in crate::ops) mod reduce;
mod samples;
