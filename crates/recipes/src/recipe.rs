//! The recipe of a task, and the traits of trained models.

use std::path::Path;

use unpadded::data::{Loader, Tokenizer};
use unpadded::predict::{Predictor, Sampling};
use unpadded::{Error, ErrorKind, Result};
use unpadded_text::{QuestionKind, ReadOptions, SkipReport};

use super::answer::Answer;
use super::answer_batch::AnswerBatch;
use super::config::Config;
use super::evaluation::{EachOutcome, Evaluation};
use super::labels::trained_id;
use super::portions::{LABEL, PortionFacts, RecordAnswers, TAG, fitting};
use super::preview::Preview;
use super::sections::DecodingConfig;
use super::started::Table;
use super::texts::Texts;
use super::training::{
    Column, ModelFacts, Paths, Preparation, TestData, options, options_of, read_as, skipped,
};

/// The recipe of a task: prepares a training from a config, and loads trained models.
#[derive(Clone, Copy)]
pub(super) struct Recipe {
    /// The parameters that have a row or a column per token, label or tag. Fine-tuning copies these parameters token by token,
    /// and all other parameters by name and shape.
    pub(super) tables: &'static [Table],
    /// Whether the task can start from a language model, whose layers are then below its own.
    pub(super) starts_from_lm: bool,
    /// What a model reads from a record that it answers; `None` for a model that continues texts, instead of answering records.
    pub(super) asking: Option<QuestionKind>,
    /// Returns whether the data of a config are texts, and not rows of features.
    pub(super) of_texts: fn(&Config) -> Result<bool>,
    /// Returns the detected format and the first records of the files at a path.
    pub(super) preview: fn(&Config, &Path) -> Result<Preview>,
    /// Reads the texts of the config, and builds the model.
    pub(super) prepare: fn(&Config, Paths) -> Result<Preparation>,
    /// Reads the texts of a file as [`TrainedModel::scores`] does, but does not score them, so that errors in the file appear
    /// before a training. The config is the config of the training.
    pub(super) check: fn(&TestFile<'_>, &PortionFacts) -> Result<TestCheck>,
    /// Returns the trained model of a loaded checkpoint; the config is the config of its training.
    pub(super) load: fn(&Predictor, &Config) -> Result<Box<dyn TrainedModel>>,
}

/// What a model reads from a record of a file, and which columns its answer adds.
pub(super) struct Query {
    pub(super) asking: QuestionKind,
    /// The functions that pass the settings `data.text` and `data.label` to the read options.
    pub(super) columns: [Column; 2],
    /// The names of the columns that an answer adds.
    pub(super) adds: Vec<String>,
}

/// A test file, with what the model that is scored on it knows.
pub(super) struct TestFile<'a> {
    pub(super) path: &'a str,
    pub(super) config: &'a Config,
    pub(super) known: &'a dyn ModelFacts,
}

/// The check of a test file.
pub(super) struct TestCheck {
    /// Lines for people about how the file is read.
    pub(super) read: Vec<String>,
    /// Warnings about records and classes that the portions of the training do or do not have.
    pub(super) warnings: Vec<String>,
    /// The malformed records that were left out.
    pub(super) skipped: Option<SkipReport>,
}

/// How a text is continued: how tokens are drawn, the seed, and the number of tokens.
pub(super) struct Continuation {
    pub(super) sampling: Sampling,
    pub(super) seed: u64,
    pub(super) tokens: usize,
}

/// A trained model of a task that answers texts with a predictor.
pub(super) trait AnsweringModel: Send + Sync {
    /// Returns the tokenizers of the texts that the model reads and of the texts that it writes, in this order. Returns
    /// `None` for models that read words or rows of features.
    fn tokenizers(&self) -> Option<[&Tokenizer; 2]> {
        None
    }

    /// Returns how many texts are answered together.
    fn batch(&self) -> AnswerBatch {
        AnswerBatch::of_bytes(1 << 16)
    }

