//! Units of metrics.

/// The unit of a metric's values, which decides how the values are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Unit {
    /// A plain number, shown without conversion: a loss, a perplexity, bits.
    #[default]
    Number,
    /// A share, shown in percent: 1 is 100 %. Error rates may be above 1.
    Share,
}
