//! Growing a vocabulary: known tokens keep their ids, and new tokens are appended.

use std::collections::HashMap;

use super::{Limits, Vocabulary};
use crate::error::{Error, Result};

impl Vocabulary {
    /// Adds the counted tokens of other texts to the vocabulary: the known tokens stay, and new tokens within `limits`
    /// are appended. The special tokens in `limits` replace the old special tokens; known tokens keep their ids if the
    /// number of special tokens does not change.
    ///
    /// # Errors
    /// Fails if a special token in `limits` is repeated.
    pub(super) fn grown(&self, mut counts: HashMap<String, u64>, limits: &Limits) -> Result<Self> {
        let count_of = |special: &str| {
            let index = self.special_tokens().position(|own| own == special);
            index.map_or(0, |index| self.count((self.specials.start + index) as i64))
        };
        let mut entries: Vec<(String, u64)> =
            limits.specials.iter().map(|special| (special.clone(), count_of(special))).collect();
        let specials = 0..entries.len();
        let known = self.tokens.iter().zip(&self.counts).enumerate();
        for (_, (token, &count)) in known.filter(|(id, _)| !self.specials.contains(id)) {
            let more = counts.remove(&**token).unwrap_or(0);
            entries.push((token.to_string(), count.saturating_add(more)));
        }
        let mut new: Vec<(String, u64)> = counts.into_iter().collect();
        new.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let frequent = new.partition_point(|(_, count)| *count >= limits.min_count);
        let room = limits.max_size.saturating_sub(entries.len());
        let left_out: u64 = new.split_off(frequent.min(room)).iter().map(|(_, count)| count).sum();
        let unknown = limits.specials.iter().position(|special| special == Self::UNKNOWN);
        if let Some((_, count)) = unknown.and_then(|id| entries.get_mut(id)) {
            *count = count.saturating_add(left_out);
        }
        entries.extend(new);
        let twice = |token| Error::new("tokens of a vocabulary", "each once", format!("`{token}` twice"));
        Self::new(entries, specials, unknown.map(|id| id as i64)).map_err(twice)
    }

