//! The program as data: variables, operators, blocks, initialisers, validation and display.

pub(crate) mod carried;
mod difference;
pub(crate) mod display;
pub(crate) mod dot;
pub(crate) mod initialize;
pub(crate) mod language;
mod names;
pub(crate) mod op_desc;
pub(crate) mod program;
mod shape_source;
mod slots;
pub(crate) mod storage_report;
pub(in crate::program) mod storages;
mod validate;
pub(crate) mod var_desc;
mod words;
