//! The gradient of a bias: sums of the columns of a matrix, in blocks of rows.

use super::float::{Assign, Float};
use super::fork::join;
use super::half::pack::round_number;
use super::path::{Arithmetic, Sweep, sweep};
use super::products::LeftMatrix;
use super::view::View;

/// Below this number of additions, a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 20;
/// The number of rows per block: the products of a block are summed before the sum is added to the result. The size of a
/// block decides the bits of the result, so it is the same on every machine. A packed panel with the rows of one block stays in
/// the nearest cache; longer sums would lose precision.
pub const SUM_ROWS: usize = 256;

/// Computes `db[j] = Σ dy[i][j]`, or adds these sums to `db`, in blocks of [`SUM_ROWS`] rows; if `rounds` is true, first rounds `dy`
/// to bf16, as the gradient of a weight does. Up to `threads` threads of rayon's pool divide the columns.
///
/// # Panics
/// If `db` and the rows of `dy` differ in length.
pub(super) fn bias_gradient<T: Float>(
    (dy, rounds): (LeftMatrix<'_, T>, bool),
    db: &mut [T],
    assign: Assign,
    threads: usize,
) {
    let width = dy.width();
    assert_eq!(db.len(), width, "the length of a bias gradient");
    if threads < 2 || width < 2 || dy.rows() * width < WORTH_A_THREAD {
        return sweep(ColumnSums { dy, rounds, db, assign });
    }
    let left = threads / 2;
    let middle = width * left / threads;
    let (a, b) = db.split_at_mut(middle);
    join(
        || bias_gradient((dy.columns(0, middle), rounds), a, assign, left),
        || bias_gradient((dy.columns(middle, width), rounds), b, assign, threads - left),
    );
}

struct ColumnSums<'a, T> {
    dy: LeftMatrix<'a, T>,
    rounds: bool,
    db: &'a mut [T],
    assign: Assign,
}

impl<T: Float> Sweep for ColumnSums<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        const COLUMNS: usize = 128;
        for (chunk, db) in self.db.chunks_mut(COLUMNS).enumerate() {
            let from = chunk * COLUMNS;
            let columns = self.dy.columns(from, from + db.len());
            let mut assign = self.assign;
            // At least one block, so that the sum is written even if there are no rows.
            for row in (0..columns.rows().max(1)).step_by(SUM_ROWS) {
                let mut block = [T::ZERO; COLUMNS];
                match columns.rows_range(row, columns.rows().min(row + SUM_ROWS)) {
                    LeftMatrix::Full(rows) if self.rounds => add_rows(rows, rounded, &mut block),
                    LeftMatrix::Full(rows) => add_rows(rows, |x| x, &mut block),
                    LeftMatrix::Rounded(rows) => add_rows(rows, T::from_bf16, &mut block),
                }
                put(&block[..db.len()], db, std::mem::replace(&mut assign, Assign::Add));
            }
        }
    }
}

#[inline(always)]
fn rounded<T: Float>(x: T) -> T {
    T::from_bf16(round_number(x.to_f64() as f32, false))
}

#[inline(always)]
fn add_rows<N: Copy, T: Float>(rows: View<'_, N>, convert: impl Fn(N) -> T, sums: &mut [T]) {
    rows.iter().for_each(|row| sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += convert(x)));
}

pub(super) fn put<T: Float>(sums: &[T], to: &mut [T], assign: Assign) {
    for (to, &sum) in to.iter_mut().zip(sums) {
        *to = if assign == Assign::Add { *to + sum } else { sum };
    }
}
