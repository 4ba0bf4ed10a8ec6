//! The records of a data set: in memory, or in files that may be larger than memory.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use unpadded::data::{Data, Field, Limits, Loader, TokenCounts, Tokenizer, Vocabulary};
use unpadded::{Result, memory};
use unpadded_text::{DataSet, Files, LabelledText, Passes, ReadOptions, Record, RecordSource, Survey};

use super::answer_batch::AnswerBatch;
use super::config::Config;
use super::labels::none;
use super::training::{DataMemory, as_in_training, batches};

// A training has only a few values of this type, so a large variant does not waste memory.
#[allow(clippy::large_enum_variant)]
pub(super) enum Texts<R> {
    Held(DataSet<R>),
    /// The files, and the shuffle window of the config: the number of records that are shuffled in memory at a time. `None` if the
    /// memory limit decides what is in memory.
    InFiles(Files<R>, Option<usize>),
}

/// A function that converts a record to the fields of a sample.
pub(super) type ToSample<R> = Arc<dyn Fn(&R) -> Result<Vec<Field>> + Send + Sync>;

/// A function that gets a batch of records, each with its number, counted from 1.
pub(super) type EachBatch<'a, R> = &'a mut dyn FnMut(&[(u64, R)]) -> Result<()>;

/// The training part, the held-out part and the vocabulary of a data set, collected before the model is built.
pub(super) struct TextSurvey {
    pub(super) rest: Texts<LabelledText>,
    pub(super) held: Texts<LabelledText>,
    /// The vocabulary of a training part in files, which the survey counts.
    pub(super) words: Option<Result<Vocabulary>>,
}

impl<R: Record> Texts<R> {
    /// Opens the records of a path. The records stay in the files if the config sets `data.window`, or if the records would
    /// exceed the share of the memory limit for texts; otherwise, the records are read into memory. If the samples of all
    /// records fit into memory, records in files give the same samples in the same order as records in memory.
    pub(super) fn open(
        path: impl AsRef<Path>,
        (config, memory): (&Config, DataMemory),
        options: &ReadOptions,
    ) -> Result<Self> {
        let path = path.as_ref();
        if let Some(window) = config.data.window {
            return Ok(Self::InFiles(Files::open_with([path], options)?, Some(window)));
        }
        // A fold needs all records in memory, so the memory limit is ignored.
        let most = if config.data.fold.is_some() { usize::MAX } else { memory.texts() };
        Ok(match RecordSource::read(&[path.to_owned()], options, most)? {
            RecordSource::Memory(records) => Self::Held(records),
            RecordSource::Files(files) => Self::InFiles(files.samples_within(memory.ids()), None),
        })
    }

    /// Opens the records of a test file, with the options of the training files. With `in_files`, the records are read from
    /// their files in each pass, so that the file may be larger than memory.
    pub(super) fn open_test(path: &str, config: &Config, like: &ReadOptions, in_files: bool) -> Result<Self> {
        let opened = match in_files {
            true => Files::open_with([path], like).map(|files| Self::InFiles(files, Some(1))),
            false => Self::open(path, (config, DataMemory::set_by(config)), like),
        };
        opened.map_err(|e| as_in_training(e, like))
    }

