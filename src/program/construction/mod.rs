//! Building a program by method calls: the builder, variables, step blocks, names, and states that pass from batch to batch.

mod before_loop;
pub(crate) mod builder;
mod carried;
mod fallback;
mod memories;
mod naming;
pub(crate) mod open_step;
pub(crate) mod operator;
mod parameters;
mod scopes;
mod state;
pub(crate) mod step;
pub(crate) mod term;
pub(crate) mod var;
pub(crate) mod vars;
pub(crate) mod warning;
