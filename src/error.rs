//! The one error type: what went wrong, where, what was expected and what was found.
//!
//! A check deep in a kernel or a storage type only knows [`Error::new`]'s three facts. The layers above add the
//! place (block, operator, variable, the caller's line) with [`Error::at`], so that no layer repeats another's words.

use std::fmt;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in one line, with the place when it is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Error(Box<Details>);

#[derive(Debug, Clone, PartialEq, Default)]
struct Details {
    kind: ErrorKind,
    what: String,
    expected: String,
    got: String,
    place: Place,
    notes: Vec<String>,
}

/// The families of errors, for callers that act on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A value, shape, dtype, LoD or storage that does not fit.
    #[default]
    Mismatch,
    /// A program that is not well formed: an unknown operator, a variable that escapes its block, a missing name.
    Program,
    /// A number that is not finite where it must be.
    NotFinite,
    /// A file that is damaged, foreign, or of a future version.
    Format,
    /// The operating system refused.
    Io,
}

/// Where an error happened. Every field may be unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// The operator's kind and number, as a program's listing shows them.
    pub operator: Option<String>,
    /// The variable or slot.
    pub variable: Option<String>,
    /// The step block, by its number; the root block is left out.
    pub block: Option<usize>,
    /// The line of the user's own code.
    pub caller: Option<String>,
}

impl Error {
    /// A mismatch: `what` names the thing, then what was expected and what was found.
    ///
    /// ```
    /// use unpadded::Error;
    /// let e = Error::new("offsets", "to start with 0", "3");
    /// assert_eq!(e.to_string(), "offsets: expected to start with 0, got 3");
    /// ```
    pub fn new(what: impl Into<String>, expected: impl Into<String>, got: impl Into<String>) -> Self {
        Self(Box::new(Details {
            what: what.into(),
            expected: expected.into(),
            got: got.into(),
            ..Details::default()
        }))
    }

    /// The same of another family.
    pub fn of(
        kind: ErrorKind,
        what: impl Into<String>,
        expected: impl Into<String>,
        got: impl Into<String>,
    ) -> Self {
        let mut error = Self::new(what, expected, got);
        error.0.kind = kind;
        error
    }

    /// The operating system refused to `read` or to `write` something, such as ``file `x` ``.
    pub(crate) fn io(what: impl Into<String>, verb: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind::{NotFound, PermissionDenied, StorageFull};
        let (expected, got) = match error.kind() {
            NotFound if verb == "read" => ("a file".to_owned(), format!("none there ({error})")),
            NotFound => ("a folder where it can be written".to_owned(), format!("none ({error})")),
            PermissionDenied => (format!("permission to {verb} it"), format!("none ({error})")),
            StorageFull => ("room to write it".to_owned(), format!("a full disk ({error})")),
            _ => (format!("the system to {verb} it"), format!("an error ({error})")),
        };
        Self::of(ErrorKind::Io, what, expected, got)
    }

    /// Which family it belongs to.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Where it happened, as far as known.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// Adds the fields of `place` that are not known yet: the innermost layer's word stands.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        let known = &mut self.0.place;
        known.operator = known.operator.take().or(place.operator);
        known.variable = known.variable.take().or(place.variable);
        known.block = known.block.or(place.block);
        known.caller = known.caller.take().or(place.caller);
        self
    }

    /// Adds the line of the user's code, if none is known yet.
    #[must_use]
    pub fn called(self, caller: &std::panic::Location<'_>) -> Self {
        self.at(Place { caller: Some(caller.to_string()), ..Place::default() })
    }

    /// Puts a variable's name in the place of a slot's: an operator knows its slots, a program what is in them.
    #[must_use]
    pub fn renamed<'a>(mut self, name: impl FnOnce(&str) -> Option<&'a str>) -> Self {
        let known = &mut self.0.place.variable;
        if let Some(name) = known.as_deref().and_then(name) {
            *known = Some(name.to_owned());
        }
        self
    }

    /// Adds what else the user should know: where a training can be resumed, which file it is about.
    #[must_use]
    pub fn noted(mut self, note: impl Into<String>) -> Self {
        self.0.notes.push(note.into());
        self
    }

    /// Adds the variable's name, if none is known yet.
    #[must_use]
    pub fn variable(self, name: impl Into<String>) -> Self {
        self.at(Place { variable: Some(name.into()), ..Place::default() })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { what, expected, got, place, notes, .. } = &*self.0;
        if let Some(operator) = &place.operator {
            write!(f, "{operator}")?;
            if let Some(block) = place.block {
                write!(f, " in block {block}")?;
            }
            write!(f, ": ")?;
        }
        if let Some(variable) = &place.variable {
            write!(f, "variable `{variable}`: ")?;
        }
        write!(f, "{what}: expected {expected}, got {got}")?;
        if let Some(caller) = &place.caller {
            write!(f, " (at {caller})")?;
        }
        notes.iter().try_for_each(|note| write!(f, "; {note}"))?;
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error::of(ErrorKind::Io, "input/output", "to succeed", error.to_string())
    }
}
