//! Vocabularies, which give each token an id.

mod grown;
mod hashing;
pub(crate) mod stored;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use self::hashing::WordHashing;
use super::Fingerprint;
use crate::error::{AtCaller, Error, Result};
use crate::reserve;
use crate::tensor::Csr;

/// The limits of a vocabulary: minimum count, maximum size, special tokens, and a base vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    pub(crate) min_count: u64,
    pub(crate) max_size: usize,
    pub(crate) specials: Vec<String>,
    pub(crate) base: Option<Vocabulary>,
}

impl Default for Limits {
    /// Returns the default limits: all tokens are kept, after the special token [`Vocabulary::UNKNOWN`].
    fn default() -> Self {
        Self {
            min_count: 1,
            max_size: usize::MAX,
            specials: vec![Vocabulary::UNKNOWN.to_owned()],
            base: None,
        }
    }
}

impl Limits {
    /// Sets the minimum count: tokens that occur less often are left out (default: 1).
    #[must_use]
    pub fn min_count(self, min_count: u64) -> Self {
        Self { min_count, ..self }
    }

    /// Sets the maximum size: the number of entries, including special tokens (default: no limit).
    #[must_use]
    pub fn max_size(self, max_size: usize) -> Self {
        Self { max_size, ..self }
    }

    /// Sets the special tokens (default: [`Vocabulary::UNKNOWN`], which represents every token without an entry).
    /// Special tokens are the first entries, even if no text contains them. If a text has a token that is spelt like a
    /// special token, this token is a separate entry.
    #[must_use]
    pub fn specials(self, specials: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { specials: specials.into_iter().map(Into::into).collect(), ..self }
    }

    /// Removes all special tokens from the limits: a token that is not in the vocabulary then has no id.
    #[must_use]
    pub fn without_specials(self) -> Self {
        Self { specials: Vec::new(), ..self }
    }

    /// Sets the base vocabulary, to which the new tokens are added (default: none). Tokens of the base vocabulary keep
    /// their ids, whatever the other limits are. The count of a base token is its count in the base plus its count in
    /// the new texts.
    #[must_use]
    pub fn base(self, base: impl Into<Option<Vocabulary>>) -> Self {
        Self { base: base.into(), ..self }
    }
}

/// A vocabulary: a list of special tokens and tokens of texts; the id of a token is its position in the list.
///
/// [`Self::special`] looks up special tokens, and [`Self::id`] looks up tokens of texts. Therefore, a token `</s>` that
/// occurs in a text is not the special token `</s>`, which ends a text.
///
/// ```
/// use unpadded::data::{Limits, Vocabulary};
/// let words = Vocabulary::of("to be or not to be".split(' '), &Limits::default().min_count(2))?;
/// assert_eq!((words.len(), words.token(0), words.token(1)), (3, Some("<unk>"), Some("be")));
/// assert_eq!(words.ids(["to", "see"])?, [2, 0]);
/// assert_eq!(words.count(0), 2); // "or" and "not"
///
/// let limits = Limits::default().specials(["</s>"]);
/// let tags = Vocabulary::of("<s> crossed out </s>".split(' '), &limits)?;
/// assert_eq!((tags.special("</s>")?, tags.token(0), tags.id("</s>")), (0, Some("</s>"), Some(1)));
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Vocabulary {
    tokens: Vec<Arc<str>>,
    counts: Vec<u64>,
    unknown: Option<i64>,
    /// The ids of the special tokens; `index` does not have these tokens.
    specials: Range<usize>,
    /// The id of each token that is not special.
    index: HashMap<Arc<str>, i64, WordHashing>,
}

impl PartialEq for Vocabulary {
    fn eq(&self, other: &Self) -> bool {
        let fields = |v: &Self| (v.unknown, v.specials.clone());
        (&self.tokens, &self.counts, fields(self)) == (&other.tokens, &other.counts, fields(other))
    }
}

impl Eq for Vocabulary {}

/// Counts of tokens in texts.
#[derive(Default)]
pub struct TokenCounts(HashMap<String, u64>);

impl TokenCounts {
    /// Counts a token.
    pub fn add(&mut self, token: &str) {
        // `HashMap::entry` would allocate a new string even for a token that is already counted.
        match self.0.get_mut(token) {
            Some(count) => *count += 1,
            None => drop(self.0.insert(token.to_owned(), 1)),
        }
    }

    /// Counts a token `count` times.
    pub fn add_times(&mut self, token: &str, count: u64) {
        *self.0.entry(token.to_owned()).or_default() += count;
    }

