//! Reads the records of a file for prediction, and writes each record unchanged with added columns for the answers.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;

use unpadded::{AtCaller, Error, Result};

use super::answers::{AnswerCell, AnswerColumns, Form, Question, Raw};
use super::asked::{AnswerPlan, Source};
use crate::detect::options::ReadOptions;
use crate::format::conll::SentenceWords;
#[cfg(feature = "parquet")]
use crate::format::parquet;
use crate::format::{FileFormat, FormatKind};
use crate::source::lines::{Lines, count_parsed};
use crate::source::paths::{PathContent, find, prepared_as};
use crate::source::reason::{Reason, wrong_format};
use crate::source::records::{OneLine, Parser};
use crate::{Encoding, LabelledText, Pair, TextFile};

/// The type of input for which the model predicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionKind {
    /// A text, which may have a label.
    Text,
    /// A source text, which may have a target.
    Source,
    /// Words, which may have tags; or a text, whose words spaces separate.
    Words,
    /// Numbered features, which may have a label.
    Row,
}

/// A reader of a file's records for prediction, which holds one record. The file is read like a training file.
///
/// Label columns are copied to the output; the model never gets them. The output has the same record order, columns and
/// line ends as the file, and is encoded in UTF-8.
///
/// ```
/// use unpadded_text::{AnswerCell, QuestionKind, Questions, ReadOptions};
/// # let path = std::env::temp_dir().join(format!("unpadded-questions-{}.csv", std::process::id()));
/// # let to = path.with_extension("out.csv");
/// # std::fs::write(&path, "id,review\n7,\"Fine, but dull\"\n").unwrap();
/// let mut questions = Questions::open(&path, &ReadOptions::new(), QuestionKind::Text)?; // id,review ↵ 7,"Fine, but dull"
/// questions.write_to(Box::new(std::fs::File::create(&to).unwrap()), &["label", "probability"])?;
/// let question = questions.next().unwrap()?;
/// assert_eq!(question.text.as_deref(), Ok("Fine, but dull"));
/// questions.answer(&question, &[AnswerCell::Text("blame".into()), AnswerCell::Number(0.75)])?;
/// questions.finish()?;
/// assert_eq!(std::fs::read_to_string(&to).unwrap(), "id,review,label,probability\n7,\"Fine, but dull\",blame,0.75\n");
/// # std::fs::remove_file(&path).unwrap();
/// # std::fs::remove_file(&to).unwrap();
/// # Ok::<(), unpadded::Error>(())
/// ```
pub struct Questions {
    file: TextFile,
    name: String,
    records: Records,
    adds: AnswerColumns,
    /// The header, with the lines before it; `None` without a header, or once the header is written.
    header: Option<Question>,
    out: AnswerOutput,
    read_as: ReadOptions,
}

/// The source of the records: lines of text, or rows of a Parquet file.
enum Records {
    Lines(Box<OfLines>),
    #[cfg(feature = "parquet")]
    Rows(Box<parquet::RowTexts>),
}

/// A reader of the records in the lines of a file.
struct OfLines {
    name: String,
    /// The unread lines of the file; `None` after the last line.
    lines: Option<Lines>,
    /// Lines to parse once more: they were first read as part of a record whose closing quotation mark is missing.
    again: VecDeque<Raw>,
    /// The first line of the last malformed record of several lines, and the reason; no reason if it depends on that line.
    failed: Option<(u64, Option<Reason>)>,
    /// The bytes of the lines to parse once more.
    waiting: usize,
    /// How many bytes may still be parsed once more in open cells: at first, twice the bytes of a malformed record.
    left: usize,
    parser: Box<dyn Parser<SentenceWords>>,
    number: u64,
    /// The number of the first line of the record that is being read; `None` between two records.
    begun: Option<u64>,
    raw: Vec<Raw>,
    /// The line end that the file uses, for lines that the writer adds.
    end: &'static str,
    /// Whether the file begins with a byte order mark; the output then begins with one, too.
    marked: bool,
    blank: bool,
}

enum AnswerOutput {
    Nowhere,
    Text(Box<dyn Write + Send>),
    #[cfg(feature = "parquet")]
    Rows(Box<parquet::write::Answers>),
}

impl std::fmt::Debug for Questions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Questions")
            .field("name", &self.name)
            .field("adds", &self.adds)
            .finish_non_exhaustive()
    }
}

