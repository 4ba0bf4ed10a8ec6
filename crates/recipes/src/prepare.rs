//! The preparation of a training on records. A [`TaskSurvey`] is what differs between tasks: counts, vocabularies, samples, network.

use std::collections::HashSet;
use std::path::Path;

use unpadded::data::{Loader, TokenCounts, Vocabulary};
use unpadded::predict::Predictor;
use unpadded::train::Trainer;
use unpadded::{Error, ErrorKind, Result};
use unpadded_text::{DataSet, ReadOptions, Record};

use super::config::Config;
use super::evaluation::count_of;
use super::labels::none;
use super::net;
use super::portions::{Portion, PortionFacts, check_folds};
use super::recipe::{RecordModel, TestFile};
use super::started::Origin;
use super::texts::Texts;
use super::training::{
    DataMemory, HeldOutScorer, HeldOutTexts, Paths, Preparation, READ_AS, of_training, one_in, read_as,
    skipped, too_few,
};

#[derive(Default)]
pub(super) struct RecordCounts {
    /// The tokens of the training records, for the vocabulary.
    tokens: TokenCounts,
    /// The tokens of all other records, for the coverage of the vocabulary.
    dev_tokens: TokenCounts,
    pub(super) lengths: Vec<usize>,
    pub(super) dev: usize,
    pub(super) held_out: HeldOutTexts,
    pub(super) facts: PortionFacts,
    /// The number of records that stay in training since only they have a class.
    kept: usize,
    folds: Option<String>,
}

impl RecordCounts {
    pub(super) fn add(&mut self, tokens: impl Iterator<Item: AsRef<str>>, portion: Portion) {
        let is_train = portion == Portion::Train;
        let counts = if is_train { &mut self.tokens } else { &mut self.dev_tokens };
        let length = tokens.map(|token| counts.add(token.as_ref())).count();
        if is_train { self.lengths.push(length) } else { self.dev += 1 }
    }

    fn skip_message<R: Record>(&self) -> Option<String> {
        let (kept, plural) = (self.kept, R::PLURAL);
        let (stay, only) = match kept {
            1 => ("stays", "only this record has its"),
            _ => ("stay", "only these records have their"),
        };
        (kept > 0).then(|| {
            let kept = count_of(kept as u64, plural);
            format!("{kept} {stay} in training instead of being held out: {only} label or tag")
        })
    }

    /// Checks that neither the training records nor the held-out records are empty.
    fn both<M: RecordModel>(&self, [train, dev]: [&str; 2], config: &Config) -> Result<()> {
        let (of_train, plural) = (self.lengths.len(), M::Record::PLURAL);
        if of_train > 0 && self.dev > 0 {
            return Ok(());
        }
        if !self.held_out.divided {
            return Err(none(if of_train == 0 { train } else { dev }));
        }
        let all = of_train + self.dev;
        let expected = format!(
            "enough {plural} to hold out a share of {} of them: add {plural}, set `data.dev` to a file, or set a larger \
             `data.hold_out`",
            config.data.hold_out
        );
        let which = if self.dev == 0 { "none" } else { "all" };
        let got = format!("{}, of which {which} would be held out", count_of(all as u64, plural));
        let error = too_few(Error::of(ErrorKind::Format, format!("{plural} of `{train}`"), expected, got));
        let error = self.skip_message::<M::Record>().into_iter().fold(error, Error::noted);
        Err(if all == 1 && !M::ONE_RECORD.is_empty() { error.noted(M::ONE_RECORD) } else { error })
    }
}

pub(super) type Within<'a> = (&'a Config, DataMemory);
pub(super) type DevTexts<R> = Result<(Texts<R>, Option<String>)>;
pub(super) type FirstRecords<'a, R> = &'a dyn Fn(usize) -> Result<Vec<R>>;

/// The counts of a task, from which its vocabularies are made: one pass over the records, before the network is built.
pub(super) trait TaskSurvey<'a>: Sized {
    type Record: Record;
    type Model: RecordModel<Record = Self::Record>;

    fn embedded(train: bool) -> Result<DataSet<Self::Record>>;

    fn one_in(config: &Config, _all: &Texts<Self::Record>) -> Result<u64> {
        Ok(one_in(config))
    }

    fn open(path: &Path, within: Within<'_>, options: &ReadOptions) -> Result<Texts<Self::Record>> {
        Texts::open(path, within, options)
    }

    /// Opens `data.dev` as the training records were read; also returns a line about what is left out.
    fn open_dev(train: &Texts<Self::Record>, path: &Path, within: Within<'_>) -> DevTexts<Self::Record> {
        Ok((Texts::open(path, within, &train.options().clone().phrases(false))?, None))
    }

    fn begin(config: &'a Config, first: FirstRecords<'_, Self::Record>, from: &Origin) -> Result<Self>;

    fn count(&mut self, record: &Self::Record, portion: Portion, counts: &mut RecordCounts);

    /// Checks the training records and the records held out from them, before the pass over `data.dev`.
    fn check(&self, _counts: &RecordCounts, _train: &str) -> Result<()> {
        Ok(())
    }

    fn end(self, texts: &mut TrainingTexts<'_, Self::Record>, tokens: TokenCounts) -> Result<TaskNetwork>;
}

