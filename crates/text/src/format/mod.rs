//! The formats of files: each file of this folder reads one format.

pub(crate) mod conll;
pub(crate) mod dictionary;
pub(crate) mod fasttext;
pub(crate) mod fields;
pub(crate) mod file_format;
pub(crate) mod json;
pub(crate) mod libsvm;
pub(crate) mod line_format;
pub(crate) mod parallel;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
pub(crate) mod row;
pub(crate) mod table;
pub(crate) mod trees;
mod walk;
