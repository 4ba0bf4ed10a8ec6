//! F1 of predicted sets of labels, for rows with any number of labels.

use std::fmt;
use std::str::FromStr;

use super::{Average, Better, Counts, Metric, RunningMetric, Unit};
use crate::error::{Error, Result};
use crate::operator::Attributes;
use crate::program::Var;
use crate::tensor::{DType, Dense, Variable};

/// The names of this metric and of its option in files; without the option, the metric reads logits.
pub(super) const LABEL_SETS: &str = "label_sets";
pub(super) const THRESHOLD: &str = "threshold";

/// The number of steps between the thresholds for a logit, which are evenly spaced from −10 to 10. A threshold per label has
/// half as many steps, since every label has its own counts.
const STEPS: usize = 400;
const LARGEST: f64 = 10.0;

/// How the threshold of a label's probability is chosen: a label is predicted if its probability reaches the threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LabelThreshold {
    /// One threshold for all labels: the threshold with the highest micro F1.
    One,
    /// A threshold per label: the threshold with the highest F1 of the label.
    PerLabel,
    /// This threshold for all labels, above 0 and below 1.
    Number(f64),
}

impl LabelThreshold {
    /// The texts of a threshold, for error messages.
    pub const EXPECTED: &str = "`per-label`, `one`, or a number above 0 and below 1 (rounded to f32)";
}

/// Formats the threshold as `one`, `per-label` or the number.
impl fmt::Display for LabelThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One => f.write_str("one"),
            Self::PerLabel => f.write_str("per-label"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// Parses `one`, `per-label`, or a number above 0 and below 1.
impl FromStr for LabelThreshold {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // Probabilities and thresholds are compared as f32.
        match (text, text.parse()) {
            ("one", _) => Ok(Self::One),
            ("per-label", _) => Ok(Self::PerLabel),
            (_, Ok(number)) if number as f32 > 0.0 && (number as f32) < 1.0 => Ok(Self::Number(number)),
            _ => Err(Error::new("threshold of labels", Self::EXPECTED, format!("`{text}`"))),
        }
    }
}

/// Micro-averaged F1 of sets of labels, at the thresholds with the highest F1. F1 is 2 · hits / (labels + guesses), counted
/// over all labels of all rows; 0 without labels and guesses.
///
/// A label is guessed if its logit or probability is at least the threshold. A label is true if its target is above 0.5. The
/// threshold of a logit is one of 401 numbers from −10 to 10 in steps of 0.05; the threshold of a probability is the sigmoid of
/// such a number. Because the best threshold is used, F1 can be high even if all probabilities of rare labels are small. F1 is
/// high if true labels have larger probabilities than other labels.
///
/// ```
/// use ndarray::array;
/// use unpadded::metrics::{LabelSetF1, RunningMetric};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let [logits, targets] = ["logits", "targets"].map(|name| net.feed(name, DType::F32, &[3], 0));
/// let mut f1 = RunningMetric::new(LabelSetF1::new(logits, targets))?;
/// f1.update(&[array![[2.0f32, -3.0, -1.0]].into(), array![[1.0f32, 1.0, 0.0]].into()], 1)?;
/// assert_eq!(f1.value(), 0.8); // at −3: two hits, two labels, three guesses
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LabelSetF1 {
    name: String,
    scores: Var,
    targets: Var,
    /// The number of labels; `None` if the scores are logits.
    labels: Option<usize>,
    threshold: LabelThreshold,
    /// The thresholds to choose from, in ascending order.
    grid: Vec<f64>,
}

impl LabelSetF1 {
    /// Makes the F1 of `logits` `[rows, labels]` against `targets` of the same shape, with one threshold for all labels.
    pub fn new(logits: Var, targets: Var) -> Self {
        Self::made([logits, targets], None, LabelThreshold::One, steps(STEPS).collect())
    }

    /// Makes the F1 of `probabilities` `[rows, labels]` against `targets` of the same shape. [`RunningMetric::thresholds`] returns the
    /// thresholds that were used, so that a prediction with these thresholds has this F1. A threshold per label is one of 201
    /// numbers.
    pub fn of_probabilities(
        probabilities: Var,
        targets: Var,
        labels: usize,
        threshold: LabelThreshold,
    ) -> Self {
        // A threshold is an f32, so that predictions can compare it with the same result.
        let probability = |logit: f64| f64::from((1.0 / (1.0 + (-logit).exp())) as f32);
        let grid = match threshold {
            LabelThreshold::One => steps(STEPS).map(probability).collect(),
            LabelThreshold::PerLabel => steps(STEPS / 2).map(probability).collect(),
            LabelThreshold::Number(number) => vec![f64::from(number as f32)],
        };
        Self::made([probabilities, targets], Some(labels), threshold, grid)
    }

    fn made(vars: [Var; 2], labels: Option<usize>, threshold: LabelThreshold, grid: Vec<f64>) -> Self {
        let [scores, targets] = vars;
        Self { name: "micro F1".to_owned(), scores, targets, labels, threshold, grid }
    }

