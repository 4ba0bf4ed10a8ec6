//! The engine of updates: applies an elementwise update rule to every element of a parameter, or to the rows that have a
//! gradient.
//!
//! Rows of a gradient with equal row numbers are added up before a rule is applied, since no rule but plain SGD is linear in
//! the gradient. Elements are updated independently, so the result is bit-identical for any number of threads.
//!
//! The engine calls a rule, a [`Kernel`], by one virtual call per block of rows. So the code that finds, merges and divides
//! rows is compiled once per float type, not per rule.

use arrayvec::ArrayVec;

use super::block::{AHEAD, BLOCK, Block, Gradients, Kernel, Rows, Rule};
use super::owed::{History, Ledger, Moment, RowDebt, SWEEP, grown};
use super::rule::{GRAD, HISTORY, KEPT, RATE, scalar};
use crate::error::{Error, Result};
use crate::kernels::{Float, RowMerge, View, ViewMut, boundary, join, lengthen};
use crate::operator::{CallMemory, CallSizes, Debt, Forward, MOST_TABLES, RowBuffer, RowValue};
use crate::tensor::StorageKind;
use crate::with_float;

/// The minimum number of elements per thread. With fewer elements, an additional thread costs more time than it saves.
const GRAIN: usize = 1 << 15;

/// The maximum number of update rules for which a thread keeps a ledger from step to step, including rules of programs that ran
/// earlier on the thread.
const RULES: usize = 16;

/// Views of the parameter and its states.
type Fields<'a, T> = ArrayVec<ViewMut<'a, T>, MOST_TABLES>;

/// Scratch memory for merging rows with equal row numbers; the memory is used again at every step.
#[derive(Default)]
pub(in crate::ops) struct MergedRows<T> {
    plan: RowMerge,
    values: Vec<T>,
}

impl<T: RowValue> MergedRows<T> {
    /// Returns the distinct row indices of a gradient, ascending, and for each index the sum of the rows with this index.
    pub(in crate::ops) fn of<'s>(&'s mut self, rows: &'s RowBuffer) -> Result<(&'s [i64], View<'s, T>)> {
        if rows.ids().is_empty() {
            return Ok((&[], View::new(&[], 0, rows.width())));
        }
        let values = rows.values::<T>()?;
        if rows.merged() {
            return Ok((rows.ids(), values));
        }
        self.plan.prepare(rows.ids());
        let (count, width) = (self.plan.ids().len(), rows.width());
        lengthen(&mut self.values, count * width);
        self.plan.merge(values, ViewMut::new(&mut self.values[..count * width], count, width));
        Ok((self.plan.ids(), View::new(&self.values[..count * width], count, width)))
    }
}

impl<T> MergedRows<T> {
    /// Returns the maximum memory for merging `rows` rows of a gradient, as part of the scratch value `S`. The table
    /// has `height` rows of `width` numbers.
    pub(in crate::ops) fn memory<S: 'static>(rows: usize, (height, width): (usize, usize)) -> CallMemory {
        let merged = rows.min(height).saturating_mul(width * size_of::<T>());
        let bytes = rows.saturating_mul(RowMerge::BYTES_PER_ROW).saturating_add(merged);
        CallMemory::default().scratch::<S>(bytes).bounded(rows > 0)
    }
}

/// Returns the memory that an update needs in addition to its operands: the merged rows of a gradient that is selected
/// rows, and the memory for missed updates. `horizon` is the horizon of the rule.
pub(in crate::ops) fn memory(sizes: &CallSizes<'_>, horizon: usize) -> CallMemory {
    let (table, rows) = (sizes.input(GRAD), sizes.stored(GRAD));
    let memory = with_float!(sizes.dtype(GRAD), T => Ok(MergedRows::<T>::memory::<Scratch<T>>(rows, table)))
        .unwrap_or_default();
    match sizes.count(HISTORY) {
        0 => memory,
        _ => Debts::memory(memory, 0, rows.min(table.0)).own(Ledger::bytes(horizon, table.0)),
    }
}

