//! Tokenizers, which cut texts into tokens.

use std::borrow::Cow;
use std::fs;
use std::path::Path;
#[cfg(feature = "tokenizers")]
use std::sync::Arc;

use unicode_segmentation::UnicodeSegmentation;

#[cfg(feature = "tokenizers")]
use super::hugging_face::HuggingFace;
use super::vocabulary::TokenCounts;
use super::{Limits, Vocabulary};
#[cfg(not(feature = "tokenizers"))]
use crate::error::ErrorKind;
use crate::error::{AtCaller, Error, Result};

/// A tokenizer, which cuts texts into tokens. A model stores the name of its tokenizer, so that later texts are
/// tokenized in the same way.
///
/// ```
/// use unpadded::data::Tokenizer;
/// let words = Tokenizer::words().lowercase();
/// assert_eq!(words.tokens("Don't panic: it's 3.14!").collect::<Vec<_>>(), ["don't", "panic", ":", "it's", "3.14", "!"]);
/// let characters = Tokenizer::characters();
/// assert_eq!(characters.tokens("noe\u{308}l").collect::<Vec<_>>(), ["n", "o", "e\u{308}", "l"]);
/// assert_eq!(Tokenizer::from_name(&words.name())?, words);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tokenizer {
    kind: TokenKind,
    lowercase: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum TokenKind {
    Whitespace,
    Words,
    Characters,
    Pieces,
    #[cfg(feature = "tokenizers")]
    HuggingFace(Arc<HuggingFace>),
}

impl TokenKind {
    /// The tokenizers that are determined by a name alone.
    const NAMED: [(&str, Self); 4] = [
        ("whitespace", Self::Whitespace),
        ("words", Self::Words),
        ("characters", Self::Characters),
        ("pieces", Self::Pieces),
    ];
}

/// The name of a tokenizer from a `tokenizer.json` is this prefix, followed by the contents of the file.
const HUGGING_FACE: &str = "tokenizer.json ";

/// U+FFED, the first character of a piece that follows another piece without a space. In the text itself, this
/// character is replaced by U+25A0.
const JOINED: char = '\u{ffed}';

/// The suffix of the name of a tokenizer that makes tokens lower case.
const LOWERCASE: &str = ", lowercase";

impl Tokenizer {
    /// Returns a tokenizer that cuts at white space, for text that is already tokenized.
    pub const fn whitespace() -> Self {
        Self { kind: TokenKind::Whitespace, lowercase: false }
    }

    /// Returns a tokenizer of words by the Unicode rules for word boundaries; each punctuation mark is a token.
    pub const fn words() -> Self {
        Self { kind: TokenKind::Words, lowercase: false }
    }

    /// Returns a tokenizer of characters (grapheme clusters); white space is a token, too.
    pub const fn characters() -> Self {
        Self { kind: TokenKind::Characters, lowercase: false }
    }

    /// Returns a reversible tokenizer of words and marks. Successive letters and digits are one piece. An apostrophe
    /// right after the last letter is a part of the piece. Every other mark is a piece of its own. A piece that
    /// follows another piece without a space begins with U+FFED.
    ///
    /// ```
    /// use unpadded::data::Tokenizer;
    /// let pieces = Tokenizer::pieces();
    /// let kind: Vec<_> = pieces.tokens("L'air, dis-tu ?").collect();
    /// assert_eq!(kind, ["L'", "\u{ffed}air", "\u{ffed},", "dis", "\u{ffed}-", "\u{ffed}tu", "?"]);
    /// assert_eq!(pieces.join(&kind), "L'air, dis-tu ?");
    /// ```
    pub const fn pieces() -> Self {
        Self { kind: TokenKind::Pieces, lowercase: false }
    }

