//! Operators that move rows: each row of the output is a copy of a row of an input, or the sum of such rows. An operator of
//! this kind declares only its row map, by the trait [`RowMap`]; this file copies the rows forward and the gradients back.
//!
//! A row map pairs *sources* with *targets*, which are rows from 0 on. Usually the sources are rows of `x` and the targets are
//! all rows of `out`. For an operator that [scatters](RowMap::scatters), such as `scatter_rows`, the sources are rows of `out`,
//! and the targets are all rows of `x`.

use arrayvec::ArrayVec;

use super::prelude::*;

/// The slot number of the output, in all operators that move rows.
const OUT: usize = 0;

/// How often a row is the source of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum SourceUse {
    /// Each row is the source of one target.
    Once,
    /// A row is the source of at most one target, and the sources ascend.
    Ascending,
    /// A row may be the source of several targets, whose gradients are added in the order of the targets.
    Often,
}

/// The sources of some targets, one after the other.
#[derive(Debug, Clone)]
pub(in crate::ops) enum Sources<'a> {
    /// The rows of a range.
    Range(Range<usize>),
    /// The rows of a range, last to first.
    Reversed(Range<usize>),
    /// The row, for as many targets as the second number says.
    Repeated(usize, usize),
    /// The listed rows.
    Listed(&'a [usize]),
    /// The parts of a row that is as wide as several targets: the row, and the number of its first parts that are sources.
    Parts(usize, usize),
}

