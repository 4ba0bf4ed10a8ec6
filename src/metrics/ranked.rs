//! Metrics that rank logits: top-k accuracy and the area under the ROC curve.

use super::classes::{LabelledLogits, ratio};
use super::{Better, Metric, Unit};
use crate::error::{Error, Result};
use crate::operator::Attributes;
use crate::program::Var;
use crate::tensor::{DType, Variable};

/// The names in files of top-k accuracy and ROC-AUC, and of their options.
pub(super) const TOP_K: &str = "top_k_accuracy";
pub(super) const ROC_AUC: &str = "roc_auc";
pub(super) const K: &str = "k";
pub(super) const POSITIVE: &str = "positive";

/// Top-k accuracy: the share of rows that have the logit of the label among the k largest logits. Of equal logits, the logit of
/// the earlier class counts as larger. A row with a NaN logit counts as a miss.
///
/// ```
/// use ndarray::array;
/// use unpadded::metrics::{RunningMetric, TopK};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let logits = net.feed("logits", DType::F32, &[3], 0);
/// let label = net.feed("label", DType::I64, &[], 0);
/// let mut second = RunningMetric::new(TopK::new(logits, label, 2))?;
/// second.update(&[array![[0.3f32, 0.2, 0.1], [0.1, 0.2, 0.3]].into(), array![1i64, 0].into()], 2)?;
/// assert_eq!(second.value(), 0.5);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TopK {
    name: String,
    classified: LabelledLogits,
    k: usize,
}

impl TopK {
    /// Makes the top-`k` accuracy of `logits` `[rows, classes]` against `labels`, one whole number per row.
    pub fn new(logits: Var, labels: Var, k: usize) -> Self {
        let classified = LabelledLogits { logits, labels, ignore: None };
        Self { name: format!("top-{k} accuracy"), classified, k }
    }

    options_of_metric! { "such as `top-5 accuracy`", classified }
}

impl Metric for TopK {
    // The number of hits, and the number of rows that are not ignored.
    fields_of_metric! { Higher, Share, [classified.logits, classified.labels], |_| 2 }

    fn update(&self, sums: &mut [f64], values: &[Variable], _: usize) -> Result<()> {
        let rows = self.classified.rows(&self.name, values)?;
        let Some(logits) = values.first() else { return Ok(()) };
        let classes = logits.shape().get(1).copied().unwrap_or(0);
        let numbers = logits.storage().as_dense()?.cast(DType::F64);
        let numbers = numbers.as_slice::<f64>()?;
        let hit = |row: &&super::classes::Row| {
            let row_scores = &numbers[row.number * classes..(row.number + 1) * classes];
            let label = row.label as usize;
            let own = row_scores[label];
            let before = |(class, x): (usize, &f64)| *x > own || (*x == own && class < label);
            !row_scores.iter().any(|x| x.is_nan())
                && row_scores.iter().enumerate().filter(|&at| before(at)).count() < self.k
        };
        sums[0] += rows.iter().filter(hit).count() as f64;
        sums[1] += rows.len() as f64;
        Ok(())
    }

    fn value(&self, sums: &[f64]) -> f64 {
        ratio(sums[0], sums[1])
    }

    fn kind(&self) -> Option<&'static str> {
        Some(TOP_K)
    }

    fn attributes(&self) -> Attributes {
        self.classified.attributes().with(K, self.k)
    }
}

/// The area under the ROC curve (AUC) of a class: the probability that a row of the class has a higher score for the class than
/// a row of another class. A pair of equal scores counts as a half. The AUC is 0.5 if the class or the other classes have no
/// rows.
///
/// The score of a class is ln(p / (1 − p)), where p is the probability of the class in softmax(logits). The score of a
/// certain or impossible class is infinite. Scores s are counted in 16,384 bins of equal width in s / (1 + |s|), so
/// that the metric can stream and be merged; two scores in the same bin count as equal. The error of the AUC is at most
/// half the share of pairs whose two scores are in the same bin. A bin is 0.0001 wide for scores around 0, and 0.015
/// wide for scores around 10.
///
/// ```
/// use ndarray::array;
/// use unpadded::metrics::{RunningMetric, RocAuc};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let logits = net.feed("logits", DType::F32, &[2], 0);
/// let label = net.feed("label", DType::I64, &[], 0);
/// let mut auc = RunningMetric::new(RocAuc::new(logits, label, 1))?;
/// let scores = array![[0.0f32, 1.0], [0.0, -1.0], [0.0, 2.0]];
/// auc.update(&[scores.into(), array![1i64, 0, 0].into()], 3)?;
/// assert_eq!(auc.value(), 0.5); // above one of two
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RocAuc {
    name: String,
    classified: LabelledLogits,
    class: usize,
}

