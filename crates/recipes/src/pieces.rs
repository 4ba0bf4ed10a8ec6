//! Writes the text of a language model piece by piece while tokens are drawn.

use unpadded::data::Tokenizer;

pub(super) struct Pieces<'a> {
    cut: &'a Tokenizer,
    /// The last tokens of the text: the text of a token depends on the tokens before this token.
    last: Vec<&'a str>,
    /// The number of tokens in `last` whose text was already passed to the callback.
    shown: usize,
}

impl<'a> Pieces<'a> {
    /// The number of tokens that are kept, and the number after which text is passed on: a character has up to four tokens.
    const LOOKED_AT: usize = 8;

    pub(super) fn new(cut: &'a Tokenizer) -> Self {
        Self { cut, last: Vec::new(), shown: 0 }
    }

    /// Adds a token and passes the new text to `each`; a text that ends within a character is kept back.
    pub(super) fn push(&mut self, token: &'a str, each: &mut dyn FnMut(&str)) {
        self.last.push(token);
        let whole = self.cut.join(&self.last);
        if whole.ends_with(char::REPLACEMENT_CHARACTER) && self.last.len() - self.shown < Self::LOOKED_AT {
            return;
        }
        let before = self.cut.join(self.last.iter().take(self.shown));
        each(whole.strip_prefix(&*before).unwrap_or_default());
        let old = self.last.len().saturating_sub(Self::LOOKED_AT);
        self.last.drain(..old);
        self.shown = self.last.len();
    }

    /// Ends the text, and passes the text that was kept back to `each`.
    pub(super) fn end(self, each: &mut dyn FnMut(&str)) {
        let (before, whole) = (self.cut.join(self.last.iter().take(self.shown)), self.cut.join(&self.last));
        each(whole.strip_prefix(&*before).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_text() {
        for cut in [Tokenizer::words(), Tokenizer::characters(), Tokenizer::pieces(), Tokenizer::whitespace()]
        {
            let text = "Nothing is as it was: \"no\", he said, and (again) went\non to the end of it.";
            let tokens: Vec<String> = cut.tokens(text).map(|token| token.into_owned()).collect();
            let (mut pieces, mut found, mut count) = (Pieces::new(&cut), String::new(), 0);
            let mut each = |piece: &str| {
                found.push_str(piece);
                count += 1;
            };
            for token in &tokens {
                pieces.push(token, &mut each);
            }
            pieces.end(&mut each);
            assert_eq!((found, count), (cut.join(&tokens), tokens.len() + 1));
        }
    }
}
