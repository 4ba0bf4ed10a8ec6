//! What every recipe makes of its config and its texts.

use super::config::{Config, Tokens};
use crate::data::{Batching, Data, Loader, Tokenizer};
use crate::train::Trainer;

/// A training that may begin.
pub struct Prepared {
    /// The model, told by what it is measured and what its file will hold.
    pub trainer: Trainer,
    /// What it is trained on.
    pub train: Box<dyn Data>,
    /// What it is measured on after each epoch.
    pub dev: Box<dyn Data>,
    /// What it is measured on at the end, if that is asked for.
    pub test: Option<Box<dyn Data>>,
    /// What the texts are called.
    pub name: String,
    /// The metric that decides which epoch is the best.
    pub metric: &'static str,
    /// The lengths of the training texts, in tokens.
    pub lengths: Vec<usize>,
    /// The texts of `dev`, each with what would be right.
    pub held_out: Vec<Case>,
    /// Lines that say what was read, for people.
    pub said: Vec<String>,
}

/// A text with what would be right.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The text; of tagged ones the words between spaces.
    pub text: String,
    /// What would be right.
    pub truth: Truth,
}

/// What would be right.
#[derive(Debug, Clone, PartialEq)]
pub enum Truth {
    /// The label.
    Label(String),
    /// The tag of each word, and the label of the text if it has one.
    Tags(Vec<String>, Option<String>),
    /// What it may become.
    Texts(Vec<String>),
    /// A text goes on in many ways.
    Open,
}

/// The notes of a recipe's file.
pub(super) const TASK: &str = "task";
pub(super) const CONFIG: &str = "config";
pub(super) const CUT: &str = "tokens";

/// One text in so many is held out.
pub(super) fn one_in(config: &Config) -> u64 {
    (1.0 / config.data.hold_out).round() as u64
}

pub(super) fn tokenizer(config: &Config) -> Tokenizer {
    let cut = match config.text.tokens {
        Tokens::Whitespace => Tokenizer::whitespace(),
        Tokens::Words => Tokenizer::words(),
        Tokens::Characters => Tokenizer::characters(),
        Tokens::Pieces => Tokenizer::pieces(),
    };
    if config.text.lowercase { cut.lowercase() } else { cut }
}

/// How a loader of texts makes batches of a training.
pub(super) fn batches(loader: Loader, config: &Config) -> Loader {
    loader.batching(Batching::Sequences(config.training.batch))
}
