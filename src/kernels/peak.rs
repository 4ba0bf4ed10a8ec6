//! The peak rate of multiply-adds of this machine, as an upper limit for the speed of kernels in profiles.
//!
//! In f32, the measurement runs none of this crate's kernels and reads no memory. Its loop has only multiply-adds from register to
//! register, and has enough independent multiply-adds that no multiply-add waits for the result of an earlier one. No kernel of
//! the crate can be faster than this loop. In bf16 and in 8-bit integers, the innermost loop of the products is measured.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::engine::tile_loop;
use super::float::Float;
use super::int8::code_loop;
use super::path::{MatrixUnit, Path, Precision};
use super::tile::{Array, MAX_LANES, Vector, lanes};

/// The number of independent sums in the loop. A unit of the CPU starts one multiply-add per cycle and finishes it about
/// four cycles later. A core has two such units; the largest ARM cores have four. All sums and their two factors fit into
/// the vector registers.
const SUMS: usize = if cfg!(target_arch = "aarch64") { 24 } else { 13 };
const SAMPLES: usize = 20;
/// The minimum time of a sample, and the number of runs between two readings of the clock, of the loops of products.
const SAMPLE: Duration = Duration::from_millis(1);
const RUNS: usize = 16;
/// The number of multiply-adds per sum in a sample; a sample takes about a millisecond.
const ROUNDS: usize = 200_000;

/// Returns the peak floating-point operations per second of one thread; a multiply-add counts as two operations.
///
/// The result is the best of 20 samples of independent multiply-adds on full vectors in registers, with the instructions
/// that the kernels use on this CPU. The first call measures the rate in f32, in about twenty milliseconds; later calls
/// return the stored rate. For f64 the function returns half of the f32 rate, since a vector holds half as many f64 numbers.
pub fn peak<T: Float>() -> f64 {
    static PEAK: OnceLock<f64> = OnceLock::new();
    *PEAK.get_or_init(|| measure(Path::best())) * size_of::<f32>() as f64 / size_of::<T>() as f64
}

/// Returns the highest operations per second of one thread in products of bf16 numbers, by the unit of this CPU; `None` if the
/// CPU has no fast unit. The result is the best of 20 samples of the innermost loop of the products, on operands in the nearest
/// cache. The first call measures.
pub fn bf16_peak() -> Option<f64> {
    static PEAK: OnceLock<Option<f64>> = OnceLock::new();
    *PEAK.get_or_init(|| {
        let unit = MatrixUnit::of_cpu(Precision::Bf16)?;
        Some(measure_loop(&mut tile_loop(unit)))
    })
}

/// Returns the highest operations per second of one thread in products of 8-bit integers, measured like [`bf16_peak`].
pub fn int8_peak() -> f64 {
    static PEAK: OnceLock<f64> = OnceLock::new();
    *PEAK.get_or_init(|| measure_loop(&mut code_loop()))
}

/// Measures the operations per second of a loop, which returns the number of operations of a run.
fn measure_loop(run: &mut dyn FnMut() -> usize) -> f64 {
    let mut best = 0.0f64;
    for _ in 0..SAMPLES {
        let (clock, mut operations) = (Instant::now(), 0);
        while clock.elapsed() < SAMPLE {
            for _ in 0..RUNS {
                operations += run();
            }
        }
        best = best.max(operations as f64 / clock.elapsed().as_secs_f64().max(1e-9));
    }
    best
}

/// Measures the floating-point operations per second on a path that this CPU can run.
fn measure(path: Path) -> f64 {
    let run = loop_on(path);
    let sample = || {
        let clock = Instant::now();
        // The sums approach shift / (1 - scale), so no sum overflows or becomes subnormal.
        let factors = Factors { scale: [0.5; MAX_LANES], shift: [0.25; MAX_LANES] };
        let mut total = [0.0; MAX_LANES];
        // SAFETY: the caller passes a path that this CPU can run.
        unsafe { run(black_box(ROUNDS), black_box(&factors), &mut total) };
        black_box(&total);
        clock.elapsed().as_secs_f64()
    };
    let best = (0..SAMPLES).map(|_| sample()).fold(f64::INFINITY, f64::min);
    (2 * lanes(path) * SUMS * ROUNDS) as f64 / best.max(1e-9)
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
    fn it_is_measured_once() {
        let first = peak::<f32>();
        assert!(first.is_finite() && first > 1e6, "{first}");
        assert_eq!(peak::<f32>(), first);
        assert_eq!(peak::<f64>(), first / 2.0);
        let rate = int8_peak();
        assert!(rate.is_finite() && rate > 1e6, "{rate}");
        assert_eq!(int8_peak(), rate);
        let rate = bf16_peak();
        assert_eq!(rate.is_some(), MatrixUnit::of_cpu(Precision::Bf16).is_some());
        assert!(rate.is_none_or(|rate| rate.is_finite() && rate > 1e6), "{rate:?}");
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
