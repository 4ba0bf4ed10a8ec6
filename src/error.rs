//! The error type: the wrong thing and its place, the expected value, and the found value.
//!
//! A check deep in a kernel or a storage type knows only the three arguments of [`Error::new`]. The layers above add the
//! place (block, operator, variable, the caller's line) with [`Error::at`]. So each layer adds only the facts that it
//! knows.
//!
//! The reported line is a line of the user's own code. An error stores the line of its constructor's caller; as all functions
//! up to the public one have `#[track_caller]`, this is the line of the public call. If closures or iterators on the way lose
//! the caller, the public function adds its own caller ([`Error::called`]). A line of this library is reported only if no line
//! of the user is known.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc;

use crate::printable::Escaping;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: a one-line message, with the place if it is known.
#[derive(Clone, PartialEq)]
pub struct Error(Box<Details>);

#[derive(Clone, PartialEq, Default)]
struct Details {
    kind: ErrorKind,
    what: String,
    expected: String,
    got: String,
    place: Place,
    /// Whether the caller's line is only the line where the error was made: any other line replaces it.
    made: bool,
    row: Option<Row>,
    notes: Vec<Note>,
    /// All errors of a program with several, starting with a copy of this error; empty for a single error.
    several: Vec<Error>,
    cause: Cause,
}

/// The error of another library, or of a layer below, that caused an error; `None` if it is not known.
#[derive(Clone, Default)]
struct Cause(Option<Arc<dyn std::error::Error + Send + Sync>>);

/// All causes are equal: the comparison of two errors ignores their causes.
impl PartialEq for Cause {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A note: further information for the user.
#[derive(Clone, PartialEq)]
struct Note {
    text: String,
    /// Whether the note names items of this library, which help only users who write code.
    in_code: bool,
}

/// The row that an error is about.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Row {
    /// The number of the row among the rows of an operator's call or of a metric's batch.
    OfCall(usize),
    /// The number of the row's sample in the data and, if the sample has several rows, the row's position in its
    /// sequence.
    OfSample(u64, Option<usize>),
}

/// The families of errors, for callers that react differently to each family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A value, shape, dtype, LoD or storage that does not fit.
    #[default]
    Mismatch,
    /// A program that is not well formed: an unknown operator, a variable that escapes its block, a missing name.
    Program,
    /// A number that is NaN or infinite where a finite number is required.
    NotFinite,
    /// A file that is damaged, has another format, or is of a later version.
    Format,
    /// The operating system refused to read or write something.
    Io,
}

/// The place of an error. A field is `None` if it is not known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Place {
    /// The operator's kind and number, as a program's listing shows them.
    pub operator: Option<String>,
    /// The name of the variable, or of the operator's slot.
    pub variable: Option<String>,
    /// The number of the step block; `None` for the root block, too.
    pub block: Option<usize>,
    /// The line of the user's own code.
    pub caller: Option<String>,
}

impl Error {
    /// A mismatch: `what` names the wrong thing, `expected` and `got` are the expected and the found value. The line is
    /// the line of the caller, until [`Error::at`] or [`Error::called`] sets a line of the user's code.
    ///
    /// ```
    /// use unpadded::Error;
    /// let e = Error::new("offsets", "to start with 0", "3");
    /// assert!(e.to_string().starts_with("offsets: expected to start with 0, got 3"));
    /// ```
    #[track_caller]
    pub fn new(what: impl Into<String>, expected: impl Into<String>, got: impl Into<String>) -> Self {
        let line = Location::caller().to_string();
        let caller = (!is_own(&line)).then_some(line);
        Self(Box::new(Details {
            what: what.into(),
            expected: expected.into(),
            got: got.into(),
            place: Place { caller, ..Place::default() },
            made: true,
            ..Details::default()
        }))
    }

