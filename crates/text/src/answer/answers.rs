//! Adds answers to the records of a file: as cells, fields, columns or comments, depending on the format of the file.

use std::collections::HashMap;

use serde::de::IgnoredAny;
use unpadded::{Error, Result};

use crate::format::conll::Columns;
use crate::source::lines::count_parsed;
use crate::source::reason::Reason;

/// One cell of the answer that is added to a record.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AnswerCell {
    /// A text.
    Text(String),
    /// A number.
    Number(f32),
    /// One text per word of a sentence, such as the tags.
    Words(Vec<String>),
    /// Several texts: one cell of a table, joined by the given separator; a list in JSON and Parquet.
    List(Vec<String>, String),
    /// Several numbers: one cell of a table, joined by the given separator; a list in JSON and Parquet.
    Numbers(Vec<f32>, String),
    /// No answer: an empty cell in a table, `null` in JSON.
    Nothing,
}

/// A record of a file, with the text for which the model predicts an answer.
#[derive(Debug)]
pub struct Question {
    /// The number of the record's first line in the file, counted from 1; in Parquet, the number of the row.
    pub line: u64,
    /// The text to predict for, or the error that explains why the record is malformed. For a sentence, the text has one
    /// word per line. The text is blank if the record has none, such as a table's empty cell.
    pub text: Result<String>,
    /// The lines of the record, preceded by any lines that belong to no record, such as comments.
    pub(crate) raw: Vec<Raw>,
    /// The line number of each word, in a file with one word per line; else empty.
    pub(crate) words: Vec<u64>,
    /// The line number of the header, if the header is among the lines in `raw`; else `None`.
    pub(crate) header: Option<u64>,
}

/// A line of a file.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) number: u64,
    pub(crate) text: String,
    /// The line end, such as `\n`; empty if the file ends without a line end.
    pub(crate) end: &'static str,
    /// The reason why the line cannot be decoded; `text` then has replacement characters.
    pub(crate) bad: Option<Reason>,
}

/// The form in which an answer is added to a record.
#[derive(Debug)]
pub(crate) enum Form {
    /// Cells of a table, each preceded by this separator; in quotation marks where necessary if the flag is true.
    Cells(char, bool),
    /// Fields of the JSON object in a line, or elements of the JSON list in a line.
    Json,
    /// The tag of each word, in a new column or in the existing column of the tags.
    Columns(Columns),
    /// A comment at the end of a row of features.
    Comment,
}

/// The columns that answers add to the records of a file: their form and their names.
#[derive(Debug)]
pub(crate) struct AnswerColumns {
    pub(crate) form: Form,
    /// The names that the file has already. For a table, these are the names in the header; for JSON, the fields of the
    /// first records; for a file of columns, the names in the header and keys of comments.
    pub(crate) names: Vec<String>,
    pub(crate) added: Vec<String>,
}

