//! The engine: one elementwise rule over every element of a table, or over the touched rows.
//!
//! Duplicate rows are merged before a rule is applied, since no rule but plain SGD is linear. Elements don't depend on
//! one another, so the bits are the same for any number of threads.

use std::array;

use arrayvec::ArrayVec;

use super::owed::{Deferred, History, Ledger, Moment, SWEEP};
use super::rule::{GRAD, HISTORY, KEPT, RATE, Rule, scalar};
use crate::error::{Error, Result};
use crate::kernels::{Arithmetic, Float, RowMerge, Sweep, View, ViewMut, ask, join, sweep};
use crate::program::{Forward, RowBuffer, RowValue};
use crate::tensor::StorageKind;

/// One more thread does not pay for fewer elements than this.
const GRAIN: usize = 1 << 15;

/// So many rows ahead memory is asked for: the rows of a large table lie far apart, and each would be waited for.
const AHEAD: usize = 12;

/// The ledgers of so many rules are kept from step to step; programs that a thread ran before have theirs among them.
const RULES: usize = 16;

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
    let mut fields = outputs::<T, FIELDS>(run)?;
    let threads = run.run().threads;
    if run.rows(GRAD).is_none() {
        dense(rule, fields, run.input::<T>(GRAD)?, threads);
        return Ok(());
    }
    with_merged(run, |run, ids, values| {
        let tables = tables(run, &mut fields, values.width())?;
        touched(rule, tables, 0, ids, values, threads);
        Ok(())
    })
}

/// Applies a rule whose rows may owe moves: those of the touched ones come first.
pub(in crate::ops) fn apply_deferred<T: RowValue, const FIELDS: usize, R: Deferred<T, FIELDS>>(
    run: &mut Forward<'_>,
    rule: &R,
) -> Result<()> {
    let now = rule.rule(Moment { rate: scalar(run, RATE)?, step: (run.run().step + 1) as f64 });
    if run.output_count(FIELDS) == 0 {
        return apply(run, now);
    }
    let mut fields = outputs::<T, FIELDS>(run)?;
    let mut settled = run.output::<f64>(FIELDS)?;
    let settled = settled.contiguous().ok_or_else(scattered)?;
    let history = History(run.input::<f64>(HISTORY)?);
    let threads = run.run().threads;
    let mut debts = std::mem::take(run.scratch().get::<Debts<R, R::Moves>>());
    let result = with_merged(run, |run, ids, values| {
        let mut tables = tables(run, &mut fields, values.width())?;
        debts.settle(rule, history, &mut tables, settled, ids.iter().copied(), threads);
        touched(now, tables, 0, ids, values, threads);
        let now = (history.count() + 1) as f64;
        ids.iter().for_each(|&id| settled[id as usize] = now);
        Ok(())
    });
    *run.scratch().get::<Debts<R, R::Moves>>() = debts;
    result
}

/// Output slots 0 to `FIELDS`.
fn outputs<'a, T: RowValue, const FIELDS: usize>(run: &mut Forward<'a>) -> Result<[ViewMut<'a, T>; FIELDS]> {
    (0..FIELDS).map(|slot| run.output::<T>(slot)).collect::<Result<ArrayVec<_, FIELDS>>>().map(full)
}

/// Calls with the distinct rows of the gradient, which are rows of the table.
fn with_merged<T: RowValue>(
    run: &mut Forward<'_>,
    with: impl FnOnce(&Forward<'_>, &[i64], View<'_, T>) -> Result<()>,
) -> Result<()> {
    let mut merged = std::mem::take(run.scratch().get::<Merged<T>>());
    let result = run.rows(GRAD).map_or(Ok(()), |rows| {
        let (ids, values) = merged.of(rows)?;
        check_range(ids, run.output_spec(0).shape.first().and_then(|e| e.known()).unwrap_or(0))?;
        with(run, ids, values)
    });
    *run.scratch().get::<Merged<T>>() = merged;
    result
}

