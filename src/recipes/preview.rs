//! The first records of a data set as they are parsed, before a model is built.

use super::training::read_as;
use crate::data::{DataSet, ReadOptions};

/// The detected format of a data set, and its first records.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preview {
    /// The detected format, columns and header, with the reasons, for people.
    pub said: Option<String>,
    /// The detected options as an object of JSON, by [`ReadOptions::to_json`].
    pub how: String,
    /// The first records, one line each.
    pub records: Vec<String>,
}

impl Preview {
    /// The number of records that are shown.
    pub(super) const SHOWN: usize = 3;

    /// Returns a preview of records that were read with these options.
    pub(super) fn new(options: &ReadOptions, records: Vec<String>) -> Self {
        Self { said: read_as(options), how: options.to_json(), records }
    }

    /// Returns a preview of records in memory; `line` formats a record.
    pub(super) fn of<R>(set: &DataSet<R>, line: &dyn Fn(&R) -> String) -> Self {
        Self::new(set.read_as(), set.records().iter().take(Self::SHOWN).map(line).collect())
    }

    /// Returns a text in quotation marks, shortened if it is long.
    pub(super) fn cut(text: &str) -> String {
        const MOST: usize = 80;
        match text.char_indices().nth(MOST) {
            Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
            None => format!("{text:?}"),
        }
    }
}
