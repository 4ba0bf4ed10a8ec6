//! Sparse rows of a path.

use std::path::Path;

use super::paths::{Found, find};
use crate::data::records::OneLine;
use crate::data::{FirstIndex, LabelledRow, LabelledRows, TextFile};
use crate::error::{AtCaller, Error, ErrorKind, Result};

impl LabelledRows {
    /// The rows of LIBSVM files by their path, of several by a pattern as `data/*.svm`, of one in a zip by `data.zip!train.svm`; gzip and
    /// zip are opened.
    ///
    /// # Errors
    /// As [`Self::of_files`]; if the path leads to no file.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let files = files(path.as_ref()).at_caller()?;
        Self::of_files(&files, FirstIndex::One).at_caller()
    }

    /// Whether the first lines of what the path leads to are a label and numbered features each. Of what cannot be read they are not.
    pub fn are_in(path: impl AsRef<Path>) -> bool {
        files(path.as_ref()).is_ok_and(|files| files.iter().all(|file| numbered(file).unwrap_or(false)))
    }
}

fn files(path: &Path) -> Result<Vec<TextFile>> {
    let (name, found) = find([path])?;
    let file = |found| match found {
        Found::File(file) => Ok(file),
        Found::Folder(_) => {
            let expected = "a file, or one in a zip as `data.zip!train.svm`";
            Err(Error::of(ErrorKind::Format, format!("rows in `{name}`"), expected, "several"))
        }
    };
    found.into_iter().map(file).collect()
}

/// That a file may hold texts.
///
/// # Errors
/// If it holds rows of numbered features.
pub(super) fn texts(file: &TextFile, wanted: &str) -> Result<()> {
    if !numbered(file).unwrap_or(false) {
        return Ok(());
    }
    let got = "rows of numbered features, as in LIBSVM files; `LabelledRows` and the command read them by the \
               file's path, of one in a zip as `data.zip!train.svm`";
    Err(Error::of(
        ErrorKind::Format,
        format!("file `{}`", file.name()),
        format!("{wanted}, with words in them"),
        got,
    ))
}

/// Whether the first lines of a file are rows of numbered features.
fn numbered(file: &TextFile) -> Result<bool> {
    const LOOKED_AT: usize = 20;
    let lines = file.first_records(OneLine(|line: &str| Ok(Some(line.to_owned()))))?;
    let lines = lines.map_while(Result::ok).filter(|line| !line.trim().is_empty());
    let mut rows = lines.take(LOOKED_AT).map(|line| LabelledRow::of_line(&line, FirstIndex::Zero)).peekable();
    let entries = |row: &LabelledRow| !row.indices.is_empty();
    // A row may have no entry, but a file of labels alone is none of rows.
    let mut some = false;
    Ok(rows.peek().is_some()
        && rows.all(|row| {
            row.is_ok_and(|row| {
                row.is_none_or(|row| {
                    some |= entries(&row);
                    true
                })
            })
        })
        && some)
}
