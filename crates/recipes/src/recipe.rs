//! The traits that a task implements. Each task implements [`Recipe`] in a file of its own.

use std::path::Path;

use unpadded::data::Tokenizer;
use unpadded::predict::{Predictor, Sampling};
use unpadded::{Error, ErrorKind, Result};
use unpadded_text::QuestionKind;

use super::answer::Answer;
use super::config::Config;
use super::evaluation::{Evaluation, Outcome};
use super::preview::Preview;
use super::sections::DecodingConfig;
use super::started::Table;
use super::training::{Column, Paths, Preparation, TestData};

/// The recipe of a task: prepares a training from a config, and loads trained models.
pub(super) trait Recipe: Sync {
    /// Sets the default settings of the task in a config, suited to a few thousand texts.
    fn defaults(&self, config: &mut Config);

    /// Returns the names of the settings that the task does not have.
    fn without(&self) -> &'static [&'static str];

    /// Returns the detected format and the first records of the files at a path.
    fn preview(&self, config: &Config, path: &Path) -> Result<Preview>;

    /// Returns the parameters that have a row or a column per token, label or tag. Fine-tuning copies these parameters
    /// token by token, and all other parameters by name and shape.
    fn tables(&self) -> &'static [Table];

    /// Reads the texts of the config, and builds the model.
    fn prepare(&self, config: &Config, paths: Paths) -> Result<Preparation>;

    /// Returns the trained model of a loaded checkpoint.
    fn model(&self, predictor: &Predictor) -> Result<Box<dyn TrainedModel>>;
}

/// What a model reads from a record of a file, and which columns its answer adds.
pub(super) struct Query {
    pub(super) asking: QuestionKind,
    /// The functions that pass the settings `data.text` and `data.label` to the read options.
    pub(super) columns: [Column; 2],
    /// The names of the columns that an answer adds.
    pub(super) adds: Vec<String>,
}

/// A trained model of a task: answers texts and scores files with a predictor.
pub(super) trait TrainedModel: Send + Sync {
    /// Returns the tokenizers of the texts that the model reads and of the texts that it writes, in this order. Returns
    /// `None` for models that read words or rows of features.
    fn tokenizers(&self) -> Option<[&Tokenizer; 2]>;

    /// Returns the texts of a path with their right answers, as batches for [`Predictor::evaluate`].
    fn data(&self, config: &Config, predictor: &Predictor, path: &str) -> Result<TestData>;

    /// Reads the texts of a path as [`Self::scores`] does, but does not score them, so that errors in the file appear
    /// before a training. Returns lines for people about how the file is read.
    fn check(&self, config: &Config, predictor: &Predictor, path: &str) -> Result<Vec<String>>;

    /// Scores the model on the texts of a path; the callback `each` gets every scored text, in the order of the file.
    fn scores(
        &self,
        config: &Config,
        predictor: &Predictor,
        path: &str,
        each: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<Evaluation>;

    /// Returns which columns of a record the model reads, and which columns an answer adds; `None` for a model that
    /// does not answer records.
    fn asked(&self, predictor: &Predictor, decoding: &DecodingConfig) -> Option<Query>;

    /// Returns one answer for each text; no text is blank.
    fn answers(
        &self,
        predictor: &Predictor,
        texts: &[&str],
        decoding: &DecodingConfig,
    ) -> Result<Vec<Answer>>;

    /// Adds another model of the same task to the ensemble of this model.
    ///
    /// # Errors
    /// If the answers of this model and of the added model cannot be joined.
    fn join(&mut self, _predictor: &Predictor, _other: Predictor) -> Result<()> {
        let expected =
            "classifiers of texts, or taggers: probabilities are averaged, and tags are elected by votes";
        Err(Error::of(ErrorKind::Program, "models to join", expected, "models with answers of another kind"))
    }

    /// Continues a text by `tokens` tokens; the callback `each` gets each piece of the new text.
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
