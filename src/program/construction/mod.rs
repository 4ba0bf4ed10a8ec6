//! Building a program by ordinary calls: the builder and its variables, step blocks, names, states that pass from batch to
//! batch.

mod before_loop;
pub mod builder;
mod carried;
mod fallback;
mod memories;
mod naming;
pub(crate) mod open_step;
pub mod operator;
mod parameters;
mod scopes;
mod state;
pub mod step;
pub(crate) mod term;
pub mod var;
pub mod vars;
pub mod warning;
