//! Fingerprints of data sets. A data set has the same fingerprint on every machine and in every release.

/// A fingerprint: one number computed from numbers and text, in order. A fingerprint distinguishes data, but is not
/// cryptographic: equal fingerprints can be constructed on purpose.
///
/// ```
/// use unpadded::data::Fingerprint;
/// let of = |words: &[&str]| words.iter().fold(Fingerprint::default(), |f, word| f.text(word)).finish();
/// assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
/// assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Adds a number to the fingerprint.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        // The finaliser of SplitMix64: each bit of the old fingerprint and of the number changes about half of the bits
        // of the result.
        let mut z = (self.0 ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self(z ^ (z >> 31))
    }

    /// Adds a text and its length. The length makes the fingerprints of `["ab", "c"]` and `["a", "bc"]` differ.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        let whole = text.as_bytes().chunks(8).fold(self, |f, chunk| {
            f.number(chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)))
        });
        whole.number(text.len() as u64)
    }

    /// Returns the fingerprint of all added numbers and texts.
    pub fn finish(self) -> u64 {
        self.0
    }
}
