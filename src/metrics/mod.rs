//! Metrics that stream over ragged batches: each keeps sums, so that batches of any sizes give the value over all rows.
//!
//! A [`Metric`] names the variables that it looks at, gets their values after each batch, and says at any time what
//! they come to. No row is padding, so none has to be left out; rows that *should* not count (a label to ignore) are
//! said when the metric is made. Batches and sequences may be empty.
//!
//! | metric | looks at | is |
//! |---|---|---|
//! | [`Loss::new`] | a loss of each row, or a scalar loss | their mean |
//! | [`Loss::perplexity`] | the cross-entropy of each row, in nats | exp(mean) |
//! | [`Loss::bits_per_character`] | the same | mean / ln 2 |
//! | [`Accuracy`] | logits and labels | the share of rows whose largest logit is at the label |
//! | [`TopK`] | logits and labels | the share of rows whose label is among the k largest logits |
//! | [`Precision`], [`Recall`], [`F1`] | logits and labels | of a class, or the micro or macro average; F1 is the harmonic mean of the other two |
//! | [`ConfusionMatrix`] | logits and labels | the accuracy; a table of which class is taken for which |
//! | [`RocAuc`] | logits and labels | how likely a row of a class has a higher score for it than another |
//! | [`CalibrationError`] | logits and labels | how far probabilities are from how often guesses are right |
//! | [`LabelSetF1`] | logits and targets of several labels | micro-averaged F1 over all labels of all rows, at the best threshold |
//! | [`MeanError`] | numbers and numbers | the mean absolute, squared or root mean squared error |
//! | [`ChunkF1`] | tags and tags | F1 of chunks, as the CoNLL evaluation has it |
//! | [`TokenAccuracy`] | tags and tags | the share of tokens whose tag is right |
//! | [`ErrorRate`] | sequences and sequences | edits that make the one the other, for each token: word and phoneme error rates |
//! | [`ExactMatch`] | sequences and sequences | the share of sequences that are the same |
//! | [`Bleu`] | sequences and sequences | BLEU, equal to that of sacreBLEU; of texts too |
//! | [`ChrF`] | texts | chrF2, equal to that of sacreBLEU; no metric of a trainer |
//!
//! A metric of your own is an implementation of the trait:
//!
//! ```
//! use unpadded::{Builder, DType, Result, Var, Variable};
//! use unpadded::metrics::{Better, Metric};
//!
//! /// The mean length of sequences.
//! struct Length(Var, [f64; 2]);
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
//!     fn update(&mut self, values: &[Variable], sequences: usize) -> Result<()> {
//!         self.1[0] += values.iter().map(Variable::rows).sum::<usize>() as f64;
//!         self.1[1] += sequences as f64;
//!         Ok(())
//!     }
//!     fn value(&self) -> f64 {
//!         self.1[0] / self.1[1].max(1.0)
//!     }
//!     fn sums(&mut self) -> &mut [f64] {
//!         &mut self.1
//!     }
//! }
//!
//! let net = Builder::new();
//! let words = net.feed("words", DType::I64, &[], 1);
//! let mut length = Length(words, [0.0; 2]);
//! length.update(&[Variable::from_sequences(&[vec![1i64, 2, 3], vec![]])?], 2)?;
//! length.update(&[Variable::from_sequences(&[vec![4i64]])?], 1)?;
//! assert_eq!(length.value(), 4.0 / 3.0); // of all sequences, not of the two batches' means
//! # Ok::<(), unpadded::Error>(())
//! ```

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
mod scores;
mod sums;
mod tokens;
mod unit;

pub use crate::checkpoint::position::Better;
pub use crate::kernels::edit_distance;
pub use bleu::{Bleu, tokens_13a};
pub use calibration::{CalibrationBin, CalibrationError};
pub use chrf::ChrF;
pub use chunks::ChunkF1;
pub(crate) use chunks::{ChunkRule, counted};
pub use classes::{Accuracy, Average, F1, Precision, Recall};
pub(crate) use classes::{Counts, ratio};
pub use confusion::ConfusionMatrix;
pub(crate) use described::{describe, metric_of};
pub use deviation::MeanError;
pub use edits::{ErrorRate, ExactMatch};
pub use label_sets::LabelSetF1;
pub use ranked::{RocAuc, TopK};
pub use scores::Scores;
pub use tokens::TokenAccuracy;
pub use unit::Unit;

