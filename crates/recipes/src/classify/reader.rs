//! Converts the text columns of a record to the fields of a sample: token ids and character ids.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation;
use unpadded::data::{Batch, Field, Sample, Tokenizer, Vocabulary};
use unpadded::{Error, Result, Variable};

use crate::config::Config;
use crate::sections::Sentences;

/// The special token between two columns that are joined to one text.
pub(crate) const SEPARATOR: &str = "<sep>";
pub(super) const WORDS: &str = "words";
pub(super) const CHARACTERS: &str = "characters";
/// The feeds of a text: the tokens, and the characters of each token. `SECOND` is of the second text of a pair.
pub(crate) const FIRST: [&str; 2] = ["words", "characters"];
pub(crate) const SECOND: [&str; 2] = ["second words", "second characters"];

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TextColumns {
    pub(super) columns: usize,
    /// Whether a record is a pair: the column after the first text's columns is the second text.
    pub(super) pair: bool,
    pub(super) documents: Sentences,
}

impl TextColumns {
    pub(super) fn of(config: &Config) -> Self {
        let (columns, pair) = (config.data.text.len().max(1), config.data.pair.is_some());
        Self { columns, pair, documents: config.model.documents }
    }

    /// Splits a record at its tabs: returns the columns of the first text, and the second text of a pair (else `None`).
    fn split<'t>(&self, text: &'t str) -> Result<(Vec<&'t str>, Option<&'t str>)> {
        let count = self.columns + usize::from(self.pair);
        if count == 1 {
            return Ok((vec![text], None));
        }
        let mut cells: Vec<&str> = text.split('\t').collect();
        if cells.len() != count {
            let expected = format!("{count}, separated by tabs, as in the training");
            return Err(Error::new("texts of a record", expected, cells.len().to_string()));
        }
        let second = if self.pair { cells.pop() } else { None };
        Ok((cells, second))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(super) tokenizer: Tokenizer,
    pub(super) words: Vocabulary,
    pub(super) characters: Option<Vocabulary>,
    pub(super) parts: TextColumns,
}

impl Reader {
    pub(crate) fn of(
        config: &Config,
        tokenizer: Option<&str>,
        vocabulary: &mut dyn FnMut(&str) -> Result<Vocabulary>,
    ) -> Result<Self> {
        let (tokenizer, words) = (Tokenizer::from_name(tokenizer.unwrap_or_default())?, vocabulary(WORDS)?);
        let characters = config.model.characters.then(|| vocabulary(CHARACTERS)).transpose()?;
        Ok(Self { tokenizer, words, characters, parts: TextColumns::of(config) })
    }