    #[cfg(feature = "tokenizers")]
    pub(super) fn count(&self, token: &str) -> u64 {
        self.0.get(token).copied().unwrap_or_default()
    }

    /// Makes a vocabulary of labels from the counted tokens, as [`Vocabulary::labels`] does.
    ///
    /// # Errors
    /// Fails as [`Vocabulary::labels`] does.
    #[track_caller]
    pub fn labels(self) -> Result<Vocabulary> {
        let counted = self.within(&Limits { specials: Vec::new(), ..Limits::default() })?;
        let mut entries: Vec<_> = counted.tokens.into_iter().zip(counted.counts).collect();
        entries.sort();
        Vocabulary::new(entries, 0..0, None)
            .map_err(|label| Error::new("labels", "each once", format!("`{label}` twice")))
            .at_caller()
    }

    /// Returns the share of the counted occurrences whose token is in the vocabulary `known`, from 0 to 1; `None` if
    /// nothing was counted.
    pub fn coverage(&self, known: &Vocabulary) -> Option<f64> {
        let all: u64 = self.0.values().sum();
        let found: u64 =
            self.0.iter().filter(|(token, _)| known.id(token).is_some()).map(|(_, count)| count).sum();
        (all > 0).then(|| found as f64 / all as f64)
    }

    /// Makes a vocabulary of the counted tokens that the limits keep.
    ///
    /// # Errors
    /// Fails as [`Vocabulary::of`] does.
    #[track_caller]
    pub fn within(self, limits: &Limits) -> Result<Vocabulary> {
        let Self(counts) = self;
        if let Some(base) = &limits.base {
            return base.grown(counts, limits).at_caller();
        }
        let Some(room) = limits.max_size.checked_sub(limits.specials.len()) else {
            let expected = format!("at least {}, the number of specials", limits.specials.len());
            return Err(Error::new("size of a vocabulary", expected, limits.max_size.to_string()));
        };
        let mut entries: Vec<(String, u64)> =
            limits.specials.iter().map(|special| (special.clone(), 0)).collect();
        let distinct = counts.len();
        let mut kept: Vec<(String, u64)> = counts.into_iter().collect();
        kept.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let frequent = kept.partition_point(|(_, count)| *count >= limits.min_count);
        let left_out: u64 = kept.split_off(frequent.min(room)).iter().map(|(_, count)| count).sum();
        if kept.is_empty() {
            let expected = format!(
                "at least one token that occurs {} times or more and fits into the size limit",
                limits.min_count.max(1)
            );
            let got = format!("none among {distinct} distinct tokens");
            return Err(Error::new("tokens of a vocabulary", expected, got));
        }
        let unknown = limits.specials.iter().position(|special| special == Vocabulary::UNKNOWN);
        if let Some((_, count)) = unknown.and_then(|id| entries.get_mut(id)) {
            *count += left_out;
        }
        let specials = 0..entries.len();
        entries.extend(kept);
        let twice =
            |special| Error::new("specials of a vocabulary", "each once", format!("`{special}` twice"));
        Vocabulary::new(entries, specials, unknown.map(|id| id as i64)).map_err(twice).at_caller()
    }
}

impl Vocabulary {
    /// The name of the special token that represents every token without an entry.
    pub const UNKNOWN: &'static str = "<unk>";

    /// Builds a vocabulary from the tokens of texts: special tokens come first, then the other tokens by descending
    /// count; tokens with equal counts are sorted by their text. If a text has a token that is spelt like a special
    /// token, this token is a separate entry.
    ///
    /// # Errors
    /// Fails if a special token is repeated, if there are more than `max_size` special tokens, or if the limits leave
    /// no token of the texts.
    #[track_caller]
    pub fn of<T: AsRef<str>>(tokens: impl IntoIterator<Item = T>, limits: &Limits) -> Result<Self> {
        let mut counted = TokenCounts::default();
        tokens.into_iter().for_each(|token| counted.add(token.as_ref()));
        counted.within(limits).at_caller()
    }

    /// Builds a vocabulary of labels, sorted by name and without special tokens, so that looking up an unknown label is
    /// an error.
    ///
    /// ```
    /// use unpadded::data::Vocabulary;
    /// let labels = Vocabulary::labels(["pos", "neg", "pos"])?;
    /// assert_eq!(labels.lookup("pos")?, 1);
    /// let message = labels.lookup("good").unwrap_err().to_string();
    /// assert!(message.starts_with("token: expected one of `neg`, `pos`, got `good`"), "{message}");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if there are no labels.
    #[track_caller]
    pub fn labels<T: AsRef<str>>(labels: impl IntoIterator<Item = T>) -> Result<Self> {
        let mut counted = TokenCounts::default();
        labels.into_iter().for_each(|label| counted.add(label.as_ref()));
        counted.labels().at_caller()
    }

