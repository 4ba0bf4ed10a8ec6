//! Headers that are repeated below: a table may consist of several files with a header each, one behind the other.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::source::reason::Reason;
use crate::source::records::{Remark, shown};

/// The names of files, and the numbers of lines.
type FileLines = BTreeSet<(Arc<str>, u64)>;

/// The lines in which files that were joined have the header of the first file again. All passes add the same lines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RepeatedHeaders(Remark<Arc<Mutex<FileLines>>>);

impl RepeatedHeaders {
    fn lines(&self) -> MutexGuard<'_, FileLines> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, file: &Arc<str>, line: u64) {
        self.lines().insert((Arc::clone(file), line));
    }

    /// Returns a note for the user: the number of these lines that were read so far, and the first lines.
    pub(crate) fn note(&self) -> Option<String> {
        const SHOWN: usize = 3;
        let lines = self.lines();
        let first: Vec<String> =
            lines.iter().take(SHOWN).map(|(file, line)| format!("{file}:{line}")).collect();
        let (plural, more) =
            (if lines.len() == 1 { "" } else { "s" }, if lines.len() > SHOWN { ", …" } else { "" });
        (!lines.is_empty()).then(|| {
            format!("header repeated in {} line{plural}, left out: {}{more}", lines.len(), first.join(", "))
        })
    }
}

/// Returns the rows without those that repeat the first row; `None` if there are no such rows.
pub(crate) fn without_repetitions(rows: &[Vec<String>]) -> Option<Vec<Vec<String>>> {
    let (first, below) = rows.split_first()?;
    let is_again = |row: &&Vec<String>| matches!(repeats(first, row), Ok(true));
    below.iter().any(|row| is_again(&row)).then(|| {
        let others = below.iter().filter(|row| !is_again(row));
        std::iter::once(first).chain(others).cloned().collect()
    })
}

/// Returns whether a later row repeats the header. The row may begin with a byte order mark, if files were joined.
///
/// # Errors
/// Fails if the row has the names of the header in another order: the columns change with this row.
pub(crate) fn repeats(header: &[String], row: &[String]) -> Result<bool, Reason> {
    let name = |cell: &String| cell.trim().trim_start_matches('\u{feff}').to_owned();
    let is_name = |cell: &String| header.iter().any(|own| name(own) == name(cell));
    if header.len() < 2 || row.len() != header.len() || !row.iter().all(is_name) {
        return Ok(false);
    }
    let [mut names, mut cells] = [header, row].map(|row| row.iter().map(name).collect::<Vec<_>>());
    if names == cells {
        return Ok(true);
    }
    let got = format!("the header again, with its columns in another order, in {}", shown(&row.join(" | ")));
    names.sort();
    cells.sort();
    match names == cells {
        true => Err(Reason::of("a record", format!("{got}: divide the file before this line"))),
        false => Ok(false),
    }
}
