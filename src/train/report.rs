//! What a training came to.

use std::fmt;

use super::checkpoint::{Best, Position};

/// The values of a pass over data: the loss and the metrics, by name, in the order they were given.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scores(pub Vec<(String, f64)>);

impl Scores {
    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// The mean loss.
    pub fn loss(&self) -> f64 {
        self.0.first().map_or(0.0, |(_, value)| *value)
    }
}

/// As `loss 0.5213, accuracy 0.7400`.
impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name} {value:.4}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// Why a training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It has reached what was asked for.
    Done,
    /// No epoch was better for as many as its patience lasts.
    Early,
    /// It was interrupted, and goes on where it is when it is resumed.
    Interrupted,
}

/// What [`Trainer::fit`](super::Trainer::fit) came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Why it ended.
    pub ended: Ended,
    /// Epochs that are finished, over all runs of this training.
    pub epochs: u64,
    /// Steps made, over all runs of this training.
    pub steps: u64,
    /// Where this run went on, if the training was resumed.
    pub resumed: Option<Position>,
    /// The best epoch so far.
    pub best: Option<Best>,
    /// The last evaluation; empty if none was made.
    pub last: Scores,
    /// Real tokens that this run trained on.
    pub tokens: u64,
    /// The rows that padding each batch to its longest sequence would have made of them.
    pub padded: u64,
    /// Seconds of training in this run, reading the data included, evaluating and saving not.
    pub seconds: f64,
    /// Real tokens a second of them.
    pub tokens_per_s: f64,
}

/// As `epoch 2, batch 31 (step 97)`, of the batch that comes next.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, batch {} (step {})", self.epoch + 1, self.batch + 1, self.step)
    }
}
