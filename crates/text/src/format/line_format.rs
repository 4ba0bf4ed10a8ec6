//! Formats in which a line has one or more whole records of two texts.

use unpadded::Result;

use crate::TextFile;
use crate::source::reason::Reason;

/// A format in which a line has one or more whole records. A record is a text and its label, or a source and its target.
#[derive(Debug)]
pub(crate) struct LineFormat {
    /// Returns whether a line looks like a line of this format. A file has the format if all its first lines do.
    pub(crate) fits: fn(&str) -> bool,
    /// The reason in messages if all first lines fit.
    pub(crate) why: &'static str,
    /// Returns a parser of the records of a line; `None` for a line without a record.
    pub(crate) records: fn(LineSettings) -> LineParser<Vec<[String; 2]>>,
    /// Returns a parser of the text of a line, whose label or target may be missing.
    pub(crate) texts: fn(LineSettings) -> LineParser<String>,
    /// Returns a note for the user about the first lines of a file.
    pub(crate) note: fn(&TextFile, LineSettings) -> Result<Option<String>>,
    /// Advice for each error in the lines.
    pub(crate) advice: Option<&'static str>,
}

pub(crate) type LineParser<T> = Box<dyn FnMut(&str) -> Result<Option<T>, Reason> + Send>;

/// The options that decide which records a line has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LineSettings {
    /// Whether labels of five steps become two labels.
    pub(crate) binary: bool,
    /// Whether each phrase of a line is a record.
    pub(crate) phrases: bool,
    /// Whether phonemes keep their digits of stress.
    pub(crate) stress: bool,
    /// Whether several labels of a text are one record.
    pub(crate) label_lists: bool,
}

impl LineFormat {
    /// The properties that a format does not set: each line is a text, and no line has a record.
    pub(crate) const DEFAULT: Self = Self {
        fits: |_| false,
        why: "",
        records: |_| Box::new(|_| Ok(None)),
        texts: |_| Box::new(|line| Ok((!line.trim().is_empty()).then(|| line.to_owned()))),
        note: |_, _| Ok(None),
        advice: None,
    };
}
