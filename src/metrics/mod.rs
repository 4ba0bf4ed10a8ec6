//! Streaming metrics over ragged batches. A metric accumulates sums, so its value over batches of any sizes equals its
//! value over all rows at once.
//!
//! A [`Metric`] names the variables that it reads, gets the values of these variables after each batch, and returns its
//! value over all batches at any time. No row is padding, so nothing has to be masked; an option of a metric can
//! exclude rows that *should* not count, such as the rows with a label to ignore. Batches and sequences may be empty.
//!
//! | metric | reads | value |
//! |---|---|---|
//! | [`Loss::new`] | a loss of each row, or a scalar loss | the mean over rows, or the scalar loss of all rows together |
//! | [`Loss::perplexity`] | the cross-entropy of each row, in nats | exp(mean) |
//! | [`Loss::bits_per_character`] | the cross-entropy of each row, in nats | mean / ln 2 |
//! | [`Accuracy`] | logits and labels | the share of rows whose largest logit is at the label |
//! | [`TopK`] | logits and labels | the share of rows whose label is among the k largest logits |
//! | [`Precision`], [`Recall`], [`F1`] | logits and labels | the value of one class, or the micro or macro average |
//! | [`ConfusionMatrix`] | logits and labels | the accuracy; a table of labels against guesses |
//! | [`RocAuc`] | logits and labels | the probability that a row of the class ranks above a row of another class |
//! | [`CalibrationError`] | logits and labels | the mean distance between the probabilities and the accuracy of guesses |
//! | [`LabelSetF1`] | logits or probabilities, and targets, of several labels | micro-averaged F1 over all labels of all rows, at the best thresholds |
//! | [`MeanError`] | predicted and target numbers | the mean absolute, squared or root mean squared error |
//! | [`ChunkF1`] | predicted and reference tags | F1 of chunks, as in the CoNLL evaluation |
//! | [`TokenAccuracy`] | predicted and reference tags | the share of tokens with the right tag |
//! | [`ErrorRate`] | predicted and reference sequences | edits per reference token: word and phoneme error rates |
//! | [`ExactMatch`] | predicted and reference sequences | the share of sequences that equal their reference |
//! | [`Bleu`] | predicted and reference sequences | BLEU, equal to sacreBLEU's value; texts can be added, too |
//! | [`ChrF`] | texts | chrF2, equal to sacreBLEU's value; a trainer cannot use it |
//!
//! To write a metric of your own, implement the trait [`Metric`]. A metric is a description without state: its sums are apart
//! from it, so that a trainer can have sums of each part of a batch, of each process and of each epoch. [`RunningMetric`] is a metric
//! with sums outside of a trainer:
//!
//! ```
//! use unpadded::{Builder, DType, Result, Var, Variable};
//! use unpadded::metrics::{Better, Metric, RunningMetric};
//!
//! /// The mean length of sequences.
//! struct Length(Var);
//!
//! impl Metric for Length {
//!     fn name(&self) -> &str {
//!         "length"
//!     }
//!     fn variables(&self) -> Vec<Var> {
//!         vec![self.0]
//!     }
//!     fn better(&self) -> Better {
//!         Better::Higher
//!     }
//!     fn sums(&self) -> usize {
//!         2 // rows and sequences
//!     }
//!     fn update(&self, sums: &mut [f64], values: &[Variable], sequences: usize) -> Result<()> {
//!         sums[0] += values.iter().map(Variable::rows).sum::<usize>() as f64;
//!         sums[1] += sequences as f64;
//!         Ok(())
//!     }
//!     fn value(&self, sums: &[f64]) -> f64 {
//!         sums[0] / sums[1].max(1.0)
//!     }
//! }
//!
//! let net = Builder::new();
//! let words = net.feed("words", DType::I64, &[], 1);
//! let mut length = RunningMetric::new(Length(words))?;
//! length.update(&[Variable::from_sequences(&[vec![1i64, 2, 3], vec![]])?], 2)?;
//! length.update(&[Variable::from_sequences(&[vec![4i64]])?], 1)?;
//! assert_eq!(length.value(), 4.0 / 3.0); // of all sequences, not of the two batches' means
//! # Ok::<(), unpadded::Error>(())
//! ```

