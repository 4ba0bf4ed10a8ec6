//! Samples, and ragged batches of samples.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use super::{FileLine, Fingerprint};
use crate::error::{AtCaller, Error, Result};
use crate::lod::Lod;
use crate::reserve;
use crate::tensor::{Csr, DType, Dense, Element, Variable};

/// The value of one feed in one sample.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Field {
    /// One integer per sample, such as a label. A batch of `n` samples is an `i64` tensor of shape `[n]` without LoD.
    Int(i64),
    /// One number per sample, such as the target of a regression. A batch of `n` samples is an `f32` tensor of shape
    /// `[n]` without LoD.
    Float(f32),
    /// A sequence of integers, such as the ids of a sentence. A batch of these sequences is an `i64` tensor of shape
    /// `[rows]` whose LoD has one level.
    Ints(Vec<i64>),
    /// A sequence of numbers. A batch of these sequences is an `f32` tensor of shape `[rows]` whose LoD has one level.
    Floats(Vec<f32>),
    /// A sequence of integer sequences, such as the sentences of a document. A batch of these nested sequences is an
    /// `i64` tensor of shape `[rows]` whose LoD has two levels.
    Nested(Vec<Vec<i64>>),
    /// A sparse row, such as a bag of words: the column and the value of each entry. As in [`Csr`], columns may come in
    /// any order, and values of repeated columns are added. A batch of `n` sparse rows is an `f32` csr of shape
    /// `[n, columns]` without LoD.
    Sparse {
        /// The number of columns of the sparse row; all samples have the same number of columns.
        columns: usize,
        /// The column of each entry, from 0 to `columns - 1`.
        indices: Vec<i64>,
        /// The value of each entry.
        values: Vec<f32>,
    },
    /// A sequence of sparse `f32` rows, such as a bag of words for each sentence. A batch of these sequences is an
    /// `f32` csr of shape `[rows, columns]` whose LoD has one level.
    SparseRows(Csr),
}

impl Field {
    /// The number of rows that the field has in a batch.
    pub fn rows(&self) -> usize {
        match self {
            Self::Int(_) | Self::Float(_) | Self::Sparse { .. } => 1,
            Self::Ints(ids) => ids.len(),
            Self::Floats(numbers) => numbers.len(),
            Self::Nested(parts) => parts.iter().map(Vec::len).sum(),
            Self::SparseRows(csr) => csr.shape()[0],
        }
    }

    /// The memory that the field's numbers take, in bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Int(_) | Self::Float(_) => 0,
            Self::Ints(ids) => ids.len() * size_of::<i64>(),
            Self::Floats(numbers) => numbers.len() * size_of::<f32>(),
            Self::Nested(parts) => {
                let ids = parts.iter().map(|ids| size_of::<Vec<i64>>() + ids.len() * size_of::<i64>());
                ids.sum()
            }
            Self::Sparse { indices, values, .. } => {
                indices.len() * size_of::<i64>() + values.len() * size_of::<f32>()
            }
            Self::SparseRows(csr) => csr.bytes(),
        }
    }

    /// The name of the field's kind for messages, such as `a sequence of integers`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Int(_) => "one integer",
            Self::Float(_) => "one number",
            Self::Ints(_) => "a sequence of integers",
            Self::Floats(_) => "a sequence of numbers",
            Self::Nested(_) => "a sequence of sequences",
            Self::Sparse { .. } => "a sparse row",
            Self::SparseRows(_) => "a sequence of sparse rows",
        }
    }

    /// The number of columns of a sparse field; `None` if the field is not sparse.
    fn columns(&self) -> Option<usize> {
        match self {
            Self::Sparse { columns, .. } => Some(*columns),
            Self::SparseRows(csr) => Some(csr.shape()[1]),
            _ => None,
        }
    }

    /// Returns the fault of this field, as the expected value and the found value; `None` if the field is well formed.
    fn fault(&self) -> Option<(String, String)> {
        match self {
            Self::Sparse { indices, values, .. } if indices.len() != values.len() => {
                let expected = format!("a value for each of its {} indices", indices.len());
                Some((expected, values.len().to_string()))
            }
            Self::Sparse { columns, indices, .. } => {
                let beyond = |&index: &i64| usize::try_from(index).map_or(true, |index| index >= *columns);
                let at = indices.iter().position(beyond)?;
                let expected = format!("indices of 0 or more and less than {columns}, its number of columns");
                Some((expected, format!("{} at place {at}", indices[at])))
            }
            Self::SparseRows(csr) if csr.dtype() != DType::F32 => {
                Some(("rows of f32".into(), csr.dtype().to_string()))
            }
            _ => None,
        }
    }

    /// The lengths of the field's sequences in LoD level `level`; `None` if the field does not have this level.
    fn lengths(&self, level: usize) -> Option<Vec<usize>> {
        match (self, level) {
            (Self::Ints(ids), 0) => Some(vec![ids.len()]),
            (Self::Floats(numbers), 0) => Some(vec![numbers.len()]),
            (Self::Nested(parts), 0) => Some(vec![parts.len()]),
            (Self::SparseRows(csr), 0) => Some(vec![csr.shape()[0]]),
            (Self::Nested(parts), 1) => Some(parts.iter().map(Vec::len).collect()),
            _ => None,
        }
    }

    fn fingerprint(&self, f: Fingerprint) -> Fingerprint {
        let ints = |f: Fingerprint, ids: &[i64]| {
            ids.iter().fold(f.number(ids.len() as u64), |f, &id| f.number(id as u64))
        };
        let floats = |f: Fingerprint, numbers: &[f32]| {
            let f = f.number(numbers.len() as u64);
            numbers.iter().fold(f, |f, x| f.number(u64::from(x.to_bits())))
        };
        let f = f.text(self.kind());
        match self {
            Self::Int(id) => f.number(*id as u64),
            Self::Float(x) => f.number(u64::from(x.to_bits())),
            Self::Ints(ids) => ints(f, ids),
            Self::Floats(numbers) => floats(f, numbers),
            Self::Nested(parts) => parts.iter().fold(f.number(parts.len() as u64), |f, ids| ints(f, ids)),
            Self::Sparse { columns, indices, values } => {
                floats(ints(f.number(*columns as u64), indices), values)
            }
            Self::SparseRows(csr) => {
                let f = ints(ints(f.number(csr.shape()[1] as u64), csr.indptr()), csr.indices());
                // The values are `f32`: other dtypes are refused before a batch is made.
                floats(f, csr.values().as_slice().unwrap_or_default())
            }
        }
    }
}

