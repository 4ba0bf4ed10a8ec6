//! Tokenizers: from text to tokens.

use std::borrow::Cow;
use std::path::Path;
#[cfg(feature = "tokenizers")]
use std::sync::Arc;

use unicode_segmentation::UnicodeSegmentation;

#[cfg(feature = "tokenizers")]
use super::hugging_face::HuggingFace;
use super::vocabulary::TokenCounts;
use super::{Limits, TextFile, Vocabulary};
#[cfg(not(feature = "tokenizers"))]
use crate::error::ErrorKind;
use crate::error::{AtCaller, Error, Result};

/// A tokenizer: cuts text into tokens. A model stores the tokenizer's name, so that later texts are tokenized in the
/// same way.
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
    cut: Cut,
    lowercase: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Cut {
    Whitespace,
    Words,
    Characters,
    Pieces,
    #[cfg(feature = "tokenizers")]
    HuggingFace(Arc<HuggingFace>),
}

impl Cut {
    /// The tokenizers that are defined by a name alone.
    const NAMED: [(&str, Self); 4] = [
        ("whitespace", Self::Whitespace),
        ("words", Self::Words),
        ("characters", Self::Characters),
        ("pieces", Self::Pieces),
    ];
}

/// The start of the name of a tokenizer from a `tokenizer.json`; the text of the file follows.
const HUGGING_FACE: &str = "tokenizer.json ";

/// The mark of a piece without space before it, U+FFED; if a text contains this character, the piece has U+25A0 instead.
const JOINED: char = '\u{ffed}';

/// The suffix of a tokenizer's name if the tokenizer lowercases.
const LOWERCASE: &str = ", lowercase";

impl Tokenizer {
    /// A tokenizer that cuts at white space: for text that was tokenised before.
    pub const fn whitespace() -> Self {
        Self { cut: Cut::Whitespace, lowercase: false }
    }

    /// A tokenizer of words, by the rules of Unicode; punctuation marks are tokens of their own.
    pub const fn words() -> Self {
        Self { cut: Cut::Words, lowercase: false }
    }

    /// A tokenizer of characters (grapheme clusters), including white space.
    pub const fn characters() -> Self {
        Self { cut: Cut::Characters, lowercase: false }
    }

    /// A reversible tokenizer of words and marks: consecutive letters and digits are a piece, with an apostrophe right behind
    /// them; every other mark is a piece. A piece without a space before it begins with U+FFED.
    ///
    /// ```
    /// use unpadded::data::Tokenizer;
    /// let pieces = Tokenizer::pieces();
    /// let cut: Vec<_> = pieces.tokens("L'air, dis-tu ?").collect();
    /// assert_eq!(cut, ["L'", "\u{ffed}air", "\u{ffed},", "dis", "\u{ffed}-", "\u{ffed}tu", "?"]);
    /// assert_eq!(pieces.join(&cut), "L'air, dis-tu ?");
    /// ```
    pub const fn pieces() -> Self {
        Self { cut: Cut::Pieces, lowercase: false }
    }

    /// Loads a `tokenizer.json` of Hugging Face (byte-pair encoding, WordPiece, Unigram, words), with its normalizer, its special
    /// tokens and its decoder; needs the feature `tokenizers`. [`Self::vocabulary`] numbers tokens as the file does. Truncation
    /// and padding of the file are switched off, since nothing is padded here; tokens such as `[CLS]`, which the file's template
    /// adds around a text, are left out.
    ///
    /// ```no_run
    /// use unpadded::data::{Limits, Tokenizer};
    /// let cut = Tokenizer::hugging_face("tokenizer.json")?;
    /// let vocabulary = cut.vocabulary(["Not bad at all."], &Limits::default())?;
    /// let ids = vocabulary.ids(cut.tokens("Not bad at all."))?;
    /// let text = cut.join(ids.iter().filter_map(|&id| vocabulary.token(id)));
    /// # let _ = text;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read or has another format, or without the feature.
    #[track_caller]
    pub fn hugging_face(path: impl AsRef<Path>) -> Result<Self> {
        let name = path.as_ref().display().to_string();
        let json = TextFile::open(path).and_then(|file| file.text());
        let json = json.map_err(|e| e.noted(format!("it is the tokenizer `{name}`"))).at_caller()?;
        Self::of_json(&name, &json).at_caller()
    }

