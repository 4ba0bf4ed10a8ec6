//! Reads the rows of a Parquet file as records with named fields. Only the wanted columns are read, 64 rows at a time.
//! Only one page per wanted column is in memory, so a file may be larger than memory.

pub(crate) mod write;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::{ParquetError, Result as Outcome};
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::schema::types::{ColumnDescriptor, Type};
use unpadded::{Error, Result};

use super::fields::{FieldText, Object, Value, text_in};
use crate::detect::guess::PARQUET;
use crate::source::reason::{Reason, wrong_format};
use crate::source::records::{Stream, to_first_error};
use crate::{MalformedLines, TextFile};

/// Number of rows that are decoded at a time.
const ROWS: usize = 64;

/// The types of columns that can be read, for error messages.
const READ: &str = "texts, numbers, truth values, or lists of these";

/// A reader of bytes that refuses ranges beyond the end of the file. A damaged file may declare such ranges.
struct Bounded<R>(R);

impl<R: ChunkReader> Bounded<R> {
    fn check(&self, start: u64, length: u64) -> Outcome<()> {
        match start.checked_add(length).is_some_and(|end| end <= self.0.len()) {
            true => Ok(()),
            false => Err(ParquetError::EOF(format!("{length} bytes from {start} on, of {}", self.0.len()))),
        }
    }
}

impl<R: Length> Length for Bounded<R> {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl<R: ChunkReader> ChunkReader for Bounded<R> {
    type T = R::T;

    fn get_read(&self, start: u64) -> Outcome<R::T> {
        self.check(start, 0)?;
        self.0.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Outcome<Bytes> {
        self.check(start, length as u64)?;
        self.0.get_bytes(start, length)
    }
}

fn damaged(name: &str, e: &ParquetError) -> Error {
    let got = match e {
        ParquetError::General(reason) | ParquetError::NYI(reason) | ParquetError::EOF(reason) => {
            reason.clone()
        }
        other => other.to_string(),
    };
    let got = format!("a damaged file ({})", got.trim());
    wrong_format(format!("file `{name}`"), "a Parquet file that can be read", got)
}

/// Calls `read`, in which the crate `parquet` reads the file `name`, and returns a panic as an error: the crate panics on some
/// damaged bytes. The panic message is still printed, and a build with `panic = "abort"` still ends the program.
fn guarded<T>(name: &str, read: impl FnOnce() -> Outcome<T>) -> Result<T> {
    let outcome = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let reason = panic.downcast_ref::<String>().map(String::as_str);
        let reason = reason.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason");
        Err(ParquetError::General(format!("its reader stopped: {reason}")))
    });
    outcome.map_err(|e| damaged(name, &e))
}

fn open(file: &TextFile) -> Result<Box<dyn FileReader>> {
    match file.plain()? {
        Some(plain) => reader(&file.name(), plain),
        // A compressed file has no random access, so its contents are read into memory.
        None => reader(&file.name(), Bytes::from(file.contents()?)),
    }
}

fn reader<R: ChunkReader + 'static>(name: &str, bytes: R) -> Result<Box<dyn FileReader>> {
    let (bytes, size) = (Bounded(bytes), PARQUET.len());
    let wrong = |expected: &str, got: &str| Err(wrong_format(format!("file `{name}`"), expected, got));
    let ends = |start: u64| bytes.get_bytes(start, size).ok();
    if ends(0).is_none_or(|first| *first != PARQUET[..]) {
        return wrong("a Parquet file, which begins with `PAR1`", "other bytes");
    }
    match bytes.len().checked_sub(size as u64).filter(|&at| at >= size as u64).and_then(ends) {
        Some(last) if *last == PARQUET[..] => {}
        Some(last) if *last == b"PARE"[..] => {
            return wrong("an unencrypted Parquet file", "an encrypted file");
        }
        _ => {
            let got = "other bytes: it was cut short, as by a download that broke off";
            return wrong("a Parquet file, which ends with `PAR1`", got);
        }
    }
    Ok(Box::new(guarded(name, || SerializedFileReader::new(bytes))?))
}

/// The type to which the values of a column are converted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Truth,
    Whole { signed: bool },
    Number,
}

