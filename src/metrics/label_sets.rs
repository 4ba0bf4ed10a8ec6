//! F1 of predicted sets of labels, for rows with any number of labels.

use super::{Better, Counts, Metric, MetricKind, Unit};
use crate::error::{Error, Result};
use crate::operator::Attributes;
use crate::program::Var;
use crate::tensor::{DType, Dense, Variable};

/// The name of this metric in files.
pub(super) const LABEL_SETS: &str = "label_sets";

/// The number of thresholds for a logit, evenly spaced from −10 to 10.
const THRESHOLDS: usize = 401;
const LARGEST: f64 = 10.0;

/// Micro-averaged F1 of sets of labels, at the threshold with the highest F1. F1 is 2 · hits / (labels + guesses), counted
/// over all labels of all rows; 0 without labels and guesses.
///
/// The threshold is one of 401 numbers from −10 to 10 in steps of 0.05. A label is guessed if its logit is at least the
/// threshold. A label is true if its target is above 0.5. Because the best threshold is used, F1 can be high even if
/// all probabilities of rare labels are small. F1 is high if true labels have larger probabilities than other labels.
///
/// ```
/// use ndarray::array;
/// use unpadded::metrics::{LabelSetF1, Metric};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let [logits, targets] = ["logits", "targets"].map(|name| net.feed(name, DType::F32, &[3], 0));
/// let mut f1 = LabelSetF1::new(logits, targets);
/// f1.update(&[array![[2.0f32, -3.0, -1.0]].into(), array![[1.0f32, 1.0, 0.0]].into()], 1)?;
/// assert_eq!(f1.value(), 0.8); // at −3: two hits, two labels, three guesses
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LabelSetF1 {
    name: String,
    logits: Var,
    targets: Var,
    /// The counts of the labels whose logit reaches exactly n thresholds: the true labels at index 2n, the other labels at
    /// index 2n + 1.
    sums: Vec<f64>,
}

impl LabelSetF1 {
    /// Makes the F1 of `logits` `[rows, labels]` against `targets` of the same shape.
    pub fn new(logits: Var, targets: Var) -> Self {
        Self { name: "micro F1".to_owned(), logits, targets, sums: vec![0.0; 2 * (THRESHOLDS + 1)] }
    }

    /// Sets the name of the metric (default: `micro F1`).
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }
}

impl Metric for LabelSetF1 {
    fn name(&self) -> &str {
        &self.name
    }

    fn variables(&self) -> Vec<Var> {
        vec![self.logits, self.targets]
    }

    fn better(&self) -> Better {
        Better::Higher
    }

    fn unit(&self) -> Unit {
        Unit::Share
    }

    fn update(&mut self, values: &[Variable], _: usize) -> Result<()> {
        let wrong =
            |expected: &str, got: String| Error::new(format!("metric `{}`", self.name), expected, got);
        let [logits, targets] = values else {
            return Err(wrong("logits and targets", format!("{} values", values.len())));
        };
        if logits.shape() != targets.shape() {
            let got = format!("shapes {:?} and {:?}", logits.shape(), targets.shape());
            return Err(wrong("logits and targets of the same shape", got));
        }
        if let Some(other) = values.iter().find(|value| !value.dtype().is_float()) {
            return Err(wrong("floats", other.dtype().to_string()));
        }
        let floats = |of: &Variable| -> Result<Dense> { Ok(of.storage().as_dense()?.cast(DType::F64)) };
        let (logits, targets) = (floats(logits)?, floats(targets)?);
        for (logit, target) in logits.as_slice::<f64>()?.iter().zip(targets.as_slice::<f64>()?) {
            // A NaN logit reaches no threshold.
            let steps = (logit + LARGEST) * (THRESHOLDS - 1) as f64 / (2.0 * LARGEST);
            let place = if steps >= 0.0 { 1 + (steps as usize).min(THRESHOLDS - 1) } else { 0 };
            let sum = self.sums.get_mut(2 * place + usize::from(*target <= 0.5));
            sum.into_iter().for_each(|sum| *sum += 1.0);
        }
        Ok(())
    }

    fn value(&self) -> f64 {
        let labels: f64 = self.sums.iter().step_by(2).sum();
        let (mut best, mut hits, mut guesses) = (0.0f64, 0.0, 0.0);
        for counts in self.sums.chunks(2).skip(1).rev() {
            let [there, other] = std::array::from_fn(|at| counts.get(at).copied().unwrap_or(0.0));
            (hits, guesses) = (hits + there, guesses + there + other);
            best = best.max(Counts { hits, labels, guesses }.f1());
        }
        best
    }

    fn sums(&mut self) -> &mut [f64] {
        &mut self.sums
    }

    fn kind(&self) -> Option<MetricKind> {
        Some(MetricKind { name: LABEL_SETS, attributes: Attributes::new() })
    }
}