    #[cfg(feature = "tokenizers")]
    fn of_json(name: &str, json: &str) -> Result<Self> {
        let cut = Cut::HuggingFace(Arc::new(HuggingFace::new(name, json.to_owned())?));
        Ok(Self { cut, lowercase: false })
    }

    #[cfg(not(feature = "tokenizers"))]
    fn of_json(name: &str, _: &str) -> Result<Self> {
        let what = format!("tokenizer `{name}` of Hugging Face's");
        let expected = "a build that reads it, by `--features tokenizers`";
        Err(Error::of(ErrorKind::Format, what, expected, "one without the feature `tokenizers`"))
    }

    /// Makes each token lower case; a `tokenizer.json` keeps its own normalizer instead.
    #[must_use]
    pub const fn lowercase(mut self) -> Self {
        self.lowercase = true;
        self
    }

    /// The name, such as `words` or `words, lowercase`; for a `tokenizer.json` it contains the whole text of the file.
    pub fn name(&self) -> String {
        #[cfg(feature = "tokenizers")]
        if let Cut::HuggingFace(of) = &self.cut {
            return format!("{HUGGING_FACE}{}", of.json());
        }
        let name = Cut::NAMED.iter().find(|(_, cut)| *cut == self.cut).map_or("", |(name, _)| name);
        format!("{name}{}", if self.lowercase { LOWERCASE } else { "" })
    }

    /// Parses the name of a tokenizer.
    ///
    /// # Errors
    /// If there is no tokenizer of this name, or if the tokenizer needs the feature `tokenizers` and it is off.
    #[track_caller]
    pub fn from_name(name: &str) -> Result<Self> {
        if let Some(json) = name.strip_prefix(HUGGING_FACE) {
            return Self::of_json("tokenizer.json", json).at_caller();
        }
        let (cut, lowercase) = name.strip_suffix(LOWERCASE).map_or((name, false), |cut| (cut, true));
        match Cut::NAMED.into_iter().find(|(name, _)| *name == cut) {
            Some((_, cut)) => Ok(Self { cut, lowercase }),
            None => {
                let known = Cut::NAMED.map(|(name, _)| name).join("`, `");
                let expected = format!("one of `{known}`, with `{LOWERCASE}` behind it or not");
                Err(Error::new("tokenizer", expected, format!("`{name}`")))
            }
        }
    }

    /// Tokenizes a text; no token is empty.
    pub fn tokens<'a>(&self, text: &'a str) -> Box<dyn Iterator<Item = Cow<'a, str>> + 'a> {
        let case: fn(&'a str) -> Cow<'a, str> =
            if self.lowercase { lowercase } else { |token| Cow::Borrowed(token) };
        match &self.cut {
            #[cfg(feature = "tokenizers")]
            Cut::HuggingFace(of) => Box::new(of.cut(text).into_iter().map(Cow::Owned)),
            Cut::Whitespace => Box::new(text.split_whitespace().map(case)),
            // White space is cut first, because Unicode's rules take the narrow space before a French `?` as part of
            // the word.
            Cut::Words => {
                Box::new(text.split_whitespace().flat_map(UnicodeSegmentation::split_word_bounds).map(case))
            }
            Cut::Characters => Box::new(text.graphemes(true).map(case)),
            Cut::Pieces => Box::new(text.split_whitespace().flat_map(pieces).map(move |(joined, piece)| {
                let piece = case(piece);
                let piece =
                    if piece.contains(JOINED) { piece.replace(JOINED, "\u{25a0}").into() } else { piece };
                if joined { format!("{JOINED}{piece}").into() } else { piece }
            })),
        }
    }

    /// Builds the vocabulary of these texts: [`Vocabulary::of`] their tokens, within the limits. With a `tokenizer.json`, the
    /// vocabulary has all tokens of the file, with the file's ids, whatever the limits. Special tokens of the limits that the
    /// file lacks follow, except [`Vocabulary::UNKNOWN`]: the file has a token for unknown text, or no text is unknown.
    ///
    /// # Errors
    /// As [`Vocabulary::of`].
    #[track_caller]
    pub fn vocabulary<T: AsRef<str>>(
        &self,
        texts: impl IntoIterator<Item = T>,
        limits: &Limits,
    ) -> Result<Vocabulary> {
        #[cfg(feature = "tokenizers")]
        if let Cut::HuggingFace(of) = &self.cut {
            return of.vocabulary(texts, limits).at_caller();
        }
        let mut counted = TokenCounts::default();
        for text in texts {
            self.tokens(text.as_ref()).for_each(|token| counted.add(&token));
        }
        counted.within(limits).at_caller()
    }

    /// Joins tokens to a text: characters without spaces; other tokens with spaces between, except before marked
    /// [pieces](Self::pieces); tokens of a `tokenizer.json` by the decoder of the file, without special tokens.
    /// Characters give back the text that was tokenized; so do pieces and uncut words if single spaces separate the
    /// words of the text.
    pub fn join<T: AsRef<str>>(&self, tokens: impl IntoIterator<Item = T>) -> String {
        #[cfg(feature = "tokenizers")]
        if let Cut::HuggingFace(of) = &self.cut {
            return of.join(tokens);
        }
        let mut text = String::new();
        for token in tokens {
            let token = token.as_ref();
            let (joined, token) = match token.strip_prefix(JOINED) {
                Some(rest) if self.cut == Cut::Pieces => (true, rest),
                _ => (self.cut == Cut::Characters, token),
            };
            if !joined && !text.is_empty() {
                text.push(' ');
            }
            text.push_str(token);
        }
        text
    }
}

