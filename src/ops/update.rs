//! What the update rules share: slots, the shape rule, and ONE engine that applies an elementwise rule to every
//! element of a table under a dense gradient, or to the touched rows under one of selected rows.
//!
//! A rule is a [`Rule`]: from the old values of an element (the parameter, then its state) and its gradient to the
//! new ones. Duplicate rows are merged before it is applied, since no rule but plain SGD is linear. Elements don't
//! depend on one another, so the bits are the same for any number of threads.

use std::array;

use arrayvec::ArrayVec;

use crate::error::{Error, ErrorKind, Result};
use crate::kernels::{Arithmetic, Float, RowMerge, Sweep, View, ViewMut, sweep};
use crate::program::{Attributes, Forward, InferShape, RowBuffer, RowValue, Sample, Slot, Spec};
use crate::tensor::{Dense, SelectedRows, StorageKind, Variable};

/// Input slot of the gradient, in every rule.
pub(super) const GRAD: usize = 0;
/// Input slot of the learning rate, in every rule.
pub(super) const RATE: usize = 1;

/// The inputs of every rule.
pub(super) const INPUTS: &[Slot] = &[
    Slot::one("grad").without_gradient().storages(&[StorageKind::Dense, StorageKind::SelectedRows]),
    Slot::one("rate").without_gradient(),
];

/// Below this many elements a thread more does not pay.
const GRAIN: usize = 1 << 15;

/// How one element moves: the parameter and its state, in the order of the output slots.
pub(super) trait Rule<T, const FIELDS: usize>: Copy + Send + Sync {
    /// The new values. Mark it `#[inline(always)]`.
    fn step(&self, fields: [T; FIELDS], grad: T) -> [T; FIELDS];
}

/// What a rule does with a gradient of selected rows; stored by name in the attribute `mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SparseMode {
    /// The same numbers as the dense rule on the densified gradient. A rule that would have to move untouched rows
    /// too refuses selected rows.
    #[default]
    Exact,
    /// Only touched rows and their state move.
    Lazy,
}

impl SparseMode {
    /// The name in programs.
    pub fn name(self) -> &'static str {
        match self {
            SparseMode::Exact => "exact",
            SparseMode::Lazy => "lazy",
        }
    }

    /// Reads the attribute `mode`.
    pub(super) fn parse(attributes: &Attributes) -> Result<Self> {
        match attributes.text("mode")? {
            "exact" => Ok(SparseMode::Exact),
            "lazy" => Ok(SparseMode::Lazy),
            other => Err(Error::of(ErrorKind::Program, "attribute `mode`", "exact or lazy", other)),
        }
    }

    /// The shape rule of an update of `fields` outputs. `moves_all` says why the dense rule moves rows without a
    /// gradient, if it does.
    pub(super) fn infer_shape(
        self,
        s: &mut InferShape<'_>,
        fields: usize,
        moves_all: Option<&str>,
    ) -> Result<()> {
        s.is_float(GRAD)?;
        s.is_float(RATE)?;
        s.constant(RATE, &[])?;
        let grad = s.input(GRAD);
        if grad.batched() || !grad.lod.is_empty() {
            return Err(s.mismatch(GRAD, "the gradient of a parameter, of known shape and without LoD"));
        }
        if let (StorageKind::SelectedRows, SparseMode::Exact, Some(reason)) = (grad.storage, self, moves_all)
        {
            return Err(Error::of(
                ErrorKind::Program,
                "gradient of selected rows",
                "a dense gradient, or `.lazy()` on the optimizer (then only touched rows and their state move)",
                format!("{grad} in exact mode, where {reason} moves the untouched rows too"),
            ));
        }
        for field in 0..fields {
            s.set(field, Spec { storage: StorageKind::Dense, ..grad.clone() });
        }
        Ok(())
    }
}

/// A number among the attributes, checked.
pub(super) fn number(
    attributes: &Attributes,
    name: &str,
    expected: &str,
    valid: impl FnOnce(f64) -> bool,
) -> Result<f64> {
    let value = attributes.float(name)?;
    if value.is_finite() && valid(value) {
        return Ok(value);
    }
    Err(Error::of(ErrorKind::Program, format!("attribute `{name}`"), expected, value.to_string()))
}

/// A number from 0 among the attributes.
pub(super) fn not_negative(attributes: &Attributes, name: &str) -> Result<f64> {
    number(attributes, name, "a finite number from 0", |v| v >= 0.0)
}

/// A number of [0, 1) among the attributes.
pub(super) fn fraction(attributes: &Attributes, name: &str) -> Result<f64> {
    number(attributes, name, "a number from 0 and below 1", |v| (0.0..1.0).contains(&v))
}