use crate::error::{Error, Result};
use crate::executor::checked_weight;
use crate::operator::{Attributes, Registry, Spec, VarId};
use crate::program::{Builder, Program, Var};
use crate::tensor::{DType, Variable};
use formula::Formula;
use std::sync::Arc;

/// A number about all batches so far.
pub trait Metric {
    /// What it is called where it is shown, selected and stored; one name a trainer.
    fn name(&self) -> &str;

    /// The variables whose values [`Self::update`] gets, in their order. Feeds are allowed.
    fn variables(&self) -> Vec<Var>;

    /// Which values are better.
    fn better(&self) -> Better;

    /// The unit of its values: a plain number, unless the metric sets another.
    fn unit(&self) -> Unit {
        Unit::Number
    }

    /// Takes in a batch of so many sequences.
    ///
    /// # Errors
    /// If the values do not fit; nothing may have been taken in then.
    fn update(&mut self, values: &[Variable], sequences: usize) -> Result<()>;

    /// What all batches since the sums were zero come to; a number, 0 without anything that counts.
    fn value(&self) -> f64;

    /// ALL that it knows of the batches so far. Setting them to zero starts anew; setting them to what they were (they
    /// are stored in checkpoints) goes on from there. Their number never changes: an update that changes it is an error. Many cost
    /// little in a file if most are zero.
    fn sums(&mut self) -> &mut [f64];

    /// Takes in what another metric of the same kind and settings, which saw other batches, has summed up
    /// ([`Self::sums`]): of several workers, or of parts of the data. It is then as if this one had seen those batches too.
    ///
    /// That the other one is of the same kind and settings is for the caller to see to: sums are numbers without a name, and all that
    /// can be checked is how many there are. Those of `Accuracy` and of `Loss`, two each, are added up without a word.
    ///
    /// # Errors
    /// If there are more sums or fewer.
    #[track_caller]
    fn merge(&mut self, sums: &[f64]) -> Result<()> {
        let (name, own) = (self.name().to_owned(), self.sums());
        if own.len() != sums.len() {
            let (what, expected) = (format!("metric `{name}`, merged"), format!("{} sums", own.len()));
            return Err(Error::new(what, expected, sums.len().to_string()));
        }
        own.iter_mut().zip(sums).for_each(|(own, other)| *own += other);
        Ok(())
    }

    /// More than its value, if there is more: a line for each class, say. [`Trainer::tables`](crate::train::Trainer::tables) gives it.
    fn table(&self) -> Option<String> {
        None
    }

    /// What a file says of it beside its name and its variables, for a [`Predictor`](crate::predict) to compute it too. `None`
    /// keeps it out of files, as metrics of one's own have to be: only the library's can be made again by their kind.
    fn kind(&self) -> Option<MetricKind> {
        None
    }
}

/// Checks that a metric has as many sums as it had.
///
/// # Errors
/// If it has more or fewer.
pub(crate) fn check_count(metric: &mut dyn Metric, before: usize) -> Result<()> {
    let now = metric.sums().len();
    if now == before {
        return Ok(());
    }
    let (what, expected) =
        (format!("sums of metric `{}`", metric.name()), format!("{before}, as before the update"));
    let error = Error::new(what, expected, now.to_string());
    Err(error
        .noted("`Metric::sums` gives the same number of sums at all times; those without a value yet are 0"))
}

/// Sets the sums of a metric to what they were. If their number has changed, those that it still has are set, and added ones are 0.
pub(crate) fn restore(metric: &mut dyn Metric, sums: &[f64]) {
    let before = sums.iter().copied().chain(std::iter::repeat(0.0));
    metric.sums().iter_mut().zip(before).for_each(|(sum, before)| *sum = before);
}

