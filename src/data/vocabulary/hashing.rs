//! The hash function of a vocabulary: texts are looked up word by word, and words are short.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A hash function with a random start: nobody can choose tokens with equal hashes.
#[derive(Debug, Clone)]
pub(super) struct WordHashing(u64);

impl Default for WordHashing {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for WordHashing {
    type Hasher = WordHasher;

    fn build_hasher(&self) -> WordHasher {
        WordHasher(self.0)
    }
}

/// A hash of bytes: each eight bytes are multiplied into the hash, and both halves of the product are kept.
pub(super) struct WordHasher(u64);

impl WordHasher {
    fn add(&mut self, bytes: u64) {
        // An odd number with about as many ones as zeros: the fraction of the golden ratio.
        let product = u128::from(self.0 ^ bytes) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (eights, rest) = bytes.as_chunks::<8>();
        eights.iter().for_each(|eight| self.add(u64::from_le_bytes(*eight)));
        // The length tells `a` from `a\0`.
        let rest = rest.iter().fold(bytes.len() as u64, |rest, &byte| rest << 8 | u64::from(byte));
        self.add(rest);
    }

    fn write_u8(&mut self, _: u8) {
        // The byte behind a text: `write` has hashed the length.
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_different_hashes() {
        let hashing = WordHashing::default();
        let words = (0..1 << 16).map(|number| format!("{number:b}"));
        let all =
            words.flat_map(|word| [word.clone(), word + "\0"]).map(|word| hashing.hash_one(word.as_str()));
        let mut all: Vec<u64> = all.collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1 << 17);
    }
}