    /// Loads a `tokenizer.json` of Hugging Face (byte-pair encoding, WordPiece, Unigram or words) with its normalizer,
    /// special tokens and decoder. Loading a `tokenizer.json` needs the cargo feature `tokenizers`.
    /// [`Self::vocabulary`] gives each token the id that it has in the file. Truncation and padding are switched off,
    /// since this library does not pad. Tokens such as `[CLS]`, which the template in the file adds around a text, are
    /// left out.
    ///
    /// ```no_run
    /// use unpadded::data::{Limits, Tokenizer};
    /// let kind = Tokenizer::hugging_face("tokenizer.json")?;
    /// let vocabulary = kind.vocabulary(["Not bad at all."], &Limits::default())?;
    /// let ids = vocabulary.ids(kind.tokens("Not bad at all."))?;
    /// let text = kind.join(ids.iter().filter_map(|&id| vocabulary.token(id)));
    /// # let _ = text;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file cannot be read or has another format, or if the feature `tokenizers` is off.
    #[track_caller]
    pub fn hugging_face(path: impl AsRef<Path>) -> Result<Self> {
        let name = path.as_ref().display().to_string();
        match fs::read_to_string(path) {
            Ok(json) => Self::from_json(&name, json.trim_start_matches('\u{feff}')),
            Err(e) => Err(Error::io(format!("file `{name}`"), "read", &e)
                .noted(format!("the file is the tokenizer `{name}`"))),
        }
    }

    /// Makes a tokenizer from the contents of a `tokenizer.json`, as [`Self::hugging_face`] does; messages show `name` as the
    /// name of the file.
    ///
    /// # Errors
    /// Fails if `json` has another format, or if the feature `tokenizers` is off.
    #[track_caller]
    pub fn from_json(name: &str, json: &str) -> Result<Self> {
        Self::of_json(name, json).at_caller()
    }

    #[cfg(feature = "tokenizers")]
    fn of_json(name: &str, json: &str) -> Result<Self> {
        let kind = TokenKind::HuggingFace(Arc::new(HuggingFace::new(name, json.to_owned())?));
        Ok(Self { kind, lowercase: false })
    }

    #[cfg(not(feature = "tokenizers"))]
    fn of_json(name: &str, _: &str) -> Result<Self> {
        let what = format!("Hugging Face tokenizer `{name}`");
        let expected = "a build with the feature `tokenizers` (`--features tokenizers`)";
        Err(Error::of(ErrorKind::Format, what, expected, "a build without this feature"))
    }

    /// Makes all tokens lower case. A tokenizer from a `tokenizer.json` is unchanged: the file's own normalizer
    /// decides.
    #[must_use]
    pub const fn lowercase(mut self) -> Self {
        self.lowercase = true;
        self
    }