impl From<i64> for Field {
    fn from(id: i64) -> Self {
        Self::Int(id)
    }
}

impl From<f32> for Field {
    fn from(number: f32) -> Self {
        Self::Float(number)
    }
}

impl From<Vec<i64>> for Field {
    fn from(ids: Vec<i64>) -> Self {
        Self::Ints(ids)
    }
}

impl From<Vec<f32>> for Field {
    fn from(numbers: Vec<f32>) -> Self {
        Self::Floats(numbers)
    }
}

impl From<Vec<Vec<i64>>> for Field {
    fn from(parts: Vec<Vec<i64>>) -> Self {
        Self::Nested(parts)
    }
}

impl From<Csr> for Field {
    fn from(rows: Csr) -> Self {
        Self::SparseRows(rows)
    }
}

/// One entry of a data set: a value for each feed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sample {
    /// The index of the sample in the data. Random operators, such as dropout, seed their draws with this index, so
    /// that a sample gets the same draws in every batch.
    pub number: u64,
    /// The fields of the sample: one field for each feed, in the order of the feeds' names.
    pub fields: Vec<Field>,
    /// The line of a file from which the sample was read, for messages; `None` if the line is unknown.
    pub(super) location: Option<FileLine>,
}

/// Two samples are equal even if they were read from different files or lines.
impl PartialEq for Sample {
    fn eq(&self, other: &Self) -> bool {
        (self.number, &self.fields) == (other.number, &other.fields)
    }
}

impl Sample {
    /// Makes a sample from its index in the data and its fields.
    ///
    /// ```
    /// use unpadded::data::{Field, Sample};
    /// let sample = Sample::new(0, [Field::from(vec![3i64, 1, 4]), Field::from(1i64)]);
    /// assert_eq!(sample.fields.len(), 2);
    /// ```
    pub fn new(number: u64, fields: impl Into<Vec<Field>>) -> Self {
        Self { number, fields: fields.into(), location: None }
    }

    /// Sets the line of a file from which the sample was read; errors about the sample then name the line.
    ///
    /// ```
    /// use unpadded::data::{Batch, FileLine, Sample};
    /// let sample = Sample::new(0, [1i64.into()]).placed(Some(FileLine::new("some.tsv", 3)));
    /// let error = Batch::new(&["words".into(), "label".into()], &[sample]).unwrap_err();
    /// assert!(error.to_string().contains("sample 0 is at some.tsv:3"));
    /// ```
    #[must_use]
    pub fn placed(self, location: Option<FileLine>) -> Self {
        Self { location, ..self }
    }

    /// Adds the line of the sample to an error about the sample.
    fn noted(&self, error: Error) -> Error {
        noted(error, self.number, self.location.as_ref())
    }

