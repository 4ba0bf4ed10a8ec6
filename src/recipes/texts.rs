//! The records of a data set in memory, or left in their files because they are larger.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use super::config::Config;
use super::training::batches;
use crate::data::{
    DataSet, Field, Files, LabelledText, Limits, Loader, Passes, ReadOptions, Record, Survey, Tokenizer,
    Vocabulary,
};
use crate::error::Result;

// There is one at a time.
#[allow(clippy::large_enum_variant)]
pub(super) enum Texts<R> {
    Held(DataSet<R>),
    /// With the number of records that are in memory while an epoch is shuffled.
    InFiles(Files<R>, usize),
}

/// The fields of a record.
pub(super) type ToSample<R> = Arc<dyn Fn(&R) -> Result<Vec<Field>> + Send + Sync>;

/// What is found of texts before a model is built.
pub(super) struct TextSurvey {
    pub(super) rest: Texts<LabelledText>,
    pub(super) held: Texts<LabelledText>,
    pub(super) words: Result<Vocabulary>,
}

impl<R: Record> Texts<R> {
    /// The records of a path, where the config wants them.
    pub(super) fn open(path: impl AsRef<Path>, config: &Config, options: &ReadOptions) -> Result<Self> {
        Ok(match config.data.window {
            Some(window) => Self::InFiles(Files::open_with([path], options)?, window),
            None => Self::Held(DataSet::open_with([path], options)?),
        })
    }

    /// Opens another part of the same data set, which is read as this one.
    pub(super) fn open_alike(&self, path: impl AsRef<Path>) -> Result<Self> {
        self.open_as(path, self.read_as())
    }

    /// Others, read as the options say.
    pub(super) fn open_as(&self, path: impl AsRef<Path>, options: &ReadOptions) -> Result<Self> {
        Ok(match self {
            Self::Held(_) => Self::Held(DataSet::open_with([path], options)?),
            Self::InFiles(_, window) => Self::InFiles(Files::open_with([path], options)?, *window),
        })
    }

    pub(super) fn name(&self) -> Cow<'_, str> {
        self.called()
    }

    pub(super) fn read_as(&self) -> &ReadOptions {
        self.options()
    }

    /// Holds out about one in `one_in` records, or the fold that the config names; the rest comes first.
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

    /// How many there are; files are read for it.
    pub(super) fn count(&self) -> Result<usize> {
        let mut count = 0;
        self.each(&mut |_| count += 1)?;
        Ok(count)
    }

    /// A vocabulary of the texts that `text` finds in the records.
    pub(super) fn vocabulary(
        &self,
        cut: &Tokenizer,
        limits: &Limits,
        text: fn(&R) -> &str,
    ) -> Result<Vocabulary> {
        let noted = |e: crate::error::Error| e.noted(format!("in `{}`", self.name()));
        match self {
            Self::Held(records) => cut.vocabulary(records.records().iter().map(text), limits).map_err(noted),
            Self::InFiles(files, _) => {
                let mut wrong = None;
                let records = files.records().map_while(|record| record.map_err(|e| wrong = Some(e)).ok());
                let found = cut.vocabulary(records.map(|record| text(&record).to_owned()), limits);
                wrong.map_or(found.map_err(noted), Err)
            }
        }
    }

    /// Batches of the samples that `sample` makes of the records, in the order of the file. `salt` changes with what samples follow from
    /// beside the records.
    pub(super) fn loader(
        &self,
        feeds: &[&str],
        salt: u64,
        sample: ToSample<R>,
        config: &Config,
    ) -> Result<Loader> {
        let loader = match self {
            Self::Held(records) => Loader::new(records.samples_by(&|_, record| sample(record))?, feeds)?,
            Self::InFiles(files, _) => {
                Loader::new(files.samples_by(salt, move |record| sample(record))?, feeds)?
            }
        };
        Ok(self.batches(loader, config))
    }

    /// Batches by a loader: of files, a window of records is shuffled.
    pub(super) fn batches(&self, loader: Loader, config: &Config) -> Loader {
        match self {
            Self::Held(_) => batches(loader, config),
            Self::InFiles(_, window) => batches(loader, config).buffer(*window),
        }
    }
}

/// The rest of some records, and those that are held out: a fold if the config names one.
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
    /// Divides the texts and finds their vocabularies; `visit` sees each text, and whether it is held out. Files are read once.
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
                let words = rest.vocabulary(cut, limits);
                Ok(TextSurvey { rest: Self::Held(rest), held: Self::Held(held), words })
            }
            Self::InFiles(files, window) => {
                let by = (one_in, config.run.seed);
                let Survey { rest, held, words, .. } = files.survey(by, cut, limits, visit)?;
                let (rest, held) = (Self::InFiles(rest, window), Self::InFiles(held, window));
                Ok(TextSurvey { rest, held, words })
            }
        }
    }
}
