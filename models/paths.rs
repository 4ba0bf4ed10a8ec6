//! The two paths that a program may be given: training data and development data.

use std::path::{Path, PathBuf};

use unpadded::{Error, Result};

/// Returns the paths of the command line, or the paths of the data in this repository, which are relative to its root.
///
/// # Errors
/// If there is one path, or more than two.
pub(crate) fn paths(own: [&str; 2]) -> Result<[PathBuf; 2]> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    match &given[..] {
        [] => Ok(own.map(|path| Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets").join(path))),
        [train, dev] => Ok([train.into(), dev.into()]),
        other => Err(Error::new(
            "arguments",
            "none, or the paths of training and development data",
            other.join(" "),
        )),
    }
}
