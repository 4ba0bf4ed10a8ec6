//! Plain text of a path, for language models.

use std::path::Path;

use super::guess::{Task, guess};
use super::options::{FileFormat, ReadOptions};
use super::paths::{Found, find, is_note, prepared};
use super::wanted::{TEXT, Wanted};
use super::{fields, objects, table};
use crate::data::kind::is_markup;
use crate::data::memory::Whole;
use crate::data::{Folder, TextFile};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// Text for a language model, and what messages call where it is from.
///
/// ```
/// use unpadded::data::PlainText;
/// let (rest, last) = PlainText::new("some.txt", "one\ntwo\nthree\nfour\n").cut_off(4);
/// assert_eq!((rest.text(), last.text()), ("one\ntwo\nthree\n", "four\n"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainText {
    name: String,
    text: String,
    read_as: ReadOptions,
}

/// The text of a file; what was decided about it is added to `read_as`.
fn of_file(file: &TextFile, options: &ReadOptions, read_as: &mut ReadOptions) -> Result<String> {
    let guess = guess(file, options, Task::Plain)?;
    let wanted = [Wanted { what: "text", given: options.text.as_deref(), known: TEXT }];
    let alone = read_as.format.is_none();
    let mut decided = |name: &str, notes: &[String]| {
        if alone {
            (read_as.format, read_as.text) = (Some(guess.format), Some(name.to_owned()));
            read_as.notes.extend(notes.iter().cloned());
        }
    };
    let mut read = || match guess.format {
        FileFormat::Plain => file.text(),
        format @ (FileFormat::JsonLines | FileFormat::Parquet) => {
            let picked = objects::picked(file, format, &wanted, options)?;
            let name = picked.names.concat();
            decided(&name, &picked.notes);
            let line = move |object: &fields::Object| fields::text(object, &name).map(|text| text + "\n");
            picked.records(file, line)?.collect()
        }
        format => {
            let table = table::Table::of(file, format, options, &wanted)?;
            decided(&table.names().concat(), table.notes());
            table.records(file, |cell| cell(0) + "\n")?.collect()
        }
    };
    let found = read().map_err(|e| guess.explain(e));
    if alone {
        read_as.encoded_as(file);
    }
    found
}

impl PlainText {
    /// This text; `name` is what messages call it.
    pub fn new(name: &str, text: impl Into<String>) -> Self {
        Self { name: name.to_owned(), text: text.into(), read_as: ReadOptions::default() }
    }

    /// The text of a file; of all files of a folder, a zip or a pattern such as `data/*.txt`, one behind the other; or that of a column
    /// between tabs or commas, of JSON Lines or of Parquet, a record behind the other.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with([path], &ReadOptions::default())
    }

    /// The text of these paths, one behind the other, read as the options say.
    ///
    /// # Errors
    /// As [`Self::open`]; if there is no path, or no column of the name that is given.
    #[track_caller]
    pub fn open_with<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        options: &ReadOptions,
    ) -> Result<Self> {
        let read = || {
            let _whole = Whole::begin();
            let (name, found) = find(paths)?;
            let mut files = Vec::new();
            for one in found {
                match one {
                    Found::File(file) => files.push(file),
                    Found::Folder(path) => {
                        for (_, file) in Folder::open(path)?.retain(|below| !is_note(below))?.files() {
                            files.push(file.clone());
                        }
                    }
                }
            }
            let set = options.format == Some(FileFormat::Plain);
            let markup = set || files.iter().all(|file| is_markup(&file.name()));
            let (mut text, mut read_as) = (String::new(), ReadOptions::new());
            for file in files {
                let file = prepared(file.markup(markup), options)?;
                // A text of one file is not copied.
                match text.is_empty() {
                    true => text = of_file(&file, options, &mut read_as)?,
                    false => {
                        if !text.ends_with('\n') {
                            text.push('\n');
                        }
                        text += &of_file(&file, options, &mut read_as)?;
                    }
                }
            }
            if text.is_empty() {
                return Err(Error::of(ErrorKind::Format, format!("text of `{name}`"), "some", "none"));
            }
            Ok(Self { name, text, read_as })
        };
        read().at_caller()
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The format and the column that were detected, and why.
    pub fn read_as(&self) -> &ReadOptions {
        &self.read_as
    }

    /// The text, taken out.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Cuts off about the last one of so many parts, at the end of a line if there is one: to choose by. The rest comes first; of 0,
    /// nothing is cut off.
    #[must_use]
    pub fn cut_off(self, one_in: u64) -> (Self, Self) {
        let size = self.text.len() as u64;
        let mut place = (size - size.checked_div(one_in).unwrap_or(0)) as usize;
        while !self.text.is_char_boundary(place) {
            place -= 1;
        }
        if let (Some(line), true) = (self.text[..place].rfind('\n'), one_in > 0) {
            place = line + 1;
        }
        let (rest, last) = self.text.split_at(place);
        let name = crate::data::hold_out::held_name(&self.name);
        let last = Self { name, text: last.to_owned(), read_as: self.read_as.clone() };
        (Self { name: self.name, text: rest.to_owned(), read_as: self.read_as }, last)
    }
}