    /// Returns the vocabulary with each token in another form, such as lower case; tokens with the same form become one
    /// token, at the position of the first of these tokens.
    ///
    /// ```
    /// use unpadded::data::{Limits, Vocabulary};
    /// let words = Vocabulary::of("The cat saw the dog".split(' '), &Limits::default())?;
    /// let lower = words.in_form(str::to_lowercase);
    /// assert_eq!(lower.tokens().collect::<Vec<_>>(), ["<unk>", "the", "cat", "dog", "saw"]);
    /// assert_eq!((lower.id("the"), lower.count(1)), (Some(1), 2));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    pub fn in_form(&self, form: impl Fn(&str) -> String) -> Self {
        let (mut entries, mut places) = (Vec::<(String, u64)>::new(), HashMap::<String, usize>::new());
        let (mut specials, mut unknown) = (0..0, None);
        for (id, (token, &count)) in self.tokens.iter().zip(&self.counts).enumerate() {
            let index = entries.len();
            if self.specials.contains(&id) {
                specials = if specials.is_empty() { index..index + 1 } else { specials.start..index + 1 };
                entries.push((token.to_string(), count));
            } else {
                let token = form(token);
                match places.get(&token).and_then(|&known| entries.get_mut(known)) {
                    Some((_, known)) => *known = known.saturating_add(count),
                    None => {
                        places.insert(token.clone(), index);
                        entries.push((token, count));
                    }
                }
            }
            if self.unknown == Some(id as i64) {
                unknown = Some(index as i64);
            }
        }
        // This cannot fail, since each form occurs only once.
        Self::new(entries, specials, unknown).unwrap_or_else(|_| self.clone())
    }

    /// For each token, returns the id of the first token in `other` with the same form; `None` if no token in `other`
    /// has this form. A special token matches only a special token of the same name.
    ///
    /// ```
    /// use unpadded::data::{Limits, Vocabulary};
    /// let old = Vocabulary::of("cat dog".split(' '), &Limits::default())?;
    /// let new = Vocabulary::of("dog eel".split(' '), &Limits::default())?;
    /// assert_eq!(new.numbers_in(&old, str::to_owned), [Some(0), Some(2), None]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub fn numbers_in(&self, other: &Self, form: impl Fn(&str) -> String) -> Vec<Option<i64>> {
        let (mut special, mut plain) = (HashMap::new(), HashMap::new());
        for (id, token) in other.tokens.iter().enumerate() {
            match other.specials.contains(&id) {
                true => special.entry(token.to_string()).or_insert(id as i64),
                false => plain.entry(form(token)).or_insert(id as i64),
            };
        }
        let own = self.tokens.iter().enumerate();
        own.map(|(id, token)| match self.specials.contains(&id) {
            true => special.get(&**token).copied(),
            false => plain.get(&form(token)).copied(),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(min_count: u64, max_size: usize, base: Option<Vocabulary>) -> Limits {
        Limits { min_count, max_size, base, ..Limits::default() }
    }

    fn of(text: &str, limits: &Limits) -> Vocabulary {
        Vocabulary::of(text.split(' '), limits).unwrap()
    }

    #[test]
    fn old_tokens_keep_their_numbers_and_counts_are_added_up() {
        let old = of("a a b c c c", &limits(2, 99, None));
        assert_eq!(old.tokens().collect::<Vec<_>>(), ["<unk>", "c", "a"]);
        let grown = of("d e d a b b b f", &limits(2, 99, Some(old.clone())));
        assert_eq!(grown.tokens().collect::<Vec<_>>(), ["<unk>", "c", "a", "b", "d"]);
        let counts: Vec<u64> = (0..5).map(|id| grown.count(id)).collect();
        // The count of `<unk>` is 3: one `b` in the old texts, `e` and `f` in the new texts.
        assert_eq!(counts, [3, 3, 3, 3, 2]);
        assert_eq!(grown.unknown(), Some(0));
        assert_eq!(grown.numbers_in(&old, str::to_owned), [Some(0), Some(1), Some(2), None, None]);
        // The maximum size counts all entries; known tokens stay even beyond the maximum.
        let tight = of("d d b b b", &limits(1, 4, Some(old.clone())));
        assert_eq!(tight.tokens().collect::<Vec<_>>(), ["<unk>", "c", "a", "b"]);
        let full = of("d d", &limits(1, 2, Some(old.clone())));
        assert_eq!((full.len(), full.fingerprint(), full.count(0)), (3, old.fingerprint(), 3));
        // New texts without any new frequent token are no error: the vocabulary stays unchanged.
        assert_eq!(of("a z", &limits(2, 99, Some(old.clone()))).fingerprint(), old.fingerprint());
        // The special tokens of the limits replace the vocabulary's old special tokens.
        let specials = vec!["<unk>".to_owned(), "<sep>".to_owned()];
        let other = Vocabulary::of(["a"], &Limits { specials, base: Some(old.clone()), ..Limits::default() })
            .unwrap();
        assert_eq!(other.tokens().collect::<Vec<_>>(), ["<unk>", "<sep>", "c", "a"]);
        assert_eq!(other.numbers_in(&old, str::to_owned), [Some(0), None, Some(1), Some(2)]);
    }

    #[test]
    fn forms_merge_tokens_but_no_special_one() {
        let old = of("1 2 <UNK> x", &limits(1, 99, None));
        let formed = old.in_form(|token| if token.len() == 1 { "0".into() } else { "<unk>".into() });
        assert_eq!(formed.tokens().collect::<Vec<_>>(), ["<unk>", "0", "<unk>"]);
        assert_eq!((formed.unknown(), formed.count(1), formed.id("<unk>")), (Some(0), 3, Some(2)));
    }
}