pub(super) struct TrainingTexts<'a, R> {
    pub(super) train: Texts<R>,
    pub(super) dev: Texts<R>,
    /// Whether `dev` is `data.dev`, and not held out from `train`.
    pub(super) given: bool,
    pub(super) from: &'a Origin,
    pub(super) counts: RecordCounts,
}

pub(super) struct TaskNetwork {
    pub(super) loaders: [Loader; 2],
    pub(super) trainer: Trainer,
    pub(super) metric: &'static str,
    /// The vocabulary of the tokens that the model reads, and the options of the training files; `None` for rows of features.
    pub(super) reading: Option<(Vocabulary, ReadOptions)>,
    /// What is known of the training records and of the held-out records, for the first line for people.
    pub(super) known: [String; 2],
    /// Lines for people: before the line about how the training files are read, after it, and after the lines about memory.
    pub(super) messages: [Vec<String>; 3],
}

pub(super) fn prepare<'a, S: TaskSurvey<'a>>(config: &'a Config, paths: Paths) -> Result<Preparation> {
    let Paths { train, dev, test, from, memory, too_few, .. } = paths;
    let (own, given, within) = (train.is_some(), dev.is_some(), (config, memory));
    let options = S::Model::training_options(config)?.phrases(config.data.phrases);
    let train = match train {
        Some(path) => S::open(&path, within, &config.data.group.iter().fold(options, ReadOptions::group))?,
        None => Texts::Held(S::embedded(true)?),
    };
    // An error in the first lines of `data.dev` is reported before the pass over the training records.
    let (dev, dropped) = dev.map(|path| S::open_dev(&train, &path, within)).transpose()?.unzip();
    let divides = !given && (own || config.data.fold.is_some());
    let one_in = if divides { S::one_in(config, &train)? } else { 0 };
    let begin = |first: FirstRecords<'_, S::Record>| S::begin(config, first, &from);
    let (mut survey, mut counts, [train, held]) = divided::<S>(train, (one_in, config), &begin)?;
    survey.check(&counts, &train.called())?;
    let dev = match dev {
        Some(dev) => dev,
        None if divides => held,
        None => Texts::Held(S::embedded(false)?),
    };
    counts.facts.trained();
    if !divides && !too_few {
        dev.each(&mut |record| {
            counts.facts.add::<S::Model>(config, record, Portion::Dev);
            survey.count(record, Portion::Dev, &mut counts);
        })?;
    }
    (counts.held_out.divided, counts.held_out.name) = (divides, dev.called().into_owned());
    if !too_few {
        counts.both::<S::Model>([&train.called(), &dev.called()], config)?;
    }
    let tokens = std::mem::take(&mut counts.tokens);
    let mut texts = TrainingTexts { train, dev, given, from: &from, counts };
    let network = survey.end(&mut texts, tokens)?;
    let TaskNetwork { loaders: [data, dev_data], mut trainer, metric, reading, known, messages } = network;
    let data = of_training(data, config);
    let (mut coverage, mut vectors, mut otherwise) = (None, None, None);
    let TrainingTexts { train, dev, mut counts, .. } = texts;
    // The task has removed the classes that its model does not learn.
    let warnings = counts.facts.messages::<S::Model>(&train.called(), &dev.called(), divides)?;
    // Rows of features have no words, and other rows are read as the training rows.
    if let Some((words, note)) = reading {
        let read = read_as(dev.options()).zip(read_as(train.options()));
        otherwise = read.filter(|(own, part)| own != part).map(|(own, _)| format!("{}: {own}", dev.called()));
        trainer = trainer.note(READ_AS, note.phrases(false).to_note());
        coverage = counts.dev_tokens.coverage(&words);
        vectors = net::vectors(config, &mut trainer, &words)?;
    }
    let ([known, held], [before, after, last]) = (known, messages);
    let (records, plural) = (counts.lengths.len(), S::Record::PLURAL);
    let mut messages =
        vec![format!("{}: {records} {plural}{known}; {} held out{held}", train.called(), counts.dev)];
    messages.extend(before.into_iter().chain(read_as(train.options())).chain(dropped.flatten()).chain(after));
    messages.extend(otherwise.filter(|_| given && !too_few));
    messages.extend(train.memory_message(&data, memory));
    messages.extend(dev.memory_message(&dev_data, memory).filter(|_| given && !too_few));
    messages.extend(last);
    let parts = [Some(&train), (given && !too_few).then_some(&dev)].into_iter().flatten();
    let reports = parts.clone().filter_map(|part| part.options().skipped()).collect();
    messages.extend(parts.filter_map(|part| skipped(&part.called(), part.options())));
    messages.extend(vectors);
    messages.extend(counts.skip_message::<S::Record>().into_iter().chain(counts.folds).chain(warnings));
    let score_held_out = score_held_out::<S::Model>(dev, within, &mut messages);
    Ok(Preparation {
        trainer,
        train: Box::new(data),
        dev: Box::new(dev_data),
        test,
        name: train.called().into_owned(),
        metric,
        coverage,
        lengths: counts.lengths,
        held_out: counts.held_out,
        classes: counts.facts.classes.all().cloned().collect(),
        facts: counts.facts,
        score_held_out,
        messages,
        skipped: reports,
    })
}

