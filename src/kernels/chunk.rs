//! Chunked access for pointwise recurrent cells: rows are read from views and written back in chunks of constant length.

use super::float::{Assign, Float};
use super::path::Arithmetic;
use super::prefetch;
use super::view::{View, ViewMut};

/// The number of elements that a pointwise kernel computes at once. The kernel copies the elements into local arrays of this
/// constant length. The compiler then knows that the arrays do not overlap, and keeps each array in vector registers.
pub(super) const CHUNK: usize = 32;

/// Some successive columns of a row: a whole chunk, or the `len` columns that are left at the end of the row. The constant
/// `WHOLE` distinguishes whole chunks from shorter ones at compile time, so that whole chunks are copied by plain vector
/// loads and stores.
#[derive(Clone, Copy)]
pub(super) struct Columns<const WHOLE: bool> {
    row: usize,
    from: usize,
    len: usize,
}

/// A pointwise kernel that runs chunk by chunk.
pub(super) trait Chunks {
    /// Computes the columns `at` of one row.
    fn chunk<A: Arithmetic, const WHOLE: bool>(&mut self, at: Columns<WHOLE>);

    /// Computes all columns of all rows, chunk by chunk.
    #[inline(always)]
    fn each<A: Arithmetic>(&mut self, rows: usize, width: usize) {
        let whole = width - width % CHUNK;
        for row in 0..rows {
            for from in (0..whole).step_by(CHUNK) {
                self.chunk::<A, true>(Columns { row, from, len: CHUNK });
            }
            if whole < width {
                self.chunk::<A, false>(Columns { row, from: whole, len: width - whole });
            }
        }
    }
}

impl<const WHOLE: bool> Columns<WHOLE> {
    /// Returns the columns `self` of a view, padded with zeros to a whole chunk.
    #[inline(always)]
    pub(super) fn of<T: Float>(self, view: View<'_, T>) -> [T; CHUNK] {
        self.part(view, 0)
    }

    /// Returns the columns `self` of a view, padded with zeros to a whole chunk; all zeros if the view is `None`.
    #[inline(always)]
    pub(super) fn take<T: Float>(self, view: Option<View<'_, T>>) -> [T; CHUNK] {
        view.map_or([T::ZERO; CHUNK], |view| self.of(view))
    }

    /// Returns the columns `self` of the gate with index `gate`, padded with zeros; the gates are `width` columns apart.
    #[inline(always)]
    pub(super) fn gate<T: Float>(self, view: View<'_, T>, gate: usize, width: usize) -> [T; CHUNK] {
        self.part(view, gate * width)
    }

    #[inline(always)]
    fn part<T: Float>(self, view: View<'_, T>, first: usize) -> [T; CHUNK] {
        let (row, mut out) = (&view.row(self.row)[first + self.from..], [T::ZERO; CHUNK]);
        if WHOLE {
            out.copy_from_slice(&row[..CHUNK]);
        } else {
            out[..self.len].copy_from_slice(&row[..self.len]);
        }
        out
    }

    /// Prefetches the columns `self` of the next row, for each of `gates` gates; the gates are `width` columns apart. The
    /// prefetch pays in the backward pass, which reads from main memory: the next row arrives while the current row is
    /// computed. Nothing is prefetched after the last row: another thread may be writing the memory there, and would have to
    /// wait.
    #[inline(always)]
    pub(super) fn ask<T: Float>(self, view: View<'_, T>, gates: usize, width: usize) {
        if WHOLE && self.row + 1 < view.rows() {
            for gate in 0..gates {
                for line in (0..CHUNK).step_by(64 / size_of::<T>()) {
                    let at = (self.row + 1) * view.stride() + gate * width + self.from + line;
                    prefetch::to_read(view.as_ptr().wrapping_add(at));
                }
            }
        }
    }

