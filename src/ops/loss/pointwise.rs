//! Shared code of the losses that compare x and y element by element. The loss of a row is the mean or the sum over the columns.

use crate::ops::prelude::*;

/// The input and output slots of all losses that implement [`Pointwise`]. Only losses with [`Pointwise::WEIGHED`] have the
/// slots `WEIGHT` and `POSITIVE`.
const X: usize = 0;
const Y: usize = 1;
const WEIGHT: usize = 2;
const POSITIVE: usize = 3;
const OUT: usize = 0;

/// The two weights of one column.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Weights<T> {
    /// The factor of the column's loss.
    pub(in crate::ops) all: T,
    /// The factor of the part of the loss that is multiplied by the target y.
    pub(in crate::ops) positive: T,
}

/// The loss of one number x with the target y, and the derivatives of this loss.
pub(in crate::ops) trait Pointwise: DeclaredOp + Copy {
    /// Whether the loss of a row is the mean over its columns (true) or the sum (false).
    const MEAN: bool = true;
    /// Whether the loss has the optional inputs `WEIGHT` and `POSITIVE`, the column weights.
    const WEIGHED: bool = false;
    /// Computes the loss of a number x and a target y.
    fn loss<T: Float, A: Arithmetic>(self, x: T, y: T, weights: Weights<T>) -> T;
    /// Computes the derivative of the loss with respect to x.
    fn dx<T: Float, A: Arithmetic>(self, x: T, y: T, weights: Weights<T>) -> T;
    /// Computes the derivative of the loss with respect to y; the default is 0, for losses that pass no gradient to y.
    fn dy<T: Float, A: Arithmetic>(self, _x: T, _y: T) -> T {
        T::ZERO
    }
    /// Returns the attributes of the operator in the check cases.
    fn sample() -> Attributes;
    /// Makes a target for a check case from a number between -1.5 and 1.5.
    fn target(number: f64) -> f64 {
        number
    }
}

/// An operator that computes a [`Pointwise`] loss of each row.
pub(in crate::ops) struct RowLoss<F>(F);
family!(RowLoss);

/// Checks that x and y are floats with the same number of rows, LoD and width; returns the spec of one number per row.
pub(in crate::ops) fn one_each(s: &InferShape<'_>, x: usize, y: usize) -> Result<Spec> {
    s.is_float(x)?;
    s.same_dtype(x, y)?;
    s.same_rows(x, y)?;
    let spec = s.input(x);
    let width = spec.width();
    if s.input(y).width() != width {
        let expected = format!("rows of {width} numbers, since the width of the other input is {width}");
        return Err(s.mismatch(y, &expected));
    }
    Ok(spec.with_width(1))
}

impl<F: Pointwise> Op for RowLoss<F> {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        infer_shape(s, F::WEIGHED)
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let weights = weights!(F::WEIGHED, T, run);
            let (x, y, out) = (run.input::<T>(X)?, run.input::<T>(Y)?, run.output::<T>(OUT)?);
            sweep(Losses { function: self.0, x, y, weights, out });
            Ok(())
        })
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        let reads = Gradient::reads_nothing().input(X).input(Y);
        if F::WEIGHED { reads.input(WEIGHT).input(POSITIVE) } else { reads }
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => gradients::<T>(run, &self.0, F::WEIGHED))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        samples(&F::sample(), F::target, F::WEIGHED)
    }
}

fn infer_shape(s: &mut InferShape<'_>, weighed: bool) -> Result<()> {
    let out = one_each(s, X, Y)?;
    let width = s.input(X).width();
    for slot in [WEIGHT, POSITIVE].into_iter().filter(|_| weighed) {
        if s.optional(slot).is_some() {
            s.same_dtype(X, slot)?;
            s.constant(slot, &[width])?;
        }
    }
    s.set(OUT, out);
    Ok(())
}

fn samples(attributes: &Attributes, target: fn(f64) -> f64, weighed: bool) -> Result<Vec<CheckCase>> {
    let beside = |sample: CheckCase, x: &Variable| -> Result<CheckCase> {
        let y = numbers(x.rows(), x.shape()[1], 5).mapv(target);
        let y = Variable::from(y).with_lod(x.lod().cloned())?;
        Ok(if sample.operands[0].batched { sample.batch("y", y) } else { sample.constant("y", y) })
    };
    let mut samples = CheckCase::of_rows(attributes, 3, beside)?;
    samples.extend(CheckCase::of_rows(attributes, 1, beside)?);
    if weighed {
        samples.extend(CheckCase::of_rows(attributes, 3, |sample, x| {
            let positive = ndarray::array![2.0, 0.5, 1.0];
            Ok(beside(sample, x)?.constant("positive_weight", positive))
        })?);
        samples.extend(CheckCase::of_rows(attributes, 3, |sample, x| {
            let weight = ndarray::array![0.5, 1.5, 0.0];
            Ok(beside(sample, x)?.constant("weight", weight))
        })?);
    }
    Ok(samples)
}

