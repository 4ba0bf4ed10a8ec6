//! Arithmetic on the stored values of sparse tensors: functions that map 0 to 0, and combinations of two lists of rows.
//!
//! 16-bit floats are computed in `f32`, and integers wrap around. A bool counts as 0 or 1; if the result has the dtype
//! bool, any number except 0 is true.

use crate::error::{Error, Result};
use crate::tensor::dtype::Number;
use crate::tensor::dtype::sealed::Sealed;
use crate::tensor::{DType, Dense, Element, with_element};

/// The indices of two matching rows, one in the left list and one in the right list; one of the rows may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tensor) enum Pair {
    /// Only the left list has the row, at this index.
    Left(usize),
    /// Only the right list has the row, at this index.
    Right(usize),
    /// Both lists have the row: the index in the left list, then the index in the right list.
    Both(usize, usize),
}

/// An elementwise operation on two numbers that gives 0 for two zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tensor) enum Combine {
    Add,
    Subtract,
    Multiply,
}

impl Combine {
    /// Checks that the two operands of the operation have equal dtypes and shapes; the error names their storage.
    #[track_caller]
    pub(in crate::tensor) fn check_like(self, storage: &str, operands: [(DType, &[usize]); 2]) -> Result<()> {
        if operands[0] == operands[1] {
            return Ok(());
        }
        let verb = match self {
            Self::Add => "add",
            Self::Subtract => "subtract",
            Self::Multiply => "multiply by",
        };
        let [expected, got] = operands.map(|(dtype, shape)| format!("{dtype} {shape:?}"));
        Err(Error::new(format!("{storage} to {verb}"), expected, got))
    }

    fn numbers<T: Element>(self, a: T, b: T) -> T {
        match self {
            Self::Add => T::narrow(T::add(a.summand(), b)),
            Self::Subtract => T::narrow(T::minus(a.summand(), b.summand())),
            Self::Multiply => T::narrow(T::times(a.summand(), b.summand())),
        }
    }
}

impl Dense {
    /// Combines the rows of each pair elementwise by `how`; a missing row counts as zeros. Both tensors have the same
    /// dtype and the same width.
    #[track_caller]
    pub(in crate::tensor) fn combine(&self, other: &Self, pairs: &[Pair], how: Combine) -> Result<Self> {
        let mut shape = self.shape().to_vec();
        if let Some(first) = shape.first_mut() {
            *first = pairs.len();
        }
        with_element!(self.dtype(), T => {
            let (none, w) = (vec![T::default(); self.width()], self.width());
            let (left, right) = (self.as_slice::<T>()?, other.as_slice::<T>()?);
            let mut numbers = Vec::<T>::new();
            for &pair in pairs {
                let (a, b) = match pair {
                    Pair::Left(a) => (&left[a * w..(a + 1) * w], &none[..]),
                    Pair::Right(b) => (&none[..], &right[b * w..(b + 1) * w]),
                    Pair::Both(a, b) => (&left[a * w..(a + 1) * w], &right[b * w..(b + 1) * w]),
                };
                numbers.extend(a.iter().zip(b).map(|(&a, &b)| how.numbers(a, b)));
            }
            Self::from_vec(&shape, numbers)
        })
    }

    /// Negates every number by subtracting it from 0.
    #[must_use]
    pub(in crate::tensor) fn negated(&self) -> Self {
        let mut out = self.clone();
        with_element!(self.dtype(), T => {
            if let Ok(numbers) = out.as_mut_slice::<T>() {
                let zero = T::default().summand();
                numbers.iter_mut().for_each(|x| *x = T::narrow(T::minus(zero, x.summand())));
            }
        });
        out
    }

    /// Multiplies every number by a factor; fails if an integer dtype or bool cannot represent the factor.
    #[track_caller]
    pub(in crate::tensor) fn scaled(&self, factor: f64) -> Result<Self> {
        let dtype = self.dtype();
        let mut out = self.clone();
        with_element!(dtype, T => {
            let times = T::from_number(Number::Float(factor));
            let exact = match times.number() {
                Number::Integer(times) => times as f64 == factor,
                Number::Float(_) => true,
            };
            if !exact {
                let what = format!("factor of {dtype} numbers");
                return Err(Error::new(what, format!("a number that {dtype} can hold"), factor.to_string()));
            }
            let numbers = out.as_mut_slice::<T>()?;
            numbers.iter_mut().for_each(|x| *x = T::narrow(T::times(x.summand(), times.summand())));
        });
        Ok(out)
    }
}
