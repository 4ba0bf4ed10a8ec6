//! Regression errors: the deviation of numbers from their targets.

use super::classes::ratio;
use super::{Better, Metric, Unit, same_sequences};
use crate::error::{Error, Result};
use crate::program::Var;
use crate::tensor::{DType, Dense, Variable};

/// The kind of regression error that is computed from the differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deviation {
    Absolute,
    Square,
    Root,
}

impl Deviation {
    /// All kinds of error, each with the name of the metric in output and in files.
    const ALL: [(Deviation, &str); 3] = [
        (Deviation::Absolute, "mean absolute error"),
        (Deviation::Square, "mean squared error"),
        (Deviation::Root, "root mean squared error"),
    ];
}

/// Regression error: the mean absolute, mean squared or root mean squared error of numbers, over all columns of all rows.
///
/// ```
/// use ndarray::array;
/// use unpadded::metrics::{MeanError, RunningMetric};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let [found, wanted] = ["found", "wanted"].map(|name| net.feed(name, DType::F32, &[1], 0));
/// let mut error = RunningMetric::new(MeanError::absolute(found, wanted))?;
/// error.update(&[array![[1.0f32], [2.0]].into(), array![[1.5f32], [4.0]].into()], 2)?;
/// assert_eq!(error.value(), 1.25);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MeanError {
    name: String,
    found: Var,
    wanted: Var,
    of: Deviation,
}

impl MeanError {
    fn new(deviation: Deviation, found: Var, wanted: Var) -> Self {
        let name =
            Deviation::ALL.into_iter().find(|(known, _)| *known == deviation).map_or("", |(_, name)| name);
        Self { name: name.to_owned(), found, wanted, of: deviation }
    }

    /// Makes the mean absolute error: the mean of |found − wanted|, for floats of equal shape.
    pub fn absolute(found: Var, wanted: Var) -> Self {
        Self::new(Deviation::Absolute, found, wanted)
    }

    /// Makes the mean squared error: the mean of (found − wanted)².
    pub fn squared(found: Var, wanted: Var) -> Self {
        Self::new(Deviation::Square, found, wanted)
    }

    /// Makes the root mean squared error: the root of the mean of (found − wanted)².
    pub fn root_squared(found: Var, wanted: Var) -> Self {
        Self::new(Deviation::Root, found, wanted)
    }

    /// Returns the metric with the name `kind` in files; `None` if no regression error has this name.
    pub(super) fn of_kind(kind: &str, found: Var, wanted: Var) -> Option<Self> {
        let (deviation, _) = Deviation::ALL.into_iter().find(|(_, name)| *name == kind)?;
        Some(Self::new(deviation, found, wanted))
    }

    options_of_metric! { "`mean absolute error` and so on" }
}

impl Metric for MeanError {
    // The sum of the absolute or squared errors, and the number of summed errors.
    fields_of_metric! { Lower, Number, [found, wanted], |_| 2 }

    fn update(&self, sums: &mut [f64], values: &[Variable], _: usize) -> Result<()> {
        let wrong =
            |expected: &str, got: String| Error::new(format!("metric `{}`", self.name), expected, got);
        let [found, wanted] = values else {
            return Err(wrong("predicted numbers and target numbers", format!("{} values", values.len())));
        };
        // The shapes `[rows]` and `[rows, 1]` are equivalent, so only the number of rows and the total number of
        // elements are compared.
        let numbers = |variable: &Variable| variable.shape().iter().product::<usize>();
        if (found.rows(), numbers(found)) != (wanted.rows(), numbers(wanted)) {
            let got = format!("shapes {:?} and {:?}", found.shape(), wanted.shape());
            return Err(wrong("numbers of the same shape", got));
        }
        same_sequences(&self.name, found, wanted)?;
        if let Some(other) = values.iter().find(|value| !value.dtype().is_float()) {
            return Err(wrong("floats", other.dtype().to_string()));
        }
        let floats =
            |variable: &Variable| -> Result<Dense> { Ok(variable.storage().as_dense()?.cast(DType::F64)) };
        let (found, wanted) = (floats(found)?, floats(wanted)?);
        let pairs = found.as_slice::<f64>()?.iter().zip(wanted.as_slice::<f64>()?);
        let error = |(a, b): (&f64, &f64)| {
            if self.of == Deviation::Absolute { (a - b).abs() } else { (a - b).powi(2) }
        };
        sums[1] += pairs.len() as f64;
        sums[0] += pairs.map(error).sum::<f64>();
        Ok(())
    }

    fn value(&self, sums: &[f64]) -> f64 {
        let mean = ratio(sums[0], sums[1]);
        if self.of == Deviation::Root { mean.sqrt() } else { mean }
    }

    fn kind(&self) -> Option<&'static str> {
        Deviation::ALL.into_iter().find(|(deviation, _)| *deviation == self.of).map(|(_, name)| name)
    }
}
