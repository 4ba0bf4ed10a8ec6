//! Kernels of binary functions with at least one sparse operand. A kernel computes the result row by row, at the stored numbers
//! of the sparse operand or at all positions.

use crate::kernels::sparse::CsrView;
use crate::kernels::{helpers, join};
use crate::operator::{CsrBuffer, RowBuffer};
use crate::ops::elementwise::arithmetic::{Combine, Elements};
use crate::ops::prelude::*;

/// With fewer numbers than this, a second thread costs more time than it saves.
const WORTH_A_THREAD: usize = 1 << 16;

/// The arguments of a function f(x, y) that, if they are 0, make the result 0 for any value of the other argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum Zeros {
    /// Neither argument makes the result 0 alone: only f(0, 0) is 0, as in a sum.
    Neither,
    /// A zero of x makes the result 0: f(0, y) = 0, as in a quotient.
    OfX,
    /// A zero of either argument makes the result 0: f(0, y) = f(x, 0) = 0, as in a product.
    OfEither,
}

impl Zeros {
    /// Returns whether a zero of the argument in slot `slot` makes the result 0.
    pub(super) fn of(self, slot: usize) -> bool {
        self == Self::OfEither || self == Self::OfX && slot == 0
    }
}

/// A reader of the rows of a sparse variable.
#[derive(Clone, Copy)]
pub(super) enum Sparse<'a, T> {
    Csr(CsrView<'a, T>),
    Rows(SelectedReader<'a, T>),
}

/// A row of a sparse or dense variable.
#[derive(Clone, Copy)]
pub(super) enum Row<'a, T> {
    /// A row with one number per column, or with one number that is broadcast to all columns.
    Whole(&'a [T]),
    /// A row of a sparse matrix: the columns of its entries, and the numbers of its entries.
    Entries(&'a [i64], &'a [T]),
}

impl<'a, T: RowValue> Sparse<'a, T> {
    /// Makes a reader of the buffer `csr` or `rows`. If both are `None`, as when no kernel reads the numbers, every row is a
    /// single zero, which is broadcast.
    pub(super) fn of(
        csr: Option<&'a CsrBuffer>,
        rows: Option<&'a RowBuffer>,
        zero: &'a [T; 1],
    ) -> Result<Self> {
        Ok(match (csr, rows) {
            (Some(csr), _) => Self::Csr(csr.view()?),
            (None, rows) => Self::Rows(SelectedReader::of(rows, zero)?),
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

/// A reader of selected rows by row number.
#[derive(Clone, Copy)]
pub(super) struct SelectedReader<'a, T> {
    ids: &'a [i64],
    values: View<'a, T>,
    zero: &'a [T; 1],
}

impl<'a, T: RowValue> SelectedReader<'a, T> {
    /// Makes a reader of `rows`. If `rows` is `None`, as when no kernel reads the numbers, every row is a single zero, which is
    /// broadcast.
    pub(super) fn of(rows: Option<&'a RowBuffer>, zero: &'a [T; 1]) -> Result<Self> {
        let none = Self { ids: &[], values: View::new(&[], 0, 1), zero };
        match rows.filter(|rows| !rows.ids().is_empty()) {
            Some(rows) => Ok(Self { ids: rows.ids(), values: rows.values()?, zero }),
            None => Ok(none),
        }
    }

    /// Returns the row `id`, or one zero for all columns if the row is not stored.
    pub(super) fn row(&self, id: usize) -> &'a [T] {
        match self.ids.binary_search(&(id as i64)) {
            Ok(at) => self.values.row(at),
            Err(_) => self.zero,
        }
    }
}

/// Returns row `i` of a dense variable; if the variable has only one row, returns this row.
pub(super) fn beside<'a, T>(view: View<'a, T>, i: usize) -> &'a [T] {
    view.row(if view.rows() == 1 { 0 } else { i })
}

/// The maximum number of entries per kernel call.
pub(super) const MANY: usize = 64;

/// A kernel f(first, second, g): `first` is a value of the sparse variable (x or y), `second` is a value of the other variable,
/// and g is a value of the output's gradient.
#[derive(Clone, Copy)]
pub(super) struct MeetKernel<T> {
    f: Combine<T>,
    y_first: bool,
}

impl<T: RowValue> MeetKernel<T> {
    /// Wraps a kernel of x and y; `first` is the slot of the sparse variable.
    pub(super) fn new(f: Combine<T>, first: usize) -> Self {
        Self { f, y_first: first == 1 }
    }

    /// Writes or adds f(first, second, g) to `to`. `first` and `second` have `to.len()` numbers each, or one number that is
    /// broadcast. Only the kernel of a derivative reads `g`.
    pub(super) fn put(self, first: &[T], second: &[T], g: &[T], to: &mut [T], assign: Assign) {
        let (x, y) = if self.y_first { (second, first) } else { (first, second) };
        (self.f)(Elements { x, y, g, to, assign });
    }

    /// Writes or adds f(sparse, dense, g) to the row `to`. `dense` has one number per column, or one number that is broadcast
    /// to all columns.
    pub(super) fn put_row(self, sparse: Row<'_, T>, dense: &[T], g: &[T], to: &mut [T], assign: Assign) {
        let (columns, values) = match sparse {
            Row::Whole(sparse) => return self.put(sparse, dense, g, to, assign),
            Row::Entries(columns, values) => (columns, values),
        };
        let zero = [T::ZERO];
        let mut from = 0;
        let (mut others, mut gradients, mut results) = ([T::ZERO; MANY], [T::ZERO; MANY], [T::ZERO; MANY]);
        for (columns, values) in columns.chunks(MANY).zip(values.chunks(MANY)) {
            // The entries of the sparse row are computed first, into `results`. A second call computes all columns with 0 in
            // place of the entries; then `results` overwrites the columns of the entries.
            let end = columns[columns.len() - 1] as usize + 1;
            let results = gather(to, columns, &mut results);
            let g_there = gather(g, columns, &mut gradients);
            self.put(values, gather(dense, columns, &mut others), g_there, results, assign);
            self.put(&zero, part(dense, from..end), part(g, from..end), &mut to[from..end], assign);
            for (&column, &result) in columns.iter().zip(&*results) {
                to[column as usize] = result;
            }
            from = end;
        }
        let rest = from..to.len();
        self.put(&zero, part(dense, rest.clone()), part(g, rest.clone()), &mut to[rest], assign);
    }
}

/// Returns the value of a row at `column`; if the row has only one value, which is broadcast, returns this value.
#[inline(always)]
fn at<T: Copy>(row: &[T], column: usize) -> T {
    if row.len() == 1 { row[0] } else { row[column] }
}

/// Gathers the values of a row at up to [`MANY`] columns into `room`; an empty row gives no values. A row of one value is
/// broadcast.
pub(super) fn gather<'a, T: Copy>(row: &[T], columns: &[i64], room: &'a mut [T; MANY]) -> &'a mut [T] {
    if row.is_empty() {
        return &mut [];
    }
    for (to, &column) in room.iter_mut().zip(columns) {
        *to = at(row, column as usize);
    }
    &mut room[..columns.len()]
}

