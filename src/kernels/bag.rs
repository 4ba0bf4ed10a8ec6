//! Bags of rows of a table: their sum or maximum, without a copy of the rows, and the gradients.
//!
//! The rows of a large table lie at random places in memory, and each would be waited for. So the row that comes some places
//! later is asked for while one is added. Columns are added up in registers, over a few rows at a time.

use std::ops::Range;

use super::float::{Float, Store, exceeds};
use super::path::{Arithmetic, Sweep, sweep};
use super::prefetch::ask;
use super::rows::RowMerge;
use super::view::{View, ViewMut};

/// What a bag makes of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BagPool {
    /// Their sum.
    #[default]
    Sum,
    /// The sum over their number.
    Mean,
    /// The largest of each column.
    Max,
}

/// The rows of a table that each bag holds.
#[derive(Debug, Clone, Copy)]
pub struct Bags<'a, T> {
    /// Their numbers, bag after bag.
    pub rows: &'a [i64],
    /// Where each bag begins among them, and at the end their number.
    pub starts: &'a [usize],
    /// What each of them is multiplied by; 1 without it. A maximum takes none.
    pub factors: Option<&'a [T]>,
}

/// So many rows ahead memory is asked for.
const AHEAD: usize = 12;
/// So many rows are added to a part of the columns before the next part: as many as stay in the nearest cache.
const BLOCK: usize = 16;

impl<T: Float> Bags<'_, T> {
    /// How many bags there are.
    fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    fn range(&self, bag: usize) -> Range<usize> {
        self.starts[bag]..self.starts[bag + 1]
    }

    #[inline(always)]
    fn factor(&self, at: usize) -> T {
        self.factors.map_or(T::ONE, |factors| factors[at])
    }

    /// Row number `at` of all bags.
    #[inline(always)]
    fn row<'t>(&self, table: View<'t, T>, at: usize) -> &'t [T] {
        table.row(self.rows[at] as usize)
    }

    /// Asks for the row that comes [`AHEAD`] places after `at`.
    #[inline(always)]
    fn ask_ahead(&self, table: View<'_, T>, at: usize) {
        if let Some(&row) = self.rows.get(at + AHEAD) {
            ask(table.row(row as usize));
        }
    }

    /// Asks for the first rows, which none before them asks for.
    #[inline(always)]
    fn ask_first(&self, table: View<'_, T>) {
        for &row in self.rows.iter().take(AHEAD) {
            ask(table.row(row as usize));
        }
    }

    fn check(&self, bags: usize) {
        assert_eq!(self.len(), bags, "one row a bag");
        assert_eq!(self.starts.last().copied().unwrap_or(0), self.rows.len(), "the rows of all bags");
        assert!(self.factors.is_none_or(|f| f.len() == self.rows.len()), "one factor a row");
    }
}

/// `out[b]` = Σ f_e · table\[rows_e\] over the rows e of bag b, in their order, or the mean or the maximum; zeros for an empty
/// bag. NaN counts as the largest number, so that it does not get lost.
///
/// # Panics
/// If a row is not in the table, `out` has not one row a bag, as wide as the table's, or `factors` not one for each row.
pub fn bag_forward<T: Float>(pool: BagPool, bags: Bags<'_, T>, table: View<'_, T>, out: ViewMut<'_, T>) {
    bags.check(out.rows());
    assert_eq!(out.width(), table.width(), "the width of a bag");
    match pool {
        BagPool::Max => sweep(Largest { bags, table, out, which: None }),
        BagPool::Sum | BagPool::Mean => sweep(Sum { pool, bags, table, out }),
    }
}

/// Which of the rows (counted over all bags) is the first maximum of each column of each bag: `which[b · width + j]`. What
/// stands there for an empty bag stays. `best` is room for the maxima.
///
/// # Panics
/// As [`bag_forward`]; or if `which` is shorter, or there are 2^32 rows or more.
pub fn bag_first_maximum<T: Float>(
    bags: Bags<'_, T>,
    table: View<'_, T>,
    which: &mut [u32],
    best: ViewMut<'_, T>,
) {
    bags.check(best.rows());
    assert!(u32::try_from(bags.rows.len()).is_ok(), "{} rows in bags", bags.rows.len());
    assert!(which.len() >= bags.len() * table.width(), "room for a place of each column");
    assert_eq!(best.width(), table.width(), "the width of a bag");
    sweep(Largest { bags, table, out: best, which: Some(which) });
}

/// The gradient of each row's factor: `out[e]` = Σ_j dout[b, j] · table[rows_e, j] for the rows e of bag b.
///
/// # Panics
/// If a row is not in the table, `dout` has not one row a bag, as wide as the table's, or `out` not one number a row.
pub fn bag_factor_gradient<T: Float>(
    bags: Bags<'_, T>,
    table: View<'_, T>,
    dout: View<'_, T>,
    out: &mut [T],
) {
    bags.check(dout.rows());
    assert_eq!((out.len(), dout.width()), (bags.rows.len(), table.width()), "a number for each row");
    sweep(Dots { bags, table, dout, out });
}

