//! Views: rows of elements with a stride. The inputs and outputs of every kernel and operator are views.
//!
//! A [`View`] has `rows` × `width` elements, and successive rows begin `stride` elements apart. A range of columns of a
//! wider matrix (a feature split, a packed layout) is therefore a view and not a copy. A view is made from a slice. If
//! several regions of one buffer are read and written together, [`super::arena::Arena`] makes the views and checks that
//! written regions overlap no other region.

use std::marker::PhantomData;

/// The number of rows, the width and the stride of a view, without its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent2 {
    pub(crate) rows: usize,
    /// The number of elements per row.
    pub(crate) width: usize,
    /// The number of elements from the start of one row to the start of the next; at least `width`.
    pub(crate) stride: usize,
}

impl Extent2 {
    /// Returns the number of elements from the first to the last element, including gaps between rows; 0 for a view without
    /// elements.
    pub(crate) fn span(&self) -> usize {
        if self.rows == 0 || self.width == 0 {
            return 0;
        }
        // The arithmetic saturates: no slice has the maximum length, so the check against the slice's length refuses the
        // view.
        (self.rows - 1).saturating_mul(self.stride).saturating_add(self.width)
    }

    /// Sets the stride to 0 if the rows have no elements, so that every row begins at the start of the view.
    fn settled(self) -> Self {
        Self { stride: if self.width == 0 { 0 } else { self.stride }, ..self }
    }

    /// Panics unless a view of this extent fits into `len` elements; every safe constructor calls this check.
    fn check(&self, len: usize) {
        assert!(
            self.stride >= self.width || self.rows <= 1,
            "stride {} below width {}",
            self.stride,
            self.width
        );
        assert!(self.span() <= len, "a view of {} elements over a slice of {len}", self.span());
    }
}

/// A view for reading.
#[derive(Clone, Copy)]
pub struct View<'a, T> {
    start: *const T,
    extent: Extent2,
    life: PhantomData<&'a [T]>,
}

/// A view for writing.
pub struct ViewMut<'a, T> {
    start: *mut T,
    extent: Extent2,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: a view is like a shared slice, but with gaps between the rows.
unsafe impl<T: Sync> Send for View<'_, T> {}
// SAFETY: a view is like a shared slice, but with gaps between the rows.
unsafe impl<T: Sync> Sync for View<'_, T> {}
// SAFETY: a mutable view is like a mutable slice with gaps between the rows, and nothing else accesses its elements.
unsafe impl<T: Send> Send for ViewMut<'_, T> {}

impl<'a, T> View<'a, T> {
    /// Returns a view of `rows` × `width` elements at the start of `data`, without gaps between rows.
    ///
    /// # Panics
    /// If `data` has fewer than `rows` · `width` elements.
    pub fn new(data: &'a [T], rows: usize, width: usize) -> Self {
        Self::strided(data, Extent2 { rows, width, stride: width })
    }

    /// Returns a view of the given extent at the start of `data`.
    ///
    /// # Panics
    /// If `data` is too short for the extent, or if the stride is below the width.
    pub(crate) fn strided(data: &'a [T], extent: Extent2) -> Self {
        extent.check(data.len());
        Self { start: data.as_ptr(), extent: extent.settled(), life: PhantomData }
    }

    /// # Safety
    /// For the lifetime `'a`, all rows of `extent` at `start` must be valid for reading, and nothing may write to them.
    pub(super) unsafe fn from_raw(start: *const T, extent: Extent2) -> Self {
        Self { start, extent: extent.settled(), life: PhantomData }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.extent.rows
    }

    /// Returns the number of elements per row.
    pub fn width(&self) -> usize {
        self.extent.width
    }

    /// Returns the number of elements from the start of one row to the start of the next.
    pub(crate) fn stride(&self) -> usize {
        self.extent.stride
    }

