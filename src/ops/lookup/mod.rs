//! Operators on ids, and operators on the rows that ids name.

#[macro_use]
pub(super) mod bag;
#[macro_use]
pub(super) mod embedding;
#[macro_use]
pub(super) mod gather;
pub(super) mod ids;
pub(super) mod int8;
