//! What a task is: a [`Recipe`], in a file of its own.

use std::path::Path;

use super::answer::Answer;
use super::config::Config;
use super::evaluation::{Evaluation, Outcome};
use super::preview::Preview;
use super::sections::DecodingConfig;
use super::started::Table;
use super::training::{Column, Paths, Preparation, TestData};
use crate::data::{QuestionKind, Tokenizer};
use crate::error::{Error, ErrorKind, Result};
use crate::predict::{Predictor, Sampling};

/// From the config of a task to a training, and from its checkpoint to a model that answers.
pub(super) trait Recipe: Sync {
    /// Sets what does well for the task on a few thousand texts and is not the default.
    fn defaults(&self, config: &mut Config);

    /// The settings that the task does not have.
    fn without(&self) -> &'static [&'static str];

    /// How a path is read, and its first records.
    fn preview(&self, config: &Config, path: &Path) -> Result<Preview>;

    /// The parameters with a row or column per token, label or tag; others are copied by name and shape from a model to start from.
    fn tables(&self) -> &'static [Table];

    /// Reads the texts and builds the model.
    fn prepare(&self, config: &Config, paths: Paths) -> Result<Preparation>;

    /// What a checkpoint of the task answers with.
    fn model(&self, predictor: &Predictor) -> Result<Box<dyn TrainedModel>>;
}

/// What a model is asked of the records of a file.
pub(super) struct Query {
    pub(super) asking: QuestionKind,
    /// What `data.text` and `data.label` are.
    pub(super) columns: [Column; 2],
    /// The names of what an answer adds.
    pub(super) adds: Vec<String>,
}

/// What a trained model of a task needs beside its predictor.
pub(super) trait TrainedModel: Send + Sync {
    /// How it cuts what it reads, and what it writes; none where the tokens are given.
    fn tokenizers(&self) -> Option<[&Tokenizer; 2]>;

    /// The texts of a path, with what is right, as [`Predictor::evaluate`] takes them.
    fn data(&self, config: &Config, predictor: &Predictor, path: &str) -> Result<TestData>;

    /// Reads the texts of a path as [`Self::scores`] does, and scores none: what is wrong with them is known before a training. Returns how
    /// they are read, for people.
    fn check(&self, config: &Config, predictor: &Predictor, path: &str) -> Result<Vec<String>>;

    /// What it scores on the texts of a path; `each` sees every text, in order.
    fn scores(
        &self,
        config: &Config,
        predictor: &Predictor,
        path: &str,
        each: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<Evaluation>;

    /// What it is asked of the records of a file; none if it answers no records.
    fn asked(&self, predictor: &Predictor, decoding: &DecodingConfig) -> Option<Query>;

    /// An answer for each text.
    fn answers(
        &self,
        predictor: &Predictor,
        texts: &[&str],
        decoding: &DecodingConfig,
    ) -> Result<Vec<Answer>>;

    /// Joins another model of the task, with which it answers from now on.
    ///
    /// # Errors
    /// If their answers cannot be joined.
    fn join(&mut self, _predictor: &Predictor, _other: Predictor) -> Result<()> {
        let expected =
            "classifiers of texts, or taggers: their probabilities have a mean, their tags have votes";
        Err(Error::of(ErrorKind::Program, "models to join", expected, "models whose answers have neither"))
    }

    /// Goes on from a text by `tokens` tokens; `each` is given the text as it comes.
    fn write(
        &self,
        _predictor: &Predictor,
        _text: &str,
        _sampling: Sampling,
        _seed: u64,
        _tokens: usize,
        _each: &mut dyn FnMut(&str),
    ) -> Result<()> {
        Err(Error::of(
            ErrorKind::Program,
            "model that writes",
            "a language model (`lm`)",
            "one of another task",
        ))
    }
}