    /// Returns row `i`.
    ///
    /// # Panics
    /// If the view has no row `i`.
    #[inline]
    pub fn row(&self, i: usize) -> &'a [T] {
        assert!(i < self.extent.rows, "row {i} of {}", self.extent.rows);
        // SAFETY: the caller of the constructor guaranteed every row, and the assertion above checked that row `i` exists.
        unsafe { std::slice::from_raw_parts(self.start.add(i * self.extent.stride), self.extent.width) }
    }

    /// Returns an iterator over all rows, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [T]> + use<'a, T> {
        let (start, extent) = (self.start, self.extent);
        (0..extent.rows).map(move |i| {
            // SAFETY: the caller of the constructor guaranteed every row, and the range has only existing rows.
            unsafe { std::slice::from_raw_parts(start.add(i * extent.stride), extent.width) }
        })
    }

    /// Returns all elements as one slice; `None` if there are gaps between the rows.
    pub fn contiguous(&self) -> Option<&'a [T]> {
        let Extent2 { rows, width, stride } = self.extent;
        // SAFETY: rows without gaps are one run of `rows * width` elements, which the caller of the constructor guaranteed.
        (stride == width || rows <= 1).then(|| unsafe {
            std::slice::from_raw_parts(self.start, if rows == 0 { 0 } else { rows * width })
        })
    }

    /// Returns a view of the rows `from..to`.
    ///
    /// # Panics
    /// If the range `from..to` is not within the rows of the view.
    pub(crate) fn rows_range(&self, from: usize, to: usize) -> Self {
        assert!(from <= to && to <= self.extent.rows, "rows {from}..{to} of {}", self.extent.rows);
        let offset = if from == to { 0 } else { from * self.extent.stride };
        Self {
            // SAFETY: the range lies within the rows of this view; an empty range keeps the start of the view.
            start: unsafe { self.start.add(offset) },
            extent: Extent2 { rows: to - from, ..self.extent },
            ..*self
        }
    }

    /// Returns a view of the columns `from..to` of every row.
    ///
    /// # Panics
    /// If the range `from..to` is not within the columns of the view.
    pub fn columns(&self, from: usize, to: usize) -> Self {
        assert!(from <= to && to <= self.extent.width, "columns {from}..{to} of {}", self.extent.width);
        let offset = if self.extent.rows == 0 { 0 } else { from };
        Self {
            // SAFETY: the range lies within the columns of this view.
            start: unsafe { self.start.add(offset) },
            extent: Extent2 { width: to - from, ..self.extent },
            ..*self
        }
    }

    /// Returns the address of the first element, for kernels.
    pub(super) fn as_ptr(&self) -> *const T {
        self.start
    }
}

impl<'a, T> ViewMut<'a, T> {
    /// Returns a view of `rows` × `width` elements at the start of `data`, without gaps between rows.
    ///
    /// # Panics
    /// If `data` has fewer than `rows` · `width` elements.
    pub fn new(data: &'a mut [T], rows: usize, width: usize) -> Self {
        Self::strided(data, Extent2 { rows, width, stride: width })
    }

    /// Returns a view of the given extent at the start of `data`.
    ///
    /// # Panics
    /// If `data` is too short for the extent, or if the stride is below the width.
    pub(crate) fn strided(data: &'a mut [T], extent: Extent2) -> Self {
        extent.check(data.len());
        Self { start: data.as_mut_ptr(), extent: extent.settled(), life: PhantomData }
    }

    /// # Safety
    /// For the lifetime `'a`, all rows of `extent` at `start` must be valid for writing, and nothing else may access them.
    pub(super) unsafe fn from_raw(start: *mut T, extent: Extent2) -> Self {
        Self { start, extent: extent.settled(), life: PhantomData }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.extent.rows
    }

    /// Returns the number of elements per row.
    pub(crate) fn width(&self) -> usize {
        self.extent.width
    }

    /// Returns the number of elements from the start of one row to the start of the next.
    pub(crate) fn stride(&self) -> usize {
        self.extent.stride
    }

