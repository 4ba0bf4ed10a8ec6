//! Returns an error unless an input slot holds one id (i32 or i64) per row.

#[macro_use]
pub(super) mod bag;
#[macro_use]
pub(super) mod embedding;
#[macro_use]
pub(super) mod gather;
pub(super) mod ids;
