//! Checkpoints: everything that a training needs to go on exactly where it was, in one file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::program::Program;
use crate::tensor::{Dense, Variable};

/// A training at one moment, or a model to predict with. Everything is found by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Checkpoint {
    /// The program that trains: forward, backward and updates.
    pub program: Program,
    /// Its persistent variables: parameters and the optimizer's state.
    pub tensors: BTreeMap<String, Dense>,
    /// The parameters of the best epoch so far; empty if none was kept.
    pub best: BTreeMap<String, Dense>,
    /// The user's own strings, such as the name of a tokenizer.
    pub notes: BTreeMap<String, String>,
    /// The names under which a predictor gives variables of the program: name to variable's name.
    pub outputs: BTreeMap<String, String>,
    /// Values that pass from batch to batch, by the name of the feed that takes them.
    pub carried: BTreeMap<String, Variable>,
    /// How far the training is.
    pub position: Position,
}

/// How far a training is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
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
    /// Running sums of the loss and of metrics over the epoch so far.
    pub running: BTreeMap<String, Vec<f64>>,
}

/// The best epoch so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// What it reached: the metric that decides.
    pub value: f64,
    /// The epoch, from 1 on.
    pub epoch: u64,
    /// The steps that had been made when it ended.
    pub step: u64,
}
