//! `nce` and `sampled_softmax`: losses over many classes. For each row, the losses score only the label and a few
//! sampled classes.

use super::class_table::{BIAS, LABELS, LOSS, Table, WEIGHT, X, check, gradients};
use crate::operator::Mode;
use crate::operator::attributes::or_default;
use crate::ops::lookup::ids::Ids;
use crate::ops::prelude::*;

/// The output slot of the sampled classes, the second output of `nce` and `sampled_softmax`.
const SAMPLES: usize = 1;

/// Options of [`Builder::nce`](crate::Builder::nce) and [`Builder::sampled_softmax`](crate::Builder::sampled_softmax).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampledClasses {
    pub(crate) bias: Option<Var>,
    pub(crate) samples: usize,
    pub(crate) gradient: StorageKind,
}

impl SampledClasses {
    /// Bias: one number per class, added to the score of the class, shape `[classes]` (default: no bias).
    #[must_use]
    pub fn bias(self, bias: impl Into<Option<Var>>) -> Self {
        Self { bias: bias.into(), ..self }
    }

    /// Storage of the gradient of `weight`: selected rows, one for each label and sample (default), or dense.
    #[must_use]
    pub fn gradient(self, gradient: StorageKind) -> Self {
        Self { gradient, ..self }
    }

    /// Makes options with `samples` sampled classes per row, no bias, and a gradient of `weight` that is stored as selected
    /// rows.
    pub fn new(samples: usize) -> Self {
        Self { bias: None, samples, gradient: StorageKind::SelectedRows }
    }
}

operator! {
    /// Noise-contrastive estimation of a softmax over many classes: each row learns to distinguish its label from sampled
    /// classes (Gutmann and Hyvärinen, 2010; Mnih and Teh, 2012). Returns two outputs: the loss and the sampled classes of each
    /// row.
    ///
    /// The loss has the scores s_k = x_i · W_k + b_k, the label y, S samples c_1 … c_S and Δ_k = s_k − ln(S · P(k)):
    ///
    /// loss_i = ln(1 + e^−Δ_y) + Σ_j ln(1 + e^Δ_c_j).
    ///
    /// Samples are drawn with replacement from C classes; class k has the probability P(k) = ln((k + 2) / (k + 1)) /
    /// ln(C + 1). This probability decreases with k, so number the classes by frequency, the most frequent class first.
    /// The samples of a row depend on the seed, the step, the operator, the row's sequence and the row's position, not
    /// on the other sequences of the batch. A sample that equals the label is used like any other sample, since the
    /// method requires noise from the whole distribution P. During inference, no classes are sampled: the sum over the
    /// samples is replaced by its expectation, Σ_k S · P(k) · ln(1 + e^Δ_k) over all classes, and the returned samples
    /// are −1.
    ///
    /// The shapes are x `[rows, width]`, `weight` W `[classes, width]` and `bias` b `[classes]`. The operator computes each row
    /// alone: the rows may have any LoD, which the loss `[rows]` and the samples `[rows, S]` keep. The gradient of W is
    /// selected rows, one for each label and sample, unless the options ask for a dense gradient; the gradient of b is dense.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[1, 0])?;
    /// let op = ops::catalogue().parse("nce", &Attributes::new().with("samples", 1usize).with("sparse", true))?;
    /// let out = op.call(&[
    ///     Operand::batch("x", Variable::sequences(array![[1.0]], lod.clone())?),
    ///     Operand::constant("weight", array![[0.0], [0.0]]),
    ///     Operand::batch("labels", Variable::sequences(array![0i64], lod)?),
    /// ])?; // a direct call does not train: it computes the expectation over all samples
    /// let p = [2f64.ln() / 3f64.ln(), 1.5f64.ln() / 3f64.ln()];
    /// let expected = (1.0 + p[0]).ln() + p[0] * (1.0 + 1.0 / p[0]).ln() + p[1] * (1.0 + 1.0 / p[1]).ln();
    /// assert!((out[0].as_slice::<f64>()?[0] - expected).abs() < 1e-12);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if numbers of rows, LoDs, widths or dtypes do not match, if `samples` is 0, or if the gradient is
    /// neither dense nor selected rows; at a run, it is an error if a label is negative or not below the number of
    /// classes.
    #[derive(Clone, Copy)]
    pub(in crate::ops) struct Nce = nce { samples: usize => at_least_one, sparse: bool = false }
    inputs { X = x: one, WEIGHT = weight: one, BIAS = bias: optional, LABELS = labels: one.without_gradient() }
    outputs { LOSS = loss: one, SAMPLES = samples: one.without_gradient() }
    impl Builder, Var {
        fn nce(&self, x: Var, weight: Var, labels: Var, options: SampledClasses) -> (Var, Var) {
            let (bias, samples) = (options.bias, options.samples);
            let sparse = self.is_sparse(options);
        }
    }
}

