//! Functions of one element, applied to every element of a view with the CPU's vector instructions.
//!
//! A closure of plain arithmetic is vectorised by the functions of this module. A function with `exp` or `tanh` needs a
//! [`super::path::Sweep`] instead, since `exp_with` and `tanh_with` need the type `A` of a sweep.

use super::float::Float;
use super::path::{Arithmetic, Sweep, sweep};
use super::view::{View, ViewMut};

struct Update<'a, T, F> {
    x: ViewMut<'a, T>,
    f: F,
}

impl<T: Float, F: Fn(T) -> T> Sweep for Update<'_, T, F> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        if let Some(x) = self.x.contiguous() {
            for x in x {
                *x = (self.f)(*x);
            }
            return;
        }
        for row in self.x.iter_mut() {
            for x in row {
                *x = (self.f)(*x);
            }
        }
    }
}

/// Replaces every element x of a view by `f(x)`, in place.
pub fn update<T: Float>(x: ViewMut<'_, T>, f: impl Fn(T) -> T) {
    sweep(Update { x, f });
}

/// Returns whether every element of a view is finite.
pub fn all_finite<T: Float>(x: View<'_, T>) -> bool {
    sweep(Finite { x })
}

struct Finite<'a, T> {
    x: View<'a, T>,
}

impl<T: Float> Sweep for Finite<'_, T> {
    type Output = bool;
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) -> bool {
        match self.x.contiguous() {
            Some(x) => finite(x),
            None => self.x.iter().all(finite),
        }
    }
}

/// Returns whether every element is finite. The loop checks a whole block of elements at a time: a loop that may stop
/// after each element does not vectorise.
#[inline(always)]
fn finite<T: Float>(x: &[T]) -> bool {
    let (parts, rest) = x.as_chunks::<64>();
    let whole = |part: &[T]| part.iter().fold(true, |finite, x| finite & x.is_finite());
    parts.iter().all(|part| whole(part)) && whole(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::checks::numbers;
    use crate::kernels::view::Extent2;

    #[test]
    fn one_number_that_is_none_is_found_anywhere() {
        for len in [0, 1, 63, 64, 65, 200] {
            let mut x = numbers::<f64>(2 * len, 3);
            let within = |x: &[f64]| {
                let extent = Extent2 { rows: 2, width: len.saturating_sub(1), stride: len };
                (all_finite(View::new(x, 2, len)), all_finite(View::strided(x, extent)))
            };
            assert_eq!(within(&x), (true, true));
            for at in 0..2 * len {
                for none in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                    let was = std::mem::replace(&mut x[at], none);
                    assert_eq!(within(&x), (false, at % len == len - 1), "{none} at {at} of 2 x {len}");
                    x[at] = was;
                }
            }
        }
    }

    #[test]
    fn strided_views_and_runs_agree_with_plain_loops() {
        for (rows, width, gap) in [(0, 3, 0), (1, 1, 0), (3, 0, 2), (5, 37, 0), (5, 37, 4), (2, 64, 1)] {
            let extent = Extent2 { rows, width, stride: width + gap };
            let mut out = numbers::<f32>(rows * (width + gap), 1);
            let mut expected = out.clone();
            update(ViewMut::strided(&mut out, extent), |x| 3.0 * x + 1.0);
            for at in (0..rows).flat_map(|i| (0..width).map(move |j| i * extent.stride + j)) {
                expected[at] = 3.0 * expected[at] + 1.0;
            }
            assert_eq!(out, expected);
        }
    }
}
