//! A plateau schedule: lowers the learning rate when a metric stalls.

use crate::error::{Error, Result};

/// A plateau schedule ([`Trainer::plateau`](super::Trainer::plateau)): lowers the learning rate when the selected metric
/// stalls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plateau {
    pub(super) factor: f64,
    pub(super) patience: u64,
    pub(super) least: f64,
}

impl Plateau {
    /// Makes a schedule that multiplies the learning rate by `factor` after each epoch that is not the best so far. `factor`
    /// must be above 0 and below 1.
    pub fn new(factor: f64) -> Self {
        Self { factor, patience: 1, least: 0.0 }
    }

    /// Sets the patience (default: 1): the rate is lowered after `epochs` epochs in a row without an improvement; the count
    /// restarts after each lowering.
    #[must_use]
    pub fn patience(self, epochs: u64) -> Self {
        Self { patience: epochs, ..self }
    }

    /// Sets the lower limit of the base learning rate (default: 0). The optimizer's schedule may still lower the rate of a step
    /// below this limit.
    #[must_use]
    pub fn least(self, rate: f64) -> Self {
        Self { least: rate, ..self }
    }

    /// Checks the settings of the plateau schedule against the base learning rate.
    pub(super) fn check(&self, base: f64) -> Result<()> {
        let Self { factor, patience, least } = *self;
        if !(factor > 0.0 && factor < 1.0) {
            return Err(Error::new(
                "factor of a plateau",
                "a number above 0 and below 1",
                factor.to_string(),
            ));
        }
        if patience == 0 {
            return Err(Error::new("patience of a plateau, in epochs", "at least 1", "0"));
        }
        if !(0.0..=base).contains(&least) {
            let expected = format!("a rate from 0 to the base rate, {base}");
            return Err(Error::new("least rate of a plateau", expected, least.to_string()));
        }
        Ok(())
    }
}
