//! Metrics that compare sequences with references: edit distance, error rates, exact match.

use super::classes::ratio;
use super::{Better, Metric, Unit, one_a_row};
use crate::error::{Error, Result};
use crate::kernels::edit_distance;
use crate::program::Var;
use crate::tensor::{DType, Variable};

/// The names of the metrics in this file in checkpoints.
pub(super) const ERRORS: &str = "error_rate";
pub(super) const EXACT: &str = "exact_match";

/// Returns pairs of a sequence and its reference: the sequences of the last level of two variables of whole numbers.
pub(super) fn pairs(metric: &str, values: &[Variable]) -> Result<Vec<[Vec<i64>; 2]>> {
    let wrong = |expected: &str, got: String| Error::new(format!("metric `{metric}`"), expected, got);
    let [found, reference] = values else {
        return Err(wrong("predicted sequences and reference sequences", format!("{} values", values.len())));
    };
    let parts = |variable: &Variable| -> Result<Vec<Vec<i64>>> {
        one_a_row(metric, variable)?;
        let (Some(lod), false) = (variable.lod(), variable.dtype().is_float()) else {
            return Err(wrong(
                "sequences of whole numbers",
                format!("{} with {} levels", variable.dtype(), variable.lod().map_or(0, |lod| lod.levels())),
            ));
        };
        let ids = variable.storage().as_dense()?.cast(DType::I64);
        let ids = ids.as_slice::<i64>()?;
        Ok(lod.offsets().windows(2).map(|pair| ids[pair[0]..pair[1]].to_vec()).collect())
    };
    let (found, reference) = (parts(found)?, parts(reference)?);
    if found.len() != reference.len() {
        return Err(wrong(
            &format!("{} sequences, as many as references", reference.len()),
            found.len().to_string(),
        ));
    }
    Ok(found.into_iter().zip(reference).map(|(found, reference)| [found, reference]).collect())
}

/// Error rate: the sum of the edit distances from all sequences to their references, divided by the sum of the references'
/// lengths. For words, it is the word error rate (WER). The error rate may be above 1. Without any
/// reference token, it is undefined (NaN), and [`Metric::table`] has the number of insertions.
///
/// The variables of the error rate hold whole numbers, one per row, and have the same number of sequences in the last level. A
/// sequence and its reference may have different lengths.
///
/// ```
/// use unpadded::metrics::{ErrorRate, RunningMetric};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let [found, wanted] = ["found", "wanted"].map(|name| net.feed(name, DType::I64, &[], 1));
/// let mut rate = RunningMetric::new(ErrorRate::new(found, wanted).named("phoneme error rate"))?;
/// let found = Variable::from_sequences(&[vec![1i64, 2], vec![]])?;
/// let wanted = Variable::from_sequences(&[vec![1i64, 3, 2], vec![4]])?;
/// rate.update(&[found, wanted], 2)?;
/// assert_eq!(rate.value(), 2.0 / 4.0);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ErrorRate {
    name: String,
    found: Var,
    reference: Var,
}

impl ErrorRate {
    /// Makes the error rate of the sequences `found` against the sequences `reference`.
    pub fn new(found: Var, reference: Var) -> Self {
        Self { name: "error rate".to_owned(), found, reference }
    }

    options_of_metric! { "`error rate`" }
}

impl Metric for ErrorRate {
    // The number of edits, and the number of rows of the references.
    fields_of_metric! { Lower, Share, [found, reference], |_| 2 }

    fn update(&self, sums: &mut [f64], values: &[Variable], _: usize) -> Result<()> {
        for [found, reference] in pairs(&self.name, values)? {
            sums[0] += edit_distance(&found, &reference) as f64;
            sums[1] += reference.len() as f64;
        }
        Ok(())
    }

    fn value(&self, sums: &[f64]) -> f64 {
        if sums[1] > 0.0 { sums[0] / sums[1] } else { f64::NAN }
    }

    fn table(&self, sums: &[f64]) -> Option<String> {
        (sums[1] == 0.0).then(|| format!("{} insertions, 0 tokens in the references\n", sums[0]))
    }

