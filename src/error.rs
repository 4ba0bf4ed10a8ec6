//! The error type of this crate. An error names what is wrong, the expected value, the found value, and the place.
//!
//! A check in a kernel or a storage type makes an error with the three arguments of [`Error::new`]: `what`, `expected`
//! and `got`. The layers above add the place (block, operator, variable, the caller's line) with [`Error::at`].
//!
//! The line in a message is a line of the user's code. An error stores the line of its constructor's caller. All
//! functions between the public function and the constructor have `#[track_caller]`, so the stored line is the line of
//! the public call. Closures and iterators lose the caller; the public function then adds its own caller
//! ([`Error::called`]). A line of this library is reported only if no line of the user's code is known.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc;

use crate::printable::Escaping;

/// The result type of this crate's functions that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error. It is displayed in one line: the message, and the place if the place is known.
#[derive(Clone, PartialEq)]
pub struct Error(Box<Details>);

#[derive(Clone, PartialEq, Default)]
struct Details {
    kind: ErrorKind,
    what: String,
    expected: String,
    got: String,
    place: Place,
    /// Whether the line in `place` is the line of the constructor's caller. If so, [`Error::at`] replaces this line by
    /// the line of its argument.
    made: bool,
    row: Option<Row>,
    notes: Vec<Note>,
    /// All errors of a program that has several errors; the first is a copy of this error. Empty for a single error.
    several: Vec<Error>,
    cause: Cause,
    /// Whether a computation exceeds a memory limit that the user has set.
    over_limit: bool,
}

/// The error of another library or of the operating system that caused an error; `None` if there is no known cause.
#[derive(Clone, Default)]
struct Cause(Option<Arc<dyn std::error::Error + Send + Sync>>);

/// Any two causes are equal, so that the comparison of two errors ignores the causes.
impl PartialEq for Cause {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A note behind the message of an error, with further information or advice.
#[derive(Clone, PartialEq)]
struct Note {
    text: String,
    /// Whether the note names items of this library, which help only users who write Rust code.
    in_code: bool,
}

/// The row of a batch that an error is about.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Row {
    /// The index of the row in the call of an operator, or in the batch of a metric.
    OfCall(usize),
    /// The sample to which the row belongs, as its index in the data. If the sample is a sequence, also the position of
    /// the row in the sequence.
    OfSample(u64, Option<usize>),
}

/// The kind of an error, for callers that handle each kind differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A value, shape, dtype, LoD or storage is not the expected one.
    #[default]
    Mismatch,
    /// A program is not well formed: for example, an operator is unknown, or a variable is read outside of its block.
    Program,
    /// A number is NaN or infinite where a finite number is required.
    NotFinite,
    /// A file is damaged, has another format, or has a later format version.
    Format,
    /// The operating system refused to read or write something.
    Io,
    /// Memory is missing: the operating system refused it, or a memory limit does not allow it.
    Memory,
}

/// The place of an error in a program and in the user's code. A field is `None` if it is not known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Place {
    /// The kind and the number of the operator, as in the listing of a program, such as `linear #3`.
    pub operator: Option<String>,
    /// The name of the variable; if the name is not known, the name of the operator's slot.
    pub variable: Option<String>,
    /// The number of the step block; `None` for the root block, or if the block is not known.
    pub block: Option<usize>,
    /// The name of the variable over whose rows the step block runs; `None` if it is not known.
    pub step: Option<String>,
    /// The line of the user's own code.
    pub caller: Option<String>,
}

impl Error {
    /// Makes an error of the kind [`ErrorKind::Mismatch`]. `what` is the thing that is wrong; `expected` and `got` are
    /// the expected and the found value. The error has the line of the caller, until [`Error::at`] or [`Error::called`]
    /// sets another line.
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

    /// Makes an error of the kind `kind`; the other arguments are as in [`Error::new`].
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

