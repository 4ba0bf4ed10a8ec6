//! The position of a training, and the criterion of its best epoch.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use super::sections::{MakeError, POSITION, SUMS, about};
use super::sums::SparseSums;
use crate::error::Result;
use crate::tensor::named::named;

/// The limit of counts: a count below it is exact as an f64, too, and can be incremented without an overflow.
const MOST: u64 = 1 << 53;

/// The position of a training. Every count is below 2^53.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Position {
    /// The number of finished epochs.
    pub epoch: u64,
    /// The number of finished batches of the current epoch.
    pub batch: u64,
    /// The number of steps since the start of the training.
    pub step: u64,
    /// The number of tokens in all batches since the start of the training.
    pub tokens: u64,
    /// The fingerprint of the training data.
    pub data: u64,
    /// The best epoch so far.
    pub best: Option<Best>,
    /// The number of epochs since the best epoch.
    pub since_best: u64,
    /// The number of epochs without an improvement since the best epoch, or since the learning rate was lowered
    /// ([`Trainer::plateau`](crate::train::Trainer)).
    pub stalled: u64,
    /// The number of batches per step (gradient accumulation); 0 means one.
    pub accumulate: u64,
    /// The number of parts of a batch; 0 means one.
    pub parts: u64,
    /// The learning rate of the last step, with schedule, warm-up and plateau applied; `None` before the first step.
    pub rate: Option<f64>,
    /// The running sums of the loss and of metrics over the epoch so far; they need not be finite. Metrics whose sums are all zero, as
    /// at an epoch's end, are left out.
    pub running: BTreeMap<String, Vec<f64>>,
    /// The running sums of metrics with many sums over the epoch so far, such as one sum for each pair of classes.
    pub sparse: BTreeMap<String, SparseSums>,
}

/// The best epoch so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Best {
    /// The epoch's value of the metric by which the best epoch is chosen.
    pub value: f64,
    /// The epoch's number, from 1.
    pub epoch: u64,
    /// The number of steps at the end of the epoch.
    pub step: u64,
}

/// Prints `epoch 2, batch 31 (step 97)`: the numbers of the current epoch and of the next batch, from 1, and the steps made.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, batch {} (step {})", self.epoch + 1, self.batch + 1, self.step)
    }
}

/// The most sums of one metric in the section `position`; more sums are stored in `sums` sections.
const MANY: usize = 1 << 10;

impl Position {
    /// Keeps the running sums of a metric, if they are not all zero.
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

    /// Returns the running sums of a metric; `None` if none were kept, as all are zero.
    pub(crate) fn sums_of(&self, metric: &str) -> Option<Cow<'_, SparseSums>> {
        let few = || self.running.get(metric).map(|sums| Cow::Owned(SparseSums::of(sums)));
        self.sparse.get(metric).map(Cow::Borrowed).or_else(few)
    }

    /// Removes all running sums.
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
            ("best epoch", best.epoch),
            ("best step", best.step),
        ] {
            if count >= MOST {
                return Err(wrong(&about(POSITION, what), "a count below 2^53", &count.to_string()));
            }
        }
        // `running` need not be finite: a metric may be NaN in a sound training.
        for (what, number) in [("best value", best.value), ("rate", self.rate.unwrap_or_default())] {
            if !number.is_finite() {
                return Err(wrong(&about(POSITION, what), "a finite number", &number.to_string()));
            }
        }
        self.sparse.iter().try_for_each(|(name, sums)| sums.check(&about(SUMS, name), wrong))
    }
}

/// The criterion by which the best epoch was chosen. Scores of two epochs are comparable only on the same data and by the same
/// metric.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Criterion {
    /// The name of the metric by which the best epoch is chosen.
    pub metric: String,
    /// Whether higher or lower values are better.
    pub better: Better,
    /// The fingerprint of the evaluation data.
    pub data: u64,
}

/// Whether higher or lower values of a metric are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Better {
    /// Higher values are better, such as an accuracy.
    #[default]
    Higher,
    /// Lower values are better, such as a loss.
    Lower,
}

named!(Better, "which of two values is better", Higher = "higher", Lower = "lower");

impl Better {
    /// Returns whether `value` is better than `than`. A value that is not finite is never better.
    pub fn than(self, value: f64, than: f64) -> bool {
        value.is_finite()
            && match self {
                Better::Higher => value > than,
                Better::Lower => value < than,
            }
    }
}
