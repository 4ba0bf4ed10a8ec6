//! The functions `exp`, `sigmoid` and `tanh` of f32 as polynomials that vectorise: for one element, and for whole slices.
//!
//! The error of each function is below 4 units in the last place. This bound includes subnormal results of `exp` and `tanh`;
//! most subnormal results of `sigmoid` are 0 instead, since subnormal arithmetic is slow. For an infinite argument, the
//! result is the limit of the function; for NaN, the result is NaN. The bits of an element do not depend on its position in
//! a slice.

use super::float::Float;
use super::path::{Arithmetic, Path, Sweep, sweep_on};

/// The constant 1.5·2^23: adding it to a number rounds the number to an integer, which is then in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;
/// The larger of two numbers whose sum is ln 2. It has few significant bits, so that its products with the integers n
/// are exact even without a fused multiply-add.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// Returns 2^k for an integer k; the result must be a normal number.
#[inline(always)]
fn power_of_two(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) as u32) << 23)
}

/// Returns `k` and `e^r - 1` for `e^x = 2^k·e^r` with |r| ≤ ln 2 / 2; x must be NaN or between −104 and 89.
#[inline(always)]
fn reduce<A: Arithmetic>(x: f32) -> (i32, f32) {
    let t = A::mul_add(x, std::f32::consts::LOG2_E, ROUND);
    let n = t - ROUND;
    let k = (t.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let r = A::mul_add(n, -LN2_LOW, A::mul_add(n, -LN2_HIGH, x));
    // The polynomial is evaluated in pairs of coefficients; in Horner's rule, each step would wait for the previous step.
    let r2 = r * r;
    let high = A::mul_add(1.987_569_1e-4, r, 1.398_2e-3);
    let middle = A::mul_add(8.333_452e-3, r, 4.166_579_6e-2);
    let low = A::mul_add(1.666_666_5e-1, r, 0.5);
    let p = A::mul_add(A::mul_add(high, r2, middle), r2, low);
    (k, A::mul_add(p, r2, r))
}

/// Returns e to the power of x.
#[inline(always)]
pub fn exp<A: Arithmetic>(x: f32) -> f32 {
    // The two comparisons are false for NaN, so NaN passes unchanged. Beyond the bounds of these comparisons, the result is
    // 0 or infinite in any case.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let (k, p) = reduce::<A>(x);
    let half = k >> 1;
    (p + 1.0) * power_of_two(half) * power_of_two(k.wrapping_sub(half))
}

/// Returns `1 + exp(-x)`, the denominator of `sigmoid`; infinity if `sigmoid` would be far below the smallest normal
/// number. If a caller multiplies two denominators, the product may overflow to infinity although both are finite; a
/// quotient below 1e-29 then becomes 0.
#[inline(always)]
pub fn logistic<A: Arithmetic>(x: f32) -> f32 {
    // The two comparisons are false for NaN, so NaN passes unchanged. One factor 2^k is enough: from 2^128 on the result is
    // infinite, and adding a power below 2^-126 to 1 changes nothing.
    let x = if x > 87.0 { 87.0 } else { x };
    let x = if x < -89.0 { -89.0 } else { x };
    let (k, p) = reduce::<A>(-x);
    A::mul_add(p + 1.0, power_of_two(k), 1.0)
}

/// Returns the numerator and the denominator of `tanh`, which is `m / (m + 2)` with `m = exp(2|x|) - 1`; both are at most
/// 5e8.
#[inline(always)]
pub fn tangent<A: Arithmetic>(x: f32) -> (f32, f32) {
    let y = 2.0 * x.abs();
    let y = if y > 20.0 { 20.0 } else { y };
    let (k, p) = reduce::<A>(y);
    let scale = power_of_two(k);
    let m = A::mul_add(p, scale, scale - 1.0);
    (m.copysign(x), m + 2.0)
}

/// Returns the hyperbolic tangent of x.
#[inline(always)]
pub fn tanh<A: Arithmetic>(x: f32) -> f32 {
    let (numerator, denominator) = tangent::<A>(x);
    numerator / denominator
}

/// Replaces every element x of a slice by e to the power of x.
pub fn exp_in_place<T: Float>(x: &mut [T]) {
    struct Loop<'a, T>(&'a mut [T]);
    impl<T: Float> Sweep for Loop<'_, T> {
        type Output = ();
        const PORTABLE: bool = T::PORTABLE;
        #[inline(always)]
        fn run<A: Arithmetic>(self) {
            for x in self.0 {
                *x = x.exp_with::<A>();
            }
        }
    }
    sweep_on(Path::best(), Loop(x));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the logistic function `1 / (1 + exp(-x))` from its denominator.
    fn sigmoid<A: Arithmetic>(x: f32) -> f32 {
        1.0 / logistic::<A>(x)
    }
    use crate::kernels::path::{Fma, MulAdd};

    /// Returns the distance of `x` from the exact value `y`, in units in the last place of f32.
    fn ulps(x: f32, y: f64) -> f64 {
        let near = y as f32;
        if x == near {
            return 0.0;
        }
        let unit = f64::from(f32::from_bits(near.abs().to_bits() + 1)) - f64::from(near.abs());
        (f64::from(x) - y).abs() / unit
    }

    fn worst(f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, range: std::ops::Range<f32>) -> f64 {
        let steps = 400_000;
        let size = f64::from(range.end) - f64::from(range.start);
        (0..=steps)
            .map(|i| (f64::from(range.start) + size * f64::from(i) / f64::from(steps)) as f32)
            .map(|x| ulps(f(x), exact(f64::from(x))))
            .fold(0.0, f64::max)
    }

    fn check<A: Arithmetic>() {
        let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
        for range in [-110.0..95.0, -1.0..1.0, -1e-4..1e-4] {
            let errors = [
                worst(exp::<A>, f64::exp, range.clone()),
                worst(sigmoid::<A>, logistic, range.start.max(-87.0)..range.end),
                worst(tanh::<A>, f64::tanh, range.clone()),
            ];
            assert!(errors.iter().all(|&e| e < 4.0), "{range:?}: {errors:?}");
        }
        assert!(worst(tanh::<A>, f64::tanh, -12.0..12.0) < 4.0);
        assert!((0..200).all(|i| sigmoid::<A>(-87.0 - 0.1 * i as f32) < 2e-38));
        for f in [exp::<A>, sigmoid::<A>, tanh::<A>] {
            assert!(f(f32::NAN).is_nan() && f(-f32::NAN).is_nan());
        }
        let (inf, max) = (f32::INFINITY, f32::MAX);
        assert_eq!([exp::<A>(inf), exp::<A>(max), exp::<A>(-inf), exp::<A>(-max)], [inf, inf, 0.0, 0.0]);
        assert_eq!(
            [sigmoid::<A>(inf), sigmoid::<A>(max), sigmoid::<A>(-inf), sigmoid::<A>(-max)],
            [1., 1., 0., 0.]
        );
        assert_eq!([tanh::<A>(inf), tanh::<A>(max), tanh::<A>(-inf), tanh::<A>(-max)], [1., 1., -1., -1.]);
        assert_eq!([exp::<A>(0.0), exp::<A>(-0.0), sigmoid::<A>(0.0)], [1.0, 1.0, 0.5]);
        for tiny in [0.0, -0.0, 1e-40, -1e-40, f32::MIN_POSITIVE, 1e-30] {
            assert_eq!(tanh::<A>(tiny).to_bits(), tiny.to_bits());
        }
    }

    #[test]
    fn errors_stay_below_4_ulp_and_limits_are_exact() {
        check::<Fma>();
        check::<MulAdd>();
    }

    struct All<'a>(&'a [f32], &'a mut [f32]);
    impl Sweep for All<'_> {
        type Output = ();
        const PORTABLE: bool = false;
        #[inline(always)]
        fn run<A: Arithmetic>(self) {
            for (out, &x) in self.1.iter_mut().zip(self.0) {
                *out = exp::<A>(x) - sigmoid::<A>(x) + tanh::<A>(x);
            }
        }
    }

    #[test]
    fn bits_depend_neither_on_place_nor_on_vectors() {
        let x: Vec<f32> = (0..203).map(|i| (i as f32 - 100.0) * 0.37).collect();
        for path in Path::available() {
            let mut whole = vec![0.0; x.len()];
            sweep_on(path, All(&x, &mut whole));
            for (from, to) in [(0, 1), (3, 20), (5, 5), (100, 203), (202, 203)] {
                let mut part = vec![0.0; to - from];
                sweep_on(path, All(&x[from..to], &mut part));
                assert!(part == whole[from..to], "{path:?} {from}..{to}");
            }
        }
    }

    #[test]
    fn both_types_work_in_place() {
        let x = [-3.0, -0.5, 0.0, 0.25, 7.0];
        let mut double = x;
        exp_in_place(&mut double);
        assert_eq!(double, x.map(f64::exp));
        let mut single = x.map(|x| x as f32);
        exp_in_place(&mut single);
        for (got, x) in single.into_iter().zip(x) {
            assert!((f64::from(got) / x.exp() - 1.0).abs() < 1e-6, "{x}");
        }
    }
}