    /// An error of the family `kind`; all else as in [`Error::new`].
    #[track_caller]
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
            NotFound if verb == "read" => ("a file".to_owned(), format!("none ({error})")),
            NotFound => ("a folder where it can be written".to_owned(), format!("none ({error})")),
            PermissionDenied => (format!("permission to {verb} it"), format!("none ({error})")),
            StorageFull => ("room to write it".to_owned(), format!("a full disk ({error})")),
            _ => (format!("to {verb} it"), format!("an error of the operating system ({error})")),
        };
        Self::of(ErrorKind::Io, what, expected, got).caused_by(match error.raw_os_error() {
            Some(code) => std::io::Error::from_raw_os_error(code),
            None => std::io::Error::new(error.kind(), error.to_string()),
        })
    }

    /// Sets the error that caused this one; [`source`](std::error::Error::source) returns the cause.
    ///
    /// ```
    /// use std::error::Error as _;
    /// use unpadded::Error;
    /// let cause = "seven".parse::<u32>().unwrap_err();
    /// let plain = Error::new("number of layers", "a number", "`seven`");
    /// let error = plain.clone().caused_by(cause.clone());
    /// assert_eq!(error.source().and_then(|cause| cause.downcast_ref()), Some(&cause));
    /// assert_eq!(error, plain); // with equal messages
    /// ```
    #[must_use]
    pub fn caused_by(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.cause = Cause(Some(Arc::new(cause)));
        self
    }

    /// Combines all errors of a program into one error; `None` if there are no errors.
    pub(crate) fn several(errors: &[Error]) -> Option<Self> {
        let mut first = errors.first()?.clone();
        if errors.len() > 1 {
            first.0.several = errors.to_vec();
        }
        Some(first)
    }

    /// Iterates over the combined errors of a program with several mistakes, first to last; a single error is the only
    /// item.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let (a, b) = (x.linear(0), x.slice(4..9));
    /// let y = a + b; // not known, and no third mistake
    /// let errors = net.check().unwrap_err();
    /// assert_eq!(errors.all().count(), 2);
    /// # let _ = y;
    /// ```
    pub fn all(&self) -> impl Iterator<Item = &Error> {
        let alone = self.0.several.is_empty().then_some(self);
        alone.into_iter().chain(&self.0.several)
    }

    /// The family of the error; for several errors, the family of the first.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The place of the error, as far as known.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// Adds the fields of `place` that are not known yet. Fields that inner layers set are kept; only the line is
    /// replaced if it is the line of the error's constructor or a line of this library.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        let Details { place: known, made, .. } = &mut *self.0;
        known.operator = known.operator.take().or(place.operator);
        known.variable = known.variable.take().or(place.variable);
        known.block = known.block.or(place.block);
        if place.caller.is_some() && (*made || known.caller.as_deref().is_none_or(is_own)) {
            (known.caller, *made) = (place.caller, false);
        }
        self
    }

    /// Adds the line of the user's code, if none is known yet.
    #[must_use]
    pub fn called(self, caller: &Location<'_>) -> Self {
        self.at(Place { caller: Some(caller.to_string()), ..Place::default() })
    }

    /// Adds the line of code that made the thing that the error is about, if no line of the user's code is known yet.
    #[must_use]
    pub(crate) fn made_at(self, line: &Location<'_>) -> Self {
        if is_own(line.file()) { self } else { self.called(line) }
    }

    /// Replaces the name of a slot by the name of its variable, if `name` returns one. An operator knows only its
    /// slots; a program knows the variables.
    #[must_use]
    pub fn renamed<'a>(mut self, name: impl FnOnce(&str) -> Option<&'a str>) -> Self {
        let known = &mut self.0.place.variable;
        if let Some(name) = known.as_deref().and_then(name) {
            *known = Some(name.to_owned());
        }
        self
    }

    /// Replaces the operator and the block by the operator and the block in `place`: an error of an operator that the
    /// builder added is reported for the operator that the user called.
    #[must_use]
    pub(crate) fn of_operator(mut self, place: &Place) -> Self {
        self.0.place.operator.clone_from(&place.operator);
        self.0.place.block = place.block;
        self
    }

    /// The thing that the error is about.
    pub(crate) fn what(&self) -> &str {
        &self.0.what
    }

    /// Puts the location in a file, such as `run.toml:3`, before the message.
    #[must_use]
    pub(crate) fn within(mut self, place: &str) -> Self {
        self.0.what = format!("{place}: {}", self.0.what);
        self
    }

    /// Adds a note to the message, such as the name of the file, or how to resume a training.
    #[must_use]
    pub fn noted(self, note: impl Into<String>) -> Self {
        self.note(Note { text: note.into(), in_code: false })
    }

    /// Adds a note that names items of this library: `{:#}` leaves the note out, for users of a program, who cannot
    /// call these items.
    ///
    /// ```
    /// use unpadded::Error;
    /// let e = Error::new("entry", "below 3", "7").noted("line 4").noted_in_code("`Entries::retain` drops it");
    /// assert!(format!("{e}").ends_with("; line 4; `Entries::retain` drops it"));
    /// assert!(format!("{e:#}").ends_with("; line 4"));
    /// ```
    #[must_use]
    pub fn noted_in_code(self, note: impl Into<String>) -> Self {
        self.note(Note { text: note.into(), in_code: true })
    }

    fn note(mut self, note: Note) -> Self {
        // A note on several errors is printed after the last error.
        match self.0.several.last_mut() {
            Some(last) => last.0.notes.push(note),
            None => self.0.notes.push(note),
        }
        self
    }

    /// Adds the number of the row that the error is about, counted in an operator's call or a metric's batch. A run replaces
    /// the number by the number of the row's sample.
    ///
    /// ```
    /// use unpadded::Error;
    /// let e = Error::new("score", "at least 0", "-1").row(4);
    /// assert!(e.to_string().starts_with("score of row 4: expected at least 0, got -1"));
    /// ```
    #[must_use]
    pub fn row(mut self, row: usize) -> Self {
        self.0.row = self.0.row.or(Some(Row::OfCall(row)));
        self
    }

    /// Replaces the number of a row in a call by the number of its sample and, if it has one, its position in the
    /// sequence. Nothing changes if `name` returns `None`.
    #[must_use]
    pub(crate) fn of_sample(mut self, name: impl FnOnce(usize) -> Option<(u64, Option<usize>)>) -> Self {
        if let Some(Row::OfCall(row)) = self.0.row
            && let Some((sample, position)) = name(row)
        {
            self.0.row = Some(Row::OfSample(sample, position));
        }
        self
    }

    /// Adds the variable's name, if none is known yet.
    #[must_use]
    pub fn variable(self, name: impl Into<String>) -> Self {
        self.at(Place { variable: Some(name.into()), ..Place::default() })
    }
}