/// Returns the part of a row in a range of columns; an empty row, or a row of one value that is broadcast, is returned unchanged.
fn part<T>(row: &[T], columns: std::ops::Range<usize>) -> &[T] {
    if row.len() < 2 { row } else { &row[columns] }
}

/// The computation of f(sparse, dense, g) in every row of `to`. The computation can be divided over threads.
pub(super) struct DenseKernel<'a, T> {
    pub(super) f: MeetKernel<T>,
    pub(super) sparse: Sparse<'a, T>,
    /// The dense operand, with one row per row of the result, or with one row that is broadcast to all rows.
    pub(super) dense: View<'a, T>,
    /// The gradient of the output, as wide as the result; `None` if the kernel computes the value of f, not its derivative.
    pub(super) g: Option<View<'a, T>>,
    pub(super) to: ViewMut<'a, T>,
    /// The number of rows of the whole result before the first row of `to`.
    pub(super) first: usize,
    pub(super) assign: Assign,
}

impl<T: RowValue> DenseKernel<'_, T> {
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
            let before = DenseKernel { to, ..self };
            let after = DenseKernel { to: to_after, first: self.first + middle, ..self };
            join(|| before.on(left), || after.on(threads - left));
            return;
        }
        for (i, to) in self.to.iter_mut().enumerate() {
            let i = self.first + i;
            let g = self.g.map_or(&[][..], |g| g.row(i));
            self.f.put_row(self.sparse.row(i), beside(self.dense, i), g, to, self.assign);
        }
    }
}

