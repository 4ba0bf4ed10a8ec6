//! Shared code of losses that score only a few classes per row, such as `nce`: the score of a class from a table of class
//! weights, and the gradients of this table.

use crate::operator::RowBuffer;
use crate::ops::lookup::ids;
use crate::ops::prelude::*;

/// The input and output slots, which are the same for all operators that use a class table.
pub(in crate::ops) const X: usize = 0;
pub(in crate::ops) const WEIGHT: usize = 1;
pub(in crate::ops) const BIAS: usize = 2;
pub(in crate::ops) const LABELS: usize = 3;
pub(in crate::ops) const LOSS: usize = 0;

/// Checks the specs of x `[rows, width]`, a table `[height, width]`, a bias `[height]` and labels. Returns the height,
/// and the spec of one loss per row.
pub(in crate::ops) fn check(s: &InferShape<'_>) -> Result<(usize, Spec)> {
    s.is_float(X)?;
    s.same_dtype(X, WEIGHT)?;
    ids::check(s, LABELS)?;
    s.same_rows(X, LABELS)?;
    let x = s.input(X);
    let &[Extent::Known(height), Extent::Known(width)] = s.input(WEIGHT).shape.as_slice() else {
        return Err(s.mismatch(WEIGHT, "a constant of shape [height, width]"));
    };
    if x.width() != width {
        let expected = format!("rows of {width} numbers, since the width of `weight` is {width}");
        return Err(s.mismatch(X, &expected));
    }
    if s.optional(BIAS).is_some() {
        s.same_dtype(X, BIAS)?;
        s.constant(BIAS, &[height])?;
    }
    let mut out = s.input(LABELS).with_dtype(x.dtype);
    out.shape.truncate(1);
    Ok((height, out))
}

/// A table of class weights, one row per class, and the bias of each class.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Table<'a, T> {
    pub(in crate::ops) weight: View<'a, T>,
    pub(in crate::ops) bias: Option<View<'a, T>>,
}

impl<T: Float> Table<'_, T> {
    /// Computes the score of a class for the row `x`; the sum has a fixed number of lanes, so that the order of the additions
    /// depends only on the width.
    pub(in crate::ops) fn score(&self, class: usize, x: &[T]) -> T {
        const LANES: usize = 16;
        let (mut sums, weight) = ([T::ZERO; LANES], self.weight.row(class));
        let ((xs, x), (ws, w)) = (x.as_chunks::<LANES>(), weight.as_chunks::<LANES>());
        for (x, w) in xs.iter().zip(ws) {
            for i in 0..LANES {
                sums[i] += x[i] * w[i];
            }
        }
        sums.iter_mut().zip(x.iter().zip(w)).for_each(|(sum, (&x, &w))| *sum += x * w);
        let bias = self.bias.map_or(T::ZERO, |bias| bias.row(0)[class]);
        sums.into_iter().sum::<T>() + bias
    }
}

/// The storage to which the gradient of a class table is added.
pub(in crate::ops) enum TableGradient<'a, 'b, T> {
    /// No gradient of the class table is requested.
    None,
    /// The gradient of the class table is a dense matrix.
    Dense(ViewMut<'a, T>),
    /// The gradient of the class table is selected rows: one row per call of `add`, so a class may occur several times.
    Rows(&'b mut RowBuffer),
}

impl<T: RowValue> TableGradient<'_, '_, T> {
    /// Adds g · x to the gradient of row `class` of the table.
    pub(in crate::ops) fn add(&mut self, class: usize, g: T, x: &[T]) {
        match self {
            TableGradient::None => {}
            TableGradient::Dense(dense) => {
                dense.row(class).iter_mut().zip(x).for_each(|(to, &x)| *to += g * x);
            }
            TableGradient::Rows(rows) => {
                let mut row = rows.extend::<T>(std::iter::once(class as i64));
                row.row(0).iter_mut().zip(x).for_each(|(to, &x)| *to = g * x);
            }
        }
    }
}

/// A function of the backward call, the index of a row, and this row of x. The function calls its last argument once
/// for each class that the row's loss uses. This argument receives the class and the derivative of the loss with
/// respect to the class's score.
type Terms<'a, T> = dyn FnMut(&Backward<'_>, usize, &[T], &mut dyn FnMut(usize, T)) -> Result<()> + 'a;

/// Computes the requested gradients of x, the class table and the bias; `terms` lists the classes of each row, usually
/// `per_row` classes, and their derivatives.
pub(in crate::ops) fn gradients<T: RowValue>(
    run: &mut Backward<'_>,
    per_row: usize,
    terms: &mut Terms<'_, T>,
) -> Result<()> {
    // The loss may have no gradient: then the program used only the sampled classes, which pass no gradient.
    let dloss = run.output_gradient::<T>(LOSS)?;
    let x = run.input::<T>(X)?;
    let spec = run.input_spec(WEIGHT);
    let (height, width) = (spec.shape[0].known().unwrap_or(0), spec.width());
    let (mut dx, mut dbias) = (run.gradient::<T>(X)?, run.gradient::<T>(BIAS)?);
    let weight = if run.wants(X) { Some(run.input::<T>(WEIGHT)?) } else { None };
    let dense = run.gradient::<T>(WEIGHT)?;
    let is_dense = dense.is_some();
    // The `RowBuffer` is taken out of `run`, because `terms` borrows `run` while rows are added to the buffer.
    let mut kept = match run.gradient_rows(WEIGHT) {
        Some((rows, assign)) if !is_dense => {
            if assign == Assign::Write || rows.dtype().is_none() {
                rows.reset::<T>(height, width);
            }
            rows.reserve::<T>(x.rows() * per_row);
            Some(std::mem::take(rows))
        }
        _ => None,
    };
    let mut table = match (dense, &mut kept) {
        (Some((mut dense, assign)), _) => {
            assign.put_nothing(dense.reborrow());
            TableGradient::Dense(dense)
        }
        (None, Some(rows)) => TableGradient::Rows(rows),
        (None, None) => TableGradient::None,
    };
    if let Some((dbias, assign)) = &mut dbias {
        assign.put_nothing(dbias.reborrow());
    }
    let mut outcome = Ok(());
    for (row, x) in x.iter().enumerate() {
        let mut to = dx.as_mut().map(|(dx, assign)| (dx.row(row), *assign));
        if let Some((to, Assign::Write)) = &mut to {
            to.fill(T::ZERO);
        }
        let Some(upstream) = dloss.map(|dloss| dloss.row(row)[0]) else { continue };
        outcome = terms(run, row, x, &mut |class, slope| {
            let g = upstream * slope;
            table.add(class, g, x);
            if let Some((dbias, _)) = &mut dbias {
                dbias.row(0)[class] += g;
            }
            if let (Some((to, _)), Some(weight)) = (&mut to, weight) {
                to.iter_mut().zip(weight.row(class)).for_each(|(to, &w)| *to += g * w);
            }
        });
        if outcome.is_err() {
            break;
        }
    }
    if let (Some(kept), Some((rows, _))) = (kept, run.gradient_rows(WEIGHT)) {
        *rows = kept;
    }
    outcome
}
