//! From text to tokens.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation;

use crate::error::{Error, Result};

/// A way to cut text into tokens; it has a name, so that a model can keep it and cut in the same way later.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tokenizer {
    cut: Cut,
    lowercase: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Cut {
    Whitespace,
    Words,
    Characters,
}

impl Cut {
    const ALL: [Self; 3] = [Self::Whitespace, Self::Words, Self::Characters];

    fn name(self) -> &'static str {
        match self {
            Self::Whitespace => "whitespace",
            Self::Words => "words",
            Self::Characters => "characters",
        }
    }
}

/// What the name of a tokenizer that lowercases ends with.
const LOWERCASE: &str = ", lowercase";

impl Tokenizer {
    /// What stands between white space: for text that was tokenised before.
    pub const fn whitespace() -> Self {
        Self { cut: Cut::Whitespace, lowercase: false }
    }

    /// Words by the rules of Unicode; marks of punctuation are tokens of their own.
    pub const fn words() -> Self {
        Self { cut: Cut::Words, lowercase: false }
    }

    /// What a reader takes for one character (a grapheme cluster), white space too.
    pub const fn characters() -> Self {
        Self { cut: Cut::Characters, lowercase: false }
    }

    /// Makes each token lower case.
    #[must_use]
    pub const fn lowercase(self) -> Self {
        Self { lowercase: true, ..self }
    }

    /// Its name, such as `words` or `words, lowercase`.
    pub fn name(&self) -> String {
        format!("{}{}", self.cut.name(), if self.lowercase { LOWERCASE } else { "" })
    }

    /// The tokenizer of a name.
    ///
    /// # Errors
    /// If there is none of this name.
    #[track_caller]
    pub fn from_name(name: &str) -> Result<Self> {
        let (cut, lowercase) = name.strip_suffix(LOWERCASE).map_or((name, false), |cut| (cut, true));
        match Cut::ALL.into_iter().find(|c| c.name() == cut) {
            Some(cut) => Ok(Self { cut, lowercase }),
            None => {
                let known = Cut::ALL.map(Cut::name).join("`, `");
                let expected = format!("one of `{known}`, with `{LOWERCASE}` behind it or not");
                Err(Error::new("tokenizer", expected, format!("`{name}`")))
            }
        }
    }

    /// The tokens of a text, none of them empty.
    pub fn tokens<'a>(&self, text: &'a str) -> Box<dyn Iterator<Item = Cow<'a, str>> + 'a> {
        let case: fn(&'a str) -> Cow<'a, str> =
            if self.lowercase { lowercase } else { |token| Cow::Borrowed(token) };
        match self.cut {
            Cut::Whitespace => Box::new(text.split_whitespace().map(case)),
            // White space first: to Unicode the narrow space before a French `?` is part of the word.
            Cut::Words => {
                Box::new(text.split_whitespace().flat_map(UnicodeSegmentation::split_word_bounds).map(case))
            }
            Cut::Characters => Box::new(text.graphemes(true).map(case)),
        }
    }
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
        for tokenizer in ALL {
            assert_eq!(Tokenizer::from_name(&tokenizer.name()), Ok(tokenizer));
            assert_eq!(Tokenizer::from_name(&tokenizer.lowercase().name()), Ok(tokenizer.lowercase()));
        }
        let message = Tokenizer::from_name("bpe").unwrap_err().to_string();
        let expected = "tokenizer: expected one of `whitespace`, `words`, `characters`, with `, lowercase` behind it \
                        or not, got `bpe`";
        assert_eq!(message, expected);
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
        }
    }
}