    /// Returns one answer for each text; no text is blank.
    fn answers(&self, by: &Predictor, texts: &[&str], how: &DecodingConfig) -> Result<Vec<Answer>>;

    /// Adds another model of the same task, which was trained by `_config`, to the ensemble of this model.
    ///
    /// # Errors
    /// If the answers of this model and of the added model cannot be joined.
    fn join(&mut self, _predictor: &Predictor, _other: Predictor, _config: &Config) -> Result<()> {
        let expected =
            "classifiers of texts, or taggers: probabilities are averaged, and tags are elected by votes";
        Err(Error::of(ErrorKind::Program, "models to join", expected, "models with answers of another kind"))
    }

    /// Continues a text; the callback `each` gets each piece of the new text.
    fn write(
        &self,
        _by: &Predictor,
        _text: &str,
        _how: Continuation,
        _each: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let (expected, got) = ("a language model (`lm`)", "a model of another task");
        Err(Error::of(ErrorKind::Program, "model that writes", expected, got))
    }
}

/// A trained model of a task that also scores files.
pub(super) trait TrainedModel: AnsweringModel {
    /// Returns which columns of a record the model reads, and which columns an answer adds; `None` for a model that
    /// does not answer records.
    fn asked(&self, _predictor: &Predictor, _decoding: &DecodingConfig) -> Option<Query> {
        None
    }

    /// Returns the texts of a file with their right answers, as batches for [`Predictor::evaluate`].
    fn data(&self, file: &TestFile<'_>) -> Result<TestData>;

    /// Scores the model on the texts of a file; the callback `each` gets every scored text, in the order of the file.
    fn scores(&self, by: &Predictor, file: &TestFile<'_>, each: EachOutcome<'_>) -> Result<Evaluation>;
}

/// A test file with its records, and the predictor that is scored on them.
pub(super) struct ScoredFile<'a, R> {
    pub(super) by: &'a Predictor,
    pub(super) file: &'a TestFile<'a>,
    pub(super) texts: Texts<R>,
}

/// A function that checks that a record can be scored; it gets the number of the record, counted from 1.
pub(super) type RecordCheck<'a, R> = Box<dyn FnMut(u64, &R) -> Result<()> + 'a>;

/// A model that reads records: the parts in which these models differ. Each such model has a recipe
/// ([`Recipe::of`]), and is a [`TrainedModel`].
pub(super) trait RecordModel: AnsweringModel + RecordAnswers + Sized + 'static {
    /// What the model reads from a record that it answers.
    const ASKING: QuestionKind;
    /// The functions that pass the settings `data.text` and `data.label` to the read options.
    const COLUMNS: [Column; 2];
    /// As `tables` of [`Recipe`].
    const TABLES: &'static [Table];
    /// As `starts_from_lm` of [`Recipe`].
    const STARTS_FROM_LM: bool = false;
    /// Whether a training scores its held-out records as a test file; decoding of texts would take too long.
    const SCORES_HELD_OUT: bool = true;

    /// A hint for a training file with only one record.
    const ONE_RECORD: &'static str = "";

    /// Returns the options for reading the training files.
    fn training_options(config: &Config) -> Result<ReadOptions> {
        options(config, Self::COLUMNS)
    }

    /// Returns a record as a line of a preview.
    fn line(record: &Self::Record) -> String;

    /// As `preview` of [`Recipe`].
    fn preview(config: &Config, path: &Path) -> Result<Preview> {
        Preview::of(path, &Self::training_options(config)?, &Self::line)
    }

    /// As `prepare` of [`Recipe`].
    fn prepare(config: &Config, paths: Paths) -> Result<Preparation>;

    /// Returns the trained model of a loaded checkpoint; `config` is the config of its training.
    fn load(predictor: &Predictor, config: &Config) -> Result<Self>;

    /// Returns the names of the columns that an answer adds to a record.
    fn adds(&self, predictor: &Predictor, decoding: &DecodingConfig) -> Vec<String>;

    /// Returns the options for reading a test file. Where the config sets no option, the files of the training decide.
    fn options(file: &TestFile<'_>) -> Result<ReadOptions> {
        options_of(file.config, Self::COLUMNS, file.known)
    }

    /// Opens a test file, in memory or (`in_files`) in its files; also returns lines for people about how it is read.
    fn open(file: &TestFile<'_>, in_files: bool) -> Result<(Texts<Self::Record>, Vec<String>)> {
        let texts = Texts::open_test(file.path, file.config, &Self::options(file)?, in_files)?;
        let said = read_as(texts.read_as()).into_iter().collect();
        Ok((texts, said))
    }

    /// Returns batches of the records with their right answers, in the order of the file.
    fn loader(&self, file: &TestFile<'_>, texts: &Texts<Self::Record>) -> Result<Loader>;

    /// Returns a function that checks each record of the file; by default, every record can be scored.
    fn checks<'a>(
        _file: &'a TestFile<'_>,
        _texts: &Texts<Self::Record>,
    ) -> Result<RecordCheck<'a, Self::Record>> {
        Ok(Box::new(|_, _| Ok(())))
    }

    /// Scores the records of an opened file.
    fn scored(&self, of: ScoredFile<'_, Self::Record>, each: EachOutcome<'_>) -> Result<Evaluation>;
}

