//! Sums of a metric whose number of sums depends on an option. Memory is allocated at the first update, so that a constructor
//! accepts any number, and a number that is too large is an error of the update.

use std::fmt::Display;

use crate::error::{Error, Result};

/// The most sums of a metric, 2 GiB. A larger number is a mistake, such as a matrix of more than 16,000 classes.
const MOST: usize = 1 << 28;

/// The sums of a metric, all 0 until memory is allocated.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    /// The number of sums; `None` if it overflows.
    count: Option<usize>,
    values: Vec<f64>,
}

impl Sums {
    /// Makes `count` sums; `None` if the count overflows.
    pub(super) fn new(count: Option<usize>) -> Self {
        Self { count, values: Vec::new() }
    }

    /// Returns all sums; empty if there are too many sums, or too little memory: [`Self::room`] then returns an error.
    pub(super) fn all(&mut self) -> &mut [f64] {
        let count = self.count.filter(|&count| count <= MOST).unwrap_or(0);
        if self.values.is_empty() && self.values.try_reserve_exact(count).is_ok() {
            self.values.resize(count, 0.0);
        }
        &mut self.values
    }

    /// Returns all sums, to add to. `told` describes their number in errors, such as `3 for each of 15 bins`.
    ///
    /// # Errors
    /// If there are too many sums, or this machine has not enough memory for them.
    pub(super) fn room(&mut self, metric: &str, told: impl Display) -> Result<&mut [f64]> {
        let count = self.count;
        let all = self.all();
        if Some(all.len()) == count {
            return Ok(all);
        }
        let expected = match count {
            Some(count) if count <= MOST => format!("memory for {count} sums"),
            _ => format!("at most {MOST} sums"),
        };
        Err(Error::new(format!("metric `{metric}`"), expected, told.to_string()))
    }

    /// Returns all sums; empty while no memory is allocated and all are 0.
    pub(super) fn known(&self) -> &[f64] {
        &self.values
    }

    pub(super) fn get(&self, at: usize) -> f64 {
        self.values.get(at).copied().unwrap_or(0.0)
    }
}