/// A Parquet column that contains values; it may be nested in groups, and its cells may be lists.
struct Field {
    /// The path of the column: the names of the enclosing groups and the name of the column, joined by dots.
    name: String,
    /// The index of the column among the leaf columns of the schema, from 0.
    leaf: usize,
    /// The type that the column's values are converted to; `None` if this reader does not support the column's type.
    kind: Option<Kind>,
    /// The smallest definition level at which a list of this column has an element; `None` without lists.
    element: Option<i16>,
    /// The type of the column in the file, for error messages.
    kind_name: String,
}

fn kind(column: &ColumnDescriptor) -> Option<Kind> {
    match column.physical_type() {
        Physical::BOOLEAN => Some(Kind::Truth),
        Physical::INT32 | Physical::INT64 => match (column.logical_type_ref(), column.converted_type()) {
            (Some(LogicalType::Integer(whole)), _) => Some(Kind::Whole { signed: whole.is_signed }),
            (Some(_), _) => None,
            (None, ConvertedType::NONE) => Some(Kind::Whole { signed: true }),
            (None, converted) => {
                let name = converted.to_string();
                let signed = name.starts_with("INT_");
                (signed || name.starts_with("UINT_")).then_some(Kind::Whole { signed })
            }
        },
        Physical::FLOAT | Physical::DOUBLE => Some(Kind::Number),
        Physical::BYTE_ARRAY => match (column.logical_type_ref(), column.converted_type()) {
            (Some(LogicalType::String | LogicalType::Enum | LogicalType::Json), _) => Some(Kind::Text),
            // Old Parquet files do not mark columns of bytes as text, so unmarked bytes are read as text.
            (None, ConvertedType::NONE | ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON) => {
                Some(Kind::Text)
            }
            _ => None,
        },
        _ => None,
    }
}

fn is_list(column: &Type) -> bool {
    let about = column.get_basic_info();
    about.converted_type() == ConvertedType::LIST || about.logical_type_ref() == Some(&LogicalType::List)
}

fn field(leaf: usize, column: &ColumnDescriptor, root: &Type) -> Field {
    let parts = column.path().parts();
    // The first repeated field on the path of the column, and whether this field is inside a Parquet `LIST` group.
    let (mut inside, mut repeated) = (root, None);
    for (depth, part) in parts.iter().enumerate() {
        let Some(child) = inside.get_fields().iter().find(|child| child.name() == part) else { break };
        let about = child.get_basic_info();
        if repeated.is_none() && about.has_repetition() && about.repetition() == Repetition::REPEATED {
            repeated = Some((depth, depth > 0 && is_list(inside)));
        }
        if child.is_primitive() {
            break;
        }
        inside = child;
    }
    let kind_name = match column.logical_type_ref() {
        Some(logical) => format!("{} ({logical:?})", column.physical_type()),
        None => column.physical_type().to_string(),
    };
    let (name, kind, element) = match (repeated, column.max_rep_level()) {
        (None, 0) => (parts.join("."), kind(column), None),
        (Some((depth, list)), 1) if parts.len() - depth <= 1 + usize::from(list) => {
            let named = if list { depth } else { depth + 1 };
            let name = parts.iter().take(named).map(String::as_str).collect::<Vec<_>>().join(".");
            (name, kind(column), Some(column.repeated_ancestor_def_level()))
        }
        _ => (parts.join("."), None, None),
    };
    Field { name, leaf, kind, element, kind_name }
}

fn fields(file: &dyn FileReader) -> Vec<Field> {
    let schema = file.metadata().file_metadata().schema_descr();
    let root = schema.root_schema();
    schema.columns().iter().enumerate().map(|(leaf, column)| field(leaf, column, root)).collect()
}

/// Returns an example record: an empty or zero value of the right type for each field of the Parquet file.
pub(crate) fn example(file: &TextFile) -> Result<Object<'static>> {
    let value = |field: &Field| match (field.kind, field.element) {
        (None, _) => Value::Object(Object::default()),
        (_, Some(_)) => Value::List(Vec::new()),
        (Some(Kind::Text), _) => Value::Text("".into()),
        (Some(Kind::Truth), _) => Value::Truth(false),
        (Some(Kind::Whole { .. } | Kind::Number), _) => Value::Number("0".into()),
    };
    let file = open(file)?;
    let fields = fields(&*file);
    let fields = fields.iter().map(|field| (field.name.clone().into(), value(field))).collect();
    Ok(Object { fields, ..Object::default() })
}