/// What each occurrence of a row gets of the gradient of its bag.
#[derive(Debug, Clone, Copy)]
pub enum BagShare<'a, T> {
    /// All of it.
    Whole,
    /// That times the occurrence's factor.
    Factors(&'a [T]),
    /// That of the columns whose first maximum it is, as [`bag_first_maximum`] found.
    Maxima(&'a [u32]),
}

/// What goes back to the rows of a table.
#[derive(Debug, Clone, Copy)]
pub struct BagGradient<'a, T> {
    /// Which rows occur, and where.
    pub plan: &'a RowMerge,
    /// The bag of each occurrence.
    pub bags: &'a [u32],
    /// What each occurrence gets.
    pub share: BagShare<'a, T>,
}

/// Where the sums for the distinct rows go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BagTarget {
    /// One row for each distinct row, in order.
    Listed,
    /// The table's gradient itself, of which the given view begins at this row.
    Table {
        /// The number of its first row.
        first: usize,
    },
}

impl<T: Float> BagGradient<'_, T> {
    /// For distinct rows `range` of the plan: the sum over the occurrences of each, in their order, written (`Listed`) or added
    /// to what is there (`Table`).
    ///
    /// # Panics
    /// If a bag is not in `dout`, or there is no row in `out` for a sum.
    pub fn put(&self, dout: View<'_, T>, range: Range<usize>, target: BagTarget, out: ViewMut<'_, T>) {
        assert_eq!(out.width(), dout.width(), "the width of a bag");
        sweep(Back { gradient: self, dout, range, target, out });
    }
}

struct Sum<'a, T> {
    pool: BagPool,
    bags: Bags<'a, T>,
    table: View<'a, T>,
    out: ViewMut<'a, T>,
}

impl<T: Float> Sweep for Sum<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        self.bags.ask_first(self.table);
        for (bag, out) in self.out.iter_mut().enumerate() {
            let range = self.bags.range(bag);
            out.fill(T::ZERO);
            for from in range.clone().step_by(BLOCK) {
                let block = from..range.end.min(from + BLOCK);
                add_rows::<A, T>(block, out, &LookedUp { bags: self.bags, table: self.table });
            }
            if self.pool == BagPool::Mean && !range.is_empty() {
                let count = T::from_f64(range.len() as f64);
                out.iter_mut().for_each(|out| *out /= count);
            }
        }
    }
}

/// Rows that are added up. A trait and no closure: its method is sure to be inlined.
trait Terms<T> {
    /// Some columns of row `at`, and its factor.
    fn term(&self, at: usize, columns: Range<usize>) -> (T, &[T]);
}

/// The rows of bags.
struct LookedUp<'a, T> {
    bags: Bags<'a, T>,
    table: View<'a, T>,
}

impl<T: Float> Terms<T> for LookedUp<'_, T> {
    #[inline(always)]
    fn term(&self, at: usize, columns: Range<usize>) -> (T, &[T]) {
        if columns.start == 0 {
            self.bags.ask_ahead(self.table, at);
        }
        (self.bags.factor(at), &self.bags.row(self.table, at)[columns])
    }
}

/// What the occurrences of a row get.
struct Given<'a, T> {
    occurrences: &'a [u32],
    bags: &'a [u32],
    factors: Option<&'a [T]>,
    dout: View<'a, T>,
}

impl<T: Float> Terms<T> for Given<'_, T> {
    #[inline(always)]
    fn term(&self, at: usize, columns: Range<usize>) -> (T, &[T]) {
        let at = self.occurrences[at] as usize;
        let factor = self.factors.map_or(T::ONE, |factors| factors[at]);
        (factor, &self.dout.row(self.bags[at] as usize)[columns])
    }
}

/// Adds rows, each times its factor, to `out`.
#[inline(always)]
fn add_rows<A: Arithmetic, T: Float>(rows: Range<usize>, out: &mut [T], terms: &impl Terms<T>) {
    let mut column = 0;
    while column < out.len() {
        let left = out.len() - column;
        let rows = rows.clone();
        column += match left {
            64.. => add_columns::<A, T, 64>(rows, column, out, terms),
            32.. => add_columns::<A, T, 32>(rows, column, out, terms),
            16.. => add_columns::<A, T, 16>(rows, column, out, terms),
            8.. => add_columns::<A, T, 8>(rows, column, out, terms),
            _ => add_columns::<A, T, 1>(rows, column, out, terms),
        };
    }
}

