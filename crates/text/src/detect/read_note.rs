//! The read note: text in a checkpoint that describes how a data set was read, so that later files of the data set are read
//! in the same way.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use unpadded::{AtCaller, Result};

use super::options::{DetectedFormat, ReadOptions};
use crate::format::FileFormat;
use crate::format::conll::Columns;
use crate::source::reason::wrong_format;
use crate::{Encoding, LabelNotation, Tagging};

/// The properties of a read file that also hold for the other files of its data set; some are stored by name.
#[derive(Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct ReadNote {
    format: Option<String>,
    header: Option<bool>,
    separator: Option<char>,
    quotes: Option<bool>,
    skip_lines: Option<u64>,
    text: Option<Value>,
    label: Option<Value>,
    label_lists: Option<bool>,
    numbers: Option<bool>,
    label_notation: Option<String>,
    pair: Option<bool>,
    source: Option<String>,
    target: Option<String>,
    tokens: Option<String>,
    tags: Option<String>,
    languages: Option<[String; 2]>,
    columns: Option<Columns>,
    tagging: Option<String>,
    encoding: Option<String>,
}

/// Returns the columns of a text or of a label as JSON: one name, or a list of several names.
fn json(columns: &[String]) -> Option<Value> {
    match columns {
        [] => None,
        [one] => Some(one.as_str().into()),
        several => Some(several.into()),
    }
}

