//! Counts of the words and characters of tagged texts, and the form of a word in the vocabulary.

use unpadded::data::TokenCounts;
use unpadded_text::TaggedText;

/// Returns the form of a word in the vocabulary: lower case, with every digit replaced by 0. The character encoder
/// reads the word in its original form.
pub(super) fn form(word: &str) -> String {
    word.chars().flat_map(char::to_lowercase).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

/// Counts the characters of a word, for a vocabulary of characters.
pub(super) fn add_characters(counts: &mut TokenCounts, word: &str) {
    let mut utf8 = [0; 4];
    word.chars().for_each(|c| counts.add(c.encode_utf8(&mut utf8)));
}

/// Counts of the words, characters and texts in a part of the data set.
#[derive(Default)]
pub(super) struct TagCounts {
    pub(super) texts: usize,
    pub(super) labelled: usize,
    pub(super) words: TokenCounts,
    pub(super) characters: TokenCounts,
}

impl TagCounts {
    /// Adds a text to the counts of its part; `tags` and `labels` are counted over all parts together.
    pub(super) fn add(&mut self, text: &TaggedText, tags: &mut TokenCounts, labels: &mut TokenCounts) {
        self.texts += 1;
        for word in &text.words {
            self.words.add(&form(word));
            add_characters(&mut self.characters, word);
        }
        text.tags.iter().for_each(|tag| tags.add(tag));
        if let Some(label) = &text.label {
            self.labelled += 1;
            labels.add(label);
        }
    }
}