impl AnswerColumns {
    /// Sets the names of the added columns. If the file already has a name, the added column of this name gets the
    /// prefix `predicted_`. Returns a note for the user if an answer does not get a column of its own.
    pub(crate) fn name(&mut self, added: &[&str]) -> Option<String> {
        let columns = matches!(self.form, Form::Columns(_));
        let own = |name: &&str| {
            // In a file of columns, the label of a sentence is a comment with the key `intent`.
            let name = if columns && *name == "label" { "intent" } else { name };
            match self.names.iter().any(|other| other.trim() == name) {
                true => format!("predicted_{name}"),
                false => name.to_owned(),
            }
        };
        self.added = added.iter().map(own).collect();
        let Form::Columns(columns) = &self.form else { return None };
        let labels = match (&self.added[..], columns.has_comments()) {
            ([_, intent, ..], true) => Some(format!("labels of texts in comments, as `# {intent} = …`")),
            ([_, _, ..], false) => {
                Some("labels of texts are left out, since these columns have no comments".to_owned())
            }
            _ => None,
        };
        let notes: Vec<String> = columns.answered().into_iter().chain(labels).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// Returns the reason if the JSON object in `line` has the name of an added field already.
    pub(crate) fn refused(&self, line: &str) -> Option<Reason> {
        let own = *self.own(line).first()?;
        let expected = format!("no field `{own}`, as in the first records");
        Some(Reason::of(expected, "this field, which the answer would replace: rename the field"))
    }

    /// Returns the added names that the JSON object in `line` has already.
    fn own(&self, line: &str) -> Vec<&String> {
        let may_have = |name: &String| line.contains(&format!("\"{name}\""));
        if !matches!(self.form, Form::Json) || !self.added.iter().any(may_have) {
            return Vec::new();
        }
        count_parsed(line.len());
        let object: HashMap<String, IgnoredAny> = serde_json::from_str(line).unwrap_or_default();
        self.added.iter().filter(|name| object.contains_key(*name)).collect()
    }

    /// Returns the lines of a record with the answer added; missing cells of the answer are empty.
    pub(crate) fn lines_of(&self, question: &Question, answer: &[AnswerCell]) -> String {
        let lacks = self.added.len().saturating_sub(answer.len());
        let answer = &[answer, &vec![AnswerCell::Nothing; lacks]].concat()[..];
        let mut text = String::new();
        match &self.form {
            Form::Columns(columns) => self.columns(columns, question, answer, &mut text),
            form => {
                let Some((last, others)) = question.raw.split_last() else { return text };
                text.extend(others.iter().flat_map(|line| [line.text.as_str(), line.end]));
                match form {
                    // A blank line has no answer.
                    _ if last.text.trim().is_empty() => text.push_str(&last.text),
                    Form::Json => text.push_str(&self.json(&last.text, answer)),
                    Form::Cells(separator, quotes) => {
                        text.push_str(&last.text);
                        for cell in answer {
                            text.push(*separator);
                            text.push_str(&quoted(&shown(cell), *separator, *quotes));
                        }
                    }
                    _ => {
                        let cells = self.added.iter().zip(answer);
                        let cells: Vec<String> =
                            cells.map(|(name, cell)| format!("{name} {}", shown(cell))).collect();
                        text.push_str(&format!("{} # {}", last.text, cells.join(" ")));
                    }
                }
                text.push_str(last.end);
            }
        }
        text
    }

    /// Returns the lines behind the last record, for the output. In a file of columns, the words of a sentence that
    /// could not be read get `_` as their answer.
    pub(crate) fn tail(&self, raw: Vec<Raw>) -> String {
        let Form::Columns(columns) = &self.form else {
            return raw.iter().flat_map(|line| [line.text.as_str(), line.end]).collect();
        };
        // In a file without sentences, the lines behind the last record contain the header.
        let first = raw.iter().find(|line| !line.text.trim().is_empty() && !line.text.starts_with('#'));
        let alone = raw.first().is_some_and(|line| line.number == 1) && !columns.header_names().is_empty();
        let header = first.filter(|_| alone).map(|line| line.number);
        let text = Err(Error::new("sentence", "words", "none"));
        self.lines_of(&Question { line: 0, text, raw, words: Vec::new(), header }, &[])
    }

    /// Appends the lines of a sentence to `text`: comments with its label, then each word with the predicted tag.
    fn columns(&self, columns: &Columns, question: &Question, answer: &[AnswerCell], text: &mut String) {
        let Question { raw, words, header, text: asked, .. } = question;
        let (mut word, none) = (0, "_".to_owned());
        let mut begins = raw.iter().position(|line| words.first() == Some(&line.number));
        // The line of a range of words (`1-2`) before the first word belongs to the sentence: comments come before it.
        while let Some(before) = begins.and_then(|at| at.checked_sub(1))
            && raw.get(before).is_some_and(|line| columns.is_range(&line.text))
        {
            begins = Some(before);
        }
        for (at, Raw { number, text: line, end, .. }) in raw.iter().enumerate() {
            if begins == Some(at) && columns.has_comments() {
                let labels =
                    self.added.iter().zip(answer).skip(1).filter(|(_, cell)| **cell != AnswerCell::Nothing);
                for (name, cell) in labels {
                    text.push_str(&format!("# {name} = {}{end}", shown(cell).replace(['\n', '\r'], " ")));
                }
            }
            let cell = if *header == Some(*number) {
                self.added.first()
            } else if words.get(word) == Some(number) {
                word += 1;
                match answer.first() {
                    Some(AnswerCell::Words(tags)) => tags.get(word - 1),
                    _ => Some(&none),
                }
            } else {
                // In lines without an answer, the column of the answers gets `_`, so that no tag of the file looks like one.
                let unasked = asked.is_err() || words.first().is_some_and(|first| number < first);
                Some(&none).filter(|_| unasked && columns.has_all(line))
            };
            match cell {
                Some(cell) => columns.with(line, cell, text),
                None => text.push_str(line),
            }
            text.push_str(end);
        }
    }

    /// Returns the JSON object in `line` with added fields, or the JSON list with added elements.
    fn json(&self, line: &str, answer: &[AnswerCell]) -> String {
        let trimmed = line.trim_end();
        // A line that is neither an object nor a list stays unchanged.
        if !trimmed.ends_with(['}', ']']) {
            return line.to_owned();
        }
        // A number is written as the shortest decimal that parses as this `f32`.
        let short =
            |number: &f32| serde_json::from_str(&number.to_string()).unwrap_or(serde_json::Value::Null);
        let value = |cell: &AnswerCell| match cell {
            AnswerCell::Text(text) => serde_json::Value::from(text.as_str()),
            AnswerCell::Number(number) => short(number),
            AnswerCell::Numbers(numbers, _) => numbers.iter().map(short).collect(),
            AnswerCell::Words(words) | AnswerCell::List(words, _) => words.clone().into(),
            AnswerCell::Nothing => serde_json::Value::Null,
        };
        let (inner, end) = trimmed.split_at(trimmed.len().saturating_sub(1));
        let mut text = inner.trim_end().to_owned();
        let own = if answer.contains(&AnswerCell::Nothing) { self.own(line) } else { Vec::new() };
        for (name, cell) in self.added.iter().zip(answer) {
            let named = end == "}";
            if named && *cell == AnswerCell::Nothing && own.contains(&name) {
                continue;
            }
            if !text.ends_with(['{', '[']) {
                text.push(',');
            }
            if named {
                text.push_str(&format!("{}:", serde_json::Value::from(name.as_str())));
            }
            text.push_str(&value(cell).to_string());
        }
        text + end
    }
}

fn shown(cell: &AnswerCell) -> String {
    match cell {
        AnswerCell::Text(text) => text.clone(),
        AnswerCell::Number(number) => number.to_string(),
        AnswerCell::Words(words) => words.join(" "),
        AnswerCell::List(texts, separator) => texts.join(separator),
        AnswerCell::Numbers(numbers, separator) => {
            numbers.iter().map(f32::to_string).collect::<Vec<_>>().join(separator)
        }
        AnswerCell::Nothing => String::new(),
    }
}

/// Formats a cell of a table; without `quotes`, separators and line ends in the cell become spaces.
fn quoted(cell: &str, separator: char, quotes: bool) -> String {
    match cell.contains([separator, '"', '\n', '\r']) {
        true if quotes => format!("\"{}\"", cell.replace('"', "\"\"")),
        true => cell.replace([separator, '\n', '\r'], " "),
        false => cell.to_owned(),
    }
}