/// Defines the methods of [`Metric`] that return fields, the direction and the unit of the values, and the number of sums.
macro_rules! fields_of_metric {
    ($better:ident, $unit:ident, [$($($variable:ident).+),+], $sums:expr) => {
        fn name(&self) -> &str {
            &self.name
        }

        fn variables(&self) -> Vec<Var> {
            vec![$(self.$($variable).+),+]
        }

        fn better(&self) -> Better {
            Better::$better
        }

        fn unit(&self) -> Unit {
            Unit::$unit
        }

        fn sums(&self) -> usize {
            let count: fn(&Self) -> usize = $sums;
            count(self)
        }
    };
}

/// Defines the methods that set the name of a metric and, for a metric of labelled logits, the label to ignore.
macro_rules! options_of_metric {
    ($default:literal, $classified:ident) => {
        /// Ignores the rows with the label `label`.
        #[must_use]
        pub fn ignoring(mut self, label: i64) -> Self {
            self.$classified.ignore = Some(label);
            self
        }

        options_of_metric! { $default }
    };
    ($default:literal) => {
        #[doc = concat!("Sets the name of the metric in output and files (default: ", $default, ").")]
        #[must_use]
        pub fn named(self, name: &str) -> Self {
            Self { name: name.to_owned(), ..self }
        }
    };
}

mod bleu;
mod calibration;
mod chrf;
mod chunks;
mod classes;
mod confusion;
mod described;
mod deviation;
mod edits;
mod formula;
mod label_sets;
mod ranked;
mod running;
mod scores;
mod tokens;
mod unit;

pub use crate::checkpoint::position::Better;
pub use crate::kernels::edit_distance;
pub use bleu::{Bleu, tokens_13a};
pub use calibration::{CalibrationBin, CalibrationError};
pub use chrf::ChrF;
pub use chunks::{ChunkF1, ChunkRule, counted};
pub use classes::{Accuracy, Average, Counts, F1, Precision, Recall, ratio};
pub use confusion::ConfusionMatrix;
pub(crate) use described::{OWN, SHARE, describe, metric_of, variables_of};
pub use deviation::MeanError;
pub use edits::{ErrorRate, ExactMatch};
pub use label_sets::{LabelSetF1, LabelThreshold};
pub use ranked::{RocAuc, TopK};
pub use running::RunningMetric;
pub(crate) use running::{add, zeros};
pub use scores::Scores;
pub use tokens::TokenAccuracy;
pub use unit::Unit;

use crate::error::{Error, ErrorKind, Result};
use crate::operator::{Attributes, Registry, Spec, VarId};
use crate::program::{Builder, Program, Var};
use crate::tensor::{DType, Variable};
use formula::Formula;
use std::sync::Arc;

/// A metric: computes one number from sums over all batches so far. The sums are apart from the metric: [`RunningMetric`] has both.
pub trait Metric {
    /// Returns the name of the metric in output, model selection and files; names must be unique in a trainer.
    fn name(&self) -> &str;

    /// Returns the variables that the metric reads; [`Self::update`] gets their values in this order. The variables may be
    /// feeds.
    fn variables(&self) -> Vec<Var>;

    /// Returns whether higher or lower values of the metric are better.
    fn better(&self) -> Better;

    /// Returns the unit of the metric's values; by default a plain number.
    fn unit(&self) -> Unit {
        Unit::Number
    }

    /// Returns the number of sums, which must always be the same. The sums are the WHOLE state of a metric over batches, and
    /// start as zeros. Sums over different batches are added to get the sums over all of these batches, and earlier sums, such as
    /// the sums in a checkpoint, are continued. A file stores zeros compactly: a metric with many sums takes little space if most
    /// of the sums are zero.
    fn sums(&self) -> usize;

    /// Adds a batch of `sequences` sequences to the sums: `values` holds the values of [`Self::variables`].
    ///
    /// # Errors
    /// If the values do not fit the metric; an error must leave the sums unchanged.
    fn update(&self, sums: &mut [f64], values: &[Variable], sequences: usize) -> Result<()>;

    /// Returns the value over all batches since the sums were zero; 0 if there was no row to count.
    fn value(&self, sums: &[f64]) -> f64;

