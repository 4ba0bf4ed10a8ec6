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
use crate::program::stored::Literal;
use crate::tensor::DType;
use crate::wire::record::{NamedEntry, record};
use crate::wire::stored::{StoredForm, mirrors, unchanged};

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

mirrors! {
    StoredPosition of Position {
        epoch, batch, step, tokens, data, best, since_best, running, stalled, accumulate, rate, parts, memory,
        ..Position::default()
    }
    StoredBest of Best { value, epoch, step }
    StoredCriterion of Criterion { metric, better, data }
    StoredMetric of MetricDesc { name, kind, variables, attributes }
    StoredHead of Head { name, dtype, shape, lod }
    StoredRowsHead of RowsHead { name, dtype, shape, rows }
}

unchanged!(BTreeMap<String, Vec<f64>>);

/// A count, which is `None` if it is 0.
impl StoredForm<u64> for Option<u64> {
    fn of(&count: &u64) -> Self {
        (count > 0).then_some(count)
    }

    fn read(self) -> Result<u64> {
        Ok(self.unwrap_or_default())
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

impl StoredForm<Purpose> for StoredPurpose {
    fn of(&purpose: &Purpose) -> Self {
        Self { purpose: NamedEntry(purpose) }
    }

    fn read(self) -> Result<Purpose> {
        Ok(self.purpose.0)
    }
}

impl StoredForm<BTreeMap<String, String>> for StoredTexts {
    fn of(texts: &BTreeMap<String, String>) -> Self {
        Self { texts: texts.clone() }
    }

    fn read(self) -> Result<BTreeMap<String, String>> {
        Ok(self.texts)
    }
}

impl StoredForm<EpochScores> for StoredEpoch {
    fn of(scores: &EpochScores) -> Self {
        let EpochScores { epoch, step, rate, train, dev, best } = scores.clone();
        let ((train_names, train), (dev_names, dev)) = (train.into_iter().unzip(), dev.into_iter().unzip());
        Self { epoch, step, rate, train_names, train, dev_names, dev, best }
    }

    fn read(self) -> Result<EpochScores> {
        let Self { epoch, step, rate, train_names, train, dev_names, dev, best } = self;
        let named = |names: Vec<String>, values: Vec<f64>| match names.len() == values.len() {
            true => Ok(names.into_iter().zip(values).collect()),
            false => Err(Error::new(
                "scores of an epoch",
                format!("{}, one per name", names.len()),
                values.len().to_string(),
            )),
        };
        let (train, dev) = (named(train_names, train)?, named(dev_names, dev)?);
        Ok(EpochScores { epoch, step, rate, train, dev, best })
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
    pub(super) rows: usize,
}

impl StoredForm<Lod> for Vec<Vec<u64>> {
    fn of(lod: &Lod) -> Self {
        StoredForm::of(&lod.to_levels())
    }

    fn read(self) -> Result<Lod> {
        let levels: Vec<Vec<usize>> = self.read()?;
        Lod::try_from(levels)
    }
}
