//! Opens plain text from a path, for language models.

use std::convert::Infallible;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use unpadded::{AtCaller, Error, ErrorKind, Result};

use super::plan::{Opener, Plan, StreamOpener};
use crate::dataset::data_set::{DataSet, DataStorage, held_name};
use crate::dataset::record_source::RecordSource;
use crate::detect::column::{Column, TEXT};
use crate::detect::form::FileForm;
use crate::detect::guess::guess;
use crate::detect::options::ReadOptions;
use crate::format::{FileFormat, FormatKind, Task};
use crate::memory::Whole;
use crate::source::kind::is_markup;
use crate::source::lines::quoted;
use crate::source::paths::{PathContent, find, is_note, prepared};
use crate::source::reason::wrong_format;
use crate::source::records::Stream;
use crate::{Folder, TextFile};

/// A text for a language model, in memory. [`DataSet::open`] reads a file, or all files of a folder, a zip or a pattern such
/// as `data/*.txt`, in order. From a table, JSON Lines or Parquet, one column is read, in the order of the records.
///
/// ```
/// use unpadded_text::PlainText;
/// let (rest, last) = PlainText::new("some.txt", "one\ntwo\nthree\nfour\n").hold_out_end(4);
/// assert_eq!((rest.text(), last.text()), ("one\ntwo\nthree\n", "four\n"));
/// ```
pub type PlainText = DataSet<String, String>;

/// Returns whether a quarter of the lines begin with a mark of HTML or XML, and a mark ends; there may be no root.
fn is_fragment(lines: &[String]) -> bool {
    let marks = lines.iter().filter(|line| line.trim_start().starts_with('<') && line.contains('>')).count();
    marks > 0
        && marks * 4 >= lines.len()
        && lines.iter().any(|line| line.contains("</") || line.contains("/>"))
}

/// Returns a note if the first lines look like markup, a table or subtitles, and the format is not set.
fn unlike_text(file: &TextFile, options: &ReadOptions) -> Result<Option<String>> {
    const LOOKED_AT: usize = 20;
    if options.format.is_some() {
        return Ok(None);
    }
    let lines = file.head_lines(LOOKED_AT)?;
    let even = |separator: char| {
        let count = lines.first().map_or(0, |line| line.matches(separator).count());
        lines.len() > 2 && count > 0 && lines.iter().all(|line| line.matches(separator).count() == count)
    };
    let starts = ["<?xml", "<!doctype", "<html", "<tei"];
    let is_markup =
        |line: &String| starts.iter().any(|start| line.trim_start().to_lowercase().starts_with(start));
    let other = match () {
        () if lines.first().is_some_and(is_markup) || is_fragment(&lines) => "the marks of HTML or XML",
        () if lines.iter().filter(|line| line.contains(" --> ")).count() > 1 => {
            "the numbers and times of subtitles"
        }
        () => "",
    };
    if !other.is_empty() {
        let advice = "convert the file to text if they should not be";
        return Ok(Some(format!("{other} are part of the text: {advice}")));
    }
    let table = [('|', "a bar"), ('\t', "a tab")].into_iter().find(|(separator, _)| even(*separator));
    Ok(table.map(|(_, name)| {
        format!("each of the first lines has as many cells behind {name}: `data.format = \"csv\"` with `data.text` reads one column of a table")
    }))
}

