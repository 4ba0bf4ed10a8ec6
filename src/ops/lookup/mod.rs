//! Ids, and the rows of a table that they name.

#[macro_use]
pub(super) mod bag;
#[macro_use]
pub(super) mod embedding;
pub(super) mod ids;
