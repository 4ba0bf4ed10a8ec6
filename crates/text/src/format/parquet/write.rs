//! Writes a copy of a Parquet file with added columns. The existing columns are copied without decoding, row group by
//! row group.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{ByteArray, ByteArrayType, FloatType};
use parquet::errors::{ParquetError, Result as Outcome};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::FileReader;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};
use unpadded::{Error, ErrorKind, Result};

use super::{Bounded, guarded, open};
use crate::TextFile;
use crate::answer::answers::AnswerCell;

type ByteSink = Box<dyn Write + Send>;

/// The metadata key of the Arrow schema. The copy leaves this entry out, since it does not describe the added columns.
const OF_ARROW: &str = "ARROW:schema";

enum Chunks {
    Plain(Bounded<File>),
    Packed(Bounded<Bytes>),
}

/// An added column, with its cells for the rows of the current row group that have an answer so far.
#[derive(Default)]
struct Column {
    name: String,
    kind: Kind,
    texts: Vec<ByteArray>,
    numbers: Vec<f32>,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    /// Texts of earlier cells, at most 4096, so that equal cells share the memory of one text.
    known: HashMap<String, ByteArray>,
}

/// The type of an added column; the first nonempty answer decides the type.
#[derive(Clone, Copy, PartialEq, Default)]
enum Kind {
    #[default]
    Open,
    Text,
    Number,
    Words,
}

/// A writer of answers as added columns in a copy of a Parquet file.
pub(crate) struct Answers {
    name: String,
    file: Box<dyn FileReader>,
    bytes: Chunks,
    columns: Vec<Column>,
    /// The number of rows that have an answer and are not written yet.
    rows: i64,
    group: usize,
    /// The output, before the header of the Parquet file is written; `None` afterwards.
    waiting: Option<ByteSink>,
    out: Option<SerializedFileWriter<ByteSink>>,
}

impl Answers {
    /// Returns a writer of a copy of `file`; `names` are the names of the added columns.
    pub(crate) fn new(file: &TextFile, names: Vec<String>, out: ByteSink) -> Result<Self> {
        let bytes = match file.plain()? {
            Some(plain) => Chunks::Plain(Bounded(plain)),
            None => Chunks::Packed(Bounded(Bytes::from(file.contents()?))),
        };
        let columns = names.into_iter().map(|name| Column { name, ..Column::default() }).collect();
        let (name, file) = (file.name(), open(file)?);
        Ok(Self { name, file, bytes, columns, rows: 0, group: 0, waiting: Some(out), out: None })
    }

    /// Adds the answer to the next row; if the answer has no cells, the added columns are empty in this row.
    pub(crate) fn add(&mut self, answer: &[AnswerCell]) -> Result<()> {
        for (at, column) in self.columns.iter_mut().enumerate() {
            column.add(answer.get(at).unwrap_or(&AnswerCell::Nothing));
        }
        self.rows += 1;
        self.write_full()
    }

    /// Writes each row group in which every row has an answer.
    fn write_full(&mut self) -> Result<()> {
        while self.group < self.file.num_row_groups()
            && self.file.metadata().row_group(self.group).num_rows() <= self.rows
        {
            self.written(Self::write)?;
            (self.rows, self.group) = (0, self.group + 1);
        }
        Ok(())
    }

    /// Writes the row groups that are left and the Parquet footer, and flushes the output.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.write_full()?;
        self.written(|answers| {
            answers.begin()?;
            let Some(out) = answers.out.take() else { return Ok(()) };
            let mut out = out.into_inner()?;
            out.flush().map_err(ParquetError::from)
        })
    }

    fn written(&mut self, write: impl FnOnce(&mut Self) -> Outcome<()>) -> Result<()> {
        let name = self.name.clone();
        guarded(&name, || Ok(write(self)))?.map_err(|e| {
            let what = format!("answers to file `{name}`");
            Error::of(ErrorKind::Io, what, "a file in which answers can be written", e.to_string())
        })
    }

    /// Starts the output file. After this call, the types of the added columns are fixed.
    fn begin(&mut self) -> Outcome<()> {
        let Some(out) = self.waiting.take() else { return Ok(()) };
        let about = self.file.metadata().file_metadata();
        let beside = about.key_value_metadata().cloned().unwrap_or_default();
        let beside = beside.into_iter().filter(|entry| entry.key != OF_ARROW).collect();
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_key_value_metadata(Some(beside));
        let mut fields = about.schema().get_fields().to_vec();
        for column in &mut self.columns {
            fields.push(column.of()?);
        }
        let schema = Type::group_type_builder(about.schema().name()).with_fields(fields).build()?;
        self.out = Some(SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build()))?);
        Ok(())
    }

    /// Writes the current row group: the copied columns, then the added columns.
    fn write(&mut self) -> Outcome<()> {
        self.begin()?;
        let Some(out) = &mut self.out else { return Ok(()) };
        let (mut to, about) = (out.next_row_group()?, self.file.metadata().row_group(self.group));
        for column in about.columns() {
            let close = ColumnCloseResult {
                bytes_written: u64::try_from(column.compressed_size())?,
                rows_written: u64::try_from(about.num_rows())?,
                metadata: column.clone(),
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            match &self.bytes {
                Chunks::Plain(bytes) => to.append_column(bytes, close)?,
                Chunks::Packed(bytes) => to.append_column(bytes, close)?,
            }
        }
        self.columns.iter_mut().try_for_each(|column| column.write(&mut to))?;
        to.close().map(drop)
    }
}

