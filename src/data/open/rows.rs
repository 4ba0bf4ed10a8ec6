//! Sparse rows of a path.

use std::path::Path;

use super::options::FileFormat;
use super::paths::{Found, by_ending, find};
use crate::data::records::OneLine;
use crate::data::{FirstIndex, LabelledRow, LabelledRows, TextFile};
use crate::error::{AtCaller, Error, ErrorKind, Result};

impl LabelledRows {
    /// The rows of LIBSVM files by their path, of several by a pattern as `data/*.svm`, of one in a zip by `data.zip!train.svm`; gzip and
    /// zip are opened. Their indices count from 0 if any of them is 0, and else from 1, as scikit-learn reads them.
    ///
    /// # Errors
    /// As [`Self::of_files`]; if the path leads to no file.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::detect(&files(path.as_ref()).at_caller()?).at_caller()
    }

    /// As [`Self::open`], of files whose indices count from `first`: a file to test on may have no index 0.
    ///
    /// # Errors
    /// As [`Self::open`]; an index below `first`.
    #[track_caller]
    pub fn open_from(path: impl AsRef<Path>, first: FirstIndex) -> Result<Self> {
        let files = files(path.as_ref()).at_caller()?;
        Self::of_files(&files, first).at_caller()
    }

    /// Whether the names of what the path leads to end as `.svm`, `.libsvm` or `.svmlight`, or the first lines are a label and numbered
    /// features each. Of what cannot be read they are not.
    pub fn are_in(path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        if let Some(format) = path.to_str().and_then(by_ending) {
            return format == FileFormat::Libsvm;
        }
        let is = |mut file: TextFile| {
            let is = numbered(&file).unwrap_or(false);
            file.close();
            is
        };
        files(path).is_ok_and(|files| files.into_iter().all(is))
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
    let got = "rows of numbered features, as in LIBSVM files, which the task `classify` alone reads: from the path of a \
               file, or of one in a zip as `data.zip!train.svm`";
    Err(Error::of(
        ErrorKind::Format,
        format!("file `{}`", file.name()),
        format!("{wanted}, with words in them"),
        got,
    ))
}

/// Whether the name of a file, or its first lines, say that it has rows of numbered features.
fn numbered(file: &TextFile) -> Result<bool> {
    const LOOKED_AT: usize = 20;
    if let Some(format) = by_ending(&file.name()) {
        return Ok(format == FileFormat::Libsvm);
    }
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
