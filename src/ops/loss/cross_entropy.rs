//! `cross_entropy`: the softmax cross-entropy of each row, computed from logits and a label.

use half::bf16;

use crate::kernels::{MatrixUnit, RoundedRows, lengthen, widen_rows};
use crate::operator::Fusion;
use crate::operator::attributes::or_default;
use crate::ops::lookup::ids::{self, Ids};
use crate::ops::prelude::*;

/// Options of [`Builder::cross_entropy_with`](crate::Builder::cross_entropy_with); by default all rows and classes have the
/// weight 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CrossEntropy {
    pub(crate) ignore_index: Option<i64>,
    pub(crate) class_weights: Option<Var>,
    pub(crate) label_smoothing: f64,
}

impl CrossEntropy {
    /// Ignored label: rows with this label have the loss 0 and are not counted in the mean (default: no label is ignored).
    #[must_use]
    pub fn ignore_index(self, ignore_index: impl Into<Option<i64>>) -> Self {
        Self { ignore_index: ignore_index.into(), ..self }
    }

    /// Class weights: for each class, the factor of the losses of all rows with this label, shape `[classes]` (default:
    /// 1); the weights get no gradient.
    #[must_use]
    pub fn class_weights(self, class_weights: impl Into<Option<Var>>) -> Self {
        Self { class_weights: class_weights.into(), ..self }
    }

    /// Label smoothing: the share of the target, from 0 to 1, that is spread evenly over all classes (default: 0).
    #[must_use]
    pub fn label_smoothing(self, label_smoothing: f64) -> Self {
        Self { label_smoothing, ..self }
    }
}

builder_methods! { Builder, Var;
    /// Computes the softmax cross-entropy of each row of `logits` `[rows, classes]` and its label y, one number per
    /// row: loss_i = −ln softmax(logits_i)_y.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[1, 0, 1])?;
    /// let logits = Variable::sequences(array![[0.0, 0.0], [1000.0, 0.0]], lod.clone())?;
    /// let op = ops::catalogue().parse("cross_entropy", &Attributes::new())?;
    /// let labels = Variable::sequences(array![1i64, 0], lod)?;
    /// let out = op.call(&[Operand::batch("logits", logits), Operand::batch("labels", labels)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [2f64.ln(), 0.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `logits` and `labels` differ in LoD or in their number of rows, or the labels are not whole
    /// numbers, one per row.
    pub fn cross_entropy(&self, logits: Var, labels: Var) -> Var {
        self.cross_entropy_with(logits, labels, CrossEntropy::default()).0
    }
}

