//! The contents of a report, before they are written as HTML.

use std::collections::BTreeMap;

use unpadded::metrics::Unit;
use unpadded_recipes::Alignment;

use crate::scores;

/// The contents of a report. The title and the curves are always shown; a field that is empty or `None` gets no section.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) title: String,
    pub(crate) task: String,
    /// Facts about the training by name: data set, sizes, duration, best epoch and others.
    pub(crate) facts: Vec<(String, String)>,
    /// The headline of the report: the name of a metric, its value, and its unit (`%` or empty).
    pub(crate) headline: Option<(String, f64, String)>,
    pub(crate) epochs: Vec<Epoch>,
    pub(crate) tested: Option<TestScores>,
    /// The scores of the held-out texts; `None` for models that write texts.
    pub(crate) held: Option<TestScores>,
    /// The chrF of held-out texts by length, for a model that writes texts, unless there is a test set.
    pub(crate) errors: Option<Errors>,
    pub(crate) calibration: Option<Vec<Bin>>,
    /// The true number and the predicted number of held-out texts; empty unless the model predicts numbers.
    pub(crate) numbers: Vec<[f64; 2]>,
    /// The threshold of each label; empty unless a text may have several labels.
    pub(crate) thresholds: Vec<(String, f64)>,
    pub(crate) lengths: Option<Lengths>,
    pub(crate) operators: Vec<OperatorTime>,
    pub(crate) mistakes: Vec<Mistake>,
    /// The choice and the order of the mistakes, as a sentence.
    pub(crate) mistakes_of: String,
    pub(crate) examples: Vec<Example>,
    /// The origin of the examples, as a sentence; for example, that the examples are held-out texts.
    pub(crate) examples_of: String,
    pub(crate) config: String,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Epoch {
    pub(crate) epoch: u64,
    pub(crate) step: u64,
    pub(crate) rate: Option<f64>,
    pub(crate) train: Vec<(String, f64)>,
    pub(crate) dev: Vec<(String, f64)>,
    /// Whether the epoch is the best so far, so that its model is saved.
    pub(crate) best: bool,
}

/// The scores of a test set or of the held-out texts, and examples from it.
#[derive(Debug, Default, Clone)]
pub(crate) struct TestScores {
    /// The path of the test file, or the name of the held-out texts.
    pub(crate) dataset: String,
    /// The name of the score in the headline.
    pub(crate) metric: String,
    pub(crate) figures: Vec<Score>,
    pub(crate) counts: Vec<(String, u64)>,
    pub(crate) tables: Vec<ClassTable>,
    pub(crate) confusions: Vec<Confusion>,
    pub(crate) errors: Option<Errors>,
    pub(crate) examples: Vec<Example>,
    /// The signatures of scores, which name the settings of each metric, then the lines on how the test file was read.
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Score {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: Unit,
    pub(crate) interval: Option<[f64; 2]>,
}

impl Score {
    pub(crate) fn shown(&self) -> String {
        scores::shown(self.unit, self.value)
    }

    pub(crate) fn interval(&self) -> String {
        scores::interval(self.unit, self.interval)
    }
}

#[derive(Debug, Default, Clone)]
pub(crate) struct ClassTable {
    /// The kind of the classes: `label`, `tag` or `chunk type`.
    pub(crate) of: String,
    /// The scores of each class, with the most frequent class first.
    pub(crate) rows: Vec<ClassRow>,
}

/// The scores of one class, and the number of its true occurrences (support).
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct ClassRow {
    pub(crate) name: String,
    pub(crate) scores: [f64; 3],
    pub(crate) support: u64,
}

impl TestScores {
    pub(crate) fn get(&self, name: &str) -> Option<&Score> {
        self.figures.iter().find(|figure| figure.name == name)
    }
}

/// The numbers of texts or words for pairs of a true class and a predicted class.
#[derive(Debug, Default, Clone)]
pub(crate) struct Confusion {
    /// The kind of the classes: `label` or `tag`.
    pub(crate) of: String,
    pub(crate) labels: Vec<String>,
    /// The count of each pair of classes, by the indices of the true and the predicted class; 0 if missing.
    pub(crate) cells: BTreeMap<(usize, usize), u64>,
    numbers: BTreeMap<String, usize>,
}

impl Confusion {
    pub(crate) fn new(what: &str) -> Self {
        Self { of: what.to_owned(), ..Self::default() }
    }

    /// Returns the index of a class; a new class is added to the list and gets the next index.
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

#[derive(Debug, Default, Clone)]
pub(crate) struct Errors {
    /// The name of the score, such as `wrong texts` or `chrF`.
    pub(crate) of: String,
    /// The property by which the texts are divided into ranges, such as `length in tokens`.
    pub(crate) by: String,
    pub(crate) unit: Unit,
    pub(crate) ranges: Vec<LengthErrors>,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct LengthErrors {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) texts: u64,
    pub(crate) value: f64,
}

/// A bin of the calibration: predictions with similar probabilities.
#[derive(Debug)]
pub(crate) struct Bin {
    /// The mean of the predicted probabilities in the bin, from 0 to 1.
    pub(crate) confidence: f64,
    /// The share of correct predictions in the bin, from 0 to 1.
    pub(crate) accuracy: f64,
    pub(crate) count: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Lengths {
    /// The kind of the texts, such as `training texts`, and the unit of the lengths, such as `tokens`.
    pub(crate) of: [&'static str; 2],
    pub(crate) lengths: Vec<usize>,
    /// The number of rows that the training computed, without padding.
    pub(crate) tokens: u64,
    /// The number of rows that the training would compute if each batch were padded to its longest text.
    pub(crate) padded: u64,
}

#[derive(Debug, Default)]
pub(crate) struct OperatorTime {
    pub(crate) name: String,
    pub(crate) calls: u64,
    pub(crate) seconds: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Mistake {
    /// The name of each text column (empty if alone), and its words with weights, gradient × input: above zero for the prediction.
    pub(crate) texts: Vec<(String, Vec<(String, f32)>)>,
    pub(crate) truth: String,
    pub(crate) predicted: String,
    /// The size of the error in a few words, such as `at 84.0 %`.
    pub(crate) size: String,
}

#[derive(Debug, Clone)]
pub(crate) enum Example {
    /// The words of a text, with a true tag and a predicted tag for each word.
    Tagged { words: Vec<String>, truth: Vec<String>, found: Vec<String> },
    /// The words of a text with an attention weight from 0 to 1 for each word, and the model's answer.
    Attention { words: Vec<(String, f32)>, answer: String },
    /// A source text with its translation by the model and the reference translations.
    Pair {
        source: String,
        target: String,
        truths: Vec<String>,
        exact: bool,
        /// The score chrF of this translation alone, from 0 to 1.
        chrf: f64,
        attention: Option<Alignment>,
    },
    /// The beginning of a text, and the continuation that the language model wrote.
    Written { beginning: String, text: String },
}