    /// Returns a table with more details than the value, such as a line per class.
    /// [`Trainer::tables`](crate::train::Trainer::tables) returns the tables of all metrics.
    fn table(&self, _sums: &[f64]) -> Option<String> {
        None
    }

    /// Returns the kind of the metric in files, such as `accuracy`, from which a [`Predictor`](crate::predict) makes the metric
    /// again. Metrics of your own return `None`, because only the metrics of this library can be made from a kind: a file then has
    /// only the name, the variables, the unit and the options, and [`Predictor::metric`](crate::predict::Predictor::metric) makes
    /// the metric.
    fn kind(&self) -> Option<&'static str> {
        None
    }

    /// Returns the options of the metric, by name, for files. A training that is resumed with other options does not continue the
    /// sums of the epoch so far.
    fn attributes(&self) -> Attributes {
        Attributes::new()
    }
}

/// The loss as a metric: the mean of losses over rows, or the perplexity or bits per character computed from this mean.
///
/// ```
/// use ndarray::array;
/// use unpadded::metrics::{Loss, RunningMetric};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let logits = net.feed("logits", DType::F32, &[4], 1);
/// let next = net.feed_like("next", DType::I64, &[], logits);
/// let nats = logits.cross_entropy(next); // of each character
/// let mut bits = RunningMetric::new(Loss::bits_per_character(nats))?;
/// let ln2 = std::f32::consts::LN_2;
/// bits.update(&[Variable::from_sequences(&[vec![ln2, 3.0 * ln2], vec![]])?], 2)?;
/// bits.update(&[Variable::from_sequences(&[vec![2.0 * ln2]])?], 1)?;
/// assert!((bits.value() - 2.0).abs() < 1e-6);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Loss {
    name: String,
    losses: Var,
    share: Option<Var>,
    shown: LossFigure,
    over: LossValues,
}

/// The form of the losses of a batch: one per row, or one per batch.
#[derive(Debug, Clone)]
enum LossValues {
    /// The losses are one number per row. If the loss was given as a mean of these numbers, `Some` holds the variable of the
    /// mean.
    Rows(Option<Var>),
    /// The loss is one number per batch: holds the formula of the loss over several batches, or an error if the loss has no
    /// formula.
    Batch(Result<Arc<Formula>>),
    /// It is unknown whether the loss is one number per row or one number per batch, because the builder is gone or
    /// belongs to another thread.
    Unknown,
}

/// The value that is computed from the mean of the losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LossFigure {
    Mean,
    Perplexity,
    BitsPerCharacter,
}

/// Advice in errors about a scalar loss that has no formula over several batches.
const BY_SHARE: &str = "`Loss::weighted` with a scalar sets the weight of each batch";

/// The name of the attribute that marks a loss with a formula in files.
const FORMULA: &str = "formula";

impl LossFigure {
    /// All values that can be computed from the mean, each with its name in files.
    const ALL: [(LossFigure, &str); 3] = [
        (LossFigure::Mean, "loss"),
        (LossFigure::Perplexity, "perplexity"),
        (LossFigure::BitsPerCharacter, "bits_per_character"),
    ];
}

impl Loss {
    /// Makes the metric of `losses`, one number per row, or of a scalar loss such as the loss of a
    /// [`Trainer`](crate::train::Trainer). For losses per row, the value of the metric is the mean of the losses. A scalar
    /// loss must be a function of sums and means over rows; its value over several batches is the loss of the rows of all
    /// batches together. An operator of the loss that reads a whole batch, such as `gather_rows`, still reads each batch
    /// alone. The name of the metric is `loss`.
    ///
    /// The function of a scalar loss is derived from the program of the builder. Therefore, make the metric before
    /// [`Builder::finish`], on the thread of the builder.
    pub fn new(losses: Var) -> Self {
        let made = Builder::found(losses).and_then(|net| {
            net.check().ok()?;
            Some(net.with_program(|program, registry| {
                Self::in_program(program, registry, losses, |id| net.var(id))
            }))
        });
        made.unwrap_or_else(|| Self::made(losses, LossValues::Unknown))
    }

    /// Makes the metric of the losses `losses` of a loaded program.
    pub(crate) fn of_program(program: &Program, registry: &Registry, losses: Var) -> Self {
        Self::in_program(program, registry, losses, Var::of_program)
    }

