//! A trained recipe: from its file alone to labels, tags and text.

use std::path::Path;

use super::answer::Answer;
use super::config::Config;
use super::evaluation::{Evaluation, Outcome};
use super::recipe::{Query, TrainedModel};
use super::sections::{DecodingConfig, Task};
use super::training::{CONFIG, TASK, TestData, options_of};
use crate::checkpoint::Checkpoint;
use crate::data::{Questions, Tokenizer};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::ops;
use crate::predict::{Predictor, Sampling};

/// How many texts are answered together.
const TOGETHER: usize = 256;

/// A model that a recipe has trained, with all that it needs to answer: program, parameters, vocabularies, labels, and how text is cut.
///
/// ```no_run
/// use unpadded::recipes::Model;
/// let model = Model::load("runs/reviews/best.ckpt")?;
/// let answers = model.predict(&["What a film!"])?;
/// println!("{}", answers[0]);
/// # Ok::<(), unpadded::Error>(())
/// ```
pub struct Model {
    predictor: Predictor,
    task: Task,
    trained: Box<dyn TrainedModel>,
    decoding: DecodingConfig,
    /// The separator of several labels, if it is another one than that of the training.
    separator: Option<String>,
}

impl Model {
    /// Loads the file that a recipe's training has saved.
    ///
    /// # Errors
    /// If it cannot be read, or was not saved by a recipe.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let of_file = |e: Error| e.noted(format!("in `{}`", path.display()));
        Self::new(Checkpoint::load(path).at_caller()?).map_err(of_file).at_caller()
    }

    /// The same of a checkpoint in memory.
    ///
    /// # Errors
    /// As [`Self::load`].
    #[track_caller]
    pub fn new(checkpoint: Checkpoint) -> Result<Self> {
        let wrong = |got: String| {
            let expected = "one that a recipe has saved, which says its task";
            Error::of(ErrorKind::Format, "checkpoint", expected, got)
        };
        let task = match checkpoint.notes.get(TASK) {
            Some(name) => Task::from_name(name).ok_or_else(|| wrong(format!("task `{name}`"))),
            None => match checkpoint.notes.get("model") {
                Some(model) => Err(wrong(format!("one of the program `{model}`"))),
                None => Err(wrong("one of another program".into())),
            },
        }
        .at_caller()?;
        let widths = [("probabilities", "labels"), ("logits", "tokens"), ("logits", "targets")];
        for (output, vocabulary) in widths {
            let found = (checkpoint.outputs.get(output), checkpoint.vocabularies.get(vocabulary));
            let (Some(output), Some(vocabulary)) = found else { continue };
            let id = checkpoint.program.find(output);
            let width = id.and_then(|id| checkpoint.program.spec(id).ok()).map(crate::operator::Spec::width);
            if width != Some(vocabulary.len()) || vocabulary.len() == 0 {
                return Err(wrong(format!("{} tokens for the columns of `{output}`", vocabulary.len())));
            }
        }
        let predictor = Predictor::new(checkpoint, &ops::catalogue()).at_caller()?;
        let trained = task.recipe().model(&predictor).at_caller()?;
        let decoding = match predictor.note(CONFIG) {
            Some(config) => {
                Config::from_toml(config)
                    .map_err(|e| e.noted("in the config of the checkpoint"))
                    .at_caller()?
                    .decoding
            }
            None => DecodingConfig::default(),
        };
        Ok(Self { predictor, task, trained, decoding, separator: None })
    }

    /// An ensemble with another model of its task: from now on both answer together. Probabilities of labels, and numbers, are means over
    /// all models. Of tags each model has a vote for each word; of equal votes those of the earlier model count, and tags follow each other
    /// as their scheme allows. Thresholds of several labels are means, too.
    ///
    /// ```no_run
    /// use unpadded::recipes::Model;
    /// let both = Model::load("runs/reviews-1")?.join(Model::load("runs/reviews-2")?)?;
    /// println!("{}", both.predict(&["What a film!"])?[0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If they are of several tasks, read other numbers of columns, have learnt other labels or tags, or write text.
    #[track_caller]
    pub fn join(mut self, other: Self) -> Result<Self> {
        if other.task != self.task {
            let expected = format!("ones of the task `{}`, as the first", self.task.name());
            let got = format!("one of `{}`", other.task.name());
            return Err(Error::of(ErrorKind::Program, "models to join", expected, got)).at_caller();
        }
        let (own, theirs) = (self.reads().at_caller()?, other.reads().at_caller()?);
        if own != theirs {
            let expected = format!("ones that read {own}, as the first");
            let got = format!("one that reads {theirs}");
            return Err(Error::of(ErrorKind::Program, "models to join", expected, got)).at_caller();
        }
        self.trained.join(&self.predictor, other.predictor).at_caller()?;
        Ok(self)
    }

    /// The columns of a record that it reads, for people.
    fn reads(&self) -> Result<String> {
        let config =
            Config::from_toml(self.config()).map_err(|e| e.noted("in the config of the checkpoint"))?;
        Ok(match (config.data.pair.is_some(), config.data.text.len()) {
            (true, _) => "pairs of texts (`data.pair`)".to_owned(),
            (false, 0 | 1) => "one text column".to_owned(),
            (false, columns) => format!("{columns} text columns (`data.text`)"),
        })
    }

    /// What it has learnt.
    pub fn task(&self) -> Task {
        self.task
    }

    /// How it cuts texts; not of `tag`, whose words are given, nor of rows of features.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.trained.tokenizers().map(|[read, _]| read)
    }

    /// The texts of a path, with what is right.
    pub(super) fn data(&self, config: &Config, path: &str) -> Result<TestData> {
        self.trained.data(config, &self.predictor, path)
    }

    /// Checks that the texts of a path can be scored.
    pub(super) fn check(&self, config: &Config, path: &str) -> Result<Vec<String>> {
        self.trained.check(config, &self.predictor, path)
    }

    /// What it scores on the texts of a path; `each` sees every text.
    pub(super) fn scores(
        &self,
        config: &Config,
        path: &str,
        each: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<Evaluation> {
        self.trained.scores(config, &self.predictor, path, each)
    }

    /// The config that it was trained with, as TOML.
    pub fn config(&self) -> &str {
        self.predictor.note(CONFIG).unwrap_or_default()
    }

    /// The predictor, for what stands in no recipe.
    pub fn predictor(&self) -> &Predictor {
        &self.predictor
    }

    /// The records of a file, read as the files of the training were unless the config says otherwise, and the names of what an answer
    /// adds to each ([`Answer::cells`]).
    ///
    /// # Errors
    /// As [`Questions::open`]; of a language model.
    #[track_caller]
    pub fn questions(&self, config: &Config, path: &str) -> Result<(Questions, Vec<String>)> {
        let Some(Query { asking, columns, adds }) = self.trained.asked(&self.predictor, &self.decoding)
        else {
            let expected = "a model that answers records; `generate` goes on from lines of standard input";
            let got = format!("a language model for the file `{path}`");
            return Err(Error::of(ErrorKind::Program, "model", expected, got));
        };
        let options = options_of(config, columns, &self.predictor).at_caller()?;
        Ok((Questions::open(path, &options, asking).at_caller()?, adds))
    }

    /// Sets how answers are made, instead of the settings of the training: `decoding` of a translator, and the separator of several labels.
    #[must_use]
    pub fn answering(self, config: &Config) -> Self {
        let separator = Some(config.data.label_separator.clone());
        Self { decoding: config.decoding.clone(), separator, ..self }
    }

    /// How many threads it runs on: 0 for one a core.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { predictor: self.predictor.threads(threads), ..self }
    }

    /// What it says of each text: a label, tags, a translation; of a language model, how the text goes on, by its likeliest tokens.
    ///
    /// # Errors
    /// If the file lacks a vocabulary, or what is computed is not a number.
    #[track_caller]
    pub fn predict<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Answer>> {
        let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        // A few hundred at a time: what a batch holds is all in memory.
        let mut answers = Vec::with_capacity(texts.len());
        for texts in texts.chunks(TOGETHER) {
            answers.extend(self.trained.answers(&self.predictor, texts, &self.decoding).at_caller()?);
        }
        for answer in &mut answers {
            if let (Answer::Labels { separator, .. }, Some(own)) = (answer, &self.separator) {
                separator.clone_from(own);
            }
        }
        Ok(answers)
    }

    /// Goes on from a text by so many tokens of a language model, drawn as `sampling` says; returns what it wrote.
    ///
    /// # Errors
    /// If it is no language model, `sampling` makes no sense, or what is computed is not a number.
    #[track_caller]
    pub fn write(&self, text: &str, sampling: Sampling, seed: u64, tokens: usize) -> Result<String> {
        let mut written = String::new();
        let mut each = |piece: &str| written.push_str(piece);
        self.trained.write(&self.predictor, text, sampling, seed, tokens, &mut each).at_caller()?;
        Ok(written)
    }

    /// As [`Self::write`]; `each` is given the text piece by piece, as it comes.
    ///
    /// # Errors
    /// As [`Self::write`].
    #[track_caller]
    pub fn write_each(
        &self,
        text: &str,
        sampling: Sampling,
        seed: u64,
        tokens: usize,
        each: &mut dyn FnMut(&str),
    ) -> Result<()> {
        self.trained.write(&self.predictor, text, sampling, seed, tokens, each).at_caller()
    }
}