/// Reads the column weights from the inputs of a call; for a loss without column weights, both are `None`.
macro_rules! weights {
    ($weighed:expr, $float:ty, $run:expr) => {
        if $weighed {
            let row =
                |slot| Ok::<_, crate::error::Error>($run.optional::<$float>(slot)?.map(|view| view.row(0)));
            Columns { all: row(WEIGHT)?, positive: row(POSITIVE)? }
        } else {
            Columns { all: None, positive: None }
        }
    };
}
use weights;

fn gradients<T: RowValue>(
    run: &mut Backward<'_>,
    function: &dyn SlopeKernel<T>,
    weighed: bool,
) -> Result<()> {
    let Some(dout) = run.output_gradient::<T>(OUT)? else { return Ok(()) };
    let weights = weights!(weighed, T, run);
    let (x, y) = (run.input::<T>(X)?, run.input::<T>(Y)?);
    for (slot, by) in [(X, Argument::X), (Y, Argument::Y)] {
        if let Some((to, assign)) = run.gradient::<T>(slot)? {
            function.slopes(Slopes { by, x, y, weights, dout, to, assign });
        }
    }
    Ok(())
}

/// Computes the derivatives of a loss for all rows; called through `dyn`, so that the code of the callers is compiled once for
/// all losses.
trait SlopeKernel<T> {
    fn slopes(&self, slopes: Slopes<'_, T>);
}

impl<F: Pointwise, T: Float> SlopeKernel<T> for F {
    fn slopes(&self, slopes: Slopes<'_, T>) {
        sweep(Derive { function: *self, slopes });
    }
}

/// The two weights of each column, one number per column; `None` means 1 for every column.
#[derive(Clone, Copy)]
struct Columns<'a, T> {
    all: Option<&'a [T]>,
    positive: Option<&'a [T]>,
}

impl<T: Float> Columns<'_, T> {
    #[inline(always)]
    fn at(&self, column: usize) -> Weights<T> {
        let factor = |side: Option<&[T]>| side.map_or(T::ONE, |side| side[column]);
        Weights { all: factor(self.all), positive: factor(self.positive) }
    }
}

/// Returns the factor of the sum over the columns: 1 / width if the loss of a row is the mean, 1 if it is the sum.
#[inline(always)]
fn share<F: Pointwise, T: Float>(width: usize) -> T {
    if F::MEAN { T::from_f64(1.0 / width.max(1) as f64) } else { T::ONE }
}

struct Losses<'a, F, T> {
    function: F,
    x: View<'a, T>,
    y: View<'a, T>,
    weights: Columns<'a, T>,
    out: ViewMut<'a, T>,
}

impl<F: Pointwise, T: Float> Sweep for Losses<'_, F, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let (function, weights) = (self.function, self.weights);
        let share = share::<F, T>(self.x.width());
        for (out, (x, y)) in self.out.iter_mut().zip(self.x.iter().zip(self.y.iter())) {
            let cells = x.iter().zip(y).enumerate();
            let sum: T = cells.map(|(j, (&x, &y))| function.loss::<T, A>(x, y, weights.at(j))).sum();
            out.fill(sum * share);
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Argument {
    X,
    Y,
}

/// The operands of a [`SlopeKernel`].
struct Slopes<'a, T> {
    by: Argument,
    x: View<'a, T>,
    y: View<'a, T>,
    weights: Columns<'a, T>,
    dout: View<'a, T>,
    to: ViewMut<'a, T>,
    assign: Assign,
}

struct Derive<'a, F, T> {
    function: F,
    slopes: Slopes<'a, T>,
}

impl<F: Pointwise, T: Float> Sweep for Derive<'_, F, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Self { function, slopes: Slopes { by, x, y, weights, dout, mut to, assign } } = self;
        let share = share::<F, T>(x.width());
        let rows = x.iter().zip(y.iter()).zip(dout.iter());
        for (to, ((x, y), dout)) in to.iter_mut().zip(rows) {
            let g = dout[0] * share;
            let cells = to.iter_mut().zip(x.iter().zip(y));
            match by {
                Argument::X => {
                    for (j, (to, (&x, &y))) in cells.enumerate() {
                        assign.put(to, g * function.dx::<T, A>(x, y, weights.at(j)));
                    }
                }
                Argument::Y => {
                    for (to, (&x, &y)) in cells {
                        assign.put(to, g * function.dy::<T, A>(x, y));
                    }
                }
            }
        }
    }
}
