//! Any function of one or two elements over whole views, compiled for the CPU's vectors.
//!
//! A closure of plain arithmetic passed here vectorises; one that wants `exp` or `tanh` is written as a
//! [`super::path::Sweep`] instead, whose `A` the vector forms need.

use super::float::{Assign, Float};
use super::path::{Arithmetic, Sweep, sweep};
use super::view::{View, ViewMut};

struct Map<'a, T, F> {
    x: View<'a, T>,
    out: ViewMut<'a, T>,
    assign: Assign,
    f: F,
}

impl<T: Float, F: Fn(T) -> T> Sweep for Map<'_, T, F> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        if let (Some(x), Some(out)) = (self.x.contiguous(), self.out.contiguous()) {
            map_run(x, out, self.assign, &self.f);
            return;
        }
        for (x, out) in self.x.iter().zip(self.out.iter_mut()) {
            map_run(x, out, self.assign, &self.f);
        }
    }
}

#[inline(always)]
fn map_run<T: Float>(x: &[T], out: &mut [T], assign: Assign, f: &impl Fn(T) -> T) {
    match assign {
        Assign::Write => {
            for (out, &x) in out.iter_mut().zip(x) {
                *out = f(x);
            }
        }
        Assign::Add => {
            for (out, &x) in out.iter_mut().zip(x) {
                *out += f(x);
            }
        }
    }
}

struct Zip<'a, T, F> {
    x: View<'a, T>,
    y: View<'a, T>,
    out: ViewMut<'a, T>,
    assign: Assign,
    f: F,
}

impl<T: Float, F: Fn(T, T) -> T> Sweep for Zip<'_, T, F> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        if let (Some(x), Some(y), Some(out)) =
            (self.x.contiguous(), self.y.contiguous(), self.out.contiguous())
        {
            zip_run(x, y, out, self.assign, &self.f);
            return;
        }
        for ((x, y), out) in self.x.iter().zip(self.y.iter()).zip(self.out.iter_mut()) {
            zip_run(x, y, out, self.assign, &self.f);
        }
    }
}

#[inline(always)]
fn zip_run<T: Float>(x: &[T], y: &[T], out: &mut [T], assign: Assign, f: &impl Fn(T, T) -> T) {
    let pairs = x.iter().zip(y);
    match assign {
        Assign::Write => {
            for (out, (&x, &y)) in out.iter_mut().zip(pairs) {
                *out = f(x, y);
            }
        }
        Assign::Add => {
            for (out, (&x, &y)) in out.iter_mut().zip(pairs) {
                *out += f(x, y);
            }
        }
    }
}

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

/// `out = f(x)` or `out += f(x)`, element by element.
///
/// # Panics
/// If the shapes differ.
pub fn map<T: Float>(x: View<'_, T>, out: ViewMut<'_, T>, assign: Assign, f: impl Fn(T) -> T) {
    assert_eq!((x.rows(), x.width()), (out.rows(), out.width()), "shapes");
    sweep(Map { x, out, assign, f });
}

/// `out = f(x, y)` or `out += f(x, y)`, element by element.
///
/// # Panics
/// If the shapes differ.
pub fn zip<T: Float>(
    x: View<'_, T>,
    y: View<'_, T>,
    out: ViewMut<'_, T>,
    assign: Assign,
    f: impl Fn(T, T) -> T,
) {
    assert_eq!((x.rows(), x.width()), (out.rows(), out.width()), "shapes");
    assert_eq!((y.rows(), y.width()), (out.rows(), out.width()), "shapes");
    sweep(Zip { x, y, out, assign, f });
}

/// `x = f(x)` in place.
pub fn update<T: Float>(x: ViewMut<'_, T>, f: impl Fn(T) -> T) {
    sweep(Update { x, f });
}

/// Whether no element is NaN or infinite.
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

/// In parts that are looked at whole: to stop at an element would take them one by one.
#[inline(always)]
fn finite<T: Float>(x: &[T]) -> bool {
    let (parts, rest) = x.as_chunks::<64>();
    let whole = |part: &[T]| part.iter().fold(true, |finite, x| finite & x.is_finite());
    parts.iter().all(|part| whole(part)) && whole(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::numbers;
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
            let (x, y) = (numbers::<f32>(rows * (width + gap), 1), numbers::<f32>(rows * (width + gap), 2));
            let (vx, vy) = (View::strided(&x, extent), View::strided(&y, extent));
            let mut out = vec![9.0; rows * (width + gap)];
            let mut expected = out.clone();
            zip(vx, vy, ViewMut::strided(&mut out, extent), Assign::Write, |x, y| x * y - x);
            zip(vx, vy, ViewMut::strided(&mut out, extent), Assign::Add, |x, y| x / y);
            map(vy, ViewMut::strided(&mut out, extent), Assign::Add, |y| 3.0 * y);
            update(ViewMut::strided(&mut out, extent), |x| x + 1.0);
            for at in (0..rows).flat_map(|i| (0..width).map(move |j| i * extent.stride + j)) {
                let (x, y) = (x[at], y[at]);
                expected[at] = x * y - x + x / y + 3.0 * y + 1.0;
            }
            assert_eq!(out, expected);
        }
    }
}