    /// Returns the name, such as `words` or `words, lowercase`; the name of a tokenizer from a `tokenizer.json`
    /// contains the whole file.
    pub fn name(&self) -> String {
        #[cfg(feature = "tokenizers")]
        if let TokenKind::HuggingFace(hugging_face) = &self.kind {
            return format!("{HUGGING_FACE}{}", hugging_face.json());
        }
        let name = TokenKind::NAMED.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| name);
        format!("{name}{}", if self.lowercase { LOWERCASE } else { "" })
    }

    /// Returns the tokenizer for a name that [`Self::name`] returned.
    ///
    /// # Errors
    /// Fails if no tokenizer has this name, or if the tokenizer needs the feature `tokenizers`, which is off.
    #[track_caller]
    pub fn from_name(name: &str) -> Result<Self> {
        if let Some(json) = name.strip_prefix(HUGGING_FACE) {
            return Self::of_json("tokenizer.json", json).at_caller();
        }
        let (kind, lowercase) = name.strip_suffix(LOWERCASE).map_or((name, false), |kind| (kind, true));
        match TokenKind::NAMED.into_iter().find(|(name, _)| *name == kind) {
            Some((_, kind)) => Ok(Self { kind, lowercase }),
            None => {
                let known = TokenKind::NAMED.map(|(name, _)| name).join("`, `");
                let expected = format!("one of `{known}`, optionally followed by `{LOWERCASE}`");
                Err(Error::new("tokenizer", expected, format!("`{name}`")))
            }
        }
    }

    /// Cuts a text into tokens; no token is empty.
    pub fn tokens<'a>(&self, text: &'a str) -> Box<dyn Iterator<Item = Cow<'a, str>> + 'a> {
        let case: fn(&'a str) -> Cow<'a, str> =
            if self.lowercase { lowercase } else { |token| Cow::Borrowed(token) };
        match &self.kind {
            #[cfg(feature = "tokenizers")]
            TokenKind::HuggingFace(hugging_face) => {
                Box::new(hugging_face.pieces(text).into_iter().map(Cow::Owned))
            }
            TokenKind::Whitespace => Box::new(text.split_whitespace().map(case)),
            // The text is cut at white space first: by the Unicode rules alone, the narrow space before a French `?`
            // would be part of the word.
            TokenKind::Words => Box::new(text.split_whitespace().flat_map(word_bounds).map(case)),
            TokenKind::Characters => Box::new(text.graphemes(true).map(case)),
            TokenKind::Pieces => {
                Box::new(text.split_whitespace().flat_map(pieces).map(move |(joined, piece)| {
                    let piece = case(piece);
                    let piece =
                        if piece.contains(JOINED) { piece.replace(JOINED, "\u{25a0}").into() } else { piece };
                    if joined { format!("{JOINED}{piece}").into() } else { piece }
                }))
            }
        }
    }

    /// Builds a vocabulary from the tokens of these texts, within the limits, as [`Vocabulary::of`] does. With a
    /// `tokenizer.json`, the vocabulary has all tokens of the file with the ids in the file, whatever the limits are.
    /// If the limits have special tokens that the file lacks, these tokens are appended. [`Vocabulary::UNKNOWN`] is not
    /// appended, because the file has its own token for unknown text or can encode every text.
    ///
    /// # Errors
    /// Fails as [`Vocabulary::of`] does.
    #[track_caller]
    pub fn vocabulary<T: AsRef<str>>(
        &self,
        texts: impl IntoIterator<Item = T>,
        limits: &Limits,
    ) -> Result<Vocabulary> {
        let mut counted = TokenCounts::default();
        for text in texts {
            self.tokens(text.as_ref()).for_each(|token| counted.add(&token));
        }
        self.vocabulary_of(counted, limits).at_caller()
    }

    /// Builds a vocabulary from counted tokens of texts, as [`Self::vocabulary`] builds one from the texts.
    ///
    /// # Errors
    /// Fails as [`Vocabulary::of`] does.
    #[track_caller]
    pub fn vocabulary_of(&self, counted: TokenCounts, limits: &Limits) -> Result<Vocabulary> {
        #[cfg(feature = "tokenizers")]
        if let TokenKind::HuggingFace(hugging_face) = &self.kind {
            return hugging_face.vocabulary(&counted, limits).at_caller();
        }
        counted.within(limits).at_caller()
    }

    /// Joins tokens to a text. Characters are joined without spaces. Other tokens are joined with spaces, but there is
    /// no space before a [piece](Self::pieces) that begins with U+FFED. Tokens of a `tokenizer.json` are joined by the
    /// decoder in the file, without special tokens. Joining characters restores the tokenized text. Joining pieces, or
    /// tokens that were cut at white space, restores the text with single spaces between words.
    pub fn join<T: AsRef<str>>(&self, tokens: impl IntoIterator<Item = T>) -> String {
        #[cfg(feature = "tokenizers")]
        if let TokenKind::HuggingFace(hugging_face) = &self.kind {
            return hugging_face.join(tokens);
        }
        let mut text = String::new();
        for token in tokens {
            let token = token.as_ref();
            let (joined, token) = match token.strip_prefix(JOINED) {
                Some(rest) if self.kind == TokenKind::Pieces => (true, rest),
                _ => (self.kind == TokenKind::Characters, token),
            };
            if !joined && !text.is_empty() {
                text.push(' ');
            }
            text.push_str(token);
        }
        text
    }
}

/// Cuts a word into pieces; the flag of a piece is true unless the piece is the first one of the word.
fn pieces(word: &str) -> impl Iterator<Item = (bool, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = word.get(at..)?;
        let letter = |c: &&str| c.starts_with(char::is_alphanumeric);
        let letters: usize = rest.graphemes(true).take_while(letter).map(str::len).sum();
        // An apostrophe right after letters is part of the letters' piece; any other mark is a piece of its own.
        let mark = rest.get(letters..)?.graphemes(true).next();
        let mark = mark.filter(|mark| letters == 0 || matches!(*mark, "'" | "\u{2019}"));
        let piece = rest.get(..letters + mark.map_or(0, str::len)).filter(|piece| !piece.is_empty())?;
        let joined = at > 0;
        at += piece.len();
        Some((joined, piece))
    })
}

