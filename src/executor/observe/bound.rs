//! The bound of a profile entry: the resource that limits its speed (multiply-adds, a cache, memory, or waiting).

use std::fmt;

use crate::executor::observe::profile::{Entry, LoopPhase, Profile};
use crate::kernels::{Bandwidth, bandwidth, bf16_peak, int8_peak, peak};
use crate::tensor::DType;

/// The resource that limits the speed of a [`Profile`] entry, with the fraction of its maximum rate that was reached.
///
/// # The model
/// The model computes two minimum times for the calls of an entry, on all threads together:
///
/// - the time for their operations, at the highest measured rate of multiply-adds;
/// - the time for their bytes, at the highest measured rate of reading from the *smallest cache that holds all bytes of one
///   call*: the second level, the third level, or else memory. The bytes of one call are the entry's bytes divided by the
///   number of its calls.
///
/// The longer of the two minimum times decides the bound. The fraction is the longer minimum time divided by the measured time.
/// `multiply-adds 87 %` means that no faster kernel could save more than 13 % of the entry's time. `memory 60 %` means that
/// reading the entry's bytes once from memory takes 60 % of the entry's time.
///
/// *Waiting* is the bound of a loop's time outside its calls ([`LoopPhase::Stepping`]). *Waiting* is also the bound of an entry
/// that several threads ran side by side, if one thread was busy less than half as long as another.
///
/// # Its limits
/// - The model counts the bytes of each operand once per call. A kernel that reads an operand twice therefore reaches a smaller
///   fraction of the bound.
/// - For packed weights, the model counts the bytes of the unpacked weights, as if these bytes were read from the smallest
///   cache that holds all bytes of one call.
/// - The model assumes that other data displaces no operand from its cache. If an operand was displaced, the minimum time is
///   too short.
/// - `memory >100 %` means that a call read fewer bytes than the model assumes: it skipped part of its operands (as pooling of
///   last rows does), or found part of the operands in a faster cache.
/// - An operator counts one operation per number that it writes, unless it declares another cost, so exponentials and roots are
///   underestimated. An entry with exponentials or roots, or with many small calls, reaches only a small fraction of every
///   bound.
/// - A call on one thread is compared with the maximum rate of all threads together.
/// - Writing a byte counts like reading a byte.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Bound {
    /// Multiply-adds limit the entry, at the rate of all threads.
    MultiplyAdds(f64),
    /// Reading from the second cache level limits the entry; each core has its own cache.
    L2(f64),
    /// Reading from the third cache level limits the entry; all cores share the cache.
    L3(f64),
    /// Reading from memory limits the entry.
    Memory(f64),
    /// Threads that wait for each other limit the entry.
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

/// The maximum rates of all threads of this machine together.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Rates {
    /// Operations per second in f32; a multiply-add counts as two operations.
    pub(crate) f32: f64,
    /// Operations per second in f32 of the slowest thread and of the fastest thread, while all threads compute.
    pub(crate) f32_by_thread: [f64; 2],
    /// Operations per second in f64; a multiply-add counts as two operations.
    pub(crate) f64: f64,
    /// Operations per second in matrix products of bf16 numbers; `None` if the CPU has no fast unit for them.
    pub(crate) bf16: Option<f64>,
    /// Operations per second in matrix products of 8-bit integers.
    pub(crate) int8: f64,
    /// Bytes per second from the second cache level, from the third cache level, and from memory.
    pub bandwidth: Bandwidth,
}

impl Rates {
    /// Returns the maximum rates of `threads` threads at once, but of at most one thread per core. The first call of this
    /// function for a number of threads measures the rates.
    pub fn of(threads: usize) -> Self {
        let in_f32 = peak(threads);
        Self {
            f32: in_f32.all,
            f32_by_thread: [in_f32.slowest, in_f32.fastest],
            f64: in_f32.all / 2.0,
            bf16: bf16_peak(threads).map(|rate| rate.all),
            int8: int8_peak(threads).all,
            bandwidth: bandwidth(threads),
        }
    }