operator! {
    /// Computes the softmax cross-entropy of each row of `logits` `[rows, classes]`, with options for ignored rows, class
    /// weights and label smoothing. Returns two numbers per row: the loss of the row, and its share, the weight of the row in
    /// the mean loss. The weighted mean loss of the batch is Σ loss / Σ share. In a program whose products compute in bf16, the
    /// logits are first rounded to bf16.
    ///
    /// The loss is computed from p = softmax(logits_i), the label y, class weights w (1 by default) and label smoothing ε over
    /// C classes:
    ///
    /// loss_i = −(1 − ε) · w_y · ln p_y − ε/C · Σ_c w_c · ln p_c, share_i = w_y;
    ///
    /// The loss and the share of a row are 0 if the label is `ignore_index`. The loss corresponds to PyTorch's
    /// `CrossEntropyLoss` with `reduction='none'`; PyTorch's mean is Σ loss / Σ share. The gradient of the logits is (1 − ε) ·
    /// w_y · (p − onehot(y)) + ε/C · (p · Σ_c w_c − w), multiplied by the gradient of the loss. The backward pass
    /// computes this gradient from the logits; no softmax is stored.
    ///
    /// The operator computes each row alone; the rows may have any LoD. The outputs loss and share have the shape `[rows]` and
    /// the LoD of the logits.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[2, 0, 1])?;
    /// let logits = Variable::sequences(array![[0.0, 0.0], [1000.0, 0.0], [1.0, 2.0]], lod.clone())?;
    /// let labels = Variable::sequences(array![1i64, 0, -1], lod)?;
    /// let op = ops::catalogue().parse("cross_entropy", &Attributes::new().with("ignore_index", -1i64))?;
    /// let out = op.call(&[Operand::batch("logits", logits), Operand::batch("labels", labels)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [2f64.ln(), 0.0, 0.0]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [1.0, 1.0, 0.0]); // two rows count
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `logits` and `labels` differ in LoD or in their number of rows; if the labels are not whole
    /// numbers, one per row; if there is not one weight per class; or if the smoothing is not from 0 to 1.
    #[derive(Clone, Copy)]
    pub(in crate::ops) struct SoftmaxCrossEntropy = cross_entropy { ignore_index: Option<i64>, label_smoothing: f64 => smoothing }
    inputs { LOGITS = logits: one, LABELS = labels: one.without_gradient(), WEIGHT = weight: optional.without_gradient() }
    outputs { LOSS = loss: one, SHARE = share: one.without_gradient() }
    impl Builder, Var {
        fn cross_entropy_with(&self, logits: Var, labels: Var, options: CrossEntropy) -> (Var, Var) {
            let CrossEntropy { ignore_index, class_weights: weight, label_smoothing } = options;
        }
    }
}

/// Reads the attribute label smoothing, a number from 0 to 1; returns 0 if the attribute is missing.
pub(in crate::ops) fn smoothing(attributes: &Attributes, name: &str) -> Result<f64> {
    let smoothing = or_default(attributes, name, 0.0)?;
    if !(0.0..=1.0).contains(&smoothing) {
        let expected = "a number from 0 to 1";
        return Err(Error::new(format!("attribute `{name}`"), expected, smoothing.to_string()));
    }
    Ok(smoothing)
}

impl Op for SoftmaxCrossEntropy {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::LOGITS)?;
        ids::check(s, Self::LABELS)?;
        s.same_rows(Self::LOGITS, Self::LABELS)?;
        let logits = s.input(Self::LOGITS);
        if logits.shape.len() != 2 {
            return Err(s.mismatch(Self::LOGITS, "shape [rows, classes]"));
        }
        if s.optional(Self::WEIGHT).is_some() {
            s.same_dtype(Self::LOGITS, Self::WEIGHT)?;
            s.constant(Self::WEIGHT, &[logits.width()])?;
        }
        let mut out = logits.clone();
        out.shape.truncate(1);
        s.set(Self::LOSS, out.clone());
        s.set(Self::SHARE, out);
        Ok(())
    }

    float_passes!(Self::LOGITS, T: (self, run) => self.losses::<T>(run), self.gradient::<T>(run));

    fn hints(&self) -> Hints {
        const FUSIONS: &[Fusion] = &[Fusion {
            slot: "logits",
            producer: "linear",
            into: "linear_cross_entropy",
            producer_slots: &[("x", "x"), ("weight", "weight"), ("bias", "bias")],
            own_slots: &[("labels", "labels"), ("weight", "class_weights")],
            by_others: &[("share", "cross_entropy_share")],
            // The fusion with `linear` avoids the memory of the logits: the fusion saves little memory for two classes,
            // but most of the memory for the vocabulary of a language model.
            least_width: 256,
        }];
        Hints { fusions: FUSIONS, rounds_bf16: true, ..Hints::default() }
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let (_, classes) = sizes.input(Self::LOGITS);
        let rounds = sizes.dtype(Self::LOGITS) == DType::F32 && RoundedRows::<f32>::rounds(sizes.unit());
        let row = if rounds { classes * (size_of::<bf16>() + size_of::<f32>()) } else { 0 };
        CallMemory::default().scratch::<RoundedLogits<f32>>(sizes.threads() * row)
    }

    gradient_reads!(Self::LOGITS, Self::LABELS, Self::WEIGHT);

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let plain = Attributes::new();
        let smooth = SoftmaxCrossEntropy { ignore_index: Some(-1), label_smoothing: 0.2 }.attributes();
        let sample = |name: &str,
                      lengths: &[Vec<usize>],
                      labels: &[i64],
                      attributes: &Attributes|
         -> Result<CheckCase> {
            let number = |(i, j): (usize, usize)| 2.0 * ((i * 3 + j) as f64 * 1.3).sin();
            let logits = ndarray::Array2::from_shape_fn((labels.len(), 3), number);
            let labels = ndarray::Array1::from(labels.to_vec());
            let lod = Lod::from_lengths(lengths)?;
            Ok(CheckCase::new(name, attributes.clone())
                .batch("logits", Variable::sequences(logits, lod.clone())?)
                .batch("labels", Variable::sequences(labels, lod)?))
        };
        let weight = array![0.5, 1.0, 2.0];
        let samples = [
            sample("sequences with an empty one", &[vec![2, 0, 1]], &[2, 0, 1], &plain),
            sample("smoothed, one ignored", &[vec![2, 0, 2]], &[2, -1, 1, 0], &smooth),
            sample("weighted", &[vec![3]], &[0, 1, 2], &plain).map(|s| s.constant("weight", weight.clone())),
            sample(
                "two levels, weighted, smoothed",
                &[vec![2, 0, 1], vec![1, 0, 3]],
                &[2, -1, 1, 0],
                &smooth,
            )
            .map(|s| s.constant("weight", weight)),
            sample("all empty", &[vec![0, 0]], &[], &plain),
            sample("none", &[vec![]], &[], &smooth),
        ];
        samples.into_iter().collect()
    }
}

