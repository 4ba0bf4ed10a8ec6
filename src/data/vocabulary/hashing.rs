//! The hash function of a vocabulary: texts are looked up word by word, and words are short.

use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState};
use std::sync::LazyLock;

/// Makes hashers with one random start per process, without which equal hashes cannot be computed.
pub(crate) type WordHashing = BuildHasherDefault<WordHasher>;

/// A hash of bytes: each eight bytes are multiplied into the hash, and both halves of the product are kept.
pub(crate) struct WordHasher(u64);

impl Default for WordHasher {
    fn default() -> Self {
        static START: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
        Self(*START)
    }
}

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (eights, rest) = bytes.as_chunks::<8>();
        // The length distinguishes `a` from `a\0`.
        let rest = rest.iter().fold(bytes.len() as u64, |rest, &byte| rest << 8 | u64::from(byte));
        for eight in eights.iter().map(|&eight| u64::from_le_bytes(eight)).chain([rest]) {
            // An odd number with about as many ones as zeros: the fraction of the golden ratio.
            let product = u128::from(self.0 ^ eight) * 0x9e37_79b9_7f4a_7c15;
            self.0 = product as u64 ^ (product >> 64) as u64;
        }
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
        let words = (0..1 << 16).map(|number| format!("{number:b}"));
        let all = words.flat_map(|word| [word.clone(), word + "\0"]);
        let mut all: Vec<u64> = all.map(|word| WordHashing::default().hash_one(word.as_str())).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1 << 17);
    }
}