/// Which of the library's metrics it is, and what it was told.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MetricKind {
    /// Its name in files.
    pub name: &'static str,
    /// What it was told, by name.
    pub attributes: Attributes,
}

/// The mean of losses over rows, and what is computed from it.
///
/// ```
/// use ndarray::array;
/// use unpadded::metrics::{Loss, Metric};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let logits = net.feed("logits", DType::F32, &[4], 1);
/// let next = net.feed_like("next", DType::I64, &[], logits);
/// let nats = logits.cross_entropy(next); // of each character
/// let mut bits = Loss::bits_per_character(nats);
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
    /// Of the losses, and of what they count; with a formula, the formula's.
    sums: Vec<f64>,
}

/// What the losses of a batch are.
#[derive(Debug, Clone)]
enum LossValues {
    /// One number a row; and their mean, if the loss was given as that.
    Rows(Option<Var>),
    /// One number: how that of several batches is computed from theirs, or why it cannot be.
    Batch(Result<Arc<Formula>>),
    /// One number a row or one number: the builder is gone, or is another thread's.
    Unknown,
}

/// What is computed from the mean of losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LossFigure {
    Mean,
    Perplexity,
    BitsPerCharacter,
}

/// What to do about a scalar loss that batches do not tell.
const BY_SHARE: &str = "`Loss::weighted` with a scalar can say how much each batch counts";

/// What a file says of a loss that is a formula.
const FORMULA: &str = "formula";

impl LossFigure {
    /// Each with its name in files.
    const ALL: [(LossFigure, &str); 3] = [
        (LossFigure::Mean, "loss"),
        (LossFigure::Perplexity, "perplexity"),
        (LossFigure::BitsPerCharacter, "bits_per_character"),
    ];
}

impl Loss {
    /// The mean of `losses`: one number a row, each counting once; or a scalar loss, as a [`Trainer`](crate::train::Trainer) has it: a
    /// function of sums and means over rows, whose value over several batches is that of all their rows together. Operators that look at
    /// a whole batch, as `gather_rows` of a variable of the batch, see each batch by itself. It is called `loss`.
    ///
    /// The program tells what a scalar loss is computed from: its metric is made before [`Builder::finish`], on the builder's thread.
    pub fn new(losses: Var) -> Self {
        let made = Builder::found(losses).and_then(|net| {
            let program = net.program().ok()?;
            Some(Self::in_program(&program, &net.registry(), losses, |id| net.var(id)))
        });
        made.unwrap_or_else(|| Self::made(losses, LossValues::Unknown))
    }

    /// The same of a variable of a program that was loaded.
    pub(crate) fn of_program(program: &Program, registry: &Registry, losses: Var) -> Self {
        Self::in_program(program, registry, losses, Var::of_program)
    }

    fn in_program(program: &Program, registry: &Registry, losses: Var, var: impl Fn(VarId) -> Var) -> Self {
        let known = (losses.id().0 as usize) < program.vars().len();
        if !known || program.spec(losses.id()).is_ok_and(Spec::batched) {
            return Self::made(losses, LossValues::Rows(None));
        }
        let formula = Formula::of(program, registry, losses.id(), var);
        let one_a_row = |of: &Var| {
            program
                .spec(of.id())
                .is_ok_and(|spec| spec.batched() && spec.width() == 1 && spec.shape.len() <= 2)
        };
        match formula.as_ref().ok().and_then(Formula::mean_of).filter(one_a_row) {
            Some(of) => Self::made(of, LossValues::Rows(Some(losses))),
            None => Self::made(losses, LossValues::Batch(formula.map(Arc::new))),
        }
    }

    fn made(losses: Var, over: LossValues) -> Self {
        let sums = match &over {
            LossValues::Batch(Ok(formula)) => formula.zeros(),
            _ => vec![0.0; 2],
        };
        Self { name: "loss".to_owned(), losses, share: None, shown: LossFigure::Mean, over, sums }
    }

    /// Why a scalar loss of several batches is not known from theirs.
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