    /// The memory that the sample takes, in bytes, if its vectors have no unused capacity.
    pub(super) fn bytes(&self) -> usize {
        let fields = self.fields.len() * size_of::<Field>();
        size_of::<Self>() + fields + self.fields.iter().map(Field::bytes).sum::<usize>()
    }

    /// The memory that the sample takes in a shuffle buffer, in bytes. A second [`Sample`] is counted, because the capacity of
    /// the list of samples may be twice the number of samples.
    pub fn buffered_bytes(&self) -> usize {
        self.bytes() + size_of::<Self>()
    }

    /// Releases the unused capacity of the sample's vectors.
    pub(super) fn shrink(&mut self) {
        self.fields.shrink_to_fit();
        for field in &mut self.fields {
            match field {
                Field::Ints(ids) => ids.shrink_to_fit(),
                Field::Floats(numbers) => numbers.shrink_to_fit(),
                Field::Nested(parts) => {
                    parts.shrink_to_fit();
                    parts.iter_mut().for_each(Vec::shrink_to_fit);
                }
                Field::Sparse { indices, values, .. } => {
                    indices.shrink_to_fit();
                    values.shrink_to_fit();
                }
                Field::Int(_) | Field::Float(_) | Field::SparseRows(_) => (),
            }
        }
    }

    /// The number of rows of the sample's longest field.
    pub(crate) fn rows(&self) -> usize {
        self.fields.iter().map(Field::rows).max().unwrap_or(0)
    }

    pub(super) fn fingerprint(&self, f: Fingerprint) -> Fingerprint {
        self.fields.iter().fold(f.number(self.number), |f, field| field.fingerprint(f))
    }
}

/// A batch of samples: the values of the feeds for a training step.
///
/// ```
/// use unpadded::data::{Batch, Field, Sample};
/// let sample = |number, ids: Vec<i64>, label: i64| Sample::new(number, [Field::from(ids), label.into()]);
/// let samples = [sample(7, vec![3, 14, 15], 0), sample(2, vec![9], 1)];
/// let batch = Batch::new(&["words".into(), "label".into()], &samples)?;
/// let (name, words) = &batch.values[0];
/// assert_eq!((name.as_str(), words.as_slice::<i64>()?), ("words", &[3, 14, 15, 9][..]));
/// assert_eq!(words.lod().unwrap().to_string(), "[[3, 1]]");
/// assert_eq!((batch.numbers, batch.tokens, batch.padded), (vec![7, 2], 4, 6));
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Batch {
    /// The name and the value of each feed.
    pub values: Vec<(String, Variable)>,
    /// For each sample of the batch, the index of the sample in the data.
    pub numbers: Vec<u64>,
    /// The number of rows of the batch's largest field. Nested sequences count only if the batch has no plain
    /// sequences: if a batch has words and the characters of each word, the words count.
    pub tokens: usize,
    /// The number of rows that the largest field would have if each sample were padded to the longest sample. A nested
    /// field would be padded at both levels: each sample to the largest number of sequences, and each sequence to the
    /// longest sequence.
    pub padded: usize,
    /// The lines of the files from which the samples were read, for messages; empty if no line is known.
    places: Vec<Option<FileLine>>,
}

/// Two batches are equal even if their samples were read from different files or lines.
impl PartialEq for Batch {
    fn eq(&self, other: &Self) -> bool {
        let sizes = |batch: &Self| (batch.tokens, batch.padded);
        self.values == other.values && self.numbers == other.numbers && sizes(self) == sizes(other)
    }
}

/// Adds the line of sample `number` to an error about this sample, if the line is known.
fn noted(error: Error, number: u64, location: Option<&FileLine>) -> Error {
    location
        .into_iter()
        .fold(error, |error, location| error.noted(format!("sample {number} is at {location}")))
}

impl Batch {
    /// Makes a batch of values that are already batched; `numbers` has the index of each sample. `tokens` is the
    /// number of rows of the largest value; [`Self::padded`] is set to this number, too.
    pub fn of(values: Vec<(String, Variable)>, numbers: Vec<u64>, tokens: usize) -> Self {
        Self { values, numbers, tokens, padded: tokens, places: Vec::new() }
    }

    /// Makes the batch of some sequences of this batch, given by their indices; `values` are the feeds of these sequences.
    pub(crate) fn share(&self, values: Vec<(String, Variable)>, sequences: &[usize], tokens: usize) -> Self {
        let places = sequences.iter().filter_map(|&i| self.places.get(i).cloned()).collect();
        let numbers = sequences.iter().filter_map(|&i| self.numbers.get(i).copied()).collect();
        Self { places, ..Self::of(values, numbers, tokens) }
    }

