//! Scores: the values of the loss and of the metrics, computed over all batches of a data set.

use std::fmt;

/// The scores of a data set: pairs of a name and a value, for the loss and then for the metrics in the order of the trainer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scores(pub Vec<(String, f64)>);

impl Scores {
    /// Returns the value of the metric `name`; `None` if no metric has this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Returns the loss, which is the first value; 0 if there are no values.
    pub fn loss(&self) -> f64 {
        self.0.first().map_or(0.0, |(_, value)| *value)
    }
}

/// Prints names and values, such as `loss 0.5213, accuracy 0.7400`.
impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name} {value:.4}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