    options_of_metric! { "`micro F1`" }

    fn groups(&self) -> usize {
        self.labels.filter(|_| self.threshold == LabelThreshold::PerLabel).unwrap_or(1)
    }

    /// Returns, for each label or for all labels together, the index of the threshold with the highest F1, and the counts there.
    fn chosen(&self, sums: &[f64]) -> impl Iterator<Item = (usize, Counts)> {
        let (last, middle) = (self.grid.len() - 1, self.grid.len() / 2);
        sums.chunks_exact(2 * (last + 2)).map(move |sums| {
            let labels = sums.iter().step_by(2).sum();
            let (mut counts, mut top) = (Counts { labels, ..Counts::default() }, last);
            let (mut at_middle, mut best) = (counts, None);
            let scores = |bin: usize| sums[2 * bin] + sums[2 * bin + 1];
            for at in (0..=last).rev() {
                counts.hits += sums[2 * at + 2];
                counts.guesses += scores(at + 1);
                if scores(at + 1) > 0.0 {
                    top = at;
                }
                if at == middle {
                    at_middle = counts;
                }
                // The thresholds from `at` to `top` have equal guesses; the middle one suits other rows best.
                let (f1, index) = (counts.f1(), (at + top) / 2);
                let better = best.is_none_or(|(known, old, _): (f64, usize, _)| {
                    f1 > known || (f1 == known && index.abs_diff(middle) < old.abs_diff(middle))
                });
                if (at == 0 || scores(at) > 0.0) && f1 > 0.0 && better {
                    best = Some((f1, index, counts));
                }
            }
            best.map_or((middle, at_middle), |(_, index, counts)| (index, counts))
        })
    }
}

impl RunningMetric<LabelSetF1> {
    /// Returns the thresholds that the value uses: one per label for [`LabelThreshold::PerLabel`], else one for all labels. Of
    /// the thresholds with the highest F1, one in the middle between two scores is chosen, near 0.5 for a probability; if every
    /// threshold has an F1 of 0, 0.5 is chosen.
    pub fn thresholds(&self) -> Vec<f32> {
        let chosen = self.metric.chosen(&self.sums);
        chosen.filter_map(|(at, _)| self.metric.grid.get(at)).map(|&threshold| threshold as f32).collect()
    }
}

/// Returns the thresholds of a logit, in `count` steps; the threshold in the middle is 0.
fn steps(count: usize) -> impl Iterator<Item = f64> {
    (0..=count).map(move |at| 2.0 * LARGEST * at as f64 / count as f64 - LARGEST)
}

impl Metric for LabelSetF1 {
    // For each label, or for all labels together, the counts of the scores that reach exactly n thresholds: the true labels at
    // index 2n, the other labels at index 2n + 1.
    fields_of_metric! { Higher, Share, [scores, targets], |of| of.groups().saturating_mul(2 * (of.grid.len() + 1)) }

    fn update(&self, sums: &mut [f64], values: &[Variable], _: usize) -> Result<()> {
        let wrong =
            |expected: &str, got: String| Error::new(format!("metric `{}`", self.name), expected, got);
        let [scores, targets] = values else {
            return Err(wrong("scores and targets", format!("{} values", values.len())));
        };
        if scores.shape() != targets.shape() {
            let got = format!("shapes {:?} and {:?}", scores.shape(), targets.shape());
            return Err(wrong("scores and targets of the same shape", got));
        }
        if let Some(other) = values.iter().find(|value| !value.dtype().is_float()) {
            return Err(wrong("floats", other.dtype().to_string()));
        }
        let width = scores.shape().last().copied().unwrap_or(1);
        if let Some(labels) = self.labels.filter(|labels| *labels != width) {
            return Err(wrong(&format!("probabilities of {labels} labels"), width.to_string()));
        }
        let floats =
            |variable: &Variable| -> Result<Dense> { Ok(variable.storage().as_dense()?.cast(DType::F64)) };
        let (scores, targets) = (floats(scores)?, floats(targets)?);
        let per_label = self.threshold == LabelThreshold::PerLabel;
        for (at, (score, target)) in
            scores.as_slice::<f64>()?.iter().zip(targets.as_slice::<f64>()?).enumerate()
        {
            // A NaN reaches no threshold.
            let reached = self.grid.partition_point(|threshold| score >= threshold);
            let group = if per_label { at % width } else { 0 };
            let index = group * (self.grid.len() + 1) + reached;
            let sum = sums.get_mut(2 * index + usize::from(*target <= 0.5));
            sum.into_iter().for_each(|sum| *sum += 1.0);
        }
        Ok(())
    }

    fn value(&self, sums: &[f64]) -> f64 {
        Average::Micro.of(self.chosen(sums).map(|(_, counts)| counts), Counts::f1)
    }

    fn kind(&self) -> Option<&'static str> {
        Some(LABEL_SETS)
    }

    fn attributes(&self) -> Attributes {
        self.labels.map(|_| Attributes::new().with(THRESHOLD, self.threshold.to_string())).unwrap_or_default()
    }
}
