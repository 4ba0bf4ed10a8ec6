//! The bound of a profile entry: multiply-adds, a cache, memory, or waiting.

use std::fmt;

use crate::executor::observe::profile::{Entry, LoopPhase, Profile};
use crate::kernels::{Bandwidth, bandwidth, peak};
use crate::tensor::DType;

/// The resource that bounds an entry of a [`Profile`], with the fraction of the bound that was reached.
///
/// # The model
/// The model computes the least time that the calls of an entry could take, on all threads together:
///
/// - for their operations, at the highest rate of multiply-adds (measured);
/// - for their bytes, at the highest rate of reading (measured, too) from the *smallest cache that holds all that one
///   call touches*: the second level, the third, or else memory. An entry touches its bytes divided by its calls.
///
/// The longer of the two times is the bound, and the fraction is that time divided by the measured time:
/// `multiply-adds 87 %` means that no kernel could save more than 13 % of the entry, `memory 60 %` that reading these bytes
/// once from memory takes 60 % of it.
///
/// *Waiting* is the bound of a loop's steps outside its calls ([`LoopPhase::Stepping`]), and of an entry that ran on several
/// threads side by side, if one thread was busy less than half as long as another.
///
/// # Its limits
/// - Bytes are the bytes of the operands, once per call. A kernel that reads an operand twice reaches a smaller fraction.
/// - Packed weights count like the weights: the model reads them from the smallest cache that holds all that one call touches.
/// - An operand counts as being in its cache even if other data has displaced it since, so the computed least time may be too
///   short.
/// - `memory >100 %` is a call that needs less than the model assumes: it skipped a part of its operands, as the pooling of
///   last rows does, or found a part of them in a nearer cache.
/// - Operators count one operation for each number that they write, unless they declare otherwise: exponentials and roots
///   are more. Such an entry, and an entry of many small calls, reaches a small fraction of either bound.
/// - Calls on one thread are compared with the rates of all threads.
/// - Writing counts like reading.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Bound {
    /// The multiply-adds of all threads.
    MultiplyAdds(f64),
    /// Reading from the second cache level, which belongs to one thread.
    L2(f64),
    /// Reading from the third cache level, which threads share.
    L3(f64),
    /// Reading from memory.
    Memory(f64),
    /// Threads that wait for each other.
    Waiting,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, reached) = match *self {
            Bound::MultiplyAdds(reached) => ("multiply-adds", reached),
            Bound::L2(reached) => ("L2", reached),
            Bound::L3(reached) => ("L3", reached),
            Bound::Memory(reached) => ("memory", reached),
            Bound::Waiting => return f.pad("waiting"),
        };
        let percent = (100.0 * reached).round();
        match percent > 100.0 {
            true => f.pad(&format!("{name} >100 %")),
            false => f.pad(&format!("{name} {percent} %")),
        }
    }
}

/// The highest rates of this machine's threads together.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Rates {
    /// Operations per second in f32, a multiply-add as two.
    pub f32: f64,
    /// Operations per second in f64.
    pub f64: f64,
    /// Bytes per second from the caches and from memory.
    pub bandwidth: Bandwidth,
}

impl Rates {
    /// The rates of `threads` threads, at most one per core. The first call measures them.
    pub fn of(threads: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let all = threads.clamp(1, cores) as f64;
        Self { f32: all * peak::<f32>(), f64: all * peak::<f64>(), bandwidth: bandwidth(threads) }
    }

    /// Operations per second in a dtype; `None` for a dtype that is no float.
    pub fn operations(&self, dtype: DType) -> Option<f64> {
        match dtype {
            DType::F32 => Some(self.f32),
            DType::F64 => Some(self.f64),
            _ => None,
        }
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bandwidth { l2, l3, memory, l2_size, l3_size } = self.bandwidth;
        let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        write!(
            f,
            "{:.0} GFLOP/s in f32, {:.0} in f64, L2 ({} MiB a thread) {:.0} GB/s, L3 ({} MiB) {:.0} GB/s, memory {:.0} GB/s",
            self.f32 / 1e9,
            self.f64 / 1e9,
            mib(l2_size),
            l2 / 1e9,
            mib(l3_size),
            l3 / 1e9,
            memory / 1e9
        )
    }
}

impl Profile {
    /// The highest rates of this machine, on as many threads as the profile has. The first call measures them.
    pub fn rates(&self) -> Rates {
        Rates::of(self.threads)
    }

    /// An entry's operations per second as a fraction of [`Self::rates`]; `None` if its dtype is no float.
    pub fn of_peak(&self, entry: &Entry) -> Option<f64> {
        self.rates().operations(entry.dtype).map(|peak| entry.flops_per_second() / peak)
    }
}

