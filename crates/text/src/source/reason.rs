//! Reasons why text is malformed, and the errors for them.

use unpadded::{Error, ErrorKind};

#[derive(Debug, Clone, Default)]
pub(crate) struct Reason {
    pub(crate) expected: String,
    pub(crate) got: String,
}

impl Reason {
    pub(crate) fn of(expected: impl Into<String>, got: impl Into<String>) -> Self {
        Self { expected: expected.into(), got: got.into() }
    }

    /// Returns the error for this reason; `what` is the place in the message, such as `FILE:LINE`.
    #[track_caller]
    pub(crate) fn at(self, what: impl Into<String>) -> Error {
        wrong_format(what, self.expected, self.got)
    }
}

/// Returns the error for data in a wrong format; the arguments are as in [`Error::new`].
#[track_caller]
pub(crate) fn wrong_format(
    what: impl Into<String>,
    expected: impl Into<String>,
    got: impl Into<String>,
) -> Error {
    Error::of(ErrorKind::Format, what, expected, got)
}

pub(crate) fn no_records(name: &str) -> Error {
    wrong_format(format!("records of file `{name}`"), "at least one", "none")
}