/// The same for `N` columns, which stay in registers; returns `N`.
#[inline(always)]
fn add_columns<A: Arithmetic, T: Float, const N: usize>(
    rows: Range<usize>,
    column: usize,
    out: &mut [T],
    terms: &impl Terms<T>,
) -> usize {
    let mut sums = [T::ZERO; N];
    sums.copy_from_slice(&out[column..column + N]);
    for at in rows {
        let (factor, row) = terms.term(at, column..column + N);
        for (sum, &x) in sums.iter_mut().zip(row) {
            // By a factor of 1 nothing is rounded but the sum.
            *sum = A::mul_add(factor, x, *sum);
        }
    }
    out[column..column + N].copy_from_slice(&sums);
    N
}

struct Largest<'a, T> {
    bags: Bags<'a, T>,
    table: View<'a, T>,
    out: ViewMut<'a, T>,
    which: Option<&'a mut [u32]>,
}

impl<T: Float> Sweep for Largest<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let (bags, table) = (self.bags, self.table);
        bags.ask_first(table);
        for (bag, out) in self.out.iter_mut().enumerate() {
            let Range { start, end } = bags.range(bag);
            if start == end {
                out.fill(T::ZERO);
                continue;
            }
            bags.ask_ahead(table, start);
            out.copy_from_slice(bags.row(table, start));
            let width = out.len();
            match self.which.as_mut().map(|which| &mut which[bag * width..(bag + 1) * width]) {
                None => {
                    for at in start + 1..end {
                        bags.ask_ahead(table, at);
                        for (out, &x) in out.iter_mut().zip(bags.row(table, at)) {
                            *out = if exceeds(x, *out) { x } else { *out };
                        }
                    }
                }
                Some(which) => {
                    which.fill(start as u32);
                    for at in start + 1..end {
                        bags.ask_ahead(table, at);
                        for ((out, which), &x) in out.iter_mut().zip(&mut *which).zip(bags.row(table, at)) {
                            let larger = exceeds(x, *out);
                            *out = if larger { x } else { *out };
                            *which = if larger { at as u32 } else { *which };
                        }
                    }
                }
            }
        }
    }
}

struct Dots<'a, T> {
    bags: Bags<'a, T>,
    table: View<'a, T>,
    dout: View<'a, T>,
    out: &'a mut [T],
}

impl<T: Float> Sweep for Dots<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        self.bags.ask_first(self.table);
        for (bag, dout) in self.dout.iter().enumerate() {
            for at in self.bags.range(bag) {
                self.bags.ask_ahead(self.table, at);
                self.out[at] = dot::<A, T>(dout, self.bags.row(self.table, at));
            }
        }
    }
}

/// Σ x_j · y_j, in an order that depends on the width alone.
#[inline(always)]
fn dot<A: Arithmetic, T: Float>(x: &[T], y: &[T]) -> T {
    const LANES: usize = 16;
    let mut sums = [T::ZERO; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    let (of, others) = y.as_chunks::<LANES>();
    for (x, y) in whole.iter().zip(of) {
        for ((sum, &x), &y) in sums.iter_mut().zip(x).zip(y) {
            *sum = A::mul_add(x, y, *sum);
        }
    }
    for ((sum, &x), &y) in sums.iter_mut().zip(rest).zip(others) {
        *sum = A::mul_add(x, y, *sum);
    }
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
        half /= 2;
    }
    sums[0]
}

struct Back<'a, T> {
    gradient: &'a BagGradient<'a, T>,
    dout: View<'a, T>,
    range: Range<usize>,
    target: BagTarget,
    out: ViewMut<'a, T>,
}

impl<T: Float> Sweep for Back<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let BagGradient { plan, bags, share } = *self.gradient;
        let start = self.range.start;
        for i in self.range {
            let (place, store) = match self.target {
                BagTarget::Listed => (i - start, Store::Write),
                BagTarget::Table { first } => (plan.ids()[i] as usize - first, Store::Add),
            };
            let (occurrences, out) = (plan.occurrences(i), self.out.row(place));
            if store == Store::Write {
                out.fill(T::ZERO);
            }
            let dout = self.dout;
            match share {
                BagShare::Whole => {
                    let given = Given { occurrences, bags, factors: None, dout };
                    add_rows::<A, T>(0..occurrences.len(), out, &given);
                }
                BagShare::Factors(factors) => {
                    let given = Given { occurrences, bags, factors: Some(factors), dout };
                    add_rows::<A, T>(0..occurrences.len(), out, &given);
                }
                BagShare::Maxima(which) => {
                    let width = out.len();
                    for &at in occurrences {
                        let bag = bags[at as usize] as usize;
                        let which = &which[bag * width..(bag + 1) * width];
                        for ((out, &d), &best) in out.iter_mut().zip(self.dout.row(bag)).zip(which) {
                            *out += if best == at { d } else { T::ZERO };
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
