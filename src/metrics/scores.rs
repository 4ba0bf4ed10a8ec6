//! Scores: the values of the loss and of the metrics, computed over all batches of a data set.

use std::fmt;

/// The scores of a data set: pairs of a name and a value, for the loss and then for the metrics in the order of the trainer.
/// The second field has the names in [`Self::missing`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scores(pub Vec<(String, f64)>, pub(crate) Vec<String>);

impl Scores {
    /// Returns the value of the metric `name`; `None` if no metric has this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Returns the names of the metrics without a value: a checkpoint has only the names of metrics that you defined yourself,
    /// and [`Predictor::metric`](crate::predict::Predictor::metric) has not defined these metrics again.
    pub fn missing(&self) -> &[String] {
        &self.1
    }

    /// Returns the loss, which is the first value; 0 if there are no values.
    pub fn loss(&self) -> f64 {
        self.0.first().map_or(0.0, |(_, value)| *value)
    }
}

/// Prints names and values, such as `loss 0.5213, accuracy 0.7400`, and the names of missing metrics.
impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name} {value:.4}", if i == 0 { "" } else { ", " })?;
        }
        self.1.iter().try_for_each(|name| write!(f, ", {name} not computed"))
    }
}