impl Questions {
    /// Opens a file for prediction: plain, or compressed with gzip or zip. The text is read from the column that the
    /// options name if the file has this column, otherwise from the detected column. A text of several columns
    /// ([`ReadOptions::texts`]) is read from all these columns. In a file without columns, each line is a whole text,
    /// with tabs between the parts of the text.
    ///
    /// # Errors
    /// Fails if the records are not lines or rows, as in a file with one JSON list, or if the text column is missing.
    /// The message names the option to set.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>, options: &ReadOptions, asking: QuestionKind) -> Result<Self> {
        Self::of(path.as_ref(), options, asking).at_caller()
    }

    fn of(path: &Path, options: &ReadOptions, asking: QuestionKind) -> Result<Self> {
        let (_, mut found) = find([path])?;
        let (Some(PathContent::File(file)), true) = (found.pop(), found.is_empty()) else {
            let what = format!("`{}`", path.display());
            let expected = "one file, or one file of a zip (`some.zip!file`): predict for one file at a time";
            return Err(wrong_format(what, expected, "several files"));
        };
        let trained = options.found.encoding.and_then(|name| name.parse().ok());
        let file = prepared_as(file, options, trained.unwrap_or_default())?;
        let mut options = options.unlogged().as_set();
        // The training texts may have been in folders; in the single file to predict for, the texts are in lines.
        options.format = options.format.filter(|format| !matches!(format.kind(), FormatKind::Folders(_)));
        let opened = match asking {
            _ if is_blank(&file)? => {
                let notes = vec!["a file without text".to_owned()];
                options = ReadOptions { notes, ..ReadOptions::new() };
                // A blank line is a record of plain text only.
                let blank = asking != QuestionKind::Row && FileFormat::of_name(&file.name()).is_none();
                AnswerPlan { blank, ..AnswerPlan::plain() }
            }
            QuestionKind::Row => {
                options.notes.push("rows of features".to_owned());
                AnswerPlan::rows()
            }
            QuestionKind::Words => AnswerPlan::words(&file, &mut options)?,
            QuestionKind::Text => AnswerPlan::texts::<LabelledText>(&file, &mut options)?,
            QuestionKind::Source => {
                crate::detect::languages::name_source(&file, &mut options);
                AnswerPlan::texts::<Pair>(&file, &mut options)?
            }
        };
        let AnswerPlan { source, form, names, header, blank } = opened;
        let records = match source {
            Source::Lines(parser) => {
                options.encoded_as(&file);
                if file.characters().0 != Encoding::Utf8 || is_utf_16(&file)? {
                    options.notes.push("answers are written in UTF-8".to_owned());
                }
                Records::Lines(Box::new(OfLines {
                    name: file.name(),
                    lines: Some(file.lines_of()?),
                    again: VecDeque::new(),
                    failed: None,
                    waiting: 0,
                    left: 0,
                    parser,
                    number: 0,
                    begun: None,
                    raw: Vec::new(),
                    end: "\n",
                    marked: false,
                    blank,
                }))
            }
            #[cfg(feature = "parquet")]
            Source::Rows(fields, text) => {
                Records::Rows(Box::new(parquet::RowTexts::open(&file, fields, text, options.pair)?))
            }
        };
        let adds = AnswerColumns { form, names, added: Vec::new() };
        let (name, out) = (file.name(), AnswerOutput::Nowhere);
        let mut questions = Self { file, name, records, adds, header: None, out, read_as: options };
        if header {
            questions.header = questions.read()?;
        }
        Ok(questions)
    }

    /// Returns the name that messages show for the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the options with the detected format and columns.
    pub fn read_as(&self) -> &ReadOptions {
        &self.read_as
    }

    /// Returns the share of the file that was read, from 0 to 1; `None` for a file in a zip.
    pub fn share(&self) -> Option<f32> {
        match &self.records {
            Records::Lines(_) => self.file.share(),
            #[cfg(feature = "parquet")]
            Records::Rows(rows) => Some(rows.share()),
        }
    }

    /// Returns whether the records of words ([`QuestionKind::Words`]) are texts in a column or field of their own.
    pub fn are_to_tag(&self) -> bool {
        !self.read_as.text.is_empty()
    }

    /// Returns whether the output consists of lines of text; `false` for a Parquet file, which gives Parquet output.
    pub fn has_lines(&self) -> bool {
        matches!(self.records, Records::Lines(_))
    }

    /// Starts the output, and writes the lines before the first record, such as the header. `added` has the names of
    /// the added columns; a name that is already a column of the file gets the prefix `predicted_`.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    #[track_caller]
    pub fn write_to(&mut self, out: Box<dyn Write + Send>, added: &[&str]) -> Result<()> {
        self.read_as.notes.extend(self.adds.name(added));
        #[cfg(feature = "parquet")]
        if let Records::Rows(_) = self.records {
            let answers = parquet::write::Answers::new(&self.file, self.adds.added.clone(), out);
            self.out = AnswerOutput::Rows(Box::new(answers.at_caller()?));
            return Ok(());
        }
        self.out = AnswerOutput::Text(out);
        let Some(header) = self.header.take() else { return Ok(()) };
        let names: Vec<AnswerCell> = self.adds.added.iter().cloned().map(AnswerCell::Text).collect();
        self.write(&header, &names).at_caller()
    }

    /// Writes a record with its answer in the added columns; a column for which `answer` has no cell is empty. The
    /// records must be written in the order in which they were read.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    #[track_caller]
    pub fn answer(&mut self, question: &Question, answer: &[AnswerCell]) -> Result<()> {
        self.write(question, answer).at_caller()
    }

    fn write(&mut self, question: &Question, answer: &[AnswerCell]) -> Result<()> {
        match &mut self.out {
            AnswerOutput::Nowhere => Ok(()),
            AnswerOutput::Text(_) => {
                let text = self.adds.lines_of(question, answer);
                self.text(question.raw.first().map(|line| line.number), &text)
            }
            #[cfg(feature = "parquet")]
            AnswerOutput::Rows(answers) => answers.add(answer),
        }
    }

    fn text(&mut self, first: Option<u64>, text: &str) -> Result<()> {
        let AnswerOutput::Text(out) = &mut self.out else { return Ok(()) };
        let marked = matches!(&self.records, Records::Lines(lines) if lines.marked);
        let mark = if marked && first == Some(1) { "\u{feff}" } else { "" };
        let written = out.write_all(mark.as_bytes()).and_then(|()| out.write_all(text.as_bytes()));
        written.map_err(|e| Error::io("answers", "write", &e))
    }

    /// Writes the lines after the last record, such as comments and blank lines, and flushes the output.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    #[track_caller]
    pub fn finish(mut self) -> Result<()> {
        let raw = match &mut self.records {
            Records::Lines(lines) => std::mem::take(&mut lines.raw),
            #[cfg(feature = "parquet")]
            Records::Rows(_) => Vec::new(),
        };
        let first = raw.first().map(|line| line.number);
        let tail = self.adds.tail(raw);
        self.text(first, &tail).at_caller()?;
        let ended = match std::mem::replace(&mut self.out, AnswerOutput::Nowhere) {
            AnswerOutput::Nowhere => Ok(()),
            AnswerOutput::Text(mut out) => out.flush().map_err(|e| Error::io("answers", "write", &e)),
            #[cfg(feature = "parquet")]
            AnswerOutput::Rows(answers) => answers.finish(),
        };
        ended.at_caller()
    }

    fn read(&mut self) -> Result<Option<Question>> {
        match &mut self.records {
            Records::Lines(lines) => {
                let whole = matches!(self.adds.form, Form::Cells(_, true));
                let mut question = lines.read(whole)?;
                // A field with the name of an added column may first occur in a later record; this record has the error.
                if let Some(Question { raw, text, line, .. }) = &mut question
                    && let (Some(last), true) = (raw.last(), text.is_ok())
                    && let Some(reason) = self.adds.refused(&last.text)
                {
                    *text = Err(reason.at(format!("{}:{line}", self.name)));
                }
                Ok(question)
            }
            #[cfg(feature = "parquet")]
            Records::Rows(rows) => {
                let Some((line, text)) = rows.next()? else { return Ok(None) };
                Ok(Some(Question { line, text, raw: Vec::new(), words: Vec::new(), header: None }))
            }
        }
    }
}

