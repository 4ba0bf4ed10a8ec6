//! The contents of a report, as data.

use std::collections::BTreeMap;

use crate::command::scores;
use unpadded::metrics::Unit;
use unpadded::recipes::Alignment;

/// Contents of a report. Only the title and the curves are required: an empty or `None` field has no section.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) title: String,
    /// The task in a few words: `classify`, `tag words`.
    pub(crate) task: String,
    /// Facts by name: data set, sizes, duration, best epoch, machine …
    pub(crate) facts: Vec<(String, String)>,
    /// The headline: the name of the metric, its value, and its unit (`%` or empty).
    pub(crate) headline: Option<(String, f64, String)>,
    pub(crate) epochs: Vec<Epoch>,
    /// The scores of the test set; `None` without one.
    pub(crate) tested: Option<TestScores>,
    /// The confusion counts of the held-out texts.
    pub(crate) confusion: Option<Confusion>,
    /// The errors of held-out texts by length; `None` if there is a test set.
    pub(crate) errors: Option<Errors>,
    pub(crate) calibration: Option<Vec<Bin>>,
    pub(crate) lengths: Option<Lengths>,
    pub(crate) operators: Vec<OperatorTime>,
    pub(crate) mistakes: Vec<Mistake>,
    pub(crate) examples: Vec<Example>,
    /// The origin of the examples, such as the held-out texts.
    pub(crate) examples_of: String,
    /// The resolved configuration, as TOML.
    pub(crate) config: String,
}

/// The scores at the end of an epoch.
#[derive(Debug, Default, Clone)]
pub(crate) struct Epoch {
    pub(crate) epoch: u64,
    pub(crate) step: u64,
    pub(crate) rate: Option<f64>,
    pub(crate) train: Vec<(String, f64)>,
    pub(crate) dev: Vec<(String, f64)>,
    /// Whether this epoch is the best, whose model is saved.
    pub(crate) best: bool,
}

/// The scores of a test set.
#[derive(Debug, Default, Clone)]
pub(crate) struct TestScores {
    /// The path of the test file.
    pub(crate) dataset: String,
    /// The name of the headline figure.
    pub(crate) metric: String,
    pub(crate) figures: Vec<Score>,
    pub(crate) counts: Vec<(String, u64)>,
    pub(crate) tables: Vec<ClassTable>,
    pub(crate) confusions: Vec<Confusion>,
    pub(crate) errors: Option<Errors>,
    pub(crate) examples: Vec<Example>,
    /// The signatures of scores, then the lines on how the file was read.
    pub(crate) notes: Vec<String>,
}

/// A named score, with its unit and its 95 % interval.
#[derive(Debug, Default, Clone)]
pub(crate) struct Score {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: Unit,
    pub(crate) interval: Option<[f64; 2]>,
}

impl Score {
    /// Returns the value for people.
    pub(crate) fn shown(&self) -> String {
        scores::shown(self.unit, self.value)
    }

    /// Returns the 95 % interval for people.
    pub(crate) fn interval(&self) -> String {
        scores::interval(self.unit, self.interval)
    }
}

/// Precision, recall and F1 of each class.
#[derive(Debug, Default, Clone)]
pub(crate) struct ClassTable {
    /// The kind of the classes: `label`, `tag`, `chunk type`.
    pub(crate) of: String,
    /// One row per class, the most frequent class first.
    pub(crate) rows: Vec<ClassRow>,
}

/// The scores of a class and its number of true occurrences.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct ClassRow {
    pub(crate) name: String,
    /// Precision, recall and F1.
    pub(crate) scores: [f64; 3],
    pub(crate) support: u64,
}

impl TestScores {
    /// Returns the figure with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Score> {
        self.figures.iter().find(|figure| figure.name == name)
    }
}

/// Confusion counts of pairs of classes.
#[derive(Debug, Default, Clone)]
pub(crate) struct Confusion {
    /// The kind of the classes: `label`, `tag`.
    pub(crate) of: String,
    pub(crate) labels: Vec<String>,
    /// Counts by the numbers of the true class and of the predicted class; a missing pair counts 0.
    pub(crate) cells: BTreeMap<(usize, usize), u64>,
    numbers: BTreeMap<String, usize>,
}

impl Confusion {
    pub(crate) fn new(of: &str) -> Self {
        Self { of: of.to_owned(), ..Self::default() }
    }

    /// Returns the number of a class; a class that is not in the list yet gets the next number.
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
    /// The name of the score: `wrong texts`, `chrF`.
    pub(crate) of: String,
    /// The name of the length: `length in tokens`.
    pub(crate) by: String,
    pub(crate) unit: Unit,
    pub(crate) ranges: Vec<LengthErrors>,
}

/// The errors of the texts in one range of lengths.
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

/// Predictions with similar probabilities.
#[derive(Debug)]
pub(crate) struct Bin {
    /// The mean of the predicted probabilities, 0 to 1.
    pub(crate) confidence: f64,
    /// The share of correct predictions.
    pub(crate) accuracy: f64,
    pub(crate) count: u64,
}

/// Lengths of the training texts, and the cost of padding.
#[derive(Debug, Default)]
pub(crate) struct Lengths {
    pub(crate) lengths: Vec<usize>,
    /// The number of computed rows.
    pub(crate) tokens: u64,
    /// The number of rows if each batch were padded to its longest text.
    pub(crate) padded: u64,
}

/// The time that one kind of operator took.
#[derive(Debug, Default)]
pub(crate) struct OperatorTime {
    pub(crate) name: String,
    pub(crate) calls: u64,
    pub(crate) seconds: f64,
}

/// Text whose predicted class is wrong.
#[derive(Debug, Default)]
pub(crate) struct Mistake {
    /// Each word with its weight (gradient × input), which is above zero if the word supports the prediction.
    pub(crate) words: Vec<(String, f32)>,
    pub(crate) truth: String,
    pub(crate) predicted: String,
    /// The probability of the prediction, 0 to 1.
    pub(crate) probability: f64,
}

/// Text with the model's answer.
#[derive(Debug, Clone)]
pub(crate) enum Example {
    /// A tag for each word: the true tags and the predicted tags.
    Tagged { words: Vec<String>, truth: Vec<String>, found: Vec<String> },
    /// Each word with its attention weight, from 0 to 1, and the answer.
    Attention { words: Vec<(String, f32)>, answer: String },
    /// A source text with its translation and the references.
    Pair {
        source: String,
        target: String,
        truths: Vec<String>,
        exact: bool,
        /// The chrF of this text alone, 0 to 1.
        chrf: f64,
        attention: Option<Alignment>,
    },
    /// The beginning of a text, and the continuation that the model wrote.
    Written { beginning: String, text: String },
}
