//! Random numbers that depend only on the place of their use (seed, step, operator, sequence, position), and not on earlier
//! draws.
//!
//! The generator Philox 4x32-10 computes four words from a counter and a key (Salmon, Moraes, Dror, Shaw: "Parallel random
//! numbers: as easy as 1, 2, 3", SC 2011). Philox hashes seed, step, operator, sequence and position into the key of a row;
//! the counter contains the column. The dropout mask of a token is therefore the same in any batch and on any number of
//! threads.

use super::float::Float;
use super::path::{Arithmetic, Sweep, sweep};

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const KEY_STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// Returns four random words for a counter and a key.
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

/// Returns a number in 0..1 with 24 random bits for a seed and a counter; f32 and f64 give the same number.
#[inline]
pub fn uniform01<T: Float>(seed: u64, counter: [u32; 4]) -> T {
    from_word(philox(counter, [seed as u32, (seed >> 32) as u32])[0])
}

#[inline(always)]
fn from_word<T: Float>(word: u32) -> T {
    // A number of 24 bits is exact in f32 and never rounds up to 1. The code converts from i32, since every CPU has vector
    // instructions for this conversion.
    T::from_f64(f64::from((word >> 8) as i32) * (1.0 / f64::from(1 << 24)))
}

/// The identity of a row of random numbers: the place in a training where the row is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowStream {
    /// The seed of the run.
    pub seed: u64,
    /// The number of the training step.
    pub step: u64,
    /// The id of the operator that draws; each id is unique in the program.
    pub operator: u64,
    /// The id of the sequence; the id does not depend on the batch that has the sequence.
    pub sequence: u64,
    /// The position of the row in its sequence.
    pub position: u64,
}

impl RowStream {
    /// Returns the key of a row and three words of the counter; the fourth word of the counter is the index of a block of
    /// columns.
    fn key(&self) -> ([u32; 2], [u32; 3]) {
        let chain =
            |a: u64, b: u64, key| philox([a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32], key);
        let [k0, k1, spare, _] =
            chain(self.step, self.operator, [self.seed as u32, (self.seed >> 32) as u32]);
        let [r0, r1, r2, r3] = chain(self.sequence, self.position, [k0, k1]);
        ([r0, r1], [r2, r3, spare])
    }
}

/// Fills a row with numbers in 0..1, each of which has 24 random bits; f32 and f64 get the same numbers. The number in a column
/// does not depend on the length of the row.
///
/// ```
/// use unpadded::kernels::random::{RowStream, fill_uniform};
/// let stream = RowStream { seed: 1, sequence: 7, ..RowStream::default() };
/// let (mut short, mut long) = ([0.0f64; 3], [0.0f32; 5]);
/// fill_uniform(stream, &mut short);
/// fill_uniform(stream, &mut long);
/// assert_eq!(short, [long[0], long[1], long[2]].map(f64::from));
/// ```
pub fn fill_uniform<T: Float>(stream: RowStream, out: &mut [T]) {
    let (key, row) = stream.key();
    sweep(Fill { key, row, out });
}

/// Fills a row with numbers in 0..1 for operators that need more than 24 random bits: each number has 53 random bits, from two
/// words. The number in a column does not depend on the length of the row.
///
/// ```
/// use unpadded::kernels::random::{RowStream, fill_uniform_53};
/// let stream = RowStream { seed: 1, sequence: 7, ..RowStream::default() };
/// let (mut short, mut long) = ([0.0; 3], [0.0; 5]);
/// fill_uniform_53(stream, &mut short);
/// fill_uniform_53(stream, &mut long);
/// assert_eq!(short, long[..3]);
/// ```
pub fn fill_uniform_53(stream: RowStream, out: &mut [f64]) {
    let (key, [a, b, c]) = stream.key();
    for (block, out) in out.chunks_mut(2).enumerate() {
        let words = philox([block as u32, a, b, c], key);
        for (number, pair) in out.iter_mut().zip(words.chunks_exact(2)) {
            let word = u64::from(pair[0]) << 32 | u64::from(pair[1]);
            // A number of 53 bits is exact in f64 and never rounds up to 1.
            *number = (word >> 11) as f64 / (1u64 << 53) as f64;
        }
    }
}

struct Fill<'a, T> {
    key: [u32; 2],
    row: [u32; 3],
    out: &'a mut [T],
}

