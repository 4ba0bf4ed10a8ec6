//! Token accuracy: the share of tokens with the right tag.

use super::classes::ratio;
use super::edits::pairs;
use super::{Better, Metric, Unit};
use crate::error::{Error, Result};
use crate::program::Var;
use crate::tensor::Variable;

/// The name of token accuracy in files.
pub(super) const TOKENS: &str = "token_accuracy";

/// Token accuracy: the share of tokens with the right tag, over all sequences together; 0 without a token.
///
/// The variables `found` and `there` hold whole numbers, one per row, and have the same LoD: for example, the best path of a
/// CRF and the reference tags.
///
/// ```
/// use unpadded::metrics::{RunningMetric, TokenAccuracy};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let found = net.feed("found", DType::I64, &[], 1);
/// let there = net.feed_like("there", DType::I64, &[], found);
/// let mut accuracy = RunningMetric::new(TokenAccuracy::new(found, there))?;
/// let sequences = |ids: &[i64]| Variable::from_sequences(&[ids.to_vec(), vec![]]);
/// accuracy.update(&[sequences(&[0, 2, 3, 1])?, sequences(&[0, 2, 1, 1])?], 2)?;
/// assert_eq!(accuracy.value(), 0.75);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TokenAccuracy {
    name: String,
    found: Var,
    there: Var,
}

impl TokenAccuracy {
    /// Makes the token accuracy of the predicted tags `found` against the reference tags `there`.
    pub fn new(found: Var, there: Var) -> Self {
        Self { name: "token accuracy".to_owned(), found, there }
    }

    options_of_metric! { "`token accuracy`" }
}

impl Metric for TokenAccuracy {
    // The number of tokens with the right tag, and the number of all tokens.
    fields_of_metric! { Higher, Share, [found, there], |_| 2 }

    fn update(&self, sums: &mut [f64], values: &[Variable], _: usize) -> Result<()> {
        let pairs = pairs(&self.name, values)?;
        if let Some([found, there]) = pairs.iter().find(|[found, there]| found.len() != there.len()) {
            let expected = format!("{} tags in a sequence, as many as reference tags", there.len());
            return Err(Error::new(format!("metric `{}`", self.name), expected, found.len().to_string()));
        }
        for [found, there] in &pairs {
            sums[0] += found.iter().zip(there).filter(|(a, b)| a == b).count() as f64;
            sums[1] += there.len() as f64;
        }
        Ok(())
    }

    fn value(&self, sums: &[f64]) -> f64 {
        ratio(sums[0], sums[1])
    }

    fn kind(&self) -> Option<&'static str> {
        Some(TOKENS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::RunningMetric;
    use crate::{Builder, DType};

    #[test]
    fn what_does_not_fit_is_refused_and_counts_nothing() {
        let net = Builder::new();
        let [a, b] = ["a", "b"].map(|name| net.feed(name, DType::I64, &[], 1));
        let mut accuracy = RunningMetric::new(TokenAccuracy::new(a, b)).unwrap();
        let ids = |ids: &[i64]| Variable::from_sequences(&[ids.to_vec()]).unwrap();
        let error = format!("{:#}", accuracy.update(&[ids(&[1]), ids(&[1, 2])], 1).unwrap_err());
        assert!(error.contains("token accuracy") && error.contains("as many as reference tags"), "{error}");
        assert_eq!(accuracy.sums(), [0.0; 2]);
    }
}