    pub(super) fn records(&self) -> Box<dyn Iterator<Item = Result<R>> + '_> {
        match self {
            Self::Held(records) => Box::new(records.records().iter().cloned().map(Ok)),
            Self::InFiles(files, _) => files.records(),
        }
    }

    /// Passes the records, with their numbers from 1 on, to `each` batch by batch; `size` is the length of a record in bytes.
    ///
    /// # Errors
    /// If there is no record, if the files cannot be read, or the first error of `each`.
    pub(super) fn in_batches(
        &self,
        batch: AnswerBatch,
        size: &dyn Fn(&R) -> usize,
        each: EachBatch<'_, R>,
    ) -> Result<()> {
        let (mut some, mut numbered) =
            (false, (1..).zip(self.records()).map(|(at, record)| Ok((at, record?))));
        batch.divide(&mut numbered, &|(_, record)| size(record), &mut |batch| {
            some = true;
            each(batch)
        })?;
        if some { Ok(()) } else { Err(none(&self.name())) }
    }

    /// Returns a message about the part of the data that is in memory. Returns `None` if all data are in memory, or if the
    /// config sets the window. `loader` is the loader of these records.
    pub(super) fn said_of_memory(&self, loader: &Loader, memory: DataMemory) -> Option<String> {
        let Self::InFiles(files, None) = self else { return None };
        let larger = format!(
            "{}: the {} stay in their files, since they exceed {}, an eighth of the memory limit",
            files.name(),
            R::PLURAL,
            memory::shown(memory.texts() as u128)
        );
        Some(match loader.may_wait() {
            false => format!("{larger}; the token ids are in memory"),
            true => format!(
                "{larger}; each epoch reads them again, with at most {} of token ids in memory, a quarter of the limit",
                memory::shown(memory.ids() as u128)
            ),
        })
    }

    pub(super) fn name(&self) -> Cow<'_, str> {
        self.called()
    }

    pub(super) fn read_as(&self) -> &ReadOptions {
        self.options()
    }

    /// Holds out about one of `one_in` records, or the fold `data.fold` if the config sets it. Returns the training
    /// part, then the held-out part.
    pub(super) fn hold_out(self, one_in: u64, config: &Config) -> (Self, Self) {
        let seed = config.run.seed;
        match self {
            Self::Held(records) => {
                let (rest, held) = divided(records, one_in, config);
                (Self::Held(rest), Self::Held(held))
            }
            Self::InFiles(files, window) => {
                let (rest, held) = files.hold_out(one_in, seed);
                (Self::InFiles(rest, window), Self::InFiles(held, window))
            }
        }
    }

    /// Returns the number of records; to count records in files, the files are read once.
    pub(super) fn count(&self) -> Result<usize> {
        let mut count = 0;
        self.each(&mut |_| count += 1)?;
        Ok(count)
    }

    /// Returns the vocabulary of the texts of all records; `text` returns the text of a record, and `counted` has the tokens of
    /// all these texts. A tokenizer of Hugging Face numbers its tokens itself, so it reads the texts again.
    pub(super) fn vocabulary(
        &self,
        counted: TokenCounts,
        (config, cut, limits): (&Config, &Tokenizer, &Limits),
        text: fn(&R) -> &str,
    ) -> Result<Vocabulary> {
        let noted = |e: unpadded::Error| e.noted(format!("in `{}`", self.name()));
        if config.text.tokenizer.is_none() {
            return counted.within(limits).map_err(noted);
        }
        let mut wrong = None;
        let records = self.records().map_while(|record| record.map_err(|e| wrong = Some(e)).ok());
        let found = cut.vocabulary(records.map(|record| text(&record).to_owned()), limits);
        wrong.map_or(found.map_err(noted), Err)
    }

    /// Returns a loader of batches, in the order of the file; `sample` converts each record to the fields of a sample.
    /// `salt` is a hash of everything that determines the samples, except the records.
    pub(super) fn loader(
        &self,
        feeds: &[&str],
        salt: u64,
        sample: ToSample<R>,
        config: &Config,
    ) -> Result<Loader> {
        let loader = match self {
            Self::Held(records) => {
                Loader::new(records.samples_by(salt, move |record| sample(record))?, feeds)?
            }
            Self::InFiles(files, _) => {
                Loader::new(files.samples_by(salt, move |record| sample(record))?, feeds)?
            }
        };
        Ok(self.batches(loader, config))
    }

    /// Sets the batch size of a loader and, for records in files, the shuffle window of the config.
    pub(super) fn batches(&self, loader: Loader, config: &Config) -> Loader {
        match self {
            Self::Held(_) => batches(loader, config),
            Self::InFiles(_, window) => window.iter().fold(batches(loader, config), |l, &n| l.buffer(n)),
        }
    }
}

/// Divides records into a training part and a held-out part; the held-out part is the fold `data.fold` if the config
/// sets it.
pub(super) fn divided<R: Record>(
    records: DataSet<R>,
    one_in: u64,
    config: &Config,
) -> (DataSet<R>, DataSet<R>) {
    match config.data.fold {
        Some(fold) if one_in > 0 => records.hold_out_fold(fold, config.run.seed),
        _ => records.hold_out(one_in, config.run.seed),
    }
}

impl<R: Record> Passes<R> for Texts<R> {
    fn called(&self) -> Cow<'_, str> {
        match self {
            Self::Held(records) => records.called(),
            Self::InFiles(files, _) => files.called(),
        }
    }

    fn options(&self) -> &ReadOptions {
        match self {
            Self::Held(records) => records.options(),
            Self::InFiles(files, _) => files.options(),
        }
    }

    fn each(&self, visit: &mut dyn FnMut(&R)) -> Result<()> {
        match self {
            Self::Held(records) => records.each(visit),
            Self::InFiles(files, _) => files.each(visit),
        }
    }
}

impl Texts<LabelledText> {
    /// Divides the texts into a training part and a held-out part in one pass. Calls `visit` with each text and whether the text is held out.
    pub(super) fn survey(
        self,
        (one_in, config): (u64, &Config),
        cut: &Tokenizer,
        limits: &Limits,
        visit: &mut dyn FnMut(&LabelledText, bool),
    ) -> Result<TextSurvey> {
        match self {
            Self::Held(texts) => {
                let (rest, held) = divided(texts, one_in, config);
                rest.records().iter().for_each(|text| visit(text, false));
                held.records().iter().for_each(|text| visit(text, true));
                Ok(TextSurvey { rest: Self::Held(rest), held: Self::Held(held), words: None })
            }
            Self::InFiles(files, window) => {
                let by = (one_in, config.run.seed);
                let Survey { rest, held, words, .. } = files.survey(by, cut, limits, visit)?;
                let (rest, held) = (Self::InFiles(rest, window), Self::InFiles(held, window));
                Ok(TextSurvey { rest, held, words: Some(words) })
            }
        }
    }
}
