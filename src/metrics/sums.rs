//! The sums of a metric, for metrics with a number of sums that depends on an option. Memory for the sums is allocated at the
//! first update, so that the constructor of a metric accepts any number of sums; too many sums are an error at the first
//! update.

use std::fmt::Display;

use crate::error::{Error, Result};
use crate::reserve;

/// The maximum number of sums of a metric: 2 GiB of sums. A larger number is a mistake, such as a confusion matrix of more than
/// 16,000 classes.
const MOST: usize = 1 << 28;

/// The sums of a metric; all sums are 0 until memory is allocated.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    /// The number of sums; `None` if the number overflows `usize`.
    count: Option<usize>,
    values: Vec<f64>,
}

/// Returns all sums. If there are too many sums, or too little memory, the slice is empty; [`Sums::room`] returns an error for
/// this.
impl AsMut<[f64]> for Sums {
    fn as_mut(&mut self) -> &mut [f64] {
        let count = self.count.filter(|&count| count <= MOST).unwrap_or(0);
        if self.values.is_empty() && reserve::fits_exactly(&mut self.values, count) {
            self.values.resize(count, 0.0);
        }
        &mut self.values
    }
}

impl Sums {
    /// Makes `count` sums of 0, without allocating memory; `count` is `None` if the number of sums overflows `usize`.
    pub(super) fn new(count: Option<usize>) -> Self {
        Self { count, values: Vec::new() }
    }

    /// Returns all sums for an update. `told` describes the number of sums in errors, such as `3 for each of 15 bins`.
    ///
    /// # Errors
    /// If there are too many sums, or the machine does not have enough memory for the sums.
    pub(super) fn room(&mut self, metric: &str, told: impl Display) -> Result<&mut [f64]> {
        let count = self.count;
        let all = self.as_mut();
        if Some(all.len()) == count {
            return Ok(all);
        }
        let expected = match count {
            Some(count) if count <= MOST => format!("memory for {count} sums"),
            _ => format!("at most {MOST} sums"),
        };
        Err(Error::new(format!("metric `{metric}`"), expected, told.to_string()))
    }

    /// Returns all sums without allocating memory; the slice is empty before the first update, while all sums are 0.
    pub(super) fn known(&self) -> &[f64] {
        &self.values
    }

    pub(super) fn get(&self, at: usize) -> f64 {
        self.values.get(at).copied().unwrap_or(0.0)
    }
}
