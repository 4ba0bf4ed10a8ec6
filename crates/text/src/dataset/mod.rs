//! Data sets of records, which are in memory or stay in their files.

pub(crate) mod data_set;
pub(crate) mod files;
pub(crate) mod folds;
pub(crate) mod labelled_rows;
pub(crate) mod labelled_texts;
pub(crate) mod pairs;
pub(crate) mod record_source;
pub(crate) mod tagged_texts;