/// The views of a parameter and its state by the rows that a gradient of this width selects.
fn tables<'v, T: Float, const N: usize>(
    run: &Forward<'_>,
    fields: &'v mut [ViewMut<'_, T>; N],
    width: usize,
) -> Result<[ViewMut<'v, T>; N]> {
    let height = run.output_spec(0).shape.first().and_then(|e| e.known()).unwrap_or(0);
    let tables = fields.iter_mut().map(|field| table(field, height, width));
    tables.collect::<Result<ArrayVec<_, N>>>().map(full)
}

fn scattered() -> Error {
    Error::new("a variable of the optimizer", "one that lies in one piece", "another")
}

/// Settles a parameter and its state in output slots 0 and 1: of all rows, or of those that `ids` writes down and of a part of
/// the table whose turn it is.
pub(in crate::ops) fn settle<T: RowValue, const FIELDS: usize, R: Deferred<T, FIELDS>>(
    run: &mut Forward<'_>,
    rule: &R,
    history: usize,
    ids: Option<impl FnOnce(&Forward<'_>, &mut Vec<i64>) -> Result<()>>,
) -> Result<()> {
    let mut fields = ArrayVec::<_, FIELDS>::new();
    fields.push(run.output::<T>(0)?);
    for k in 0..run.output_count(1).min(FIELDS - 1) {
        fields.push(run.output_at::<T>(1, k)?);
    }
    let mut fields = full(fields);
    let mut settled = run.output::<f64>(2)?;
    let settled = settled.contiguous().ok_or_else(scattered)?;
    let history = History(run.input::<f64>(history)?);
    let (threads, spec) = (run.run().threads, run.output_spec(0));
    let width = spec.shape.iter().skip(1).filter_map(|e| e.known()).product();
    let mut tables = tables(run, &mut fields, width)?;
    let mut debts = std::mem::take(run.scratch().get::<Debts<R, R::Moves>>());
    let height = settled.len();
    match ids {
        None => {
            // In parts, so that what is due is not a list as long as the table.
            for from in (0..height).step_by(SWEEP) {
                let part = from as i64..height.min(from + SWEEP) as i64;
                debts.settle(rule, history, &mut tables, settled, part, threads);
            }
        }
        Some(ids) => {
            let mut read = std::mem::take(&mut debts.read);
            read.clear();
            ids(run, &mut read)?;
            // What is no row of the table is for the reader to name, and then nothing has moved.
            if read.iter().all(|&id| usize::try_from(id).is_ok_and(|id| id < height)) {
                let turn = (history.count() % SWEEP as u64) as usize;
                read.extend((turn..height).step_by(SWEEP).map(|row| row as i64));
                debts.plan.prepare(&read);
                let plan = std::mem::take(&mut debts.plan);
                debts.settle(rule, history, &mut tables, settled, plan.ids().iter().copied(), threads);
                debts.plan = plan;
            }
            debts.read = read;
        }
    }
    *run.scratch().get::<Debts<R, R::Moves>>() = debts;
    Ok(())
}

/// Room for settling, used again at every step.
struct Debts<R, M> {
    /// By rule: tables of one optimizer differ in rate and decay, and in what they owe.
    ledgers: Vec<(R, Ledger<M>)>,
    /// Rows that owe, ascending, and how many updates they missed.
    due: Vec<(i64, usize)>,
    read: Vec<i64>,
    plan: RowMerge,
}

impl<R, M> Default for Debts<R, M> {
    fn default() -> Self {
        Self { ledgers: vec![], due: vec![], read: vec![], plan: RowMerge::new() }
    }
}

impl<R, M: Copy + Send + Sync> Debts<R, M> {
    /// Lets rows, in ascending order, make the moves that they owe.
    fn settle<T: Float, const N: usize>(
        &mut self,
        rule: &R,
        history: History<'_>,
        tables: &mut [ViewMut<'_, T>; N],
        settled: &mut [f64],
        rows: impl Iterator<Item = i64>,
        threads: usize,
    ) where
        R: Deferred<T, N, Moves = M>,
    {
        let count = history.count();
        let (mut most, now) = (0, count as f64);
        self.due.clear();
        for row in rows {
            let settled = &mut settled[row as usize];
            let gap = count.saturating_sub(*settled as u64).min(KEPT as u64) as usize;
            if gap > 0 {
                self.due.push((row, gap));
                most = most.max(gap);
                *settled = now;
            }
        }
        if self.due.is_empty() {
            return;
        }
        let known = self.ledgers.iter().position(|(of, _)| of == rule);
        let place = known.unwrap_or_else(|| {
            if self.ledgers.len() == RULES {
                self.ledgers.remove(0);
            }
            self.ledgers.push((rule.clone(), Ledger::default()));
            self.ledgers.len() - 1
        });
        let ledger = &mut self.ledgers[place].1;
        ledger.prepare(rule, history, most);
        self.due.iter().for_each(|&(_, gap)| ledger.learn(rule, history, gap));
        let books = Books { rule, ledger, history };
        owing(books, tables.each_mut().map(|table| table.reborrow()), 0, &self.due, threads);
    }
}

/// What every row's payment is found in.
struct Books<'a, R, M> {
    rule: &'a R,
    ledger: &'a Ledger<M>,
    history: History<'a>,
}

impl<R, M> Clone for Books<'_, R, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, M> Copy for Books<'_, R, M> {}

/// Rows make their moves; `fields` start at row `base` of the table.
fn owing<T: Float, const N: usize, R: Deferred<T, N>>(
    books: Books<'_, R, R::Moves>,
    fields: [ViewMut<'_, T>; N],
    base: usize,
    due: &[(i64, usize)],
    threads: usize,
) {
    if threads < 2 || due.len() < 2 || due.len() * fields[0].width() < 2 * GRAIN {
        sweep(Owing { books, fields, base, due });
        return;
    }
    let half = due.len() / 2;
    let start = due[half].0 as usize;
    let (head, tail) = halves(fields, |f| f.split_rows(start - base));
    join(
        || owing(books, head, base, &due[..half], threads / 2),
        || owing(books, tail, start, &due[half..], threads - threads / 2),
    );
}

struct Owing<'a, T: Float, R: Deferred<T, N>, const N: usize> {
    books: Books<'a, R, R::Moves>,
    fields: [ViewMut<'a, T>; N],
    base: usize,
    due: &'a [(i64, usize)],
}

impl<T: Float, R: Deferred<T, N>, const N: usize> Sweep for Owing<'_, T, R, N> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let Books { rule, ledger, history } = self.books;
        let count = history.count();
        for (i, &(id, gap)) in self.due.iter().enumerate() {
            if let Some(&(later, _)) = self.due.get(i + AHEAD) {
                self.fields.iter_mut().for_each(|f| ask(f.row(later as usize - self.base)));
            }
            let mut fields = self.fields.each_mut().map(|f| f.row(id as usize - self.base));
            let (moves, within, rest, kept) = ledger.of(gap);
            let resting = || fields[1..].iter().all(|state| state.iter().all(|&x| x == T::ZERO));
            if rule.is_known(&moves) || resting() {
                still(&rule.payment(&moves, within, rest, kept), fields);
                continue;
            }
            let (mut update, end) = (count - gap as u64, count - rest as u64);
            while update < end {
                let fields = fields.each_mut().map(|field| &mut **field);
                if let Some((moves, updates)) = ledger.part(rule, update, end) {
                    still(&rule.payment(&moves, updates, 0, 1.0), fields);
                    update += updates as u64;
                } else {
                    still(&rule.rule(history.at(update)), fields);
                    update += 1;
                }
            }
            if rest > 0 {
                still(&rule.payment(&rule.none(), 0, rest, kept), fields);
            }
        }
    }
}

/// A row without a gradient.
#[inline(always)]
fn still<T: Float, const N: usize>(rule: &impl Rule<T, N>, fields: [&mut [T]; N]) {
    let width = fields[0].len();
    let fields = fields.map(|field| &mut field[..width]);
    (0..width).for_each(|i| {
        let new = rule.step(array::from_fn(|k| fields[k][i]), T::ZERO);
        (0..N).for_each(|k| fields[k][i] = new[k]);
    });
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
    join(|| dense(rule, head, first, threads / 2), || dense(rule, tail, second, threads - threads / 2));
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
    join(
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
    const PORTABLE: bool = T::PORTABLE;

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
    const PORTABLE: bool = T::PORTABLE;

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
    const PORTABLE: bool = T::PORTABLE;

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
