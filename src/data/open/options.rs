//! What is said about files that cannot be told from them.

use std::fmt;
use std::str::FromStr;

use crate::data::conll::Columns;
use crate::data::lines::quoted;
use crate::data::{Encoding, FirstIndex, MalformedLines, TagScheme, Tagging, TextFile};
use crate::error::{Error, ErrorKind, Result};

/// What a note says of a first line that may be a header.
pub(super) const DOUBT: &str = "is read as a record; if it is a header";

/// The form of a file, or of a folder, of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileFormat {
    /// Columns between tabs, with a header line or without; quotation marks are text unless all first cells have them as in CSV. Without
    /// any tab, as [`Self::Csv`].
    Tsv,
    /// Columns between commas, semicolons, tabs or bars as in RFC 4180, with a header line or without: a cell in quotation marks
    /// may have separators and line ends in it.
    Csv,
    /// JSON: an object or a list a line, a list of objects or of lists, an object with such lists in it, one of which is named as
    /// `file.json!train`, or an object of columns or of numbered records. Also `json`.
    JsonLines,
    /// Parquet, row group by row group; the feature `parquet`.
    Parquet,
    /// A word a line with its tags in columns, blank lines between sentences, as in the CoNLL shared tasks.
    Columns,
    /// A folder of parallel files: `seq.in`, `seq.out`, perhaps `label`.
    Parallel,
    /// A file a class, a text a line.
    FilePerClass,
    /// A folder a class, a text a file.
    FolderPerClass,
    /// A tree in brackets a line, `(label left right)` or `(label word)`: the leaves are the text, the root has the label.
    Trees,
    /// A line a text with its label before it, as fastText reads: `__label__good A fine film.`
    FastText,
    /// A pronouncing dictionary as CMUdict: a word and its phonemes.
    Dictionary,
    /// A label and numbered features a line: no texts, but [`LabelledRows`](crate::data::LabelledRows).
    Libsvm,
    /// Text as it is.
    Plain,
}

impl FileFormat {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Tsv,
        Self::Csv,
        Self::JsonLines,
        Self::Parquet,
        Self::Columns,
        Self::Parallel,
        Self::FilePerClass,
        Self::FolderPerClass,
        Self::Trees,
        Self::FastText,
        Self::Dictionary,
        Self::Libsvm,
        Self::Plain,
    ];

    /// Its name, such as `csv` or `folder-per-class`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tsv => "tsv",
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
            Self::Parquet => "parquet",
            Self::Columns => "columns",
            Self::Parallel => "parallel",
            Self::FilePerClass => "file-per-class",
            Self::FolderPerClass => "folder-per-class",
            Self::Trees => "trees",
            Self::FastText => "fasttext",
            Self::Dictionary => "dictionary",
            Self::Libsvm => "libsvm",
            Self::Plain => "plain",
        }
    }
}

impl fmt::Display for FileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FileFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let name = if name == "json" { Self::JsonLines.name() } else { name };
        Self::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join("`, `");
            Error::new("format of a data set", format!("one of `{known}`"), format!("`{name}`"))
        })
    }
}

/// How the files of a data set are read. What is not said is found out: the format from the name and the first lines, the columns
/// from a header line, the encoding from the bytes.
///
/// Columns are given by name, or by number from 1 on. Of JSON objects, and of Parquet, they have names alone, and a dot leads
/// into an object in an object: `review.text`.
///
/// ```
/// use unpadded::data::{FileFormat, ReadOptions};
/// let options = ReadOptions::new().format(FileFormat::Csv).text("review").label("3");
/// assert_ne!(options, ReadOptions::default());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadOptions {
    pub(super) format: Option<FileFormat>,
    pub(super) encoding: Option<Encoding>,
    pub(super) malformed: MalformedLines,
    pub(super) header: Option<bool>,
    pub(super) separator: Option<char>,
    /// The columns of the text; empty where none was given or found.
    pub(super) text: Vec<String>,
    pub(super) label: Option<String>,
    pub(super) group: Option<String>,
    pub(super) source: Option<String>,
    pub(super) target: Option<String>,
    pub(super) tokens: Option<String>,
    pub(super) tags: Option<String>,
    pub(super) label_lists: bool,
    /// Whether the last column of the text is a second text.
    pub(super) pair: bool,
    pub(super) binary: bool,
    pub(super) phrases: bool,
    pub(super) stress: bool,
    pub(super) repair_tags: bool,
    pub(in crate::data) scheme: Option<TagScheme>,
    pub(in crate::data) first_index: Option<FirstIndex>,
    /// The languages of source and target, as endings of files name them.
    pub(super) languages: Option<[String; 2]>,
    /// The columns of words and tags, once they were found.
    pub(super) columns: Option<Box<Columns>>,
    /// The scheme by which tags are repaired, once it was found.
    pub(super) tagging: Option<Box<Tagging>>,
    /// What was set, without what was detected in a file.
    pub(super) told: Option<Box<ReadOptions>>,
    /// What was decided about a file, and why, for people.
    pub(super) notes: Vec<String>,
    /// What was detected of a file and holds for it alone.
    pub(super) found: Box<DetectedFormat>,
}