impl OfLines {
    /// Reads the next line; returns `false` after the last line.
    fn line(&mut self) -> Result<bool> {
        let raw = match (self.again.pop_front(), &mut self.lines) {
            (Some(raw), _) => {
                self.waiting -= raw.text.len();
                count_parsed(raw.text.len());
                raw
            }
            (None, None) => return Ok(false),
            (None, Some(lines)) => {
                let (text, bad) = match lines.next()? {
                    Some(Ok(text)) => (text.into_owned(), None),
                    Some(Err(reason)) => (lines.lossy(), Some(reason)),
                    None => {
                        (self.number, self.lines) = (self.number + 1, None);
                        return Ok(false);
                    }
                };
                if !lines.end().is_empty() {
                    self.end = lines.end();
                }
                self.marked |= lines.is_marked();
                self.left = 2 * text.len() + self.begun.map_or(0, |_| self.left);
                Raw { number: lines.number, text, end: self.end, bad }
            }
        };
        self.number = raw.number;
        self.raw.push(raw);
        Ok(true)
    }

    /// Reads the next record. If `several` is true, a record may extend over several lines; a record without an end is
    /// malformed in its first line only.
    fn read(&mut self, several: bool) -> Result<Option<Question>> {
        loop {
            let line = if self.line()? { self.raw.last() } else { None };
            let ended = line.is_none();
            let parsed = line.is_some_and(|line| line.bad.is_none());
            if line.is_some_and(|line| !line.text.trim().is_empty()) {
                self.begun.get_or_insert(self.number);
            }
            let outcome = match line {
                Some(Raw { bad: Some(reason), .. }) => Err(reason.clone()),
                Some(Raw { text, .. }) => self.parser.line(self.number, text),
                None => self.parser.end(),
            };
            let alike = !parsed || self.parser.fails_alike();
            // In a quoted cell, lines are parsed alike, whichever line has opened the cell: where a quotation mark or the end
            // of the file made a record malformed, the cell fails, too. A number of columns or a size depends on the first line:
            // the lines are parsed once more if they are at most half of the bytes left. Each byte is parsed at most four times.
            let open = parsed
                && matches!(outcome, Ok(None))
                && self.begun == Some(self.number)
                && self.parser.is_open();
            let refused = match self.failed.as_ref().filter(|_| open && !self.again.is_empty()) {
                Some((_, Some(why))) => Some(why.clone()),
                Some((line, None)) if self.waiting > self.left / 2 => {
                    Some(Reason::of("a record", format!("a part of the malformed record of line {line}")))
                }
                failed => {
                    self.left -= failed.map_or(0, |_| self.waiting);
                    None
                }
            };
            let (unended, outcome) = (refused.is_some(), refused.map_or(outcome, Err));
            let (text, words, header) = match outcome {
                Ok(None) if ended => return Ok(None),
                Ok(None) if self.blank && self.begun.is_none() => (Ok(String::new()), Vec::new(), None),
                Ok(None) => continue,
                Ok(Some(SentenceWords { text, words, header })) => (Ok(text), words, header),
                Err(reason) => {
                    let first = self.parser.spoil();
                    let begun = self.begun.filter(|_| several).and_then(|begun| {
                        self.raw.iter().position(|line| line.number == begun && line.number < self.number)
                    });
                    let number = match begun {
                        // The lines behind the first line of the unended record are parsed once more, as records.
                        Some(at) => {
                            for line in self.raw.drain(at + 1..).rev() {
                                self.waiting += line.text.len();
                                self.again.push_front(line);
                            }
                            let number = self.raw.last().map_or(self.number, |line| line.number);
                            self.failed = Some((number, alike.then(|| reason.clone())));
                            number
                        }
                        None => self.number,
                    };
                    let mut error = reason.at(format!("{}:{number}", self.name));
                    if begun.is_some() || unended {
                        error = error.noted("the lines behind this line are read as separate records");
                    }
                    if !first {
                        continue;
                    }
                    (Err(error), Vec::new(), None)
                }
            };
            let line = self.begun.take().unwrap_or(self.number);
            return Ok(Some(Question { line, text, raw: std::mem::take(&mut self.raw), words, header }));
        }
    }
}

/// Iterates over the records. A malformed record is a `Question` with an error as its text; an error in reading the
/// file is the last item.
impl Iterator for Questions {
    type Item = Result<Question>;

    fn next(&mut self) -> Option<Result<Question>> {
        self.read().transpose()
    }
}

fn is_blank(file: &TextFile) -> Result<bool> {
    let line = |_, line: &str| Ok((!line.trim().is_empty()).then_some(()));
    Ok(file.first_records(OneLine(line))?.next().is_none())
}

fn is_utf_16(file: &TextFile) -> Result<bool> {
    let ((_, mut bytes), mut first) = (file.raw_sample()?, [0; 2]);
    Ok(std::io::Read::read_exact(&mut bytes, &mut first).is_ok() && Encoding::marked(&first).is_some())
}
