//! The program itself, as data: variables, operators, blocks, how they start, what is well formed, and how it is shown.

pub(crate) mod carried;
mod difference;
pub mod display;
pub mod dot;
pub mod initialize;
pub mod language;
mod names;
pub mod op_desc;
pub(crate) mod program;
mod slots;
pub(crate) mod storage_report;
pub(in crate::program) mod storages;
mod validate;
pub mod var_desc;