operator! {
    /// Sampled softmax: the cross-entropy of a softmax over a row's label and a few sampled classes, not over all classes (Jean
    /// et al., 2015). This loss is the ranking objective, which Ma and Collins (2018) show to be consistent. Returns
    /// two outputs: the loss and the sampled classes of each row.
    ///
    /// The loss has the scores s_k = x_i · W_k + b_k, the label y, S samples c_1 … c_S and Δ_k = s_k − ln(S · P(k)).
    /// The term ln(S · P(k)) corrects for the expected number of samples of class k. The formula is loss_i = −ln(e^Δ_y
    /// / (e^Δ_y + Σ_j e^Δ_c_j)).
    ///
    /// Samples are drawn from the same distribution as in [`nce`](Self::nce), so number the classes by frequency, the
    /// most frequent class first. A sample that equals the label is used like any other sample: then, for any S, the
    /// expected loss is smallest if the softmax over all classes equals the distribution of the labels. If samples that
    /// equal the label were skipped, the trained model would give frequent classes too large a probability. During
    /// inference, no classes are sampled: the loss is the cross-entropy of the softmax over all classes, and the
    /// returned samples are −1.
    ///
    /// The shapes are x `[rows, width]`, `weight` W `[classes, width]` and `bias` b `[classes]`. The operator computes each row
    /// alone: the rows may have any LoD, which the loss `[rows]` and the samples `[rows, S]` keep. The gradient of W is
    /// selected rows, one for each label and sample, unless the options ask for a dense gradient; the gradient of b is dense.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[1, 0])?;
    /// let op = ops::catalogue().parse("sampled_softmax", &Attributes::new().with("samples", 2usize))?;
    /// let out = op.call(&[
    ///     Operand::batch("x", Variable::sequences(array![[1.0]], lod.clone())?),
    ///     Operand::constant("weight", array![[0.5], [0.5], [0.5], [0.5]]),
    ///     Operand::batch("labels", Variable::sequences(array![3i64], lod)?),
    /// ])?; // a direct call does not train: the softmax is over all classes
    /// assert!((out[0].as_slice::<f64>()?[0] - 4f64.ln()).abs() < 1e-12);
    /// assert_eq!(out[1].as_slice::<i64>()?, [-1, -1]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if numbers of rows, LoDs, widths or dtypes do not match, if `samples` is 0, or if the gradient is
    /// neither dense nor selected rows; at a run, it is an error if a label is negative or not below the number of
    /// classes.
    #[derive(Clone, Copy)]
    pub(in crate::ops) struct SampledSoftmax = sampled_softmax { samples: usize => at_least_one, sparse: bool = false }
    inputs { X = x: one, WEIGHT = weight: one, BIAS = bias: optional, LABELS = labels: one.without_gradient() }
    outputs { LOSS = loss: one, SAMPLES = samples: one.without_gradient() }
    impl Builder, Var {
        fn sampled_softmax(&self, x: Var, weight: Var, labels: Var, options: SampledClasses) -> (Var, Var) {
            let (bias, samples) = (options.bias, options.samples);
            let sparse = self.is_sparse(options);
        }
    }
}

