//! Random numbers of which data are made up.
use std::ops::Range;

use unpadded::kernels::random::uniform01;

/// Random numbers, the same for the same seed.
pub(crate) struct Draws(u64, u32);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed, 0)
    }

    pub(crate) fn between(&mut self, least: f64, most: f64) -> f64 {
        self.1 += 1;
        least + (most - least) * uniform01::<f64>(self.0, [self.1, 0, 0, 0])
    }

    pub(crate) fn one_of(&mut self, range: Range<usize>) -> usize {
        self.between(range.start as f64, range.end as f64) as usize
    }
}
