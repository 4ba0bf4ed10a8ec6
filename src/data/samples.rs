//! Samples in memory, flat: the bytes of all samples are in one vector, and an integer takes only as many bytes as its sequence
//! needs.

use std::sync::Arc;

use super::batch::{Field, Sample};
use super::{FileLine, Fingerprint};
use crate::error::Result;
use crate::reserve;
use crate::tensor::Csr;

/// Samples in memory, stored without padding in one block of bytes. Each integer of a sequence takes 1, 2, 4 or 8 bytes: as many
/// as the largest integer of the sequence needs.
///
/// ```
/// use unpadded::data::{Field, Samples, Source};
/// let samples: Samples = [(vec![1i64, 2], 0i64), (vec![3], 1)]
///     .into_iter()
///     .map(|(ids, label)| vec![Field::from(ids), label.into()]) // numbered from 0
///     .collect();
/// assert_eq!(samples.size(), Some(2));
/// assert_eq!(samples.get(1).map(|sample| sample.fields), Some(vec![Field::from(vec![3i64]), Field::Int(1)]));
/// ```
#[derive(Debug, Clone)]
pub struct Samples {
    flat: Arc<SamplesBuilder>,
    pub(super) fingerprint: u64,
}

/// Makes [`Samples`] from samples that are added one by one. The samples are stored as flat bytes.
#[derive(Debug, Default)]
pub struct SamplesBuilder {
    bytes: Vec<u8>,
    /// For each sample, the position in `bytes` behind the sample.
    ends: Vec<usize>,
    /// The sequences of sparse rows of all samples. The bytes of a sample contain the index of its sequence in this
    /// list.
    sparse: Vec<Csr>,
    /// The memory of the numbers in `sparse`, in bytes.
    sparse_bytes: usize,
    /// For each sample, the index of its file in `files`, and its line; line 0 means that the line is unknown.
    lines: Vec<[u32; 2]>,
    /// The files that the samples were read from. A file may occur several times.
    files: Vec<Arc<str>>,
    fingerprint: Fingerprint,
}

/// The first byte of a field; it shows the kind of the field.
const INT: u8 = 0;
const FLOAT: u8 = 1;
const INTS: u8 = 2;
const FLOATS: u8 = 3;
const NESTED: u8 = 4;
const SPARSE: u8 = 5;
const SPARSE_ROWS: u8 = 6;

impl SamplesBuilder {
    /// Appends a sample.
    ///
    /// # Errors
    /// Fails if the system refuses the memory.
    pub fn try_push(&mut self, sample: &Sample) -> Result<()> {
        // The flat bytes of a sample are never more than the memory of its fields.
        reserve::items(&mut self.bytes, sample.bytes(), "samples")?;
        reserve::items(&mut self.ends, 1, "samples")?;
        reserve::items(&mut self.lines, 1, "samples")?;
        self.push(sample);
        Ok(())
    }

    fn push(&mut self, sample: &Sample) {
        self.fingerprint = sample.fingerprint(self.fingerprint);
        self.count(sample.number as usize);
        for field in &sample.fields {
            self.field(field);
        }
        self.ends.push(self.bytes.len());
        let line = self.file_line(sample.location.as_ref());
        self.lines.push(line);
    }

    /// The memory that the samples take, in bytes.
    pub fn size(&self) -> usize {
        let sparse = self.sparse.len() * size_of::<Csr>() + self.sparse_bytes;
        // Lines count even if they are unknown: where a sample was read must not decide which samples make a batch.
        let each = size_of::<usize>() + size_of::<[u32; 2]>();
        self.bytes.len() + self.ends.len() * each + sparse
    }

    /// Ends the samples, and releases the unused capacity of the vectors.
    pub fn end(mut self) -> Samples {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.lines.shrink_to_fit();
        self.sparse.shrink_to_fit();
        let fingerprint = self.fingerprint.finish();
        Samples { flat: Arc::new(self), fingerprint }
    }

    /// Returns the entry in `lines` for the place of a sample.
    fn file_line(&mut self, location: Option<&FileLine>) -> [u32; 2] {
        let Some(FileLine { file, line }) = location else { return [0; 2] };
        if self.files.last().is_none_or(|last| last != file) {
            self.files.push(Arc::clone(file));
        }
        match (u32::try_from(self.files.len() - 1), u32::try_from(*line)) {
            (Ok(file), Ok(line)) => [file, line],
            _ => [0; 2],
        }
    }

