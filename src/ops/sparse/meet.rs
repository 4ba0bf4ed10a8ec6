//! How the numbers of a sparse variable meet those of another one: row by row, at what it stores or everywhere.

use crate::error::Result;
use crate::kernels::sparse::CsrView;
use crate::kernels::{Store, View, ViewMut, helpers, join, sweep};
use crate::ops::elementwise::arithmetic::Combine;
use crate::program::{CsrBuffer, RowBuffer, RowValue};

/// Below this many numbers a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 16;

/// Which zeros of its arguments make a function 0, whatever the other one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum Zeros {
    /// None: f(0, y) and f(x, 0) may be anything; f(0, 0) is 0.
    Neither,
    /// Those of x: a quotient.
    OfX,
    /// Those of either: a product.
    OfEither,
}

impl Zeros {
    /// Whether those of the argument in this slot do.
    pub(super) fn of(self, slot: usize) -> bool {
        self == Self::OfEither || self == Self::OfX && slot == 0
    }
}

/// A sparse variable, read row by row.
#[derive(Clone, Copy)]
pub(super) enum Sparse<'a, T> {
    Csr(CsrView<'a, T>),
    Rows(Selected<'a, T>),
}

/// A row of it.
#[derive(Clone, Copy)]
pub(super) enum Row<'a, T> {
    /// A number a column, or one for all.
    Whole(&'a [T]),
    /// Columns, and the numbers there.
    Entries(&'a [i64], &'a [T]),
}

impl<'a, T: RowValue> Sparse<'a, T> {
    /// What there is of the two; if nothing, because nobody reads its numbers, zeros stand for them.
    pub(super) fn of(
        csr: Option<&'a CsrBuffer>,
        rows: Option<&'a RowBuffer>,
        zero: &'a [T; 1],
    ) -> Result<Self> {
        Ok(match (csr, rows) {
            (Some(csr), _) => Self::Csr(csr.view()?),
            (None, rows) => Self::Rows(Selected::of(rows, zero)?),
        })
    }

    pub(super) fn row(&self, i: usize) -> Row<'a, T> {
        match self {
            Self::Csr(csr) => {
                let (columns, values) = csr.row(i);
                Row::Entries(columns, values)
            }
            Self::Rows(rows) => Row::Whole(rows.row(i)),
        }
    }
}

/// Selected rows, read row by row.
#[derive(Clone, Copy)]
pub(super) struct Selected<'a, T> {
    ids: &'a [i64],
    values: View<'a, T>,
    zero: &'a [T; 1],
}

impl<'a, T: RowValue> Selected<'a, T> {
    /// Of none, because nobody reads its numbers, zeros are read.
    pub(super) fn of(rows: Option<&'a RowBuffer>, zero: &'a [T; 1]) -> Result<Self> {
        let none = Self { ids: &[], values: View::new(&[], 0, 1), zero };
        match rows.filter(|rows| !rows.ids().is_empty()) {
            Some(rows) => Ok(Self { ids: rows.ids(), values: rows.values()?, zero }),
            None => Ok(none),
        }
    }

    /// The row of a number: one zero for all of a row that is not stored.
    pub(super) fn row(&self, id: usize) -> &'a [T] {
        match self.ids.binary_search(&(id as i64)) {
            Ok(at) => self.values.row(at),
            Err(_) => self.zero,
        }
    }
}

/// Row `i` of a dense variable, or the only one.
pub(super) fn beside<'a, T>(view: View<'a, T>, i: usize) -> &'a [T] {
    view.row(if view.rows() == 1 { 0 } else { i })
}

/// The number at a column of a row that has all of them, or one for all.
#[inline(always)]
pub(super) fn at<T: Copy>(row: &[T], column: usize) -> T {
    if row.len() == 1 { row[0] } else { row[column] }
}

/// Some columns of such a row.
#[inline(always)]
fn part<T>(row: &[T], columns: std::ops::Range<usize>) -> &[T] {
    if row.len() == 1 { row } else { &row[columns] }
}

/// Writes or adds f(sparse, dense, g) in every row.
pub(super) struct Mixed<'a, F, T> {
    pub(super) f: F,
    pub(super) sparse: Sparse<'a, T>,
    /// Each of its rows, or one for all.
    pub(super) dense: View<'a, T>,
    /// As wide as the result; without it, 0.
    pub(super) g: Option<View<'a, T>>,
    pub(super) to: ViewMut<'a, T>,
    /// The number of the first row of `to`.
    pub(super) first: usize,
    pub(super) store: Store,
}

impl<F: Fn(T, T, T) -> T + Copy + Send + Sync, T: RowValue> Mixed<'_, F, T> {
    pub(super) fn share(self, threads: usize) {
        let work = self.to.rows().saturating_mul(self.to.width());
        self.on(helpers(work, WORTH_A_THREAD, threads));
    }

    fn on(mut self, threads: usize) {
        let rows = self.to.rows();
        if threads > 1 && rows > 1 {
            let left = threads / 2;
            let middle = rows * left / threads;
            let (to, to_after) = self.to.split_rows(middle);
            let before = Mixed { to, ..self };
            let after = Mixed { to: to_after, first: self.first + middle, ..self };
            join(|| before.on(left), || after.on(threads - left));
            return;
        }
        for (i, to) in self.to.iter_mut().enumerate() {
            let i = self.first + i;
            let g = self.g.map(|g| g.row(i));
            combine(self.f, self.sparse.row(i), beside(self.dense, i), g, to, self.store);
        }
    }
}