/// Cuts a word into pieces; the flag of a piece is true if another piece is right before it.
fn pieces(word: &str) -> impl Iterator<Item = (bool, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = word.get(at..)?;
        let letter = |c: &&str| c.starts_with(char::is_alphanumeric);
        let letters: usize = rest.graphemes(true).take_while(letter).map(str::len).sum();
        // An apostrophe behind letters belongs to their piece; any other mark is a separate piece.
        let mark = rest.get(letters..)?.graphemes(true).next();
        let mark = mark.filter(|mark| letters == 0 || matches!(*mark, "'" | "\u{2019}"));
        let piece = rest.get(..letters + mark.map_or(0, str::len)).filter(|piece| !piece.is_empty())?;
        let joined = at > 0;
        at += piece.len();
        Some((joined, piece))
    })
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
        let expected = "tokenizer: expected one of `whitespace`, `words`, `characters`, `pieces`, with `, lowercase` \
                        behind it or not, got `bpe`";
        assert_eq!(message, expected);
    }

    #[test]
    fn pieces_are_put_together_again() {
        let cut = |text| Tokenizer::pieces().tokens(text).collect::<Vec<_>>().join(" ").replace(JOINED, "_");
        assert_eq!(
            cut("Don't  stop: 3.14 l\u{2019}e\u{301}te\u{301}!?"),
            "Don' _t stop _: 3 _. _14 l\u{2019} _e\u{301}te\u{301} _! _?"
        );
        assert_eq!(cut("'tis '' a"), "' _tis ' _' a");
        assert_eq!(cut("\u{ffed} a\u{ffed}"), "\u{25a0} a _\u{25a0}");
        assert_eq!(
            Tokenizer::pieces().lowercase().join(Tokenizer::pieces().lowercase().tokens("Ab-Cd E")),
            "ab-cd e"
        );
        assert_eq!(Tokenizer::characters().join(Tokenizer::characters().tokens(" a  b")), " a  b");
        assert_eq!(Tokenizer::whitespace().join(Tokenizer::whitespace().tokens(" a.  b")), "a. b");
    }

    #[test]
    fn other_scripts() {
        let cut = |tokenizer: Tokenizer, text| tokenizer.tokens(text).collect::<Vec<_>>().join("|");
        assert_eq!(cut(Tokenizer::words(), "«Ça va\u{202f}?» — L’été"), "«|Ça|va|?|»|—|L’été");
        assert_eq!(cut(Tokenizer::words().lowercase(), "ÉTÉ STRASSE İ"), "été|strasse|i\u{307}");
        assert_eq!(cut(Tokenizer::characters(), "🇫🇷👩‍🚀한"), "🇫🇷|👩‍🚀|한");
        assert_eq!(cut(Tokenizer::whitespace(), " a\u{a0}b\tc\n"), "a|b|c");
    }

    proptest! {
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