impl crate::program::Builder {
    /// Returns whether the options ask for selected rows as the gradient of the class table `weight`. The method records an
    /// error for a storage other than selected rows and dense.
    #[track_caller]
    pub(in crate::ops) fn is_sparse(&self, options: SampledClasses) -> bool {
        if !matches!(options.gradient, StorageKind::Dense | StorageKind::SelectedRows) {
            let (expected, got) = ("dense or selected_rows", options.gradient.to_string());
            self.refuse(Error::new("gradient of a table of classes", expected, got));
        }
        options.gradient == StorageKind::SelectedRows
    }
}

/// Reads the attribute for the number of samples per row; returns an error if it is 0 or missing.
fn at_least_one(attributes: &Attributes, name: &str) -> Result<usize> {
    let samples: usize = or_default(attributes, name, 0)?;
    if samples > 0 {
        return Ok(samples);
    }
    Err(Error::new(format!("attribute `{name}`"), "at least 1", "0"))
}

/// The log-uniform distribution, from which classes are sampled: P(k) = ln((k + 2) / (k + 1)) / ln(C + 1), for C classes that
/// are numbered by frequency.
#[derive(Debug, Clone, Copy)]
struct LogUniform {
    classes: usize,
}

impl LogUniform {
    /// Returns ln(S · P(class)), the logarithm of how often `class` is expected among S = `samples` samples.
    fn ln_expected(self, class: usize, samples: usize) -> f64 {
        let share = (1.0 / (class as f64 + 1.0)).ln_1p() / (self.classes as f64).ln_1p();
        share.ln() + (samples as f64).ln()
    }

    /// Maps a uniform number in [0, 1) to a class, so that the class has the log-uniform distribution.
    fn draw(self, uniform: f64) -> usize {
        let at = (uniform * (self.classes as f64).ln_1p()).exp_m1();
        // Rounding may give the number of classes, which is one above the last class.
        (at as usize).min(self.classes.saturating_sub(1))
    }
}

/// A class that the loss of a row uses: `times` is the factor of the class's term in the loss, and `shift` is subtracted from the
/// class's score.
#[derive(Clone, Copy)]
struct MetClass {
    class: usize,
    times: f64,
    shift: f64,
}

/// A loss that compares the score of a row's label with the scores of other classes.
pub(in crate::ops) trait Contrast: DeclaredOp + Copy {
    /// Returns the number of samples per row.
    fn samples(&self) -> usize;
    /// Returns whether the gradient of the class table is stored as selected rows.
    fn sparse(&self) -> bool;
    /// Returns the attributes of the operator with `samples` samples per row, and a gradient that is selected rows if `sparse` is
    /// true, else dense.
    fn attributes(samples: usize, sparse: bool) -> Attributes;
    /// Returns two numbers for inference: the factor of a class's term in the loss, and the shift that is subtracted from the
    /// class's score. The argument `ln_expected` is the logarithm of the expected number of samples of the class.
    fn of_all(ln_expected: f64) -> (f64, f64);
    /// Whether the sum over all classes, which is used during inference, includes the label a second time.
    const LABEL_AMONG_ALL: bool;
    /// Computes the loss of a row from shifted scores, the label's score first. The slice `times` holds the factor of each
    /// class's term. Replaces each score by the derivative of the loss with respect to this score.
    fn loss<T: Float>(scores: &mut [T], times: &[T]) -> T;
}

/// Computes ln(1 + e^x).
fn softplus<T: Float>(x: T) -> T {
    x.max(T::ZERO) + (T::ONE + (-x.abs()).exp()).ln()
}

/// Computes 1 / (1 + e^−x).
fn sigmoid<T: Float>(x: T) -> T {
    let e = (-x.abs()).exp();
    let small = e / (T::ONE + e);
    if x > T::ZERO { T::ONE - small } else { small }
}

impl Contrast for Nce {
    const LABEL_AMONG_ALL: bool = true;

