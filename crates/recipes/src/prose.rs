//! The text of a language model: in memory, or in files that may be larger than memory.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::Path;

use unpadded::data::{Continuous, Data, Tokenizer, Vocabulary};
use unpadded::{Result, memory};
use unpadded_text::{PlainFiles, PlainSource, PlainText, ReadOptions};

use super::config::Config;
use super::recipe::EachPiece;
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

pub(super) struct Pieces<'a> {
    tokenizer: &'a Tokenizer,
    /// The last tokens of the text: the text of a token depends on the tokens before this token.
    last: Vec<&'a str>,
    /// The number of tokens in `last` whose text was already passed to the callback.
    shown: usize,
}

impl<'a> Pieces<'a> {
    /// The number of tokens that are kept, and the number after which text is passed on: a character has up to four tokens.
    const LOOKED_AT: usize = 8;

    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, last: Vec::new(), shown: 0 }
    }

    /// Adds a token and passes the new text to `each`; a text that ends within a character is kept back.
    pub(super) fn push(&mut self, token: &'a str, each: EachPiece<'_>) -> ControlFlow<()> {
        self.last.push(token);
        let whole = self.tokenizer.join(&self.last);
        if whole.ends_with(char::REPLACEMENT_CHARACTER) && self.last.len() - self.shown < Self::LOOKED_AT {
            return ControlFlow::Continue(());
        }
        let before = self.tokenizer.join(self.last.iter().take(self.shown));
        each(whole.strip_prefix(&*before).unwrap_or_default())?;
        let old = self.last.len().saturating_sub(Self::LOOKED_AT);
        self.last.drain(..old);
        self.shown = self.last.len();
        ControlFlow::Continue(())
    }

    /// Ends the text, and passes the text that was kept back to `each`.
    pub(super) fn end(self, each: EachPiece<'_>) -> ControlFlow<()> {
        let (before, whole) =
            (self.tokenizer.join(self.last.iter().take(self.shown)), self.tokenizer.join(&self.last));
        each(whole.strip_prefix(&*before).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_text() {
        for tokenizer in
            [Tokenizer::words(), Tokenizer::characters(), Tokenizer::pieces(), Tokenizer::whitespace()]
        {
            let text = "Nothing is as it was: \"no\", he said, and (again) went\non to the end of it.";
            let tokens: Vec<String> = tokenizer.tokens(text).map(|token| token.into_owned()).collect();
            let (mut pieces, mut found, mut count) = (Pieces::new(&tokenizer), String::new(), 0);
            let mut each = |piece: &str| {
                found.push_str(piece);
                count += 1;
                ControlFlow::Continue(())
            };
            for token in &tokens {
                assert!(pieces.push(token, &mut each).is_continue());
            }
            assert!(pieces.end(&mut each).is_continue());
            assert_eq!((found, count), (tokenizer.join(&tokens), tokens.len() + 1));
        }
    }
}