impl RocAuc {
    /// The number of bins in which scores are counted.
    pub const BINS: usize = 1 << 14;

    /// Makes the AUC of `class` against all other classes, from `logits` `[rows, classes]` and `labels`, one whole number per
    /// row.
    pub fn new(logits: Var, labels: Var, class: usize) -> Self {
        let classified = LabelledLogits { logits, labels, ignore: None };
        Self { name: "ROC-AUC".to_owned(), classified, class }
    }

    options_of_metric! { "`ROC-AUC`", classified }

    /// Returns the bin of the score of `class` in a row; `None` if a logit of the row is NaN.
    fn bin(logits: &[f64], class: usize) -> Option<usize> {
        let others = || logits.iter().enumerate().filter(|(at, _)| *at != class).map(|(_, &x)| x);
        let most = others().fold(f64::NEG_INFINITY, f64::max);
        let rest = match most {
            // If the largest other logit is infinite, another class is certain or no other class is possible, and the sum below
            // would be NaN.
            most if most.is_infinite() => most,
            most => others().map(|x| (x - most).exp()).sum::<f64>().ln() + most,
        };
        let score = logits.get(class)? - rest;
        let at = match score {
            // NaN is tested here, because `f64::max` ignores a NaN among the other logits.
            s if s.is_nan() || others().any(f64::is_nan) => return None,
            s if s.is_infinite() => s.signum(),
            s => s / (1.0 + s.abs()),
        };
        Some((((at + 1.0) / 2.0 * Self::BINS as f64) as usize).min(Self::BINS - 1))
    }
}

impl Metric for RocAuc {
    // For each bin, the number of rows of the class; then for each bin, the number of other rows.
    fields_of_metric! { Higher, Share, [classified.logits, classified.labels], |_| 2 * Self::BINS }

    fn update(&self, sums: &mut [f64], values: &[Variable], _: usize) -> Result<()> {
        let rows = self.classified.rows(&self.name, values)?;
        let wrong =
            |expected: &str, got: String| Error::new(format!("metric `{}`", self.name), expected, got);
        let Some(logits) = values.first() else { return Ok(()) };
        let classes = logits.shape().get(1).copied().unwrap_or(0);
        if self.class >= classes || classes < 2 {
            return Err(wrong("one class of two or more", format!("class {} of {classes}", self.class)));
        }
        let numbers = logits.storage().as_dense()?.cast(DType::F64);
        let numbers = numbers.as_slice::<f64>()?;
        let mut bins = Vec::with_capacity(rows.len());
        for row in &rows {
            let row_scores = &numbers[row.number * classes..(row.number + 1) * classes];
            let bin = Self::bin(row_scores, self.class);
            let bin = bin
                .ok_or_else(|| wrong("scores that are numbers", format!("{row_scores:?}")).row(row.number))?;
            bins.push(if row.label == self.class as i64 { bin } else { Self::BINS + bin });
        }
        bins.into_iter().for_each(|bin| sums[bin] += 1.0);
        Ok(())
    }

    fn value(&self, sums: &[f64]) -> f64 {
        let (own, others) = sums.split_at(Self::BINS);
        let (mut below, mut pairs) = (0.0, 0.0);
        for (own, others) in own.iter().zip(others) {
            pairs += own * (below + others / 2.0);
            below += others;
        }
        let all = own.iter().sum::<f64>() * below;
        if all > 0.0 { pairs / all } else { 0.5 }
    }

    fn kind(&self) -> Option<&'static str> {
        Some(ROC_AUC)
    }

    fn attributes(&self) -> Attributes {
        self.classified.attributes().with(POSITIVE, self.class)
    }
}
