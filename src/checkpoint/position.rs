//! How far a training is, and by what its best epoch was chosen.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use super::sections::{MakeError, POSITION, SUMS, about};
use super::sums::SparseSums;
use crate::error::Result;
use crate::tensor::named::named;

/// Counts are exact as floats too, and there is room to count on.
const MOST: u64 = 1 << 53;

/// How far a training is. A count is below 2^53.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Position {
    /// Epochs that are finished.
    pub epoch: u64,
    /// Batches of the epoch after them that are finished.
    pub batch: u64,
    /// Steps in all.
    pub step: u64,
    /// Tokens in all.
    pub tokens: u64,
    /// The fingerprint of the data that it trains on.
    pub data: u64,
    /// The best epoch so far.
    pub best: Option<Best>,
    /// Epochs since the best one.
    pub since_best: u64,
    /// Epochs that were not the best so far, since the last that was or the rate was lowered
    /// ([`Trainer::plateau`](crate::train::Trainer)).
    pub stalled: u64,
    /// How many batches make a step; 0 stands for one.
    pub accumulate: u64,
    /// The number of parts of a batch; 0 means one.
    pub parts: u64,
    /// The learning rate of the last step, with all that goes into it; `None` before the first.
    pub rate: Option<f64>,
    /// Running sums of the loss and of metrics over the epoch so far; they need not be finite. Those that are all zero are left out, as
    /// at an epoch's end.
    pub running: BTreeMap<String, Vec<f64>>,
    /// Those of metrics with many of them, as a number for each pair of classes.
    pub sparse: BTreeMap<String, SparseSums>,
}

/// The best epoch so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Best {
    /// What it reached: the metric that decides.
    pub value: f64,
    /// The epoch, from 1 on.
    pub epoch: u64,
    /// The steps that had been made when it ended.
    pub step: u64,
}

/// As `epoch 2, batch 31 (step 97)`, of the batch that comes next.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, batch {} (step {})", self.epoch + 1, self.batch + 1, self.step)
    }
}

/// Metrics with more sums than this have them in sections of their own.
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

    /// The running sums of a metric.
    pub(crate) fn sums_of(&self, metric: &str) -> Option<Cow<'_, SparseSums>> {
        let few = || self.running.get(metric).map(|sums| Cow::Owned(SparseSums::of(sums)));
        self.sparse.get(metric).map(Cow::Borrowed).or_else(few)
    }

    /// Forgets all running sums.
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
        // Not so `running`: a metric may be NaN, and its training be sound.
        for (what, number) in [("best value", best.value), ("rate", self.rate.unwrap_or_default())] {
            if !number.is_finite() {
                return Err(wrong(&about(POSITION, what), "a finite number", &number.to_string()));
            }
        }
        self.sparse.iter().try_for_each(|(name, sums)| sums.check(&about(SUMS, name), wrong))
    }
}

/// By what the best epoch was chosen. Its value says nothing about other data, or by another metric.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Criterion {
    /// The name of the metric that decides.
    pub metric: String,
    /// Which of two of its values is the better one.
    pub better: Better,
    /// The fingerprint of the data that was evaluated on.
    pub data: u64,
}

/// Which of two values of a metric is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Better {
    /// The higher one: accuracy.
    #[default]
    Higher,
    /// The lower one: a loss.
    Lower,
}

named!(Better, "which of two values is better", Higher = "higher", Lower = "lower");

impl Better {
    /// Whether `value` is better than `than`. What is not finite never is.
    pub fn than(self, value: f64, than: f64) -> bool {
        value.is_finite()
            && match self {
                Better::Higher => value > than,
                Better::Lower => value < than,
            }
    }
}
