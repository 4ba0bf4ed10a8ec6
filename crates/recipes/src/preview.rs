//! A preview of a data set: the first parsed records, before a model is built.

use std::path::Path;

use unpadded::{Printable, Result};
use unpadded_text::{Files, ReadOptions, Record};

use super::training::read_as;

/// The detected format of a data set and the first parsed records.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preview {
    /// The detected format, columns and header with the reasons, as a line for people; `None` if there is nothing to
    /// report.
    pub said: Option<String>,
    /// The detected options as a JSON object from [`ReadOptions::to_json`].
    pub how: String,
    /// The first records of the data set, each formatted as a line.
    pub records: Vec<String>,
}

impl Preview {
    pub(super) const SHOWN: usize = 3;

    pub(super) fn new(options: &ReadOptions, records: Vec<String>) -> Self {
        Self { said: read_as(options), how: options.to_json(), records }
    }

    pub(super) fn of<R: Record>(
        path: &Path,
        options: &ReadOptions,
        line: &dyn Fn(&R) -> String,
    ) -> Result<Self> {
        let files = Files::open_with([path], options)?;
        let records = files.records().take(Self::SHOWN).map(|record| record.map(|record| line(&record)));
        let records = records.collect::<Result<_>>()?;
        Ok(Self::new(files.read_as(), records))
    }

    /// Returns a text in quotation marks, cut after 80 characters.
    pub(super) fn cut(text: &str) -> String {
        Printable(text).quoted(80)
    }
}
