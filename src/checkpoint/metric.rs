//! The description of a metric in a file.

use crate::operator::Attributes;

/// The description of a training's metric, from which a predictor makes the metric.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct MetricDesc {
    /// The metric's name in scores.
    pub name: String,
    /// The kind of metric.
    pub kind: String,
    /// The names of the variables that it reads.
    pub variables: Vec<String>,
    /// The metric's options.
    pub attributes: Attributes,
}
