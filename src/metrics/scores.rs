//! What a pass over data came to.

use std::fmt;

/// The values of a pass over data: the loss and the metrics, by name, in the order they were given.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scores(pub Vec<(String, f64)>);

impl Scores {
    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// The mean loss.
    pub fn loss(&self) -> f64 {
        self.0.first().map_or(0.0, |(_, value)| *value)
    }
}

/// As `loss 0.5213, accuracy 0.7400`.
impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name} {value:.4}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
