//! The optimizers with settings that tests run.

use super::{AnyOptimizer, Options};
use crate::operator::Debt;

/// An optimizer with some settings, on which tests of all update rules run: an entry of the list of optimizers.
#[derive(Debug, Clone)]
pub struct OptimizerVariant {
    /// The name of the optimizer and of its settings.
    pub name: &'static str,
    /// The optimizer, at a learning rate for a small model.
    pub optimizer: AnyOptimizer,
    /// The effect of an exact update on rows without a gradient.
    pub owes: Debt,
}

impl OptimizerVariant {
    /// Returns the optimizer with other options.
    pub fn with(&self, change: impl FnOnce(&mut Options)) -> AnyOptimizer {
        let mut optimizer = self.optimizer.clone();
        change(&mut optimizer.options);
        optimizer
    }

    /// Returns whether the rule updates each row by itself.
    pub fn is_by_rows(&self) -> bool {
        !matches!(self.owes, Debt::Whole(_))
    }
}
