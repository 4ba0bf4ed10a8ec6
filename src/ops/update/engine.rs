//! The engine: one elementwise rule over every element of a table, or over the touched rows.
//!
//! Duplicate rows are merged before a rule is applied, since no rule but plain SGD is linear. Elements don't depend on
//! one another, so the bits are the same for any number of threads.

use std::array;

use arrayvec::ArrayVec;

use super::rule::GRAD;
use crate::error::{Error, Result};
use crate::kernels::{Arithmetic, Float, RowMerge, Sweep, View, ViewMut, ask, sweep};
use crate::program::{Forward, RowBuffer, RowValue};
use crate::tensor::StorageKind;

/// One more thread does not pay for fewer elements than this.
const GRAIN: usize = 1 << 15;

/// So many rows ahead memory is asked for: the rows of a large table lie far apart, and each would be waited for.
const AHEAD: usize = 12;

/// How one element moves: the parameter and its state, in the order of the output slots.
pub(in crate::ops) trait Rule<T, const FIELDS: usize>: Copy + Send + Sync {
    /// The new values. Mark it `#[inline(always)]`.
    fn step(&self, fields: [T; FIELDS], grad: T) -> [T; FIELDS];
}
/// Room for merging duplicate rows, used again at every step.
#[derive(Default)]
pub(in crate::ops) struct Merged<T> {
    plan: RowMerge,
    values: Vec<T>,
}

impl<T: RowValue> Merged<T> {
    /// The distinct row numbers, ascending, and the sum of the rows of each.
    pub(in crate::ops) fn of<'s>(&'s mut self, rows: &'s RowBuffer) -> Result<(&'s [i64], View<'s, T>)> {
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
pub(in crate::ops) fn apply<T: RowValue, const FIELDS: usize>(
    run: &mut Forward<'_>,
    rule: impl Rule<T, FIELDS>,
) -> Result<()> {
    if run.output_spec(0).storage == StorageKind::SelectedRows {
        return row_sparse(run, rule);
    }
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

/// Where the touched rows of each table are, used again at every step.
#[derive(Default)]
struct Places(Vec<Vec<usize>>);

/// Applies a rule to the touched rows of row-sparse tables.
fn row_sparse<T: RowValue, const FIELDS: usize>(
    run: &mut Forward<'_>,
    rule: impl Rule<T, FIELDS>,
) -> Result<()> {
    let mut merged = std::mem::take(run.scratch().get::<Merged<T>>());
    let Places(mut places) = std::mem::take(run.scratch().get::<Places>());
    let result =
        run.update_tables(GRAD, array::from_fn::<_, FIELDS, _>(|slot| slot)).and_then(|(rows, tables)| {
            let (ids, values) = merged.of(rows)?;
            check_range(ids, tables[0].height())?;
            places.resize_with(FIELDS, Vec::new);
            // Parameter and state are touched together: where a row is in one, it mostly is in the next.
            let mut fields = ArrayVec::<_, FIELDS>::new();
            for (k, table) in tables.into_iter().enumerate() {
                let (known, next) = places.split_at_mut(k);
                table.touch::<T>(ids, known.last().map_or(&[], Vec::as_slice), &mut next[0])?;
                fields.push(table.numbers_mut::<T>()?);
            }
            sweep(Scattered { rule, fields: full(fields), places: &places, values });
            Ok(())
        });
    *run.scratch().get::<Merged<T>>() = merged;
    *run.scratch().get::<Places>() = Places(places);
    result
}

/// Nothing is updated if a row number is out of range.
pub(in crate::ops) fn check_range(ids: &[i64], height: usize) -> Result<()> {
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
        for (i, (&id, grad)) in self.ids.iter().zip(self.values.iter()).enumerate() {
            if let Some(&later) = self.ids.get(i + AHEAD) {
                self.fields.iter_mut().for_each(|f| ask(f.row(later as usize - self.base)));
            }
            row(&self.rule, self.fields.each_mut().map(|f| f.row(id as usize - self.base)), grad);
        }
    }
}

/// Rows of tables that are not in the order of their numbers.
struct Scattered<'a, T, R, const N: usize> {
    rule: R,
    fields: [&'a mut [T]; N],
    /// For each field, where the row of each gradient is.
    places: &'a [Vec<usize>],
    values: View<'a, T>,
}

impl<T: Float, R: Rule<T, N>, const N: usize> Sweep for Scattered<'_, T, R, N> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let width = self.values.width();
        for (i, grad) in self.values.iter().enumerate() {
            let mut places = self.places.iter().map(|places| places[i] * width);
            let fields = self.fields.each_mut().map(|field| {
                let start = places.next().unwrap_or(0);
                &mut field[start..start + width]
            });
            row(&self.rule, fields, grad);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_outside_the_table_is_named() {
        let refused = |ids: &[i64], row: &str| {
            let error = check_range(ids, 5).unwrap_err().to_string();
            let expected = "row of `grad`: expected 0 or more and below the height of `param`, 5, got ";
            assert_eq!(error, format!("{expected}{row}"));
        };
        refused(&[-3, 1], "-3");
        refused(&[0, 5], "5");
        assert_eq!((check_range(&[0, 4], 5), check_range(&[], 0)), (Ok(()), Ok(())));
    }
}
