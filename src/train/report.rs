//! What a training came to.

use crate::checkpoint::{Best, EpochScores, Position};
use crate::metrics::Scores;

/// Why a training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// It has reached what was asked for.
    Done,
    /// No epoch was better for as many as its patience lasts.
    Early,
    /// The function that was given to [`Trainer::on_epoch`](super::Trainer::on_epoch) said so.
    Stopped,
    /// It was interrupted, and goes on where it is when it is resumed.
    Interrupted,
}

/// What [`Trainer::fit`](super::Trainer::fit) came to.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Why it ended.
    pub ended: StopReason,
    /// Epochs that are finished, over all runs of this training.
    pub epochs: u64,
    /// Steps made, over all runs of this training.
    pub steps: u64,
    /// Where this run went on, if the training was resumed.
    pub resumed: Option<Position>,
    /// The best epoch so far.
    pub best: Option<Best>,
    /// What each finished epoch came to, over all runs of this training.
    pub history: Vec<EpochScores>,
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
    /// The processes of a [distributed](super::Trainer::distributed) training in this run, by rank; empty for one process.
    pub processes: Vec<Process>,
}

/// What one process of a training did in a run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Process {
    /// Tokens of the parts that it computed.
    pub tokens: u64,
    /// Bytes that it sent to the other processes.
    pub sent: u64,
    /// Seconds of the run, evaluating and saving included.
    pub seconds: f64,
    /// Seconds of these in exchanges: waiting for other processes, and transport.
    pub waited: f64,
}