    /// The perplexity: exp of the mean of `losses`, cross-entropies in nats.
    pub fn perplexity(losses: Var) -> Self {
        Self { name: "perplexity".to_owned(), shown: LossFigure::Perplexity, ..Self::new(losses) }
    }

    /// Bits per character: the mean of `losses`, cross-entropies in nats of one character a row, over ln 2.
    pub fn bits_per_character(losses: Var) -> Self {
        Self {
            name: "bits per character".to_owned(),
            shown: LossFigure::BitsPerCharacter,
            ..Self::new(losses)
        }
    }

    /// Each row's loss counts with its share, as [`Builder::cross_entropy_with`](crate::program::Builder) gives it
    /// beside the losses: Σ loss / Σ share. Ignored rows have the share 0. A scalar loss has a scalar share: how much its batch
    /// counts, Σ share · loss / Σ share.
    #[must_use]
    pub fn weighted(self, share: Var) -> Self {
        let (losses, over) = match self.over {
            LossValues::Rows(Some(mean)) => (mean, LossValues::Unknown),
            over => (self.losses, over),
        };
        Self { losses, over, share: Some(share), sums: vec![0.0; 2], ..self }
    }

    /// Under another name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }
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

    fn update(&mut self, values: &[Variable], sequences: usize) -> Result<()> {
        self.refused().map_err(|e| e.noted(BY_SHARE))?;
        if let (LossValues::Batch(Ok(formula)), None, [_, values @ ..]) = (&self.over, self.share, values) {
            return formula.update(&mut self.sums, values);
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
                return Err(self.wrong("losses and as many shares", format!("{shapes:?}")));
            }
        };
        // A batch without rows has a loss of nothing, whatever number stands for it.
        if weight > 0.0 {
            self.sums[0] += sum;
            self.sums[1] += weight;
        }
        Ok(())
    }

    fn value(&self) -> f64 {
        let mean = match (self.formula(), &self.sums[..]) {
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

    fn sums(&mut self) -> &mut [f64] {
        &mut self.sums
    }

    fn kind(&self) -> Option<MetricKind> {
        let (_, name) = LossFigure::ALL.into_iter().find(|(shown, _)| *shown == self.shown)?;
        let attributes = Attributes::new();
        let attributes = match (&self.over, self.share) {
            (LossValues::Batch(_), None) => attributes.with(FORMULA, true),
            _ => attributes,
        };
        Some(MetricKind { name, attributes })
    }
}

impl Loss {
    fn wrong(&self, expected: &str, got: String) -> Error {
        Error::new(format!("metric `{}`", self.name), expected, got)
    }

    /// The error of a scalar loss whose program was not there when the metric was made.
    fn unknown(&self, loss: &Variable) -> Error {
        let got = format!("one number of shape {:?} for the whole batch", loss.shape());
        let why = "the builder of the loss was gone, or was another thread's, when the metric was made, so what the number is \
                   computed from is not known: make the metric before `Builder::finish`, on the builder's thread";
        self.wrong("one loss per row", got).noted(why).noted(BY_SHARE)
    }

    /// The sum of all numbers, in f64.
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

/// Checks that rows which are compared one by one are not those of other sequences. Rows without a LoD are of any.
fn same_sequences(metric: &str, a: &Variable, b: &Variable) -> Result<()> {
    match (a.lod(), b.lod()) {
        (Some(a), Some(b)) if a != b => {
            let (what, expected) = (format!("metric `{metric}`"), "values in the same sequences");
            Err(Error::new(what, expected, format!("LoD {a} and {b}")))
        }
        _ => Ok(()),
    }
}

/// The number of rows of a variable with one number in each.
fn one_a_row(metric: &str, values: &Variable) -> Result<usize> {
    match values.shape() {
        [rows] | [rows, 1] => Ok(*rows),
        other => {
            let (what, got) = (format!("metric `{metric}`"), format!("shape {other:?}"));
            Err(Error::new(what, "values, one a row", got))
        }
    }
}

#[cfg(test)]
mod tests;
