//! A file whose records a model answers: each keeps all that it has, and gets columns more.

use std::path::Path;

use super::guess::{Task, guess};
use super::options::{FileFormat, ReadOptions};
use super::paths::{Found, by_ending, find, prepared_for};
use super::wanted::{LABEL, SOURCE, TARGET, TEXT, TOKENS, Wanted};
use super::{dictionary, fasttext, fields, json, objects, table, trees};
use crate::data::TextFile;
use crate::data::conll::{Asked, Columns, joined};
use crate::data::lines::{Lines, Reason};
use crate::data::records::{OneLine, Parser};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// What of a record is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// A text, which may have a label.
    Text,
    /// A text that becomes another one, which may be there.
    Source,
    /// Words, which may have tags.
    Words,
    /// Numbered features, which may have a label.
    Row,
}

/// A cell that an answer adds to a record.
#[derive(Debug, Clone, PartialEq)]
pub enum Added {
    /// A text.
    Text(String),
    /// A number.
    Number(f32),
    /// A text for each word.
    Words(Vec<String>),
    /// Nothing: an empty cell, `null` in JSON.
    Nothing,
}

/// A record of a file, and what of it is asked.
#[derive(Debug)]
pub struct Question {
    /// The line in which it begins, from 1 on.
    pub line: u64,
    /// What is asked, or why nothing can be; words between spaces.
    pub text: Result<String>,
    /// Its lines with their numbers, and those before it that are of no record.
    raw: Vec<(u64, String)>,
    /// Which of these lines are words, of columns.
    words: Vec<u64>,
    /// Which of these lines is the names of the columns.
    header: Option<u64>,
}

/// How an answer stands in a record.
#[derive(Debug)]
enum Form {
    /// Cells behind this separator, with quotation marks if they need them.
    Cells(char, bool),
    /// Fields of an object, or elements of a list, in a line.
    Json,
    /// The tag of each word in a column of its own, or in that of the tags.
    Columns(Columns),
    /// A comment behind a row.
    Comment,
}

/// The records of a file, one after another, read as the files of a training: none is held but the one that is given.
///
/// Columns with labels are kept, and never asked about. What is written has the order of the file and all of its columns.
///
/// ```
/// use unpadded::data::{Added, Asking, Questions, ReadOptions};
/// # let path = std::env::temp_dir().join(format!("unpadded-questions-{}.csv", std::process::id()));
/// # std::fs::write(&path, "id,review\n7,\"Fine, but dull\"\n").unwrap();
/// let mut questions = Questions::open(&path, &ReadOptions::new(), Asking::Text)?; // id,review ↵ 7,"Fine, but dull"
/// assert_eq!(questions.head(&["label", "probability"]), "id,review,label,probability\n");
/// let question = questions.next().unwrap()?;
/// assert_eq!(question.text.as_deref(), Ok("Fine, but dull"));
/// let answer = [Added::Text("blame".into()), Added::Number(0.75)];
/// assert_eq!(questions.written(&question, &answer), "7,\"Fine, but dull\",blame,0.75\n");
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), unpadded::Error>(())
/// ```
pub struct Questions {
    name: String,
    /// `None` once the file has ended.
    lines: Option<Lines>,
    parser: Box<dyn Parser<Asked>>,
    number: u64,
    /// The line in which the record begins whose lines are in `raw`.
    begun: Option<u64>,
    raw: Vec<(u64, String)>,
    form: Form,
    /// The names of the columns, if a line has them; of objects, those of the first.
    names: Vec<String>,
    /// The line with these names, and those before it.
    header: Option<Question>,
    added: Vec<String>,
    read_as: ReadOptions,
}

impl std::fmt::Debug for Questions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Questions")
            .field("name", &self.name)
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}