    /// Returns a view of the same rows for reading.
    pub(crate) fn as_view(&self) -> View<'_, T> {
        View { start: self.start, extent: self.extent, life: PhantomData }
    }

    /// Returns a mutable view of the same rows with a shorter lifetime.
    pub(crate) fn reborrow(&mut self) -> ViewMut<'_, T> {
        ViewMut { start: self.start, extent: self.extent, life: PhantomData }
    }

    /// Returns row `i`.
    ///
    /// # Panics
    /// If the view has no row `i`.
    #[inline]
    pub fn row(&mut self, i: usize) -> &mut [T] {
        assert!(i < self.extent.rows, "row {i} of {}", self.extent.rows);
        // SAFETY: row `i` exists, as in `View::row`; `&mut self` prevents access to other rows while this row is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(i * self.extent.stride), self.extent.width) }
    }

    /// Returns an iterator over all rows for writing, in order.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [T]> {
        let (start, extent) = (self.start, self.extent);
        (0..extent.rows).map(move |i| {
            // SAFETY: all rows of the range exist, and they do not overlap, since the stride is at least the width.
            unsafe { std::slice::from_raw_parts_mut(start.add(i * extent.stride), extent.width) }
        })
    }

    /// Returns all elements as one slice for writing; `None` if there are gaps between the rows.
    pub fn contiguous(&mut self) -> Option<&mut [T]> {
        let Extent2 { rows, width, stride } = self.extent;
        // SAFETY: rows without gaps are one run of `rows * width` elements, as in `View::contiguous`.
        (stride == width || rows <= 1).then(|| unsafe {
            std::slice::from_raw_parts_mut(self.start, if rows == 0 { 0 } else { rows * width })
        })
    }

    /// Sets every element of the view to `value`.
    pub fn fill(&mut self, value: T)
    where
        T: Copy,
    {
        for row in self.iter_mut() {
            row.fill(value);
        }
    }

    /// Returns the rows before row `at`, and the rows from row `at` on. The two views are disjoint, so two threads may write
    /// them.
    ///
    /// # Panics
    /// If `at` is beyond the number of rows.
    pub fn split_rows(self, at: usize) -> (ViewMut<'a, T>, ViewMut<'a, T>) {
        assert!(at <= self.extent.rows, "split at row {at} of {}", self.extent.rows);
        let rest = self.extent.rows - at;
        let offset = if rest == 0 { 0 } else { at * self.extent.stride };
        // SAFETY: the two results are disjoint parts of this view, and `self` is consumed.
        let second = unsafe { self.start.add(offset) };
        (
            ViewMut { extent: Extent2 { rows: at, ..self.extent }, ..self },
            ViewMut { start: second, extent: Extent2 { rows: rest, ..self.extent }, life: PhantomData },
        )
    }

    /// Returns the rows `from..to`.
    ///
    /// # Panics
    /// If the view does not have these rows.
    #[must_use]
    pub(crate) fn rows_range(self, from: usize, to: usize) -> Self {
        self.split_rows(to).0.split_rows(from).1
    }

    /// Returns a mutable view of the columns `from..to` of every row.
    ///
    /// # Panics
    /// If the range `from..to` is not within the columns of the view.
    pub fn columns(self, from: usize, to: usize) -> Self {
        assert!(from <= to && to <= self.extent.width, "columns {from}..{to} of {}", self.extent.width);
        let offset = if self.extent.rows == 0 { 0 } else { from };
        Self {
            // SAFETY: the range lies within the columns of this view, and `self` is consumed.
            start: unsafe { self.start.add(offset) },
            extent: Extent2 { width: to - from, ..self.extent },
            ..self
        }
    }

    /// Returns the columns before column `at`, and the columns from column `at` on, as two disjoint views.
    ///
    /// # Panics
    /// If `at` is beyond the number of columns.
    pub(crate) fn split_columns(self, at: usize) -> (ViewMut<'a, T>, ViewMut<'a, T>) {
        let Extent2 { rows, width, stride } = self.extent;
        assert!(at <= width, "split at column {at} of {width}");
        let offset = if rows == 0 { 0 } else { at };
        // SAFETY: the two results are disjoint parts of this view, and `self` is consumed.
        let second = unsafe { self.start.add(offset) };
        (
            ViewMut { extent: Extent2 { rows, width: at, stride }, ..self },
            ViewMut { start: second, extent: Extent2 { rows, width: width - at, stride }, life: PhantomData },
        )
    }

    /// Returns the address of the first element, for kernels.
    pub(super) fn as_mut_ptr(&mut self) -> *mut T {
        self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_rows_of_a_matrix_are_views() {
        let data: Vec<i32> = (0..12).collect();
        let view = View::new(&data, 3, 4).columns(1, 3).rows_range(1, 3);
        assert_eq!(view.iter().collect::<Vec<_>>(), [[5, 6], [9, 10]]);
        assert!(view.contiguous().is_none());
        assert_eq!(View::new(&data, 3, 4).rows_range(3, 3).iter().len(), 0);
    }

    #[test]
    fn disjoint_halves_are_written_together() {
        let mut data = vec![0; 12];
        let (mut top, bottom) = ViewMut::new(&mut data, 3, 4).split_rows(1);
        let (mut left, mut right) = bottom.split_columns(1);
        top.fill(1);
        left.fill(2);
        right.fill(3);
        assert_eq!(data, [1, 1, 1, 1, 2, 3, 3, 3, 2, 3, 3, 3]);
    }

    #[test]
    #[should_panic(expected = "over a slice of 5")]
    fn a_short_slice_is_refused() {
        View::new(&[0; 5], 2, 3);
    }

    #[test]
    #[should_panic(expected = "over a slice of 8")]
    fn a_size_that_wraps_around_is_refused() {
        View::strided(&[0; 8], Extent2 { rows: 1 << 62, width: 4, stride: 4 });
    }

    #[test]
    fn rows_without_elements_lie_nowhere() {
        let view = View::strided(&[0u8; 0], Extent2 { rows: 9, width: 0, stride: 5 });
        assert_eq!((view.stride(), view.row(8).len(), view.rows_range(7, 9).iter().count()), (0, 0, 2));
    }
}
