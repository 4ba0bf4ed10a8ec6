//! Sums of which there are as many as a metric was told: room for them is taken when they are first needed, so that a metric can be
//! made of any number, and refuses one that cannot be where an error can be given.

use std::fmt::Display;

use crate::error::{Error, Result};

/// The most sums of a metric, 2 GiB of them. More were not meant: a matrix of more than 16,000 classes, say.
const MOST: usize = 1 << 28;

/// The sums of a metric, all 0 until there is room for them.
#[derive(Debug, Clone)]
pub(super) struct Sums {
    /// `None` if there are more than this machine counts.
    count: Option<usize>,
    values: Vec<f64>,
}

impl Sums {
    /// So many, or more than this machine counts.
    pub(super) fn new(count: Option<usize>) -> Self {
        Self { count, values: Vec::new() }
    }

    /// All of them. None if there are too many, which [`Self::room`] says.
    pub(super) fn all(&mut self) -> &mut [f64] {
        let count = self.count.filter(|&count| count <= MOST).unwrap_or(0);
        if self.values.is_empty() && self.values.try_reserve_exact(count).is_ok() {
            self.values.resize(count, 0.0);
        }
        &mut self.values
    }

    /// All of them, to add to. `told` is what there is a number for, as `3 for each of 15 bins`.
    ///
    /// # Errors
    /// If there are more than can be, or this machine has no room for them.
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

    /// All of them, or none while there is no room for them: all are 0 then.
    pub(super) fn known(&self) -> &[f64] {
        &self.values
    }

    pub(super) fn get(&self, at: usize) -> f64 {
        self.values.get(at).copied().unwrap_or(0.0)
    }
}