/// Cuts a text without white space at the word boundaries of Unicode.
fn word_bounds(text: &str) -> impl Iterator<Item = &str> {
    // Letters, digits and low lines are one word, and so is any single character: no table of properties is read.
    let is_whole = text.len() == 1 || text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let (whole, rest) = if is_whole { (Some(text), "") } else { (None, text) };
    whole.into_iter().chain(rest.split_word_bounds())
}

fn lowercase(token: &str) -> Cow<'_, str> {
    if token.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        Cow::Borrowed(token)
    } else {
        Cow::Owned(token.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Tokenizer; 3] = [Tokenizer::whitespace(), Tokenizer::words(), Tokenizer::characters()];

    #[test]
    fn names_lead_back() {
        for tokenizer in ALL.into_iter().chain([Tokenizer::pieces()]) {
            assert_eq!(Tokenizer::from_name(&tokenizer.name()).as_ref(), Ok(&tokenizer));
            let lowercase = tokenizer.lowercase();
            assert_eq!(Tokenizer::from_name(&lowercase.name()), Ok(lowercase));
        }
        let message = Tokenizer::from_name("bpe").unwrap_err().to_string();
        let expected = "tokenizer: expected one of `whitespace`, `words`, `characters`, `pieces`, optionally followed by `, lowercase`, got `bpe`";
        assert_eq!(message, expected);
    }

    #[test]
    fn pieces_are_put_together_again() {
        let tokens =
            |text| Tokenizer::pieces().tokens(text).collect::<Vec<_>>().join(" ").replace(JOINED, "_");
        assert_eq!(
            tokens("Don't  stop: 3.14 l\u{2019}e\u{301}te\u{301}!?"),
            "Don' _t stop _: 3 _. _14 l\u{2019} _e\u{301}te\u{301} _! _?"
        );
        assert_eq!(tokens("'tis '' a"), "' _tis ' _' a");
        assert_eq!(tokens("\u{ffed} a\u{ffed}"), "\u{25a0} a _\u{25a0}");
        assert_eq!(
            Tokenizer::pieces().lowercase().join(Tokenizer::pieces().lowercase().tokens("Ab-Cd E")),
            "ab-cd e"
        );
        assert_eq!(Tokenizer::characters().join(Tokenizer::characters().tokens(" a  b")), " a  b");
        assert_eq!(Tokenizer::whitespace().join(Tokenizer::whitespace().tokens(" a.  b")), "a. b");
    }

    #[test]
    fn other_scripts() {
        let tokens = |tokenizer: Tokenizer, text| tokenizer.tokens(text).collect::<Vec<_>>().join("|");
        assert_eq!(tokens(Tokenizer::words(), "«Ça va\u{202f}?» — L’été"), "«|Ça|va|?|»|—|L’été");
        assert_eq!(tokens(Tokenizer::words().lowercase(), "ÉTÉ STRASSE İ"), "été|strasse|i\u{307}");
        assert_eq!(tokens(Tokenizer::characters(), "🇫🇷👩‍🚀한"), "🇫🇷|👩‍🚀|한");
        assert_eq!(tokens(Tokenizer::whitespace(), " a\u{a0}b\tc\n"), "a|b|c");
    }

    proptest! {
        #[test]
        fn words_end_at_the_boundaries_of_unicode(text in "[a-zA-Z0-9_.,:' é]*") {
            let words: Vec<&str> = text.split(' ').flat_map(str::split_word_bounds).collect();
            prop_assert_eq!(Tokenizer::words().tokens(&text).collect::<Vec<_>>(), words);
        }

        #[test]
        fn nothing_but_white_space_is_lost(text in "\\PC*|[a-zA-Z ,.!']*") {
            for tokenizer in ALL {
                let joined: String = tokenizer.tokens(&text).collect();
                let kept = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
                prop_assert_eq!(kept(&joined), kept(&text));
                prop_assert!(tokenizer.tokens(&text).all(|token| !token.is_empty()));
            }
            let pieces = Tokenizer::pieces();
            let spaced = text.split_whitespace().collect::<Vec<_>>().join(" ").replace(JOINED, "\u{25a0}");
            prop_assert_eq!(pieces.join(pieces.tokens(&text)), spaced);
        }
    }
}
