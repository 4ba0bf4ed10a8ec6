//! Ids, and the rows of a table that they name.

#[macro_use]
pub(super) mod bag;
#[macro_use]
pub(super) mod embedding;
#[macro_use]
pub(super) mod gather;
pub(super) mod ids;
