//! Pooling of bags of table rows, as for embeddings: the sum, mean or maximum of the rows of each bag, and the gradients.
//! The rows are not copied.
//!
//! The rows of a large table lie at random addresses, so a kernel that waited for each row would be slow. While one row is
//! added, the kernel prefetches the row that is added `AHEAD` rows later. The kernel sums columns in registers, over a few
//! rows at a time.

use std::ops::Range;

use super::float::{Assign, Float, exceeds};
use super::path::{Arithmetic, Sweep, sweep};
use super::prefetch::{ask, ask_some};
use super::rows::RowMerge;
use super::view::{View, ViewMut};

/// The pooling function of a bag: sum, mean or maximum of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum BagPool {
    /// The sum of the bag's rows.
    #[default]
    Sum,
    /// The mean of the bag's rows.
    Mean,
    /// The maximum of each column over the bag's rows.
    Max,
}

/// Bags of table rows: the indices of the table rows in each bag.
#[derive(Debug, Clone, Copy)]
pub struct Bags<'a, T> {
    /// The indices of the table rows, for all bags one after the other.
    pub rows: &'a [i64],
    /// The index in `rows` at which each bag begins, then the length of `rows`.
    pub starts: &'a [usize],
    /// The factor by which each row is multiplied; `None` if all factors are 1. Pooling by maximum accepts no factors.
    pub factors: Option<&'a [T]>,
}

/// The number of rows between the row that is being added and the row that is being prefetched.
const AHEAD: usize = 12;
/// The number of rows that are added in one block of columns before the kernel moves to the next block. The values of these
/// rows in the block's columns stay in the nearest cache.
const BLOCK: usize = 16;
/// The number of columns in a block of columns.
const WIDEST: usize = 64;

impl<T: Float> Bags<'_, T> {
    fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    fn range(&self, bag: usize) -> Range<usize> {
        self.starts[bag]..self.starts[bag + 1]
    }

    /// Returns the table row whose index is entry `at` of [`Bags::rows`].
    #[inline(always)]
    fn row<'t>(&self, table: View<'t, T>, at: usize) -> &'t [T] {
        table.row(self.rows[at] as usize)
    }

    /// Prefetches the table row whose index is entry `at` + [`AHEAD`] of [`Bags::rows`].
    #[inline(always)]
    fn ask_ahead(&self, table: View<'_, T>, at: usize) {
        if let Some(&row) = self.rows.get(at + AHEAD) {
            ask(table.row(row as usize));
        }
    }

    /// Prefetches the first [`AHEAD`] rows, since no earlier row prefetches them.
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

/// Pools the table rows of each bag b: for the sum, `out[b]` = Σ f_e · table\[rows_e\] over the entries e of bag b, in
/// order. An empty bag gives zeros. For the maximum, NaN counts as larger than every number, so a maximum over numbers with a
/// NaN is NaN.
///
/// # Panics
/// If an entry of `rows` is not the index of a table row; if `out` does not have one row per bag, as wide as the table's rows;
/// or if `factors` does not have one number per entry of `rows`.
pub fn bag_forward<T: Float>(pool: BagPool, bags: Bags<'_, T>, table: View<'_, T>, out: ViewMut<'_, T>) {
    bags.check(out.rows());
    assert_eq!(out.width(), table.width(), "the width of a bag");
    match pool {
        BagPool::Max => sweep(Largest { bags, table, out, which: None }),
        BagPool::Sum | BagPool::Mean => sweep(Sum { pool, bags, table, out }),
    }
}

/// Finds, for each column j of each bag b, the first row that has the maximum: `which[b · width + j]` is the row's index in
/// [`Bags::rows`]. The entries of an empty bag are left unchanged. `best` is scratch for the maximum of each column of each bag.
///
/// # Panics
/// If [`bag_forward`] would panic for these bags, if `which` is shorter than bags · width, or if `rows` has 2^32 entries or
/// more.
pub fn bag_first_maximum<T: Float>(
    bags: Bags<'_, T>,
    table: View<'_, T>,
    which: &mut [u32],
    best: ViewMut<'_, T>,
) {
    bags.check(best.rows());
    assert!(u32::try_from(bags.rows.len()).is_ok(), "{} rows in bags", bags.rows.len());
    assert!(which.len() >= bags.len() * table.width(), "room for one index per column of each bag");
    assert_eq!(best.width(), table.width(), "the width of a bag");
    sweep(Largest { bags, table, out: best, which: Some(which) });
}

/// Computes the gradient of each factor: `out[e]` = Σ_j dout[b, j] · table[rows_e, j] for the entries e of bag b.
///
/// # Panics
/// If an entry of `rows` is not the index of a table row; if `dout` does not have one row per bag, as wide as the table's rows;
/// or if `out` does not have one number per entry of `rows`.
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

