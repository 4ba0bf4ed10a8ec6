//! The preparation of a training, for all tasks whose data are records. A task is what differs: a [`TaskSurvey`], which counts
//! the records, and makes the vocabularies, the samples and the network.

use std::path::Path;

use unpadded::data::{Loader, TokenCounts, Vocabulary};
use unpadded::train::Trainer;
use unpadded::{Error, Result};
use unpadded_text::{DataSet, Passes as _, ReadOptions, Record};

use super::config::Config;
use super::net;
use super::recipe::RecordModel;
use super::started::Origin;
use super::texts::Texts;
use super::training::{
    DataMemory, HeldOutTexts, Paths, Preparation, READ_AS, of_training, one_in, read_as, read_otherwise,
};

/// The portion of the data that a record is in: the training texts, the texts held out from them, or the texts of `data.dev`.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Portion {
    Train,
    HeldOut,
    Dev,
}

/// Counts of the records of a data set.
#[derive(Default)]
pub(super) struct RecordCounts {
    /// The tokens of the training records, for the vocabulary.
    tokens: TokenCounts,
    /// The tokens of all other records, for the coverage of the vocabulary.
    dev_tokens: TokenCounts,
    /// The length of each training record in tokens.
    pub(super) lengths: Vec<usize>,
    /// The number of all other records.
    pub(super) dev: usize,
    pub(super) held_out: HeldOutTexts,
}

impl RecordCounts {
    /// Counts a record and its tokens.
    pub(super) fn add(&mut self, tokens: impl Iterator<Item: AsRef<str>>, portion: Portion) {
        let is_train = portion == Portion::Train;
        let counts = if is_train { &mut self.tokens } else { &mut self.dev_tokens };
        let length = tokens.map(|token| counts.add(token.as_ref())).count();
        if is_train { self.lengths.push(length) } else { self.dev += 1 }
    }
}

/// The counts of a task, from which its vocabularies are made: one pass over the records, before the network is built.
pub(super) trait TaskSurvey<'a>: Sized {
    type Record: Record;
    type Model: RecordModel<Record = Self::Record>;
    /// Whether the vocabularies of tags and labels also have the tags and labels of `data.dev`.
    const COUNTS_DEV: bool = false;

    /// Returns the records that come with the program: the training part, or the held-out part.
    fn embedded(train: bool) -> Result<DataSet<Self::Record>>;

    /// Returns the number n such that one of n records is held out.
    fn one_in(config: &Config, _all: &Texts<Self::Record>) -> Result<u64> {
        Ok(one_in(config))
    }

    /// Opens the records of `data.dev` with the options that were detected in the training records.
    fn open_dev(
        train: &Texts<Self::Record>,
        path: &Path,
        within: (&Config, DataMemory),
    ) -> Result<Texts<Self::Record>> {
        Texts::open(path, within, &train.read_as().clone().phrases(false))
    }

    /// Begins the pass over the records; `train` has the records that are not held out.
    fn begin(config: &'a Config, train: &Texts<Self::Record>, from: &Origin) -> Result<Self>;

    /// Counts a record.
    fn count(&mut self, record: &Self::Record, portion: Portion, counts: &mut RecordCounts);

    /// Checks the training records and the records held out from them, before the pass over `data.dev`.
    fn check(&self, _train: &str) -> Result<()> {
        Ok(())
    }

    /// Makes the vocabularies and the samples, and builds the network.
    fn end(self, texts: &mut TrainingTexts<'_, Self::Record>, tokens: TokenCounts) -> Result<TaskNetwork>;
}

/// The records of a training, after the pass over them.
pub(super) struct TrainingTexts<'a, R> {
    pub(super) train: Texts<R>,
    pub(super) dev: Texts<R>,
    /// Whether `dev` is `data.dev`, and not held out from `train`.
    pub(super) given: bool,
    pub(super) from: &'a Origin,
    pub(super) counts: RecordCounts,
}