    fn field(&mut self, field: &Field) {
        match field {
            Field::Int(id) => {
                self.bytes.push(INT);
                let width = width([*id].iter());
                self.bytes.push(width as u8);
                self.ints(width, &[*id]);
            }
            Field::Float(number) => {
                self.bytes.push(FLOAT);
                self.floats(&[*number]);
            }
            Field::Ints(ids) => {
                self.bytes.push(INTS);
                self.sequence(ids);
            }
            Field::Floats(numbers) => {
                self.bytes.push(FLOATS);
                self.count(numbers.len());
                self.floats(numbers);
            }
            Field::Nested(parts) => {
                self.bytes.push(NESTED);
                let width = width(parts.iter().flatten());
                self.bytes.push(width as u8);
                self.count(parts.len());
                for part in parts {
                    self.count(part.len());
                    self.ints(width, part);
                }
            }
            Field::Sparse { columns, indices, values } => {
                self.bytes.push(SPARSE);
                self.count(*columns);
                self.sequence(indices);
                self.count(values.len());
                self.floats(values);
            }
            Field::SparseRows(rows) => {
                self.bytes.push(SPARSE_ROWS);
                self.count(self.sparse.len());
                self.sparse_bytes += rows.bytes();
                self.sparse.push(rows.clone());
            }
        }
    }

    /// Appends a number, seven bits per byte; the highest bit of a byte is set if more bytes follow.
    fn count(&mut self, mut number: usize) {
        while number > 0x7f {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn sequence(&mut self, ids: &[i64]) {
        let width = width(ids.iter());
        self.bytes.push(width as u8);
        self.count(ids.len());
        self.ints(width, ids);
    }

    /// Appends the lowest `width` bytes of each integer.
    fn ints(&mut self, width: usize, ids: &[i64]) {
        for id in ids {
            self.bytes.extend_from_slice(&id.to_le_bytes()[..width]);
        }
    }

    fn floats(&mut self, numbers: &[f32]) {
        for number in numbers {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn get(&self, i: usize) -> Option<Sample> {
        let end = *self.ends.get(i)?;
        let start = i.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let mut bytes = SampleBytes(self.bytes.get(start..end)?);
        let (number, mut fields) = (bytes.count()? as u64, Vec::new());
        while !bytes.0.is_empty() {
            fields.push(self.read(&mut bytes)?);
        }
        let [file, line] = *self.lines.get(i)?;
        let file = self.files.get(file as usize).filter(|_| line > 0);
        Some(
            Sample::new(number, fields).placed(file.map(|file| FileLine::new(Arc::clone(file), line.into()))),
        )
    }

    fn read(&self, bytes: &mut SampleBytes<'_>) -> Option<Field> {
        Some(match bytes.byte()? {
            INT => {
                let width = bytes.byte()?;
                Field::Int(*bytes.ints(width, 1)?.first()?)
            }
            FLOAT => Field::Float(*bytes.floats(1)?.first()?),
            INTS => Field::Ints(bytes.sequence()?),
            FLOATS => {
                let n = bytes.count()?;
                Field::Floats(bytes.floats(n)?)
            }
            NESTED => {
                let (width, parts) = (bytes.byte()?, bytes.count()?);
                let part = |_| {
                    let n = bytes.count()?;
                    bytes.ints(width, n)
                };
                Field::Nested((0..parts).map(part).collect::<Option<_>>()?)
            }
            SPARSE => {
                let (columns, indices) = (bytes.count()?, bytes.sequence()?);
                let n = bytes.count()?;
                Field::Sparse { columns, indices, values: bytes.floats(n)? }
            }
            _ => Field::SparseRows(self.sparse.get(bytes.count()?)?.clone()),
        })
    }
}

/// Returns the number of bytes into which each of these integers fits: 1, 2, 4 or 8. An integer below 0 needs 8 bytes.
fn width<'a>(ids: impl Iterator<Item = &'a i64>) -> usize {
    // The bitwise or of all integers has as many leading zeros as the largest integer.
    match ids.fold(0, |bits, &id| bits | id as u64) {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

/// The bytes of a sample that are not read yet.
struct SampleBytes<'a>(&'a [u8]);

impl SampleBytes<'_> {
    fn take(&mut self, n: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn count(&mut self) -> Option<usize> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            shift += 7;
        }
    }

    fn sequence(&mut self) -> Option<Vec<i64>> {
        let (width, n) = (self.byte()?, self.count()?);
        self.ints(width, n)
    }

    fn ints(&mut self, width: u8, n: usize) -> Option<Vec<i64>> {
        let bytes = self.take(n * usize::from(width))?;
        Some(match width {
            1 => bytes.iter().map(|&byte| i64::from(byte)).collect(),
            2 => bytes.as_chunks().0.iter().map(|&id| i64::from(u16::from_le_bytes(id))).collect(),
            4 => bytes.as_chunks().0.iter().map(|&id| i64::from(u32::from_le_bytes(id))).collect(),
            _ => bytes.as_chunks().0.iter().map(|&id| i64::from_le_bytes(id)).collect(),
        })
    }

    fn floats(&mut self, n: usize) -> Option<Vec<f32>> {
        Some(self.take(n * 4)?.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect())
    }
}

impl Samples {
    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.flat.ends.len()
    }

    /// Returns whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a copy of sample `i`, counted from 0; `None` behind the last sample.
    pub fn get(&self, i: usize) -> Option<Sample> {
        self.flat.get(i)
    }

    /// Iterates over copies of the samples.
    pub fn iter(&self) -> impl Iterator<Item = Sample> + '_ {
        (0..self.len()).filter_map(|i| self.get(i))
    }

