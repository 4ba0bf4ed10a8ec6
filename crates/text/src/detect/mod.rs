//! Detects the format, the columns and the tag scheme of a file from its head, unless the options set them.

pub(crate) mod column;
pub(crate) mod columns;
pub(crate) mod form;
pub(crate) mod guess;
pub(crate) mod languages;
pub(crate) mod objects;
pub(crate) mod options;
mod read_note;
mod spans;
pub(crate) mod tag_spelling;