    /// Stores a chunk in a view, `first` columns to the right of the columns `self`.
    #[inline(always)]
    pub(super) fn write<T: Float>(self, out: &mut ViewMut<'_, T>, first: usize, chunk: &[T; CHUNK]) {
        let out = &mut out.row(self.row)[first + self.from..];
        if WHOLE {
            out[..CHUNK].copy_from_slice(chunk);
        } else {
            out[..self.len].copy_from_slice(&chunk[..self.len]);
        }
    }

    /// Stores a chunk in the columns `self` of an output; does nothing if the output is `None`.
    #[inline(always)]
    pub(super) fn put<T: Float>(self, output: &mut Output<'_, T>, first: usize, chunk: &[T; CHUNK]) {
        let Some((out, assign)) = output else { return };
        if *assign == Assign::Add {
            let mut sums = self.part(out.as_view(), first);
            sums.iter_mut().zip(chunk).for_each(|(sum, &x)| *sum += x);
            self.write(out, first, &sums);
        } else {
            self.write(out, first, chunk);
        }
    }
}

/// Returns the rows that hold the gates. If the given view is `None`, these rows are the buffer of the gates' gradient,
/// which still holds the gates.
#[inline(always)]
pub(super) fn lies<'a, T: Float>(apart: Option<View<'a, T>>, there: &'a Output<'_, T>) -> View<'a, T> {
    match (apart, there) {
        (Some(apart), _) => apart,
        (None, Some((there, _))) => there.as_view(),
        (None, None) => View::new(&[], 0, 0),
    }
}

/// The view that receives an output, and whether the output is written or added; `None` if the output is not requested.
pub(super) type Output<'a, T> = Option<(ViewMut<'a, T>, Assign)>;

/// Replaces each element by the denominator of its `sigmoid`. The loops of this function and of [`tangents`] are short,
/// so the CPU overlaps several iterations. A loop over a whole cell would have more instructions per iteration than fit
/// into the CPU's reorder buffer, so each iteration would wait for its own results.
#[inline(always)]
pub(super) fn logistics<A: Arithmetic, T: Float>(x: &mut [T; CHUNK]) {
    for x in x {
        *x = x.logistic_with::<A>();
    }
}

/// Replaces each element of `x` by the numerator of its `tanh`, and returns the denominators.
#[inline(always)]
pub(super) fn tangents<A: Arithmetic, T: Float>(x: &mut [T; CHUNK]) -> [T; CHUNK] {
    let mut denominators = [T::ZERO; CHUNK];
    for (x, denominator) in x.iter_mut().zip(&mut denominators) {
        (*x, *denominator) = x.tangent_with::<A>();
    }
    denominators
}

/// Returns a chunk of a row from column `from` on, padded with zeros at the end of the row.
#[inline(always)]
pub(super) fn part<T: Float>(row: &[T], from: usize) -> [T; CHUNK] {
    let (row, mut out) = (&row[from..], [T::ZERO; CHUNK]);
    match row.first_chunk::<CHUNK>() {
        Some(whole) => out = *whole,
        None => out[..row.len()].copy_from_slice(row),
    }
    out
}

/// Writes or adds a chunk to a row from column `from` on, without the padding beyond the end of the row.
#[inline(always)]
pub(super) fn put<T: Float>(row: &mut [T], from: usize, numbers: &[T; CHUNK], assign: Assign) {
    let row = &mut row[from..];
    match (row.first_chunk_mut::<CHUNK>(), assign) {
        (Some(whole), Assign::Write) => *whole = *numbers,
        (Some(whole), Assign::Add) => whole.iter_mut().zip(numbers).for_each(|(to, &x)| *to += x),
        (None, _) => assign.put_row(row, &numbers[..row.len()]),
    }
}

/// Returns the sum of the partial sums, added in the order of the lanes.
#[inline(always)]
pub(super) fn total<T: Float>(lanes: &[T; CHUNK]) -> T {
    lanes.iter().fold(T::ZERO, |sum, &x| sum + x)
}
