//! Blocks of rows to update, and the loop over the elements of a block. The loop is the only code of updates that is
//! compiled for each rule.

use super::owed::{DeferredRule, Moment, RowDebt};
use super::rule::ElementStep;
use crate::kernels::{Arithmetic, Float, Sweep, View, ViewMut, ask};

/// Prefetch distance: the number of rows from the current row to the row that is prefetched. Without prefetching, each row of a
/// large table costs a cache miss.
pub(super) const AHEAD: usize = 12;

/// The maximum number of rows per call of [`Kernel::settle`].
pub(in crate::ops) const BLOCK: usize = 32;

/// The arithmetic of an update rule in one float type.
pub(in crate::ops) trait Kernel<T>: DeferredRule {
    /// Applies the update with the rate and step in `moment` to the rows of a block.
    fn update(&self, moment: Moment, block: Block<'_, '_, T>);

    /// Applies missed updates to at most [`BLOCK`] rows; `owed` has the combined effect of the missed updates of each row.
    fn settle(&self, owed: &[RowDebt<'_>], block: Block<'_, '_, T>);
}

/// The arithmetic of an update rule in f32 and f64.
pub(in crate::ops) trait Rule: Kernel<f32> + Kernel<f64> {
    /// Returns the number of variables that the rule updates: the parameter and its states.
    fn fields(&self) -> usize;
}

/// The positions of a block's rows in the fields, which are the parameter and its states.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    /// The block has all rows of the fields, in order.
    All,
    /// The block has the table rows with the indices `ids`; the fields hold the part of the table from row `base` on.
    Of { ids: &'a [i64], base: usize },
    /// The block has the rows at given positions, with one list of positions per field: a row may have a different position in
    /// each field.
    At(&'a [Vec<usize>]),
}

impl Rows<'_> {
    #[inline(always)]
    fn at(&self, field: usize, i: usize) -> usize {
        match *self {
            Rows::All => i,
            Rows::Of { ids, base } => ids[i] as usize - base,
            Rows::At(places) => places[field][i],
        }
    }

    #[inline(always)]
    pub(super) fn ask<T>(&self, fields: &mut [ViewMut<'_, T>], i: usize) {
        let there = match *self {
            Rows::All => 0,
            Rows::Of { ids, .. } => ids.len(),
            Rows::At(places) => places[0].len(),
        };
        if i < there {
            for (field, values) in fields.iter_mut().enumerate() {
                ask(values.row(self.at(field, i)));
            }
        }
    }

    #[inline(always)]
    fn of<'f, T, const N: usize>(&self, fields: &'f mut [ViewMut<'_, T>; N], i: usize) -> [&'f mut [T]; N] {
        let mut field = 0;
        fields.each_mut().map(|values| {
            let at = self.at(field, i);
            field += 1;
            values.row(at)
        })
    }
}

/// The gradients of the rows of a block, row by row.
#[derive(Clone, Copy)]
pub(super) enum Gradients<'a, T> {
    Rows(View<'a, T>),
    /// No row has a gradient: one row of zeros is the gradient of every row.
    Zero(&'a [T]),
}

impl<'a, T> Gradients<'a, T> {
    #[inline(always)]
    fn row(&self, i: usize) -> &'a [T] {
        match self {
            Gradients::Rows(rows) => rows.row(i),
            Gradients::Zero(zeros) => zeros,
        }
    }

    pub(super) fn halve(self, split: impl Fn(View<'a, T>) -> (View<'a, T>, View<'a, T>)) -> (Self, Self)
    where
        T: Copy,
    {
        match self {
            Gradients::Rows(rows) => {
                let (head, tail) = split(rows);
                (Gradients::Rows(head), Gradients::Rows(tail))
            }
            zero @ Gradients::Zero(_) => (zero, zero),
        }
    }
}

/// A block: rows of a parameter and its states (the fields), and the gradients of these rows.
pub(in crate::ops) struct Block<'b, 'a, T> {
    pub(super) fields: &'b mut [ViewMut<'a, T>],
    pub(super) rows: Rows<'b>,
    /// The number of rows to update. Rows in `rows` after the first `count` are only prefetched.
    pub(super) count: usize,
    pub(super) gradients: Gradients<'b, T>,
}

/// The steps of the rows of a block: one step for all rows, or one step per row.
pub(in crate::ops) trait Steps {
    type Step;
    fn of(&self, i: usize) -> Self::Step;
}

/// The same step for every row of a block.
pub(in crate::ops) struct UniformStep<S>(pub(in crate::ops) S);

impl<S: Copy> Steps for UniformStep<S> {
    type Step = S;
    #[inline(always)]
    fn of(&self, _: usize) -> S {
        self.0
    }
}

impl<S: Copy> Steps for &[S] {
    type Step = S;
    #[inline(always)]
    fn of(&self, i: usize) -> S {
        self[i]
    }
}

/// The loop over the rows and elements of a block, which every update rule runs.
pub(in crate::ops) struct Move<'b, 'a, T, S, const FIELDS: usize> {
    pub(in crate::ops) steps: S,
    pub(in crate::ops) block: Block<'b, 'a, T>,
}

impl<T: Float, S: Steps<Step: ElementStep<T, N>>, const N: usize> Sweep for Move<'_, '_, T, S, N> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Block { fields, rows, count, gradients } = self.block;
        let Ok(fields) = <&mut [ViewMut<'_, T>; N]>::try_from(fields) else {
            unreachable!("{N} variables of a rule")
        };
        for i in 0..count {
            rows.ask(fields, i + AHEAD);
            row(self.steps.of(i), rows.of(fields, i), gradients.row(i));
        }
    }
}

#[inline(always)]
fn row<T: Float, const N: usize>(step: impl ElementStep<T, N>, fields: [&mut [T]; N], gradient: &[T]) {
    let width = gradient.len();
    let fields = fields.map(|field| &mut field[..width]);
    // The loop indexes the gradient and the fields. With an iterator over the gradient, a rule that does not read the
    // gradient would have a bounds check per element: the compiler would not know that the loop ends at the length of
    // the fields.
    for i in 0..width {
        let mut old = [T::ZERO; N];
        for k in 0..N {
            old[k] = fields[k][i];
        }
        let new = step.step(old, gradient[i]);
        for k in 0..N {
            fields[k][i] = new[k];
        }
    }
}
