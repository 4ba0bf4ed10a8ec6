//! The order of samples in an epoch. Samples in memory are permuted; the samples of a stream are drawn from a bounded
//! buffer.
//!
//! Each random number depends only on the seed, the epoch and the position, not on earlier random numbers, so that an
//! epoch can be resumed at any position.

use super::{Fingerprint, Sample, SampleIterator};
use crate::error::Result;
use crate::kernels::philox;

/// The random numbers of one epoch, as a function of the position in the epoch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draws {
    key: [u32; 2],
}

impl Draws {
    pub(super) fn new(seed: u64, epoch: u64) -> Self {
        // The key is a hash of the seed, because the model may use the same seed for its own random numbers.
        let key = Fingerprint::default().text("order").number(seed).number(epoch).finish();
        Self { key: [key as u32, (key >> 32) as u32] }
    }

    /// Returns the random number from 0 to `bound` - 1 for the position `index`; 0 if `bound` is 0.
    fn below(self, index: u64, bound: usize) -> usize {
        let [low, high, ..] = philox([index as u32, (index >> 32) as u32, 0, 0], self.key);
        let word = u128::from(high) << 32 | u128::from(low);
        // At most `bound` of the 2^64 random words are distributed unevenly; this bias is too small to measure.
        ((word * bound as u128) >> 64) as usize
    }
}

/// Returns the numbers from 0 to `n` - 1 in the random order of the epoch.
pub(super) fn permutation(draws: Draws, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, draws.below(i as u64, i + 1));
    }
    order
}

/// The size of a shuffle buffer: a number of samples, and the memory of the samples in bytes. The buffer is filled
/// until it reaches one of these two limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct BufferSize {
    pub(super) samples: usize,
    pub(super) bytes: usize,
}

/// A shuffle buffer: the iterator returns a random sample of the buffer, and refills the buffer with the next samples
/// of the stream.
pub(super) struct Buffer {
    samples: SampleIterator,
    draws: Draws,
    room: BufferSize,
    held: Vec<Sample>,
    bytes: usize,
    drawn: u64,
}

impl Buffer {
    pub(super) fn new(samples: SampleIterator, draws: Draws, room: BufferSize) -> Self {
        Self { samples, draws, room, held: Vec::new(), bytes: 0, drawn: 0 }
    }

    fn is_full(&self) -> bool {
        !self.held.is_empty() && (self.held.len() >= self.room.samples || self.bytes >= self.room.bytes)
    }
}

impl Iterator for Buffer {
    type Item = Result<Sample>;

    fn next(&mut self) -> Option<Result<Sample>> {
        while !self.is_full() {
            match self.samples.next() {
                Some(Ok(mut sample)) => {
                    if self.room.bytes < usize::MAX {
                        sample.shrink();
                    }
                    self.bytes += sample.buffered_bytes();
                    self.held.push(sample);
                }
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        if self.held.is_empty() {
            return None;
        }
        let index = self.draws.below(self.drawn, self.held.len());
        self.drawn += 1;
        let sample = self.held.swap_remove(index);
        self.bytes = self.bytes.saturating_sub(sample.buffered_bytes());
        Some(Ok(sample))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_about_as_frequent() {
        let mut seen = std::collections::HashMap::new();
        for epoch in 0..24_000 {
            *seen.entry(permutation(Draws::new(5, epoch), 4)).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 24);
        // The accepted counts are within five standard deviations of the expected count 1000.
        assert!(seen.values().all(|n| (845..1155).contains(n)), "{seen:?}");
    }

    #[test]
    fn a_buffer_holds_no_more_than_it_has_room_for() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU64, Ordering};
        let read = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&read);
        let samples = (0..100).map(move |number| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(Sample::new(number, []))
        });
        let draws = Draws::new(1, 2);
        let buffer = Buffer::new(Box::new(samples), draws, BufferSize { samples: 10, bytes: usize::MAX });
        let mut numbers = Vec::new();
        for (given, sample) in (1..).zip(buffer) {
            let number = sample.unwrap().number;
            assert!(number < given + 9, "a sample cannot come before it is read");
            assert!(read.load(Ordering::Relaxed) <= given + 9);
            numbers.push(number);
        }
        assert!(!numbers.is_sorted());
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..100));
    }
}
