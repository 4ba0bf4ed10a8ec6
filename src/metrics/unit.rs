//! Units of metrics.

/// The unit of a metric's values, which determines how the values are displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Unit {
    /// A plain number, displayed without conversion, such as a loss, a perplexity or bits per character.
    #[default]
    Number,
    /// A share, displayed in percent: a value of 1 is displayed as 100 %. Error rates are shares that may be above 1.
    Share,
}