    /// Returns the names of the feeds of a record, in the order of the values that [`Self::fields`] returns.
    pub(crate) fn feeds(&self) -> Vec<&'static str> {
        let names_of = |names: [&'static str; 2]| match self.characters {
            Some(_) => names.to_vec(),
            None => names[..1].to_vec(),
        };
        let second = if self.parts.pair { names_of(SECOND) } else { Vec::new() };
        [names_of(FIRST), second].concat()
    }

    /// Returns the tokens of each column, as they are fed, a joined column after its separator; a pair's second text is the last.
    pub(crate) fn columns(&self, text: &str) -> Result<Vec<Vec<String>>> {
        let (columns, second) = self.parts.split(text)?;
        let column_text = |(at, column): (usize, &str)| {
            let joined = at > 0 && at < self.parts.columns && self.parts.documents == Sentences::None;
            let tokens = sentences(column, self.parts.documents).into_iter();
            let tokens = tokens.flat_map(|sentence| self.tokenizer.tokens(sentence)).map(Cow::into_owned);
            joined.then(|| SEPARATOR.to_owned()).into_iter().chain(tokens).collect()
        };
        Ok(columns.into_iter().chain(second).enumerate().map(column_text).collect())
    }

    pub(crate) fn tokens(&self, text: &str) -> Result<Vec<String>> {
        let mut columns = self.columns(text)?;
        columns.truncate(self.parts.columns);
        Ok(columns.concat())
    }

    /// Returns the token ids of each text of a record and, if the model reads characters, the character ids.
    pub(crate) fn fields(&self, text: &str) -> Result<Vec<Field>> {
        let (first, second) = self.parts.split(text)?;
        let mut fields = self.of_text(&first)?;
        if let Some(second) = second {
            fields.extend(self.of_text(&[second])?);
        }
        Ok(fields)
    }

    fn of_text(&self, columns: &[&str]) -> Result<Vec<Field>> {
        let how = self.parts.documents;
        if how != Sentences::None {
            let all = columns.iter().flat_map(|column| sentences(column, how));
            let ids = all.map(|sentence| self.words.ids(self.tokenizer.tokens(sentence)));
            return Ok(vec![Field::Nested(ids.collect::<Result<_>>()?)]);
        }
        let (mut ids, mut spelled) = (Vec::new(), Vec::new());
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                ids.push(self.words.special(SEPARATOR)?);
                spelled.push(Vec::new());
            }
            let tokens: Vec<Cow<'_, str>> = self.tokenizer.tokens(column).collect();
            ids.extend(self.words.ids(&tokens)?);
            if let Some(known) = &self.characters {
                spelled.extend(tokens.iter().map(|token| known.spelling(token)).collect::<Result<Vec<_>>>()?);
            }
        }
        Ok(match self.characters {
            Some(_) => vec![Field::Ints(ids), Field::Nested(spelled)],
            None => vec![Field::Ints(ids)],
        })
    }

    pub(crate) fn batch(&self, texts: &[&str]) -> Result<Vec<(String, Variable)>> {
        let samples = (0..).zip(texts).map(|(number, text)| Ok(Sample::new(number, self.fields(text)?)));
        let names: Vec<String> = self.feeds().into_iter().map(str::to_owned).collect();
        Ok(Batch::new(&names, &samples.collect::<Result<Vec<_>>>()?)?.values)
    }

    /// Returns a hash of all settings that determine the fields of a record.
    pub(super) fn fingerprint(&self) -> u64 {
        let known = [Some(&self.words), self.characters.as_ref()].into_iter().flatten();
        let numbers = known.map(Vocabulary::fingerprint);
        let name = format!("{} {:?}", self.tokenizer.name(), self.parts);
        numbers
            .fold(unpadded::data::Fingerprint::default().text(&name), |f, number| f.number(number))
            .finish()
    }
}

/// Returns the sentences of a text without blank sentences; with `Sentences::None`, the whole text.
fn sentences(text: &str, how: Sentences) -> Vec<&str> {
    let all: Vec<&str> = match how {
        Sentences::None => return vec![text],
        Sentences::Lines => text.lines().collect(),
        Sentences::Punctuation => text.split_sentence_bounds().collect(),
    };
    all.into_iter().map(str::trim).filter(|sentence| !sentence.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_at_lines_or_at_punctuation() {
        let text = "A film. It cost 3.5 million!\n\nNo more";
        assert_eq!(sentences(text, Sentences::None), [text]);
        assert_eq!(sentences(text, Sentences::Lines), ["A film. It cost 3.5 million!", "No more"]);
        assert_eq!(sentences(text, Sentences::Punctuation), ["A film.", "It cost 3.5 million!", "No more"]);
    }

    #[test]
    fn texts_are_parted_by_tabs() {
        let parts = |columns, pair| TextColumns { columns, pair, documents: Sentences::None };
        assert_eq!(parts(1, false).split("a\tb").unwrap(), (vec!["a\tb"], None));
        assert_eq!(parts(2, true).split("a\tb\tc").unwrap(), (vec!["a", "b"], Some("c")));
        let message = parts(1, true).split("a").unwrap_err().to_string();
        assert_eq!(message, "texts of a record: expected 2, separated by tabs, as in the training, got 1");
    }
}