/// Returns the memory that the operator `settle` needs in addition to its operands. It settles the rows of `ids` ids, or all
/// rows of a table of `height` rows.
pub(in crate::ops) fn settle_memory(ids: Option<usize>, height: usize) -> CallMemory {
    let read = ids.map_or(0, |ids| ids.saturating_add(height.div_ceil(SWEEP)));
    let due = if ids.is_some() { read.min(height) } else { height.min(SWEEP) };
    Debts::memory(CallMemory::default().bounded(true), read, due)
}

/// Applies a rule to the outputs of an update operator. A dense gradient updates all rows. A gradient of selected rows updates
/// its rows, after their missed updates have been applied.
pub(in crate::ops) fn update(run: &mut Forward<'_>, rule: &dyn Rule) -> Result<()> {
    let moment = Moment { rate: scalar(run, RATE)?, step: (run.run().step + 1) as f64 };
    with_float!(run.dtype(GRAD), T => update_of::<T>(run, rule, rule.fields(), moment))
}

fn update_of<T: RowValue>(
    run: &mut Forward<'_>,
    rule: &dyn Kernel<T>,
    count: usize,
    moment: Moment,
) -> Result<()> {
    if run.output_spec(0).storage == StorageKind::SelectedRows {
        return row_sparse(run, rule, count, moment);
    }
    let mut fields = (0..count).map(|slot| run.output::<T>(slot)).collect::<Result<Fields<'_, T>>>()?;
    let threads = run.run().threads;
    if run.rows(GRAD).is_none() {
        let gradients = Gradients::Rows(run.input::<T>(GRAD)?);
        let part = ThreadRows { fields, rows: Rows::All, gradients, gaps: &[] };
        share(rule, Task::Update(moment), part, threads);
        return Ok(());
    }
    let mut owing = match rule.owes() == Debt::Later && run.output_count(count) > 0 {
        true => Some((run.output::<f64>(count)?, History(run.input::<f64>(HISTORY)?))),
        false => None,
    };
    let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
    let mut debts = std::mem::take(run.scratch().get::<Debts>());
    let result = run.rows(GRAD).map_or(Ok(()), |rows| {
        let (ids, values) = room.merged.of(rows)?;
        check_range(ids, height(run))?;
        let mut tables = tables(run, &mut fields, values.width())?;
        if let Some((settled, history)) = &mut owing {
            let settled = settled.contiguous().ok_or_else(scattered)?;
            debts.settle(
                rule,
                *history,
                (&mut tables, &mut room.zeros),
                settled,
                ids.iter().copied(),
                threads,
            );
            let now = (history.count() + 1) as f64;
            ids.iter().for_each(|&id| settled[id as usize] = now);
        }
        let rows = Rows::Of { ids, base: 0 };
        let part = ThreadRows { fields: tables, rows, gradients: Gradients::Rows(values), gaps: &[] };
        share(rule, Task::Update(moment), part, threads);
        Ok(())
    });
    *run.scratch().get::<Debts>() = debts;
    *run.scratch().get::<Scratch<T>>() = room;
    result
}

/// Scratch memory for the rows of an update; the memory is used again at every step.
#[derive(Default)]
struct Scratch<T> {
    merged: MergedRows<T>,
    /// A row of zeros: the gradient of a row without a gradient.
    zeros: Vec<T>,
    /// For each row-sparse table, the positions of the gradient's rows in the table.
    places: Vec<Vec<usize>>,
}

/// Returns the number of rows of the parameter.
fn height(run: &Forward<'_>) -> usize {
    run.output_spec(0).shape.first().and_then(|e| e.known()).unwrap_or(0)
}

/// Returns views of a parameter and its states as tables, with rows of the gradient's width.
fn tables<'v, T: Float>(
    run: &Forward<'_>,
    fields: &'v mut Fields<'_, T>,
    width: usize,
) -> Result<Fields<'v, T>> {
    let height = height(run);
    fields.iter_mut().map(|field| table(field, height, width)).collect()
}