impl Entry {
    /// The bound of the entry on a machine with these rates; `None` if the entry took no time, or neither computes nor moves
    /// bytes.
    pub fn bound(&self, rates: &Rates) -> Option<Bound> {
        if self.part == LoopPhase::Stepping || self.is_uneven() {
            return Some(Bound::Waiting);
        }
        let taken = self.time.as_secs_f64();
        let bytes = self.cost.read + self.cost.written;
        if taken == 0.0 || (bytes == 0 && self.cost.flops == 0) {
            return None;
        }
        let Bandwidth { l2, l3, memory, l2_size, l3_size } = rates.bandwidth;
        let touched = bytes / self.calls.max(1);
        let (level, rate): (fn(f64) -> Bound, f64) = match touched {
            _ if touched <= l2_size as u64 => (Bound::L2, l2),
            _ if touched <= l3_size as u64 => (Bound::L3, l3),
            _ => (Bound::Memory, memory),
        };
        let reading = bytes as f64 / rate;
        let computing = rates.operations(self.dtype).map_or(0.0, |rate| self.cost.flops as f64 / rate);
        Some(match computing >= reading {
            true => Bound::MultiplyAdds(computing / taken),
            false => level(reading / taken),
        })
    }

    /// Returns whether one thread was busy less than half as long as another beside it.
    fn is_uneven(&self) -> bool {
        let ran = || self.side_by_side.iter().filter(|busy| !busy.is_zero());
        ran().min().zip(ran().max()).is_some_and(|(least, most)| *least * 2 < *most)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::executor::observe::profile::nothing;
    use crate::operator::{Cost, Pass};

    const RATES: Rates = Rates {
        f32: 200e9,
        f64: 100e9,
        bandwidth: Bandwidth { l2: 100e9, l3: 50e9, memory: 20e9, l2_size: 1 << 20, l3_size: 1 << 25 },
    };

    /// An entry of `calls` calls, which took a second.
    fn of(calls: u64, flops: u64, read: u64, written: u64) -> Entry {
        let cost = Cost { flops, read, written };
        Entry {
            calls,
            cost,
            time: Duration::from_secs(1),
            dtype: DType::F32,
            ..nothing("product #0", "product", Pass::Forward)
        }
    }

    #[track_caller]
    fn check(entry: &Entry, expected: Option<Bound>, text: &str) {
        let bound = entry.bound(&RATES);
        assert_eq!(bound, expected);
        assert_eq!(bound.map_or(String::new(), |bound| bound.to_string()), text);
    }

    #[test]
    fn the_longest_time_at_best_is_the_bound() {
        // 0.5 s of operations against 0.1 s of bytes; and in f64, where they take twice as long.
        let product = of(10_000, 100_000_000_000, 8_000_000_000, 2_000_000_000);
        check(&product, Some(Bound::MultiplyAdds(0.5)), "multiply-adds 50 %");
        let double = Entry { dtype: DType::F64, ..product.clone() };
        check(&double, Some(Bound::MultiplyAdds(1.0)), "multiply-adds 100 %");
        // An entry whose dtype is no float has bytes only.
        let ids = Entry { dtype: DType::I64, ..product };
        check(&ids, Some(Bound::L2(0.1)), "L2 10 %");
        // A call that did not touch all of its operands.
        check(&of(10_000, 1, 150_000_000_000, 0), Some(Bound::L3(3.0)), "L3 >100 %");
    }

    #[test]
    fn the_bytes_of_a_call_tell_where_they_are_read() {
        // The same ten billion bytes in calls of 1 MB, 10 MB, 100 MB; a call exactly as large as a cache fits into it.
        check(&of(10_000, 1, 6_000_000_000, 4_000_000_000), Some(Bound::L2(0.1)), "L2 10 %");
        check(&of(1_000, 1, 6_000_000_000, 4_000_000_000), Some(Bound::L3(0.2)), "L3 20 %");
        check(&of(100, 1, 6_000_000_000, 4_000_000_000), Some(Bound::Memory(0.5)), "memory 50 %");
        let full = |more: u64| of(1, 1, (1 << 20) + more, 0).bound(&RATES);
        assert!(matches!(full(0), Some(Bound::L2(_))) && matches!(full(1), Some(Bound::L3(_))));
    }

    #[test]
    fn stepping_and_uneven_threads_wait() {
        let product = of(10, 100_000_000_000, 1000, 1000);
        check(&Entry { part: LoopPhase::Stepping, ..product.clone() }, Some(Bound::Waiting), "waiting");
        let threads = |millis: &[u64]| {
            let side_by_side = millis.iter().map(|&ms| Duration::from_millis(ms)).collect();
            Entry { side_by_side, ..product.clone() }.bound(&RATES)
        };
        assert_eq!(threads(&[100, 49]), Some(Bound::Waiting));
        assert_eq!(threads(&[10, 100, 60]), Some(Bound::Waiting));
        // Even enough; on one thread; and with idle threads beside it.
        for even in [&[100, 50][..], &[100], &[0, 100], &[]] {
            assert_eq!(threads(even), Some(Bound::MultiplyAdds(0.5)), "{even:?}");
        }
    }

    #[test]
    fn what_does_nothing_is_bounded_by_nothing() {
        check(&of(5, 0, 0, 0), None, "");
        check(&Entry { time: Duration::ZERO, ..of(5, 100, 100, 100) }, None, "");
    }
}