    /// Returns a vocabulary of these tokens with their counts, in this order and without special tokens. The error is a token
    /// that occurs twice.
    pub fn counted<T: Into<Arc<str>>>(entries: impl IntoIterator<Item = (T, u64)>) -> Result<Self, Arc<str>> {
        Self::new(entries, 0..0, None)
    }

    /// Returns a vocabulary of these tokens with their counts; `specials` are the ids of the special tokens. The error
    /// is a token that occurs twice among the special tokens, or twice among the other tokens.
    pub(super) fn new<T: Into<Arc<str>>>(
        entries: impl IntoIterator<Item = (T, u64)>,
        specials: Range<usize>,
        unknown: Option<i64>,
    ) -> Result<Self, Arc<str>> {
        let (tokens, counts): (Vec<Arc<str>>, Vec<u64>) =
            entries.into_iter().map(|(token, count)| (token.into(), count)).unzip();
        let mut index = HashMap::with_capacity_and_hasher(tokens.len(), WordHashing::default());
        let mut apart = HashMap::default();
        for (id, token) in tokens.iter().enumerate() {
            let positions = if specials.contains(&id) { &mut apart } else { &mut index };
            if positions.insert(Arc::clone(token), id as i64).is_some() {
                return Err(Arc::clone(token));
            }
        }
        // An empty range is always stored as `0..0`, so that vocabularies without special tokens compare equal.
        let specials = if specials.is_empty() { 0..0 } else { specials };
        Ok(Self { tokens, counts, unknown, specials, index })
    }

    /// Returns the number of entries, including special tokens; a vocabulary has at least one entry.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the id of a token of a text; `None` if the token has no entry. For the id of a special token, use
    /// [`Self::special`].
    pub fn id(&self, token: &str) -> Option<i64> {
        self.index.get(token).copied()
    }

    /// Returns the id of the special token `name`. If the vocabulary has no special token of this name, returns the id
    /// of the ordinary token `name`, for example in the vocabulary of a `tokenizer.json`.
    ///
    /// # Errors
    /// Fails if no token has this name; the message lists the special tokens.
    #[track_caller]
    pub fn special(&self, name: &str) -> Result<i64> {
        if let Some(id) = self.find_special(name) {
            return Ok(id);
        }
        let known: Vec<String> = self.special_tokens().map(|own| format!("`{own}`")).collect();
        let expected =
            if known.is_empty() { "a special token of this vocabulary".to_owned() } else { known.join(", ") };
        Err(Error::new("special token of a vocabulary", expected, format!("`{name}`")))
    }

    /// Returns the id of a special token, or of a token with this name; `None` if there is none.
    pub fn find_special(&self, name: &str) -> Option<i64> {
        let index = self.special_tokens().position(|own| own == name);
        index.map(|index| (self.specials.start + index) as i64).or_else(|| self.id(name))
    }

    fn special_tokens(&self) -> impl Iterator<Item = &str> {
        self.tokens.get(self.specials.clone()).unwrap_or_default().iter().map(|token| &**token)
    }

    /// Returns the id of a token of a text, or the id of [`Self::UNKNOWN`] if the token has no entry.
    ///
    /// # Errors
    /// Fails if the token has no entry, and the vocabulary has no [`Self::UNKNOWN`]; the message lists some known
    /// tokens.
    #[track_caller]
    pub fn lookup(&self, token: &str) -> Result<i64> {
        if let Some(id) = self.id(token).or(self.unknown) {
            return Ok(id);
        }
        const SHOWN: usize = 10;
        let shown: Vec<String> = self.tokens.iter().take(SHOWN).map(|token| format!("`{token}`")).collect();
        let more = self.len().checked_sub(SHOWN).filter(|&more| more > 0);
        let more = more.map_or_else(String::new, |more| format!(" and {more} more"));
        Err(Error::new("token", format!("one of {}{more}", shown.join(", ")), format!("`{token}`")))
    }

