//! Transformations of programs: differentiation, inference programs, and inference in windows or row by row.

pub mod backward;
pub(crate) mod blocked;
pub(crate) mod coded;
pub(crate) mod decided;
mod inference;
pub(crate) mod local;
mod settling;
pub(crate) mod stepped;
pub(crate) mod streamed;
pub(crate) mod terms;
