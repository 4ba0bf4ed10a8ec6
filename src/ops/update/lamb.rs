//! `lamb`: the update rule LAMB, with Adam's step scaled to the norm of the parameter.
//!
//! An update has two passes: the first pass updates the moments and adds up the squares of the parameter and of its step, the
//! second pass updates the parameter. Missed updates of a row without a gradient cannot be applied later, because the length of
//! every step depends on the whole parameter.

use super::adam::Moments;
use super::engine::{MergedRows, check_range};
use super::rule::{self, GRAD, SparseMode, over};
use super::settings::{after, dense_or_rows, fraction, not_negative, or_one, or_zero, steps};
use crate::error::{Error, Result};
use crate::kernels::{Arithmetic, Float, Sweep, View, ViewMut, join, sweep};
use crate::operator;
use crate::operator::signature::{DENSE, ROWS};
use crate::operator::{CheckCase, Debt, Facts, Forward, InferShape, LodEffect, Op, RowValue};
use crate::tensor::StorageKind;
use crate::with_float;

/// The maximum number of elements that one loop adds up; a longer range is divided into two halves first.
const RUN: usize = 1 << 12;
/// The minimum number of elements per thread. With fewer elements, an additional thread costs more time than it saves.
const GRAIN: usize = 1 << 15;

operator! {
    /// LAMB: Adam's step, scaled to the norm of the parameter, times the rate.
    ///
    /// The formulas of LAMB, with the gradient g and the number t = 1, 2, … of the step, are:
    ///
    /// - moment1 and moment2 are computed from g as in `adam`;
    /// - r = moment1 / (1 − beta1ᵗ) / (√(moment2 / (1 − beta2ᵗ)) + epsilon) + weight_decay · param;
    /// - param −= rate · ‖param‖ / ‖r‖ · r; if one of the norms is 0, param −= rate · r.
    ///
    /// Source: You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", 2020, arXiv:1904.00962,
    /// algorithm 2 with φ(z) = z. ‖param‖ and ‖r‖ are norms over the whole parameter. The squares are added up in f64, in an
    /// order that depends on the shape of the parameter, not on the number of threads.
    ///
    /// A gradient of selected rows requires the mode `lazy`, which updates only the rows of the gradient, as if these rows were
    /// the whole parameter. The mode `exact` refuses selected rows: every step changes the moments of every row, and the norms
    /// depend on all rows.
    ///
    /// ```
    /// use ndarray::{arr0, array};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let plain = Attributes::new().with("mode", "exact").with("beta1", 0.5).with("beta2", 0.75).with("epsilon", 0.0);
    /// let out = ops::catalogue().parse("lamb", &plain)?.call(&[
    ///     Operand::constant("grad", array![[2.0, -4.0, 6.0, -8.0]]),
    ///     Operand::constant("rate", arr0(0.125f32)),
    ///     Operand::constant("param", array![[2.0, 2.0, 2.0, 2.0]]),
    ///     Operand::constant("moment1", array![[0.0, 0.0, 0.0, 0.0]]),
    ///     Operand::constant("moment2", array![[0.0, 0.0, 0.0, 0.0]]),
    /// ])?;
    /// // The first step of Adam is the sign of the gradient, of length 2; the parameter has length 4.
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.75, 2.25, 1.75, 2.25]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [1.0, -2.0, 3.0, -4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct Lamb = lamb {
        mode: SparseMode,
        /// The storage of `param` and its moments: `dense` (default), or `selected_rows` for a row-sparse parameter.
        storage: StorageKind => dense_or_rows,
        beta1: f64 => fraction,
        beta2: f64 => fraction,
        epsilon: f64 => not_negative,
        /// Weight decay: the share of `param` that is added to the step r before the norms are computed; 0 by default.
        weight_decay: f64 => or_zero,
        /// The factor of `rate` for this parameter; 1 by default.
        rate_factor: f64 => or_one,
        /// The number of steps, from the first step on, in which `rate` is 0 for this parameter; 0 by default.
        held: usize => steps,
    }
    inputs { GRAD = grad: one.without_gradient(), RATE = rate: one.without_gradient() }
    kernels { [DENSE], [ROWS] }
    outputs { PARAM = param: one.updated().table(), MOMENT1 = moment1: one.updated().table(), MOMENT2 = moment2: one.updated().table() }
}

/// The formula of the step r of one element, before the step is scaled to the norm of the parameter.
#[derive(Clone, Copy)]
struct Step<T> {
    /// The factors of Adam's moments and of the bias correction, computed with a learning rate of 1; the real rate is
    /// applied later, together with the ratio of the norms.
    moments: Moments<T>,
    decay: T,
}

impl<T: Float> Step<T> {
    #[inline(always)]
    fn of(&self, param: T, moment1: T, moment2: T) -> T {
        let change = over(moment1, self.moments.scale(moment2));
        self.moments.rate * change + self.decay * param
    }
}

/// The sum of the squares of the parameter, and the sum of the squares of its step.
#[derive(Clone, Copy, Default)]
struct Squares {
    param: f64,
    step: f64,
}