    /// Returns the operations per second in a dtype; `None` for a dtype in which this CPU does not multiply fast.
    pub(crate) fn operations(&self, dtype: DType) -> Option<f64> {
        match dtype {
            DType::F32 => Some(self.f32),
            DType::F64 => Some(self.f64),
            DType::BF16 => self.bf16,
            DType::I8 => Some(self.int8),
            _ => None,
        }
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bandwidth { l2, l3, memory, l2_size, l3_size } = self.bandwidth;
        let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        let bf16 = self.bf16.map_or_else(String::new, |rate| format!("{:.0} in bf16, ", rate / 1e9));
        let [slowest, fastest] = self.f32_by_thread;
        write!(
            f,
            "{:.0} GFLOP/s in f32 (slowest thread {:.0}, fastest {:.0}), {:.0} in f64, {bf16}{:.0} in int8, L2 ({} MiB a thread) {:.0} GB/s, L3 ({} MiB) {:.0} GB/s, memory {:.0} GB/s",
            self.f32 / 1e9,
            slowest / 1e9,
            fastest / 1e9,
            self.f64 / 1e9,
            self.int8 / 1e9,
            mib(l2_size),
            l2 / 1e9,
            mib(l3_size),
            l3 / 1e9,
            memory / 1e9
        )
    }
}

impl Profile {
    /// Returns the maximum rates of this machine, with the profile's number of threads. The first call of this function
    /// measures the rates.
    pub fn rates(&self) -> Rates {
        Rates::of(self.threads)
    }

    /// Returns the entry's operations per second as a fraction of [`Self::rates`]; `None` if the rates have none for the entry's
    /// dtype.
    pub fn of_peak(&self, entry: &Entry) -> Option<f64> {
        self.rates().operations(entry.dtype).map(|peak| entry.flops_per_second() / peak)
    }
}

impl Entry {
    /// Returns the bound of the entry on a machine with these rates; `None` if the entry took no time, or has neither
    /// operations nor bytes.
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

    /// Returns whether one thread was busy less than half as long as another thread of the entry.
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
        f32_by_thread: [80e9, 120e9],
        f64: 100e9,
        bf16: Some(400e9),
        int8: 625e9,
        bandwidth: Bandwidth { l2: 100e9, l3: 50e9, memory: 20e9, l2_size: 1 << 20, l3_size: 1 << 25 },
    };

    /// Returns an entry of `calls` calls that took one second together.
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
        // In f32, operations need 0.5 s and bytes 0.1 s; in f64, operations need twice as long.
        let product = of(10_000, 100_000_000_000, 8_000_000_000, 2_000_000_000);
        check(&product, Some(Bound::MultiplyAdds(0.5)), "multiply-adds 50 %");
        let double = Entry { dtype: DType::F64, ..product.clone() };
        check(&double, Some(Bound::MultiplyAdds(1.0)), "multiply-adds 100 %");
        // In bf16 and in 8-bit integers, they need less; on a CPU without a unit for bf16, there is no bound for them.
        let half = Entry { dtype: DType::BF16, ..product.clone() };
        check(&half, Some(Bound::MultiplyAdds(0.25)), "multiply-adds 25 %");
        let slow = half.bound(&Rates { bf16: None, ..RATES });
        assert_eq!(slow, Some(Bound::L2(0.1)));
        let codes = Entry { dtype: DType::I8, ..product.clone() };
        check(&codes, Some(Bound::MultiplyAdds(0.16)), "multiply-adds 16 %");
        // An entry whose dtype is not a float has a bound for bytes only.
        let ids = Entry { dtype: DType::I64, ..product };
        check(&ids, Some(Bound::L2(0.1)), "L2 10 %");
        // If an entry takes less time than reading its operands would take, its calls did not read all operands.
        check(&of(10_000, 1, 150_000_000_000, 0), Some(Bound::L3(3.0)), "L3 >100 %");
    }

    #[test]
    fn the_rates_name_the_slowest_thread() {
        let text = RATES.to_string();
        assert!(text.starts_with("200 GFLOP/s in f32 (slowest thread 80, fastest 120), 100 in f64, "));
    }

    #[test]
    fn the_bytes_of_a_call_tell_where_they_are_read() {
        // Ten billion bytes in calls of 1 MB, 10 MB and 100 MB; a call exactly as large as a cache counts as fitting into it.
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
        // No thread waits if it is busy at least half as long as the others, if it is alone, or if the other threads are idle.
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
