//! Random numbers that are a function of where they are used, not of what was drawn before.
//!
//! Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a
//! counter and a key into four words. The key comes from seed, step and operator; the counter from sequence,
//! position and column: so a token's dropout mask is the same in any batch and on any number of threads.

use super::float::Float;
use super::path::{Arithmetic, Sweep, sweep};

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const KEY_STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// Four random words for a counter and a key.
#[inline(always)]
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let first = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let second = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counter
}

/// One number in 0..1 with 24 random bits, the same in f32 and f64, for a seed and a counter.
#[inline]
pub fn uniform01<T: Float>(seed: u64, counter: [u32; 4]) -> T {
    from_word(philox(counter, [seed as u32, (seed >> 32) as u32])[0])
}

#[inline(always)]
fn from_word<T: Float>(word: u32) -> T {
    // 24 bits: exact in f32, and never rounded up to 1. Through i32, which has vector conversions everywhere.
    T::from_f64(f64::from((word >> 8) as i32) * (1.0 / f64::from(1 << 24)))
}

/// The random numbers of one operator in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    key: [u32; 2],
    word: u32,
}

impl Stream {
    /// The stream of a seed, a training step and an operator's number.
    pub fn new(seed: u64, step: u64, operator: u32) -> Self {
        let counter = [step as u32, (step >> 32) as u32, operator, u32::MAX];
        let [first, second, word, _] = philox(counter, [seed as u32, (seed >> 32) as u32]);
        Self { key: [first, second], word }
    }

    /// Fills columns `0..out.len()` of the row of a sequence and position with numbers in 0..1, the same in f32
    /// and f64. A shorter row has the start of a longer one.
    pub fn fill_row<T: Float>(&self, sequence: u32, position: u32, out: &mut [T]) {
        sweep(Fill { stream: *self, sequence, position, out });
    }

    /// The same for one column.
    pub fn uniform<T: Float>(&self, sequence: u32, position: u32, column: u32) -> T {
        from_word(philox([column / 4, position, sequence, self.word], self.key)[column as usize % 4])
    }
}

struct Fill<'a, T> {
    stream: Stream,
    sequence: u32,
    position: u32,
    out: &'a mut [T],
}

impl<T: Float> Sweep for Fill<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        const BLOCKS: usize = 32;
        for (chunk, out) in self.out.chunks_mut(4 * BLOCKS).enumerate() {
            let mut words = [[0; 4]; BLOCKS];
            for (i, words) in words[..out.len().div_ceil(4)].iter_mut().enumerate() {
                let block = (chunk * BLOCKS + i) as u32;
                *words = philox([block, self.position, self.sequence, self.stream.word], self.stream.key);
            }
            for (out, &word) in out.iter_mut().zip(words.as_flattened()) {
                *out = from_word(word);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_answers() {
        // From `kat_vectors` of the authors' Random123 library.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let expected = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
        assert_eq!(philox(counter, [0xa409_3822, 0x299f_31d0]), expected);
    }

    #[test]
    fn rows_are_the_same_however_they_are_asked_for() {
        let stream = Stream::new(7, 1 << 40, 3);
        let mut long = vec![0f32; 700];
        stream.fill_row(5, 9, &mut long);
        for len in [0, 1, 3, 4, 127, 128, 129, 699] {
            let mut row = vec![0f64; len];
            stream.fill_row(5, 9, &mut row);
            assert!(row.iter().zip(&long).all(|(&x, &y)| x == f64::from(y)));
        }
        for (j, &x) in long.iter().enumerate() {
            assert_eq!(x, stream.uniform::<f32>(5, 9, j as u32));
        }
        for other in [Stream::new(8, 1 << 40, 3), Stream::new(7, 0, 3), Stream::new(7, 1 << 40, 4)] {
            assert_ne!(stream, other);
        }
        let first = |sequence, position| stream.uniform::<f64>(sequence, position, 0);
        assert!(first(5, 9) != first(9, 5) && first(5, 9) != first(5, 8));
    }

    #[test]
    fn numbers_lie_in_0_1_and_are_spread_evenly() {
        assert_eq!((from_word::<f32>(0), from_word::<f32>(!0)), (0.0, 1.0 - 0.5f32.powi(24)));
        let mut row = vec![0f32; 100_000];
        Stream::new(1, 2, 3).fill_row(0, 0, &mut row);
        let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / row.len() as f64;
        let square = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / row.len() as f64;
        assert!((mean - 0.5).abs() < 5e-3 && (square - 1.0 / 3.0).abs() < 5e-3, "{mean} {square}");
        assert!((0.0..1.0).contains(&uniform01::<f64>(3, [1, 2, 3, 4])));
    }
}