impl Squares {
    fn and(self, other: Self) -> Self {
        Self { param: self.param + other.param, step: self.step + other.step }
    }

    /// Returns ‖param‖ / ‖step‖, which scales the step to the norm of the parameter; 1 if one of the norms is 0.
    fn ratio(self) -> f64 {
        let (param, step) = (self.param.sqrt(), self.step.sqrt());
        if param == 0.0 || step == 0.0 { 1.0 } else { param / step }
    }
}

impl Op for Lamb {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        self.mode.infer_shape(s, 3, self.storage, self.owes())
    }

    fn owes(&self) -> Debt {
        Debt::Whole("LAMB, which divides by the length of the whole parameter,")
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        fn forward<T: RowValue>(op: &Lamb, run: &mut Forward<'_>) -> Result<()> {
            let t = (run.run().step + 1) as f64;
            let rate = rule::rate(run, after(op.held, t) * op.rate_factor)?;
            let moments = Moments::new([op.beta1, op.beta2], op.epsilon, 1.0, t);
            let step = Step { moments, decay: T::from_f64(op.weight_decay) };
            if run.rows(GRAD).is_some() {
                return selected(run, step, rate);
            }
            let threads = run.run().threads;
            let mut fields = [run.output::<T>(0)?, run.output::<T>(1)?, run.output::<T>(2)?];
            let squares =
                gather(step, fields.each_mut().map(|f| f.reborrow()), run.input::<T>(GRAD)?, threads);
            apply(step, fields, T::from_f64(rate * squares.ratio()), threads);
            Ok(())
        }
        with_float!(run.dtype(GRAD), T => forward::<T>(self, run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let op = |mode| Lamb {
            mode,
            storage: StorageKind::Dense,
            beta1: 0.75,
            beta2: 0.875,
            epsilon: 1e-8,
            weight_decay: 0.5,
            rate_factor: 0.5,
            held: 0,
        };
        let modes = [SparseMode::Exact, SparseMode::Lazy].map(|mode| op(mode).attributes());
        rule::samples(modes, &["param", "moment1", "moment2"])
    }
}

/// Updates the moments, and returns the sums of the squares, added up as a tree. The rows are divided into halves until
/// a part has one row; then the columns are divided until a part has at most [`RUN`] columns.
fn gather<T: Float>(
    step: Step<T>,
    fields: [ViewMut<'_, T>; 3],
    grad: View<'_, T>,
    threads: usize,
) -> Squares {
    let (rows, width) = (grad.rows(), grad.width());
    if rows == 0 || width == 0 {
        return Squares::default();
    }
    if rows == 1 && width <= RUN {
        let [mut param, mut moment1, mut moment2] = fields;
        let (param, moment1, moment2) = (param.row(0), moment1.row(0), moment2.row(0));
        return sweep(Gather { step, param, moment1, moment2, grad: grad.row(0) });
    }
    let (first, second) = halves(fields);
    let (head, tail) = match rows {
        1 => (grad.columns(0, width / 2), grad.columns(width / 2, width)),
        _ => (grad.rows_range(0, rows / 2), grad.rows_range(rows / 2, rows)),
    };
    if threads > 1 && rows * width >= 2 * GRAIN {
        let (one, other) = (threads / 2, threads - threads / 2);
        let (a, b) = join(|| gather(step, first, head, one), || gather(step, second, tail, other));
        return a.and(b);
    }
    gather(step, first, head, 1).and(gather(step, second, tail, 1))
}

/// Moves the parameter by −`rate` times the step, on up to `threads` threads.
fn apply<T: Float>(step: Step<T>, fields: [ViewMut<'_, T>; 3], rate: T, threads: usize) {
    let (rows, width) = (fields[0].rows(), fields[0].width());
    if threads < 2 || rows * width < 2 * GRAIN {
        return sweep(Apply { step, fields, rate });
    }
    let (first, second) = halves(fields);
    let (one, other) = (threads / 2, threads - threads / 2);
    join(|| apply(step, first, rate, one), || apply(step, second, rate, other));
}

/// Divides the fields into two halves of rows, or of columns if the fields have one row.
fn halves<T: Float>(fields: [ViewMut<'_, T>; 3]) -> ([ViewMut<'_, T>; 3], [ViewMut<'_, T>; 3]) {
    let [a, b, c] = fields.map(|field| match field.rows() {
        1 => {
            let half = field.width() / 2;
            field.split_columns(half)
        }
        rows => field.split_rows(rows / 2),
    });
    ([a.0, b.0, c.0], [a.1, b.1, c.1])
}

struct Gather<'a, T> {
    step: Step<T>,
    param: &'a [T],
    moment1: &'a mut [T],
    moment2: &'a mut [T],
    grad: &'a [T],
}

impl<T: Float> Sweep for Gather<'_, T> {
    type Output = Squares;
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) -> Squares {
        const LANES: usize = 16;
        let Self { step, param, moment1, moment2, grad } = self;
        let mut params = [0.0; LANES];
        let mut steps = [0.0; LANES];
        let moments = moment1.chunks_mut(LANES).zip(moment2.chunks_mut(LANES));
        for ((moment1, moment2), (param, grad)) in moments.zip(param.chunks(LANES).zip(grad.chunks(LANES))) {
            for (i, (&param, &grad)) in param.iter().zip(grad).enumerate() {
                [moment1[i], moment2[i]] = step.moments.next(moment1[i], moment2[i], grad);
                let step = step.of(param, moment1[i], moment2[i]).to_f64();
                params[i] += param.to_f64() * param.to_f64();
                steps[i] += step * step;
            }
        }
        Squares { param: params.iter().sum(), step: steps.iter().sum() }
    }
}

struct Apply<'a, T> {
    step: Step<T>,
    fields: [ViewMut<'a, T>; 3],
    rate: T,
}

impl<T: Float> Sweep for Apply<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let [mut params, mut moments1, mut moments2] = self.fields;
        let moments = moments1.iter_mut().zip(moments2.iter_mut());
        for (param, (moment1, moment2)) in params.iter_mut().zip(moments) {
            for (param, (&mut moment1, &mut moment2)) in param.iter_mut().zip(moment1.iter_mut().zip(moment2))
            {
                *param -= self.rate * self.step.of(*param, moment1, moment2);
            }
        }
    }
}

