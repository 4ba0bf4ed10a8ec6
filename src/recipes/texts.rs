//! Labelled texts in memory, or left in their files because they are larger.

use std::borrow::Cow;
use std::path::Path;

use super::config::Config;
use super::prepared::batches;
use crate::data::{
    Labelled, LabelledFiles, LabelledTexts, Limits, Loader, ReadOptions, Survey, Tokenizer, Vocabulary,
};
use crate::error::Result;

// There is one at a time.
#[allow(clippy::large_enum_variant)]
pub(super) enum Texts {
    Held(LabelledTexts),
    /// So many are in memory while an epoch is shuffled.
    InFiles(LabelledFiles, usize),
}

/// What is found of texts before a model is built.
pub(super) struct Surveyed {
    pub(super) rest: Texts,
    pub(super) held: Texts,
    pub(super) labels: Result<Vocabulary>,
    pub(super) words: Result<Vocabulary>,
}

impl Texts {
    /// The texts of a path, where the config wants them.
    pub(super) fn open(path: impl AsRef<Path>, config: &Config, options: &ReadOptions) -> Result<Self> {
        Ok(match config.data.window {
            Some(window) => Self::InFiles(LabelledFiles::open_with([path], options)?, window),
            None => Self::Held(LabelledTexts::open_with([path], options)?),
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

    /// Divides the texts and finds their vocabularies; `visit` sees each text, and whether it is held out. Files are read once.
    pub(super) fn survey(
        self,
        (one_in, seed): (u64, u64),
        cut: &Tokenizer,
        limits: &Limits,
        visit: &mut dyn FnMut(&Labelled, bool),
    ) -> Result<Surveyed> {
        match self {
            Self::Held(texts) => {
                // Before any is held out: a label may be that of one text.
                let labels = texts.labels();
                let (rest, held) = texts.hold_out(one_in, seed);
                rest.records().iter().for_each(|text| visit(text, false));
                held.records().iter().for_each(|text| visit(text, true));
                let words = rest.vocabulary(cut, limits);
                Ok(Surveyed { rest: Self::Held(rest), held: Self::Held(held), labels, words })
            }
            Self::InFiles(files, window) => {
                let Survey { rest, held, labels, words } =
                    files.survey((one_in, seed), cut, limits, visit)?;
                let (rest, held) = (Self::InFiles(rest, window), Self::InFiles(held, window));
                Ok(Surveyed { rest, held, labels, words })
            }
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
            Self::Held(texts) => texts.records().iter().for_each(of),
            Self::InFiles(files, _) => files.records().try_for_each(|text| text.map(|text| of(&text)))?,
        }
        Ok(())
    }
}
