//! The options for reading data sets: the user's settings, and the properties that were detected in files.

use std::fmt;
use std::sync::Arc;

use unpadded::Result;
use unpadded::data::TagScheme;

use crate::format::FileFormat;
use crate::format::conll::Columns;
use crate::format::line_format::LineSettings;
use crate::source::lines::quoted;
use crate::source::reason::wrong_format;
use crate::source::records::Remark;
use crate::source::skipped::{MANY, SkipLog, SkipReport};
use crate::{Encoding, FirstIndex, LabelNotation, MalformedLines, Tagging, TextFile};

/// A part of the note on a doubtful header; this part identifies the note among all notes.
pub(crate) const DOUBT: &str = "is read as a record; if it is a header";

/// The options for reading the files of a data set. Properties that are not set are detected: the format by the file
/// name and the first lines, the columns by the first records, the encoding by the bytes.
///
/// A column is given by its name, or by its number, counted from 1. In JSON objects and Parquet, columns have only
/// names; a dot leads into a nested object, as in `review.text`.
///
/// ```
/// use unpadded_text::{FileFormat, ReadOptions};
/// let options = ReadOptions::new().format(FileFormat::Csv).text("review").label("3");
/// assert_ne!(options, ReadOptions::default());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadOptions {
    pub(crate) format: Option<FileFormat>,
    pub(crate) encoding: Option<Encoding>,
    pub(crate) malformed: MalformedLines,
    /// The log of the malformed records and the repeated headers that are left out.
    pub(crate) skips: Remark<Arc<SkipLog>>,
    pub(crate) header: Option<bool>,
    pub(crate) separator: Option<char>,
    /// Whether quotation marks enclose cells of a table; `None` if this is detected.
    pub(crate) quotes: Option<bool>,
    /// The number of lines above the table; `None` if it is not set.
    pub(crate) skip_lines: Option<u64>,
    pub(crate) text: Vec<String>,
    /// The label columns: one, or several with 0 or 1 in each; empty if no label column is set or detected.
    pub(crate) label: Vec<String>,
    pub(crate) group: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) target: Option<String>,
    pub(crate) tokens: Option<String>,
    pub(crate) tags: Option<String>,
    pub(crate) label_lists: bool,
    /// Whether each label is a number.
    pub(crate) numbers: bool,
    pub(crate) notation: Option<LabelNotation>,
    /// Whether the last text column is the second text of a pair.
    pub(crate) pair: bool,
    pub(crate) lines: LineSettings,
    pub(crate) repair_tags: bool,
    pub(crate) scheme: Option<TagScheme>,
    pub(crate) first_index: Option<FirstIndex>,
    /// The languages of source and target, detected from the extensions of parallel files.
    pub(crate) languages: Option<[String; 2]>,
    /// The columns of words and tags in a file of columns; `None` until the columns are detected.
    pub(crate) columns: Option<Box<Columns>>,
    /// The scheme by which tags are repaired; `None` until the scheme is detected.
    pub(crate) tagging: Option<Box<Tagging>>,
    /// The user's settings, without detected properties; `None` before the first detection.
    pub(crate) as_set: Option<Box<ReadOptions>>,
    /// Notes for the user: the decisions about a file and the reasons for them.
    pub(crate) notes: Vec<String>,
    /// The detected properties of the current file; other files may have other properties.
    pub(crate) found: Box<DetectedFormat>,
}

/// The detected properties of a file: the header and the separator of a table, and the encoding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DetectedFormat {
    pub(crate) header: Option<bool>,
    pub(crate) separator: Option<char>,
    pub(crate) encoding: Option<&'static str>,
    /// Whether there is an earlier file of the data set or of the training.
    pub(crate) later: bool,
}

impl ReadOptions {
    /// Returns options without settings: all properties are detected.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores the encoding of a file in the detected properties.
    pub(crate) fn encoded_as(&mut self, file: &TextFile) {
        (self.found.encoding, self.found.later) = (Some(file.characters().0.name()), true);
        let note = file.encoding_note().filter(|note| !self.notes.contains(note));
        self.notes.extend(note);
    }

