//! Random numbers for made-up data.
use std::ops::Range;

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014): equal seeds give equal numbers.
pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn between(&mut self, least: f64, most: f64) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bits = (mixed ^ (mixed >> 31)) >> 11; // as many as the mantissa of an f64 has
        least + (most - least) * bits as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn one_of(&mut self, range: Range<usize>) -> usize {
        self.between(range.start as f64, range.end as f64) as usize
    }
}