impl Questions {
    /// Opens a file, in gzip or zip or not. Its text is in the column that the options give, as far as the file has it; else in the one
    /// that is detected.
    ///
    /// # Errors
    /// If it is no file that has records in lines, or it has no column of the text: the message says what to set.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>, options: &ReadOptions, asking: Asking) -> Result<Self> {
        Self::of(path.as_ref(), options, asking).at_caller()
    }

    fn of(path: &Path, options: &ReadOptions, asking: Asking) -> Result<Self> {
        let (_, mut found) = find([path])?;
        let (Some(Found::File(file)), true) = (found.pop(), found.is_empty()) else {
            let what = format!("`{}`", path.display());
            let expected = "one file, or one in a zip as `some.zip!file`: ask about one after another";
            return Err(Error::of(ErrorKind::Format, what, expected, "several"));
        };
        let file = prepared_for(file, options, true)?;
        let mut options = options.told();
        options.encoded_as(&file);
        // The texts of a training may have been in folders; those of one file are in lines.
        let folders = [FileFormat::FilePerClass, FileFormat::FolderPerClass, FileFormat::Parallel];
        options.format = options.format.filter(|format| !folders.contains(format));
        let (parser, form, names) = match asking {
            Asking::Row => (of_row(), Form::Comment, Vec::new()),
            Asking::Words => of_words(&file, &mut options)?,
            Asking::Text => of_texts(&file, &mut options, Task::Labelled)?,
            Asking::Source => {
                super::languages::name_source(&file, &mut options);
                of_texts(&file, &mut options, Task::Pairs)?
            }
        };
        let mut questions = Self {
            name: file.name(),
            lines: Some(file.lines_of()?),
            parser,
            number: 0,
            begun: None,
            raw: Vec::new(),
            form,
            names,
            header: None,
            added: Vec::new(),
            read_as: options,
        };
        if matches!(questions.form, Form::Cells(..)) && !questions.names.is_empty() {
            questions.header = questions.next().transpose()?;
        }
        Ok(questions)
    }

    /// What messages call the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The format and the columns that were found.
    pub fn read_as(&self) -> &ReadOptions {
        &self.read_as
    }

    /// What comes before the first record: the line with the names of the columns, with those that are added, `predicted_` before one
    /// that the file has already; nothing of a file without such a line.
    pub fn head(&mut self, added: &[&str]) -> String {
        let own = |name: &str| match self.names.iter().any(|other| other.trim() == name) {
            true => format!("predicted_{name}"),
            false => name.to_owned(),
        };
        self.added = added.iter().map(|name| own(name)).collect();
        if matches!(self.form, Form::Columns(_)) && added.len() > 1 {
            self.read_as.notes.push("labels of texts have no column and are left out".to_owned());
        }
        let Some(header) = self.header.take() else { return String::new() };
        let names: Vec<Added> = self.added.iter().cloned().map(Added::Text).collect();
        self.lines_of(&header, &names)
    }

    /// The lines of a record with an answer; without one, with empty cells for it.
    pub fn written(&self, question: &Question, answer: &[Added]) -> String {
        let none = vec![Added::Nothing; self.added.len()];
        let answer = if answer.is_empty() { &none } else { answer };
        self.lines_of(question, answer)
    }

    /// What is behind the last record, as comments and blank lines.
    pub fn tail(&mut self) -> String {
        std::mem::take(&mut self.raw).into_iter().map(|(_, line)| line + "\n").collect()
    }

    fn lines_of(&self, question: &Question, answer: &[Added]) -> String {
        let Question { raw, words, header, text: asked, .. } = question;
        let (mut text, mut word, none) = (String::new(), 0, "_".to_owned());
        for (at, (number, line)) in raw.iter().enumerate() {
            let last = at + 1 == raw.len();
            match &self.form {
                Form::Columns(columns) => {
                    let cell = if *header == Some(*number) {
                        self.added.first()
                    } else if words.get(word) == Some(number) {
                        word += 1;
                        match answer.first() {
                            Some(Added::Words(tags)) => tags.get(word - 1),
                            _ => Some(&none),
                        }
                    } else {
                        // No tag of the file stands where an answer is expected.
                        let unasked = asked.is_err() || words.first().is_some_and(|first| number < first);
                        Some(&none).filter(|_| unasked && columns.has_all(line))
                    };
                    match cell {
                        Some(cell) => columns.with(line, cell, &mut text),
                        None => text.push_str(line),
                    }
                }
                _ if !last => text.push_str(line),
                Form::Cells(separator, quotes) => {
                    text.push_str(line);
                    for cell in answer {
                        text.push(*separator);
                        text.push_str(&quoted(&shown(cell), *separator, *quotes));
                    }
                }
                Form::Json => text.push_str(&self.json(line, answer)),
                Form::Comment => {
                    let cells: Vec<String> = self
                        .added
                        .iter()
                        .zip(answer)
                        .map(|(name, cell)| format!("{name} {}", shown(cell)))
                        .collect();
                    text.push_str(&format!("{line} # {}", cells.join(" ")));
                }
            }
            text.push('\n');
        }
        text
    }

    /// An object with fields more, or a list with elements more.
    fn json(&self, line: &str, answer: &[Added]) -> String {
        let line = line.trim_end();
        // What is no record stays as it is.
        if !line.ends_with(['}', ']']) {
            return line.to_owned();
        }
        let value = |cell: &Added| match cell {
            Added::Text(text) => serde_json::Value::from(text.as_str()),
            Added::Number(number) => {
                // As short as it is in f32.
                serde_json::from_str(&number.to_string()).unwrap_or(serde_json::Value::Null)
            }
            Added::Words(words) => words.clone().into(),
            Added::Nothing => serde_json::Value::Null,
        };
        let (inner, end) = line.split_at(line.len().saturating_sub(1));
        let mut text = inner.trim_end().to_owned();
        for (name, cell) in self.added.iter().zip(answer) {
            if !text.ends_with(['{', '[']) {
                text.push(',');
            }
            if end == "}" {
                // A later record may have a field that the first ones have not.
                let own = inner.contains(&format!("\"{name}\""));
                let name = if own { format!("predicted_{name}") } else { name.clone() };
                text.push_str(&format!("{}:", serde_json::Value::from(name)));
            }
            text.push_str(&value(cell).to_string());
        }
        text + end
    }

    fn read(&mut self) -> Result<Option<Question>> {
        let Some(mut lines) = self.lines.take() else { return Ok(None) };
        loop {
            self.number += 1;
            self.parser.at(self.number);
            let (outcome, ended) = match lines.next()? {
                Some(Ok(line)) => {
                    let outcome = self.parser.line(&line);
                    if !line.trim().is_empty() {
                        self.begun.get_or_insert(self.number);
                    }
                    self.raw.push((self.number, line.into_owned()));
                    (outcome, false)
                }
                Some(Err(reason)) => {
                    self.begun.get_or_insert(self.number);
                    self.raw.push((self.number, lines.lossy()));
                    (Err(reason), false)
                }
                None => (self.parser.end(), true),
            };
            let (text, words, header) = match outcome {
                Ok(None) if ended => return Ok(None),
                Ok(None) => continue,
                Ok(Some(Asked { text, words, header })) => (Ok(text), words, header),
                Err(reason) => {
                    let first = self.parser.spoil();
                    let what = format!("{}:{}", self.name, self.number);
                    let error = Error::of(ErrorKind::Format, what, reason.expected, reason.got);
                    if !first {
                        continue;
                    }
                    (Err(error), Vec::new(), None)
                }
            };
            if !ended {
                self.lines = Some(lines);
            }
            let line = self.begun.take().unwrap_or(self.number);
            return Ok(Some(Question { line, text, raw: std::mem::take(&mut self.raw), words, header }));
        }
    }
}

