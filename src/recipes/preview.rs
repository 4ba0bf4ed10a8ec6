//! The first records of a data set as they are understood, before anything is built.

use super::training::read_as;
use crate::data::{DataSet, ReadOptions};

/// How a data set is read, and its first records.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preview {
    /// What was detected: the format, the columns, whether a line is a header, and why.
    pub said: Option<String>,
    /// The same as an object of JSON, by [`ReadOptions::to_json`].
    pub how: String,
    /// The first records, each in a line.
    pub records: Vec<String>,
}

impl Preview {
    /// How many records are shown.
    pub(super) const SHOWN: usize = 3;

    /// These records, read so.
    pub(super) fn new(options: &ReadOptions, records: Vec<String>) -> Self {
        Self { said: read_as(options), how: options.to_json(), records }
    }

    /// Of records in memory, each as `line` writes it.
    pub(super) fn of<R>(set: &DataSet<R>, line: &dyn Fn(&R) -> String) -> Self {
        Self::new(set.read_as(), set.records().iter().take(Self::SHOWN).map(line).collect())
    }

    /// A text in quotation marks, and not too long.
    pub(super) fn cut(text: &str) -> String {
        const MOST: usize = 80;
        match text.char_indices().nth(MOST) {
            Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or_default()),
            None => format!("{text:?}"),
        }
    }
}