    /// Makes the error for a file that the operating system could not read or write. `what` is the file, such as ``file
    /// `x` ``; `verb` is `read` or `write`.
    #[track_caller]
    pub fn io(what: impl Into<String>, verb: &str, error: &std::io::Error) -> Self {
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

    /// Sets the error that caused this error; [`source`](std::error::Error::source) returns the cause.
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

    /// Combines all errors of a program into one error; returns `None` if there are no errors.
    pub fn several(errors: &[Error]) -> Option<Self> {
        let mut first = errors.first()?.clone();
        if errors.len() > 1 {
            first.0.several = errors.to_vec();
        }
        Some(first)
    }

    /// Iterates over the errors that this error combines, in order. If this error is a single error, it is the only
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

    /// Marks the error as the error of a computation that exceeds a memory limit.
    #[must_use]
    pub fn over_limit(mut self) -> Self {
        self.0.over_limit = true;
        self
    }

    /// Returns whether the computation exceeds a memory limit. If the system refuses memory, the result is `false`.
    pub fn is_over_limit(&self) -> bool {
        self.0.over_limit
    }

    /// Returns the kind of the error; of several combined errors, the kind of the first error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the place of the error, as far as the place is known.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// Sets the fields of the place that are not known yet. Fields that are known are kept, with one exception: the
    /// line is replaced if it is the line of the constructor's caller, or a line of this library.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        let Details { place: known, made, .. } = &mut *self.0;
        known.operator = known.operator.take().or(place.operator);
        known.variable = known.variable.take().or(place.variable);
        known.block = known.block.or(place.block);
        known.step = known.step.take().or(place.step);
        if place.caller.is_some() && (*made || known.caller.as_deref().is_none_or(is_own)) {
            (known.caller, *made) = (place.caller, false);
        }
        self
    }

    /// Sets the line of the user's code to `caller`, unless [`Self::at`] or `called` has already set a line of the
    /// user's code.
    #[must_use]
    pub fn called(self, caller: &Location<'_>) -> Self {
        self.at(Place { caller: Some(caller.to_string()), ..Place::default() })
    }

    /// Sets the line to `line`, where the user's code made the object that the error is about, such as a data loader. A
    /// `line` of this library is ignored.
    #[must_use]
    pub fn made_at(self, line: &Location<'_>) -> Self {
        if is_own(line.file()) { self } else { self.called(line) }
    }