/// A record that cannot be read is an item; what ends the file is an error, and the last one.
impl Iterator for Questions {
    type Item = Result<Question>;

    fn next(&mut self) -> Option<Result<Question>> {
        self.read().transpose()
    }
}

/// A cell as text.
fn shown(cell: &Added) -> String {
    match cell {
        Added::Text(text) => text.clone(),
        Added::Number(number) => number.to_string(),
        Added::Words(words) => words.join(" "),
        Added::Nothing => String::new(),
    }
}

/// A cell of a table; without quotation marks, a separator or a line end in it becomes a space.
fn quoted(cell: &str, separator: char, quotes: bool) -> String {
    match cell.contains([separator, '"', '\n', '\r']) {
        true if quotes => format!("\"{}\"", cell.replace('"', "\"\"")),
        true => cell.replace([separator, '\n', '\r'], " "),
        false => cell.to_owned(),
    }
}

fn alone(text: String) -> Asked {
    Asked { text, ..Asked::default() }
}

/// Rows of features; a blank line and a comment are none.
fn of_row() -> Box<dyn Parser<Asked>> {
    Box::new(OneLine(|line: &str| {
        let row = line.split('#').next().unwrap_or_default().trim();
        Ok((!row.is_empty()).then(|| alone(row.to_owned())))
    }))
}

