//! The confusion matrix: how often each class is guessed for each label.

use std::sync::Arc;

use super::classes::{Counts, LabelledLogits, ratio};
use super::{Better, Metric, RunningMetric, Unit};
use crate::data::Vocabulary;
use crate::error::Result;
use crate::operator::Attributes;
use crate::program::Var;
use crate::tensor::Variable;

/// The name of the confusion matrix in files, and the name of its option.
pub(super) const CONFUSION: &str = "confusion";
pub(super) const NAMES: &str = "names";

/// The confusion matrix: the number of rows for each pair of label and guess. The value of the metric is the accuracy;
/// the [table](Metric::table) has precision, recall and F1 of each class.
///
/// ```
/// use ndarray::array;
/// use unpadded::data::Vocabulary;
/// use unpadded::metrics::{ConfusionMatrix, RunningMetric};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let logits = net.feed("logits", DType::F32, &[2], 0);
/// let label = net.feed("label", DType::I64, &[], 0);
/// let mut matrix = RunningMetric::new(ConfusionMatrix::new(logits, label, &Vocabulary::labels(["ham", "spam"])?))?;
/// let guesses = array![[0.0f32, 1.0], [0.0, 1.0], [1.0, 0.0]]; // spam, spam, ham
/// matrix.update(&[guesses.into(), array![1i64, 0, 0].into()], 3)?;
/// assert_eq!((matrix.count(0, 1), matrix.count(1, 1), matrix.value()), (1, 1, 2.0 / 3.0));
/// assert!(matrix.table().is_some_and(|table| table.contains("spam")));
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ConfusionMatrix {
    name: String,
    classified: LabelledLogits,
    names: Arc<[String]>,
}

impl ConfusionMatrix {
    /// Makes the confusion matrix of `logits` `[rows, classes]` against `labels`, one id of the vocabulary `classes` per row.
    /// A confusion matrix has one count per pair of classes; with more than 16,383 classes, the first batch is an error. A
    /// [`Predictor`](crate::predict) can make the metric from a file if it has at most 8,192 classes.
    pub fn new(logits: Var, labels: Var, classes: &Vocabulary) -> Self {
        Self::of(logits, labels, classes.tokens().map(str::to_owned).collect())
    }

    pub(super) fn of(logits: Var, labels: Var, names: Vec<String>) -> Self {
        let classified = LabelledLogits { logits, labels, ignore: None };
        Self { name: "accuracy by class".to_owned(), classified, names: names.into() }
    }

    options_of_metric! { "`accuracy by class`", classified }
}

impl RunningMetric<ConfusionMatrix> {
    /// Returns the number of rows with the label `label` and the guess `guess`; 0 for an unknown class.
    pub fn count(&self, label: usize, guess: usize) -> u64 {
        let classes = self.metric.names.len();
        if label >= classes || guess >= classes { 0 } else { self.sums[label * classes + guess] as u64 }
    }
}

impl Metric for ConfusionMatrix {
    // For each label and each guess, the number of rows (all guesses of label 0 first); after these counts, for each label, the
    // number of rows without a guess.
    fields_of_metric! { Higher, Share, [classified.logits, classified.labels], |of| of.names.len().saturating_mul(of.names.len() + 1) }

    fn update(&self, sums: &mut [f64], values: &[Variable], _: usize) -> Result<()> {
        let classes = self.names.len();
        let rows = self.classified.rows_of(&self.name, values, classes)?;
        for row in rows {
            let label = row.label as usize;
            let index = row.guess.map_or(classes * classes + label, |guess| label * classes + guess as usize);
            sums[index] += 1.0;
        }
        Ok(())
    }

    fn value(&self, sums: &[f64]) -> f64 {
        let classes = self.names.len();
        let hits = (0..classes).map(|class| sums[class * classes + class]).sum();
        ratio(hits, sums.iter().sum())
    }

    /// Returns a line per label: the number of guesses of each class, then precision, recall and F1 in percent.
    fn table(&self, sums: &[f64]) -> Option<String> {
        let classes = self.names.len();
        let count = |label: usize, guess: usize| sums[label * classes + guess];
        let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
        let names = width(&mut self.names.iter().map(|name| name.chars().count()));
        let cells: Vec<usize> = (0..classes)
            .map(|guess| {
                let numbers = (0..classes).map(|label| count(label, guess).to_string().len());
                width(&mut numbers.chain([self.names[guess].chars().count()]))
            })
            .collect();
        let mut table = " ".repeat(names);
        for (name, &cell) in self.names.iter().zip(&cells) {
            table += &format!("  {name:>cell$}");
        }
        table += "  precision  recall      F1\n";
        for (label, name) in self.names.iter().enumerate() {
            table += &format!("{name:names$}");
            for (guess, &cell) in cells.iter().enumerate() {
                table += &format!("  {:cell$}", count(label, guess));
            }
            let counts = Counts {
                hits: count(label, label),
                labels: (0..classes).map(|guess| count(label, guess)).sum::<f64>()
                    + sums[classes * classes + label],
                guesses: (0..classes).map(|other| count(other, label)).sum(),
            };
            let [precision, recall, f1] =
                [counts.precision(), counts.recall(), counts.f1()].map(|x| 100.0 * x);
            table += &format!("  {precision:9.2}  {recall:6.2}  {f1:6.2}\n");
        }
        Some(table)
    }

    fn kind(&self) -> Option<&'static str> {
        Some(CONFUSION)
    }

    fn attributes(&self) -> Attributes {
        self.classified.attributes().with(NAMES, self.names.to_vec())
    }
}