/// The share of a bag's gradient that each occurrence of a table row in the bag receives.
#[derive(Debug, Clone, Copy)]
pub enum BagShare<'a, T> {
    /// Each occurrence receives the whole gradient of the bag.
    Whole,
    /// Each occurrence receives the gradient of the bag times the occurrence's factor.
    Factors(&'a [T]),
    /// Each occurrence receives the gradient in the columns in which the occurrence is the first maximum, and 0 in all other
    /// columns. The slice has the indices that [`bag_first_maximum`] computes.
    Maxima(&'a [u32]),
}

/// The inputs for the gradient of a table's rows.
#[derive(Debug, Clone, Copy)]
pub struct BagGradient<'a, T> {
    /// The distinct table rows, each with the list of its occurrences in the bags.
    pub plan: &'a RowMerge,
    /// For each occurrence, the index of the bag that contains the occurrence.
    pub bags: &'a [u32],
    /// The share of a bag's gradient that each occurrence in the bag receives.
    pub share: BagShare<'a, T>,
}

/// The layout of the output for the gradients of the distinct table rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BagTarget {
    /// The output has one row for each distinct table row, in the order of the plan.
    Listed,
    /// The output is the gradient of the table, or the part of this gradient that begins at table row `first`.
    Table {
        /// The index of the table row that is the first row of the output.
        first: usize,
    },
}

impl<T: Float> BagGradient<'_, T> {
    /// Sums the gradients of all occurrences of each distinct row in `range` of the plan. The sums are written to `out`
    /// (`Listed`) or added to it (`Table`).
    ///
    /// # Panics
    /// If the index of a bag is not a row of `dout`, or if `out` has no row for a sum.
    pub fn put(&self, dout: View<'_, T>, range: Range<usize>, target: BagTarget, out: ViewMut<'_, T>) {
        assert_eq!(out.width(), dout.width(), "the width of a bag");
        sweep(BagBackward { gradient: self, dout, range, target, out });
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
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        match self.bags.factors {
            None => self.add::<A>(Unit),
            Some(factors) => self.add::<A>(Factors(factors)),
        }
    }
}

impl<T: Float> Sum<'_, T> {
    #[inline(always)]
    fn add<A: Arithmetic>(mut self, factors: impl Weigh<T>) {
        let terms = LookedUp { bags: self.bags, table: self.table, factors };
        self.bags.ask_first(self.table);
        for (bag, out) in self.out.iter_mut().enumerate() {
            let range = self.bags.range(bag);
            add_rows::<A, T>(range.clone(), out, &terms, Assign::Write);
            if self.pool == BagPool::Mean && !range.is_empty() {
                let count = T::from_f64(range.len() as f64);
                out.iter_mut().for_each(|out| *out /= count);
            }
        }
    }
}

/// The factors of the rows of bags. A generic type instead of an `Option` keeps branches out of the loop over rows.
trait Weigh<T> {
    fn factor(&self, at: usize) -> T;
}

/// The factor 1 for every row.
#[derive(Clone, Copy)]
struct Unit;

/// One factor for each entry of [`Bags::rows`].
#[derive(Clone, Copy)]
struct Factors<'a, T>(&'a [T]);

impl<T: Float> Weigh<T> for Unit {
    #[inline(always)]
    fn factor(&self, _: usize) -> T {
        T::ONE
    }
}

impl<T: Float> Weigh<T> for Factors<'_, T> {
    #[inline(always)]
    fn factor(&self, at: usize) -> T {
        self.0[at]
    }
}

/// The rows that are summed. A trait method is always inlined here; a closure might not be.
trait Terms<T> {
    /// Returns `N` columns of the row at index `at`, from column `column` on, and the factor of the row.
    fn term<const N: usize>(&self, at: usize, column: usize) -> (T, &[T; N]);
}

/// The table rows of bags, as terms of a sum.
struct LookedUp<'a, T, W> {
    bags: Bags<'a, T>,
    table: View<'a, T>,
    factors: W,
}

impl<T: Float, W: Weigh<T>> Terms<T> for LookedUp<'_, T, W> {
    #[inline(always)]
    fn term<const N: usize>(&self, at: usize, column: usize) -> (T, &[T; N]) {
        if let Some(&row) = self.bags.rows.get(at + AHEAD) {
            ask_some::<T, N>(
                self.table.as_ptr().wrapping_add((row as usize).wrapping_mul(self.table.stride()) + column),
            );
        }
        (self.factors.factor(at), some(&self.table, self.bags.rows[at] as usize, column))
    }
}

/// The gradients that the occurrences of one table row receive, as terms of a sum.
struct Contribution<'a, T, W> {
    occurrences: &'a [u32],
    bags: &'a [u32],
    dout: View<'a, T>,
    factors: W,
}

impl<T: Float, W: Weigh<T>> Terms<T> for Contribution<'_, T, W> {
    #[inline(always)]
    fn term<const N: usize>(&self, at: usize, column: usize) -> (T, &[T; N]) {
        let at = self.occurrences[at] as usize;
        (self.factors.factor(at), some(&self.dout, self.bags[at] as usize, column))
    }
}

