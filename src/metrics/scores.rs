//! Scores: the values of a pass over data.

use std::fmt;

/// The scores of a pass over data: the loss and the metrics, by name, in the order in which they were given.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scores(pub Vec<(String, f64)>);

impl Scores {
    /// Returns the value of the metric with this name; `None` if there is no such metric.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Returns the loss, the first value; 0 without values.
    pub fn loss(&self) -> f64 {
        self.0.first().map_or(0.0, |(_, value)| *value)
    }
}

/// Prints `loss 0.5213, accuracy 0.7400`.
impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name} {value:.4}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