type Opened = (Box<dyn Parser<Asked>>, Form, Vec<String>);

fn of_texts(file: &TextFile, options: &mut ReadOptions, task: Task) -> Result<Opened> {
    if options.format == Some(FileFormat::Plain) {
        let line = |line: &str| Ok((!line.trim().is_empty()).then(|| alone(line.to_owned())));
        return Ok((Box::new(OneLine(line)), Form::Cells('\t', false), Vec::new()));
    }
    let told = options.format.is_some() || options.separator.is_some();
    let guess = guess(file, options, task).or_else(|e| lines_alone(file, options, e))?;
    options.format = Some(guess.format);
    let (text, label) = match task {
        Task::Pairs => (
            Wanted { what: "source", given: options.source.as_deref(), known: SOURCE },
            Wanted { what: "target", given: options.target.as_deref(), known: TARGET },
        ),
        _ => (
            Wanted { what: "text", given: options.text.as_deref(), known: TEXT },
            Wanted { what: "label", given: options.label.as_deref(), known: LABEL },
        ),
    };
    match guess.format {
        FileFormat::Trees => {
            let text = |line: &str| Ok(trees::tree(line, false)?.map(|tree| alone(tree.text)));
            Ok((Box::new(OneLine(text)), Form::Cells('\t', false), Vec::new()))
        }
        FileFormat::FastText => {
            let text = |line: &str| Ok((!line.trim().is_empty()).then(|| alone(fasttext::text(line))));
            Ok((Box::new(OneLine(text)), Form::Cells('\t', false), Vec::new()))
        }
        FileFormat::Dictionary => {
            let mut pair = dictionary::reader(options.stress);
            let word = move |line: &str| Ok(pair(line)?.map(|pair| alone(pair.source)));
            Ok((Box::new(OneLine(word)), Form::Cells('\t', false), Vec::new()))
        }
        FileFormat::JsonLines => {
            let picked = objects::picked(file, guess.format, &[text], options)?;
            of_json(file, picked, options, fields::text)
        }
        FileFormat::Parquet => Err(no_lines(file, "Parquet: write it as CSV or JSON Lines first")),
        format => {
            // Where labels are named, too, texts are not taken for them; without names, a text alone comes first.
            let both = table::Table::of(file, format, options, &[text, label]);
            let named = |table: &table::Table| table.has_header() || label.given.is_some();
            let table = match both {
                Ok(table) if named(&table) => table,
                both => match (table::Table::of(file, format, options, &[text]), both) {
                    // The label has its column, and is not where it was in the training.
                    (Ok(table), Err(e)) if !table.has_header() && table.has_column(label.given) => {
                        return Err(guess.explain(e));
                    }
                    (Ok(table), _) => table,
                    (Err(e), both) => {
                        // A file of texts alone has one column, whatever their number was in the training.
                        let first = Wanted { given: Some("1"), ..text };
                        let alone = table::Table::of(file, format, options, &[first]);
                        let alone = alone.ok().filter(|table| table.width() == 1);
                        alone.or(both.ok()).ok_or_else(|| guess.explain(e))?
                    }
                },
            };
            let wrong = |expected: &str, got: &str| {
                Err(Error::of(ErrorKind::Format, format!("file `{}`", file.name()), expected, got))
            };
            if !table.has_header()
                && table.width() > 1
                && !told
                && by_ending(&file.name()).is_none()
                && !table.has_tabs()
            {
                let expected = "a text a line, or a table: set `format` (`data.format`) to `plain` or `csv`";
                return wrong(expected, "lines with a separator in each, which may be text");
            }
            let set =
                options.told.as_deref().is_some_and(|told| told.text.is_some() || told.source.is_some());
            if !table.has_header() && !set && table.has_numbers(file)? {
                let expected = "texts: set `text` (`data.text`) to the number of their column, from 1 on";
                return wrong(expected, &format!("numbers alone in column {}", table.names().concat()));
            }
            table.note(options);
            let names = table.names().first().cloned();
            if task == Task::Pairs {
                options.source = names
            } else {
                options.text = names
            }
            (options.label, options.target) = (None, None);
            let (separator, quotes) = table.writes();
            let names = table.header(file)?;
            Ok((table.first_cells(alone), Form::Cells(separator, quotes), names))
        }
    }
}

