//! The report of a training.

use crate::checkpoint::{Best, EpochScores, Position};
use crate::metrics::Scores;

/// The reason why a training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The requested number of epochs or steps is reached.
    Done,
    /// Early stopping: no epoch was better within the patience.
    Early,
    /// The function of [`Trainer::on_epoch`](super::Trainer::on_epoch) returned `Break`.
    Stopped,
    /// An interrupt; a resumed training continues at the next step.
    Interrupted,
}

/// The report of [`Trainer::fit`](super::Trainer::fit).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// The reason why the training ended.
    pub ended: StopReason,
    /// The number of finished epochs, over all runs of this training.
    pub epochs: u64,
    /// The number of steps, over all runs of this training.
    pub steps: u64,
    /// The position from which this run continued; `None` if the training was not resumed.
    pub resumed: Option<Position>,
    /// The best epoch so far; `None` if no epoch has a finite score.
    pub best: Option<Best>,
    /// The scores of each finished epoch, over all runs of this training.
    pub history: Vec<EpochScores>,
    /// The scores of the last evaluation; empty if there was none.
    pub last: Scores,
    /// The number of tokens that this run trained on.
    pub tokens: u64,
    /// The number of rows that this run would have had with each batch padded to its longest sequence.
    pub padded: u64,
    /// The seconds of training in this run, including the reading of data, excluding evaluation and saving.
    pub seconds: f64,
    /// The number of tokens per second of training.
    pub tokens_per_s: f64,
    /// The processes of a [distributed](super::Trainer::distributed) training in this run, by rank; empty for one process.
    pub processes: Vec<Process>,
}

/// The work of one process of a training in a run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Process {
    /// The number of tokens of the parts that the process computed.
    pub tokens: u64,
    /// The number of bytes that the process sent to the other processes.
    pub sent: u64,
    /// The seconds of the run, including evaluation and saving.
    pub seconds: f64,
    /// The seconds of the run in exchanges: waiting for other processes, and transport.
    pub waited: f64,
}