impl SoftmaxCrossEntropy {
    fn losses<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (logits, unit) = (run.input::<T>(Self::LOGITS)?, run.run().unit);
        let rows = Rows::new(*self, logits, Ids::of(run, Self::LABELS)?, run.optional::<T>(Self::WEIGHT)?);
        let (loss, share) = (run.output::<T>(Self::LOSS)?, run.output::<T>(Self::SHARE)?);
        let room = run.scratch().get::<RoundedLogits<T>>().of(unit, logits.width());
        sweep(Losses { rows, room, loss, share })
    }

    fn gradient<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let Some((mut dlogits, assign)) = run.gradient::<T>(Self::LOGITS)? else { return Ok(()) };
        let Some(dloss) = run.output_gradient::<T>(Self::LOSS)? else {
            // The loss may have no gradient: then the program used only the shares, which do not depend on the logits.
            if assign == Assign::Write {
                dlogits.fill(T::ZERO);
            }
            return Ok(());
        };
        let (logits, unit) = (run.input::<T>(Self::LOGITS)?, run.run().unit);
        let rows = Rows::new(*self, logits, Ids::of(run, Self::LABELS)?, run.optional::<T>(Self::WEIGHT)?);
        let room = run.scratch().get::<RoundedLogits<T>>().of(unit, logits.width());
        sweep(Slopes { rows, room, dloss, dlogits, assign })
    }
}

/// Scratch for a row of logits. In a program whose products compute in bf16, a loss is computed from logits that are rounded to
/// bf16, so that the fusion with `linear` can store the logits in bf16.
#[derive(Default)]
struct RoundedLogits<T> {
    rounded: Vec<bf16>,
    wide: Vec<T>,
}

impl<T: Float> RoundedLogits<T> {
    /// Makes the scratch large enough for a row; returns `None` if the logits are not rounded.
    fn of(&mut self, unit: MatrixUnit, classes: usize) -> Option<&mut Self> {
        if !RoundedRows::<T>::rounds(unit) {
            return None;
        }
        lengthen(&mut self.rounded, classes);
        lengthen(&mut self.wide, classes);
        Some(self)
    }