/// The function to which a row map gives the number of a target, and the sources of the targets from there on.
pub(in crate::ops) type RowSink<'a> = &'a mut dyn FnMut(usize, Sources<'_>);

/// The direction in which an operator moves rows.
#[derive(Debug, Clone, Copy)]
pub(in crate::ops) struct Movement {
    /// The input slot whose rows move. The slot and the output slot 0 may each take one variable or several: variable k moves to
    /// output k, or to the only output.
    x: usize,
    uses: SourceUse,
    /// Whether the sources are rows of `out`; then the number in the rows of `out` without a target.
    scatters: Option<f64>,
}

impl Movement {
    /// The sources are rows of the input slot `x`.
    pub(in crate::ops) fn gather(x: usize, uses: SourceUse) -> Self {
        Self { x, uses, scatters: None }
    }

    /// The sources are rows of `out`; a row without a target has the number `rest`.
    pub(in crate::ops) fn scatter(x: usize, uses: SourceUse, rest: f64) -> Self {
        Self { x, uses, scatters: Some(rest) }
    }
}

/// An operator that moves rows.
pub(in crate::ops) trait RowMap: Op {
    fn movement(&self) -> Movement;

    /// Calls `moved` with the row map of a variable. The targets of one call of `moved` follow each other.
    ///
    /// # Errors
    /// Fails for errors in the data, as `forward` does.
    fn map(&self, call: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()>;
}

/// A call for one variable, for [`RowMap::map`].
pub(in crate::ops) struct MapCall<'a, 'r> {
    pub(in crate::ops) run: &'a CallInputs<'r>,
    pub(in crate::ops) scratch: &'a mut Scratch,
    /// The index of the variable among the variables of the slot.
    pub(in crate::ops) k: usize,
    /// The number of rows that can be sources.
    pub(in crate::ops) height: usize,
}

/// Implements `Op::forward`, `Op::backward` and `Op::gradient` for a [`RowMap`] that reads the values in the given slots.
macro_rules! row_map_passes {
    ($($read:expr),*) => {
        gradient_reads!($($read),*);

        fn forward(&self, run: &mut $crate::operator::Forward<'_>) -> $crate::Result<()> {
            $crate::ops::row_map::forward(self, run)
        }

        fn backward(&self, run: &mut $crate::operator::Backward<'_>) -> $crate::Result<()> {
            $crate::ops::row_map::backward(self, run)
        }
    };
}

/// Lists rows for a row map in groups, so that there is no call of [`RowSink`] for each row.
pub(in crate::ops) struct RowList<'a> {
    rows: ArrayVec<usize, 64>,
    target: usize,
    moved: RowSink<'a>,
}

impl<'a> RowList<'a> {
    /// Returns a list whose first row is the source of target 0.
    pub(in crate::ops) fn new(moved: RowSink<'a>) -> Self {
        Self { rows: ArrayVec::new(), target: 0, moved }
    }

    /// Lists the source of the next target.
    pub(in crate::ops) fn push(&mut self, row: usize) {
        if self.rows.is_full() {
            self.finish();
        }
        self.rows.push(row);
    }

    /// Gives the rows that are still in the list to the function.
    pub(in crate::ops) fn finish(&mut self) {
        (self.moved)(self.target, Sources::Listed(&self.rows));
        self.target += self.rows.len();
        self.rows.clear();
    }
}

/// The row map of one variable in a call.
struct Map<'a, 'r> {
    op: &'a dyn RowMap,
    run: &'a CallInputs<'r>,
    scratch: &'a mut Scratch,
    k: usize,
}

impl Map<'_, '_> {
    fn each(self, height: usize, moved: RowSink<'_>) -> Result<()> {
        let Map { op, run, scratch, k } = self;
        op.map(MapCall { run, scratch, k, height }, moved)
    }

    /// Writes to each target by `put`: the arguments are the target and its source.
    fn gather<T: Plain>(
        self,
        from: View<'_, T>,
        to: &mut ViewMut<'_, T>,
        put: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        let width = to.width();
        self.each(from.rows(), &mut |first, sources| match sources {
            Sources::Range(rows) => {
                rows.enumerate().for_each(|(i, row)| put(to.row(first + i), from.row(row)))
            }
            Sources::Reversed(rows) => {
                rows.rev().enumerate().for_each(|(i, row)| put(to.row(first + i), from.row(row)));
            }
            Sources::Repeated(row, times) => (0..times).for_each(|i| put(to.row(first + i), from.row(row))),
            Sources::Listed(rows) => {
                rows.iter().enumerate().for_each(|(i, &row)| put(to.row(first + i), from.row(row)));
            }
            Sources::Parts(row, count) => {
                let row = from.row(row);
                (0..count).for_each(|i| put(to.row(first + i), &row[i * width..(i + 1) * width]));
            }
        })
    }

    /// Writes to each source by `put`: the arguments are the source and its target. A source without a target gets the number
    /// `rest`; with `None`, it does not change.
    fn scatter<T: Plain>(
        self,
        from: View<'_, T>,
        to: ViewMut<'_, T>,
        rest: Option<T>,
        put: impl Fn(&mut [T], &[T]),
    ) -> Result<()> {
        let (width, end) = (from.width(), to.rows());
        let mut to = SourceRows { rows: to, rest, next: 0 };
        self.each(end, &mut |first, sources| match sources {
            Sources::Range(rows) => {
                rows.enumerate().for_each(|(i, row)| put(to.row(row), from.row(first + i)))
            }
            Sources::Reversed(rows) => {
                rows.rev().enumerate().for_each(|(i, row)| put(to.row(row), from.row(first + i)));
            }
            Sources::Repeated(row, times) => {
                let row = to.row(row);
                (0..times).for_each(|i| put(row, from.row(first + i)));
            }
            Sources::Listed(rows) => {
                rows.iter().enumerate().for_each(|(i, &row)| put(to.row(row), from.row(first + i)));
            }
            Sources::Parts(row, count) => {
                let (parts, after) = to.row(row).split_at_mut(count * width);
                let parts = parts.chunks_exact_mut(width.max(1)).enumerate();
                parts.for_each(|(i, part)| put(part, from.row(first + i)));
                if let Some(rest) = rest {
                    after.fill(rest);
                }
            }
        })?;
        to.fill_to(end);
        Ok(())
    }

    /// Writes or adds to each source the sum of its targets.
    fn sum<T: RowValue>(self, from: View<'_, T>, mut to: ViewMut<'_, T>, assign: Assign) -> Result<()> {
        let put = move |assign: Assign| move |to: &mut [T], from: &[T]| assign.put_row(to, from);
        let uses = self.op.movement().uses;
        let rest = (assign == Assign::Write && uses == SourceUse::Ascending).then_some(T::ZERO);
        if uses == SourceUse::Often {
            assign.put_nothing(to.reborrow());
            return self.scatter(from, to, rest, put(Assign::Add));
        }
        self.scatter(from, to, rest, put(assign))
    }
}

/// The rows that are sources, when they are written in ascending order: the rows that are left out get a number.
struct SourceRows<'a, T> {
    rows: ViewMut<'a, T>,
    rest: Option<T>,
    next: usize,
}