    /// Adds the line of a sample to an error about a sample of this batch, if the line is known.
    pub(crate) fn noted(&self, error: Error) -> Error {
        let Some(number) = error.sample() else { return error };
        let location = self.numbers.iter().zip(&self.places).find(|(known, _)| **known == number);
        noted(error, number, location.and_then(|(_, location)| location.as_ref()))
    }

    /// Makes a batch of samples; the batch has the samples in the given order.
    ///
    /// # Errors
    /// Fails if there is no sample, or if a sample does not have exactly one field per name. Also fails if a field
    /// differs from the same field of the first sample in its kind or in its number of columns. A sparse row is an
    /// error if an index is outside of the row's columns, or if the row does not have one value per index. Sequences of
    /// sparse rows must be `f32`. The message has the index of the sample.
    #[track_caller]
    pub fn new<S: Borrow<Sample>>(names: &[String], samples: &[S]) -> Result<Self> {
        let samples: Vec<&Sample> = samples.iter().map(Borrow::borrow).collect();
        let Some(first) = samples.first() else {
            return Err(Error::new("samples of a batch", "at least one", "none"));
        };
        let kinds = kinds(first);
        samples.iter().try_for_each(|sample| check(names, &kinds, sample)).at_caller()?;
        let (mut values, mut tokens, mut padded) = (Vec::with_capacity(names.len()), 0, 0);
        let flat = first
            .fields
            .iter()
            .any(|field| matches!(field, Field::Ints(_) | Field::Floats(_) | Field::SparseRows(_)));
        for (i, name) in names.iter().enumerate() {
            let column = Column { samples: &samples, field: i };
            let value = column.stack().at_caller()?;
            let counts = !flat || !matches!(first.fields.get(i), Some(Field::Nested(_)));
            if counts && value.rows() > tokens {
                (tokens, padded) = (value.rows(), column.padded());
            }
            values.push((name.clone(), value));
        }
        let numbers = samples.iter().map(|sample| sample.number).collect();
        let known = samples.iter().any(|sample| sample.location.is_some());
        let places =
            if known { samples.iter().map(|sample| sample.location.clone()).collect() } else { Vec::new() };
        Ok(Self { values, numbers, tokens, padded, places })
    }
}

/// The properties of a field that must be equal in all samples: the kind, and the number of columns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Kind {
    name: &'static str,
    columns: Option<usize>,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        self.columns.map_or(Ok(()), |columns| write!(f, " of {columns} columns"))
    }
}

pub(super) fn kinds(sample: &Sample) -> Vec<Kind> {
    sample.fields.iter().map(kind).collect()
}

fn kind(field: &Field) -> Kind {
    Kind { name: field.kind(), columns: field.columns() }
}

/// Checks that a sample has a well-formed field of the right kind for each name.
pub(super) fn check(names: &[String], kinds: &[Kind], sample: &Sample) -> Result<()> {
    if sample.fields.len() != names.len() {
        let expected = format!("{}, one for each of `{}`", names.len(), names.join("`, `"));
        let what = format!("fields of sample {}", sample.number);
        return Err(sample.noted(Error::new(what, expected, sample.fields.len().to_string())));
    }
    for ((name, field), &before) in names.iter().zip(&sample.fields).zip(kinds) {
        let fault = if kind(field) == before {
            field.fault()
        } else {
            Some((format!("{before}, as in the samples before"), kind(field).to_string()))
        };
        if let Some((expected, got)) = fault {
            let what = format!("field `{name}` of sample {}", sample.number);
            return Err(sample.noted(Error::new(what, expected, got)));
        }
    }
    Ok(())
}

/// Checks that the fields at positions `places[0]` and `places[1]` of a sample have sequences of equal lengths in the
/// first `levels` LoD levels, counted from the outermost level.
pub(super) fn same_lengths(
    names: [&str; 2],
    places: [usize; 2],
    levels: usize,
    sample: &Sample,
) -> Result<()> {
    let [Some(a), Some(b)] = places.map(|index| sample.fields.get(index)) else { return Ok(()) };
    for level in 0..levels {
        let (Some(a), Some(b)) = (a.lengths(level), b.lengths(level)) else { return Ok(()) };
        if let Some((part, (a, b))) = a.iter().zip(&b).enumerate().find(|(_, (a, b))| a != b) {
            let part = if level == 0 { String::new() } else { format!("part {part} of ") };
            let what = format!("length of {part}field `{}` of sample {}", names[1], sample.number);
            let error = Error::new(what, format!("{a}, as in field `{}`", names[0]), b.to_string());
            return Err(sample.noted(error));
        }
    }
    Ok(())
}

