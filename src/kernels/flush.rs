//! Flushing: tiny numbers of a recurrent memory, or of a memory's gradient, become zero when they pass from one step to the
//! next.
//!
//! Along a long sequence, a fading gradient becomes subnormal, and subnormal arithmetic is ten to thirty times slower
//! than normal arithmetic. The threshold is well above the smallest normal number, since the product of a tiny normal
//! gradient and a weight may be subnormal again.

use super::elementwise::update;
use super::float::Float;
use super::view::ViewMut;

/// Sets every element to +0 whose magnitude is below [`Float::FLUSH_BELOW`], which is 1e-30 in f32. In f64, no element
/// changes. NaN stays NaN.
pub fn flush<T: Float>(x: ViewMut<'_, T>) {
    if T::FLUSH_BELOW > T::ZERO {
        update(x, |x| if x.abs() < T::FLUSH_BELOW { T::ZERO } else { x });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::view::Extent2;

    #[test]
    fn tiny_values_become_zero_and_others_stay() {
        let mut x =
            [1e-31f32, -1e-31, 1e-30, -2e-30, 0.0, -0.0, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE, 1e-40];
        let kept = x;
        flush(ViewMut::strided(&mut x, Extent2 { rows: 2, width: 4, stride: 5 }));
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&x[..4]), bits(&[0.0, 0.0, 1e-30, -2e-30]));
        assert_eq!(x[4].to_bits(), 0, "outside the view, but 0 anyway");
        assert_eq!(bits(&x[5..9]), bits(&[0.0, f32::NAN, f32::INFINITY, 0.0]));
        assert_eq!(x[9], kept[9], "outside the view");
    }

    #[test]
    fn f64_is_left_alone() {
        let mut x = [1e-300f64; 3];
        flush(ViewMut::new(&mut x, 3, 1));
        assert_eq!(x, [1e-300; 3]);
    }
}
