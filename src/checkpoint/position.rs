//! The position of a training (epoch, batch, step), and the criterion of its best epoch.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use super::sections::{MakeError, POSITION, SUMS, about};
use super::sums::SparseSums;
use crate::error::Result;
use crate::tensor::named::named;

/// The exclusive upper limit of all counts: a count below the limit is exact as an f64, and adding 1 cannot overflow.
const MOST: u64 = 1 << 53;

/// The position of a training: epoch, batch, step and related counts. Every count in a `Position` is below 2^53.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Position {
    /// The number of finished epochs.
    pub epoch: u64,
    /// The number of finished batches in the current epoch.
    pub batch: u64,
    /// The number of steps since the start of the training.
    pub step: u64,
    /// The number of tokens in all batches since the start of the training.
    pub tokens: u64,
    /// The fingerprint (a hash) of the training data.
    pub data: u64,
    /// The best epoch so far; `None` if there is none yet.
    pub best: Option<Best>,
    /// The number of finished epochs since the best epoch.
    pub since_best: u64,
    /// The number of epochs without an improvement, counted from the best epoch or from the last reduction of the learning rate
    /// ([`Trainer::plateau`](crate::train::Trainer)).
    pub stalled: u64,
    /// The number of batches per training step (gradient accumulation); 0 means 1.
    pub accumulate: u64,
    /// The number of parts into which each batch is divided, such as one part per process; 0 means 1.
    pub parts: u64,
    /// The memory limit in bytes by which batches are divided ([`Trainer::memory_limit`](crate::train::Trainer)); 0 means no
    /// limit.
    pub memory: u64,
    /// The learning rate of the last step, after schedule, warm-up and plateau; `None` before the first step.
    pub rate: Option<f64>,
    /// The sums of the loss and of metrics over the current epoch so far, by name; a sum may be NaN or infinite. A metric whose
    /// sums are all zero (as at the end of an epoch) is left out.
    pub running: BTreeMap<String, Vec<f64>>,
    /// For metrics with many sums, such as one sum for each pair of classes: the sums over the current epoch so far, by
    /// metric name.
    pub sparse: BTreeMap<String, SparseSums>,
}

/// The best epoch of a training so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Best {
    /// The value that the metric for choosing the best epoch had in this epoch.
    pub value: f64,
    /// The number of the epoch, counted from 1.
    pub epoch: u64,
    /// The total number of training steps at the end of the epoch.
    pub step: u64,
}

/// Prints, for example, `epoch 2, batch 31 (step 97)`: the current epoch and the next batch, counted from 1, and the number of
/// finished steps.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, batch {} (step {})", self.epoch + 1, self.batch + 1, self.step)
    }
}

/// The maximum number of sums per metric in the section `position`; a metric with more sums uses the sections `sums`.
const MANY: usize = 1 << 10;

impl Position {
    /// Stores the sums of a metric; if all sums are zero, nothing is stored.
    pub(crate) fn keep_sums(&mut self, metric: &str, sums: &[f64]) {
        if sums.iter().all(|&sum| sum == 0.0) {
            return;
        }
        if sums.len() > MANY {
            self.sparse.insert(metric.to_owned(), SparseSums::of(sums));
        } else {
            self.running.insert(metric.to_owned(), sums.to_vec());
        }
    }

    /// Returns the stored sums of a metric; `None` if nothing is stored, which means that all sums are zero.
    pub(crate) fn sums_of(&self, metric: &str) -> Option<Cow<'_, SparseSums>> {
        let few = || self.running.get(metric).map(|sums| Cow::Owned(SparseSums::of(sums)));
        self.sparse.get(metric).map(Cow::Borrowed).or_else(few)
    }

    /// Removes the stored sums of all metrics.
    pub(crate) fn clear_sums(&mut self) {
        (self.running, self.sparse) = (BTreeMap::new(), BTreeMap::new());
    }

    pub(super) fn check(&self, wrong: MakeError<'_>) -> Result<()> {
        let best = self.best.unwrap_or(Best { value: 0.0, epoch: 0, step: 0 });
        for (what, count) in [
            ("epoch", self.epoch),
            ("batch", self.batch),
            ("step", self.step),
            ("tokens", self.tokens),
            ("since_best", self.since_best),
            ("stalled", self.stalled),
            ("accumulate", self.accumulate),
            ("parts", self.parts),
            ("memory", self.memory),
            ("best epoch", best.epoch),
            ("best step", best.step),
        ] {
            if count >= MOST {
                return Err(wrong(&about(POSITION, what), "a count below 2^53", &count.to_string()));
            }
        }
        // The sums in `running` need not be finite: a metric may be NaN although the training is sound.
        for (what, number) in [("best value", best.value), ("rate", self.rate.unwrap_or_default())] {
            if !number.is_finite() {
                return Err(wrong(&about(POSITION, what), "a finite number", &number.to_string()));
            }
        }
        self.sparse.iter().try_for_each(|(name, sums)| sums.check(&about(SUMS, name), wrong))
    }
}

/// The criterion by which the best epoch is chosen. The scores of two epochs can be compared only if data and metric are the
/// same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Criterion {
    /// The name of the metric by which the best epoch is chosen.
    pub metric: String,
    /// Whether higher or lower values are better.
    pub better: Better,
    /// The fingerprint (a hash) of the evaluation data.
    pub data: u64,
}

/// Whether higher or lower values of a metric are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Better {
    /// Higher values are better, as for an accuracy.
    #[default]
    Higher,
    /// Lower values are better, as for a loss.
    Lower,
}

named!(Better, "which of two values is better", Higher = "higher", Lower = "lower");

impl Better {
    /// Returns whether `value` is a better score than `than`. A score that is not finite is never better.
    pub fn than(self, value: f64, than: f64) -> bool {
        value.is_finite()
            && match self {
                Better::Higher => value > than,
                Better::Lower => value < than,
            }
    }
}
