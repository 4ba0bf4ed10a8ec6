//! Results, errors and exit codes of the command.

/// The result of a subcommand; its error is an error of the library or a message.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Ending of a command without an error.
pub(crate) enum Ending {
    Done,
    /// An interrupt ended the training, which is saved.
    Interrupted,
    /// A signal ended the command, and nothing is saved.
    Signal(u8),
}

/// Invalid request: an error before any work has begun.
#[derive(Debug)]
pub(crate) struct BadInput(pub(crate) String);

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// Returns the error of an invalid request.
pub(crate) fn bad<T>(message: impl Into<String>) -> Outcome<T> {
    Err(Box::new(BadInput(message.into())))
}

/// Checks that a new file does not exist yet.
pub(crate) fn fresh(path: &std::path::Path) -> Outcome<()> {
    match path.exists() {
        true => bad(format!("{}: expected the name of a new file, got an existing file", path.display())),
        false => Ok(()),
    }
}

/// Conversion of a library error into an invalid request.
pub(crate) trait UsageError<T> {
    fn usage(self) -> Outcome<T>;
}

impl<T> UsageError<T> for unpadded::Result<T> {
    fn usage(self) -> Outcome<T> {
        // The source line in this program does not help the user.
        self.map_err(|error| BadInput(plain(&error)).into())
    }
}

/// Returns the message of an error for the user.
pub(crate) fn said(error: &(dyn std::error::Error + 'static)) -> String {
    error.downcast_ref::<unpadded::Error>().map_or_else(|| error.to_string(), plain)
}

/// Returns an error of the library without its source line in this program.
pub(crate) fn plain(error: &unpadded::Error) -> String {
    format!("{error:#}")
}