impl Recipe {
    /// Returns the recipe of a model that reads records.
    pub(super) const fn of<M: RecordModel>() -> Self {
        Self {
            tables: M::TABLES,
            starts_from_lm: M::STARTS_FROM_LM,
            asking: Some(M::ASKING),
            of_texts: |_| Ok(true),
            preview: M::preview,
            prepare: M::prepare,
            check: |file, known| {
                let (texts, mut read) = M::open(file, true)?;
                let mut records = known.test();
                let (mut check, batch) = (M::checks(file, &texts)?, AnswerBatch::of_bytes(usize::MAX));
                texts.in_batches(batch, &|_| 0, &mut |of| {
                    of.iter().try_for_each(|(number, record)| {
                        records.add::<M>(file.config, record);
                        check(*number, record)
                    })
                })?;
                let options = texts.read_as();
                read.extend(options.left_out().into_iter().chain(skipped(&texts.name(), options)));
                let warnings = records.end::<M>(file.path)?;
                Ok(TestCheck { read, warnings, skipped: options.skipped() })
            },
            load: |predictor, config| Ok(Box::new(M::load(predictor, config)?)),
        }
    }
}

impl<M: RecordModel> TrainedModel for M {
    fn asked(&self, predictor: &Predictor, decoding: &DecodingConfig) -> Option<Query> {
        Some(Query { asking: M::ASKING, columns: M::COLUMNS, adds: self.adds(predictor, decoding) })
    }

    fn data(&self, file: &TestFile<'_>) -> Result<TestData> {
        let (texts, said) = M::open(file, false)?;
        Ok(TestData { data: Box::new(self.loader(file, &texts)?), said })
    }

    fn scores(&self, by: &Predictor, file: &TestFile<'_>, each: EachOutcome<'_>) -> Result<Evaluation> {
        let (texts, mut said) = M::open(file, true)?;
        let (name, options) = (texts.name().into_owned(), texts.read_as().clone());
        let scored = self.scored(ScoredFile { by, file, texts }, each)?;
        for (what, vocabulary) in [(LABEL, "labels"), (TAG, "tags")] {
            if scored.is_foreign(what) {
                let known = file.known.vocabulary(vocabulary)?;
                let trained = known.tokens().filter(|name| trained_id(known, name).is_some());
                fitting((what, file.path), trained, scored.unseen.iter().filter(|of| of.what == what))?;
            }
        }
        said.extend(options.left_out().into_iter().chain(skipped(&name, &options)).chain(scored.said));
        Ok(Evaluation { said, ..scored })
    }
}
