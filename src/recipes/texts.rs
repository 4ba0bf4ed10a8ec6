//! Labelled texts in memory, or left in their files because they are larger.

use std::borrow::Cow;
use std::path::Path;

use super::config::Config;
use super::prepared::{batches, options};
use crate::data::{
    Labelled, LabelledFiles, LabelledTexts, Limits, Loader, ReadOptions, Tokenizer, Vocabulary,
};
use crate::error::Result;

pub(super) enum Texts {
    Held(LabelledTexts),
    /// So many are in memory while an epoch is shuffled.
    InFiles(LabelledFiles, usize),
}

impl Texts {
    /// The texts of a path, where the config wants them.
    pub(super) fn open(path: impl AsRef<Path>, config: &Config) -> Result<Self> {
        let options = options(config)?;
        Ok(match config.data.window {
            Some(window) => Self::InFiles(LabelledFiles::open_with([path], &options)?, window),
            None => Self::Held(LabelledTexts::open_with([path], &options)?),
        })
    }

    /// Others of the same data set: what was found out of these holds for them.
    pub(super) fn open_alike(&self, path: impl AsRef<Path>) -> Result<Self> {
        Ok(match self {
            Self::Held(texts) => Self::Held(LabelledTexts::open_with([path], texts.read_as())?),
            Self::InFiles(files, window) => {
                Self::InFiles(LabelledFiles::open_with([path], files.read_as())?, *window)
            }
        })
    }

    pub(super) fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Held(texts) => texts.name().into(),
            Self::InFiles(files, _) => files.name().into(),
        }
    }

    pub(super) fn read_as(&self) -> &ReadOptions {
        match self {
            Self::Held(texts) => texts.read_as(),
            Self::InFiles(files, _) => files.read_as(),
        }
    }

    pub(super) fn hold_out(self, one_in: u64, seed: u64) -> (Self, Self) {
        match self {
            Self::Held(texts) => {
                let (rest, held) = texts.hold_out(one_in, seed);
                (Self::Held(rest), Self::Held(held))
            }
            Self::InFiles(files, window) => {
                let (rest, held) = files.hold_out(one_in, seed);
                (Self::InFiles(rest, window), Self::InFiles(held, window))
            }
        }
    }

    pub(super) fn labels(&self) -> Result<Vocabulary> {
        match self {
            Self::Held(texts) => texts.labels(),
            Self::InFiles(files, _) => files.labels(),
        }
    }

    pub(super) fn vocabulary(&self, cut: &Tokenizer, limits: &Limits) -> Result<Vocabulary> {
        match self {
            Self::Held(texts) => texts.vocabulary(cut, limits),
            Self::InFiles(files, _) => files.vocabulary(cut, limits),
        }
    }

    /// Batches of them, in the order of the file.
    pub(super) fn loader(
        &self,
        feeds: [&str; 2],
        cut: &Tokenizer,
        known: (&Vocabulary, &Vocabulary),
        config: &Config,
    ) -> Result<Loader> {
        Ok(match self {
            Self::Held(texts) => batches(texts.loader(feeds, cut, known)?, config),
            Self::InFiles(files, window) => batches(files.loader(feeds, cut, known)?, config).buffer(*window),
        })
    }

    /// Does something with each of them.
    pub(super) fn each(&self, mut of: impl FnMut(&Labelled)) -> Result<()> {
        match self {
            Self::Held(texts) => texts.texts().iter().for_each(of),
            Self::InFiles(files, _) => files.texts().try_for_each(|text| text.map(|text| of(&text)))?,
        }
        Ok(())
    }
}
