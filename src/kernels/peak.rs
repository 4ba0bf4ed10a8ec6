//! The peak rate of multiply-adds of this machine, as an upper limit for the speed of kernels in profiles.
//!
//! All threads are measured at once: on a shared machine, the cores often differ, and a core may be slower while the others work.
//!
//! In f32, the measurement runs none of this crate's kernels and reads no memory. Its loop has only multiply-adds from register to
//! register, and has enough independent multiply-adds that no multiply-add waits for the result of an earlier one. No kernel of
//! the crate can be faster than this loop. In bf16 and in 8-bit integers, the innermost loop of the products is measured.

use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::at_once::{Measurements, known, on_all};
use super::engine::tile_loop;
use super::int8::code_loop;
use super::path::{MatrixUnit, Path, Precision};
use super::tile::{Array, MAX_LANES, Vector, lanes};

/// The number of independent sums in the loop. A unit of the CPU starts one multiply-add per cycle and finishes it about
/// four cycles later. A core has two such units; the largest ARM cores have four. All sums and their two factors fit into
/// the vector registers.
const SUMS: usize = if cfg!(target_arch = "aarch64") { 24 } else { 13 };
const SAMPLES: usize = 20;
/// The minimum time of a sample, and the number of runs of a loop between two readings of the clock.
const SAMPLE: Duration = Duration::from_millis(1);
const RUNS: usize = 16;
/// The number of multiply-adds per sum in a run; a run takes a few hundredths of a millisecond.
const ROUNDS: usize = 10_000;

/// The operations per second of threads that run the same loop at once; a multiply-add counts as two operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeakRate {
    /// The rate of all threads together.
    pub all: f64,
    /// The rate of the slowest thread.
    pub slowest: f64,
    /// The rate of the fastest thread.
    pub fastest: f64,
}

/// Returns the peak rate in f32 of `threads` threads at once, but of at most one thread per core.
///
/// The result is the best of 20 samples of independent multiply-adds on full vectors in registers, with the instructions
/// that the kernels use on this CPU. The first call for a number of threads measures the rate, in about twenty milliseconds;
/// later calls return the stored rate. In f64, the rate is half of the f32 rate, since a vector holds half as many f64 numbers.
pub fn peak(threads: usize) -> PeakRate {
    static KNOWN: Measurements<PeakRate> = Mutex::new(Vec::new());
    known(&KNOWN, threads, |threads| best(threads, || register_loop(Path::best())))
}

/// Returns the peak rate of `threads` threads in products of bf16 numbers, by the unit of this CPU; `None` if the CPU has no fast
/// unit. The result is the best of 20 samples of the innermost loop of the products, on operands in the nearest cache. The first
/// call for a number of threads measures.
pub fn bf16_peak(threads: usize) -> Option<PeakRate> {
    static KNOWN: Measurements<PeakRate> = Mutex::new(Vec::new());
    let unit = MatrixUnit::of_cpu(Precision::Bf16)?;
    Some(known(&KNOWN, threads, |threads| best(threads, || tile_loop(unit))))
}

/// Returns the peak rate of `threads` threads in products of 8-bit integers, measured like [`bf16_peak`].
pub fn int8_peak(threads: usize) -> PeakRate {
    static KNOWN: Measurements<PeakRate> = Mutex::new(Vec::new());
    known(&KNOWN, threads, |threads| best(threads, code_loop))
}

/// Measures the speed of the machine between two steps of a bench, on all threads of the bench at once.
#[cfg(feature = "internals")]
pub struct Probe(Vec<Box<dyn FnMut() -> usize + Send>>);

#[cfg(feature = "internals")]
impl Probe {
    /// Allocates the operands of `threads` threads, but of at most one thread per core.
    pub fn new(threads: usize) -> Self {
        let new = |_| Box::new(tile_loop(MatrixUnit::F32)) as _;
        Self((0..super::at_once::at_most_cores(threads)).map(new).collect())
    }

    /// Runs the innermost loop of the products in f32 for about 0.6 milliseconds, on operands in the nearest cache. A core whose
    /// other hyperthread is busy is slower in this loop, and in the products of a step.
    pub fn rate(&mut self) -> PeakRate {
        sample(&mut self.0, Duration::from_micros(600))
    }
}

/// Returns the rate of the best of 20 samples, in which `threads` threads each run a loop of their own.
fn best<L: FnMut() -> usize + Send>(threads: usize, new: impl Fn() -> L) -> PeakRate {
    let mut loops: Vec<L> = (0..threads).map(|_| new()).collect();
    let mut best = sample(&mut loops, SAMPLE);
    for _ in 1..SAMPLES {
        let next = sample(&mut loops, SAMPLE);
        if next.all > best.all {
            best = next;
        }
    }
    best
}

/// Runs the loops on a thread each, all at once, for at least `time`. A run of a loop returns the number of its operations.
fn sample(loops: &mut [impl FnMut() -> usize + Send], time: Duration) -> PeakRate {
    let rates = on_all(loops.iter_mut().map(|run| {
        move || {
            let (clock, mut operations) = (Instant::now(), 0);
            while clock.elapsed() < time {
                operations += (0..RUNS).map(|_| run()).sum::<usize>();
            }
            operations as f64 / clock.elapsed().as_secs_f64().max(1e-9)
        }
    }));
    PeakRate {
        all: rates.iter().sum(),
        slowest: rates.iter().copied().fold(f64::INFINITY, f64::min),
        fastest: rates.iter().copied().fold(0.0, f64::max),
    }
}

