//! What a report shows, as data.

use std::collections::BTreeMap;

use crate::command::scores;
use unpadded::metrics::Unit;
use unpadded::recipes::Alignment;

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
    pub(crate) tested: Option<TestScores>,
    /// Of the held-out texts.
    pub(crate) confusion: Option<Confusion>,
    /// The errors of held-out texts, where no test set has any.
    pub(crate) errors: Option<Errors>,
    pub(crate) calibration: Option<Vec<Bin>>,
    pub(crate) lengths: Option<Lengths>,
    pub(crate) operators: Vec<OperatorTime>,
    pub(crate) mistakes: Vec<Mistake>,
    pub(crate) examples: Vec<Example>,
    /// Which texts the examples are.
    pub(crate) examples_of: String,
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

/// The scores of a test set.
#[derive(Debug, Default, Clone)]
pub(crate) struct TestScores {
    /// The file.
    pub(crate) dataset: String,
    /// The name of the headline figure.
    pub(crate) metric: String,
    pub(crate) figures: Vec<Score>,
    pub(crate) counts: Vec<(String, u64)>,
    pub(crate) tables: Vec<ClassTable>,
    pub(crate) confusions: Vec<Confusion>,
    pub(crate) errors: Option<Errors>,
    pub(crate) examples: Vec<Example>,
    /// The signatures of scores, then how the file was read.
    pub(crate) notes: Vec<String>,
}

/// A named value.
#[derive(Debug, Default, Clone)]
pub(crate) struct Score {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: Unit,
    pub(crate) interval: Option<[f64; 2]>,
}

impl Score {
    /// Its value, for people.
    pub(crate) fn shown(&self) -> String {
        scores::shown(self.unit, self.value)
    }

    /// Its 95 % interval, for people.
    pub(crate) fn interval(&self) -> String {
        scores::interval(self.unit, self.interval)
    }
}

/// Precision, recall and F1 of each class.
#[derive(Debug, Default, Clone)]
pub(crate) struct ClassTable {
    /// What the classes are: `label`, `tag`, `chunk type`.
    pub(crate) of: String,
    /// The most frequent class first.
    pub(crate) rows: Vec<ClassRow>,
}

/// A class.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct ClassRow {
    pub(crate) name: String,
    /// Precision, recall and F1.
    pub(crate) scores: [f64; 3],
    pub(crate) support: u64,
}

impl TestScores {
    /// The figure of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Score> {
        self.figures.iter().find(|figure| figure.name == name)
    }
}

/// How often a class was taken for another.
#[derive(Debug, Default, Clone)]
pub(crate) struct Confusion {
    /// What the classes are: `label`, `tag`.
    pub(crate) of: String,
    pub(crate) labels: Vec<String>,
    /// By the numbers of the true class and of the predicted one. What is missing counts as zero.
    pub(crate) cells: BTreeMap<(usize, usize), u64>,
    numbers: BTreeMap<String, usize>,
}

impl Confusion {
    pub(crate) fn new(of: &str) -> Self {
        Self { of: of.to_owned(), ..Self::default() }
    }

    /// The number of a class, which is new if it never occurred.
    pub(crate) fn number(&mut self, label: &str) -> usize {
        if let Some(&number) = self.numbers.get(label) {
            return number;
        }
        let number = self.labels.len();
        self.labels.push(label.to_owned());
        self.numbers.insert(label.to_owned(), number);
        number
    }

    pub(crate) fn add(&mut self, truth: &str, predicted: &str, count: u64) {
        let cell = (self.number(truth), self.number(predicted));
        *self.cells.entry(cell).or_default() += count;
    }

    pub(crate) fn count(&self, truth: usize, predicted: usize) -> u64 {
        self.cells.get(&(truth, predicted)).copied().unwrap_or(0)
    }

    pub(crate) fn row_sum(&self, truth: usize) -> u64 {
        self.cells.range((truth, 0)..=(truth, usize::MAX)).map(|(_, count)| count).sum()
    }
}

/// Errors by the length of texts.
#[derive(Debug, Default, Clone)]
pub(crate) struct Errors {
    /// What is measured: `wrong texts`, `chrF`.
    pub(crate) of: String,
    /// What the ranges are of: `length in tokens`.
    pub(crate) by: String,
    pub(crate) unit: Unit,
    pub(crate) ranges: Vec<LengthErrors>,
}

/// The errors of texts of similar lengths.
#[derive(Debug, Default, Clone)]
pub(crate) struct LengthErrors {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) texts: u64,
    pub(crate) value: f64,
}

impl From<&unpadded::recipes::ByLength> for Errors {
    fn from(of: &unpadded::recipes::ByLength) -> Self {
        let ranges = of.ranges().into_iter();
        let range = |one: unpadded::recipes::LengthRange| LengthErrors {
            from: one.from,
            to: one.to,
            texts: one.texts,
            value: one.value,
        };
        Self {
            of: of.of.to_owned(),
            by: of.by.to_owned(),
            unit: of.unit,
            ranges: ranges.map(range).collect(),
        }
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
#[derive(Debug, Clone)]
pub(crate) enum Example {
    /// A tag for each word: the right one and the one that was found.
    Tagged { words: Vec<String>, truth: Vec<String>, found: Vec<String> },
    /// How much each word counted, 0 to 1, and what was answered.
    Attention { words: Vec<(String, f32)>, answer: String },
    /// What was made of a source, and what would have been right.
    Pair {
        source: String,
        target: String,
        truths: Vec<String>,
        exact: bool,
        /// The chrF of this text alone, 0 to 1.
        chrf: f64,
        attention: Option<Alignment>,
    },
    /// What the model wrote behind a beginning.
    Written { beginning: String, text: String },
}
