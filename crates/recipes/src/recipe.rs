//! The recipe of a task, and the traits of trained models.

use std::ops::ControlFlow;
use std::path::Path;

use unpadded::data::{Loader, Tokenizer};
use unpadded::predict::{Beam, Predictor, Sampler};
use unpadded::{Error, ErrorKind, Printable, Result, Variable};
use unpadded_text::{Files, QuestionKind, ReadOptions, Record, SkipReport};

use super::answer::{Answer, AnswerBatch};
use super::config::Config;
use super::evaluation::{EachOutcome, Evaluation};
use super::labels::trained_id;
use super::portions::{LABEL, PortionFacts, RecordAnswers, TAG, fitting};
use super::sections::DecodingConfig;
use super::started::Table;
use super::text_session::{EachPiece, TextSession};
use super::texts::Texts;
use super::training::{Column, Paths, Preparation, TestData, options, options_of, read_as, skipped};

/// The recipe of a task: prepares a training from a config, and loads trained models.
#[derive(Clone, Copy)]
pub(super) struct Recipe {
    /// The parameters that fine-tuning copies token by token (or label by label), and not by name and shape.
    pub(super) tables: &'static [Table],
    /// Whether the task can start from a language model, whose layers are then below its own.
    pub(super) starts_from_lm: bool,
    /// What a model reads from a record that it answers; `None` for a model that continues texts, instead of answering records.
    pub(super) asking: Option<QuestionKind>,
    pub(super) preview: fn(&Config, &Path) -> Result<Preview>,
    pub(super) prepare: fn(&Config, Paths) -> Result<Preparation>,
    /// Reads a file as [`TrainedModel::scores`] does, so that its errors appear before a training with this config.
    pub(super) check: fn(&TestFile<'_>, &PortionFacts) -> Result<TestCheck>,
    pub(super) load: fn(&Predictor, &Config) -> Result<Box<dyn TrainedModel>>,
}

pub(super) struct TestFile<'a> {
    pub(super) path: &'a str,
    pub(super) config: &'a Config,
    pub(super) known: &'a Predictor,
}

pub(super) struct TestCheck {
    pub(super) read: Vec<String>,
    pub(super) warnings: Vec<String>,
    pub(super) skipped: Option<SkipReport>,
}

pub(super) struct Continuation<'a> {
    pub(super) sampler: &'a mut Sampler,
    /// The maximum number of tokens.
    pub(super) tokens: usize,
}

pub(super) trait AnsweringModel: Send + Sync {
    /// Returns the tokenizers of the texts that are read and written; `None` for models of words or rows of features.
    fn tokenizers(&self) -> Option<[&Tokenizer; 2]> {
        None
    }

    /// Returns the predictors of the other models of an ensemble.
    fn others(&self) -> Vec<&Predictor> {
        Vec::new()
    }

    fn batch(&self) -> AnswerBatch {
        AnswerBatch::of_bytes(1 << 16)
    }

    /// Returns the number of tokens that the model reads of a text; of entries, for rows of features.
    fn length(&self, text: &str) -> usize {
        match self.tokenizers() {
            Some([read, _]) => read.tokens(text).count(),
            None => text.split_ascii_whitespace().count(),
        }
    }

