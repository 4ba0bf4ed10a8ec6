//! Opens the records of a path: each file of this folder makes one kind of record from the rows of a file.

mod labelled;
mod pairs;
pub(crate) mod plain;
pub(crate) mod plan;
pub(crate) mod projection;
pub(crate) mod rows;
mod tagged;