/// The second operand of a kernel that computes f at the entries of a sparse matrix.
#[derive(Clone, Copy)]
pub(super) enum SecondOperand<'a, T> {
    /// A dense matrix; a single row is broadcast to all rows, and a single column to all columns.
    Dense(View<'a, T>),
    /// A sparse matrix; a column without an entry counts as 0.
    Csr(CsrView<'a, T>),
}

impl<'a, T: RowValue> SecondOperand<'a, T> {
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
    /// Returns the value of the row at `column`. `column` must ascend from call to call.
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

/// The computation of f(value, other, g) for each entry of the sparse matrix `of`. The computation can be divided over
/// threads.
pub(super) struct Entries<'a, T> {
    pub(super) f: MeetKernel<T>,
    pub(super) of: CsrView<'a, T>,
    pub(super) other: SecondOperand<'a, T>,
    pub(super) g: SecondOperand<'a, T>,
    pub(super) to: &'a mut [T],
    /// The number of rows of the whole matrix before the first row of `of`.
    pub(super) first: usize,
    pub(super) assign: Assign,
}

impl<T: RowValue> Entries<'_, T> {
    pub(super) fn share(self, threads: usize) {
        let work = self.of.entries();
        self.on(helpers(work, WORTH_A_THREAD, threads));
    }

    fn on(self, threads: usize) {
        let rows = self.of.rows();
        if threads > 1 && rows > 1 {
            let left = threads / 2;
            let middle = self.of.divided(left, threads);
            let (part, of_after) = (self.of.rows_range(0, middle), self.of.rows_range(middle, rows));
            let (to, to_after) = self.to.split_at_mut(part.entries());
            let before = Entries { of: part, to, ..self };
            let after = Entries { of: of_after, to: to_after, first: self.first + middle, ..self };
            join(|| before.on(left), || after.on(threads - left));
            return;
        }
        // A kernel call computes the entries of several rows, since a row may have few entries.
        let (mut others, mut gradients) = ([T::ZERO; MANY], [T::ZERO; MANY]);
        let (mut values, mut to) = (self.of.values(), self.to);
        let mut many = 0;
        for r in 0..rows {
            let (mut other, mut g) = (self.other.row(self.first + r), self.g.row(self.first + r));
            for &column in self.of.row(r).0 {
                (others[many], gradients[many]) = (other.next(column), g.next(column));
                many += 1;
                if many == MANY {
                    let (now, later) = to.split_at_mut(many);
                    self.f.put(&values[..many], &others, &gradients, now, self.assign);
                    (values, to, many) = (&values[many..], later, 0);
                }
            }
        }
        self.f.put(values, &others[..many], &gradients[..many], to, self.assign);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::elementwise::arithmetic::{Div, Function, Maximum, slopes, value};

    /// Makes a sparse matrix with rows that have no entries, few entries and very many entries.
    fn matrix(columns: usize) -> (Vec<i64>, Vec<i64>, Vec<f32>) {
        let (mut indptr, mut indices) = (vec![0], Vec::new());
        for step in [0, 1, 2, 7, columns, 3] {
            indices.extend((0..columns as i64).filter(|c| step != 0 && c % step as i64 == 0));
            indptr.push(indices.len() as i64);
        }
        let values = numbers(indices.len(), 3.0);
        (indptr, indices, values)
    }

    fn numbers(n: usize, from: f32) -> Vec<f32> {
        (0..n).map(|i| (i as f32 * 0.7 + from).sin() + 1.5).collect()
    }

    /// Computes the expected value for one number of a result; `first` is the slot of the sparse operand.
    fn expected<F: Function>(part: usize, first: usize, [sparse, other, g]: [f32; 3]) -> f32 {
        let (x, y) = if first == 0 { (sparse, other) } else { (other, sparse) };
        [F::value::<f32>(x, y), F::dx(x, y, g), F::dy(x, y, g)][part]
    }

    fn agrees<F: Function>() {
        let [dx, dy] = slopes::<F, f32>();
        let columns = 300;
        let (indptr, indices, values) = matrix(columns);
        let csr = CsrView::new(columns, &indptr, &indices, &values);
        let rows = csr.rows();
        let (dense, gradient) = (numbers(rows * columns, 0.0), numbers(rows * columns, 9.0));
        let g = View::new(&gradient, rows, columns);
        let others =
            [View::new(&dense, rows, columns), View::new(&dense, 1, columns), View::new(&dense, rows, 1)];
        let others = others.into_iter().chain([View::new(&dense[..1], 1, 1)]);
        for (other, part) in others.flat_map(|other| (0..3).map(move |part| (other, part))) {
            for (first, assign, threads) in [(0, Assign::Write, 1), (1, Assign::Add, 1), (0, Assign::Add, 3)]
            {
                let f = MeetKernel::new([value::<F, f32>(), dx, dy][part], first);
                let put = |to: f32, term: f32| if assign == Assign::Write { term } else { to + term };
                let at = |r: usize, c: usize| [super::at(beside(other, r), c), gradient[r * columns + c]];

                let mut all = numbers(rows * columns, 5.0);
                let mut naive = all.clone();
                let mut stored = numbers(indices.len(), 6.0);
                let mut naive_stored = stored.clone();
                for r in 0..rows {
                    let mut whole = vec![0.0; columns];
                    for e in indptr[r] as usize..indptr[r + 1] as usize {
                        let c = indices[e] as usize;
                        whole[c] = values[e];
                        let [other, g] = at(r, c);
                        let term = expected::<F>(part, first, [values[e], other, g]);
                        naive_stored[e] = put(naive_stored[e], term);
                    }
                    for (c, to) in naive[r * columns..][..columns].iter_mut().enumerate() {
                        let [other, g] = at(r, c);
                        *to = put(*to, expected::<F>(part, first, [whole[c], other, g]));
                    }
                }

                let to = ViewMut::new(&mut all, rows, columns);
                let g = (part > 0).then_some(g);
                DenseKernel { f, sparse: Sparse::Csr(csr), dense: other, g, to, first: 0, assign }
                    .on(threads);
                assert_eq!(all, naive, "part {part}, {assign:?}, {threads} threads");
                let beside = SecondOperand::Dense(View::new(&gradient, rows, columns));
                let entries = Entries {
                    f,
                    of: csr,
                    other: SecondOperand::Dense(other),
                    g: beside,
                    to: &mut stored,
                    first: 0,
                    assign,
                };
                entries.on(threads);
                assert_eq!(stored, naive_stored, "part {part}, {assign:?}, {threads} threads");
            }
        }
    }

    #[test]
    fn runs_of_entries_and_of_gaps_are_element_by_element() {
        agrees::<Div>();
        agrees::<Maximum>();
    }
}