    /// The memory that the samples take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.flat.size()
    }

    /// Stores the samples of an iterator that may return errors.
    ///
    /// # Errors
    /// Fails with the first error of the iterator, or if the system refuses the memory.
    pub fn try_of(samples: impl Iterator<Item = Result<Sample>>) -> Result<Self> {
        let mut flat = SamplesBuilder::default();
        for sample in samples {
            flat.try_push(&sample?)?;
        }
        Ok(flat.end())
    }
}

impl FromIterator<Sample> for Samples {
    fn from_iter<I: IntoIterator<Item = Sample>>(samples: I) -> Self {
        let mut flat = SamplesBuilder::default();
        samples.into_iter().for_each(|sample| flat.push(&sample));
        flat.end()
    }
}

impl From<Vec<Sample>> for Samples {
    fn from(samples: Vec<Sample>) -> Self {
        samples.into_iter().collect()
    }
}

impl FromIterator<Vec<Field>> for Samples {
    /// Makes a sample of each list of fields; the samples are numbered from 0.
    fn from_iter<I: IntoIterator<Item = Vec<Field>>>(fields: I) -> Self {
        (0..).zip(fields).map(|(number, fields)| Sample::new(number, fields)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids() -> impl Strategy<Value = Vec<i64>> {
        let largest = prop_oneof![Just(0xff), Just(0x100), Just(0xffff), Just(0x1_0000), Just(1 << 40)];
        let ids = move |most: i64| prop::collection::vec(0..=most, 0..9);
        prop_oneof![largest.prop_flat_map(ids), prop::collection::vec(any::<i64>(), 0..4)]
    }

    fn field() -> impl Strategy<Value = Field> {
        let floats = || prop::collection::vec(-9f32..9.0, 0..5);
        let rows = prop::collection::vec(prop::collection::vec((0i64..7, -9f32..9.0), 0..4), 0..4);
        prop_oneof![
            any::<i64>().prop_map(Field::Int),
            (-9f32..9.0).prop_map(Field::Float),
            ids().prop_map(Field::Ints),
            floats().prop_map(Field::Floats),
            prop::collection::vec(ids(), 0..5).prop_map(Field::Nested),
            // The number of values may differ from the number of indices; the loader reports this error.
            (0usize..300, ids(), floats()).prop_map(|(columns, indices, values)| Field::Sparse {
                columns,
                indices,
                values
            }),
            rows.prop_map(|rows| Field::SparseRows(Csr::from_rows(7, rows).unwrap())),
        ]
    }

    fn location() -> impl Strategy<Value = Option<FileLine>> {
        let lines = prop_oneof![0u64..3, Just(u64::from(u32::MAX)), Just(1 << 32)];
        prop::option::of((0..3, lines).prop_map(|(file, line)| FileLine::new(format!("{file}.tsv"), line)))
    }

    proptest! {
        #[test]
        fn samples_are_returned_as_they_were_stored(
            samples in prop::collection::vec((any::<u64>(), prop::collection::vec(field(), 0..4), location()), 0..6),
        ) {
            let sample = |(number, fields, location)| Sample::new(number, fields).placed(location);
            let samples: Vec<Sample> = samples.into_iter().map(sample).collect();
            let mut flat = SamplesBuilder::default();
            for sample in &samples {
                let before = flat.bytes.len();
                flat.try_push(sample).unwrap();
                prop_assert!(flat.bytes.len() - before <= sample.bytes());
            }
            let (tried, stored) = (flat.end(), Samples::from(samples.clone()));
            prop_assert!(stored.iter().eq(samples.iter().cloned()) && tried.iter().eq(samples.iter().cloned()));
            for (sample, found) in samples.iter().zip(stored.iter()) {
                let known = |location: &&FileLine| (1..=u64::from(u32::MAX)).contains(&location.line);
                prop_assert_eq!(found.location.as_ref(), sample.location.as_ref().filter(known));
            }
            prop_assert!(stored.get(samples.len()).is_none() && stored.fingerprint == tried.fingerprint);
        }
    }

    #[test]
    fn ids_take_as_many_bytes_as_they_need() {
        for (most, bytes) in [(255, 1), (256, 2), (65_535, 2), (65_536, 4), (1 << 32, 8), (-1, 8)] {
            let samples: Samples = [vec![Field::Ints(vec![most; 1000])]].into_iter().collect();
            assert!(
                (1000 * bytes..1000 * bytes + 100).contains(&samples.bytes()),
                "{most}: {}",
                samples.bytes()
            );
        }
    }
}
