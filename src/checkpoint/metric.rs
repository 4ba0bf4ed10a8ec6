//! The description of a metric in a checkpoint file.

use crate::operator::Attributes;

/// The description of a metric of a training; a predictor makes the metric from it.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct MetricDesc {
    /// The name of the metric in scores.
    pub name: String,
    /// The kind of the metric, such as `chunk_f1`; `own` for a metric that the user defined.
    pub kind: String,
    /// The names of the variables that the metric reads.
    pub variables: Vec<String>,
    /// The options of the metric, by name.
    pub attributes: Attributes,
}