/// A file that is no table of two columns may have a text a line.
fn lines_alone(file: &TextFile, options: &ReadOptions, error: Error) -> Result<super::guess::Guess> {
    let alone = ReadOptions { format: Some(FileFormat::Tsv), ..options.clone() };
    if options.format.is_some() || file.name().contains(".json") {
        return Err(error);
    }
    guess(file, &alone, Task::Labelled)
}

fn no_lines(file: &TextFile, got: &str) -> Error {
    let expected = "records in lines: CSV, TSV, JSON Lines, columns or a text a line";
    Error::of(ErrorKind::Format, format!("file `{}`", file.name()), expected, got)
}

/// The field of each line that `text` reads.
fn of_json(
    file: &TextFile,
    picked: objects::Picked,
    options: &mut ReadOptions,
    text: fn(&fields::Object<'_>, &str) -> Result<String, Reason>,
) -> Result<Opened> {
    options.notes.extend(picked.notes.iter().cloned());
    let name = picked.names.concat();
    if !picked.has_lines() {
        return Err(no_lines(
            file,
            "JSON that is not an object or a list a line: `jq -c '.[]'` writes it so",
        ));
    }
    options.text = Some(name.clone());
    let (fields, wanted) = (picked.fields(file), picked.names);
    let asked = move |line: &str| {
        json::of_line(line, &wanted)?.map(|object| text(&object, &name).map(alone)).transpose()
    };
    Ok((Box::new(OneLine(asked)), Form::Json, fields))
}

fn of_words(file: &TextFile, options: &mut ReadOptions) -> Result<Opened> {
    let guess = guess(file, &ReadOptions { format: None, ..options.clone() }, Task::Tagged)?;
    options.format = Some(guess.format);
    match guess.format {
        FileFormat::JsonLines => {
            let tokens = Wanted { what: "tokens", given: options.tokens.as_deref(), known: TOKENS };
            let picked = objects::picked(file, guess.format, &[tokens], options)?;
            let words = |object: &fields::Object<'_>, name: &str| joined(&fields::texts(object, name)?);
            of_json(file, picked, options, words)
        }
        FileFormat::Parquet => Err(no_lines(file, "Parquet: write it as JSON Lines first")),
        _ => {
            let Some(columns) = Columns::of_words(file, options.columns.as_deref())? else {
                options.format = Some(FileFormat::Plain);
                options.columns = None;
                let line = |line: &str| Ok((!line.trim().is_empty()).then(|| alone(line.to_owned())));
                return Ok((Box::new(OneLine(line)), Form::Cells('\t', false), Vec::new()));
            };
            options.columns = Some(Box::new(columns.clone()));
            let names = columns.titles();
            Ok((columns.asked(), Form::Columns(columns), names))
        }
    }
}