fn scattered() -> Error {
    Error::new(
        "a variable of the optimizer",
        "a variable in one piece of memory",
        "a variable in several pieces",
    )
}

/// A function that collects the indices of the rows that will be read after a call of `settle`.
pub(in crate::ops) type ReadIds = fn(&Forward<'_>, &mut Vec<i64>) -> Result<()>;

/// Slot numbers of the outputs of the operator `settle`.
const PARAM: usize = 0;
const STATE: usize = 1;
const SETTLED: usize = 2;

/// Runs the operator `settle`, which applies missed updates. With `ids`, missed updates are applied to the rows that
/// `ids` collects and to one of every [`SWEEP`] rows; without `ids`, to all rows.
pub(in crate::ops) fn settle(
    run: &mut Forward<'_>,
    rule: &dyn Rule,
    history: usize,
    ids: Option<ReadIds>,
) -> Result<()> {
    with_float!(run.output_spec(PARAM).dtype, T => settle_of::<T>(run, rule, rule.fields(), history, ids))
}

fn settle_of<T: RowValue>(
    run: &mut Forward<'_>,
    rule: &dyn Kernel<T>,
    count: usize,
    history: usize,
    ids: Option<ReadIds>,
) -> Result<()> {
    let mut fields = Fields::new();
    fields.push(run.output::<T>(PARAM)?);
    for k in 0..run.output_count(STATE).min(count - 1) {
        fields.push(run.output_at::<T>(STATE, k)?);
    }
    let mut settled = run.output::<f64>(SETTLED)?;
    let settled = settled.contiguous().ok_or_else(scattered)?;
    let history = History(run.input::<f64>(history)?);
    let (threads, spec) = (run.run().threads, run.output_spec(PARAM));
    let width = spec.shape.iter().skip(1).filter_map(|e| e.known()).product();
    let mut tables = tables(run, &mut fields, width)?;
    let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
    let mut debts = std::mem::take(run.scratch().get::<Debts>());
    let height = settled.len();
    let zeros = &mut room.zeros;
    match ids {
        None => {
            // The rows are settled in ranges of `SWEEP` rows, so that the list of rows to settle is shorter than the table.
            for from in (0..height).step_by(SWEEP) {
                let part = from as i64..height.min(from + SWEEP) as i64;
                debts.settle(rule, history, (&mut tables, zeros), settled, part, threads);
            }
        }
        Some(ids) => {
            let mut read = std::mem::take(&mut debts.read);
            read.clear();
            ids(run, &mut read)?;
            // If an id is not a row number of the parameter, no row is settled; the operator that reads the rows reports the
            // id.
            if read.iter().all(|&id| usize::try_from(id).is_ok_and(|id| id < height)) {
                let turn = (history.count() % SWEEP as u64) as usize;
                read.extend((turn..height).step_by(SWEEP).map(|row| row as i64));
                debts.plan.prepare(&read);
                let plan = std::mem::take(&mut debts.plan);
                let rows = plan.ids().iter().copied();
                debts.settle(rule, history, (&mut tables, zeros), settled, rows, threads);
                debts.plan = plan;
            }
            debts.read = read;
        }
    }
    *run.scratch().get::<Debts>() = debts;
    *run.scratch().get::<Scratch<T>>() = room;
    Ok(())
}

/// Scratch memory for applying missed updates (settling); the memory is used again at every step.
#[derive(Default)]
struct Debts {
    /// Update rules and their ledgers, one ledger per rule. Parameters of one optimizer may have rules with different rates and
    /// decays, and so with different effects of missed updates.
    ledgers: Vec<(Box<dyn std::any::Any + Send>, Ledger)>,
    /// The indices of the rows that missed updates, ascending.
    due: Vec<i64>,
    /// The number of missed updates of each row in `due`.
    gaps: Vec<usize>,
    read: Vec<i64>,
    plan: RowMerge,
}

impl Debts {
    /// Adds the memory of the lists for `read` rows that are read and `due` rows that missed updates.
    fn memory(memory: CallMemory, read: usize, due: usize) -> CallMemory {
        memory
            .scratch::<Self>(grown::<i64>(read))
            .scratch::<Self>(read.saturating_mul(RowMerge::BYTES_PER_ROW))
            .scratch::<Self>(grown::<i64>(due))
            .scratch::<Self>(grown::<usize>(due))
    }

    /// Applies the missed updates of the rows in `rows`, which must ascend.
    fn settle<T: RowValue>(
        &mut self,
        rule: &dyn Kernel<T>,
        history: History<'_>,
        (tables, zeros): (&mut Fields<'_, T>, &mut Vec<T>),
        settled: &mut [f64],
        rows: impl Iterator<Item = i64>,
        threads: usize,
    ) {
        let count = history.count();
        let (mut most, now) = (0, count as f64);
        self.due.clear();
        self.gaps.clear();
        for row in rows {
            let settled = &mut settled[row as usize];
            let gap = count.saturating_sub(*settled as u64).min(KEPT as u64) as usize;
            if gap > 0 {
                self.due.push(row);
                self.gaps.push(gap);
                most = most.max(gap);
                *settled = now;
            }
        }
        if self.due.is_empty() {
            return;
        }
        let known = self.ledgers.iter().position(|(known_rule, _)| rule.is(&**known_rule));
        let index = known.unwrap_or_else(|| {
            if self.ledgers.len() == RULES {
                self.ledgers.remove(0);
            }
            self.ledgers.push((rule.copied(), Ledger::default()));
            self.ledgers.len() - 1
        });
        let ledger = &mut self.ledgers[index].1;
        ledger.prepare(rule, history, (most, tables[0].rows()));
        let mut at_once = true;
        for &gap in &self.gaps {
            at_once &= ledger.learn(rule, history, gap);
        }
        zeros.resize(tables[0].width(), T::ZERO);
        let part = ThreadRows {
            fields: tables.iter_mut().map(|table| table.reborrow()).collect(),
            rows: Rows::Of { ids: &self.due, base: 0 },
            gradients: Gradients::Zero(zeros),
            gaps: &self.gaps,
        };
        share(rule, Task::Settle(Books { ledger, history, at_once }), part, threads);
    }
}

/// The ledger and the update history, from which the effect of missed updates is computed.
#[derive(Clone, Copy)]
struct Books<'a> {
    ledger: &'a Ledger,
    history: History<'a>,
    /// Whether one step with the combined effect of the missed updates is accurate enough for all rows that are
    /// settled.
    at_once: bool,
}

/// The task of the engine on some rows: an update, or the application of missed updates.
#[derive(Clone, Copy)]
enum Task<'a> {
    Update(Moment),
    Settle(Books<'a>),
}

/// The rows that one thread updates, with their gradients.
struct ThreadRows<'a, T> {
    fields: Fields<'a, T>,
    rows: Rows<'a>,
    gradients: Gradients<'a, T>,
    /// The number of missed updates of each row, for [`Task::Settle`]; empty for an update.
    gaps: &'a [usize],
}