impl Column {
    fn text(&mut self, text: &str) {
        const MOST: usize = 4096;
        if let Some(known) = self.known.get(text) {
            return self.texts.push(known.clone());
        }
        let own = ByteArray::from(text.as_bytes().to_vec());
        if self.known.len() < MOST {
            self.known.insert(text.to_owned(), own.clone());
        }
        self.texts.push(own);
    }

    fn add(&mut self, cell: &AnswerCell) {
        let kind = match cell {
            AnswerCell::Text(_) => Kind::Text,
            AnswerCell::Number(_) => Kind::Number,
            AnswerCell::Words(_) | AnswerCell::List(..) | AnswerCell::Numbers(..) => Kind::Words,
            AnswerCell::Nothing => Kind::Open,
        };
        if self.kind == Kind::Open {
            self.kind = kind;
        }
        let list: Option<Cow<'_, [String]>> = match cell {
            AnswerCell::Words(texts) | AnswerCell::List(texts, _) => Some(texts.into()),
            AnswerCell::Numbers(numbers, _) => Some(numbers.iter().map(f32::to_string).collect()),
            _ => None,
        };
        match (cell, list) {
            // In a column of lists, a null list has definition level 0, an empty list 1, and an element 2.
            (_, Some(texts)) if self.kind == kind && !texts.is_empty() => {
                for (at, text) in texts.iter().enumerate() {
                    self.text(text);
                    self.definitions.push(2);
                    self.repetitions.push(i16::from(at > 0));
                }
                return;
            }
            (AnswerCell::Text(text), _) if self.kind == kind => self.text(text),
            (AnswerCell::Number(number), _) if self.kind == kind => self.numbers.push(*number),
            (_, list) => {
                self.definitions.push(i16::from(list.is_some() && self.kind == kind));
                self.repetitions.push(0);
                return;
            }
        }
        self.definitions.push(1);
        self.repetitions.push(0);
    }

    /// Returns the Parquet type of the added column; the type is text if all answers so far are empty.
    fn of(&mut self) -> Outcome<TypePtr> {
        if self.kind == Kind::Open {
            self.kind = Kind::Text;
        }
        let text = |name: &str, repetition| {
            Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
                .with_repetition(repetition)
                .with_logical_type(Some(LogicalType::String))
                .with_converted_type(ConvertedType::UTF8)
                .build()
                .map(Arc::new)
        };
        match self.kind {
            Kind::Number => Type::primitive_type_builder(&self.name, Physical::FLOAT)
                .with_repetition(Repetition::OPTIONAL)
                .build()
                .map(Arc::new),
            Kind::Words => {
                let list = Type::group_type_builder("list")
                    .with_repetition(Repetition::REPEATED)
                    .with_fields(vec![text("element", Repetition::REQUIRED)?])
                    .build()?;
                Type::group_type_builder(&self.name)
                    .with_repetition(Repetition::OPTIONAL)
                    .with_logical_type(Some(LogicalType::List))
                    .with_converted_type(ConvertedType::LIST)
                    .with_fields(vec![Arc::new(list)])
                    .build()
                    .map(Arc::new)
            }
            Kind::Text | Kind::Open => text(&self.name, Repetition::OPTIONAL),
        }
    }

    /// Writes the cells of this added column into the current row group, and removes the cells from memory.
    fn write(&mut self, to: &mut SerializedRowGroupWriter<'_, ByteSink>) -> Outcome<()> {
        let missing = || ParquetError::General(format!("no column `{}` to write", self.name));
        let mut column = to.next_column()?.ok_or_else(missing)?;
        let (defined, repeated) = (Some(&self.definitions[..]), Some(&self.repetitions[..]));
        match self.kind {
            Kind::Number => column.typed::<FloatType>().write_batch(&self.numbers, defined, None)?,
            Kind::Words => column.typed::<ByteArrayType>().write_batch(&self.texts, defined, repeated)?,
            _ => column.typed::<ByteArrayType>().write_batch(&self.texts, defined, None)?,
        };
        column.close()?;
        self.texts.clear();
        self.numbers.clear();
        self.definitions.clear();
        self.repetitions.clear();
        Ok(())
    }
}