    fn samples(&self) -> usize {
        self.samples
    }
    fn sparse(&self) -> bool {
        self.sparse
    }
    fn attributes(samples: usize, sparse: bool) -> Attributes {
        Nce { samples, sparse }.attributes()
    }
    fn of_all(ln_expected: f64) -> (f64, f64) {
        (ln_expected.exp(), ln_expected)
    }
    fn loss<T: Float>(scores: &mut [T], times: &[T]) -> T {
        let mut loss = T::ZERO;
        for (at, (score, &times)) in scores.iter_mut().zip(times).enumerate() {
            if at == 0 {
                loss += softplus(-*score);
                *score = -sigmoid(-*score);
            } else {
                loss += times * softplus(*score);
                *score = times * sigmoid(*score);
            }
        }
        loss
    }
}

impl Contrast for SampledSoftmax {
    const LABEL_AMONG_ALL: bool = false;

    fn samples(&self) -> usize {
        self.samples
    }
    fn sparse(&self) -> bool {
        self.sparse
    }
    fn attributes(samples: usize, sparse: bool) -> Attributes {
        SampledSoftmax { samples, sparse }.attributes()
    }
    fn of_all(_: f64) -> (f64, f64) {
        (1.0, 0.0)
    }
    fn loss<T: Float>(scores: &mut [T], _: &[T]) -> T {
        let Some(&own) = scores.first() else { return T::ZERO };
        let max = scores.iter().fold(T::NEG_INFINITY, |max, &score| max.max(score));
        scores.iter_mut().for_each(|score| *score = (*score - max).exp());
        let sum: T = scores.iter().copied().sum();
        scores.iter_mut().for_each(|score| *score /= sum);
        scores[0] -= T::ONE;
        max + sum.ln() - own
    }
}

/// An operator that computes a [`Contrast`] loss.
pub(in crate::ops) struct ContrastOp<F>(F);
family!(ContrastOp);

/// Scratch memory for the loss of one row.
#[derive(Default)]
struct Scratch<T> {
    uniform: Vec<f64>,
    met: Vec<MetClass>,
    scores: Vec<T>,
    times: Vec<T>,
}

/// The settings of a [`Contrast`] loss as values. With these values and the loss function as a pointer, the loops over rows are
/// compiled once for both losses.
#[derive(Clone, Copy)]
struct Rule {
    samples: usize,
    of_all: fn(f64) -> (f64, f64),
    label_among_all: bool,
}

/// A pointer to [`Contrast::loss`].
type Loss<T> = fn(&mut [T], &[T]) -> T;

impl<F: Contrast> ContrastOp<F> {
    fn rule(&self) -> Rule {
        let samples = self.0.samples();
        Rule { samples, of_all: F::of_all, label_among_all: F::LABEL_AMONG_ALL }
    }
}

impl Rule {
    /// Collects the classes that the loss of a row uses: the label first, then the samples or, if `samples` is `None`, all
    /// classes.
    fn meet(self, label: usize, classes: usize, samples: Option<&[i64]>, met: &mut Vec<MetClass>) {
        let by = LogUniform { classes };
        let count = self.samples;
        met.clear();
        match samples {
            Some(samples) => {
                let drawn = |class| MetClass { class, times: 1.0, shift: by.ln_expected(class, count) };
                met.push(drawn(label));
                let drawn_classes = samples.iter().filter_map(|&class| usize::try_from(class).ok());
                met.extend(drawn_classes.map(drawn));
            }
            None => {
                let whole = |class| {
                    let (times, shift) = (self.of_all)(by.ln_expected(class, count));
                    MetClass { class, times, shift }
                };
                met.push(MetClass { times: 1.0, ..whole(label) });
                met.extend((0..classes).filter(|&class| self.label_among_all || class != label).map(whole));
            }
        }
    }

    /// Computes the loss of a row; leaves the derivative of the loss with respect to each class's score in `room.scores`.
    fn row<T: Float>(loss: Loss<T>, table: Table<'_, T>, x: &[T], room: &mut Scratch<T>) -> T {
        let Scratch { met, scores, times, .. } = room;
        scores.clear();
        scores.extend(met.iter().map(|met| table.score(met.class, x) - T::from_f64(met.shift)));
        times.clear();
        times.extend(met.iter().map(|met| T::from_f64(met.times)));
        loss(scores, times)
    }

