//! The records of a checkpoint's structured sections. The record types are separate from the types in memory, so that the types
//! in memory can change while old files still load.

use std::collections::BTreeMap;

use super::history::EpochScores;
use super::metric::MetricDesc;
use super::position::{Best, Better, Criterion, Position};
use super::purpose::Purpose;
use crate::data::{StoredVocabulary, Vocabulary};
use crate::error::{Error, Result};
use crate::lod::Lod;
use crate::program::stored::{Literal, read_attributes, stored_attributes};
use crate::tensor::DType;
use crate::wire::record::{NamedEntry, record};

record! {
    pub(super) struct StoredPosition {
        1 epoch: u64,
        2 batch: u64,
        3 step: u64,
        4 tokens: u64,
        5 data: u64,
        6 best: Option<StoredBest>,
        7 since_best: u64,
        8 running: BTreeMap<String, Vec<f64>>,
        9 stalled: Option<u64>,
        10 accumulate: Option<u64>,
        11 rate: Option<f64>,
        12 parts: Option<u64>,
        13 memory: Option<u64>,
    }
}

record! {
    /// A piece of one metric's sums, without sums that are +0. A metric may have several pieces; the indices ascend from piece
    /// to piece.
    pub(super) struct StoredSums {
        1 name: String,
        2 count: u64,
        3 places: Vec<u64>,
        4 sums: Vec<f64>,
    }
}

record! {
    struct StoredBest {
        1 value: f64,
        2 epoch: u64,
        3 step: u64,
    }
}

record! {
    pub(super) struct StoredCriterion {
        1 metric: String,
        2 better: NamedEntry<Better>,
        3 data: u64,
    }
}

record! {
    pub(super) struct StoredMetric {
        1 name: String,
        2 kind: String,
        3 variables: Vec<String>,
        4 attributes: BTreeMap<String, Literal> = BTreeMap::new(),
    }
}

record! {
    pub(super) struct StoredEpoch {
        1 epoch: u64,
        2 step: u64,
        3 rate: Option<f64>,
        4 train_names: Vec<String>,
        5 train: Vec<f64>,
        6 dev_names: Vec<String>,
        7 dev: Vec<f64>,
        8 best: bool,
    }
}

record! {
    pub(super) struct StoredPurpose {
        1 purpose: NamedEntry<Purpose>,
    }
}

record! {
    /// The section `notes` (the user's strings), or the section `outputs` (names of variables).
    pub(super) struct StoredTexts {
        1 texts: BTreeMap<String, String>,
    }
}

record! {
    pub(super) struct NamedVocabulary {
        1 name: String,
        2 vocabulary: StoredVocabulary,
    }
}

record! {
    /// The head of a tensor section, which comes before the values of the tensor.
    pub(super) struct StoredHead {
        1 name: String,
        2 dtype: NamedEntry<DType>,
        3 shape: Vec<u64>,
        4 lod: Option<Vec<Vec<u64>>>,
    }
}

record! {
    /// The head of a row-sparse variable's section, which comes before the row indices and the values of the rows.
    pub(super) struct StoredRowsHead {
        1 name: String,
        2 dtype: NamedEntry<DType>,
        3 shape: Vec<u64>,
        4 rows: u64,
    }
}

impl From<&Position> for StoredPosition {
    fn from(position: &Position) -> Self {
        let Position { epoch, batch, step, tokens, data, best, since_best, running, .. } = position.clone();
        let best = best.map(|Best { value, epoch, step }| StoredBest { value, epoch, step });
        // A count of 0 is stored as `None`.
        let [stalled, accumulate, parts, memory] =
            [position.stalled, position.accumulate, position.parts, position.memory]
                .map(|count| (count > 0).then_some(count));
        let rate = position.rate;
        Self {
            epoch,
            batch,
            step,
            tokens,
            data,
            best,
            since_best,
            running,
            stalled,
            accumulate,
            rate,
            parts,
            memory,
        }
    }
}

impl From<StoredPosition> for Position {
    fn from(stored: StoredPosition) -> Self {
        let StoredPosition { epoch, batch, step, tokens, data, best, since_best, running, rate, .. } = stored;
        let best = best.map(|StoredBest { value, epoch, step }| Best { value, epoch, step });
        let [stalled, accumulate, parts, memory] =
            [stored.stalled, stored.accumulate, stored.parts, stored.memory].map(Option::unwrap_or_default);
        let sparse = BTreeMap::new();
        Self {
            epoch,
            batch,
            step,
            tokens,
            data,
            best,
            since_best,
            stalled,
            accumulate,
            parts,
            memory,
            rate,
            running,
            sparse,
        }
    }
}

impl StoredSums {
    pub(super) fn of(name: &str, count: u64, piece: &[(u64, f64)]) -> Self {
        let (places, sums) = piece.iter().copied().unzip();
        Self { name: name.to_owned(), count, places, sums }
    }

    /// Returns the metric's name and its total number of sums, then the indices and the sums of this piece.
    pub(super) fn into_parts(self) -> ((String, u64), (Vec<u64>, Vec<f64>)) {
        ((self.name, self.count), (self.places, self.sums))
    }
}

impl From<&Criterion> for StoredCriterion {
    fn from(criterion: &Criterion) -> Self {
        let Criterion { metric, better, data } = criterion.clone();
        Self { metric, better: NamedEntry(better), data }
    }
}