    /// Returns the output from which the answers are made, if its last linear layer reads one vector per text.
    fn embeds(&self) -> Option<&'static str> {
        None
    }

    /// Returns an output of the model with one row per text.
    fn rows(&self, _: &Predictor, _texts: &[&str], _output: &str) -> Result<Variable> {
        let (expected, got) =
            ("a model of `classify`, which makes one vector per text", "a model of another task");
        Err(Error::of(ErrorKind::Program, "model of vectors", expected, got))
    }

    fn answers(&self, by: &Predictor, texts: &[&str], how: &DecodingConfig) -> Result<Vec<Answer>>;

    /// Adds another model of the same task to the ensemble of this model; an error, if their answers cannot be joined.
    fn join(&mut self, _predictor: &Predictor, _other: Predictor, _config: &Config) -> Result<()> {
        let expected =
            "classifiers of texts, or taggers: probabilities are averaged, and tags are elected by votes";
        Err(Error::of(ErrorKind::Program, "models to join", expected, "models with answers of another kind"))
    }

    /// Reads a text in a session of a language model; returns the number of its tokens.
    fn read(
        &self,
        _: &Predictor,
        _: &mut TextSession,
        _text: &str,
        _each: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<usize> {
        Err(no_writer())
    }

    /// Continues the text that a session has read; `each` gets each piece, and ends the continuation by `Break`.
    fn write(
        &self,
        _: &Predictor,
        _: &mut TextSession,
        _: Continuation<'_>,
        _each: EachPiece<'_>,
    ) -> Result<usize> {
        Err(no_writer())
    }

    /// Returns the memory in bytes that a search with this beam width takes beside the batch of its texts.
    fn search_memory(&self, _: &Predictor, _beam: usize) -> Result<u64> {
        Ok(0)
    }

    /// Searches the most probable continuations of a text.
    fn search(&self, _: &Predictor, _text: &str, _tokens: usize, _: &Beam) -> Result<Vec<(String, f64)>> {
        Err(no_writer())
    }
}

fn no_writer() -> Error {
    let (expected, got) = ("a language model (`lm`)", "a model of another task");
    Error::of(ErrorKind::Program, "model that writes", expected, got)
}

pub(super) trait TrainedModel: AnsweringModel {
    /// Returns what the model reads from a record, how its columns are set, and an answer's columns; `None` for a language model.
    fn asked(&self, _: &Predictor, _: &DecodingConfig) -> Option<(QuestionKind, [Column; 2], Vec<String>)> {
        None
    }

    fn data(&self, file: &TestFile<'_>) -> Result<TestData>;

    /// Scores the model on the texts of a file; the callback `each` gets every scored text, in the order of the file.
    fn scores(&self, file: &TestFile<'_>, each: EachOutcome<'_>) -> Result<Evaluation>;
}

/// A function that checks that a record can be scored; it gets the number of the record, counted from 1.
pub(super) type RecordCheck<'a, R> = Box<dyn FnMut(u64, &R) -> Result<()> + 'a>;

/// What differs between models that read records. Each has a recipe ([`Recipe::of`]), and is a [`TrainedModel`].
pub(super) trait RecordModel: AnsweringModel + RecordAnswers + Sized + 'static {
    const ASKING: QuestionKind;
    const COLUMNS: [Column; 2];
    const TABLES: &'static [Table];
    const STARTS_FROM_LM: bool = false;
    /// Whether a training scores its held-out records as a test file; decoding of texts would take too long.
    const SCORES_HELD_OUT: bool = true;

    const ONE_RECORD: &'static str = "";

    fn training_options(config: &Config) -> Result<ReadOptions> {
        options(config, Self::COLUMNS)
    }

    fn line(record: &Self::Record) -> String;

    fn preview(config: &Config, path: &Path) -> Result<Preview> {
        Preview::of(path, &Self::training_options(config)?, &Self::line)
    }

    fn prepare(config: &Config, paths: Paths) -> Result<Preparation>;

    fn load(predictor: &Predictor, config: &Config) -> Result<Self>;

    fn adds(&self, predictor: &Predictor, decoding: &DecodingConfig) -> Vec<String>;

    /// Returns the options for reading a test file. Where the config sets no option, the files of the training decide.
    fn options(file: &TestFile<'_>) -> Result<ReadOptions> {
        options_of(file.config, Self::COLUMNS, file.known)
    }

    /// Opens a test file, in memory or (`in_files`) in its files; also returns lines for people about how it is read.
    fn open(file: &TestFile<'_>, in_files: bool) -> Result<(Texts<Self::Record>, Vec<String>)> {
        let texts = Texts::open_test(file.path, file.config, &Self::options(file)?, in_files)?;
        let messages = read_as(texts.options()).into_iter().collect();
        Ok((texts, messages))
    }

