//! The peak read bandwidth of this machine's caches and memory, as an upper limit for the speed of kernels in profiles.
//!
//! The measurement runs none of this crate's kernels. Each thread reads and sums contiguous numbers repeatedly, with the
//! widest vector instructions of the CPU, from a block of memory that fits into the measured cache level. Only reading is
//! measured, since writing is not faster than reading.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::at_once::{Measurements, known, on_all};
use super::cpu::asked;
use super::path::{Arithmetic, Sweep, sweep};

/// The number of independent partial sums: the elements of eight AVX2 vectors, or of four AVX-512 vectors.
const SUMS: usize = 32;
const SAMPLES: usize = 5;
/// The minimum duration of a sample; each sample reads its block of memory at least once.
const SAMPLE: Duration = Duration::from_micros(800);
/// The maximum number of bytes that the threads read together to measure main memory. This maximum keeps the
/// measurement short. If the third-level cache is larger than this maximum, the measured bandwidth of main memory is
/// too high.
const MOST: usize = 128 << 20;

/// The peak read bandwidth of several threads together, in bytes per second, and the sizes of the caches.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Bandwidth {
    /// Bandwidth of the second-level cache, which each core has for itself.
    pub l2: f64,
    /// Bandwidth of the third-level cache, which the cores share.
    pub l3: f64,
    /// Bandwidth of main memory.
    pub memory: f64,
    /// The size of one core's second-level cache, in bytes.
    pub(crate) l2_size: usize,
    /// The size in bytes of the third-level cache that all measured threads have together; 0 if the CPU has no
    /// third-level cache.
    pub(crate) l3_size: usize,
}

/// Measures the read bandwidth of the second and third cache levels and of main memory, with `threads` threads at once,
/// at most one per core.
///
/// The result is the best of 5 samples of contiguous reads, with the instructions that the kernels use on this CPU. The
/// first call for a number of threads takes about a tenth of a second and starts threads of its own; later calls return the
/// stored result. The threads together allocate twice the size of the third-level cache, but at most 128 MiB; each thread
/// allocates at least eight times the size of the second-level cache.
pub fn bandwidth(threads: usize) -> Bandwidth {
    static KNOWN: Measurements<Bandwidth> = Mutex::new(Vec::new());
    known(&KNOWN, threads, |threads| {
        let cpu = asked();
        measure(threads, cpu.l2, cpu.l3.saturating_mul(threads))
    })
}

fn measure(threads: usize, l2_size: usize, l3_size: usize) -> Bandwidth {
    // The numbers of bytes that each thread reads to measure the second level (`inner`), the third level (`outer`) and main
    // memory (`all`). Half the size of the second-level cache fits into that cache. Three times the size of the
    // second-level cache exceeds that cache, but fits into most third-level caches, for any number of threads. Twice the size
    // of the third-level cache fits into no cache. Without a third level, eight times the size of the second-level cache fits
    // into no cache.
    let inner = l2_size / 2;
    let outer = l2_size * 3;
    let all = (l3_size.saturating_mul(2).min(MOST) / threads).max(l2_size * 8);
    // The memory is written, not just allocated: pages that were never written all map to one page.
    let numbers = on_all((0..threads).map(|_| || vec![1_u64; all / size_of::<u64>()]));
    let seconds = |bytes: usize| fastest(&numbers, bytes / size_of::<u64>());
    Bandwidth { l2: seconds(inner), l3: seconds(outer), memory: seconds(all), l2_size, l3_size }
}

/// Returns the number of bytes per second that all threads read together, in the best sample. Each thread reads the
/// first `words` numbers of its own list.
fn fastest(numbers: &[Vec<u64>], words: usize) -> f64 {
    let sample = || {
        let read = |numbers: &Vec<u64>| {
            let numbers = numbers.get(..words).unwrap_or_default();
            let (start, mut bytes) = (Instant::now(), 0);
            while bytes == 0 || start.elapsed() < SAMPLE {
                black_box(sweep(Sum(black_box(numbers))));
                bytes += size_of_val(numbers).max(1);
            }
            bytes as f64 / start.elapsed().as_secs_f64().max(1e-9)
        };
        on_all(numbers.iter().map(|numbers| move || read(numbers))).iter().sum()
    };
    (0..SAMPLES).map(|_| sample()).fold(0.0, f64::max)
}

struct Sum<'a>(&'a [u64]);

impl Sweep for Sum<'_> {
    type Output = u64;
    const PORTABLE: bool = false;

    #[inline(always)]
    fn run<A: Arithmetic>(self) -> u64 {
        let (chunks, rest) = self.0.as_chunks::<SUMS>();
        let mut sums = [0_u64; SUMS];
        for chunk in chunks {
            for (sum, number) in sums.iter_mut().zip(chunk) {
                *sum = sum.wrapping_add(*number);
            }
        }
        sums.iter().chain(rest).fold(0, |all, &sum| all.wrapping_add(sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::path::{Path, sweep_on};

    #[test]
    fn it_is_measured_once() {
        let first = bandwidth(1);
        for rate in [first.l2, first.l3, first.memory] {
            assert!(rate.is_finite() && rate > 1e6, "{first:?}");
        }
        assert_eq!(bandwidth(1), first);
    }

    #[test]
    fn every_number_is_read_on_every_path() {
        for path in Path::available() {
            for len in [0, 1, SUMS - 1, SUMS, 3 * SUMS + 5] {
                let numbers: Vec<u64> = (0..len).map(|i| 1 << (i % 60)).collect();
                let sum = numbers.iter().fold(0, |all: u64, &n| all.wrapping_add(n));
                assert_eq!(sweep_on(path, Sum(&numbers)), sum, "{path:?}, {len}");
            }
        }
    }
}
