//! The sums of metrics, apart from the metrics.

use super::Metric;
use crate::error::{AtCaller, Error, Result};
use crate::reserve;
use crate::tensor::Variable;

/// The maximum number of sums of a metric: 2 GiB of sums. A larger number is a mistake, such as a confusion matrix of more than
/// 16,000 classes.
const MOST: usize = 1 << 28;

/// Returns the sums of a metric before the first batch: zeros.
///
/// # Errors
/// If the metric has too many sums, or the machine does not have enough memory for the sums.
pub(crate) fn zeros(metric: &dyn Metric) -> Result<Vec<f64>> {
    let (count, what) = (metric.sums(), format!("metric `{}`", metric.name()));
    if count > MOST {
        return Err(Error::new(what, format!("at most {MOST} sums"), count.to_string()));
    }
    let mut sums = reserve::vector(count, &format!("sums of {what}"))?;
    sums.resize(count, 0.0);
    Ok(sums)
}

/// A metric with its sums over all batches so far, for use outside of a trainer.
///
/// ```
/// use ndarray::array;
/// use unpadded::metrics::{Accuracy, RunningMetric};
/// use unpadded::{Builder, DType};
/// let net = Builder::new();
/// let logits = net.feed("logits", DType::F32, &[2], 0);
/// let labels = net.feed("labels", DType::I64, &[], 0);
/// let [mut one, mut two] = [RunningMetric::new(Accuracy::new(logits, labels))?, RunningMetric::new(Accuracy::new(logits, labels))?];
/// one.update(&[array![[0.1f32, 0.9]].into(), array![1i64].into()], 1)?;
/// two.update(&[array![[0.1f32, 0.9], [0.8, 0.2]].into(), array![0i64, 1].into()], 2)?;
/// one.merge(two.sums())?;
/// assert_eq!(one.value(), 1.0 / 3.0);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RunningMetric<M> {
    pub(super) metric: M,
    pub(super) sums: Vec<f64>,
}

impl<M: Metric> RunningMetric<M> {
    /// Makes the sums of a metric; all sums are 0.
    ///
    /// # Errors
    /// If the metric has more than 268,435,456 sums, or the machine does not have enough memory for the sums.
    #[track_caller]
    pub fn new(metric: M) -> Result<Self> {
        let sums = zeros(&metric).at_caller()?;
        Ok(Self { metric, sums })
    }

    /// Adds a batch, as [`Metric::update`] does.
    ///
    /// # Errors
    /// If the values do not fit the metric; the sums are then unchanged.
    #[track_caller]
    pub fn update(&mut self, values: &[Variable], sequences: usize) -> Result<()> {
        self.metric.update(&mut self.sums, values, sequences).at_caller()
    }

    /// Adds the sums of another metric of the same kind and options, such as another worker's metric over other batches. The
    /// caller must ensure the same kind and options: only the number of sums is checked.
    ///
    /// # Errors
    /// If `sums` does not have as many sums as this metric.
    #[track_caller]
    pub fn merge(&mut self, sums: &[f64]) -> Result<()> {
        if sums.len() != self.sums.len() {
            let what = format!("metric `{}`, merged", self.metric.name());
            return Err(Error::new(what, format!("{} sums", self.sums.len()), sums.len().to_string()));
        }
        add(&mut self.sums, sums);
        Ok(())
    }

    /// Returns the value over all batches so far.
    pub fn value(&self) -> f64 {
        self.metric.value(&self.sums)
    }

    /// Returns the table over all batches so far ([`Metric::table`]).
    pub fn table(&self) -> Option<String> {
        self.metric.table(&self.sums)
    }

    /// Returns the sums over all batches so far.
    pub fn sums(&self) -> &[f64] {
        &self.sums
    }
}

/// Adds the sums of a metric over some batches to its sums over other batches.
pub(crate) fn add(sums: &mut [f64], other: &[f64]) {
    sums.iter_mut().zip(other).for_each(|(sum, other)| *sum += other);
}
