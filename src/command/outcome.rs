//! How the command ends.

/// What goes wrong: an error of the library, or a sentence.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// How it ended, where nothing went wrong.
pub(crate) enum Ending {
    Done,
    /// A training was interrupted, and is saved.
    Interrupted,
    /// This signal came, and nothing is saved.
    Signal(u8),
}

/// What was asked for makes no sense: nothing was begun.
#[derive(Debug)]
pub(crate) struct BadInput(pub(crate) String);

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// An error of what was asked for.
pub(crate) fn bad<T>(message: impl Into<String>) -> Outcome<T> {
    Err(Box::new(BadInput(message.into())))
}

/// That a file that is to be written is not there yet.
pub(crate) fn fresh(path: &std::path::Path) -> Outcome<()> {
    match path.exists() {
        true => bad(format!("{}: expected the name of a new file, got one that is there", path.display())),
        false => Ok(()),
    }
}

/// Says that an error of the library is one of what was asked for.
pub(crate) trait UsageError<T> {
    fn usage(self) -> Outcome<T>;
}

impl<T> UsageError<T> for unpadded::Result<T> {
    fn usage(self) -> Outcome<T> {
        // The line of this program that it was called from tells its user nothing.
        self.map_err(|error| BadInput(plain(&error)).into())
    }
}

/// An error as its user reads it.
pub(crate) fn said(error: &(dyn std::error::Error + 'static)) -> String {
    error.downcast_ref::<unpadded::Error>().map_or_else(|| error.to_string(), plain)
}

/// An error of the library for people who have no source: without the line of this program that it came through.
pub(crate) fn plain(error: &unpadded::Error) -> String {
    format!("{error:#}")
}
