//! The records of a data set: in memory, or in files that may be larger than memory.

use std::collections::HashSet;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use unpadded::data::{Data, Field, Loader, TokenCounts};
use unpadded::{Result, memory};
use unpadded_text::{
    DataSet, Files, HoldOutRule, Passes, ReadOptions, Record, RecordSource, is_held, path_of_text,
};

use super::answer::AnswerBatch;
use super::config::Config;
use super::labels::none;
use super::training::{DataMemory, batches, read_as};

// A training has only a few values of this type, so a large variant does not waste memory.
#[allow(clippy::large_enum_variant)]
pub(super) enum Texts<R> {
    Held(DataSet<R>),
    /// The files, and the shuffle window of the config; `None` if the memory limit decides what is in memory.
    InFiles(Files<R>, Option<usize>),
}

pub(super) type ToSample<R> = Arc<dyn Fn(&R) -> Result<Vec<Field>> + Send + Sync>;

pub(super) type EachBatch<'a, R> = &'a mut dyn FnMut(&[(u64, R)]) -> Result<()>;

impl<R: Record> Texts<R> {
    /// Reads records into memory, unless they exceed their share of the limit, or `data.window` is set; the samples are equal.
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

    /// Opens a test file with the options of the training files; with `in_files`, it may be larger than memory.
    pub(super) fn open_test(path: &str, config: &Config, like: &ReadOptions, in_files: bool) -> Result<Self> {
        let path = path_of_text(path);
        let opened = match in_files {
            true => Files::open_with([path], like).map(|files| Self::InFiles(files, Some(1))),
            false => Self::open(path, (config, DataMemory::set_by(config)), like),
        };
        opened.map_err(|e| {
            read_as(like)
                .into_iter()
                .fold(e, |e, message| e.noted(format!("{message}, as the files of the training")))
        })
    }

    pub(super) fn records(&self) -> Box<dyn Iterator<Item = Result<R>> + '_> {
        match self {
            Self::Held(records) => Box::new(records.records().iter().cloned().map(Ok)),
            Self::InFiles(files, _) => files.records(),
        }
    }

    /// Passes the records, numbered from 1, to `each` by batches; `size` is the length in bytes. It is an error to have no record.
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
        if some { Ok(()) } else { Err(none(&self.called())) }
    }

    /// Returns a message about the data in memory; `None` if all data are in memory, or if the config sets the window.
    pub(super) fn memory_message(&self, loader: &Loader, memory: DataMemory) -> Option<String> {
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

    /// Passes each record to `visit`, with whether it is held out. Files are read once and divided; [`Self::divide`] divides others.
    pub(super) fn survey(
        &self,
        held: &HoldOutRule<R>,
        visit: &mut dyn FnMut(&R, bool),
    ) -> Result<Option<(Self, Self)>> {
        match self {
            Self::Held(records) => {
                records.records().iter().for_each(|record| visit(record, held(record)));
                Ok(None)
            }
            Self::InFiles(files, window) => {
                let (rest, held) = files.clone().hold_out_by_pass(held.clone(), visit)?;
                Ok(Some((Self::InFiles(rest, *window), Self::InFiles(held, *window))))
            }
        }
    }

    pub(super) fn divide(self, held: HoldOutRule<R>) -> (Self, Self) {
        match self {
            Self::Held(records) => {
                let (rest, held) = records.hold_out_by(held);
                (Self::Held(rest), Self::Held(held))
            }
            Self::InFiles(files, window) => {
                let (rest, held) = files.hold_out_by(held);
                (Self::InFiles(rest, window), Self::InFiles(held, window))
            }
        }
    }

    /// Returns the rule that holds out one of `one_in` records, or the fold of the config, except for keys in `kept`.
    pub(super) fn hold_out_rule(&self, one_in: u64, config: &Config, kept: &HashSet<u64>) -> HoldOutRule<R> {
        let (seed, kept) = (config.run.seed, kept.clone());
        let fold = match (self, config.data.fold) {
            (Self::Held(records), Some(fold)) if one_in > 0 => Some(records.fold_keys(fold, seed)),
            _ => None,
        };
        Arc::new(move |record: &R| {
            let key = record.held_out_key(seed);
            let held = fold.as_ref().map_or_else(|| is_held(one_in, key), |fold| fold.contains(&key));
            held && !kept.contains(&key)
        })
    }

    pub(super) fn count(&self) -> Result<usize> {
        let mut count = 0;
        self.each(&mut |_| count += 1)?;
        Ok(count)
    }

    /// Returns a loader in the order of the file; `salt` is a hash of all that determines the samples, except the records.
    pub(super) fn loader(
        &self,
        feeds: &[&str],
        salt: u64,
        sample: ToSample<R>,
        config: &Config,
    ) -> Result<Loader> {
        let sample = move |record: &R| sample(record);
        let loader = match self {
            Self::Held(records) => Loader::new(records.samples_by(salt, sample)?, feeds)?,
            Self::InFiles(files, _) => Loader::new(files.samples_by(salt, sample)?, feeds)?,
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

impl<R: Record> Deref for Texts<R> {
    type Target = dyn Passes<R>;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Held(records) => records,
            Self::InFiles(files, _) => files,
        }
    }
}

pub(super) fn add_characters(counts: &mut TokenCounts, word: &str) {
    let mut utf8 = [0; 4];
    word.chars().for_each(|c| counts.add(c.encode_utf8(&mut utf8)));
}
