//! The program itself, as data: variables, operators, blocks, how they start, what is well formed, and how it is shown.

mod difference;
pub mod display;
pub mod dot;
pub mod initialize;
mod names;
pub mod op_desc;
pub(crate) mod program;
mod validate;
pub mod var_desc;