    /// Replaces the name of an operator's slot by the name of the variable in the slot. `name` returns the name of the
    /// variable, or `None` to keep the name of the slot. Operators make errors with names of slots; a program has the
    /// names of the variables.
    #[must_use]
    pub(crate) fn renamed<'a>(mut self, name: impl FnOnce(&str) -> Option<&'a str>) -> Self {
        let known = &mut self.0.place.variable;
        if let Some(name) = known.as_deref().and_then(name) {
            *known = Some(name.to_owned());
        }
        self
    }

    /// Replaces the operator and the block by the operator and the block in `place`. An error of an operator that the
    /// builder added by itself is thus reported for the operator that the user called.
    #[must_use]
    pub(crate) fn of_operator(mut self, place: &Place) -> Self {
        self.0.place.operator.clone_from(&place.operator);
        self.0.place.block = place.block;
        self.0.place.step.clone_from(&place.step);
        self
    }

    /// Replaces each text of the message by the result of `reword`.
    #[must_use]
    pub(crate) fn reworded(mut self, reword: &dyn Fn(&str) -> String) -> Self {
        let Details { what, expected, got, notes, .. } = &mut *self.0;
        for text in [what, expected, got].into_iter().chain(notes.iter_mut().map(|note| &mut note.text)) {
            *text = reword(text);
        }
        self
    }

    /// Returns the thing that is wrong, in words: the first argument of [`Error::new`].
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// Puts a place in a file, such as `run.toml:3`, before the message.
    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        self.0.what = format!("{place}: {}", self.0.what);
        self
    }

    /// Adds a note behind the message, such as the name of a file or advice.
    #[must_use]
    pub fn noted(self, note: impl Into<String>) -> Self {
        self.note(Note { text: note.into(), in_code: false })
    }

    /// Adds a note that names items of this library. The format `{:#}` omits notes with such items, since users of a
    /// program cannot call the items.
    #[must_use]
    pub(crate) fn noted_in_code(self, note: impl Into<String>) -> Self {
        self.note(Note { text: note.into(), in_code: true })
    }

    fn note(mut self, note: Note) -> Self {
        // If several errors are combined, the note belongs to the last error, so that the note is printed at the end.
        match self.0.several.last_mut() {
            Some(last) => last.0.notes.push(note),
            None => self.0.notes.push(note),
        }
        self
    }

    /// Sets the index of the row that the error is about: the index in the call of an operator, or in the batch of a
    /// metric. A run later replaces the index of the row by the index of the sample to which the row belongs.
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

    /// Replaces the index of a row in a call by the sample to which the row belongs. `name` maps the index of the row
    /// to the index of the sample and the position of the row in the sample. If `name` returns `None`, nothing changes.
    #[must_use]
    pub(crate) fn of_sample(mut self, name: impl FnOnce(usize) -> Option<(u64, Option<usize>)>) -> Self {
        if let Some(Row::OfCall(row)) = self.0.row
            && let Some((sample, position)) = name(row)
        {
            self.0.row = Some(Row::OfSample(sample, position));
        }
        self
    }

    /// Returns the index of the sample that the error is about, if it is known.
    pub(crate) fn sample(&self) -> Option<u64> {
        match self.0.row {
            Some(Row::OfSample(sample, _)) => Some(sample),
            _ => None,
        }
    }

    /// Sets the name of the variable, if no name is known yet.
    #[must_use]
    pub(crate) fn variable(self, name: impl Into<String>) -> Self {
        self.at(Place { variable: Some(name.into()), ..Place::default() })
    }
}

/// Returns whether `line`, a source file with or without a line number, belongs to this library or to a crate that extends it.
/// In this repository, these crates are in the folder `crates`; elsewhere, they are beside this library, as `unpadded-text`.
pub(crate) fn is_own(line: &str) -> bool {
    is_of(file!(), line)
}

/// [`is_own`] for a library whose file `src/error.rs` has the path `own`.
fn is_of(own: &str, line: &str) -> bool {
    let separator = ['/', '\\'];
    let folder = own.trim_end_matches("error.rs").trim_end_matches(separator).trim_end_matches("src");
    let is_source = |below: &str| below.strip_prefix("src").is_some_and(|rest| rest.starts_with(separator));
    // A crate beside this one: its own folder, then its sources.
    let is_beside = |line: &str| line.split_once(separator).is_some_and(|(_, below)| is_source(below));
    let crates = |line: &str| line.strip_prefix("crates")?.strip_prefix(separator).map(is_beside);
    // In a registry, the names of folders end with a version; in a folder of vendored crates, they need not.
    let name = folder.trim_end_matches(separator);
    let name = name.strip_suffix(concat!("-", env!("CARGO_PKG_VERSION"))).unwrap_or(name);
    let sibling = |line: &str| {
        let rest = line.strip_prefix(name).filter(|_| !name.is_empty())?.strip_prefix('-')?;
        Some(["text", "recipes", "serve"].iter().any(|one| rest.starts_with(one)) && is_beside(rest))
    };
    // If a function is passed to the standard library, as in `map(Var::tanh)`, its caller is a line of the standard library,
    // whose path begins with `/rustc/`.
    line.starts_with("/rustc/")
        || line.strip_prefix(folder).is_some_and(|line| is_source(line) || crates(line) == Some(true))
        || sibling(line) == Some(true)
}