    fn round(&mut self, logits: &[T]) -> &[T] {
        let classes = logits.len();
        T::round_to_bf16(View::new(logits, 1, classes), ViewMut::new(&mut self.rounded, 1, classes));
        widen_rows(View::new(&self.rounded, 1, classes), ViewMut::new(&mut self.wide, 1, classes));
        &self.wide[..classes]
    }
}

/// The part of the cross-entropy's target distribution that is the same for all rows.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Target<'a, T> {
    classes: usize,
    ignore_index: Option<i64>,
    weight: Option<&'a [T]>,
    /// The target probability that only the label gets, in addition to `even`: 1 − ε, where ε is the label smoothing.
    sharp: T,
    /// The target probability that every class gets by label smoothing: ε / classes.
    even: T,
    /// The sum of the weights of all classes.
    weights: T,
}

impl<'a, T: Float> Target<'a, T> {
    /// Makes the target distribution for logits with `classes` columns.
    pub(in crate::ops) fn new(
        ignore_index: Option<i64>,
        smoothing: f64,
        classes: usize,
        weight: Option<View<'a, T>>,
    ) -> Self {
        let count = classes as f64;
        let weight = weight.map(|weight| weight.row(0));
        Self {
            classes,
            ignore_index,
            weight,
            sharp: T::from_f64(1.0 - smoothing),
            even: T::from_f64(smoothing / count.max(1.0)),
            weights: weight.map_or(T::from_f64(count), |weight| weight.iter().copied().sum()),
        }
    }

    /// Returns the class that the label of row `row` names; `None` if the label is ignored.
    pub(in crate::ops) fn class(&self, labels: &Ids<'_>, row: usize) -> Result<Option<usize>> {
        labels.class(row, self.classes, self.ignore_index)
    }

    #[inline(always)]
    pub(in crate::ops) fn weight(&self, class: usize) -> T {
        self.weight.map_or(T::ONE, |weight| weight[class])
    }

    /// Computes the loss of a row with the label `class`; `total` is the [`log_sum_exp`] of the row's logits.
    #[inline(always)]
    pub(in crate::ops) fn loss(&self, logits: &[T], total: T, class: usize) -> T {
        let mut loss = self.sharp * self.weight(class) * (total - logits[class]);
        // The sum over all classes is skipped without label smoothing, since 0 · ∞ would give NaN for a class with the logit
        // −∞.
        if self.even > T::ZERO {
            let all: T = logits.iter().enumerate().map(|(c, &x)| self.weight(c) * (total - x)).sum();
            loss += self.even * all;
        }
        loss
    }

    /// Replaces the logits of a row, from column `first` on, by their gradient; `d` is the gradient of the row's loss.
    #[inline(always)]
    pub(in crate::ops) fn slopes<A: Arithmetic>(
        &self,
        (total, class, d): (T, usize, T),
        first: usize,
        logits: &mut [T],
    ) {
        let target = d * self.sharp * self.weight(class);
        let even = d * self.even;
        let scale = target + even * self.weights;
        let slope = |x: T, even: T| scale * (x - total).exp_with::<A>() - even;
        match self.weight {
            None => logits.iter_mut().for_each(|x| *x = slope(*x, even)),
            Some(weight) => {
                logits
                    .iter_mut()
                    .zip(&weight[first..])
                    .for_each(|(x, &weight)| *x = slope(*x, even * weight));
            }
        }
        if let Some(x) = class.checked_sub(first).and_then(|at| logits.get_mut(at)) {
            *x -= target;
        }
    }
}

/// The inputs that the forward and the backward pass read.
struct Rows<'a, T> {
    logits: View<'a, T>,
    labels: Ids<'a>,
    target: Target<'a, T>,
}

impl<'a, T: Float> Rows<'a, T> {
    fn new(
        op: SoftmaxCrossEntropy,
        logits: View<'a, T>,
        labels: Ids<'a>,
        weight: Option<View<'a, T>>,
    ) -> Self {
        Self {
            logits,
            labels,
            target: Target::new(op.ignore_index, op.label_smoothing, logits.width(), weight),
        }
    }