impl<'a, T: Float> ThreadRows<'a, T> {
    fn len(&self) -> usize {
        match self.rows {
            Rows::All => self.fields[0].rows(),
            Rows::Of { ids, .. } => ids.len(),
            Rows::At(places) => places[0].len(),
        }
    }

    /// Divides the rows at row `half`; divides the columns into halves if the table has only one row.
    fn halves_at(self, half: usize) -> (Self, Self) {
        match self.rows {
            Rows::All if self.len() < 2 => {
                let at = self.fields[0].width() / 2;
                let gradients = self.gradients.halve(|g| (g.columns(0, at), g.columns(at, g.width())));
                let rows = (Rows::All, Rows::All);
                Self::of(halves(self.fields, |f| f.split_columns(at)), rows, gradients, (&[], &[]))
            }
            rows => {
                let gradients =
                    self.gradients.halve(|g| (g.rows_range(0, half), g.rows_range(half, g.rows())));
                let (at, rows) = match rows {
                    Rows::Of { ids, base } => {
                        let start = ids[half] as usize;
                        let (head, tail) = ids.split_at(half);
                        (start - base, (Rows::Of { ids: head, base }, Rows::Of { ids: tail, base: start }))
                    }
                    rows => (half, (rows, rows)),
                };
                let gaps = self.gaps.split_at(half.min(self.gaps.len()));
                Self::of(halves(self.fields, |f| f.split_rows(at)), rows, gradients, gaps)
            }
        }
    }