    fn kind(&self) -> Option<&'static str> {
        Some(ERRORS)
    }
}

/// Exact match: the share of sequences that equal their reference in every row. The variables must fulfil the
/// conditions that [`ErrorRate`] lists.
///
/// ```
/// use unpadded::metrics::{ExactMatch, RunningMetric};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let [found, wanted] = ["found", "wanted"].map(|name| net.feed(name, DType::I64, &[], 1));
/// let mut exact = RunningMetric::new(ExactMatch::new(found, wanted))?;
/// let sequences = |all: [Vec<i64>; 3]| Variable::from_sequences(&all);
/// exact.update(&[sequences([vec![1, 2], vec![], vec![3]])?, sequences([vec![1, 2], vec![], vec![3, 3]])?], 3)?;
/// assert_eq!(exact.value(), 2.0 / 3.0);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ExactMatch {
    name: String,
    found: Var,
    reference: Var,
}

impl ExactMatch {
    /// Makes exact match of the sequences `found` against the sequences `reference`.
    pub fn new(found: Var, reference: Var) -> Self {
        Self { name: "exact match".to_owned(), found, reference }
    }

    options_of_metric! { "`exact match`" }
}

impl Metric for ExactMatch {
    // The number of matching sequences, and the number of all sequences.
    fields_of_metric! { Higher, Share, [found, reference], |_| 2 }

    fn update(&self, sums: &mut [f64], values: &[Variable], _: usize) -> Result<()> {
        let pairs = pairs(&self.name, values)?;
        sums[0] += pairs.iter().filter(|[found, reference]| found == reference).count() as f64;
        sums[1] += pairs.len() as f64;
        Ok(())
    }

    fn value(&self, sums: &[f64]) -> f64 {
        ratio(sums[0], sums[1])
    }

    fn kind(&self) -> Option<&'static str> {
        Some(EXACT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;
    use crate::metrics::RunningMetric;

    /// Returns the edit distance by its recursive definition: an edit at the first position, plus the edit distance of
    /// the remaining tokens.
    fn by_definition(a: &[u8], b: &[u8]) -> usize {
        match (a.split_first(), b.split_first()) {
            (None, _) => b.len(),
            (_, None) => a.len(),
            (Some((x, a_rest)), Some((y, b_rest))) => {
                let same = by_definition(a_rest, b_rest) + usize::from(x != y);
                same.min(1 + by_definition(a_rest, b)).min(1 + by_definition(a, b_rest))
            }
        }
    }

    #[test]
    fn the_distance_is_that_of_its_definition() {
        let words: Vec<Vec<u8>> = (0..60u32)
            .map(|i| (0..i % 6).map(|k| (i.wrapping_mul(2_654_435_761) >> (3 * k) & 3) as u8).collect())
            .collect();
        for a in &words {
            for b in &words {
                assert_eq!(edit_distance(a, b), by_definition(a, b), "{a:?}, {b:?}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_and_counts_nothing() {
        let net = Builder::new();
        let [a, b] = ["a", "b"].map(|name| net.feed(name, DType::I64, &[], 1));
        let mut rate = RunningMetric::new(ErrorRate::new(a, b)).unwrap();
        let ids = |all: &[Vec<i64>]| Variable::from_sequences(all).unwrap();
        for (values, expected) in [
            (vec![ids(&[vec![1]]), ids(&[vec![1], vec![2]])], "2 sequences, as many as references, got 1"),
            (vec![ids(&[vec![1]])], "predicted sequences and reference sequences, got 1 values"),
            (
                vec![ids(&[vec![1]]), Variable::from_sequences(&[vec![1.0f32]]).unwrap()],
                "sequences of whole numbers",
            ),
            (vec![ids(&[vec![1]]), ndarray::array![1i64].into()], "sequences of whole numbers"),
        ] {
            let error = format!("{:#}", rate.update(&values, 1).unwrap_err());
            assert!(error.contains(expected) && error.contains("error rate"), "{error}");
            assert_eq!(rate.sums(), [0.0; 2]);
        }
    }
}