/// Sets the line of an error to the line of the caller, in a `#[track_caller]` function. Closures, iterators and private
/// functions lose the line of the caller. The trait is public for the crates that extend this library; a line in such a crate
/// (`unpadded-…`) is not reported as the line of the user.
///
/// ```
/// use unpadded::{AtCaller, Error, Result};
///
/// #[track_caller]
/// fn positive(numbers: &[i32]) -> Result<()> {
///     let check = |&n: &i32| if n > 0 { Ok(()) } else { Err(Error::new("n", "above 0", n.to_string())) };
///     numbers.iter().try_for_each(check).at_caller()
/// }
/// assert!(positive(&[3, -1]).is_err());
/// ```
pub trait AtCaller {
    /// Returns the value, whose error has the line of the caller unless the error already has a line of the user.
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
        // This is a `match` instead of `map_err`, because `Location::caller` does not return the caller in a closure.
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
            match (&place.step, place.block) {
                (Some(over), _) => write!(f, " in the step over `{over}`")?,
                (None, Some(_)) => write!(f, " in a step")?,
                (None, None) => {}
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

/// Shows the message and the notes in one line; if this error combines several errors, each error has its own line. The
/// format `{:#}`, for users of a program, omits the line of code and the notes that name items of this library. Control
/// characters in names from files are escaped ([`Printable`](crate::Printable)).
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

/// Shows the message, and each note in its own line. `fn main() -> unpadded::Result<()>` and `unwrap` print errors with
/// this format.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_code = !f.alternate();
        self.each(&mut Escaping(f), in_code, "\n  ")
    }
}

impl Error {
    /// Writes a single error; writes each of several combined errors in its own line, followed by the number of errors.
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
    /// Returns the error of the operating system or of another library that caused this error; `None` if there is no
    /// known cause.
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

/// A value from a call of the user, with the line of the call, for errors about the value.
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

#[cfg(test)]
mod tests {
    use super::{Error, is_of};

    #[test]
    fn notes_that_name_items_are_only_for_code() {
        let e = Error::new("entry", "below 3", "7").noted("line 4").noted_in_code("`retain` drops it");
        assert!(
            format!("{e}").ends_with("; line 4; `retain` drops it") && format!("{e:#}").ends_with("; line 4")
        );
    }

    #[test]
    fn lines_of_the_library_are_known_wherever_it_is() {
        let registry = "/home/u/.cargo/registry/src/index-1/unpadded";
        let version = env!("CARGO_PKG_VERSION");
        let in_registry = (format!("{registry}-{version}/"), format!("{registry}-text-{version}/"));
        let places = [
            (String::new(), "crates/text/".to_owned()),
            ("/home/u/unpadded/".to_owned(), "/home/u/unpadded/crates/text/".to_owned()),
            in_registry,
            ("vendor/unpadded/".to_owned(), "vendor/unpadded-text/".to_owned()),
        ];
        for (root, text) in places {
            let is_own = |line: &str| is_of(&format!("{root}src/error.rs"), line);
            assert!(
                is_own(&format!("{root}src/lod.rs:7:1")) && is_own("/rustc/abc/library/core/src/x.rs"),
                "{root}"
            );
            assert!(is_own(&format!("{text}src/open/json.rs:7:1")), "{root}");
            for user in [format!("{text}tests/text/main.rs:1:1"), format!("{root}models/tagger.rs:1:1")] {
                assert!(!is_own(&user), "{user}");
            }
            assert!(!is_own("/home/u/app/src/main.rs:3:5") && !is_own("app/src/main.rs:3:5"), "{root}");
        }
        // Outside of the repository and of the registry, the path of the user's package may begin with the same name.
        assert!(!is_of("/home/u/unpadded/src/error.rs", "/home/u/unpadded-app/src/main.rs:3:5"));
        assert!(
            is_of("src\\error.rs", "crates\\text\\src\\x.rs:1:1") && is_of("src\\error.rs", "src\\x.rs:1:1")
        );
    }
}