/// Returns the names of class ids by column, which the Python library `datasets` stores in the metadata.
fn classes(file: &dyn FileReader) -> HashMap<String, Arc<[String]>> {
    let beside = file.metadata().file_metadata().key_value_metadata();
    let metadata = beside.into_iter().flatten().find(|entry| entry.key == "huggingface");
    let metadata: Option<serde_json::Value> =
        metadata.and_then(|entry| serde_json::from_str(entry.value.as_ref()?).ok());
    let entry = |(name, about): (&String, &serde_json::Value)| {
        let about = about.get("feature").or_else(|| about.get(0)).unwrap_or(about);
        let names: Vec<String> = serde_json::from_value(about.get("names")?.clone()).ok()?;
        Some((name.clone(), names.into()))
    };
    let features = metadata.as_ref().and_then(|metadata| metadata.get("info")?.get("features")?.as_object());
    features.into_iter().flatten().filter_map(entry).collect()
}

/// The value of a column in one row, or the reason why the value is malformed.
type Cell = Result<Value<'static>, Reason>;

/// A reader of one column of a Parquet row group: returns the values of the next rows, at most the given number of rows.
type ReadColumn = Box<dyn FnMut(usize) -> Outcome<Vec<Cell>> + Send>;

/// Returns the reader of a column; `defined` is the definition level of a value that is not null, `element` as in [`Field`].
fn typed<T: DataType>(
    (element, defined): (Option<i16>, i16),
    mut reader: ColumnReaderImpl<T>,
    value: impl Fn(&T::T) -> Cell + Send + 'static,
) -> ReadColumn {
    Box::new(move |rows| {
        let (mut definitions, mut repetitions, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let (_, _, levels) =
            reader.read_records(rows, Some(&mut definitions), Some(&mut repetitions), &mut values)?;
        let mut values = values.iter();
        let mut found: Vec<Cell> = Vec::new();
        let stray = || ParquetError::General("levels that do not fit the column".to_owned());
        for at in 0..levels {
            // A Parquet column without definition levels has no nulls.
            let definition = definitions.get(at).copied().unwrap_or(defined);
            let cell = match definition == defined {
                true => value(values.next().ok_or_else(stray)?),
                false => Ok(Value::Null),
            };
            let Some(element) = element else {
                found.push(cell);
                continue;
            };
            if repetitions.get(at) == Some(&0) {
                // An empty list has a definition level one below the level of an element; a null list has a lower one.
                let list = if definition + 1 >= element { Value::List(Vec::new()) } else { Value::Null };
                found.push(Ok(list));
            }
            if definition >= element {
                match (found.last_mut(), cell) {
                    (Some(Ok(Value::List(list))), Ok(value)) => list.push(value),
                    (Some(row @ Ok(_)), Err(reason)) => *row = Err(reason),
                    (Some(Err(_)), _) => {}
                    _ => return Err(stray()),
                }
            }
        }
        Ok(found)
    })
}

fn text(name: &str, bytes: &ByteArray) -> Cell {
    match std::str::from_utf8(bytes.data()) {
        Ok(text) => Ok(Value::Text(text.to_owned().into())),
        Err(e) => {
            let expected = format!("UTF-8 in the field `{name}`");
            Err(Reason::of(expected, format!("other bytes from place {} on", e.valid_up_to())))
        }
    }
}

fn number(name: &str, number: f64) -> Cell {
    let wrong = || Reason::of(format!("a number in the field `{name}`"), number.to_string());
    let found = serde_json::Number::from_f64(number).ok_or_else(wrong)?;
    Ok(Value::Number(found.to_string().into()))
}

/// Converts a whole number to the name of its class if the column has class names; otherwise returns the number.
fn whole(name: &str, classes: Option<&Arc<[String]>>, number: String) -> Cell {
    let Some(classes) = classes else { return Ok(Value::Number(number.into())) };
    let class = number.parse::<usize>().ok().and_then(|at| classes.get(at));
    class.map(|class| Value::Text(class.clone().into())).ok_or_else(|| {
        Reason::of(format!("the number of one of {} classes in the field `{name}`", classes.len()), number)
    })
}

/// The rows of a Parquet file, of which up to 64 are decoded in memory.
struct Rows {
    name: String,
    file: Box<dyn FileReader>,
    fields: Vec<Field>,
    classes: HashMap<String, Arc<[String]>>,
    /// The index of the row group that is opened next.
    group: usize,
    columns: Vec<ReadColumn>,
    /// The number of rows of the open row group that are not decoded yet.
    left: usize,
    /// For each wanted column, the decoded values of the rows in memory that were not returned yet.
    cells: Vec<std::vec::IntoIter<Cell>>,
    ready: usize,
    /// The number of the last returned row in the file, from 1 on; 0 before the first row.
    row: u64,
}

impl Rows {
    fn open(file: &TextFile, names: &[String]) -> Result<Self> {
        let (name, file) = (file.name(), open(file)?);
        let mut found = fields(&*file);
        let mut wanted = Vec::new();
        for one in names {
            let missing =
                || Error::new(format!("field `{one}` of file `{name}`"), "an existing field", "none");
            let at = found.iter().position(|field| field.name == *one).ok_or_else(missing)?;
            let field = found.swap_remove(at);
            if field.kind.is_none() {
                return Err(wrong_format(format!("field `{one}` of file `{name}`"), READ, field.kind_name));
            }
            wanted.push(field);
        }
        let classes = classes(&*file);
        let (columns, cells) = (Vec::new(), Vec::new());
        Ok(Self { name, file, fields: wanted, classes, group: 0, columns, left: 0, cells, ready: 0, row: 0 })
    }

    fn malformed(&self, reason: Reason) -> Error {
        reason.at(format!("row {} of {}", self.row, self.name))
    }

    fn damaged(&self, got: impl Into<String>) -> Error {
        damaged(&self.name, &ParquetError::General(got.into()))
    }

    /// Opens the wanted columns of the next row group; returns `false` if the file has no further row group.
    fn next_group(&mut self) -> Result<bool> {
        if self.group >= self.file.num_row_groups() {
            return Ok(false);
        }
        let group = guarded(&self.name, || self.file.get_row_group(self.group))?;
        let rows = group.metadata().num_rows();
        self.left = usize::try_from(rows).map_err(|_| self.damaged(format!("{rows} rows")))?;
        let mut columns = Vec::new();
        for field in &self.fields {
            let about = group.metadata().columns().get(field.leaf);
            let about = about.ok_or_else(|| self.damaged(format!("no column `{}`", field.name)))?;
            self.readable(&field.name, about.compression())?;
            let start = about.dictionary_page_offset().unwrap_or(about.data_page_offset());
            if start < 0 || about.compressed_size() < 0 {
                return Err(self.damaged(format!("column `{}` from byte {start} on", field.name)));
            }
            let reader = guarded(&self.name, || group.get_column_reader(field.leaf))?;
            columns.push(self.column(field, about.column_descr().max_def_level(), reader)?);
        }
        (self.columns, self.group) = (columns, self.group + 1);
        Ok(true)
    }

    /// Checks that this build of the program can decompress the column `field`.
    fn readable(&self, field: &str, by: Compression) -> Result<()> {
        use Compression::{GZIP, LZ4, LZ4_RAW, SNAPPY, UNCOMPRESSED, ZSTD};
        let advice = match by {
            UNCOMPRESSED | SNAPPY | GZIP(_) | LZ4 | LZ4_RAW => return Ok(()),
            ZSTD(_) if cfg!(feature = "parquet-zstd") => return Ok(()),
            ZSTD(_) => "build the program with `--features parquet-zstd`, which needs a C compiler",
            _ => "write the file with another compression",
        };
        let by = by.to_string();
        let by = by.split('(').next().unwrap_or_default().to_lowercase();
        let what = format!("compression of `{field}` in file `{}`", self.name);
        let zstd = if cfg!(feature = "parquet-zstd") { ", zstd" } else { "" };
        Err(wrong_format(what, format!("snappy, gzip, lz4{zstd} or no compression"), by).noted(advice))
    }

    fn column(&self, field: &Field, defined: i16, reader: ColumnReader) -> Result<ReadColumn> {
        let (levels, name) = ((field.element, defined), field.name.clone());
        let signed = field.kind != Some(Kind::Whole { signed: false });
        let classes = self.classes.get(&name).cloned();
        Ok(match reader {
            ColumnReader::BoolColumnReader(reader) => typed(levels, reader, |&truth| Ok(Value::Truth(truth))),
            ColumnReader::Int32ColumnReader(reader) => typed(levels, reader, move |&x| {
                let x = if signed { x.to_string() } else { (x as u32).to_string() };
                whole(&name, classes.as_ref(), x)
            }),
            ColumnReader::Int64ColumnReader(reader) => typed(levels, reader, move |&x| {
                let x = if signed { x.to_string() } else { (x as u64).to_string() };
                whole(&name, classes.as_ref(), x)
            }),
            // An `f32` is converted by its shortest decimal, such as 0.1; as `f64`, it would be 0.10000000149.
            ColumnReader::FloatColumnReader(reader) => typed(levels, reader, move |x| {
                number(&name, x.to_string().parse().unwrap_or_else(|_| f64::from(*x)))
            }),
            ColumnReader::DoubleColumnReader(reader) => typed(levels, reader, move |&x| number(&name, x)),
            ColumnReader::ByteArrayColumnReader(reader) => {
                typed(levels, reader, move |bytes| text(&name, bytes))
            }
            ColumnReader::Int96ColumnReader(_) | ColumnReader::FixedLenByteArrayColumnReader(_) => {
                return Err(self.damaged(format!("column `{name}` of another type than the file says")));
            }
        })
    }

    /// Decodes the next rows, at most 64, of each wanted column into memory.
    fn fill(&mut self) -> Result<()> {
        let rows = self.left.min(ROWS);
        self.cells.clear();
        for (column, field) in self.columns.iter_mut().zip(&self.fields) {
            let cells = guarded(&self.name, || column(rows));
            let cells =
                cells.map_err(|e| e.noted(format!("in `{}`, behind row {}", field.name, self.row)))?;
            if cells.len() != rows {
                let got = format!("{} rows of `{}` where {rows} should be", cells.len(), field.name);
                return Err(self.damaged(got).noted(format!("behind row {}", self.row)));
            }
            self.cells.push(cells.into_iter());
        }
        (self.left, self.ready) = (self.left - rows, rows);
        Ok(())
    }

    /// Returns the next row, or the reason why the row is malformed; `None` after the last row.
    fn next(&mut self) -> Result<Option<Result<Object<'static>, Reason>>> {
        while self.ready == 0 {
            if self.left > 0 {
                self.fill()?;
            } else if !self.next_group()? {
                return Ok(None);
            }
        }
        (self.ready, self.row) = (self.ready - 1, self.row + 1);
        // Every column advances by one row, even if the row's value in an earlier column is malformed.
        let cells: Vec<Cell> = self.cells.iter_mut().filter_map(Iterator::next).collect();
        let names = self.fields.iter().map(|field| field.name.clone());
        let fields = names.zip(cells).map(|(name, cell)| Ok((name.into(), cell?)));
        let fields: Result<Vec<_>, Reason> = fields.collect();
        Ok(Some(fields.map(|fields| Object { fields, ..Object::default() })))
    }
}

