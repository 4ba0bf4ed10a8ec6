//! The form of a file: the wanted columns in the records of each kind of format.

use unpadded::Result;

use super::column::Column;
use super::objects::{FieldChoice, picked};
use super::options::ReadOptions;
use super::spans;
use crate::TextFile;
use crate::format::conll::Columns;
use crate::format::line_format::{LineFormat, LineSettings};
use crate::format::row::{FileRow, RecordMaker};
use crate::format::table::Table;
use crate::format::{FileFormat, FormatKind};
use crate::source::reason::{Reason, no_records, wrong_format};
use crate::source::records::{OneLine, Stream, at_least_one};

/// The location of the wanted columns in the records of a file.
#[derive(Debug, Clone)]
pub(crate) enum FileForm {
    Cells(Table),
    Fields(FieldChoice),
    Lines(&'static LineFormat, LineSettings),
    Words(Columns),
}

impl FileForm {
    /// Detects the wanted columns of a file, unless the options set them.
    pub(crate) fn of(
        file: &TextFile,
        format: FileFormat,
        options: &ReadOptions,
        wanted: &[Column<'_>],
    ) -> Result<Self> {
        match format.kind() {
            FormatKind::Table => Table::of(file, format, options, wanted).map(Self::Cells),
            FormatKind::Fields(format) => picked(file, format, wanted, options)
                .map(Self::Fields)
                .map_err(|e| spans::explained(file, format, wanted, e)),
            FormatKind::Lines(line_format) => Ok(Self::Lines(
                line_format,
                LineSettings { label_lists: options.label_lists, ..options.lines },
            )),
            FormatKind::Words => {
                let [words, tags] = [&options.tokens, &options.tags].map(Option::as_deref);
                Columns::of(file, words, tags, options.header, options.columns.as_deref()).map(Self::Words)
            }
            FormatKind::Features | FormatKind::Text | FormatKind::Folders(_) => {
                let what = format!("format of file `{}`", file.name());
                Err(wrong_format(what, "a format with columns", format!("`{format}`")))
            }
        }
    }

    /// Stores what was detected in the options, with notes for the user.
    pub(crate) fn note(&self, file: &TextFile, options: &mut ReadOptions) -> Result<()> {
        match self {
            Self::Cells(table) => table.note(options),
            Self::Fields(picked) => options.notes.clone_from(&picked.notes),
            Self::Lines(format, settings) => options.notes.extend((format.note)(file, *settings)?),
            Self::Words(columns) => options.columns = Some(Box::new(columns.clone())),
        }
        options.notes.extend(self.unread());
        Ok(())
    }

    pub(crate) fn unread(&self) -> Option<String> {
        match self {
            Self::Cells(table) => table.unread(),
            Self::Fields(picked) => picked.unread(),
            Self::Lines(..) | Self::Words(_) => None,
        }
    }

    /// Returns the names or numbers of the wanted columns, the notes for the user, and whether the file itself names its columns;
    /// empty for a format whose columns are fixed.
    pub(crate) fn choice(&self) -> (&[String], &[String], bool) {
        match self {
            Self::Cells(Table { picked, .. }) => (&picked.names, &picked.notes, picked.header),
            Self::Fields(picked) => (&picked.names, &picked.notes, true),
            Self::Lines(..) | Self::Words(_) => (&[], &[], false),
        }
    }

    /// Returns the texts of a wanted column in the first records; `column` is its place among the wanted columns.
    pub(crate) fn first_cells(&self, file: &TextFile, column: usize) -> Result<Vec<String>> {
        match self {
            Self::Cells(table) => table.first_cells(file, column),
            Self::Fields(picked) => picked.first_texts(file, column),
            Self::Lines(..) | Self::Words(_) => Ok(Vec::new()),
        }
    }

    /// Reads the records of the file; `make` makes each record from the wanted columns of a row.
    pub(crate) fn records<R: Send + 'static>(
        &self,
        file: &TextFile,
        mut make: RecordMaker<R>,
    ) -> Result<Stream<R>> {
        match self {
            Self::Cells(table) => table.records(file, make),
            Self::Fields(picked) => {
                let names = picked.names.clone();
                picked.records(file, move |object| make(FileRow::Object(object, &names), object.line))
            }
            Self::Lines(LineFormat { records, advice, .. }, settings) => {
                let mut records = records(*settings);
                let above = file.skip_lines;
                let make = move |number, line: &str| -> Result<Option<Vec<R>>, Reason> {
                    let rows = if number > above { records(line)? } else { None };
                    let mut make = |mut row: [String; 2]| make(FileRow::Cells(&mut row), number);
                    rows.map(|rows| rows.into_iter().map(&mut make).collect()).transpose()
                };
                let found = file.records(OneLine(make))?;
                Ok(Box::new(found.flat_map(move |records| match (records, advice) {
                    (Ok(records), _) => records.into_iter().map(Ok).collect(),
                    (Err(e), Some(advice)) => vec![Err(e.noted(*advice))],
                    (Err(e), None) => vec![Err(e)],
                })))
            }
            Self::Words(columns) => {
                let (name, none) = (file.name(), file.name());
                let record = move |sentence: Result<_>| {
                    make(FileRow::Sentence(sentence?), 0).map_err(|reason| reason.at(&*name))
                };
                Ok(at_least_one(columns.sentences(file)?.map(record), move || no_records(&none)))
            }
        }
    }
}