    fn losses<T: RowValue>(self, run: &mut Forward<'_>, of_row: Loss<T>) -> Result<()> {
        let (x, labels) = (run.input::<T>(X)?, Ids::of(run, LABELS)?);
        let table = Table { weight: run.input::<T>(WEIGHT)?, bias: run.optional::<T>(BIAS)? };
        let (mut loss, mut drawn) = (run.output::<T>(LOSS)?, run.output::<i64>(SAMPLES)?);
        let (classes, trains) = (table.weight.rows(), run.run().mode == Mode::Train);
        let by = LogUniform { classes };
        let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
        let mut outcome = Ok(());
        for (row, x) in x.iter().enumerate() {
            let drawn = drawn.row(row);
            drawn.fill(-1);
            if trains {
                room.uniform.resize(drawn.len(), 0.0);
                // The uniform numbers have 53 bits: with millions of classes, the intervals of rare classes are narrower than
                // the steps of 24-bit numbers.
                run.uniform_53(row, &mut room.uniform);
                drawn.iter_mut().zip(&room.uniform).for_each(|(to, &u)| *to = by.draw(u) as i64);
            }
            match class_of(&labels, row, classes) {
                Ok(label) => self.meet(label, classes, trains.then_some(&*drawn), &mut room.met),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            loss.row(row)[0] = Self::row(of_row, table, x, &mut room);
        }
        *run.scratch().get() = room;
        outcome
    }

    fn slopes<T: RowValue>(self, run: &mut Backward<'_>, of_row: Loss<T>) -> Result<()> {
        let table = Table { weight: run.input::<T>(WEIGHT)?, bias: run.optional::<T>(BIAS)? };
        let (classes, trains) = (table.weight.rows(), run.run().mode == Mode::Train);
        let drawn = run.output::<i64>(SAMPLES)?;
        let labels = Ids::of(run, LABELS)?;
        let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
        let outcome = gradients::<T>(run, self.samples + 1, &mut |_, row, x, add| {
            let label = class_of(&labels, row, classes)?;
            self.meet(label, classes, trains.then(|| drawn.row(row)), &mut room.met);
            Self::row(of_row, table, x, &mut room);
            room.met.iter().zip(&room.scores).for_each(|(met, &slope)| add(met.class, slope));
            Ok(())
        });
        *run.scratch().get() = room;
        outcome
    }
}

fn class_of(labels: &Ids<'_>, row: usize, classes: usize) -> Result<usize> {
    let missing = || Error::new("label", "a class", "none").row(row);
    labels.class(row, classes, None)?.ok_or_else(missing)
}

impl<F: Contrast> Op for ContrastOp<F> {
    fn facts(&self) -> Facts {
        Facts { random: true, ..Facts::row_wise() }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        let (classes, loss) = check(s)?;
        if classes == 0 {
            return Err(s.mismatch(WEIGHT, "a row for at least one class"));
        }
        s.set(SAMPLES, s.input(LABELS).with_dtype(DType::I64).with_width(self.0.samples()));
        s.set(LOSS, loss);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => self.rule().losses(run, F::loss::<T>))
    }

    fn gradient(&self, wrt: usize, _: &[Vec<Spec>]) -> Gradient {
        let reads =
            Gradient::reads_nothing().input(X).input(WEIGHT).input(BIAS).input(LABELS).output(SAMPLES);
        let sparse = wrt == WEIGHT && self.0.sparse();
        if sparse { reads.stored(StorageKind::SelectedRows) } else { reads }
    }

    fn stored_gradient(&self, _: usize) -> StorageBound {
        StorageBound::PerRow(X, self.0.samples() + 1)
    }

    fn hints(&self) -> Hints {
        // The gradients are computed in separate calls, because the gradient of x can be divided over threads and the gradient
        // of the class table cannot.
        Hints { separate_gradients: true, ..Hints::default() }
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => self.rule().slopes(run, F::loss::<T>))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        samples(&[F::attributes(2, false), F::attributes(5, true)], 4, 4)
    }
}

