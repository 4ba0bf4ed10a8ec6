//! A text that a language model reads and writes, token by token.

use std::ops::ControlFlow;

use unpadded::data::Tokenizer;
use unpadded::executor::MemoryUse;
use unpadded::predict::Session;
use unpadded::{AtCaller, Result};

/// Gets each piece of a text while it is written; `Break` ends the text.
pub(super) type EachPiece<'a> = &'a mut dyn FnMut(&str) -> ControlFlow<()>;

/// The text that a language model reads and writes, with the state of the model after it.
pub struct TextSession {
    pub(super) session: Session,
    pub(super) pieces: Pieces,
}

impl TextSession {
    pub(super) fn new(session: Session) -> Self {
        Self { session, pieces: Pieces::default() }
    }

    /// Returns the memory of the session; see [`Session::memory`].
    ///
    /// # Errors
    /// If the first step of the session cannot be prepared.
    #[track_caller]
    pub fn memory(&mut self) -> Result<MemoryUse> {
        self.session.memory().at_caller()
    }
}

/// The end of a text, to which tokens are added.
#[derive(Clone, Default)]
pub(super) struct Pieces {
    /// The last tokens of the text: the text of a token depends on the tokens before this token.
    last: Vec<String>,
    /// The number of tokens in `last` whose text was already passed to the callback.
    shown: usize,
    /// Whether the text ends with a space that no token has.
    spaced: bool,
}

impl Pieces {
    /// The number of tokens that are kept, and the number after which text is passed on: a character has up to four tokens.
    const LOOKED_AT: usize = 8;
    /// The bytes that are kept of a token, so that the memory of a session is bounded.
    const BYTES: usize = 64;

    /// Adds a token that was read, which is passed to no callback.
    pub(super) fn read(&mut self, token: &str) {
        self.last.push(token.to_owned());
        self.forget();
    }

    /// Ends a text whose tokens were read.
    pub(super) fn end_read(&mut self, tokenizer: &Tokenizer, text: &str) {
        let spaces = |text: &str| text.ends_with(char::is_whitespace);
        if !text.is_empty() {
            self.spaced = spaces(text) && !spaces(&tokenizer.join(&self.last));
        }
    }

    /// Adds a token and passes the new text to `each`; a text that ends within a character is kept back.
    pub(super) fn push(
        &mut self,
        tokenizer: &Tokenizer,
        token: &str,
        each: EachPiece<'_>,
    ) -> ControlFlow<()> {
        self.last.push(token.to_owned());
        let is_partial = tokenizer.join(&self.last).ends_with(char::REPLACEMENT_CHARACTER);
        if is_partial && self.last.len() - self.shown < Self::LOOKED_AT {
            return ControlFlow::Continue(());
        }
        self.end(tokenizer, each)
    }

    /// Passes the text that was kept back to `each`.
    pub(super) fn end(&mut self, tokenizer: &Tokenizer, each: EachPiece<'_>) -> ControlFlow<()> {
        let before = tokenizer.join(self.last.iter().take(self.shown));
        let whole = tokenizer.join(&self.last);
        // The text before ends with a replacement character if the last call ended within a character.
        let equal = whole.chars().zip(before.chars()).take_while(|(new, old)| new == old);
        let mut piece = &whole[equal.map(|(new, _)| new.len_utf8()).sum()..];
        if !piece.is_empty() && std::mem::take(&mut self.spaced) {
            piece = piece.strip_prefix(' ').unwrap_or(piece);
        }
        self.forget();
        each(piece)
    }

    fn forget(&mut self) {
        let old = self.last.len().saturating_sub(Self::LOOKED_AT);
        self.last.drain(..old);
        for token in &mut self.last {
            let end = token.len().saturating_sub(Self::BYTES);
            token.drain(..(end..token.len()).find(|&at| token.is_char_boundary(at)).unwrap_or(0));
        }
        self.shown = self.last.len();
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
            let (mut pieces, mut found, mut count) = (Pieces::default(), String::new(), 0);
            let mut each = |piece: &str| {
                found.push_str(piece);
                count += 1;
                ControlFlow::Continue(())
            };
            for token in &tokens {
                assert!(pieces.push(&tokenizer, token, &mut each).is_continue());
            }
            assert!(pieces.end(&tokenizer, &mut each).is_continue());
            assert_eq!((found, count), (tokenizer.join(&tokens), tokens.len() + 1));
            // After a text that was read, the pieces are the rest of the whole.
            for (read, space) in (1..tokens.len()).flat_map(|read| [(read, ""), (read, " ")]) {
                let (mut pieces, mut found) = (Pieces::default(), tokenizer.join(&tokens[..read]) + space);
                tokens[..read].iter().for_each(|token| pieces.read(token));
                pieces.end_read(&tokenizer, &found);
                for token in &tokens[read..] {
                    let _ = pieces.push(&tokenizer, token, &mut |piece| {
                        found.push_str(piece);
                        ControlFlow::Continue(())
                    });
                }
                let is_whole = found == tokenizer.join(&tokens);
                let keeps = tokenizer.tokens(" ").count() > 0;
                assert!(if space.is_empty() { is_whole } else { keeps || !found.contains("  ") }, "{found}");
                let words = |text: &str| text.split_whitespace().collect::<String>();
                assert_eq!(words(&found), words(&tokenizer.join(&tokens)));
            }
        }
    }
}
