//! How well sets of labels are found.

use super::{Better, Counts, Metric, MetricKind};
use crate::error::{Error, Result};
use crate::program::{Attributes, Var};
use crate::tensor::{DType, Dense, Variable};

/// Its name in files.
pub(super) const LABEL_SETS: &str = "label_sets";

/// Micro-averaged F1 of sets of labels: 2 · hits / (labels + guesses) over all labels of all rows; 0 without any.
///
/// A label is guessed where its logit is above 0, which is a probability above 0.5, and is there where its target is above 0.5.
///
/// ```
/// use ndarray::array;
/// use unpadded::metrics::{LabelSetF1, Metric};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let [logits, targets] = ["logits", "targets"].map(|name| net.feed(name, DType::F32, &[3], 0));
/// let mut f1 = LabelSetF1::new(logits, targets);
/// f1.update(&[array![[2.0f32, -1.0, 3.0]].into(), array![[1.0f32, 1.0, 0.0]].into()], 1)?;
/// assert_eq!(f1.value(), 0.5); // one hit, two labels, two guesses
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LabelSetF1 {
    name: String,
    logits: Var,
    targets: Var,
    /// Hits, labels and guesses.
    sums: [f64; 3],
}

impl LabelSetF1 {
    /// Of logits `[rows, labels]` against targets of the same shape.
    pub fn new(logits: Var, targets: Var) -> Self {
        Self { name: "micro F1".to_owned(), logits, targets, sums: [0.0; 3] }
    }

    /// Under another name.
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

    fn update(&mut self, values: &[Variable], _: usize) -> Result<()> {
        let wrong =
            |expected: &str, got: String| Error::new(format!("metric `{}`", self.name), expected, got);
        let [logits, targets] = values else {
            return Err(wrong("logits and targets", format!("{} values", values.len())));
        };
        if logits.shape() != targets.shape() {
            let got = format!("shapes {:?} and {:?}", logits.shape(), targets.shape());
            return Err(wrong("logits and targets of one shape", got));
        }
        if let Some(other) = values.iter().find(|value| !value.dtype().is_float()) {
            return Err(wrong("floats", other.dtype().to_string()));
        }
        let floats = |of: &Variable| -> Result<Dense> { Ok(of.storage().as_dense()?.cast(DType::F64)) };
        let (logits, targets) = (floats(logits)?, floats(targets)?);
        for (logit, target) in logits.as_slice::<f64>()?.iter().zip(targets.as_slice::<f64>()?) {
            let (guessed, there) = (*logit > 0.0, *target > 0.5);
            let counts = [guessed && there, there, guessed];
            self.sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += f64::from(u8::from(count)));
        }
        Ok(())
    }

    fn value(&self) -> f64 {
        let [hits, labels, guesses] = self.sums;
        Counts { hits, labels, guesses }.f1()
    }

    fn sums(&mut self) -> &mut [f64] {
        &mut self.sums
    }

    fn kind(&self) -> Option<MetricKind> {
        Some(MetricKind { name: LABEL_SETS, attributes: Attributes::new() })
    }
}
