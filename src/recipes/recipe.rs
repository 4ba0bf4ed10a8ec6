//! The interface of a task. Each task implements [`Recipe`] in its own file.

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

/// Recipe of a task: prepares a training from a config, and loads a trained model from a checkpoint.
pub(super) trait Recipe: Sync {
    /// Sets the defaults of the task, which do well on a few thousand texts.
    fn defaults(&self, config: &mut Config);

    /// Returns the settings that the task does not have.
    fn without(&self) -> &'static [&'static str];

    /// Returns the detected format of the files at a path, and their first records.
    fn preview(&self, config: &Config, path: &Path) -> Result<Preview>;

    /// Returns the parameters with a row or column per token, label or tag. Fine-tuning copies these parameters entry by entry,
    /// and all other parameters by name and shape.
    fn tables(&self) -> &'static [Table];

    /// Reads the texts and builds the model.
    fn prepare(&self, config: &Config, paths: Paths) -> Result<Preparation>;

    /// Returns the trained model of a checkpoint.
    fn model(&self, predictor: &Predictor) -> Result<Box<dyn TrainedModel>>;
}

/// The columns that a model reads from a record of a file, and the columns that an answer adds.
pub(super) struct Query {
    pub(super) asking: QuestionKind,
    /// The read options for the columns that `data.text` and `data.label` name.
    pub(super) columns: [Column; 2],
    /// The names of the columns that an answer adds.
    pub(super) adds: Vec<String>,
}

/// Trained model of a task: answers texts and scores files with its predictor.
pub(super) trait TrainedModel: Send + Sync {
    /// Returns the tokenizers of the texts that the model reads and writes; `None` if it reads given words or rows of features.
    fn tokenizers(&self) -> Option<[&Tokenizer; 2]>;

    /// Returns the texts of a path with their right answers, as [`Predictor::evaluate`] takes them.
    fn data(&self, config: &Config, predictor: &Predictor, path: &str) -> Result<TestData>;

    /// Reads the texts of a path as [`Self::scores`] does, without scores, so that errors in the texts appear before a training.
    /// Returns how the texts are read, for people.
    fn check(&self, config: &Config, predictor: &Predictor, path: &str) -> Result<Vec<String>>;

    /// Scores the model on the texts of a path; `each` is called with every scored text, in the order of the file.
    fn scores(
        &self,
        config: &Config,
        predictor: &Predictor,
        path: &str,
        each: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<Evaluation>;

    /// Returns the columns that are read from the records of a file, and the columns that answers add; `None` if the model does
    /// not answer records.
    fn asked(&self, predictor: &Predictor, decoding: &DecodingConfig) -> Option<Query>;

    /// Answers each text.
    fn answers(
        &self,
        predictor: &Predictor,
        texts: &[&str],
        decoding: &DecodingConfig,
    ) -> Result<Vec<Answer>>;

    /// Joins another model of the task to an ensemble.
    ///
    /// # Errors
    /// If the answers of the two models cannot be joined.
    fn join(&mut self, _predictor: &Predictor, _other: Predictor) -> Result<()> {
        let expected =
            "classifiers of texts, or taggers: their probabilities have a mean, their tags have votes";
        Err(Error::of(ErrorKind::Program, "models to join", expected, "models whose answers have neither"))
    }

    /// Continues a text by `tokens` tokens; `each` gets the new text piece by piece.
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
            "a model of another task",
        ))
    }
}
