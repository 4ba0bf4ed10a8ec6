//! Building a program by ordinary calls: the builder and its variables, step blocks, names, states that pass from batch to
//! batch.

pub mod builder;
pub mod carried;
mod memories;
mod naming;
pub mod step;
pub(crate) mod term;
pub mod var;
pub mod vars;