impl ReadOptions {
    /// Returns the read note for a checkpoint: the columns, the header, the separator, the encoding and the tag scheme,
    /// set or detected. The format is stored only for tagged texts. In other data sets, later files may have another
    /// format, such as a table after JSON.
    ///
    /// ```
    /// use unpadded_text::ReadOptions;
    /// let note = ReadOptions::new().separator(';').text("review").to_note();
    /// assert_eq!(note, r#"{"separator":";","text":"review"}"#);
    /// let read = ReadOptions::new().label("3").or_note(&note)?;
    /// assert_eq!(read.to_note(), r#"{"separator":";","text":"review","label":"3"}"#);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub fn to_note(&self) -> String {
        // The format is stored only for tagged texts. Tables, JSON and folders are detected by their contents, and
        // their columns have the same names.
        let of_words = |format: &FileFormat| *format == FileFormat::Columns || self.tokens.is_some();
        let stored = ReadNote {
            format: self.format.filter(of_words).map(|format| format.name().to_owned()),
            header: self.header,
            separator: self.separator,
            quotes: self.quotes,
            skip_lines: self.skip_lines,
            text: json(&self.text),
            label: json(&self.label),
            label_lists: self.label_lists.then_some(true),
            numbers: self.numbers.then_some(true),
            label_notation: self.notation.as_ref().map(LabelNotation::to_string),
            pair: self.pair.then_some(true),
            source: self.source.clone(),
            target: self.target.clone(),
            tokens: self.tokens.clone(),
            tags: self.tags.clone(),
            languages: self.languages.clone(),
            columns: self.columns.as_deref().cloned(),
            tagging: self.tagging.as_deref().map(Tagging::to_note),
            encoding: self.found.encoding.filter(|name| *name != Encoding::Utf8.name()).map(str::to_owned),
        };
        // Serialization cannot fail, since the note has only strings, numbers and flags. If serialization fails
        // nevertheless, the note is null, and reading the note is an error. What is not set is left out.
        let mut stored = serde_json::to_value(&stored).unwrap_or_default();
        if let Some(fields) = stored.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        stored.to_string()
    }

    /// Returns the format and the separator of the files; each is `None` if it is neither set nor detected.
    pub fn format_and_separator(&self) -> (Option<FileFormat>, Option<char>) {
        (self.format, self.found.separator.or(self.separator))
    }

    /// Describes how files were read, as a JSON object with the fields `format`, `columns`, `header`, `separator`,
    /// `encoding` and `notes`. A field is null or empty if nothing was set or detected. A column name is a string;
    /// several columns of a text are a list of strings.
    pub fn to_json(&self) -> String {
        let column = |(what, names): (&str, &[String])| Some((what.to_owned(), json(names)?));
        let columns = self.columns().into_iter().filter_map(column);
        serde_json::json!({
            "format": self.format.map(|format| format.name()),
            "columns": Value::Object(columns.collect()),
            "header": self.found.header,
            "separator": self.found.separator.or(self.separator),
            "encoding": self.found.encoding,
            "notes": self.notes.iter().cloned().chain(self.left_out()).collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// Fills the options that are not set with the properties in `note`, a read note that [`Self::to_note`] returned.
    /// Options that are set take precedence over the read note.
    ///
    /// # Errors
    /// Fails if `note` is not a read note.
    #[track_caller]
    pub fn or_note(self, note: &str) -> Result<Self> {
        self.or_stored(note).at_caller()
    }

    fn or_stored(self, note: &str) -> Result<Self> {
        let wrong = |got: String| wrong_format("note of how files are read", "one of `to_note`", got);
        let stored: ReadNote = serde_json::from_str(note).map_err(|e| wrong(format!("{note:?} ({e})")))?;
        let tagging = stored.tagging.map(|text| {
            Tagging::of_note(&text).ok_or_else(|| wrong(format!("the tag scheme {text:?}"))).map(Box::new)
        });
        let format = stored.format.map(|name| name.parse::<FileFormat>()).transpose()?;
        if stored.columns.as_ref().is_some_and(|columns| !columns.are_whole()) {
            return Err(wrong("columns that are not there".to_owned()));
        }
        let encoding = stored.encoding.map(|name| name.parse::<Encoding>()).transpose()?;
        let encoding = encoding.map(Encoding::name);
        let found = DetectedFormat { encoding, later: true, ..*self.found.clone() };
        // If the caller's column of words or of tags differs, the layout of the columns is detected again.
        let other = |set: &Option<String>, before: &Option<String>| set.is_some() && set != before;
        let reset = other(&self.tokens, &stored.tokens) || other(&self.tags, &stored.tags);
        let as_set = self.as_set.clone().unwrap_or_else(|| Box::new(self.clone()));
        let columns = |stored: Option<Value>| match stored {
            None => Ok(Vec::new()),
            Some(Value::String(one)) => Ok(vec![one]),
            Some(several) => serde_json::from_value(several).map_err(|e| wrong(format!("{note:?} ({e})"))),
        };
        let (text, label) = (columns(stored.text)?, columns(stored.label)?);
        let numbers = stored.numbers == Some(true);
        Ok(Self {
            format: self.format.or(format),
            header: self.header.or(stored.header),
            separator: self.separator.or(stored.separator),
            quotes: self.quotes.or(stored.quotes),
            skip_lines: self.skip_lines.or(stored.skip_lines),
            text: if self.text.is_empty() { text } else { self.text },
            label: if self.label.is_empty() { label } else { self.label },
            label_lists: self.label_lists || stored.label_lists == Some(true),
            numbers: self.numbers || numbers,
            notation: self
                .notation
                .or(stored.label_notation.map(|notation| LabelNotation::of_note(&notation, numbers))),
            pair: self.pair || stored.pair == Some(true),
            source: self.source.or(stored.source),
            target: self.target.or(stored.target),
            tokens: self.tokens.or(stored.tokens),
            tags: self.tags.or(stored.tags),
            languages: self.languages.or(stored.languages),
            columns: self.columns.or(stored.columns.filter(|_| !reset).map(Box::new)),
            tagging: self.tagging.or(tagging.transpose()?),
            as_set: Some(as_set),
            found: Box::new(found),
            ..self
        })
    }

    /// Sets the tag scheme and the tag spelling to which [`Self::repair_tags`] rewrites tags. To read other texts of a
    /// data set, set the `Tagging` of the data set's training texts.
    #[must_use]
    pub fn tagging(self, tagging: Tagging) -> Self {
        Self { tagging: Some(Box::new(tagging)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TaggedTexts, TextFile};

    #[test]
    fn a_note_keeps_columns_and_tags() {
        let file = TextFile::embedded("c.conll", "1 a B_X N\n2 b I_X N\n");
        let columns = Columns::of(&file, None, Some("3"), None, None).unwrap();
        let tags = ["B_X", "I_X", "O"].map(str::to_owned);
        let tagging = Tagging::detect([&tags[..]]).unwrap();
        let read = ReadOptions { columns: Some(Box::new(columns.clone())), ..ReadOptions::new().tags("3") };
        let note = read.tagging(tagging.clone()).to_note();
        let again = ReadOptions::new().or_note(&note).unwrap();
        assert_eq!((again.columns.as_deref(), again.tagging.as_deref()), (Some(&columns), Some(&tagging)));
        assert_eq!(again.to_note(), note);
        // If the tag column that the user set differs from the note, the layout of the columns in the note is
        // discarded.
        let other = ReadOptions::new().tags("4").or_note(&note).unwrap();
        assert_eq!((other.tags.as_deref(), other.columns), (Some("4"), None));
        let texts = TaggedTexts::of_columns(&TextFile::embedded("d.conll", "a N\nb V\n")).unwrap();
        assert_eq!(texts.read_as().to_note(), "{}");
    }

    #[test]
    fn another_text_is_no_note() {
        let columns = r#"{"columns":{"separator":"tabs","count":2,"words":0,"tags":7,"numbered":false,"comments":false,"universal":false}}"#;
        for (note, expected) in [
            ("", "expected one of `to_note`, got \"\""),
            (r#"{"format":"x"}"#, "expected one of `tsv`"),
            (r#"{"tagging":"IOB2 B-kind"}"#, "the tag scheme \"IOB2 B-kind\""),
            (r#"{"what":1}"#, "unknown field `what`"),
            (columns, "columns that are not there"),
        ] {
            let error = ReadOptions::new().or_note(note).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
