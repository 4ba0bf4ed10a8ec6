//! The results, errors and exit codes of the command.

use unpadded_text::text_of_path;

/// The result of a subcommand; the error is an error of the library or a message.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

pub(crate) enum Ending {
    Done,
    /// An interrupt ended the training; the training is saved and can be resumed.
    Interrupted,
    /// A signal ended the command, and the command has saved nothing.
    Signal(u8),
}

/// The error for a request that the command refuses as invalid, before it begins any work.
#[derive(Debug)]
pub(crate) struct BadInput(pub(crate) String);

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

pub(crate) fn bad<T>(message: impl Into<String>) -> Outcome<T> {
    Err(Box::new(BadInput(message.into())))
}

/// Returns a path or a setting as a word of a shell's command line, in quotes if needed, or in quotes of bash if it is not UTF-8.
pub(crate) fn word(text: impl AsRef<std::path::Path>) -> String {
    let Some(text) = text.as_ref().to_str() else {
        return format!("$'{}'", text_of_path(text).replace('\'', r"\'"));
    };
    match text.chars().all(|c| c.is_alphanumeric() || "-_./:=,+@%".contains(c)) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Checks that a new file can get the name `path`: nothing has this name yet, and the folder exists.
pub(crate) fn fresh(path: &std::path::Path) -> Outcome<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir());
    let got = match folder {
        _ if path.exists() => "an existing file".to_owned(),
        _ if path.is_symlink() => "a symbolic link to a file that is not there".to_owned(),
        Some(folder) => format!("a name in the folder `{}`, which is not there", folder.display()),
        None => return Ok(()),
    };
    bad(format!("{}: expected the name of a new file, got {got}", path.display()))
}

/// Returns the outcome of writing a file: an error of the system is a failure, any other error an invalid request.
pub(crate) fn written<T>(outcome: unpadded::Result<T>) -> Outcome<T> {
    match outcome {
        Err(e) if e.kind() == unpadded::ErrorKind::Io => Err(e.into()),
        outcome => outcome.usage(),
    }
}

/// Returns the error for output that cannot be written. The message for a full disk is the message of the library.
pub(crate) fn unwritten(what: impl std::fmt::Display, error: &std::io::Error) -> Box<dyn std::error::Error> {
    match error.kind() {
        std::io::ErrorKind::StorageFull => unpadded::Error::io(what.to_string(), "write", error).into(),
        _ => format!("{what}: {error}").into(),
    }
}

pub(crate) trait UsageError<T> {
    fn usage(self) -> Outcome<T>;
}

impl<T> UsageError<T> for unpadded::Result<T> {
    fn usage(self) -> Outcome<T> {
        // The message omits the error's source line in this program, since the line does not help the user.
        self.map_err(|error| BadInput(plain(&error)).into())
    }
}

/// Returns the message of an error for the user.
pub(crate) fn message(error: &(dyn std::error::Error + 'static)) -> String {
    error.downcast_ref::<unpadded::Error>().map_or_else(|| error.to_string(), plain)
}

/// Returns the message of a library error without the error's source line in this program.
pub(crate) fn plain(error: &unpadded::Error) -> String {
    format!("{error:#}")
}