/// The values of one field in all samples of a batch; all values have the same kind.
struct Column<'a> {
    samples: &'a [&'a Sample],
    field: usize,
}

impl<'a> Column<'a> {
    fn fields(&self) -> impl Iterator<Item = &'a Field> + '_ {
        self.samples.iter().filter_map(|sample| sample.fields.get(self.field))
    }

    fn stack(&self) -> Result<Variable> {
        fn tensor<T: Element>(numbers: Vec<T>, lod: Option<Arc<Lod>>) -> Result<Variable> {
            Variable::new(Dense::from_vec(&[numbers.len()], numbers)?, lod)
        }
        fn csr(columns: usize, indptr: Vec<i64>, indices: Vec<i64>, values: Vec<f32>) -> Result<Csr> {
            let values = Dense::from_vec(&[values.len()], values)?;
            Csr::new([indptr.len() - 1, columns], indptr, indices, values)
        }
        // For sparse rows, `ints` collects the column indices and `floats` collects the values.
        let (ids, numbers) = self.entries();
        let (mut ints, mut floats) = (reserve::vector(ids, "batch")?, reserve::vector(numbers, "batch")?);
        let mut indptr = vec![0];
        let (mut outer, mut inner) = (Vec::new(), Vec::new());
        for field in self.fields() {
            match field {
                Field::Int(id) => ints.push(*id),
                Field::Float(x) => floats.push(*x),
                Field::Ints(ids) => {
                    ints.extend_from_slice(ids);
                    inner.push(ids.len());
                }
                Field::Floats(numbers) => {
                    floats.extend_from_slice(numbers);
                    inner.push(numbers.len());
                }
                Field::Nested(parts) => {
                    outer.push(parts.len());
                    inner.extend(parts.iter().map(Vec::len));
                    parts.iter().for_each(|ids| ints.extend_from_slice(ids));
                }
                Field::Sparse { indices, values, .. } => {
                    ints.extend_from_slice(indices);
                    floats.extend_from_slice(values);
                    indptr.push(ints.len() as i64);
                }
                Field::SparseRows(csr) => {
                    let before = ints.len() as i64;
                    indptr.extend(csr.indptr().iter().skip(1).map(|end| before + end));
                    ints.extend_from_slice(csr.indices());
                    floats.extend_from_slice(csr.values().as_slice()?);
                    inner.push(csr.shape()[0]);
                }
            }
        }
        match self.fields().next() {
            Some(Field::Int(_)) => tensor(ints, None),
            Some(Field::Float(_)) => tensor(floats, None),
            Some(Field::Floats(_)) => tensor(floats, Some(Lod::from_lengths1(&inner)?)),
            Some(Field::Nested(_)) => tensor(ints, Some(Lod::from_lengths(&[outer, inner])?)),
            Some(&Field::Sparse { columns, .. }) => Variable::new(csr(columns, indptr, ints, floats)?, None),
            Some(Field::SparseRows(first)) => {
                let rows = csr(first.shape()[1], indptr, ints, floats)?;
                Variable::new(rows, Some(Lod::from_lengths1(&inner)?))
            }
            Some(Field::Ints(_)) | None => tensor(ints, Some(Lod::from_lengths1(&inner)?)),
        }
    }

    /// Returns the number of integers and the number of floating-point numbers in all fields.
    fn entries(&self) -> (usize, usize) {
        let entries_of = |field: &Field| match field {
            Field::Int(_) => (1, 0),
            Field::Float(_) => (0, 1),
            Field::Ints(_) | Field::Nested(_) => (field.rows(), 0),
            Field::Floats(_) => (0, field.rows()),
            Field::Sparse { indices, values, .. } => (indices.len(), values.len()),
            Field::SparseRows(csr) => (csr.indices().len(), csr.indices().len()),
        };
        self.fields()
            .map(entries_of)
            .fold((0, 0), |(ids, numbers), (more_ids, more)| (ids + more_ids, numbers + more))
    }

    fn padded(&self) -> usize {
        let longest = match self.fields().next() {
            Some(Field::Nested(_)) => {
                let parts = || {
                    self.fields().filter_map(|field| match field {
                        Field::Nested(parts) => Some(parts),
                        _ => None,
                    })
                };
                let most = parts().map(Vec::len).max().unwrap_or(0);
                let longest = parts().flatten().map(Vec::len).max().unwrap_or(0);
                most.saturating_mul(longest)
            }
            _ => self.fields().map(Field::rows).max().unwrap_or(0),
        };
        self.samples.len().saturating_mul(longest)
    }
}