/// Reads the records of a Parquet file: `make` makes each record from the fields `names` of a row.
pub(crate) fn records<R: 'static>(
    file: &TextFile,
    names: &[String],
    mut make: impl FnMut(&Object<'_>) -> Result<R, Reason> + Send + 'static,
) -> Result<Stream<R>> {
    let (policy, log, mut rows) = (file.malformed, file.skips.clone(), Rows::open(file, names)?);
    Ok(to_first_error(move || {
        while let Some(row) = rows.next()? {
            match row.and_then(|row| make(&row)) {
                Ok(record) => return Ok(Some(record)),
                Err(reason) if policy == MalformedLines::Skip => {
                    log.iter().try_for_each(|log| log.add(&rows.name, [rows.row, 0], &reason, ""))?;
                }
                Err(reason) => return Err(rows.malformed(reason)),
            }
        }
        Ok(None)
    }))
}

/// A reader of the rows of a Parquet file as texts; the text of a row is made of the given fields.
pub(crate) struct RowTexts {
    rows: Rows,
    fields: Vec<String>,
    make: FieldText,
    pair: bool,
}

impl RowTexts {
    pub(crate) fn open(file: &TextFile, fields: Vec<String>, make: FieldText, pair: bool) -> Result<Self> {
        // The name of a nested column is a path with dots, so the field names are used unchanged.
        Ok(Self { rows: Rows::open(file, &fields)?, fields, make, pair })
    }

    /// Returns the number of the next row with its text, or with the reason why it has no text.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Result<String>)>> {
        let Some(row) = self.rows.next()? else { return Ok(None) };
        let text = row.and_then(|row| text_in(&row, &self.fields, self.make, self.pair));
        Ok(Some((self.rows.row, text.map_err(|reason| self.rows.malformed(reason)))))
    }

    pub(crate) fn share(&self) -> f32 {
        let all = self.rows.file.metadata().file_metadata().num_rows();
        if all <= 0 { 1.0 } else { (self.rows.row as f64 / all as f64).min(1.0) as f32 }
    }
}
