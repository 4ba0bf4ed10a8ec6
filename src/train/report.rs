//! The report that a training returns.

use crate::checkpoint::{Best, EpochScores, Position};
use crate::executor::MemoryUse;
use crate::metrics::Scores;
use crate::operator::MatrixUnit;

/// The reason why a training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The training has reached the requested number of epochs or steps.
    Done,
    /// Early stopping: no epoch within the patience was better.
    Early,
    /// The user's function of [`Trainer::on_epoch`](super::Trainer::on_epoch) returned `Break`.
    Stopped,
    /// An interrupt ended the training; a resumed training continues at the next step.
    Interrupted,
}

/// The report of [`Trainer::fit`](super::Trainer::fit).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// The reason why this run ended.
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
    /// The scores of the last evaluation; empty if this run made no evaluation.
    pub last: Scores,
    /// The number of tokens that this run trained on.
    pub tokens: u64,
    /// The number of rows that the batches of this run would have had with padding, if each sequence were padded to the longest
    /// sequence of its batch.
    pub padded: u64,
    /// The training time of this run in seconds, including the reading of data, without evaluation and saving.
    pub seconds: f64,
    /// The number of tokens per second of training time.
    pub tokens_per_s: f64,
    /// The unit that computed the matrix products.
    pub unit: MatrixUnit,
    /// The computed memory of the largest step of this run ([`Trainer::memory`](super::Trainer::memory)); zeros without a
    /// [memory limit](super::Trainer::memory_limit). The memory of a step that was divided is computed for its whole batch.
    pub memory: MemoryUse,
    /// The number of steps of this run that were divided because of the memory limit.
    pub divided: u64,
    /// The work of each process of a [distributed](super::Trainer::distributed) training in this run, by rank; empty for a
    /// single process.
    pub processes: Vec<Process>,
}

/// The work of one process in a run of a training.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Process {
    /// The number of tokens in the parts that the process computed.
    pub tokens: u64,
    /// The number of bytes that the process sent to the other processes.
    pub sent: u64,
    /// The time of the run in seconds, including evaluation and saving.
    pub seconds: f64,
    /// The time in seconds that the process spent in exchanges: waiting for other processes, and sending and receiving.
    pub waited: f64,
    /// The bytes of the rows of dealt tables, and of their states, that the process holds at the end; 0 without
    /// [dealt tables](super::Trainer::deal_tables).
    pub tables: u64,
}
