//! The history of a training: the scores of each epoch.

use super::position::Position;
use super::sections::{EPOCH, MakeError, about};
use crate::error::Result;

/// The scores of one finished epoch of a training.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct EpochScores {
    /// The number of the epoch, counted from 1.
    pub epoch: u64,
    /// The total number of training steps at the end of the epoch, counted from the start of the training.
    pub step: u64,
    /// The learning rate of the epoch's last step; `None` if it is unknown.
    pub rate: Option<f64>,
    /// The loss and the metrics on the training batches of the epoch, by name; they were measured while the parameters changed.
    pub train: Vec<(String, f64)>,
    /// The loss and the metrics on the development data at the end of the epoch, by name.
    pub dev: Vec<(String, f64)>,
    /// Whether this epoch was the best epoch when it ended.
    pub best: bool,
}

impl EpochScores {
    /// Returns the loss or metric `name` on the development data; `None` if it was not measured.
    pub fn dev(&self, name: &str) -> Option<f64> {
        of(&self.dev, name)
    }

    /// Returns the loss or metric `name` over the epoch's training batches; `None` if it was not measured.
    pub fn train(&self, name: &str) -> Option<f64> {
        of(&self.train, name)
    }

    /// Checks that the epochs and steps of `all` are ascending, and that none is later than `at`, the position of the
    /// training.
    pub(super) fn check(all: &[Self], at: &Position, wrong: MakeError<'_>) -> Result<()> {
        let refused = |what: &str, expected: &str, got: &str| Err(wrong(&about(EPOCH, what), expected, got));
        for pair in all.windows(2) {
            let [before, after] = [&pair[0], &pair[1]];
            let behind = |before: u64, after: u64| format!("{after} after {before}");
            if before.epoch >= after.epoch {
                return refused("number", "epochs in ascending order", &behind(before.epoch, after.epoch));
            }
            if before.step > after.step {
                return refused("step", "steps in ascending order", &behind(before.step, after.step));
            }
        }
        let (Some(first), Some(last)) = (all.first(), all.last()) else { return Ok(()) };
        if first.epoch == 0 {
            return refused("number", "at least 1", "0");
        }
        if last.epoch > at.epoch {
            let expected = format!("at most {}, the number of finished epochs", at.epoch);
            return refused("number", &expected, &last.epoch.to_string());
        }
        if last.step > at.step {
            let expected = format!("at most {}, the number of steps made", at.step);
            return refused("step", &expected, &last.step.to_string());
        }
        Ok(())
    }
}

fn of(scores: &[(String, f64)], name: &str) -> Option<f64> {
    scores.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
}
