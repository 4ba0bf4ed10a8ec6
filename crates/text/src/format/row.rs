//! A record of a file as a row of the wanted columns, whatever format the file has.

use super::conll::Sentence;
use super::fields::{self, Object};
use crate::source::reason::Reason;
use crate::source::records::of_columns;

/// A record of a file. The wanted columns are numbered from 0, in the order in which a reader wants them.
pub(crate) enum FileRow<'a> {
    Cells(&'a mut [String]),
    /// A record with named fields, and the name of each wanted field.
    Object(&'a Object<'a>, &'a [String]),
    Sentence(Sentence),
}

/// Makes a record of a row; also gets the number of the row's last line, or 0 if the row is no line.
pub(crate) type RecordMaker<R> = Box<dyn FnMut(FileRow<'_>, u64) -> Result<R, Reason> + Send>;

fn cell(cells: &mut [String], column: usize) -> String {
    let mut cell = cells.get_mut(column).map(std::mem::take).unwrap_or_default();
    // A data set in memory holds the cell.
    cell.shrink_to_fit();
    cell
}

fn name(names: &[String], column: usize) -> &str {
    names.get(column).map_or("", String::as_str)
}

impl FileRow<'_> {
    pub(crate) fn text(&mut self, column: usize) -> Result<String, Reason> {
        match self {
            Self::Cells(cells) => Ok(cell(cells, column)),
            Self::Object(object, names) => fields::text(object, name(names, column)),
            Self::Sentence(_) => Err(Reason::of("a text", "a sentence of words")),
        }
    }

    /// Takes the text of the first `count` columns. If `pair` is true, the last of several columns is a second text.
    pub(crate) fn texts(&mut self, count: usize, pair: bool) -> Result<String, Reason> {
        match self {
            Self::Cells(_) if count == 1 => self.text(0),
            Self::Cells(cells) => Ok(of_columns((0..count).map(|column| cell(cells, column)).collect())),
            Self::Object(object, names) => {
                fields::text_in(object, names.get(..count).unwrap_or_default(), fields::text, pair)
            }
            Self::Sentence(_) => self.text(0),
        }
    }

    /// Takes the trimmed label in a column; if `lists` is true, a field may have a list of labels.
    pub(crate) fn label(&mut self, column: usize, lists: bool) -> Result<String, Reason> {
        match self {
            Self::Cells(cells) => {
                let label = cell(cells, column);
                Ok(if label.trim().len() == label.len() { label } else { label.trim().to_owned() })
            }
            Self::Object(object, names) => fields::label(object, name(names, column), lists),
            Self::Sentence(_) => self.text(column),
        }
    }

    /// Returns the lists of words and of tags in the first two columns.
    pub(crate) fn words(self) -> Result<[Vec<String>; 2], Reason> {
        match self {
            Self::Cells(_) => Err(Reason::of("a list of words", "a cell")),
            Self::Object(object, names) => Ok([
                fields::list(object, name(names, 0), false)?,
                fields::list(object, name(names, 1), true)?,
            ]),
            Self::Sentence(Sentence { words, tags, .. }) => Ok([words, tags]),
        }
    }
}
