//! How version 1 of the file format has the structured sections of a checkpoint: what serde and bincode made of structs, by the
//! order of their fields. It is only read, and never changes.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::checkpoint::position::Better;
use crate::data::VocabularyVersion1;
use crate::tensor::DType;
use crate::wire::InFiles;
use crate::wire::record::Named;

impl InFiles for super::StoredPosition {
    type Version1 = StoredPosition;
}

impl InFiles for super::StoredCriterion {
    type Version1 = StoredCriterion;
}

impl InFiles for super::StoredTexts {
    type Version1 = StoredTexts;
}

impl InFiles for super::NamedVocabulary {
    type Version1 = NamedVocabulary;
}

impl InFiles for super::StoredHead {
    type Version1 = StoredHead;
}

#[derive(Deserialize)]
pub(crate) struct StoredPosition {
    epoch: u64,
    batch: u64,
    step: u64,
    tokens: u64,
    data: u64,
    best: Option<StoredBest>,
    since_best: u64,
    running: BTreeMap<String, Vec<f64>>,
}

#[derive(Deserialize)]
struct StoredBest {
    value: f64,
    epoch: u64,
    step: u64,
}

impl From<StoredPosition> for super::StoredPosition {
    fn from(old: StoredPosition) -> Self {
        let StoredPosition { epoch, batch, step, tokens, data, best, since_best, running } = old;
        let best = best.map(|StoredBest { value, epoch, step }| super::StoredBest { value, epoch, step });
        let (stalled, accumulate, rate) = (None, None, None);
        Self { epoch, batch, step, tokens, data, best, since_best, running, stalled, accumulate, rate }
    }
}

#[derive(Deserialize)]
pub(crate) struct StoredCriterion {
    metric: String,
    better: Better,
    data: u64,
}

impl From<StoredCriterion> for super::StoredCriterion {
    fn from(old: StoredCriterion) -> Self {
        Self { metric: old.metric, better: Named(old.better), data: old.data }
    }
}

#[derive(Deserialize)]
pub(crate) struct StoredTexts(BTreeMap<String, String>);

impl From<StoredTexts> for super::StoredTexts {
    fn from(old: StoredTexts) -> Self {
        Self { texts: old.0 }
    }
}

#[derive(Deserialize)]
pub(crate) struct NamedVocabulary {
    name: String,
    vocabulary: VocabularyVersion1,
}

impl From<NamedVocabulary> for super::NamedVocabulary {
    fn from(old: NamedVocabulary) -> Self {
        Self { name: old.name, vocabulary: old.vocabulary.into() }
    }
}

#[derive(Deserialize)]
pub(crate) struct StoredHead {
    name: String,
    dtype: DType,
    shape: Vec<u64>,
    lod: Option<Vec<Vec<u64>>>,
}

impl From<StoredHead> for super::StoredHead {
    fn from(old: StoredHead) -> Self {
        Self { name: old.name, dtype: Named(old.dtype), shape: old.shape, lod: old.lod }
    }
}