    fn in_program(program: &Program, registry: &Registry, losses: Var, var: impl Fn(VarId) -> Var) -> Self {
        let known = (losses.id().0 as usize) < program.vars().len();
        if !known || program.spec(losses.id()).is_ok_and(Spec::batched) {
            return Self::made(losses, LossValues::Rows(None));
        }
        let formula = Formula::of(program, registry, losses.id(), var);
        let one_a_row = |losses_var: &Var| {
            program
                .spec(losses_var.id())
                .is_ok_and(|spec| spec.batched() && spec.width() == 1 && spec.shape.len() <= 2)
        };
        match formula.as_ref().ok().and_then(Formula::mean_of).filter(one_a_row) {
            Some(losses_var) => Self::made(losses_var, LossValues::Rows(Some(losses))),
            None => Self::made(losses, LossValues::Batch(formula.map(Arc::new))),
        }
    }

    fn made(losses: Var, over: LossValues) -> Self {
        Self { name: "loss".to_owned(), losses, share: None, shown: LossFigure::Mean, over }
    }

    /// Returns an error for a scalar loss without weights that cannot be accumulated batch by batch, because it has no formula.
    pub(crate) fn refused(&self) -> Result<()> {
        match (&self.over, self.share) {
            (LossValues::Batch(Err(error)), None) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn formula(&self) -> Option<&Formula> {
        match (&self.over, self.share) {
            (LossValues::Batch(Ok(formula)), None) => Some(formula),
            _ => None,
        }
    }

    /// Makes the perplexity: exp of the mean of `losses`, which are cross-entropies in nats.
    pub fn perplexity(losses: Var) -> Self {
        Self { name: "perplexity".to_owned(), shown: LossFigure::Perplexity, ..Self::new(losses) }
    }

    /// Makes bits per character: the mean of `losses` divided by ln 2; `losses` are cross-entropies in nats, with one character
    /// per row.
    pub fn bits_per_character(losses: Var) -> Self {
        Self {
            name: "bits per character".to_owned(),
            shown: LossFigure::BitsPerCharacter,
            ..Self::new(losses)
        }
    }

    /// Weights the losses: the metric becomes Σ loss / Σ share, instead of the mean over rows.
    /// [`Builder::cross_entropy_with`](crate::program::Builder) returns both losses and shares; the share of an ignored
    /// row is 0. For a scalar loss, `share` is a scalar, the weight of the batch: Σ share · loss / Σ share.
    #[must_use]
    pub fn weighted(self, share: Var) -> Self {
        let (losses, over) = match self.over {
            LossValues::Rows(Some(mean)) => (mean, LossValues::Unknown),
            over => (self.losses, over),
        };
        Self { losses, over, share: Some(share), ..self }
    }

    options_of_metric! { "`loss`, `perplexity` or `bits per character`" }
}

impl Metric for Loss {
    fn name(&self) -> &str {
        &self.name
    }

    fn variables(&self) -> Vec<Var> {
        let formula = self.formula().into_iter().flat_map(Formula::variables);
        std::iter::once(self.losses).chain(self.share).chain(formula).collect()
    }

    fn better(&self) -> Better {
        Better::Lower
    }

    /// Returns the number of sums: the sum of the losses and the sum of their weights, or the sums of the formula.
    fn sums(&self) -> usize {
        self.formula().map_or(2, Formula::sums)
    }

    fn update(&self, sums: &mut [f64], values: &[Variable], sequences: usize) -> Result<()> {
        self.refused().map_err(|e| e.noted(BY_SHARE))?;
        if let (Some(formula), [_, values @ ..]) = (self.formula(), values) {
            return formula.update(sums, values);
        }
        let one = |value: &Variable| value.shape().iter().all(|&n| n == 1);
        let of_batch = |loss: &Variable| match self.over {
            LossValues::Rows(_) => false,
            LossValues::Batch(_) => true,
            LossValues::Unknown => loss.shape().is_empty() || (loss.lod().is_none() && sequences != 1),
        };
        let (sum, weight) = match values {
            [loss, weight] if of_batch(loss) && one(loss) && one(weight) => {
                let weight = checked_weight(self.sum(weight)?)?;
                (self.sum(loss)? * weight, weight)
            }
            [losses] => {
                let sum = self.sum(losses)?;
                if matches!(self.over, LossValues::Unknown) && one(losses) && of_batch(losses) {
                    return Err(self.unknown(losses));
                }
                (sum, one_a_row(&self.name, losses)? as f64)
            }
            [losses, share] if one_a_row(&self.name, losses)? == one_a_row(&self.name, share)? => {
                same_sequences(&self.name, losses, share)?;
                (self.sum(losses)?, self.sum(share)?)
            }
            _ => {
                let shapes: Vec<&[usize]> = values.iter().map(Variable::shape).collect();
                return Err(self.wrong("one share for each loss", format!("{shapes:?}")));
            }
        };
        // A batch with the weight 0, such as a batch without rows, does not count, even if its loss is NaN.
        if weight > 0.0 {
            sums[0] += sum;
            sums[1] += weight;
        }
        Ok(())
    }

    fn value(&self, sums: &[f64]) -> f64 {
        let mean = match (self.formula(), sums) {
            (Some(formula), sums) => formula.value(sums).unwrap_or(Some(f64::NAN)),
            (None, &[sum, weight]) if weight > 0.0 => Some(sum / weight),
            _ => None,
        };
        let Some(mean) = mean else { return 0.0 };
        match self.shown {
            LossFigure::Mean => mean,
            LossFigure::Perplexity => mean.exp(),
            LossFigure::BitsPerCharacter => mean / std::f64::consts::LN_2,
        }
    }

    fn kind(&self) -> Option<&'static str> {
        LossFigure::ALL.into_iter().find(|(shown, _)| *shown == self.shown).map(|(_, name)| name)
    }

    fn attributes(&self) -> Attributes {
        match (&self.over, self.share) {
            (LossValues::Batch(_), None) => Attributes::new().with(FORMULA, true),
            _ => Attributes::new(),
        }
    }
}

impl Loss {
    fn wrong(&self, expected: &str, got: String) -> Error {
        Error::new(format!("metric `{}`", self.name), expected, got)
    }