/// Returns the loop of multiply-adds in registers, on a path that this CPU can run.
fn register_loop(path: Path) -> impl FnMut() -> usize {
    let run = loop_on(path);
    move || {
        // The sums approach shift / (1 - scale), so no sum overflows or becomes subnormal.
        let factors = Factors { scale: [0.5; MAX_LANES], shift: [0.25; MAX_LANES] };
        let mut total = [0.0; MAX_LANES];
        // SAFETY: the caller passes a path that this CPU can run.
        unsafe { run(black_box(ROUNDS), black_box(&factors), &mut total) };
        black_box(&total);
        2 * lanes(path) * SUMS * ROUNDS
    }
}

/// The factors of a round, one per vector lane: each round replaces every sum by `sum * scale + shift`.
struct Factors {
    scale: [f32; MAX_LANES],
    shift: [f32; MAX_LANES],
}

/// The type of a loop that computes `rounds` multiply-adds of each sum. The loop stores the total of the sums for each lane,
/// so that the compiler cannot remove the loop. The CPU must have the instructions of the loop's path.
type MultiplyAdds = unsafe fn(rounds: usize, factors: &Factors, total: &mut [f32; MAX_LANES]);

/// # Safety
/// See [`MultiplyAdds`].
#[inline(always)]
unsafe fn multiply_adds<V: Vector>(rounds: usize, factors: &Factors, total: &mut [f32; MAX_LANES]) {
    // SAFETY: the caller guarantees that the CPU has the instructions. Both arrays of factors and `total` are as long as the
    // widest vector.
    unsafe {
        let (scale, shift) = (V::load(factors.scale.as_ptr()), V::load(factors.shift.as_ptr()));
        // Each sum starts from a different value, since the compiler would merge equal sums.
        let mut sums = [shift; SUMS];
        for i in 1..SUMS {
            sums[i] = sums[i - 1].add(scale);
        }
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = sum.mul_add(scale, shift);
            }
        }
        let mut sum = sums[0];
        for &next in &sums[1..] {
            sum = sum.add(next);
        }
        sum.store(total.as_mut_ptr());
    }
}

/// Returns the measurement loop that is compiled for a path.
fn loop_on(path: Path) -> MultiplyAdds {
    #[cfg(target_arch = "x86_64")]
    use std::arch::x86_64::{__m256, __m512};
    /// # Safety
    /// See [`MultiplyAdds`].
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx2,fma")]
    unsafe fn wide(rounds: usize, factors: &Factors, total: &mut [f32; MAX_LANES]) {
        // SAFETY: the caller guarantees that the CPU has the instructions.
        unsafe { multiply_adds::<__m512>(rounds, factors, total) }
    }
    /// # Safety
    /// See [`MultiplyAdds`].
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn middle(rounds: usize, factors: &Factors, total: &mut [f32; MAX_LANES]) {
        // SAFETY: the caller guarantees that the CPU has the instructions.
        unsafe { multiply_adds::<__m256>(rounds, factors, total) }
    }
    match path {
        #[cfg(target_arch = "x86_64")]
        Path::Avx512 => wide,
        #[cfg(target_arch = "x86_64")]
        Path::Avx2 => middle,
        #[cfg(target_arch = "aarch64")]
        Path::Neon => multiply_adds::<std::arch::aarch64::float32x4_t>,
        _ => multiply_adds::<Array>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_measured_once_for_each_number_of_threads() {
        let check = |measure: &dyn Fn(usize) -> PeakRate| {
            for threads in [1, 2] {
                let rate = measure(threads);
                assert!(rate.slowest > 1e6 && rate.all.is_finite(), "{rate:?}");
                assert!(rate.slowest <= rate.fastest && rate.fastest <= rate.all, "{rate:?}");
                assert_eq!(measure(threads), rate);
            }
        };
        check(&peak);
        check(&int8_peak);
        assert_eq!(bf16_peak(1).is_some(), MatrixUnit::of_cpu(Precision::Bf16).is_some());
        assert!(bf16_peak(2).is_none_or(|rate| rate.slowest > 1e6));
        #[cfg(feature = "internals")]
        assert!(Probe::new(2).rate().slowest > 1e6);
    }

    /// The loops of both units of bf16 run on any CPU, by their twins.
    #[test]
    fn the_loops_of_the_units_count_their_operations() {
        for unit in [MatrixUnit::Bf16Pairs, MatrixUnit::Bf16Tiles] {
            assert!(tile_loop(unit)() >= 2 * 12 * 32 * 256, "{unit:?}");
        }
        assert!(code_loop()() >= 2 * 4 * 32 * 256);
    }

    #[test]
    fn every_round_is_made_on_every_path() {
        for path in Path::available() {
            let run = loop_on(path);
            let factors = Factors { scale: [0.5; MAX_LANES], shift: [0.25; MAX_LANES] };
            let after = |rounds| {
                let mut total = [0.0; MAX_LANES];
                // SAFETY: the path is one of the paths that this CPU can run.
                unsafe { run(rounds, &factors, &mut total) };
                total
            };
            let mut sums: Vec<f32> = (0..SUMS).map(|i| 0.25 + 0.5 * i as f32).collect();
            for rounds in 0..4 {
                let (total, lanes) = (after(rounds), lanes(path));
                assert_eq!(
                    total[..lanes],
                    vec![sums.iter().sum::<f32>(); lanes],
                    "{path:?}, {rounds} rounds"
                );
                sums.iter_mut().for_each(|x| *x = *x * 0.5 + 0.25);
            }
        }
    }
}
