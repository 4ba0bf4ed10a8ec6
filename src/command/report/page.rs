//! What a report shows, as data.

use crate::command::scores::Table;

/// What a report shows. Everything is optional but title and curves: what is empty or `None` has no section.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) title: String,
    /// What was learned, in a few words: `classify`, `tag words`.
    pub(crate) task: String,
    /// Name and value: data set, sizes, duration, best epoch, machine …
    pub(crate) facts: Vec<(String, String)>,
    /// The one number: name of the metric, value, unit (`%` or nothing).
    pub(crate) headline: Option<(String, f64, String)>,
    pub(crate) epochs: Vec<Epoch>,
    /// The scores of the test set.
    pub(crate) tables: Vec<Table>,
    pub(crate) confusion: Option<Confusion>,
    pub(crate) calibration: Option<Vec<Bin>>,
    pub(crate) lengths: Option<Lengths>,
    pub(crate) operators: Vec<OperatorTime>,
    pub(crate) mistakes: Vec<Mistake>,
    pub(crate) examples: Vec<Example>,
    /// The resolved configuration, as TOML.
    pub(crate) config: String,
}

/// The scores at an epoch's end.
#[derive(Debug, Default, Clone)]
pub(crate) struct Epoch {
    pub(crate) epoch: u64,
    pub(crate) step: u64,
    pub(crate) rate: Option<f64>,
    pub(crate) train: Vec<(String, f64)>,
    pub(crate) dev: Vec<(String, f64)>,
    /// Whether the model that was kept is this epoch's.
    pub(crate) best: bool,
}

/// How often a class was taken for another.
#[derive(Debug, Default)]
pub(crate) struct Confusion {
    pub(crate) labels: Vec<String>,
    /// A row for each true class, in it a column for each predicted one. What is missing counts as zero.
    pub(crate) counts: Vec<Vec<u64>>,
}

impl Confusion {
    pub(crate) fn count(&self, truth: usize, predicted: usize) -> u64 {
        self.counts.get(truth).and_then(|row| row.get(predicted)).copied().unwrap_or(0)
    }

    pub(crate) fn row_sum(&self, truth: usize) -> u64 {
        self.counts.get(truth).map_or(0, |row| row.iter().take(self.labels.len()).sum())
    }
}

/// Predictions of about the same probability.
#[derive(Debug)]
pub(crate) struct Bin {
    /// The mean of the probabilities that were predicted, 0 to 1.
    pub(crate) confidence: f64,
    /// The share of the predictions that were right.
    pub(crate) accuracy: f64,
    pub(crate) count: u64,
}

/// How long the training texts are.
#[derive(Debug, Default)]
pub(crate) struct Lengths {
    pub(crate) lengths: Vec<usize>,
    /// The rows that were computed.
    pub(crate) tokens: u64,
    /// The rows that padding each batch to its longest text would have made of them.
    pub(crate) padded: u64,
}

/// The time that an operator took.
#[derive(Debug, Default)]
pub(crate) struct OperatorTime {
    pub(crate) name: String,
    pub(crate) calls: u64,
    pub(crate) seconds: f64,
}

/// A text whose class was not found.
#[derive(Debug, Default)]
pub(crate) struct Mistake {
    /// Each word with its weight, gradient × input: above zero where it spoke for the prediction.
    pub(crate) words: Vec<(String, f32)>,
    pub(crate) truth: String,
    pub(crate) predicted: String,
    /// The probability of what was predicted, 0 to 1.
    pub(crate) probability: f64,
}

/// What the model makes of a text.
#[derive(Debug)]
pub(crate) enum Example {
    /// A tag for each word: the right one and the one that was found.
    Tagged { words: Vec<String>, truth: Vec<String>, found: Vec<String> },
    /// How much each word counted, 0 to 1, and what was answered.
    Attention { words: Vec<(String, f32)>, answer: String },
    /// What was made of a source, and what would have been right.
    Pair { source: String, target: String, truths: Vec<String> },
    /// What the model wrote behind a beginning.
    Written { beginning: String, text: String },
}