    /// Returns the note that the first line, which is read as a record, may be a header, if there is such a note.
    pub fn doubt(&self) -> Option<&str> {
        self.notes.iter().find(|note| note.contains(DOUBT)).map(String::as_str)
    }

    /// Returns these options for the next file, without notes; they are the user's settings if none are stored.
    pub(crate) fn as_set(&self) -> Self {
        let as_set = self.as_set.clone().unwrap_or_else(|| Box::new(self.clone()));
        Self { as_set: Some(as_set), notes: Vec::new(), ..self.clone() }
    }

    /// Returns a note on headers that are repeated within the files, among the records that were read so far.
    pub fn left_out(&self) -> Option<String> {
        self.skips.0.headers()
    }

    /// Returns the column names for each role, such as `label`; the names are empty if no column is set or detected.
    pub(crate) fn columns(&self) -> [(&'static str, &[String]); 7] {
        [
            ("text", &self.text),
            ("label", &self.label),
            ("group", self.group.as_slice()),
            ("source", self.source.as_slice()),
            ("target", self.target.as_slice()),
            ("words", self.tokens.as_slice()),
            ("tags", self.tags.as_slice()),
        ]
    }

    /// Refuses several text columns, and a group column, for a format that has no columns.
    pub(crate) fn without_columns(&self, format: FileFormat, thing: &str) -> Result<()> {
        self.only_of_tables(format, thing)?;
        let (what, key, columns) = match &self.group {
            _ if self.text.len() > 1 => ("columns of the text", "data.text", &*self.text),
            Some(_) => ("column of the group", "data.group", self.group.as_slice()),
            None => return Ok(()),
        };
        let what = format!("{what} (`{key}` in a config) of {thing}");
        let expected = format!("a file with columns (CSV, TSV, JSON or Parquet), since `{format}` has none");
        let got = quoted(columns);
        let advice = format!("write the texts into such a file, or leave `{key}` out");
        Err(wrong_format(what, expected, got).noted(advice))
    }

    /// Refuses settings of columns for a format whose lines or files are whole texts, which would not obey them.
    pub(crate) fn unused(&self, format: FileFormat, thing: &str) -> Result<()> {
        let settings = [
            ("data.text", self.text.first().cloned()),
            ("data.label", self.label.first().cloned()),
            ("data.separator", self.separator.map(String::from)),
            ("data.header", self.header.map(|header| header.to_string())),
        ];
        let set = settings.into_iter().find_map(|(key, set)| Some((key, set?)));
        let Some((key, got)) = set else { return Ok(()) };
        let (_, option) = key.split_once('.').unwrap_or_default();
        let what = format!("`{option}` (`{key}` in a config) of {thing}");
        let expected = format!("no such setting, since `{format}` has no columns");
        Err(wrong_format(what, expected, format!("{got:?}"))
            .noted(format!("leave `{key}` out, or set another format")))
    }

    /// Sets the format.
    #[must_use]
    pub fn format(self, format: FileFormat) -> Self {
        Self { format: Some(format), ..self }
    }

    /// Sets the encoding. By default, the encoding is detected: UTF-16 if the file begins with the byte order mark of
    /// UTF-16, else UTF-8 or Windows-1252. Windows-1252 is chosen if hardly any bytes beyond ASCII are valid UTF-8,
    /// and no other encoding is likelier. If another encoding is likelier, reading the file fails.
    #[must_use]
    pub fn encoding(self, encoding: Encoding) -> Self {
        Self { encoding: Some(encoding), ..self }
    }

    /// Sets the handling of malformed records: an error at the first malformed record (the default,
    /// [`MalformedLines::Error`]), skipping, or collecting all errors.
    #[must_use]
    pub fn malformed(self, policy: MalformedLines) -> Self {
        Self { malformed: policy, ..self }
    }

    /// Leaves out malformed records, as [`MalformedLines::Skip`] does, but at most the share `most` (0 to 1) of all
    /// records: more of them are an error at the end of each pass. [`Self::skipped`] returns the records that were left out.
    ///
    /// ```
    /// use unpadded_text::{LabelledTexts, ReadOptions};
    /// # let path = std::env::temp_dir().join(format!("unpadded-skip-{}.csv", std::process::id()));
    /// # std::fs::write(&path, "text,label\nfine,praise\ndull\nbad,blame\n").unwrap();
    /// let texts = LabelledTexts::open_with([&path], &ReadOptions::new().skip_malformed(0.5))?; // … ↵ fine,praise ↵ dull ↵ …
    /// let report = texts.read_as().skipped().unwrap();
    /// assert_eq!((texts.records().len(), report.records, report.skipped[0].line), (2, 3, 3));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    pub fn skip_malformed(self, most: f64) -> Self {
        let skips = Remark(Arc::new(SkipLog::of(Some(most))));
        Self { malformed: MalformedLines::Skip, skips, ..self }
    }