/// Returns `N` columns of row `row`, from column `column` on. The length `N` is a constant, so that the sums stay in
/// registers. A slice of [`View::row`] would check the bounds twice.
#[inline(always)]
fn some<'v, T, const N: usize>(view: &View<'v, T>, row: usize, column: usize) -> &'v [T; N] {
    assert!(row < view.rows() && column + N <= view.width(), "row {row} of {}", view.rows());
    let start = view.as_ptr().wrapping_add(row * view.stride() + column);
    // SAFETY: the assertion above checked that the view has this row and these columns.
    unsafe { &*start.cast::<[T; N]>() }
}

/// Computes the sum of rows, each multiplied by its factor; writes the sum to `out`, or adds the sum to `out`.
#[inline(always)]
fn add_rows<A: Arithmetic, T: Float>(
    rows: Range<usize>,
    out: &mut [T],
    terms: &impl Terms<T>,
    mut assign: Assign,
) {
    if rows.is_empty() && assign == Assign::Write {
        out.fill(T::ZERO);
    }
    let block = if out.len() <= WIDEST { rows.len().max(1) } else { BLOCK };
    for from in rows.clone().step_by(block) {
        let rows = from..rows.end.min(from + block);
        let mut column = 0;
        while column < out.len() {
            let rows = rows.clone();
            column += match out.len() - column {
                64.. => add_columns::<A, T, 64>(rows, column, out, terms, assign),
                32.. => add_columns::<A, T, 32>(rows, column, out, terms, assign),
                16.. => add_columns::<A, T, 16>(rows, column, out, terms, assign),
                8.. => add_columns::<A, T, 8>(rows, column, out, terms, assign),
                _ => add_columns::<A, T, 1>(rows, column, out, terms, assign),
            };
        }
        assign = Assign::Add;
    }
}

/// Sums `N` columns over the rows in registers, stores the sums, and returns `N`.
#[inline(always)]
fn add_columns<A: Arithmetic, T: Float, const N: usize>(
    rows: Range<usize>,
    column: usize,
    out: &mut [T],
    terms: &impl Terms<T>,
    assign: Assign,
) -> usize {
    let out = &mut out[column..column + N];
    let mut sums = [T::ZERO; N];
    if assign == Assign::Add {
        sums.copy_from_slice(out);
    }
    for at in rows {
        let (factor, row) = terms.term::<N>(at, column);
        for (sum, &x) in sums.iter_mut().zip(row) {
            *sum = A::mul_add(factor, x, *sum);
        }
    }
    out.copy_from_slice(&sums);
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
    const PORTABLE: bool = T::PORTABLE;

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
    const PORTABLE: bool = T::PORTABLE;

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

/// Returns the dot product Σ x_j · y_j, summed in an order that depends only on the width.
#[inline(always)]
fn dot<A: Arithmetic, T: Float>(x: &[T], y: &[T]) -> T {
    const LANES: usize = 16;
    let mut sums = [T::ZERO; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    let (chunks, others) = y.as_chunks::<LANES>();
    for (x, y) in whole.iter().zip(chunks) {
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

struct BagBackward<'a, T> {
    gradient: &'a BagGradient<'a, T>,
    dout: View<'a, T>,
    range: Range<usize>,
    target: BagTarget,
    out: ViewMut<'a, T>,
}

impl<T: Float> Sweep for BagBackward<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        match self.gradient.share {
            BagShare::Whole => self.add::<A>(Unit),
            BagShare::Factors(factors) => self.add::<A>(Factors(factors)),
            BagShare::Maxima(which) => self.add_maxima(which),
        }
    }
}

impl<T: Float> BagBackward<'_, T> {
    /// Returns the row of `out` for distinct row `i` of the plan, and whether the sum is written to it or added.
    #[inline(always)]
    fn target(&self, i: usize) -> (usize, Assign) {
        match self.target {
            BagTarget::Listed => (i - self.range.start, Assign::Write),
            BagTarget::Table { first } => (self.gradient.plan.ids()[i] as usize - first, Assign::Add),
        }
    }

    #[inline(always)]
    fn add<A: Arithmetic>(mut self, factors: impl Weigh<T> + Copy) {
        let &BagGradient { plan, bags, .. } = self.gradient;
        for i in self.range.clone() {
            let ((row, assign), occurrences) = (self.target(i), plan.occurrences(i));
            let given = Contribution { occurrences, bags, dout: self.dout, factors };
            add_rows::<A, T>(0..occurrences.len(), self.out.row(row), &given, assign);
        }
    }

    #[inline(always)]
    fn add_maxima(mut self, which: &[u32]) {
        let &BagGradient { plan, bags, .. } = self.gradient;
        for i in self.range.clone() {
            let (row, assign) = self.target(i);
            let out = self.out.row(row);
            if assign == Assign::Write {
                out.fill(T::ZERO);
            }
            let width = out.len();
            for &at in plan.occurrences(i) {
                let bag = bags[at as usize] as usize;
                let which = &which[bag * width..(bag + 1) * width];
                for ((out, &d), &best) in out.iter_mut().zip(self.dout.row(bag)).zip(which) {
                    *out += if best == at { d } else { T::ZERO };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