/// Returns check cases of a loss with a class table; `all` lists the attributes of the cases.
pub(in crate::ops) fn samples(all: &[Attributes], classes: usize, height: usize) -> Result<Vec<CheckCase>> {
    let cases: [(&str, &[&[usize]]); 4] = [
        ("sequences with an empty one", &[&[2, 0, 1]]),
        ("two levels", &[&[2, 0, 1], &[1, 0, 3]]),
        ("all empty", &[&[0, 0]]),
        ("none", &[&[]]),
    ];
    let mut samples = Vec::new();
    for (number, attributes) in all.iter().enumerate() {
        for (name, lengths) in cases {
            let lod = Lod::from_lengths(&lengths.iter().map(|l| l.to_vec()).collect::<Vec<_>>())?;
            let labels: Vec<i64> = (0..lod.rows()).map(|row| (row * 3 % classes) as i64).collect();
            let labels = Variable::sequences(ndarray::Array1::from(labels), lod.clone())?;
            let x = Variable::sequences(numbers(lod.rows(), 3, 0), lod)?;
            let sample = CheckCase::new(&format!("{name}, {number}"), attributes.clone()).batch("x", x);
            let sample = sample.batch("labels", labels).constant("weight", numbers(height, 3, 1));
            let bias = numbers(1, height, 2).remove_axis(ndarray::Axis(0));
            samples.push(sample.clone());
            samples.push(sample.constant("bias", bias));
        }
    }
    Ok(samples)
}

builder_methods! { Builder, Var;
    /// Returns only the loss of [`nce`](Self::nce), with `samples` samples per row, no bias, and a gradient of selected rows.
    ///
    /// ```
    /// use unpadded::layers::init;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let words = net.feed_like("words", DType::I64, &[], x);
    /// let table = net.parameter("table", DType::F32, &[1000, 8], init::normal(0.1));
    /// let loss = x.nce_loss(table, words, 20).mean();
    /// assert!(net.describe(loss).ends_with("f32[]"));
    /// ```
    ///
    /// # Errors
    /// The errors are the errors of [`nce`](Self::nce).
    pub fn nce_loss(&self, x: Var, weight: Var, labels: Var, samples: usize) -> Var {
        self.nce(x, weight, labels, SampledClasses::new(samples)).0
    }

    /// Returns only the loss of [`sampled_softmax`](Self::sampled_softmax), with `samples` samples per row, no bias, and a
    /// gradient of selected rows.
    ///
    /// ```
    /// use unpadded::layers::init;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let words = net.feed_like("words", DType::I64, &[], x);
    /// let table = net.parameter("table", DType::F32, &[1000, 8], init::normal(0.1));
    /// let loss = x.sampled_softmax_loss(table, words, 20).mean();
    /// assert!(net.describe(loss).ends_with("f32[]"));
    /// ```
    ///
    /// # Errors
    /// The errors are the errors of [`sampled_softmax`](Self::sampled_softmax).
    pub fn sampled_softmax_loss(&self, x: Var, weight: Var, labels: Var, samples: usize) -> Var {
        self.sampled_softmax(x, weight, labels, SampledClasses::new(samples)).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_drawn_as_often_as_expected() {
        let by = LogUniform { classes: 7 };
        let mut counts = [0; 7];
        let draws = 70_000;
        for i in 0..draws {
            counts[by.draw((f64::from(i) + 0.5) / f64::from(draws))] += 1;
        }
        let expected = |class| by.ln_expected(class, 1).exp() * f64::from(draws);
        for (class, &count) in counts.iter().enumerate() {
            assert!((f64::from(count) - expected(class)).abs() < 5.0, "{class}: {count}");
        }
        assert!(((0..7).map(|class| by.ln_expected(class, 1).exp()).sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!((by.draw(0.0), by.draw(1.0 - 0.5f64.powi(53))), (0, 6));
    }
}