/// A scalar operand.
pub(super) fn scalar(run: &Forward<'_>, slot: usize) -> Result<f64> {
    crate::with_float!(run.dtype(slot), T => Ok(run.input::<T>(slot)?.row(0)[0].to_f64()))
}

/// Room for merging duplicate rows, used again at every step.
#[derive(Default)]
pub(super) struct Merged<T> {
    plan: RowMerge,
    values: Vec<T>,
}

impl<T: RowValue> Merged<T> {
    /// The distinct row numbers, ascending, and the sum of the rows of each.
    pub(super) fn of<'s>(&'s mut self, rows: &'s RowBuffer) -> Result<(&'s [i64], View<'s, T>)> {
        if rows.ids().is_empty() {
            return Ok((&[], View::new(&[], 0, rows.width())));
        }
        let values = rows.values::<T>()?;
        if rows.merged() {
            return Ok((rows.ids(), values));
        }
        self.plan.prepare(rows.ids());
        let (count, width) = (self.plan.len(), rows.width());
        self.values.resize(count * width, T::ZERO);
        self.plan.merge(values, ViewMut::new(&mut self.values, count, width));
        Ok((self.plan.ids(), View::new(&self.values, count, width)))
    }
}

/// Applies a rule to the outputs of an update, as the gradient's storage has it.
pub(super) fn apply<T: RowValue, const FIELDS: usize>(
    run: &mut Forward<'_>,
    rule: impl Rule<T, FIELDS>,
) -> Result<()> {
    let fields = (0..FIELDS).map(|slot| run.output::<T>(slot)).collect::<Result<ArrayVec<_, FIELDS>>>()?;
    let mut fields = full(fields);
    let threads = run.run().threads;
    if run.rows(GRAD).is_none() {
        dense(rule, fields, run.input::<T>(GRAD)?, threads);
        return Ok(());
    }
    let mut merged = std::mem::take(run.scratch().get::<Merged<T>>());
    let result = run.rows(GRAD).map_or(Ok(()), |rows| {
        let (ids, values) = merged.of(rows)?;
        let height = run.input_spec(GRAD).shape.first().and_then(|e| e.known()).unwrap_or(0);
        check_range(ids, height)?;
        let tables = fields.iter_mut().map(|field| table(field, height, values.width()));
        let tables = tables.collect::<Result<ArrayVec<_, FIELDS>>>()?;
        touched(rule, full(tables), 0, ids, values, threads);
        Ok(())
    });
    *run.scratch().get::<Merged<T>>() = merged;
    result
}

/// Nothing is updated if a row number is out of range.
fn check_range(ids: &[i64], height: usize) -> Result<()> {
    let outside = |id: &&i64| usize::try_from(**id).map_or(true, |id| id >= height);
    match ids.first().filter(outside).or(ids.last().filter(outside)) {
        None => Ok(()),
        Some(id) => {
            let expected = format!("0 or more and below the height of `param`, {height}");
            Err(Error::new("row of `grad`", expected, id.to_string()))
        }
    }
}

/// The view of a parameter whose rows are what a gradient selects: a vector's are its elements.
fn table<'v, T: Float>(field: &'v mut ViewMut<'_, T>, height: usize, width: usize) -> Result<ViewMut<'v, T>> {
    if (field.rows(), field.width()) == (height, width) {
        return Ok(field.reborrow());
    }
    let got = format!("{} × {}", field.rows(), field.width());
    match field.contiguous() {
        Some(all) if all.len() == height * width => Ok(ViewMut::new(all, height, width)),
        _ => Err(Error::new("rows of `param`", format!("{height} × {width}"), got)),
    }
}

fn full<V, const N: usize>(values: ArrayVec<V, N>) -> [V; N] {
    match values.into_inner() {
        Ok(all) => all,
        Err(_) => unreachable!("one for each field"),
    }
}

