//! The place in a file that a sample was read from.

use std::fmt;
use std::sync::Arc;

/// The line of a file from which a record or a sample was read, for messages: `reviews.tsv:17`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLine {
    pub(super) file: Arc<str>,
    pub(super) line: u64,
}

impl FileLine {
    /// Makes the place of a line; lines are counted from 1.
    pub fn new(file: impl Into<Arc<str>>, line: u64) -> Self {
        Self { file: file.into(), line }
    }
}

impl fmt::Display for FileLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}
