//! Divides work between two threads by their measured speeds. On a shared machine or on a CPU with fast and slow cores, one
//! thread may be slower than the other; if both had half of the work, the fast thread would wait.
//!
//! Each call that both threads of a pool share measures the time of its two parts, and the next calls are cut at the ratio of
//! the speeds. No result depends on where a call is cut. With more than two threads, rayon does not show which thread gets
//! which part, so the work is divided evenly, and columns are divided into several parts a thread ([`queued`]).

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::fork::join;

/// The time of a part below which the measured speed is too inexact.
const MEASURED: Duration = Duration::from_micros(100);
/// The maximum ratio of the two speeds.
const MOST: f32 = 4.0;

/// The speed of the pool's first thread divided by the speed of its second thread, as the bits of an `f32`.
static RATIO: AtomicU32 = AtomicU32::new(0x3f80_0000);
/// The ratio that [`force`] set, as the bits of an `f32`; 0 if none is set.
static FORCED: AtomicU32 = AtomicU32::new(0);

/// Sets the ratio of the speeds for all later calls, of any number of threads, for tests. For NaN, each call gets another
/// ratio; 0 ends the setting.
#[doc(hidden)]
#[cfg(any(test, feature = "internals"))]
pub fn force(ratio: f32) {
    FORCED.store(ratio.to_bits(), Relaxed);
}

/// Returns the number of the calling thread if the thread belongs to a pool of two threads.
fn of_two() -> Option<usize> {
    rayon::current_thread_index().filter(|_| rayon::current_num_threads() == 2)
}

/// Returns the share of the work for the first `left` of `threads` threads, from 0 to 1. The calling thread is the first of
/// these threads.
pub fn share(left: usize, threads: usize) -> f32 {
    let share_of = |ratio: f32| ratio / (1.0 + ratio);
    match FORCED.load(Relaxed) {
        0 => match of_two().filter(|_| threads == 2) {
            Some(0) => share_of(f32::from_bits(RATIO.load(Relaxed))),
            Some(_) => share_of(1.0 / f32::from_bits(RATIO.load(Relaxed))),
            None => left as f32 / threads as f32,
        },
        forced if f32::from_bits(forced).is_nan() => {
            static CALLS: AtomicU32 = AtomicU32::new(0);
            let hash = CALLS.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9);
            share_of(MOST.powf((hash >> 8) as f32 / (1 << 23) as f32 - 1.0))
        }
        forced => share_of(f32::from_bits(forced)),
    }
}

/// Returns how many of `len` units of work the first `left` of `threads` threads get: at least one, and at most all but one,
/// if there are at least two units.
pub fn boundary(len: usize, left: usize, threads: usize) -> usize {
    let even = FORCED.load(Relaxed) == 0 && (threads != 2 || of_two().is_none());
    let at = if even { len * left / threads } else { (len as f32 * share(left, threads)).round() as usize };
    at.clamp(len.min(1), len.saturating_sub(1).max(len.min(1)))
}

/// Returns into how many parts `threads` threads divide columns. More than two threads get several parts each, which rayon hands
/// to the threads that are free first. Each part of columns reads only its part of the weights, so small parts cost little.
pub(super) fn queued(threads: usize) -> usize {
    if threads > 2 { 4 * threads } else { threads }
}

/// Returns the maximum number of `len` units that one of `threads` threads gets.
pub fn most(len: usize, threads: usize) -> usize {
    if threads == 2 { len - len / (1 + MOST as usize) } else { len.div_ceil(threads) }
}

/// Runs two closures as [`join`] does, and measures the speeds of the two threads: the first closure does `at` of `len` units
/// of the work.
pub fn join_measured<A: Send, B: Send>(
    (at, len): (usize, usize),
    a: impl FnOnce() -> A + Send,
    b: impl FnOnce() -> B + Send,
) -> (A, B) {
    let Some(own) = of_two() else { return join(a, b) };
    let clock = || (rayon::current_thread_index(), Instant::now());
    let ((x, left), (y, right)) = join(
        || {
            let (_, begun) = clock();
            (a(), begun.elapsed())
        },
        || {
            let (thread, begun) = clock();
            (b(), (begun.elapsed(), thread))
        },
    );
    let (right, other) = right;
    if other.is_some_and(|other| other != own) {
        let old = f32::from_bits(RATIO.load(Relaxed));
        let old = if own == 0 { old } else { 1.0 / old };
        if let Some(next) = measured(old, (at, len), [left, right]) {
            RATIO.store((if own == 0 { next } else { 1.0 / next }).to_bits(), Relaxed);
        }
    }
    (x, y)
}

/// Returns the next ratio of two speeds: half of the way, on a logarithmic scale, from the old ratio to the ratio of a call in
/// which `at` of `len` units took the first time, and the others the second time. Returns `None` if a time is too short.
fn measured(old: f32, (at, len): (usize, usize), times: [Duration; 2]) -> Option<f32> {
    let [left, right] = times.map(|time| time.as_secs_f32());
    let ratio = at as f32 * right / ((len - at) as f32 * left);
    let is_exact = times.iter().all(|&time| time >= MEASURED) && at > 0 && at < len;
    is_exact.then(|| (old * ratio).sqrt().clamp(1.0 / MOST, MOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_the_speeds_and_a_wrong_measure_is_forgotten() {
        const LEN: usize = 8000;
        // Begins with a wrong ratio; the first thread takes 1 µs per unit, the second `slower` times as long.
        for (slower, expected) in [(1, 4000), (3, 6000), (100, 6400)] {
            let mut ratio = 1.0 / MOST;
            let at = |ratio: f32| (LEN as f32 * ratio / (1.0 + ratio)) as usize;
            for _ in 0..10 {
                let at = at(ratio);
                let times = [at, (LEN - at) * slower].map(|time| Duration::from_micros(time as u64));
                ratio = measured(ratio, (at, LEN), times).unwrap();
            }
            assert!(at(ratio).abs_diff(expected) < 40, "{} of {LEN} for {slower}", at(ratio));
        }
        let short = [Duration::from_micros(90), Duration::from_micros(900)];
        assert_eq!([measured(1.0, (9, 10), short), measured(1.0, (10, 10), short.map(|t| t * 9))], [None; 2]);
        assert_eq!(
            [boundary(10, 1, 3), boundary(10, 2, 3), boundary(1, 1, 2), boundary(0, 1, 2), boundary(2, 1, 7)],
            [3, 6, 1, 0, 1]
        );
    }
}