    fn of(
        fields: (Fields<'a, T>, Fields<'a, T>),
        rows: (Rows<'a>, Rows<'a>),
        gradients: (Gradients<'a, T>, Gradients<'a, T>),
        gaps: (&'a [usize], &'a [usize]),
    ) -> (Self, Self) {
        (
            Self { fields: fields.0, rows: rows.0, gradients: gradients.0, gaps: gaps.0 },
            Self { fields: fields.1, rows: rows.1, gradients: gradients.1, gaps: gaps.1 },
        )
    }

    fn run(mut self, rule: &dyn Kernel<T>, task: Task<'_>) {
        let count = self.len();
        match (task, self.rows) {
            (Task::Settle(books), Rows::Of { ids, base }) => {
                let Gradients::Zero(zeros) = self.gradients else { return };
                Settling { rule, books, zeros, base }.run(&mut self.fields, ids, self.gaps);
            }
            (Task::Update(moment), rows) => {
                let (fields, gradients) = (&mut self.fields[..], self.gradients);
                rule.update(moment, Block { fields, rows, count, gradients });
            }
            _ => unreachable!("rows that settle have numbers"),
        }
    }
}

/// Divides the rows over threads, and runs the task on each part.
fn share<T: RowValue>(rule: &dyn Kernel<T>, task: Task<'_>, part: ThreadRows<'_, T>, threads: usize) {
    let (len, width) = (part.len(), part.fields[0].width());
    let whole = match part.rows {
        Rows::All => false,
        Rows::Of { .. } => len < 2,
        Rows::At(_) => true,
    };
    if threads < 2 || whole || len * width < 2 * GRAIN {
        return part.run(rule, task);
    }
    let (head, tail) = part.halves_at(boundary(len, threads / 2, threads));
    join(|| share(rule, task, head, threads / 2), || share(rule, task, tail, threads - threads / 2));
}

/// The operands for applying missed updates to some rows. `base` is the index, in the whole table, of the first row of the
/// fields.
struct Settling<'a, T> {
    rule: &'a dyn Kernel<T>,
    books: Books<'a>,
    zeros: &'a [T],
    base: usize,
}

