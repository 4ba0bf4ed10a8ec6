//! The calibration error: how far the accuracy of guesses is from their predicted probabilities.

use super::classes::LabelledLogits;
use super::{Better, Metric, RunningMetric, Unit};
use crate::error::{Error, Result};
use crate::operator::Attributes;
use crate::program::Var;
use crate::tensor::{DType, Variable};

/// The name of the calibration error in files, and the names of its options.
pub(super) const CALIBRATION: &str = "calibration_error";
pub(super) const BINS: &str = "bins";

/// The expected calibration error (Guo et al., "On calibration of modern neural networks", 2017). The rows are divided
/// into bins of equal width by the probability of the guess (the largest of softmax(logits)). The error of a row is the
/// absolute difference between the share of right guesses and the mean probability in the bin of the row; the metric is
/// the mean of the errors of all rows. A row with an infinite or NaN largest logit has no softmax, and is an error.
///
/// ```
/// use ndarray::array;
/// use unpadded::metrics::{CalibrationError, RunningMetric};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let logits = net.feed("logits", DType::F32, &[2], 0);
/// let label = net.feed("label", DType::I64, &[], 0);
/// let mut error = RunningMetric::new(CalibrationError::new(logits, label))?;
/// let sure = array![[9.0f32.ln(), 0.0], [9.0f32.ln(), 0.0]]; // 90 % for class 0
/// error.update(&[sure.into(), array![0i64, 1].into()], 2)?;
/// assert!((error.value() - 0.4).abs() < 1e-6); // right in half of the cases
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CalibrationError {
    name: String,
    classified: LabelledLogits,
    bins: usize,
}

/// A bin of a [`CalibrationError`]: the rows whose guess has a probability in the range of the bin.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct CalibrationBin {
    /// The number of rows in the bin.
    pub rows: u64,
    /// The mean probability of the guesses in the bin.
    pub confidence: f64,
    /// The share of guesses in the bin that are right.
    pub accuracy: f64,
}

impl CalibrationError {
    /// Makes the metric of `logits` `[rows, classes]` against `labels`, one whole number per row, with 15 bins.
    pub fn new(logits: Var, labels: Var) -> Self {
        let classified = LabelledLogits { logits, labels, ignore: None };
        Self { name: "calibration error".to_owned(), classified, bins: 15 }
    }

    /// Sets the number of bins, at least 1. A number of bins that is too large is an error at the first batch.
    #[must_use]
    pub fn bins(self, bins: usize) -> Self {
        Self { bins: bins.max(1), ..self }
    }

    options_of_metric! { "`calibration error`", classified }
}

impl RunningMetric<CalibrationError> {
    /// Returns the bins that have rows, by ascending probability, for a reliability diagram.
    pub fn reliability(&self) -> Vec<CalibrationBin> {
        let point = |bin: &[f64]| CalibrationBin {
            rows: bin[0] as u64,
            confidence: bin[1] / bin[0],
            accuracy: bin[2] / bin[0],
        };
        self.sums().chunks_exact(3).filter(|bin| bin[0] > 0.0).map(point).collect()
    }
}

impl Metric for CalibrationError {
    // For each bin, the number of rows, the sum of the probabilities of the guesses, and the number of right guesses.
    fields_of_metric! { Lower, Share, [classified.logits, classified.labels], |of| of.bins.saturating_mul(3) }

    fn update(&self, sums: &mut [f64], values: &[Variable], _: usize) -> Result<()> {
        let rows = self.classified.rows(&self.name, values)?;
        let Some(logits) = values.first() else { return Ok(()) };
        let classes = logits.shape().get(1).copied().unwrap_or(0);
        let numbers = logits.storage().as_dense()?.cast(DType::F64);
        let numbers = numbers.as_slice::<f64>()?;
        let (mut found, count) = (Vec::with_capacity(rows.len()), self.bins);
        for row in &rows {
            let row_scores = &numbers[row.number * classes..(row.number + 1) * classes];
            let guess = row.guess.filter(|&guess| row_scores[guess as usize].is_finite());
            let Some(guess) = guess else {
                let what = format!("metric `{}`", self.name);
                let expected = "logits that are numbers, the largest of them finite";
                return Err(Error::new(what, expected, format!("{row_scores:?}")).row(row.number));
            };
            let most = row_scores[guess as usize];
            let probability = 1.0 / row_scores.iter().map(|x| (x - most).exp()).sum::<f64>();
            let bin = ((probability * count as f64) as usize).min(count - 1);
            found.push((bin, probability, f64::from(u8::from(guess == row.label))));
        }
        for (bin, probability, hit) in found {
            for (sum, more) in sums[3 * bin..3 * bin + 3].iter_mut().zip([1.0, probability, hit]) {
                *sum += more;
            }
        }
        Ok(())
    }

    fn value(&self, sums: &[f64]) -> f64 {
        let rows: f64 = sums.chunks_exact(3).map(|bin| bin[0]).sum();
        let off: f64 = sums.chunks_exact(3).map(|bin| (bin[2] - bin[1]).abs()).sum();
        if rows > 0.0 { off / rows } else { 0.0 }
    }

    fn kind(&self) -> Option<&'static str> {
        Some(CALIBRATION)
    }

    fn attributes(&self) -> Attributes {
        self.classified.attributes().with(BINS, self.bins)
    }
}
