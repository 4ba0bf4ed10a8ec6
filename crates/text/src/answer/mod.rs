//! Files whose records a model answers, and the answers, which are written beside the records.

pub(crate) mod answers;
mod asked;
pub(crate) mod questions;
