//! The peak read bandwidth of this machine's caches and memory, as a yardstick for profiles.
//!
//! No kernel of this crate is measured: contiguous numbers are read and summed with the widest instructions available,
//! again and again, from as much memory as a level holds. Writing is not measured; it is not faster.

use std::hint::black_box;
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::cpu::asked;
use super::path::{Arithmetic, Sweep, sweep};

/// Sums that grow side by side: the lanes of eight vectors of AVX2, or of four of AVX-512.
const SUMS: usize = 32;
const SAMPLES: usize = 5;
/// The shortest duration of a sample; a sample reads its memory at least once.
const SAMPLE: Duration = Duration::from_micros(800);
/// The most bytes that are read from memory, so that measuring stays short; a larger third level holds them all.
const MOST: usize = 128 << 20;

/// The peak read bandwidth of several threads together, in bytes per second, and the sizes of the caches.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Bandwidth {
    /// Bandwidth from each thread's own cache, the second level.
    pub l2: f64,
    /// Bandwidth from the third level, which the threads share.
    pub l3: f64,
    /// Bandwidth from memory.
    pub memory: f64,
    /// The size of a second level, in bytes.
    pub l2_size: usize,
    /// The part of the third level that these threads have, in bytes; 0 if there is none.
    pub l3_size: usize,
}

/// Measures the read bandwidth of each level with `threads` threads at once, or one per core if there are fewer cores.
///
/// The result is the best of 5 samples of contiguous reads, with the instructions that the kernels use on this CPU. The first
/// call measures on threads of its own, which takes about a tenth of a second and memory for twice the third level, at most
/// 128 MiB, or for eight times the second level of each thread if that is more; later calls return the stored result.
pub fn bandwidth(threads: usize) -> Bandwidth {
    static KNOWN: Mutex<Vec<(usize, Bandwidth)>> = Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let threads = threads.clamp(1, cores);
    // The list stays valid if a thread panics. No thread of rayon's waits here for another task of its own: other threads
    // measure.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = known.iter().find(|(of, _)| *of == threads) {
        return *found;
    }
    let cpu = asked();
    let found = measure(threads, cpu.l2, cpu.l3.saturating_mul(threads));
    known.push((threads, found));
    found
}

fn measure(threads: usize, l2_size: usize, l3_size: usize) -> Bandwidth {
    // A thread's part of each level. Three times the second level is not in it, and in most third levels whatever the
    // threads; twice the third level is in none, nor is eight times the second where there is no third.
    let inner = l2_size / 2;
    let outer = l2_size * 3;
    let all = (l3_size.saturating_mul(2).min(MOST) / threads).max(l2_size * 8);
    // Written, not just allocated: pages that were never written all map to one page.
    let numbers = on_all(threads, &|_| vec![1_u64; all / size_of::<u64>()]);
    let of = |bytes: usize| fastest(&numbers, bytes / size_of::<u64>());
    Bandwidth { l2: of(inner), l3: of(outer), memory: of(all), l2_size, l3_size }
}

/// Calls a function with each thread's number, on all threads at once; on fewer threads where the system starts no more.
fn on_all<T: Send>(threads: usize, run: &(impl Fn(usize) -> T + Sync)) -> Vec<T> {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .filter_map(|thread| std::thread::Builder::new().spawn_scoped(scope, move || run(thread)).ok())
            .collect();
        let own = run(0);
        std::iter::once(own).chain(others.into_iter().filter_map(|other| other.join().ok())).collect()
    })
}

/// Returns the bytes per second of all threads together; each thread reads the first words of its own numbers.
fn fastest(numbers: &[Vec<u64>], words: usize) -> f64 {
    let sample = || {
        let rates = on_all(numbers.len(), &|thread| {
            let numbers = numbers.get(thread).and_then(|own| own.get(..words)).unwrap_or_default();
            let (start, mut bytes) = (Instant::now(), 0);
            while bytes == 0 || start.elapsed() < SAMPLE {
                black_box(sweep(Sum(black_box(numbers))));
                bytes += size_of_val(numbers).max(1);
            }
            bytes as f64 / start.elapsed().as_secs_f64().max(1e-9)
        });
        rates.iter().sum()
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