/// Opens a file of plain text; stores its format and column in `read_as`, unless an earlier file has set it.
fn of_file(
    file: &TextFile,
    options: &ReadOptions,
    whole: bool,
    read_as: &mut ReadOptions,
) -> Result<Stream<String>> {
    let guess = guess(file, options, Task::Plain)?;
    let alone = read_as.format.is_none();
    let mut read = || -> Result<Stream<String>> {
        options.only_of_tables(guess.format, &format!("file `{}`", file.name()))?;
        if let FormatKind::Text = guess.format.kind() {
            if alone {
                read_as.format = Some(guess.format);
                read_as.notes.extend(unlike_text(file, options)?);
            }
            return file.pieces(whole);
        }
        let form = FileForm::of(file, guess.format, options, &Column::several("text", &options.text, TEXT))?;
        if alone {
            let (names, notes, _) = form.choice();
            (read_as.format, read_as.text) = (Some(guess.format), vec![names.concat()]);
            read_as.notes.extend(notes.iter().cloned().chain(form.unread()));
        }
        form.records(file, Box::new(|mut row, _| Ok(row.text(0)? + "\n")))
    };
    let found = read().map_err(|e| guess.explain(e))?;
    if alone {
        read_as.encoded_as(file);
    }
    Ok(guess.explained(found))
}

/// Returns the plan for reading the text in pieces. `window`: the encoding is detected from the first bytes alone; `whole`:
/// the text must not exceed the maximum length of a text.
fn plan(paths: &[PathBuf], options: &ReadOptions, [window, whole]: [bool; 2]) -> Result<Plan<String>> {
    let options = &options.unlogged();
    let (name, found) = find(paths)?;
    if options.text.len() > 1 {
        let what = format!("columns of the text (`data.text` in a config) of `{name}`");
        let got = quoted(&options.text);
        let error = wrong_format(what, "one column, since plain text is read from one column", got);
        return Err(error.noted("set `data.text` to one of these columns"));
    }
    let mut files = Vec::new();
    for one in found {
        match one {
            PathContent::File(file) => files.push(file),
            PathContent::Folder(path) => {
                let folder = Folder::open(path)?.retain(|below| !is_note(below))?;
                files.extend(folder.files().iter().map(|(_, file)| file.clone()));
            }
        }
    }
    let set = options.format == Some(FileFormat::Plain);
    let markup = set || files.iter().all(|file| is_markup(&file.name()));
    let mut read_as = ReadOptions { skips: options.skips.clone(), ..ReadOptions::new() };
    if let Some(first) = files.first_mut() {
        *first = prepared(first.clone().markup(markup), options, window)?;
        drop(of_file(first, options, whole, &mut read_as)?);
        *first = first.reopened();
    }
    let input = |(number, file): (usize, TextFile)| -> Opener<String> {
        let options = options.clone();
        Box::new(move || {
            let file = match number {
                0 => file.clone(),
                _ => prepared(file.clone().markup(markup), &options, window)?,
            };
            of_file(&file, &options, whole, &mut ReadOptions::new())
        })
    };
    let inputs: Vec<Opener<String>> = files.into_iter().enumerate().map(input).collect();
    let lines = |piece: &String| piece.matches('\n').count() as u64;
    Ok(Plan::of(name, read_as, vec![lines_apart(inputs)]).checked(lines))
}

/// Reads the pieces of several inputs; a missing line feed between two inputs is added.
fn lines_apart(inputs: Vec<Opener<String>>) -> Opener<String> {
    let inputs: Arc<[Opener<String>]> = inputs.into();
    Box::new(move || {
        let (inputs, mut within) = (Arc::clone(&inputs), false);
        let opened = (0..).map_while(move |at: usize| inputs.get(at).map(|open| open()));
        // `None` is the start of an input.
        let pieces = opened.flat_map(|opened| -> Box<dyn Iterator<Item = _> + Send> {
            match opened {
                Ok(pieces) => Box::new(std::iter::once(None).chain(pieces.map(Some))),
                Err(e) => Box::new(std::iter::once(Some(Err(e)))),
            }
        });
        Ok(Box::new(pieces.filter_map(move |piece: Option<Result<String>>| {
            let was = std::mem::take(&mut within);
            within = matches!(&piece, Some(Ok(piece)) if !piece.ends_with('\n'));
            if piece.is_none() { was.then(|| Ok("\n".to_owned())) } else { piece }
        })))
    })
}

