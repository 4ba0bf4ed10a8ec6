//! What a file says of a metric.

use crate::operator::Attributes;

/// A metric of the training, for a predictor to compute it too.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct MetricDesc {
    /// What scores call it.
    pub name: String,
    /// Which of the library's metrics it is.
    pub kind: String,
    /// The names of the variables that it looks at.
    pub variables: Vec<String>,
    /// What it was told beside them.
    pub attributes: Attributes,
}