impl<T: Float> Settling<'_, T> {
    fn run(&self, fields: &mut [ViewMut<'_, T>], ids: &[i64], gaps: &[usize]) {
        let Books { ledger, at_once, .. } = self.books;
        if !at_once {
            let rows = Rows::Of { ids, base: self.base };
            // Rows are settled one by one; a later row is prefetched while the current row is settled.
            for (i, &gap) in gaps.iter().enumerate() {
                rows.ask(fields, i + AHEAD);
                let owed = ledger.of(gap);
                if self.rule.is_known(owed.moves) || self.rests(fields, ids[i]) {
                    self.pay(fields, &ids[i..=i], &[owed]);
                } else {
                    self.repeat(fields, &ids[i..=i], gap, owed);
                }
            }
            return;
        }
        for (first, gaps) in (0..).step_by(BLOCK).zip(gaps.chunks(BLOCK)) {
            let owed: ArrayVec<RowDebt<'_>, BLOCK> = gaps.iter().map(|&gap| ledger.of(gap)).collect();
            self.pay(fields, &ids[first..], &owed);
        }
    }

    /// Returns whether all states of the row `id` are 0 and the rule then moves the parameter only by weight decay.
    fn rests(&self, fields: &mut [ViewMut<'_, T>], id: i64) -> bool {
        let row = id as usize - self.base;
        self.rule.rests() && fields[1..].iter_mut().all(|state| is_zero(state.row(row)))
    }

    /// Applies the combined missed updates in `owed`, which has one entry per row, to the first `owed.len()` rows of
    /// `ids`.
    fn pay(&self, fields: &mut [ViewMut<'_, T>], ids: &[i64], owed: &[RowDebt<'_>]) {
        self.rule.settle(owed, self.block(fields, ids, owed.len()));
    }

    /// Applies the missed updates of a row one by one; several updates with a known combined effect are applied in one step.
    fn repeat(&self, fields: &mut [ViewMut<'_, T>], id: &[i64], gap: usize, owed: RowDebt<'_>) {
        let Books { ledger, history, .. } = self.books;
        let (rule, count) = (self.rule, history.count());
        let (mut update, end) = (count - gap as u64, count - owed.rest as u64);
        while update < end {
            if let Some((moves, updates)) = ledger.part(rule, update, end) {
                self.pay(fields, id, &[RowDebt { moves: &moves, updates, rest: 0, kept: 1.0 }]);
                update += updates as u64;
            } else {
                rule.update(history.at(update), self.block(fields, id, 1));
                update += 1;
            }
        }
        if owed.rest > 0 {
            self.pay(fields, id, &[RowDebt { moves: &rule.none(), updates: 0, ..owed }]);
        }
    }

    fn block<'b, 'a>(
        &'b self,
        fields: &'b mut [ViewMut<'a, T>],
        ids: &'b [i64],
        count: usize,
    ) -> Block<'b, 'a, T> {
        let rows = Rows::Of { ids, base: self.base };
        Block { fields, rows, count, gradients: Gradients::Zero(self.zeros) }
    }
}

/// Returns whether all numbers are 0. The numbers are compared in chunks, so that the compiler vectorises the loop.
fn is_zero<T: Float>(numbers: &[T]) -> bool {
    numbers.chunks(16).all(|part| !part.iter().fold(false, |any, &x| any | (x != T::ZERO)))
}

/// Applies a rule to the rows of the gradient; the parameter and its states are row-sparse.
fn row_sparse<T: RowValue>(
    run: &mut Forward<'_>,
    rule: &dyn Kernel<T>,
    count: usize,
    moment: Moment,
) -> Result<()> {
    let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
    let Scratch { merged, places, .. } = &mut room;
    let slots: ArrayVec<usize, MOST_TABLES> = (0..count).collect();
    let result = run.tables(GRAD, &slots).and_then(|(rows, tables)| {
        let (ids, values) = merged.of(rows)?;
        check_range(ids, tables[0].height())?;
        places.resize_with(count, Vec::new);
        // The parameter and its states store the same rows, so a row mostly has the same position in all these tables.
        let mut fields = Fields::new();
        for (k, table) in tables.into_iter().enumerate() {
            let (known, next) = places.split_at_mut(k);
            table.touch::<T>(ids, known.last().map_or(&[], Vec::as_slice), &mut next[0])?;
            let (touched, width) = (table.touched(), values.width());
            fields.push(ViewMut::new(table.numbers_mut::<T>()?, touched, width));
        }
        let (rows, gradients) = (Rows::At(places), Gradients::Rows(values));
        ThreadRows { fields, rows, gradients, gaps: &[] }.run(rule, Task::Update(moment));
        Ok(())
    });
    *run.scratch().get::<Scratch<T>>() = room;
    result
}

/// Checks that the ascending row numbers `ids` are below `height`. The check precedes the update, so that no row is updated if
/// a row number is out of range.
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

/// Returns a view of a parameter or state as a table of `height` rows of `width` numbers: a vector becomes a table with one
/// number per row.
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

type Halves<'a, T> = (Fields<'a, T>, Fields<'a, T>);

fn halves<'a, T>(
    fields: Fields<'a, T>,
    split: impl Fn(ViewMut<'a, T>) -> (ViewMut<'a, T>, ViewMut<'a, T>),
) -> Halves<'a, T> {
    fields.into_iter().map(split).unzip()
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