impl<T: Plain> SourceRows<'_, T> {
    fn row(&mut self, row: usize) -> &mut [T] {
        self.fill_to(row);
        self.next = row + 1;
        self.rows.row(row)
    }

    /// Writes the number to the rows from the last written row to row `end`.
    fn fill_to(&mut self, end: usize) {
        if let Some(rest) = self.rest {
            (self.next..end).for_each(|row| self.rows.row(row).fill(rest));
        }
    }
}

/// Returns the index of the output variable that gets the rows of variable `k`.
fn output_of(op: &dyn RowMap, k: usize) -> usize {
    if op.signature().outputs[OUT].arity == Arity::One { 0 } else { k }
}

/// Moves the rows from `x` to `out`.
pub(in crate::ops) fn forward(op: &dyn RowMap, run: &mut Forward<'_>) -> Result<()> {
    let Movement { x, uses, scatters } = op.movement();
    let adds = scatters.is_some() && uses == SourceUse::Often;
    for output in 0..run.output_count(OUT) {
        let dtype = run.input_spec_at(x, output).dtype;
        let inputs = (0..run.count(x)).filter(|&k| output_of(op, k) == output);
        if adds {
            with_float!(dtype, T => {
                let (from, out) = (run.input_at::<T>(x, output)?, run.output_at::<T>(OUT, output)?);
                let (run, scratch) = run.parts();
                Map { op, run, scratch, k: output }.sum(from, out, Assign::Write)
            })?;
            continue;
        }
        with_element!(dtype, T => {
            let mut out = run.output_at::<T>(OUT, output)?;
            for k in inputs {
                copy(op, run, k, out.reborrow())?;
            }
        });
    }
    Ok(())
}

/// Copies the rows of variable `k` to `out`.
fn copy<T: Plain + Element>(
    op: &dyn RowMap,
    run: &mut Forward<'_>,
    k: usize,
    mut out: ViewMut<'_, T>,
) -> Result<()> {
    let Movement { x, scatters, .. } = op.movement();
    let from = run.input_at::<T>(x, k)?;
    let (run, scratch) = run.parts();
    let map = Map { op, run, scratch, k };
    let put = |to: &mut [T], from: &[T]| to.copy_from_slice(from);
    match scatters {
        Some(rest) => map.scatter(from, out, Some(T::from_number(Number::Float(rest))), put),
        None => map.gather(from, &mut out, put),
    }
}

/// Moves the gradients of the rows of `out` back to `x`.
pub(in crate::ops) fn backward(op: &dyn RowMap, run: &mut Backward<'_>) -> Result<()> {
    let x = op.movement().x;
    for k in 0..run.count(x) {
        match run.input_spec_at(x, k).dtype {
            DType::F32 => gradient::<f32>(op, run, k)?,
            DType::F64 => gradient::<f64>(op, run, k)?,
            // Variables that hold no floats get no gradient.
            _ => {}
        }
    }
    Ok(())
}

fn gradient<T: RowValue>(op: &dyn RowMap, run: &mut Backward<'_>, k: usize) -> Result<()> {
    let Movement { x, scatters, .. } = op.movement();
    let Some((mut dx, assign)) = run.gradient_at::<T>(x, k)? else { return Ok(()) };
    let Some(dout) = run.output_gradient_at::<T>(OUT, output_of(op, k))? else {
        assign.put_nothing(dx);
        return Ok(());
    };
    let (run, scratch) = run.parts();
    let map = Map { op, run, scratch, k };
    match scatters {
        Some(_) => map.gather(dout, &mut dx, |to, from| assign.put_row(to, from)),
        None => map.sum(dout, dx, assign),
    }
}