    /// Returns the malformed records of the data set that were left out so far; `None` if there are none.
    pub fn skipped(&self) -> Option<SkipReport> {
        self.skips.0.report(MANY)
    }

    /// Returns these options with an empty log, for another data set.
    pub(crate) fn unlogged(&self) -> Self {
        let skips = Remark(Arc::new(SkipLog::of(self.skips.0.most)));
        let as_set = self.as_set.clone().map(|as_set| Box::new(Self { skips: skips.clone(), ..*as_set }));
        Self { skips, as_set, ..self.clone() }
    }

    /// Sets whether the first record of a table is a header. By default, the header is detected. The first record is a
    /// header if it has a known name for each wanted column. It is also a header if it has a text in a column in which
    /// all other records have numbers.
    #[must_use]
    pub fn header(self, header: bool) -> Self {
        Self { header: Some(header), ..self }
    }

    /// Sets the separator between the columns of a table, such as `;`. By default, the separator is detected: comma,
    /// semicolon, tab or bar, whichever cuts each of the first records into the same number of columns.
    #[must_use]
    pub fn separator(self, separator: char) -> Self {
        Self { separator: Some(separator), ..self }
    }

    /// Sets whether quotation marks enclose cells of a table, as in RFC 4180 (`true`), or are text (`false`). By default,
    /// this is detected.
    #[must_use]
    pub fn quotes(self, enclose: bool) -> Self {
        Self { quotes: Some(enclose), ..self }
    }

    /// Sets the number of lines above a table, such as a title, which are no records; the header is below them.
    #[must_use]
    pub fn skip_lines(self, count: u64) -> Self {
        Self { skip_lines: Some(count), ..self }
    }

    /// Refuses settings that only tables have for a file of another format, unless this format is detected in a later file:
    /// the settings may hold for the first file alone.
    pub(crate) fn only_of_tables(&self, format: FileFormat, thing: &str) -> Result<()> {
        let set = self.as_set.as_deref().unwrap_or(self).format.is_some();
        let (key, got) = match self.quotes {
            _ if format.is_table() || (self.found.later && !set) => return Ok(()),
            Some(enclose) => ("data.quote", if enclose { "`double`" } else { "`none`" }.to_owned()),
            None => match self.skip_lines {
                Some(count) if count > 0 => ("data.skip_lines", count.to_string()),
                _ => return Ok(()),
            },
        };
        Err(wrong_format(format!("`{key}` for {thing}"), format!("none, since `{format}` is no table"), got))
    }

    /// Sets the text column of labelled texts or plain texts.
    #[must_use]
    pub fn text(self, column: impl Into<String>) -> Self {
        self.texts([column])
    }