type Halves<'a, T, const N: usize> = ([ViewMut<'a, T>; N], [ViewMut<'a, T>; N]);

fn halves<'a, T, const N: usize>(
    fields: [ViewMut<'a, T>; N],
    cut: impl Fn(ViewMut<'a, T>) -> (ViewMut<'a, T>, ViewMut<'a, T>),
) -> Halves<'a, T, N> {
    let mut second = ArrayVec::<_, N>::new();
    let first = fields.map(|field| {
        let (head, tail) = cut(field);
        second.push(tail);
        head
    });
    (first, full(second))
}

/// Every element moves.
fn dense<T: Float, const N: usize>(
    rule: impl Rule<T, N>,
    fields: [ViewMut<'_, T>; N],
    grad: View<'_, T>,
    threads: usize,
) {
    let (rows, width) = (grad.rows(), grad.width());
    if threads < 2 || rows * width < 2 * GRAIN {
        sweep(Every { rule, fields, grad });
        return;
    }
    let ((head, tail), (first, second)) = if rows > 1 {
        let at = rows / 2;
        (halves(fields, |f| f.split_rows(at)), (grad.rows_range(0, at), grad.rows_range(at, rows)))
    } else {
        let at = width / 2;
        (halves(fields, |f| f.split_columns(at)), (grad.columns(0, at), grad.columns(at, width)))
    };
    rayon::join(
        || dense(rule, head, first, threads / 2),
        || dense(rule, tail, second, threads - threads / 2),
    );
}

/// The rows `ids` move; `fields` start at row `base` of the table.
fn touched<T: Float, const N: usize>(
    rule: impl Rule<T, N>,
    fields: [ViewMut<'_, T>; N],
    base: usize,
    ids: &[i64],
    values: View<'_, T>,
    threads: usize,
) {
    if threads < 2 || ids.len() < 2 || ids.len() * values.width() < 2 * GRAIN {
        sweep(Touched { rule, fields, base, ids, values });
        return;
    }
    let half = ids.len() / 2;
    let start = ids[half] as usize;
    let (head, tail) = halves(fields, |f| f.split_rows(start - base));
    let (first, second) = (values.rows_range(0, half), values.rows_range(half, ids.len()));
    rayon::join(
        || touched(rule, head, base, &ids[..half], first, threads / 2),
        || touched(rule, tail, start, &ids[half..], second, threads - threads / 2),
    );
}

struct Every<'a, T, R, const N: usize> {
    rule: R,
    fields: [ViewMut<'a, T>; N],
    grad: View<'a, T>,
}

impl<T: Float, R: Rule<T, N>, const N: usize> Sweep for Every<'_, T, R, N> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for (i, grad) in self.grad.iter().enumerate() {
            row(&self.rule, self.fields.each_mut().map(|f| f.row(i)), grad);
        }
    }
}

struct Touched<'a, T, R, const N: usize> {
    rule: R,
    fields: [ViewMut<'a, T>; N],
    base: usize,
    ids: &'a [i64],
    values: View<'a, T>,
}

impl<T: Float, R: Rule<T, N>, const N: usize> Sweep for Touched<'_, T, R, N> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for (&id, grad) in self.ids.iter().zip(self.values.iter()) {
            row(&self.rule, self.fields.each_mut().map(|f| f.row(id as usize - self.base)), grad);
        }
    }
}

#[inline(always)]
fn row<T: Float, const N: usize>(rule: &impl Rule<T, N>, fields: [&mut [T]; N], grad: &[T]) {
    let fields = fields.map(|field| &mut field[..grad.len()]);
    for (i, &grad) in grad.iter().enumerate() {
        let new = rule.step(array::from_fn(|k| fields[k][i]), grad);
        for k in 0..N {
            fields[k][i] = new[k];
        }
    }
}

/// The samples of a rule: a matrix, a vector, rows that repeat, and none. `attributes` gets the name of the mode.
pub(super) fn samples(attributes: impl Fn(&str) -> Attributes, fields: &[&str]) -> Vec<Sample> {
    let numbers = |shape: &[usize], pace: f64, least: f64| -> Result<Variable> {
        let len = shape.iter().product::<usize>();
        let values = (0..len).map(|i| (i as f64 * pace).sin() + least).collect();
        Ok(Variable::dense(Dense::from_vec::<f64>(shape, values)?))
    };
    let sample = |name: &str, mode: SparseMode, shape: &[usize]| -> Result<Sample> {
        let rate = Variable::dense(Dense::from_vec(&[], vec![0.125f32])?);
        let mut sample = Sample::new(name, attributes(mode.name())).without_gradient().constant("rate", rate);
        for (k, field) in fields.iter().enumerate() {
            // Above 0, as some states must be.
            sample = sample.constant(field, numbers(shape, 0.9 + k as f64, 1.5)?);
        }
        Ok(sample)
    };
    let rows = |ids: &[i64]| -> Result<Variable> {
        let values = numbers(&[ids.len(), 3], 0.7, 0.0)?.into_parts().0.into_dense()?;
        Variable::new(SelectedRows::new(5, ids.to_vec(), values)?, None)
    };
    let all = || -> Result<Vec<Sample>> {
        let (exact, lazy) = (SparseMode::Exact, SparseMode::Lazy);
        Ok(vec![
            sample("matrix", exact, &[4, 3])?.constant("grad", numbers(&[4, 3], 0.7, 0.0)?),
            sample("vector", exact, &[5])?.constant("grad", numbers(&[5], 0.7, 0.0)?),
            sample("rows that repeat", lazy, &[5, 3])?.constant("grad", rows(&[4, 1, 4])?),
            sample("no row", lazy, &[5, 3])?.constant("grad", rows(&[])?),
        ])
    };
    all().unwrap_or_default()
}