/// Writes or adds f(sparse, dense, g) in a row, where `dense` has a number a column or one for all.
pub(super) fn combine<T: RowValue>(
    f: impl Fn(T, T, T) -> T + Copy,
    sparse: Row<'_, T>,
    dense: &[T],
    g: Option<&[T]>,
    to: &mut [T],
    store: Store,
) {
    let (columns, values) = match sparse {
        Row::Whole(sparse) => return segment(f, sparse, dense, g, to, store),
        Row::Entries(columns, values) => (columns, values),
    };
    let zero = [T::ZERO];
    let mut from = 0;
    let between = |to: &mut [T], columns: std::ops::Range<usize>| {
        let g = g.map(|g| &g[columns.clone()]);
        segment(f, &zero, part(dense, columns.clone()), g, &mut to[columns], store);
    };
    for (&column, &value) in columns.iter().zip(values) {
        let column = column as usize;
        between(to, from..column);
        store.put(&mut to[column], f(value, at(dense, column), g.map_or(T::ZERO, |g| g[column])));
        from = column + 1;
    }
    let end = to.len();
    between(to, from..end);
}

/// The same where both have a number a column, or one for all.
fn segment<T: RowValue>(
    f: impl Fn(T, T, T) -> T,
    x: &[T],
    y: &[T],
    g: Option<&[T]>,
    to: &mut [T],
    store: Store,
) {
    let whole = |v: &&[T]| v.len() == to.len();
    // Where there is no gradient to read, an operand of the result's size stands for it.
    match g.or_else(|| [x, y].into_iter().find(whole)) {
        Some(g) => sweep(Combine { f, x, y, g, to, store }),
        None => {
            let value = f(x[0], y[0], T::ZERO);
            to.iter_mut().for_each(|to| store.put(to, value));
        }
    }
}

/// What stands beside the entries of a matrix.
#[derive(Clone, Copy)]
pub(super) enum Beside<'a, T> {
    /// Each of its rows, or one for all; each of its columns, or one for all.
    Dense(View<'a, T>),
    /// Zeros where it has no entry.
    Csr(CsrView<'a, T>),
}

impl<'a, T: RowValue> Beside<'a, T> {
    fn row(&self, i: usize) -> Row<'a, T> {
        match self {
            Self::Dense(view) => Row::Whole(beside(*view, i)),
            Self::Csr(csr) => {
                let (columns, values) = csr.row(i);
                Row::Entries(columns, values)
            }
        }
    }
}

impl<T: RowValue> Row<'_, T> {
    /// The number at a column; each call asks for a later one.
    #[inline(always)]
    fn next(&mut self, column: i64) -> T {
        match self {
            Self::Whole(row) => at(row, column as usize),
            Self::Entries(columns, values) => {
                let passed = columns.iter().take_while(|c| **c < column).count();
                (*columns, *values) = (&columns[passed..], &values[passed..]);
                if columns.first() == Some(&column) { values[0] } else { T::ZERO }
            }
        }
    }
}

/// Writes or adds f(value, other, g) for each entry of a matrix.
pub(super) struct Entries<'a, F, T> {
    pub(super) f: F,
    pub(super) of: CsrView<'a, T>,
    pub(super) other: Beside<'a, T>,
    pub(super) g: Beside<'a, T>,
    pub(super) to: &'a mut [T],
    /// The number of the first row of `of`.
    pub(super) first: usize,
    pub(super) store: Store,
}

impl<F: Fn(T, T, T) -> T + Copy + Send + Sync, T: RowValue> Entries<'_, F, T> {
    pub(super) fn share(self, threads: usize) {
        let work = self.of.entries();
        self.on(helpers(work, WORTH_A_THREAD, threads));
    }

    fn on(self, threads: usize) {
        let rows = self.of.rows();
        if threads > 1 && rows > 1 {
            let left = threads / 2;
            let middle = self.of.divided(left, threads);
            let (of, of_after) = (self.of.rows_range(0, middle), self.of.rows_range(middle, rows));
            let (to, to_after) = self.to.split_at_mut(of.entries());
            let before = Entries { of, to, ..self };
            let after = Entries { of: of_after, to: to_after, first: self.first + middle, ..self };
            join(|| before.on(left), || after.on(threads - left));
            return;
        }
        let mut to = self.to.iter_mut();
        for r in 0..rows {
            let (columns, values) = self.of.row(r);
            let (mut other, mut g) = (self.other.row(self.first + r), self.g.row(self.first + r));
            // `to` comes last, so that none of it is lost where a row ends.
            for ((&column, &value), to) in columns.iter().zip(values).zip(&mut to) {
                self.store.put(to, (self.f)(value, other.next(column), g.next(column)));
            }
        }
    }
}