/// Text for a language model in files that may be larger than memory. Each pass opens the files again and reads pieces
/// of about a mebibyte. The pieces together are exactly the text of [`PlainText`].
///
/// ```
/// use unpadded_text::PlainFiles;
/// # let path = std::env::temp_dir().join(format!("unpadded-plain-{}.txt", std::process::id()));
/// # std::fs::write(&path, "one\ntwo\nthree\nfour\n").unwrap();
/// let text = PlainFiles::open(&path)?; // one ↵ two ↵ three ↵ four ↵
/// let (rest, last) = text.hold_out_end(4)?;
/// assert_eq!(rest.pieces().collect::<Result<String, _>>()?, "one\ntwo\nthree\n");
/// assert_eq!(last.pieces().collect::<Result<String, _>>()?, "four\n");
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), unpadded::Error>(())
/// ```
pub type PlainFiles = DataSet<String, FileText>;

/// The text of [`PlainFiles`].
#[derive(Debug, Clone)]
pub struct FileText {
    whole: StreamOpener<String>,
    /// The range of bytes of the whole text that this value covers: all bytes, or one part of [`PlainFiles::hold_out_end`].
    bytes: Range<u64>,
}

impl FileText {
    fn planned(Plan { name, options, records }: Plan<String>) -> PlainFiles {
        DataSet::of_records(name, Self { whole: records, bytes: 0..u64::MAX }, options)
    }
}

impl DataStorage<String> for FileText {
    fn open(paths: &[PathBuf], options: &ReadOptions) -> Result<PlainFiles> {
        plan(paths, options, [true, false]).map(Self::planned)
    }
}

impl PlainFiles {
    /// Iterates over the pieces of the text. If a file cannot be read, the error is the last item of the iterator.
    pub fn pieces(&self) -> Box<dyn Iterator<Item = Result<String>> + Send> {
        let (mut at, bytes) = (0, self.records.bytes.clone());
        let within = move |piece: Result<String>| -> Option<Option<Result<String>>> {
            let Ok(piece) = &piece else { return Some(Some(piece)) };
            let begin = at;
            at += piece.len() as u64;
            if begin >= bytes.end {
                return None;
            }
            let offset = |offset: u64| offset.saturating_sub(begin).min(piece.len() as u64) as usize;
            let part = piece.get(offset(bytes.start)..offset(bytes.end)).unwrap_or_default();
            Some((!part.is_empty()).then(|| Ok(part.to_owned())))
        };
        Box::new(self.records.whole.open().map_while(within).flatten())
    }

    /// Divides the text into training data and validation data, as [`PlainText::hold_out_end`] does: the validation data is
    /// the last part of the text, about 1/`one_in` of the whole text. `cut_off` reads the files twice.
    ///
    /// # Errors
    /// Fails if a file is malformed or cannot be read.
    #[track_caller]
    pub fn hold_out_end(self, one_in: u64) -> Result<(Self, Self)> {
        let mut size = 0;
        for piece in self.pieces() {
            size += piece.at_caller()?.len() as u64;
        }
        let offset = offset_in(self.pieces(), size, one_in).at_caller()?;
        let FileText { whole, bytes: Range { start, end } } = self.records;
        let (middle, end) = (start + offset, end.min(start.saturating_add(size)));
        let last = FileText { whole: whole.clone(), bytes: middle..end };
        let last = Self::of_records(held_name(&self.name), last, self.read_as.clone());
        Ok((Self::of_records(self.name, FileText { whole, bytes: start..middle }, self.read_as), last))
    }
}

