//! The formats of files. Each file of this folder reads one format; the table of the formats is here: the name, the file
//! extensions and the records of each format.

pub(crate) mod conll;
pub(crate) mod dictionary;
pub(crate) mod fasttext;
pub(crate) mod fields;
pub(crate) mod json;
pub(crate) mod labels;
pub(crate) mod libsvm;
pub(crate) mod line_format;
mod not_finite;
pub(crate) mod parallel;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
pub(crate) mod repeated;
pub(crate) mod row;
pub(crate) mod table;
pub(crate) mod trees;
mod walk;

use std::fmt;
use std::str::FromStr;

use unpadded::{Error, Result};

use self::FormatKind::{Features, Fields, Folders, Lines, Table, Text, Words};
use self::line_format::LineFormat;

/// The kind of records that a caller wants to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Labelled,
    Pairs,
    Tagged,
    /// Texts or sentences whose words get tags: tables of texts, words with or without tags, or plain text.
    ToTag,
    Plain,
}

/// The way in which a file has its records.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FormatKind {
    /// Rows of cells.
    Table,
    /// Records with named fields.
    Fields(FieldFormat),
    /// Sentences with a word and its tags per line.
    Words,
    /// Lines with whole records.
    Lines(&'static LineFormat),
    /// Rows of numbered features.
    Features,
    /// A text without records.
    Text,
    /// Several files: the name or the folder of a file shows what its texts are.
    Folders(FolderFormat),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum FieldFormat {
    Json,
    Parquet,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum FolderFormat {
    Parallel,
    ClassFiles,
    ClassFolders,
}

/// Declares the formats. The kinds of records that a format may have are between the last brackets.
macro_rules! formats {
    ($($(#[$doc:meta])* $format:ident: $name:literal, $endings:expr, $kind:expr, [$($task:ident),*];)*) => {
        /// The format of a data set's files or folders.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum FileFormat {
            $($(#[$doc])* $format,)*
        }

        impl FileFormat {
            /// All formats.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$format),*];

            /// The name of the format, such as `csv` or `folder-per-class`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$format => $name,)*
                }
            }

            pub(crate) fn endings(self) -> &'static [&'static str] {
                match self {
                    $(Self::$format => &$endings,)*
                }
            }

            pub(crate) fn kind(self) -> FormatKind {
                match self {
                    $(Self::$format => $kind,)*
                }
            }

            pub(crate) fn may_have(self, task: Task) -> bool {
                match self {
                    $(Self::$format => [$(Task::$task),*].contains(&task),)*
                }
            }
        }
    };
}

formats! {
    /// A table with tabs between columns, with a header line or without. Quotation marks are text, unless the cells of
    /// the first records are quoted as in CSV. A file without any tab is read as [`Self::Csv`].
    Tsv: "tsv", ["tsv", "tab"], Table, [Labelled, Pairs, ToTag, Plain];
    /// A table with commas, semicolons, tabs or bars between columns, as in RFC 4180, with a header line or without. A
    /// cell in quotation marks may contain separators and line ends.
    Csv: "csv", ["csv"], Table, [Labelled, Pairs, ToTag, Plain];
    /// JSON. Each line may be a record (an object or a list), the file may be one list of records, or the file may be
    /// one object. Such an object has lists of records (the path `file.json!train` reads the list `train`), columns, or
    /// numbered records. The format has the names `jsonl` and `json`.
    JsonLines: "jsonl", ["jsonl", "ndjson", "json"], Fields(FieldFormat::Json), [Labelled, Pairs, Tagged, ToTag, Plain];
    /// A Parquet file, which is read by row groups. The feature `parquet` of this crate is necessary.
    Parquet: "parquet", ["parquet"], Fields(FieldFormat::Parquet), [Labelled, Pairs, Tagged, ToTag, Plain];
    /// Columns with a word and its tags per line, and blank lines between sentences, as in the CoNLL shared tasks.
    Columns: "columns", ["conll", "conllu", "bio", "iob"], Words, [Tagged, ToTag];
    /// A folder of parallel files with a sentence per line: `seq.in` has the words, `seq.out` has the tags, and
    /// `label`, if it exists, has the label of each sentence.
    Parallel: "parallel", [], Folders(FolderFormat::Parallel), [];
    /// A file per class, with a text per line.
    FilePerClass: "file-per-class", [], Folders(FolderFormat::ClassFiles), [];
    /// A folder per class, with a text per file.
    FolderPerClass: "folder-per-class", [], Folders(FolderFormat::ClassFolders), [];
    /// A tree per line, in brackets: `(label left right)` or `(label word)`. The leaves are the words of the text, and
    /// the label of the root is the label of the text.
    Trees: "trees", [], Lines(&trees::FORMAT), [Labelled];
    /// A text per line, with the label before the text, as for fastText: `__label__good A fine film.`
    FastText: "fasttext", [], Lines(&fasttext::FORMAT), [Labelled];
    /// A pronouncing dictionary in the format of CMUdict: a word and its phonemes per line.
    Dictionary: "dictionary", ["dict"], Lines(&dictionary::FORMAT), [Pairs];
    /// A LIBSVM file of labels and numbered features, without texts: [`LabelledRows`](crate::LabelledRows) reads it.
    Libsvm: "libsvm", ["svm", "libsvm", "svmlight"], Features, [];
    /// Plain text.
    Plain: "plain", [], Text, [ToTag, Plain];
}

impl FileFormat {
    /// Returns what the answers to a file of this format are, and an extension that fits them, if the format `named` of the output
    /// file's name does not fit. `separator` is the separator of the table.
    pub fn answers_misnamed(self, separator: Option<char>, named: Self) -> Option<[&'static str; 2]> {
        let (what, extension, fit): (_, _, &[Self]) = match self.kind() {
            Table if separator == Some('\t') => ("tab-separated values", "tsv", &[Self::Tsv]),
            Table if self == Self::Tsv => ("tab-separated values", "tsv", &[Self::Tsv, Self::Csv]),
            Table => ("CSV", "csv", &[Self::Csv]),
            Fields(FieldFormat::Json) => ("JSON Lines", "jsonl", &[self]),
            Fields(FieldFormat::Parquet) => ("Parquet", "parquet", &[self]),
            Words => ("one word per line", "conll", &[self]),
            Features => ("rows of features", "txt", &[self]),
            Lines(_) | Text | Folders(_) => ("lines of text", "txt", &[self, Self::Tsv]),
        };
        (!fit.contains(&named)).then_some([what, extension])
    }

    /// Returns the format that the extension of a file name shows; `None` for an unknown extension.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let ending = extension(&name)?;
        Self::ALL.into_iter().find(|format| format.endings().contains(&ending))
    }

    /// Returns whether the files have columns, which options can name.
    pub(crate) fn has_columns(self) -> bool {
        matches!(self.kind(), Table | Fields(_))
    }

    /// Returns whether the files are tables, whose columns options can name or number.
    pub(crate) fn is_table(self) -> bool {
        matches!(self.kind(), Table)
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

impl Task {
    /// The file formats that may have records of this kind, the usual formats first.
    pub(crate) fn formats(self) -> Vec<FileFormat> {
        let columns_first = matches!(self, Self::Labelled | Self::Pairs);
        let mut formats: Vec<_> = FileFormat::ALL.into_iter().filter(|known| known.may_have(self)).collect();
        formats.sort_by_key(|format| format.has_columns() != columns_first);
        formats
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Labelled => "labelled texts",
            Self::Pairs => "pairs of texts",
            Self::Tagged => "tagged texts",
            Self::ToTag => "texts to tag",
            Self::Plain => "plain text",
        }
    }
}

/// Returns the extension of a file name, without a final `.gz`.
pub(crate) fn extension(name: &str) -> Option<&str> {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let name = name.rsplit(['/', '!']).next().unwrap_or(name);
    name.rsplit_once('.').map(|(_, extension)| extension)
}
