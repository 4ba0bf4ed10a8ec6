//! The text of a language model: in memory, or in files that may be larger than memory.

use std::borrow::Cow;
use std::path::Path;

use unpadded::data::{Continuous, Data, Tokenizer, Vocabulary};
use unpadded::{Result, memory};
use unpadded_text::{PlainFiles, PlainSource, PlainText, ReadOptions};

use super::config::Config;
use super::training::{Column, DataMemory, options, read_as};

pub(super) const FEEDS: [&str; 2] = ["x", "y"];
/// The functions that pass `data.text` and `data.label` to the read options; a language model reads no label column.
pub(super) const COLUMNS: [Column; 2] = [|o, column| o.text(column), |o, _| o];
/// The number of tokens per window, within which gradients are propagated.
pub(super) const STEPS: usize = 64;

pub(super) enum Prose {
    Held(PlainText),
    InFiles(PlainFiles, TokenWindow),
}

/// The limit of the token ids in memory; the ids of a longer text are in a temporary file.
#[derive(Debug, Clone, Copy)]
pub(super) enum TokenWindow {
    Tokens(usize),
    Bytes(usize),
}

impl TokenWindow {
    /// Returns the maximum number of tokens, for ids from 0 to `below` - 1.
    fn tokens(self, below: usize) -> usize {
        match self {
            Self::Tokens(tokens) => tokens,
            Self::Bytes(bytes) if below <= 1 << 16 => bytes / size_of::<u16>(),
            Self::Bytes(bytes) => bytes / size_of::<u32>(),
        }
    }
}

impl Prose {
    /// Reads a text into memory, unless it exceeds its share of the memory limit, or the config sets `data.window`.
    pub(super) fn open(path: impl AsRef<Path>, config: &Config, memory: DataMemory) -> Result<Self> {
        let (path, options) = (path.as_ref(), options(config, COLUMNS)?);
        if let Some(window) = config.data.window {
            return Ok(Self::InFiles(PlainFiles::open_with([path], &options)?, TokenWindow::Tokens(window)));
        }
        Ok(match PlainText::read_within(&[path.to_owned()], &options, memory.texts())? {
            PlainSource::Memory(text) => Self::Held(text),
            PlainSource::Files(files) => Self::InFiles(files, TokenWindow::Bytes(memory.ids())),
        })
    }

    /// Returns a message about what is in memory; `None` if it is the whole text, or if the config sets the window.
    pub(super) fn memory_message(
        &self,
        data: &Continuous,
        config: &Config,
        memory: DataMemory,
    ) -> Option<String> {
        let Self::InFiles(files, _) = self else { return None };
        let larger = format!(
            "{}: a text larger than {}, an eighth of the memory limit, stays in its files; ",
            files.name(),
            memory::shown(memory.texts() as u128)
        );
        let ids = match data.may_wait() {
            false => "all its token ids are in memory",
            true => "its token ids are in a temporary file",
        };
        config.data.window.is_none().then(|| larger + ids)
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Held(text) => text.name(),
            Self::InFiles(files, _) => files.name(),
        }
    }

    pub(super) fn options(&self) -> &ReadOptions {
        match self {
            Self::Held(text) => text.read_as(),
            Self::InFiles(files, _) => files.read_as(),
        }
    }

    pub(super) fn read_as(&self) -> Option<String> {
        read_as(self.options())
    }

    pub(super) fn hold_out_end(self, one_in: u64) -> Result<(Self, Self)> {
        Ok(match self {
            Self::Held(text) => {
                let (rest, last) = text.hold_out_end(one_in);
                (Self::Held(rest), Self::Held(last))
            }
            Self::InFiles(files, window) => {
                let (rest, last) = files.hold_out_end(one_in)?;
                (Self::InFiles(rest, window), Self::InFiles(last, window))
            }
        })
    }

    /// Returns the text in pieces. A piece that contains a line break ends at a line break.
    pub(super) fn pieces(&self) -> Box<dyn Iterator<Item = Result<Cow<'_, str>>> + '_> {
        match self {
            Self::Held(text) => Box::new(text.pieces().map(|piece| Ok(piece.into()))),
            Self::InFiles(files, _) => Box::new(files.pieces().map(|piece| Ok(piece?.into()))),
        }
    }

    pub(super) fn each(&self, visit: &mut dyn FnMut(&str)) -> Result<()> {
        self.pieces().try_for_each(|piece| piece.map(|piece| visit(&piece)))
    }

    pub(super) fn count(&self, tokenizer: &Tokenizer) -> Result<usize> {
        let mut count = 0;
        self.each(&mut |piece| count += tokenizer.tokens(piece).count())?;
        Ok(count)
    }

    pub(super) fn ids<'a>(
        &'a self,
        tokenizer: &'a Tokenizer,
        tokens: &'a Vocabulary,
    ) -> impl Iterator<Item = Result<i64>> + 'a {
        self.pieces().flat_map(|piece| match piece {
            Ok(piece) => tokenizer.tokens(&piece).map(|token| tokens.lookup(&token)).collect::<Vec<_>>(),
            Err(e) => vec![Err(e)],
        })
    }

    /// Returns the ids of `count` tokens as streams: one per 16 windows, and from one to `most`.
    pub(super) fn stream(
        &self,
        most: usize,
        steps: usize,
        tokenizer: &Tokenizer,
        tokens: &Vocabulary,
        count: usize,
    ) -> Result<Continuous> {
        let ids = self.ids(tokenizer, tokens);
        let streams = (count / (16 * STEPS)).clamp(1, most);
        match self {
            Self::Held(_) => Continuous::try_new(ids, streams, steps, FEEDS),
            Self::InFiles(_, window) => {
                let below = tokens.len();
                Continuous::windowed(ids, (window.tokens(below), below), streams, steps, FEEDS)
            }
        }
    }
}