    fn class(&self, row: usize) -> Result<Option<usize>> {
        self.target.class(&self.labels, row)
    }
}

/// Computes ln Σ exp(x) over the numbers x of a row. The sum has a fixed number of lanes, so the order of the additions depends
/// only on the number of classes.
#[inline(always)]
pub(in crate::ops) fn log_sum_exp<T: Float, A: Arithmetic>(x: &[T]) -> T {
    // The chunks have a constant length, so that the compiler puts each chunk into one or two vectors of the CPU; the last
    // chunk may be shorter.
    const LANES: usize = 16;
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut max = [T::NEG_INFINITY; LANES];
    let larger = |max: &mut T, x: T| *max = if x > *max { x } else { *max };
    for chunk in chunks {
        max.iter_mut().zip(chunk).for_each(|(max, &x)| larger(max, x));
    }
    max.iter_mut().zip(rest).for_each(|(max, &x)| larger(max, x));
    let max = max.into_iter().fold(T::NEG_INFINITY, T::max);
    let mut sum = [T::ZERO; LANES];
    for chunk in chunks {
        sum.iter_mut().zip(chunk).for_each(|(sum, &x)| *sum += (x - max).exp_with::<A>());
    }
    sum.iter_mut().zip(rest).for_each(|(sum, &x)| *sum += (x - max).exp_with::<A>());
    max + sum.into_iter().sum::<T>().ln()
}

struct Losses<'a, T> {
    rows: Rows<'a, T>,
    room: Option<&'a mut RoundedLogits<T>>,
    loss: ViewMut<'a, T>,
    share: ViewMut<'a, T>,
}

impl<T: Float> Sweep for Losses<'_, T> {
    type Output = Result<()>;
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) -> Result<()> {
        let rows = &self.rows;
        for (row, logits) in rows.logits.iter().enumerate() {
            let (mut loss, mut share) = (T::ZERO, T::ZERO);
            if let Some(class) = rows.class(row)? {
                let logits = self.room.as_mut().map_or(logits, |room| room.round(logits));
                let total = log_sum_exp::<T, A>(logits);
                share = rows.target.weight(class);
                loss = rows.target.loss(logits, total, class);
            }
            self.loss.row(row)[0] = loss;
            self.share.row(row)[0] = share;
        }
        Ok(())
    }
}

struct Slopes<'a, T> {
    rows: Rows<'a, T>,
    room: Option<&'a mut RoundedLogits<T>>,
    dloss: View<'a, T>,
    dlogits: ViewMut<'a, T>,
    assign: Assign,
}

/// The number of logits in a chunk: the gradients of a chunk are computed first, then written or added to the output.
const CHUNK: usize = 64;

impl<T: Float> Sweep for Slopes<'_, T> {
    type Output = Result<()>;
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) -> Result<()> {
        let rows = &self.rows;
        for (row, (logits, dlogits)) in rows.logits.iter().zip(self.dlogits.iter_mut()).enumerate() {
            let Some(class) = rows.class(row)? else {
                if self.assign == Assign::Write {
                    dlogits.fill(T::ZERO);
                }
                continue;
            };
            let logits = self.room.as_mut().map_or(logits, |room| room.round(logits));
            let total = log_sum_exp::<T, A>(logits);
            let of_row = (total, class, self.dloss.row(row)[0]);
            let mut slopes = [T::ZERO; CHUNK];
            for (i, (logits, dlogits)) in logits.chunks(CHUNK).zip(dlogits.chunks_mut(CHUNK)).enumerate() {
                let slopes = &mut slopes[..logits.len()];
                slopes.copy_from_slice(logits);
                rows.target.slopes::<A>(of_row, i * CHUNK, slopes);
                dlogits.iter_mut().zip(slopes).for_each(|(to, slope)| self.assign.put(to, *slope));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
