//! What each epoch of a training came to.

use super::sections::{EPOCH, Wrong, about};
use crate::error::Result;

/// What an epoch of a training came to, when it ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EpochScores {
    /// Its number, from 1 on.
    pub epoch: u64,
    /// The steps that had been made, over all runs of the training.
    pub step: u64,
    /// The learning rate of its last step.
    pub rate: Option<f64>,
    /// The loss and the metrics over its batches, by name, while the parameters moved.
    pub train: Vec<(String, f64)>,
    /// The loss and the metrics on the development data at its end, by name.
    pub dev: Vec<(String, f64)>,
    /// Whether it was the best epoch so far.
    pub best: bool,
}

impl EpochScores {
    /// The value of this name on the development data.
    pub fn dev(&self, name: &str) -> Option<f64> {
        of(&self.dev, name)
    }

    /// The value of this name over the batches of the epoch.
    pub fn train(&self, name: &str) -> Option<f64> {
        of(&self.train, name)
    }

    /// Checks that epochs follow each other up to the one that a training is in.
    pub(super) fn check(all: &[Self], finished: u64, wrong: Wrong<'_>) -> Result<()> {
        for pair in all.windows(2) {
            if pair[0].epoch >= pair[1].epoch || pair[0].step > pair[1].step {
                let got = format!("{} behind {}", pair[1].epoch, pair[0].epoch);
                return Err(wrong(&about(EPOCH, "number"), "epochs in their order", &got));
            }
        }
        match all.last() {
            Some(last) if last.epoch > finished => {
                let expected = format!("at most {finished}, the epochs that are finished");
                Err(wrong(&about(EPOCH, "number"), &expected, &last.epoch.to_string()))
            }
            _ => Ok(()),
        }
    }
}

fn of(scores: &[(String, f64)], name: &str) -> Option<f64> {
    scores.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
}