    /// Sets several text columns: a text consists of their cells, in this order, with a tab between two cells.
    ///
    /// Tabs and line breaks within a cell become spaces, so that a text has as many parts as there are text columns. A
    /// cell may be empty, and a JSON field may be null or missing, if another text column has text. Only tables, JSON
    /// and Parquet have columns; other formats are an error. All text columns must be given: none is detected.
    ///
    /// ```
    /// use unpadded_text::{LabelledTexts, ReadOptions};
    /// # let path = std::env::temp_dir().join(format!("unpadded-texts-{}.csv", std::process::id()));
    /// # std::fs::write(&path, "premise,hypothesis,label\nA man sleeps.,He is awake.,contradiction\n").unwrap();
    /// let options = ReadOptions::new().texts(["premise", "hypothesis"]); // premise,hypothesis,label ↵ A man sleeps.,He …
    /// let found = LabelledTexts::open_with([&path], &options)?;
    /// assert_eq!(found.records()[0].text, "A man sleeps.\tHe is awake.");
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    pub fn texts<C: Into<String>>(self, columns: impl IntoIterator<Item = C>) -> Self {
        Self { text: columns.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets whether the last column of [`Self::texts`] is a second text; neither of two texts may be empty.
    #[must_use]
    pub fn pair(self, pair: bool) -> Self {
        Self { pair, ..self }
    }

    /// Sets the label column.
    #[must_use]
    pub fn label(self, column: impl Into<String>) -> Self {
        self.labels([column])
    }

    /// Sets several label columns, with 1 (or `true` or `yes`) in the columns of a text's labels, and 0 in the others. The
    /// names of the columns are the labels, which are joined as in [`Self::label_lists`].
    #[must_use]
    pub fn labels<C: Into<String>>(self, columns: impl IntoIterator<Item = C>) -> Self {
        Self { label: columns.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets the column of a text's group, such as the author or the document.
    /// [`DataSet::hold_out`](crate::DataSet::hold_out) holds out all texts of a group or none; a fold of a
    /// cross-validation has all texts of a group or none.
    ///
    /// ```
    /// use unpadded_text::{LabelledTexts, ReadOptions};
    /// # let path = std::env::temp_dir().join(format!("unpadded-group-{}.csv", std::process::id()));
    /// # let lines: String = (0..40).map(|i| format!("text {i},{},author {}\n", i % 2, i / 4)).collect();
    /// # std::fs::write(&path, format!("text,label,author\n{lines}")).unwrap();
    /// let texts = LabelledTexts::open_with([&path], &ReadOptions::new().group("author"))?; // four texts of each author
    /// assert_eq!(texts.hold_out(5, 1).1.records().len() % 4, 0);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    pub fn group(self, column: impl Into<String>) -> Self {
        Self { group: Some(column.into()), ..self }
    }

    /// Allows several labels per text: in JSON and Parquet, the label may be a list of texts or numbers, or an object with
    /// a score for each label (from 0.5 on, the text has the label). A cell may have several labels, too, in the
    /// [notation](Self::label_notation) that is set or detected. Several labels become one string with U+001F behind each
    /// label; an empty list becomes U+001F alone. A label may also be an empty cell, null, or missing. A single label does not
    /// change.
    ///
    /// ```
    /// use unpadded_text::{LabelledTexts, ReadOptions};
    /// # let path = std::env::temp_dir().join(format!("unpadded-label-lists-{}.jsonl", std::process::id()));
    /// # std::fs::write(&path, "{\"text\": \"Fine, but dull\", \"labels\": [\"praise\", \"blame\"]}\n").unwrap();
    /// let options = ReadOptions::new().label_lists(); // {"text": "Fine, but dull", "labels": ["praise", "blame"]}
    /// let found = LabelledTexts::open_with([&path], &options)?;
    /// assert_eq!(found.records()[0].label, "praise\u{1f}blame\u{1f}");
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    pub fn label_lists(self) -> Self {
        Self { label_lists: true, ..self }
    }

    /// Declares that each label is a number. Numbers with decimal commas are detected, and get a decimal point.
    #[must_use]
    pub fn numbers(self) -> Self {
        Self { numbers: true, ..self }
    }

    /// Sets the notation of several labels in a cell, such as a separator. By default, the notation is detected in the
    /// first records.
    #[must_use]
    pub fn label_notation(self, notation: LabelNotation) -> Self {
        Self { notation: Some(notation), ..self }
    }

    /// Returns the notation of labels in cells; `None` if it is neither set nor detected.
    pub fn notation(&self) -> Option<&LabelNotation> {
        self.notation.as_ref()
    }

    /// Sets the column of the source, the text to translate.
    #[must_use]
    pub fn source(self, column: impl Into<String>) -> Self {
        Self { source: Some(column.into()), ..self }
    }

    /// Sets the column of the target, the translation.
    #[must_use]
    pub fn target(self, column: impl Into<String>) -> Self {
        Self { target: Some(column.into()), ..self }
    }

    /// Sets the column of the words. In JSON and Parquet, this is the field with the list of words. In files of
    /// columns, it is the number of the column or its name, such as `lemma` in CoNLL-U.
    #[must_use]
    pub fn tokens(self, column: impl Into<String>) -> Self {
        Self { tokens: Some(column.into()), ..self }
    }

    /// Sets the column of the tags of words.
    #[must_use]
    pub fn tags(self, column: impl Into<String>) -> Self {
        Self { tags: Some(column.into()), ..self }
    }

    /// Makes the labels 0 to 4 of trees binary, as for the Stanford Sentiment Treebank. The labels 0 and 1 become `0`;
    /// 3 and 4 become `1`. Trees with the neutral label 2 are left out.
    #[must_use]
    pub fn binary(self) -> Self {
        Self { lines: LineSettings { binary: true, ..self.lines }, ..self }
    }

    /// Sets whether each phrase of a tree becomes a text with its label: useful for training, not for evaluation.
    #[must_use]
    pub fn phrases(self, phrases: bool) -> Self {
        Self { lines: LineSettings { phrases, ..self.lines }, ..self }
    }

    /// Repairs tagged texts: rewrites tags that break the tag scheme. The new tags mark the chunks that the script
    /// conlleval reads from the old tags. For example, an `I` tag behind `O`, or behind a chunk of another kind,
    /// becomes the start of a chunk. The display of [`DataSet::read_as`](crate::DataSet::read_as) shows the
    /// number of rewritten tags.
    #[must_use]
    pub fn repair_tags(self) -> Self {
        Self { repair_tags: true, ..self }
    }

    /// Sets the tag scheme of tagged texts, such as IOB2. By default, a scheme that all tags follow is detected.
    #[must_use]
    pub fn scheme(self, scheme: TagScheme) -> Self {
        Self { scheme: Some(scheme), ..self }
    }

    /// Sets whether the features in rows of features are numbered from 0 or from 1. By default, they are numbered
    /// from 0 if a row has a feature 0, otherwise from 1.
    #[must_use]
    pub fn first_index(self, first: FirstIndex) -> Self {
        Self { first_index: Some(first), ..self }
    }

    /// Keeps the digits of stress in the phonemes of a pronouncing dictionary. By default, these digits are removed.
    #[must_use]
    pub fn stress(self) -> Self {
        Self { lines: LineSettings { stress: true, ..self.lines }, ..self }
    }
}

/// Shows the format and the columns that are set or detected, and the notes on the detection.
impl fmt::Display for ReadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = self.format.map(|format| format!("`{format}`"));
        let column = |name: &String| {
            let name = name.replace('\n', "\\n");
            // Fields of records have only names.
            let numbers = self.format.is_none_or(|format| format.is_table() || !format.has_columns());
            let by_number = numbers && name.parse::<usize>().is_ok();
            if by_number { format!("column {name}") } else { format!("`{name}`") }
        };
        let all = |(what, names): (&str, &[String])| {
            let names: Vec<String> = names.iter().map(column).collect();
            (!names.is_empty()).then(|| format!("{what} in {}", names.join(" and ")))
        };
        let columns: Vec<String> = match &self.columns {
            Some(columns) => vec![columns.to_string()],
            None => self.columns().into_iter().filter_map(all).collect(),
        };
        let all: Vec<String> = format.into_iter().chain(columns).collect();
        let all = Some(all.join(", ")).filter(|all| !all.is_empty());
        let all = all.into_iter().chain(self.notes.iter().cloned()).chain(self.left_out());
        f.write_str(&all.collect::<Vec<_>>().join("; "))
    }
}
