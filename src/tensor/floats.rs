//! Borrowed floats of either dtype: the arithmetic of gradients, which lie in an arena, in a buffer or in a message.

use super::{DType, Dense};
use crate::error::Result;
use crate::kernels::{View, all_finite};

/// Numbers of one dtype, f32 or f64, that can be changed.
pub(crate) enum FloatsMut<'a> {
    F32(&'a mut [f32]),
    F64(&'a mut [f64]),
}

/// Runs the same code for either dtype: `$x` is the slice, and `$number` the conversion of an f64 to its dtype.
macro_rules! each {
    ($floats:expr, $x:ident, $number:ident => $body:expr) => {
        match $floats {
            FloatsMut::F32($x) => {
                let $number = |number: f64| number as f32;
                $body
            }
            FloatsMut::F64($x) => {
                let $number = |number: f64| number;
                $body
            }
        }
    };
}

/// Runs the same code for two arrays; arrays of different dtypes are left unchanged, since gradients of one parameter never
/// differ in dtype.
macro_rules! pair {
    ($floats:expr, $other:expr, $x:ident, $y:ident, $number:ident => $body:expr) => {
        match ($floats, $other) {
            (FloatsMut::F32($x), FloatsMut::F32($y)) => {
                let $number = |number: f64| number as f32;
                $body
            }
            (FloatsMut::F64($x), FloatsMut::F64($y)) => {
                let $number = |number: f64| number;
                $body
            }
            _ => {}
        }
    };
}

impl<'a> FloatsMut<'a> {
    pub(crate) fn of(array: &'a mut Dense) -> Result<Self> {
        Ok(match array.dtype() {
            DType::F64 => Self::F64(array.as_mut_slice()?),
            _ => Self::F32(array.as_mut_slice()?),
        })
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::F32(x) => x.len(),
            Self::F64(x) => x.len(),
        }
    }

    /// Borrows the numbers of a range.
    pub(crate) fn range(&mut self, range: std::ops::Range<usize>) -> FloatsMut<'_> {
        match self {
            Self::F32(x) => FloatsMut::F32(&mut x[range]),
            Self::F64(x) => FloatsMut::F64(&mut x[range]),
        }
    }

    pub(crate) fn is_finite(&self) -> bool {
        match self {
            Self::F32(x) => all_finite(View::new(x, 1, x.len())),
            Self::F64(x) => all_finite(View::new(x, 1, x.len())),
        }
    }

    /// Computes x ← factor · x. Adding 0 turns −0 into 0, as in a sum that begins at 0.
    pub(crate) fn scale(&mut self, factor: f64) {
        if factor != 1.0 {
            each!(self, x, number => x.iter_mut().for_each(|x| *x = number(0.0) + number(factor) * *x));
        }
    }

    /// Computes x ← sum + factor · x.
    pub(crate) fn scale_onto(&mut self, sum: &FloatsMut<'_>, factor: f64) {
        pair!(self, sum, x, sum, number => {
            let factor = number(factor);
            x.iter_mut().zip(sum.iter()).for_each(|(x, &sum)| *x = (number(0.0) + sum) + factor * *x);
        });
    }

    /// Computes x ← x + factor · other.
    pub(crate) fn add_scaled(&mut self, other: &FloatsMut<'_>, factor: f64) {
        pair!(self, other, x, other, number => {
            let factor = number(factor);
            x.iter_mut().zip(other.iter()).for_each(|(x, &other)| *x = (number(0.0) + *x) + factor * other);
        });
    }

    pub(crate) fn add(&mut self, other: &FloatsMut<'_>) {
        pair!(self, other, x, other, _number => x.iter_mut().zip(other.iter()).for_each(|(x, &y)| *x += y));
    }

    pub(crate) fn copy_from(&mut self, other: &FloatsMut<'_>) {
        #[cfg(test)]
        count_copied(self.len());
        pair!(self, other, x, other, _number => x.copy_from_slice(other));
    }

    /// Copies numbers from little-endian bytes, as many as there are.
    pub(crate) fn copy_bytes(&mut self, bytes: &[u8]) {
        #[cfg(test)]
        count_copied(self.len());
        match self {
            Self::F32(x) => {
                x.iter_mut().zip(bytes.as_chunks().0).for_each(|(x, b)| *x = f32::from_le_bytes(*b))
            }
            Self::F64(x) => {
                x.iter_mut().zip(bytes.as_chunks().0).for_each(|(x, b)| *x = f64::from_le_bytes(*b))
            }
        }
    }

    /// Adds numbers in little-endian bytes.
    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        match self {
            Self::F32(x) => {
                x.iter_mut().zip(bytes.as_chunks().0).for_each(|(x, b)| *x += f32::from_le_bytes(*b));
            }
            Self::F64(x) => {
                x.iter_mut().zip(bytes.as_chunks().0).for_each(|(x, b)| *x += f64::from_le_bytes(*b));
            }
        }
    }
}

#[cfg(test)]
thread_local! {
    static COPIED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns how many numbers this thread has copied between gradients, buffers and messages.
#[cfg(test)]
pub(crate) fn copied() -> u64 {
    COPIED.get()
}

#[cfg(test)]
pub(crate) fn count_copied(numbers: usize) {
    COPIED.set(COPIED.get() + numbers as u64);
}