impl From<StoredCriterion> for Criterion {
    fn from(stored: StoredCriterion) -> Self {
        let StoredCriterion { metric, better, data } = stored;
        Self { metric, better: better.0, data }
    }
}

impl From<&MetricDesc> for StoredMetric {
    fn from(metric: &MetricDesc) -> Self {
        let MetricDesc { name, kind, variables, attributes } = metric.clone();
        Self { name, kind, variables, attributes: stored_attributes(&attributes) }
    }
}

impl TryFrom<StoredMetric> for MetricDesc {
    type Error = Error;

    fn try_from(stored: StoredMetric) -> Result<Self> {
        let StoredMetric { name, kind, variables, attributes } = stored;
        Ok(Self { name, kind, variables, attributes: read_attributes(attributes)? })
    }
}

impl From<&EpochScores> for StoredEpoch {
    fn from(scores: &EpochScores) -> Self {
        let EpochScores { epoch, step, rate, train, dev, best } = scores.clone();
        let ((train_names, train), (dev_names, dev)) = (train.into_iter().unzip(), dev.into_iter().unzip());
        Self { epoch, step, rate, train_names, train, dev_names, dev, best }
    }
}

impl TryFrom<StoredEpoch> for EpochScores {
    type Error = Error;

    fn try_from(stored: StoredEpoch) -> Result<Self> {
        let StoredEpoch { epoch, step, rate, train_names, train, dev_names, dev, best } = stored;
        let named = |names: Vec<String>, values: Vec<f64>| match names.len() == values.len() {
            true => Ok(names.into_iter().zip(values).collect()),
            false => Err(Error::new(
                "scores of an epoch",
                format!("{}, one per name", names.len()),
                values.len().to_string(),
            )),
        };
        Ok(Self { epoch, step, rate, train: named(train_names, train)?, dev: named(dev_names, dev)?, best })
    }
}

impl From<Purpose> for StoredPurpose {
    fn from(purpose: Purpose) -> Self {
        Self { purpose: NamedEntry(purpose) }
    }
}

impl From<StoredPurpose> for Purpose {
    fn from(stored: StoredPurpose) -> Self {
        stored.purpose.0
    }
}

impl From<&BTreeMap<String, String>> for StoredTexts {
    fn from(texts: &BTreeMap<String, String>) -> Self {
        Self { texts: texts.clone() }
    }
}

impl From<StoredTexts> for BTreeMap<String, String> {
    fn from(stored: StoredTexts) -> Self {
        stored.texts
    }
}

impl From<(&String, &Vocabulary)> for NamedVocabulary {
    fn from((name, vocabulary): (&String, &Vocabulary)) -> Self {
        Self { name: name.clone(), vocabulary: vocabulary.into() }
    }
}

impl NamedVocabulary {
    pub(super) fn into_parts(self) -> Result<(String, Vocabulary)> {
        Ok((self.name, self.vocabulary.try_into()?))
    }
}

/// The head of a tensor section, which comes before the values of the tensor.
pub(super) struct Head {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    pub(super) lod: Option<Lod>,
}

/// The head of a row-sparse variable's section, which comes before the row indices and the values of the rows.
pub(super) struct RowsHead {
    pub(super) name: String,
    pub(super) dtype: DType,
    /// The height of the table, followed by the extents of a row.
    pub(super) shape: Vec<usize>,
    /// The number of stored rows.
    pub(super) rows: usize,
}

impl From<&RowsHead> for StoredRowsHead {
    fn from(head: &RowsHead) -> Self {
        let shape = head.shape.iter().map(|&n| n as u64).collect();
        Self { name: head.name.clone(), dtype: NamedEntry(head.dtype), shape, rows: head.rows as u64 }
    }
}

impl TryFrom<StoredRowsHead> for RowsHead {
    type Error = Error;

    fn try_from(stored: StoredRowsHead) -> Result<Self> {
        let shape = stored.shape.into_iter().map(narrow).collect::<Result<_>>()?;
        Ok(Self { name: stored.name, dtype: stored.dtype.0, shape, rows: narrow(stored.rows)? })
    }
}

impl From<&Head> for StoredHead {
    fn from(head: &Head) -> Self {
        let wide = |numbers: &[usize]| numbers.iter().map(|&n| n as u64).collect();
        let levels = |lod: &Lod| lod.to_levels().iter().map(|level| wide(level)).collect();
        Self {
            name: head.name.clone(),
            dtype: NamedEntry(head.dtype),
            shape: wide(&head.shape),
            lod: head.lod.as_ref().map(levels),
        }
    }
}

impl TryFrom<StoredHead> for Head {
    type Error = Error;

    fn try_from(stored: StoredHead) -> Result<Self> {
        let narrow = |numbers: Vec<u64>| numbers.into_iter().map(narrow).collect::<Result<Vec<usize>>>();
        let levels = |levels: Vec<Vec<u64>>| levels.into_iter().map(narrow).collect::<Result<Vec<_>>>();
        let lod = stored.lod.map(|lod| Lod::try_from(levels(lod)?)).transpose()?;
        Ok(Self { name: stored.name, dtype: stored.dtype.0, shape: narrow(stored.shape)?, lod })
    }
}

fn narrow(number: u64) -> Result<usize> {
    let expected = || format!("at most {}, as this machine counts", usize::MAX);
    usize::try_from(number).map_err(|_| Error::new("number", expected(), number.to_string()))
}