    /// Returns the ids of several tokens, each looked up by [`Self::lookup`].
    ///
    /// # Errors
    /// Fails as [`Self::lookup`] does.
    #[track_caller]
    pub fn ids<T: AsRef<str>>(&self, tokens: impl IntoIterator<Item = T>) -> Result<Vec<i64>> {
        let ids = tokens.into_iter().map(|token| self.lookup(token.as_ref()));
        let mut ids = reserve::collected(ids, "ids of a text").at_caller()?;
        // The vector grew while ids were added, so up to half of its memory may be unused. The unused memory is
        // released here, because every text in memory has a vector of ids.
        ids.shrink_to_fit();
        Ok(ids)
    }

    /// Returns the ids of the characters of a word, each looked up by [`Self::lookup`].
    ///
    /// # Errors
    /// Fails as [`Self::lookup`] does.
    #[track_caller]
    pub fn spelling(&self, word: &str) -> Result<Vec<i64>> {
        self.ids(word.char_indices().map(|(at, c)| word.get(at..at + c.len_utf8()).unwrap_or_default()))
    }

    /// Returns bags of words: a sparse `f32` matrix with one row per text and one column per token. The column of a
    /// token has the count of the token in the text.
    ///
    /// ```
    /// use unpadded::data::{Limits, Vocabulary};
    /// let texts = ["to be or not to be", "be"];
    /// let words = Vocabulary::of(texts.iter().flat_map(|text| text.split(' ')), &Limits::default())?;
    /// let bags = words.bags(texts.iter().map(|text| text.split(' ')))?;
    /// assert_eq!((bags.shape(), bags.entries()), (&[2, 5][..], 5));
    /// assert_eq!(bags.get::<f32>(0, words.lookup("to")? as usize)?, 2.0);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a token has no entry, and the vocabulary has no [`Self::UNKNOWN`].
    #[doc(alias = "CountVectorizer")]
    #[track_caller]
    pub fn bags<T: AsRef<str>, I: IntoIterator<Item = T>>(
        &self,
        texts: impl IntoIterator<Item = I>,
    ) -> Result<Csr> {
        let mut bags = Vec::new();
        for text in texts {
            bags.push(self.ids(text)?);
        }
        Csr::from_bags(&bags, self.len())
    }

    /// Returns the token with this id; `None` if no token has the id.
    pub fn token(&self, id: i64) -> Option<&str> {
        self.tokens.get(usize::try_from(id).ok()?).map(|token| &**token)
    }

    /// Returns the count of the token with this id in the texts; 0 if no token has the id. The count of
    /// [`Self::UNKNOWN`] is the total count of the tokens that were left out.
    pub fn count(&self, id: i64) -> u64 {
        usize::try_from(id).ok().and_then(|id| self.counts.get(id)).copied().unwrap_or(0)
    }

    /// Returns the id of [`Self::UNKNOWN`]; `None` if the vocabulary does not have this token.
    pub fn unknown(&self) -> Option<i64> {
        self.unknown
    }

