//! Headers that are repeated below: a table may consist of several files with a header each, one behind the other.

use crate::detect::column::{SURE, plain};
use crate::source::reason::Reason;
use crate::source::records::shown;

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
    fn name(cell: &str) -> &str {
        cell.trim().trim_start_matches('\u{feff}')
    }
    let is_name = |cell: &String| header.iter().any(|own| name(own).eq_ignore_ascii_case(name(cell)));
    // A single cell may be an innocent text, unless it is a name that is always one of a column.
    let sure = |header: &[String]| matches!(header, [one] if SURE.contains(&&*plain(name(one))));
    if row.len() != header.len() || !row.iter().all(is_name) || !(header.len() > 1 || sure(header)) {
        return Ok(false);
    }
    let [mut names, mut cells] =
        [header, row].map(|row| row.iter().map(|cell| plain(name(cell))).collect::<Vec<_>>());
    if names == cells {
        return Ok(true);
    }
    let got = format!("the header again, with its columns in another order, in {}", shown(&row.join(" | ")));
    names.sort_unstable();
    cells.sort_unstable();
    match names == cells {
        true => Err(Reason::of("a record", format!("{got}: divide the file before this line"))),
        false => Ok(false),
    }
}