    fn loader(&self, file: &TestFile<'_>, texts: &Texts<Self::Record>) -> Result<Loader>;

    /// Returns a function that checks each record of the file; by default, every record can be scored.
    fn checks<'a>(
        _file: &'a TestFile<'_>,
        _texts: &Texts<Self::Record>,
    ) -> Result<RecordCheck<'a, Self::Record>> {
        Ok(Box::new(|_, _| Ok(())))
    }

    fn scored(
        &self,
        file: &TestFile<'_>,
        texts: Texts<Self::Record>,
        each: EachOutcome<'_>,
    ) -> Result<Evaluation>;
}

impl Recipe {
    pub(super) const fn of<M: RecordModel>() -> Self {
        Self {
            tables: M::TABLES,
            starts_from_lm: M::STARTS_FROM_LM,
            asking: Some(M::ASKING),
            preview: M::preview,
            prepare: M::prepare,
            check: |file, known| {
                let (texts, mut read) = M::open(file, true)?;
                let mut records = known.test();
                let (mut check, batch) = (M::checks(file, &texts)?, AnswerBatch::of_bytes(usize::MAX));
                texts.in_batches(batch, &|_| 0, &mut |batch_of_texts| {
                    batch_of_texts.iter().try_for_each(|(number, record)| {
                        records.add::<M>(file.config, record);
                        check(*number, record)
                    })
                })?;
                let options = texts.options();
                read.extend(options.left_out().into_iter().chain(skipped(&texts.called(), options)));
                let warnings = records.end::<M>(file.path)?;
                Ok(TestCheck { read, warnings, skipped: options.skipped() })
            },
            load: |predictor, config| Ok(Box::new(M::load(predictor, config)?)),
        }
    }
}

impl<M: RecordModel> TrainedModel for M {
    fn asked(
        &self,
        by: &Predictor,
        decoding: &DecodingConfig,
    ) -> Option<(QuestionKind, [Column; 2], Vec<String>)> {
        Some((M::ASKING, M::COLUMNS, self.adds(by, decoding)))
    }

    fn data(&self, file: &TestFile<'_>) -> Result<TestData> {
        let (texts, messages) = M::open(file, false)?;
        Ok(TestData { data: Box::new(self.loader(file, &texts)?), messages })
    }

    fn scores(&self, file: &TestFile<'_>, each: EachOutcome<'_>) -> Result<Evaluation> {
        let (texts, mut messages) = M::open(file, true)?;
        let (name, options) = (texts.called().into_owned(), texts.options().clone());
        let scored = self.scored(file, texts, each)?;
        for (what, vocabulary) in [(LABEL, "labels"), (TAG, "tags")] {
            if scored.is_foreign(what) {
                let known = file.known.vocabulary(vocabulary)?;
                let trained = known.tokens().filter(|name| trained_id(known, name).is_some());
                fitting((what, file.path), trained, scored.unseen.iter().filter(|class| class.what == what))?;
            }
        }
        messages
            .extend(options.left_out().into_iter().chain(skipped(&name, &options)).chain(scored.messages));
        Ok(Evaluation { messages, ..scored })
    }
}

/// The detected format of a data set and the first parsed records.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preview {
    /// The detected format, columns and header with the reasons, as a line for people; `None` if there is nothing to
    /// report.
    pub messages: Option<String>,
    /// The detected options as a JSON object from [`ReadOptions::to_json`].
    pub how: String,
    /// The first records of the data set, each formatted as a line.
    pub records: Vec<String>,
}

impl Preview {
    pub(super) const SHOWN: usize = 3;

    pub(super) fn new(options: &ReadOptions, records: Vec<String>) -> Self {
        Self { messages: read_as(options), how: options.to_json(), records }
    }

    pub(super) fn of<R: Record>(
        path: &Path,
        options: &ReadOptions,
        line: &dyn Fn(&R) -> String,
    ) -> Result<Self> {
        let files = Files::open_with([path], options)?;
        let records = files.records().take(Self::SHOWN).map(|record| record.map(|record| line(&record)));
        let records = records.collect::<Result<_>>()?;
        Ok(Self::new(files.read_as(), records))
    }

    /// Returns a text in quotation marks, cut after 80 characters.
    pub(super) fn shortened(text: &str) -> String {
        Printable(text).quoted(80)
    }
}