/// Returns whether a line of code, or a source file, belongs to this library.
pub(crate) fn is_own(line: &str) -> bool {
    // Lines begin with the folder of the sources, in the form that the compiler got. A function that is passed as an argument,
    // such as in `map(Var::tanh)`, is called by the standard library (`/rustc/`).
    line.starts_with(file!().trim_end_matches("error.rs")) || line.starts_with("/rustc/")
}

/// Adds the caller's line to an error inside a `#[track_caller]` function. Errors of closures, iterators and private
/// functions lose this line.
pub(crate) trait AtCaller {
    #[track_caller]
    #[must_use]
    fn at_caller(self) -> Self;
}

impl AtCaller for Error {
    #[track_caller]
    fn at_caller(mut self) -> Self {
        let line = Location::caller().to_string();
        if self.0.place.caller.is_none() && !is_own(&line) {
            (self.0.place.caller, self.0.made) = (Some(line), true);
        }
        self
    }
}

impl<T> AtCaller for Result<T> {
    #[track_caller]
    fn at_caller(self) -> Self {
        // A `match` and not `map_err`, because a closure does not know the caller.
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(error.at_caller()),
        }
    }
}

impl Error {
    /// Writes the message, without the notes.
    fn message(&self, f: &mut dyn fmt::Write, in_code: bool) -> fmt::Result {
        let Details { what, expected, got, place, row, .. } = &*self.0;
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
        write!(f, "{what}")?;
        match row {
            Some(Row::OfSample(sample, Some(position))) => {
                write!(f, " of sample {sample}, position {position}")?
            }
            Some(Row::OfSample(sample, None)) => write!(f, " of sample {sample}")?,
            Some(Row::OfCall(row)) => write!(f, " of row {row}")?,
            None => {}
        }
        write!(f, ": expected {expected}, got {got}")?;
        if let Some(caller) = place.caller.as_ref().filter(|_| in_code) {
            write!(f, " (at {caller})")?;
        }
        Ok(())
    }
}

/// Shows the message and the notes in one line; several errors have a line each. `{:#}` omits the line of code and the notes
/// about code, for users of a program. Names from files are [printable](crate::Printable).
///
/// ```
/// let error = unpadded::Error::new("score", "at least 0", "-1").called(std::panic::Location::caller());
/// assert!(error.to_string().contains(" (at ") && !format!("{error:#}").contains(" (at "));
/// ```
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_code = !f.alternate();
        self.each(&mut Escaping(f), in_code, "; ")
    }
}

/// Shows the message and a line for each note: `fn main() -> unpadded::Result<()>` and `unwrap` print errors with
/// `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_code = !f.alternate();
        self.each(&mut Escaping(f), in_code, "\n  ")
    }
}

impl Error {
    /// Writes each error in a line of its own, and the number of errors if there are several.
    fn each(&self, f: &mut dyn fmt::Write, in_code: bool, before_note: &str) -> fmt::Result {
        for error in self.all() {
            error.message(f, in_code)?;
            let mut notes = error.0.notes.iter().filter(|note| in_code || !note.in_code);
            notes.try_for_each(|note| write!(f, "{before_note}{}", note.text))?;
            if !self.0.several.is_empty() {
                writeln!(f)?;
            }
        }
        match self.0.several.len() {
            0 => Ok(()),
            several => write!(f, "{several} errors"),
        }
    }
}

impl std::error::Error for Error {
    /// The error of the operating system, of another library or of a layer below that caused this error, if it is
    /// known.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.0.cause.0.as_ref()?;
        Some(&**cause)
    }
}

impl From<std::io::Error> for Error {
    #[track_caller]
    fn from(error: std::io::Error) -> Self {
        Error::of(ErrorKind::Io, "input/output", "to succeed", error.to_string()).caused_by(error)
    }
}

/// A value from a user's call, with the line of the call, for errors about it.
pub(crate) struct CallerSetting<T> {
    pub(crate) what: T,
    pub(crate) line: &'static Location<'static>,
}

impl<T> CallerSetting<T> {
    #[track_caller]
    pub(crate) fn new(what: T) -> Self {
        Self { what, line: Location::caller() }
    }
}

impl<T> Deref for CallerSetting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.what
    }
}

impl<T> DerefMut for CallerSetting<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.what
    }
}