type DividedRecords<S, R> = (S, RecordCounts, [Texts<R>; 2]);

/// Divides records in one pass that counts them: one in `one_in` is held out, or the fold of the config.
fn divided<'a, S: TaskSurvey<'a>>(
    all: Texts<S::Record>,
    (one_in, config): (u64, &Config),
    begin: &dyn Fn(FirstRecords<'_, S::Record>) -> Result<S>,
) -> Result<DividedRecords<S, S::Record>> {
    let (mut kept, seed) = (HashSet::new(), config.run.seed);
    // Each record is held out once by folds, so none stays in training.
    let mut is_final = config.data.fold.is_some();
    let folds = match (config.data.fold, &all) {
        (Some(fold), Texts::Held(records)) if one_in > 0 => check_folds::<S::Model>(records, fold, config)?,
        _ => None,
    };
    loop {
        let (mut counts, rule) = (RecordCounts::default(), all.hold_out_rule(one_in, config, &kept));
        let mut survey = begin(&|most| {
            let of_train = |record: &Result<S::Record>| record.as_ref().map_or(true, |record| !rule(record));
            all.records().filter(of_train).take(most).collect()
        })?;
        let parts = all.survey(&rule, &mut |record, held| {
            let portion = if held { Portion::HeldOut } else { Portion::Train };
            counts.facts.add::<S::Model>(config, record, portion);
            counts.kept += usize::from(!kept.is_empty() && kept.contains(&record.held_out_key(seed)));
            survey.count(record, portion, &mut counts);
        })?;
        let classes = &counts.facts.classes;
        // If nothing would be left to hold out, the classes that only the held-out records have are named instead.
        if !kept.is_empty() && counts.dev == 0 {
            (kept, is_final) = (HashSet::new(), true);
            continue;
        }
        if is_final || !kept.is_empty() || classes.unseen().next().is_none() {
            counts.folds = folds;
            let (train, held) = parts.unwrap_or_else(|| all.divide(rule));
            return Ok((survey, counts, [train, held]));
        }
        // Records of a class that no training record has stay in training, with all that cannot be separated from them.
        all.each(&mut |record| {
            if rule(record) && classes.is_unseen::<S::Model>(config, record) {
                kept.insert(record.held_out_key(seed));
            }
        })?;
    }
}

/// Returns a function that scores held-out records, which stay in memory; `None`, with a message in `messages`, if they are too large.
fn score_held_out<M: RecordModel>(
    texts: Texts<M::Record>,
    (config, memory): (&Config, DataMemory),
    messages: &mut Vec<String>,
) -> Option<HeldOutScorer> {
    let bytes = match &texts {
        Texts::Held(texts) => texts.records().iter().map(Record::bytes).sum(),
        Texts::InFiles(..) => 0,
    };
    if !M::SCORES_HELD_OUT {
        return None;
    }
    if bytes > memory.texts() / 4 {
        messages.push(format!(
            "{}: the {} exceed {}, a 32nd of the memory limit, so the training does not write a table of their scores",
            texts.called(),
            M::Record::PLURAL,
            unpadded::memory::shown(memory.texts() as u128 / 4)
        ));
        return None;
    }
    let config = config.clone();
    Some(Box::new(move |by: &Predictor| {
        let path = &*texts.called().into_owned();
        let file = &TestFile { path, config: &config, known: by };
        M::load(by, &config)?.scored(file, texts, &mut |_| ())
    }))
}