/// What was detected of a file: whether a table has a header, what separates its columns, and the encoding.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct DetectedFormat {
    pub(super) header: Option<bool>,
    pub(super) separator: Option<char>,
    pub(super) encoding: Option<&'static str>,
}

impl ReadOptions {
    /// Nothing said.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes the encoding of a file.
    pub(super) fn encoded_as(&mut self, file: &TextFile) {
        self.found.encoding = Some(file.characters().0.name());
        let note = file.encoding_note().filter(|note| !self.notes.contains(note));
        self.notes.extend(note);
    }

    /// The note about a first line that is read as a record and may be a header.
    pub(crate) fn doubt(&self) -> Option<&str> {
        self.notes.iter().find(|note| note.contains(DOUBT)).map(String::as_str)
    }

    /// Whether columns have numbers.
    fn by_numbers(&self) -> bool {
        !matches!(self.format, Some(FileFormat::JsonLines | FileFormat::Parquet))
    }

    /// What was set, to which what is detected is added. What is noted of other files does not count.
    pub(super) fn told(&self) -> Self {
        let told = self.told.clone().unwrap_or_else(|| Box::new(self.clone()));
        Self { told: Some(told), notes: Vec::new(), ..self.clone() }
    }

    /// The columns by what is in them; empty where none was given or found.
    pub(super) fn columns(&self) -> [(&'static str, &[String]); 7] {
        [
            ("text", &self.text),
            ("label", self.label.as_slice()),
            ("group", self.group.as_slice()),
            ("source", self.source.as_slice()),
            ("target", self.target.as_slice()),
            ("words", self.tokens.as_slice()),
            ("tags", self.tags.as_slice()),
        ]
    }

    /// Checks that neither several columns of a text nor a column of groups are given for a format that has no columns.
    ///
    /// # Errors
    /// If they are.
    pub(super) fn without_columns(&self, format: FileFormat, of: &str) -> Result<()> {
        let (what, key, columns) = match &self.group {
            _ if self.text.len() > 1 => ("columns of the text", "data.text", &*self.text),
            Some(_) => ("column of the group", "data.group", self.group.as_slice()),
            None => return Ok(()),
        };
        let what = format!("{what} (`{key}` in a config) of {of}");
        let expected = format!("a file with columns (CSV, TSV, JSON or Parquet), since `{format}` has none");
        let got = quoted(columns.iter().map(String::as_str));
        let advice = format!("write the texts into such a file, or leave `{key}` out");
        Err(Error::of(ErrorKind::Format, what, expected, got).noted(advice))
    }

    /// The format.
    #[must_use]
    pub fn format(self, format: FileFormat) -> Self {
        Self { format: Some(format), ..self }
    }

    /// How bytes stand for characters. Unless it is set, what is no UTF-8 is read as UTF-16 by its byte order mark, or as Windows-1252 if
    /// hardly a character beyond ASCII is UTF-8 and no other encoding is likelier; else it is refused.
    #[must_use]
    pub fn encoding(self, encoding: Encoding) -> Self {
        Self { encoding: Some(encoding), ..self }
    }

    /// Malformed records: an error, skipped, or collected (default: [`MalformedLines::Error`]).
    #[must_use]
    pub fn malformed(self, policy: MalformedLines) -> Self {
        Self { malformed: policy, ..self }
    }

    /// Whether the first record of a table is a header. Without it, it is one if all wanted columns have known names there, or if it has
    /// a text where all later records have numbers.
    #[must_use]
    pub fn header(self, header: bool) -> Self {
        Self { header: Some(header), ..self }
    }

    /// The separator of a table's columns, such as `;`. Without it, the one of comma, semicolon, tab and bar that gives equally many
    /// columns in the first records.
    #[must_use]
    pub fn separator(self, separator: char) -> Self {
        Self { separator: Some(separator), ..self }
    }

    /// The column of the text, where each has a label or none.
    #[must_use]
    pub fn text(self, column: impl Into<String>) -> Self {
        self.texts([column])
    }

    /// The columns of a text that is in several: their cells, in this order, with one tab between them.
    ///
    /// Tabs and line breaks within a cell become spaces, so that a text has as many parts as columns. A cell may be empty, and a field of
    /// JSON null or missing, if another column has text. Tables, JSON and Parquet have columns; an error names `data.text` where a file of
    /// another format is read. All columns are named: none is detected.
    ///
    /// ```
    /// use unpadded::data::{LabelledTexts, ReadOptions};
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

    /// The last of [`Self::texts`] is a second text: it and the first text may not be empty.
    #[must_use]
    pub(crate) fn pair(self, pair: bool) -> Self {
        Self { pair, ..self }
    }

    /// The column of the label.
    #[must_use]
    pub fn label(self, column: impl Into<String>) -> Self {
        Self { label: Some(column.into()), ..self }
    }

    /// The column of a group, such as the author or the document of a text: [`DataSet::hold_out`](crate::data::DataSet::hold_out) and the folds
    /// of a cross-validation keep texts with the same value in it on one side.
    ///
    /// ```
    /// use unpadded::data::{LabelledTexts, ReadOptions};
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

    /// Several labels per text: in JSON and Parquet the label may be a list of texts or numbers. Each label has U+001F behind it, and a
    /// list without a label is U+001F alone. An empty label cell is allowed, and a label that is null or missing; a label that is no list is
    /// read as without this option.
    ///
    /// ```
    /// use unpadded::data::{LabelledTexts, ReadOptions};
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

    /// The column of what is translated.
    #[must_use]
    pub fn source(self, column: impl Into<String>) -> Self {
        Self { source: Some(column.into()), ..self }
    }

    /// The column of what it becomes.
    #[must_use]
    pub fn target(self, column: impl Into<String>) -> Self {
        Self { target: Some(column.into()), ..self }
    }

    /// The column of the words: the field with the list of them in JSON and Parquet, the number of the column in columns; of CoNLL-U also
    /// its name, such as `lemma`.
    #[must_use]
    pub fn tokens(self, column: impl Into<String>) -> Self {
        Self { tokens: Some(column.into()), ..self }
    }

    /// The column of their tags.
    #[must_use]
    pub fn tags(self, column: impl Into<String>) -> Self {
        Self { tags: Some(column.into()), ..self }
    }

    /// Of trees with labels 0 to 4, as those of the Stanford Sentiment Treebank: 0 and 1 are `0`, 3 and 4 are `1`, and trees of the
    /// neutral 2 are left out.
    #[must_use]
    pub fn binary(self) -> Self {
        Self { binary: true, ..self }
    }

    /// Whether of trees each phrase is a text of its own, with the label of its node: to train on, and not to measure on.
    #[must_use]
    pub fn phrases(self, phrases: bool) -> Self {
        Self { phrases, ..self }
    }

    /// Of tagged texts: rewrites tags that break the scheme of the others, as conlleval reads them. An `I` behind `O`, or behind another
    /// kind, begins a chunk. A note beside the columns has their number.
    #[must_use]
    pub fn repair_tags(self) -> Self {
        Self { repair_tags: true, ..self }
    }

    /// Of tagged texts: the scheme of the tags. Without it, the one that all of them keep.
    #[must_use]
    pub fn scheme(self, scheme: TagScheme) -> Self {
        Self { scheme: Some(scheme), ..self }
    }

    /// Of rows of features: the number of the first feature. Without it, 0 if there is an index 0, and else 1.
    #[must_use]
    pub fn first_index(self, first: FirstIndex) -> Self {
        Self { first_index: Some(first), ..self }
    }

    /// Of a pronouncing dictionary: keeps the digits of stress.
    #[must_use]
    pub fn stress(self) -> Self {
        Self { stress: true, ..self }
    }
}

/// The format and the columns, as far as they were said or found out.
impl fmt::Display for ReadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = self.format.map(|format| format!("`{format}`"));
        let column = |name: &String| {
            let name = name.replace('\n', "\\n");
            let by_number = self.by_numbers() && name.parse::<usize>().is_ok();
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
        f.write_str(&all.into_iter().chain(self.notes.iter().cloned()).collect::<Vec<_>>().join("; "))
    }
}