impl<T: Float> Sweep for Fill<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        const BLOCKS: usize = 32;
        for (chunk, out) in self.out.chunks_mut(4 * BLOCKS).enumerate() {
            // A block has four words. The words are stored in four arrays, one for each position in a block, so that
            // the blocks become the lanes of a vector. The loop computes all blocks, even unused ones, so that its
            // length is a constant.
            let mut words = [[0; BLOCKS]; 4];
            let [w0, w1, w2, w3] = &mut words;
            for i in 0..BLOCKS {
                let counter = [(chunk * BLOCKS + i) as u32, self.row[0], self.row[1], self.row[2]];
                [w0[i], w1[i], w2[i], w3[i]] = philox(counter, self.key);
            }
            let mut numbers = [T::ZERO; 4 * BLOCKS];
            for (i, numbers) in numbers.chunks_exact_mut(4).enumerate() {
                for (number, words) in numbers.iter_mut().zip(&words) {
                    *number = from_word(words[i]);
                }
            }
            out.copy_from_slice(&numbers[..out.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_answers() {
        // The expected words are from `kat_vectors` of the authors' Random123 library.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let expected = [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1];
        assert_eq!(philox(counter, [0xa409_3822, 0x299f_31d0]), expected);
    }

    const STREAM: RowStream = RowStream { seed: 7, step: 1 << 40, operator: 3, sequence: 5, position: 9 };

    #[test]
    fn rows_are_the_same_however_they_are_asked_for() {
        let mut long = vec![0f32; 700];
        fill_uniform(STREAM, &mut long);
        for len in [0, 1, 3, 4, 127, 128, 129, 699] {
            let mut row = vec![0f64; len];
            fill_uniform(STREAM, &mut row);
            assert!(row.iter().zip(&long).all(|(&x, &y)| x == f64::from(y)));
        }
        let (key, [a, b, c]) = STREAM.key();
        for (j, &x) in long.iter().enumerate() {
            assert_eq!(x, from_word::<f32>(philox([j as u32 / 4, a, b, c], key)[j % 4]));
        }
    }

    #[test]
    fn numbers_of_53_bits_lie_in_0_1_and_use_them_all() {
        let mut row = vec![0.0; 10_001];
        fill_uniform_53(STREAM, &mut row);
        assert!(row.iter().all(|x| (0.0..1.0).contains(x)));
        let words: Vec<u64> = row.iter().map(|x| (x * (1u64 << 53) as f64) as u64).collect();
        for bit in 0..53 {
            let set = words.iter().filter(|&word| word >> bit & 1 == 1).count();
            assert!((4_700..5_300).contains(&set), "bit {bit}: {set}");
        }
        for len in [0, 1, 2, 3, 4_000] {
            let mut short = vec![0.0; len];
            fill_uniform_53(STREAM, &mut short);
            assert_eq!(short, row[..len]);
        }
    }

    #[test]
    fn every_part_of_a_stream_matters() {
        let others = [
            STREAM,
            RowStream { seed: 7 | 1 << 32, ..STREAM },
            RowStream { step: 0, ..STREAM },
            RowStream { operator: 1 << 33, ..STREAM },
            RowStream { sequence: 9, position: 5, ..STREAM },
            RowStream { position: 1 << 60, ..STREAM },
        ];
        let first = others.map(|stream| {
            let mut x = [0f32; 2];
            fill_uniform(stream, &mut x);
            x.map(f32::to_bits)
        });
        for (i, x) in first.iter().enumerate() {
            assert!(!first[..i].contains(x), "stream {i}");
        }
    }

    #[test]
    fn numbers_lie_in_0_1_and_are_spread_evenly() {
        assert_eq!((from_word::<f32>(0), from_word::<f32>(!0)), (0.0, 1.0 - 0.5f32.powi(24)));
        let mut row = vec![0f32; 100_000];
        fill_uniform(STREAM, &mut row);
        let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / row.len() as f64;
        let square = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / row.len() as f64;
        assert!((mean - 0.5).abs() < 5e-3 && (square - 1.0 / 3.0).abs() < 5e-3, "{mean} {square}");
        assert!((0.0..1.0).contains(&uniform01::<f64>(3, [1, 2, 3, 4])));
    }
}
