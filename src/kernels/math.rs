//! `exp`, `sigmoid` and `tanh` of f32 as polynomials that vectorise, and the same over slices.
//!
//! Errors are below 4 units in the last place over the whole range, subnormal results included; infinities give
//! the limits and NaN stays NaN. An element's bits don't depend on where it stands in a slice.

use super::float::Float;
use super::path::{Arithmetic, Path, Sweep, sweep_on};

/// 1.5·2^23: adding it rounds to an integer and leaves that in the low bits.
const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts, of which the first has few bits: its multiples are exact without a fused instruction.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// 2^k for a normal result.
#[inline(always)]
fn power_of_two(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) as u32) << 23)
}

/// The `k` and `e^r - 1` of `e^x = 2^k·e^r`, for x of moderate size.
#[inline(always)]
fn reduce<A: Arithmetic>(x: f32) -> (i32, f32) {
    let t = A::mul_add(x, std::f32::consts::LOG2_E, ROUND);
    let n = t - ROUND;
    let k = (t.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let r = A::mul_add(n, -LN2_LOW, A::mul_add(n, -LN2_HIGH, x));
    let mut p = 1.987_569_1e-4;
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = A::mul_add(p, r, c);
    }
    (k, A::mul_add(p, r * r, r))
}

/// e to the power of x.
#[inline(always)]
pub fn exp<A: Arithmetic>(x: f32) -> f32 {
    // Compared such that NaN passes; beyond the bounds the result is 0 or infinite anyway.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let (k, p) = reduce::<A>(x);
    let half = k >> 1;
    (p + 1.0) * power_of_two(half) * power_of_two(k.wrapping_sub(half))
}

/// `1 / (1 + exp(-x))`.
#[inline(always)]
pub fn sigmoid<A: Arithmetic>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<A>(-x))
}

/// Hyperbolic tangent, as `m / (m + 2)` with `m = exp(2|x|) - 1`.
#[inline(always)]
pub fn tanh<A: Arithmetic>(x: f32) -> f32 {
    let y = 2.0 * x.abs();
    let y = if y > 40.0 { 40.0 } else { y };
    let (k, p) = reduce::<A>(y);
    let scale = power_of_two(k);
    let m = A::mul_add(p, scale, scale - 1.0);
    (m / (m + 2.0)).copysign(x)
}

macro_rules! over_slices {
    ($(#[$doc:meta])* $name:ident, $in_place:ident, $scalar:ident) => {
        $(#[$doc])*
        ///
        /// # Panics
        /// If the lengths differ.
        pub fn $name<T: Float>(x: &[T], out: &mut [T]) {
            struct Loop<'a, T>(&'a [T], &'a mut [T]);
            impl<T: Float> Sweep for Loop<'_, T> {
                type Output = ();
                #[inline(always)]
                fn run<A: Arithmetic>(self) {
                    for (out, &x) in self.1.iter_mut().zip(self.0) {
                        *out = x.$scalar::<A>();
                    }
                }
            }
            assert_eq!(x.len(), out.len(), "lengths");
            sweep_on(Path::best(), Loop(x, out));
        }

        /// The same in place.
        pub fn $in_place<T: Float>(x: &mut [T]) {
            struct Loop<'a, T>(&'a mut [T]);
            impl<T: Float> Sweep for Loop<'_, T> {
                type Output = ();
                #[inline(always)]
                fn run<A: Arithmetic>(self) {
                    for x in self.0 {
                        *x = x.$scalar::<A>();
                    }
                }
            }
            sweep_on(Path::best(), Loop(x));
        }
    };
}

over_slices! {
    /// e to the power of every element.
    exp_slice, exp_in_place, exp_with
}
over_slices! {
    /// The logistic function of every element.
    sigmoid_slice, sigmoid_in_place, sigmoid_with
}
over_slices! {
    /// The hyperbolic tangent of every element.
    tanh_slice, tanh_in_place, tanh_with
}