    /// Makes the error for a scalar loss if its program was not available when the metric was made.
    fn unknown(&self, loss: &Variable) -> Error {
        let got = format!("one number of shape {:?} for the whole batch", loss.shape());
        let why = "when the metric was made, the builder of the loss was gone or belonged to another thread, so the formula of the \
                   loss is unknown: make the metric before `Builder::finish`, on the builder's thread";
        self.wrong("one loss per row", got).noted(why).noted(BY_SHARE)
    }

    /// Returns the sum of all numbers in `values`, computed in f64.
    fn sum(&self, values: &Variable) -> Result<f64> {
        if !values.dtype().is_float() {
            return Err(self.wrong("floats", values.dtype().to_string()));
        }
        Ok(values
            .storage()
            .as_dense()?
            .cast(DType::F64)
            .as_slice::<f64>()?
            .iter()
            .fold(0.0, |sum, x| sum + x))
    }
}

/// Checks that two variables that are compared row by row have the same LoD. A variable without a LoD fits any LoD.
fn same_sequences(metric: &str, a: &Variable, b: &Variable) -> Result<()> {
    match (a.lod(), b.lod()) {
        (Some(a), Some(b)) if a != b => {
            let (what, expected) = (format!("metric `{metric}`"), "values in the same sequences");
            Err(Error::new(what, expected, format!("LoD {a} and {b}")))
        }
        _ => Ok(()),
    }
}

/// Checks that the weight of a batch is a finite number of at least 0.
pub(crate) fn checked_weight(weight: f64) -> Result<f64> {
    match weight.is_finite() && weight >= 0.0 {
        true => Ok(weight),
        false => {
            let expected = "a finite number of at least 0";
            Err(Error::of(ErrorKind::Program, "weight of a batch", expected, weight.to_string()))
        }
    }
}

/// Returns the number of rows of a variable; an error if the variable does not have one number per row.
fn one_a_row(metric: &str, values: &Variable) -> Result<usize> {
    match values.shape() {
        [rows] | [rows, 1] => Ok(*rows),
        other => {
            let (what, got) = (format!("metric `{metric}`"), format!("shape {other:?}"));
            Err(Error::new(what, "one value for each row", got))
        }
    }
}

#[cfg(test)]
mod tests;