/// Returns where the last 1/`one_in` of a text of `size` bytes begins, at the start of a line if possible.
fn offset_in<T: AsRef<str>, E>(
    pieces: impl IntoIterator<Item = Result<T, E>>,
    size: u64,
    one_in: u64,
) -> Result<u64, E> {
    let mut offset = size - size.checked_div(one_in).unwrap_or(0);
    let (mut begin, mut line) = (0, None);
    for piece in pieces {
        let piece = piece?;
        let piece = piece.as_ref();
        let mut within = (offset - begin).min(piece.len() as u64) as usize;
        while !piece.is_char_boundary(within) {
            within -= 1;
        }
        let before = piece.get(..within).unwrap_or_default();
        line = before.rfind('\n').map(|at| begin + at as u64 + 1).or(line);
        if begin + (piece.len() as u64) >= offset {
            offset = begin + within as u64;
            break;
        }
        begin += piece.len() as u64;
    }
    Ok(line.filter(|_| one_in > 0).unwrap_or(offset))
}

/// A text that is held in memory if it fits a limit, and that is otherwise read from its files.
pub type PlainSource = RecordSource<String, String, FileText>;

impl DataStorage<String> for String {
    fn open(paths: &[PathBuf], options: &ReadOptions) -> Result<PlainText> {
        match PlainText::read_from(paths, options, usize::MAX)? {
            PlainSource::Memory(text) => Ok(text),
            PlainSource::Files(files) => {
                let what = format!("text of `{}`", files.name);
                Err(Error::of(ErrorKind::Memory, what, "a size that fits into memory", "more"))
            }
        }
    }
}

impl PlainText {
    /// Returns a text in memory; messages show `name` as the name of the text.
    pub fn new(name: &str, text: impl Into<String>) -> Self {
        Self::of_records(name.to_owned(), text.into(), ReadOptions::default())
    }

    /// Reads the text into memory if it takes at most `most` bytes; otherwise, each pass over the text reads the files.
    ///
    /// # Errors
    /// Fails as [`Self::open_with`] does.
    #[track_caller]
    pub fn read_within(paths: &[PathBuf], options: &ReadOptions, most: usize) -> Result<PlainSource> {
        Self::read_from(paths, options, most).at_caller()
    }

    fn read_from(paths: &[PathBuf], options: &ReadOptions, most: usize) -> Result<PlainSource> {
        let _whole = Whole::begin();
        let plan = plan(paths, options, [false, most == usize::MAX])?;
        let mut text = String::new();
        for piece in plan.records.open() {
            let piece = piece?;
            if text.len() + piece.len() > most {
                return Ok(PlainSource::Files(FileText::planned(plan)));
            }
            text.push_str(&piece);
        }
        if text.is_empty() {
            return Err(wrong_format(format!("text of `{}`", plan.name), "some", "none"));
        }
        Ok(PlainSource::Memory(Self::of_records(plan.name, text, plan.options)))
    }

    /// Returns pieces of about a mebibyte, which end after a line end or, if there is none, after a space or tab.
    pub fn pieces(&self) -> impl Iterator<Item = &str> {
        const PIECE: usize = 1 << 20;
        let mut rest = self.text();
        std::iter::from_fn(move || {
            let mut end = rest.len().min(PIECE);
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
            if end < rest.len() {
                let whole = rest.get(..end).unwrap_or_default();
                end = whole.rfind('\n').or_else(|| whole.rfind([' ', '\t'])).map_or(end, |at| at + 1);
            }
            let (piece, behind) = rest.split_at_checked(end)?;
            rest = behind;
            (!piece.is_empty()).then_some(piece)
        })
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.records
    }

    /// Divides the text into training data and validation data. The validation data is the last part of the text, about
    /// 1/`one_in` of the whole text; it begins at the start of a line if possible. Returns the training data, then the
    /// validation data; with `one_in` 0, the validation data is empty.
    #[must_use]
    pub fn hold_out_end(mut self, one_in: u64) -> (Self, Self) {
        let Ok(offset) = offset_in([Ok::<_, Infallible>(self.text())], self.text().len() as u64, one_in);
        let last = self.records.split_off(offset as usize);
        self.records.shrink_to_fit();
        let last = Self::of_records(held_name(&self.name), last, self.read_as.clone());
        (self, last)
    }
}