    /// Iterates over all tokens in the order of their ids, special tokens included.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tokens.iter().map(|token| &**token)
    }

    /// Returns the fingerprint of the vocabulary: two vocabularies have equal fingerprints only if every token has the
    /// same id in both vocabularies.
    pub fn fingerprint(&self) -> u64 {
        let unknown = self.unknown.map_or(u64::MAX, |id| id as u64);
        let f = Fingerprint::default().number(unknown);
        let f = f.number(self.specials.start as u64).number(self.specials.end as u64);
        self.tokens().fold(f, Fingerprint::text).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::record;

    fn limits(min_count: u64, max_size: usize, specials: &[&str]) -> Limits {
        Limits {
            min_count,
            max_size,
            specials: specials.iter().map(|&special| special.to_owned()).collect(),
            base: None,
        }
    }

    proptest! {
        #[test]
        fn frequent_ones_come_first_and_none_is_lost(
            tokens in prop::collection::vec("[a-d]{1,2}|<unk>", 1..80),
            min_count in 0u64..4,
            max_size in 2usize..12,
        ) {
            let specials = ["<pad>", "<unk>"];
            let Ok(v) = Vocabulary::of(&tokens, &limits(min_count, max_size, &specials)) else { return Ok(()) };
            prop_assert!(v.len() <= max_size && v.tokens().take(2).eq(specials) && v.unknown() == Some(1));
            let own: Vec<i64> = (2..v.len() as i64).collect();
            let rank = |&id: &i64| (std::cmp::Reverse(v.count(id)), v.token(id).unwrap().to_owned());
            prop_assert!(own.is_sorted_by_key(rank));
            prop_assert!(own.iter().all(|&id| v.count(id) >= min_count.max(1)));
            // Every token of the texts has an id, and the count of an id is the number of tokens with this id.
            let ids = v.ids(&tokens).unwrap();
            for id in 0..v.len() as i64 {
                prop_assert_eq!(v.count(id), ids.iter().filter(|&&i| i == id).count() as u64);
            }
            let mut reversed = tokens.clone();
            reversed.reverse();
            prop_assert_eq!(&Vocabulary::of(&reversed, &limits(min_count, max_size, &specials)).unwrap(), &v);
            let stored = record::to_bytes(&stored::StoredVocabulary::from(&v));
            let read: stored::StoredVocabulary = record::from_bytes(&stored).unwrap();
            prop_assert_eq!(Vocabulary::try_from(read).unwrap(), v);
        }
    }

    #[test]
    fn a_text_that_spells_a_special_token_is_text() {
        let specials = ["<s>", "</s>", "<unk>"];
        let tokens = "write </s> or <unk> or </s> at the end </s> <unk>";
        let v = Vocabulary::of(tokens.split(' '), &limits(2, 9, &specials)).unwrap();
        assert_eq!(v.tokens().collect::<Vec<_>>(), ["<s>", "</s>", "<unk>", "</s>", "<unk>", "or"]);
        assert_eq!(specials.map(|name| v.special(name).unwrap()), [0, 1, 2]);
        assert_eq!(v.ids(["</s>", "<unk>", "<s>", "at"]).unwrap(), [3, 4, 2, 2]);
        assert_eq!((v.unknown(), v.count(1), v.count(2), v.count(3), v.count(4)), (Some(2), 0, 4, 3, 2));
        let plain = Vocabulary::labels(["<s>", "</s>", "or"]).unwrap();
        assert_eq!(plain.special("</s>").unwrap(), 0);
        let message = v.special("<pad>").unwrap_err().to_string();
        let expected = "special token of a vocabulary: expected `<s>`, `</s>`, `<unk>`, got `<pad>`";
        assert_eq!(message, expected);
        let stored = record::to_bytes(&stored::StoredVocabulary::from(&v));
        let read: stored::StoredVocabulary = record::from_bytes(&stored).unwrap();
        let read = Vocabulary::try_from(read).unwrap();
        assert_eq!((read.special("</s>").unwrap(), read.id("</s>")), (1, Some(3)));
        assert_eq!((&read, read.fingerprint()), (&v, v.fingerprint()));
        let other = Vocabulary::of(["<s>"], &limits(1, 9, &[])).unwrap();
        let apart = Vocabulary::new([("<s>", 1)], 0..1, None).unwrap();
        assert!(other != apart && other.fingerprint() != apart.fingerprint());
    }

    #[test]
    fn what_makes_no_vocabulary_is_refused() {
        let refusal =
            |tokens: &[&str], limits: &Limits| Vocabulary::of(tokens, limits).unwrap_err().to_string();
        let expected = "tokens of a vocabulary: expected at least one token that occurs 2 times or more and fits into the size \
                        limit, got none among 1 distinct tokens";
        assert_eq!(refusal(&["a"], &limits(2, 9, &[])), expected);
        assert!(refusal(&[], &Limits::default()).ends_with("got none among 0 distinct tokens"));
        assert_eq!(
            refusal(&["a"], &limits(1, 9, &["x", "x"])),
            "specials of a vocabulary: expected each once, got `x` twice"
        );
        let expected = "size of a vocabulary: expected at least 2, the number of specials, got 1";
        assert_eq!(refusal(&["a"], &limits(1, 1, &["x", "y"])), expected);
        assert!(Vocabulary::labels::<&str>([]).is_err());
        let many = Vocabulary::labels((0..100).map(|i| format!("{i:03}"))).unwrap();
        let message = many.lookup("7").unwrap_err().to_string();
        assert!(
            message.contains("`000`, `001`") && message.ends_with("`009` and 90 more, got `7`"),
            "{message}"
        );
        assert_eq!((many.token(-1), many.token(100), many.count(-1)), (None, None, 0));
    }

    #[test]
    fn a_large_one_is_counted_and_numbered() {
        let tokens = || (0..300_000u32).map(|i| format!("token {i}"));
        let large = Vocabulary::of(tokens(), &Limits::default()).unwrap();
        assert_eq!(large.len(), 300_001);
        assert!(tokens().all(|token| large.id(&token).and_then(|id| large.token(id)) == Some(&token)));
        let limited = Vocabulary::of(tokens(), &limits(1, 1000, &[Vocabulary::UNKNOWN])).unwrap();
        assert_eq!((limited.len(), limited.count(0)), (1000, 299_001));
    }
}
