//! How fast this machine multiplies and adds at best, as a yardstick for profiles.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

use super::float::{Float, Store};
use super::path::Path;
use super::product::{Packed, Transpose, product};
use super::tile::{PANEL_VECTORS, max_rows};
use super::view::{View, ViewMut};

/// Bytes of the right-hand matrix: with the left one they stay in the first cache.
const PANEL_BYTES: usize = 20 << 10;
const SAMPLES: usize = 20;
const CALLS: usize = 400;

/// The most floating-point operations a second that one thread was seen to make, a multiply-add counted as two: the
/// innermost tile of the packed product on operands in the first cache, the best of 20 samples. Measured when it is
/// first asked for, which takes some ten milliseconds; then remembered.
pub fn peak<T: Float>() -> f64 {
    static PEAKS: [OnceLock<f64>; 2] = [OnceLock::new(), OnceLock::new()];
    *PEAKS[usize::from(size_of::<T>() == size_of::<f64>())].get_or_init(measure::<T>)
}

fn measure<T: Float>() -> f64 {
    let mut packed = Packed::<T>::new();
    let n = packed.panel_width();
    let k = PANEL_BYTES / (n * size_of::<T>());
    let m = 4 * max_rows(Path::best(), PANEL_VECTORS);
    let (a, b) = (vec![T::from_f64(0.5); m * k], vec![T::from_f64(0.25); k * n]);
    let mut c = vec![T::ZERO; m * n];
    packed.pack(View::new(&b, k, n), Transpose::No);
    let sample = |c: &mut [T]| {
        let clock = Instant::now();
        for _ in 0..CALLS {
            product(black_box(View::new(&a, m, k)), &packed, ViewMut::new(c, m, n), Store::Write);
        }
        black_box(c);
        clock.elapsed().as_secs_f64()
    };
    let best = (0..SAMPLES).map(|_| sample(&mut c)).fold(f64::INFINITY, f64::min);
    (2 * m * k * n * CALLS) as f64 / best.max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_measured_once() {
        let first = peak::<f32>();
        assert!(first.is_finite() && first > 1e6, "{first}");
        assert_eq!(peak::<f32>(), first);
        assert_ne!(peak::<f64>(), first);
    }
}