/// Scratch memory: the positions of the gradient's rows in the parameter and in each moment; the memory is used again
/// at every step.
#[derive(Default)]
struct TouchedRows([Vec<usize>; 3]);

/// Updates the rows that the gradient selects, as if these rows were the whole parameter.
fn selected<T: RowValue>(run: &mut Forward<'_>, step: Step<T>, rate: f64) -> Result<()> {
    let mut merged = std::mem::take(run.scratch().get::<MergedRows<T>>());
    let mut places = std::mem::take(run.scratch().get::<TouchedRows>());
    let result = if run.output_spec(0).storage == StorageKind::SelectedRows {
        run.update_tables(GRAD, [0, 1, 2]).and_then(|(rows, tables)| {
            let (ids, values) = merged.of(rows)?;
            check_range(ids, tables[0].height())?;
            let [param, moment1, moment2] = tables;
            let TouchedRows([at, at1, at2]) = &mut places;
            param.touch::<T>(ids, &[], at)?;
            moment1.touch::<T>(ids, at, at1)?;
            moment2.touch::<T>(ids, at1, at2)?;
            let fields =
                [param.numbers_mut::<T>()?, moment1.numbers_mut::<T>()?, moment2.numbers_mut::<T>()?];
            Touched { step, fields, places: &places, values }.update(rate);
            Ok(())
        })
    } else {
        let mut fields = [run.output::<T>(0)?, run.output::<T>(1)?, run.output::<T>(2)?];
        run.rows(GRAD).map_or(Ok(()), |rows| {
            let (ids, values) = merged.of(rows)?;
            check_range(ids, rows.height())?;
            for places in &mut places.0 {
                places.clear();
                places.extend(ids.iter().map(|&id| id as usize));
            }
            let numbers = rows.height() * values.width();
            let [param, moment1, moment2] = fields.each_mut().map(|field| {
                let all = field.contiguous().filter(|all| all.len() == numbers);
                all.ok_or_else(|| Error::new("numbers of `param`", numbers.to_string(), "another number"))
            });
            let fields = [param?, moment1?, moment2?];
            Touched { step, fields, places: &places, values }.update(rate);
            Ok(())
        })
    };
    *run.scratch().get::<MergedRows<T>>() = merged;
    *run.scratch().get::<TouchedRows>() = places;
    result
}

struct Touched<'a, T> {
    step: Step<T>,
    fields: [&'a mut [T]; 3],
    places: &'a TouchedRows,
    values: View<'a, T>,
}

impl<T: Float> Touched<'_, T> {
    fn update(mut self, rate: f64) {
        let rows = self.values.rows();
        let rate = T::from_f64(rate * self.gather(0, rows).ratio());
        for i in 0..rows {
            let step = self.step;
            sweep(Apply { step, fields: self.row(i), rate });
        }
    }

    /// Updates the moments of the rows `from` to `to` − 1 of the gradient, and returns the sums of the squares in these rows,
    /// added up as a tree.
    fn gather(&mut self, from: usize, to: usize) -> Squares {
        match to - from {
            0 => Squares::default(),
            1 => {
                let (step, grad) = (self.step, self.values.rows_range(from, to));
                gather(step, self.row(from), grad, 1)
            }
            rows => {
                let half = from + rows / 2;
                self.gather(from, half).and(self.gather(half, to))
            }
        }
    }

    /// Returns the rows of the parameter and of both moments that belong to row `i` of the gradient.
    fn row(&mut self, i: usize) -> [ViewMut<'_, T>; 3] {
        let width = self.values.width();
        let [a, b, c] = &mut self.fields;
        let [at, at1, at2] = &self.places.0;
        [(a, at), (b, at1), (c, at2)].map(|(field, places)| {
            let start = places[i] * width;
            ViewMut::new(&mut field[start..start + width], 1, width)
        })
    }
}