/// A task with its samples and its network.
pub(super) struct TaskNetwork {
    /// The batches of the training records and of the other records, in the order of the files.
    pub(super) loaders: [Loader; 2],
    /// The trainer with the vocabularies and notes of the task.
    pub(super) trainer: Trainer,
    /// The name of the metric that decides which epoch is the best.
    pub(super) metric: &'static str,
    /// The vocabulary of the tokens that the model reads.
    pub(super) words: Vocabulary,
    /// The options of the training files.
    pub(super) read_as: ReadOptions,
    /// What is known of the training records and of the held-out records, for the first line for people.
    pub(super) known: [String; 2],
    /// Lines for people: before the line about how the training files are read, after it, and after the lines about memory.
    pub(super) said: [Vec<String>; 3],
}

/// Reads the records of a config, and builds the model.
pub(super) fn prepare<'a, S: TaskSurvey<'a>>(config: &'a Config, paths: Paths) -> Result<Preparation> {
    let Paths { train, dev, test, from, memory, .. } = paths;
    let (own, given, within) = (train.is_some(), dev.is_some(), (config, memory));
    let options = S::Model::training_options(config)?.phrases(config.data.phrases);
    let train = match train {
        Some(path) => Texts::open(path, within, &config.data.group.iter().fold(options, ReadOptions::group))?,
        None => Texts::Held(S::embedded(true)?),
    };
    // An error in the first lines of `data.dev` is reported before the pass over the training records.
    let dev = dev.map(|path| S::open_dev(&train, &path, within)).transpose()?;
    let divides = !given && (own || config.data.fold.is_some());
    let one_in = if divides { S::one_in(config, &train)? } else { 0 };
    let mut counts = RecordCounts::default();
    let (mut survey, train, held) = train.survey(
        (one_in, config),
        |train| S::begin(config, train, &from),
        |survey, record, held| {
            let portion = if held { Portion::HeldOut } else { Portion::Train };
            survey.count(record, portion, &mut counts);
        },
    )?;
    survey.check(&train.name())?;
    let dev = match dev {
        Some(dev) => dev,
        None if divides => held,
        None => Texts::Held(S::embedded(false)?),
    };
    if !divides {
        dev.each(&mut |record| survey.count(record, Portion::Dev, &mut counts))?;
    }
    counts.held_out.counted = divides || S::COUNTS_DEV;
    both([(train.name(), counts.lengths.len()), (dev.name(), counts.dev)])?;
    let tokens = std::mem::take(&mut counts.tokens);
    let mut texts = TrainingTexts { train, dev, given, from: &from, counts };
    let network = survey.end(&mut texts, tokens)?;
    let TaskNetwork { loaders: [data, dev_data], trainer, metric, words, read_as: note, known, said } =
        network;
    let data = of_training(data, config);
    let mut trainer = trainer.note(READ_AS, note.phrases(false).to_note());

    let TrainingTexts { train, dev, counts, .. } = texts;
    let ([known, held], [before, after, last]) = (known, said);
    let (records, plural) = (counts.lengths.len(), S::Record::PLURAL);
    let mut said =
        vec![format!("{}: {records} {plural}{known}; {} held out{held}", train.name(), counts.dev)];
    said.extend(before.into_iter().chain(read_as(train.read_as())).chain(after));
    let otherwise = read_otherwise(&dev.name(), dev.read_as(), train.read_as());
    said.extend(otherwise.filter(|_| given));
    said.extend(train.said_of_memory(&data, memory));
    said.extend(dev.said_of_memory(&dev_data, memory).filter(|_| given));
    said.extend(last);
    said.extend(net::vectors(config, &mut trainer, &words)?);
    Ok(Preparation {
        trainer,
        train: Box::new(data),
        dev: Box::new(dev_data),
        test,
        name: train.name().into_owned(),
        metric,
        coverage: counts.dev_tokens.coverage(&words),
        lengths: counts.lengths,
        held_out: counts.held_out,
        said,
    })
}

/// Checks that neither the training texts nor the held-out texts are empty.
fn both<N: AsRef<str>>(parts: impl IntoIterator<Item = (N, usize)>) -> Result<()> {
    let Some((name, _)) = parts.into_iter().find(|(_, size)| *size == 0) else { return Ok(()) };
    let expected =
        "training texts and held-out texts: use more texts (equal texts stay together), or set `data.dev`";
    Err(Error::new(format!("texts of `{}`", name.as_ref()), expected, "none"))
}
