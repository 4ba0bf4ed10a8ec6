//! Views: rows of elements with a stride, the inputs and outputs of every kernel and operator.
//!
//! A [`View`] is `rows` × `width` elements; the starts of two rows are `stride` elements apart, so that a range of columns of a
//! wider matrix (a feature split, a packed layout) is a view and not a copy. Views are made from slices, or, if several regions
//! of one buffer are read and written together, by [`super::arena::Arena`], which checks that written regions do not overlap
//! others.

use std::marker::PhantomData;

/// The shape and stride of a view, without its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent2 {
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row.
    pub width: usize,
    /// Elements from the start of one row to the start of the next; at least `width`.
    pub stride: usize,
}

impl Extent2 {
    /// Returns the number of elements from the first to the last, gaps between rows included; 0 for a view without elements.
    pub fn span(&self) -> usize {
        if self.rows == 0 || self.width == 0 {
            return 0;
        }
        // Saturating: no slice has the maximum length, so a check against a slice's length refuses the view.
        (self.rows - 1).saturating_mul(self.stride).saturating_add(self.width)
    }

    /// Sets the stride to 0 if rows have no elements, so that every row starts at the view's start.
    fn settled(self) -> Self {
        Self { stride: if self.width == 0 { 0 } else { self.stride }, ..self }
    }

    /// Panics unless the view fits into `len` elements; every safe constructor calls this check.
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

// SAFETY: a view is a shared slice in all but its stride.
unsafe impl<T: Sync> Send for View<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for View<'_, T> {}
// SAFETY: a mutable view is a mutable slice in all but its stride, and nothing else reaches its elements.
unsafe impl<T: Send> Send for ViewMut<'_, T> {}

impl<'a, T> View<'a, T> {
    /// `rows` × `width` over the start of `data`, without gaps.
    ///
    /// # Panics
    /// If `data` is too short.
    pub fn new(data: &'a [T], rows: usize, width: usize) -> Self {
        Self::strided(data, Extent2 { rows, width, stride: width })
    }

    /// Any stride.
    ///
    /// # Panics
    /// If `data` is too short or the stride is below the width.
    pub fn strided(data: &'a [T], extent: Extent2) -> Self {
        extent.check(data.len());
        Self { start: data.as_ptr(), extent: extent.settled(), life: PhantomData }
    }

    /// # Safety
    /// `start` must be valid for reading all rows of `extent` for `'a`, with no writer beside it.
    pub(super) unsafe fn from_raw(start: *const T, extent: Extent2) -> Self {
        Self { start, extent: extent.settled(), life: PhantomData }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.extent.rows
    }

    /// Elements in a row.
    pub fn width(&self) -> usize {
        self.extent.width
    }

    /// Elements between the starts of two rows.
    pub fn stride(&self) -> usize {
        self.extent.stride
    }

    /// Row `i`.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn row(&self, i: usize) -> &'a [T] {
        assert!(i < self.extent.rows, "row {i} of {}", self.extent.rows);
        // SAFETY: the constructor's caller vouched for every row, and `i` is one of them.
        unsafe { std::slice::from_raw_parts(self.start.add(i * self.extent.stride), self.extent.width) }
    }

    /// All rows, first to last.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [T]> + use<'a, T> {
        let (start, extent) = (self.start, self.extent);
        (0..extent.rows).map(move |i| {
            // SAFETY: as in `row`.
            unsafe { std::slice::from_raw_parts(start.add(i * extent.stride), extent.width) }
        })
    }

    /// All elements as one slice, if there are no gaps between the rows.
    pub fn contiguous(&self) -> Option<&'a [T]> {
        let Extent2 { rows, width, stride } = self.extent;
        // SAFETY: without gaps the rows are one run of `rows * width` elements, which the constructor vouched for.
        (stride == width || rows <= 1).then(|| unsafe {
            std::slice::from_raw_parts(self.start, if rows == 0 { 0 } else { rows * width })
        })
    }

    /// Rows `from..to`.
    ///
    /// # Panics
    /// If they are out of range.
    pub fn rows_range(&self, from: usize, to: usize) -> Self {
        assert!(from <= to && to <= self.extent.rows, "rows {from}..{to} of {}", self.extent.rows);
        let offset = if from == to { 0 } else { from * self.extent.stride };
        Self {
            // SAFETY: these rows are rows of this view; an empty range keeps the view's start.
            start: unsafe { self.start.add(offset) },
            extent: Extent2 { rows: to - from, ..self.extent },
            ..*self
        }
    }

    /// Columns `from..to` of every row.
    ///
    /// # Panics
    /// If they are out of range.
    pub fn columns(&self, from: usize, to: usize) -> Self {
        assert!(from <= to && to <= self.extent.width, "columns {from}..{to} of {}", self.extent.width);
        let offset = if self.extent.rows == 0 { 0 } else { from };
        Self {
            // SAFETY: these columns are columns of this view.
            start: unsafe { self.start.add(offset) },
            extent: Extent2 { width: to - from, ..self.extent },
            ..*self
        }
    }

    /// The first element's address, for kernels.
    pub(super) fn as_ptr(&self) -> *const T {
        self.start
    }
}

impl<'a, T> ViewMut<'a, T> {
    /// `rows` × `width` over the start of `data`, without gaps.
    ///
    /// # Panics
    /// If `data` is too short.
    pub fn new(data: &'a mut [T], rows: usize, width: usize) -> Self {
        Self::strided(data, Extent2 { rows, width, stride: width })
    }

    /// Any stride.
    ///
    /// # Panics
    /// If `data` is too short or the stride is below the width.
    pub fn strided(data: &'a mut [T], extent: Extent2) -> Self {
        extent.check(data.len());
        Self { start: data.as_mut_ptr(), extent: extent.settled(), life: PhantomData }
    }

    /// # Safety
    /// `start` must be valid for writing all rows of `extent` for `'a`, and nothing else may reach those elements.
    pub(super) unsafe fn from_raw(start: *mut T, extent: Extent2) -> Self {
        Self { start, extent: extent.settled(), life: PhantomData }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.extent.rows
    }

    /// Elements in a row.
    pub fn width(&self) -> usize {
        self.extent.width
    }

    /// Elements between the starts of two rows.
    pub fn stride(&self) -> usize {
        self.extent.stride
    }

    /// Returns the same rows for reading.
    pub fn as_view(&self) -> View<'_, T> {
        View { start: self.start, extent: self.extent, life: PhantomData }
    }

    /// Returns the same rows for a shorter lifetime.
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        ViewMut { start: self.start, extent: self.extent, life: PhantomData }
    }

    /// Row `i`.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn row(&mut self, i: usize) -> &mut [T] {
        assert!(i < self.extent.rows, "row {i} of {}", self.extent.rows);
        // SAFETY: as in `View::row`; `&mut self` keeps other rows out of reach meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(i * self.extent.stride), self.extent.width) }
    }

    /// All rows, first to last.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [T]> {
        let (start, extent) = (self.start, self.extent);
        (0..extent.rows).map(move |i| {
            // SAFETY: as in `row`; the rows do not overlap, since the stride is at least the width.
            unsafe { std::slice::from_raw_parts_mut(start.add(i * extent.stride), extent.width) }
        })
    }

    /// All elements as one slice, if there are no gaps between the rows.
    pub fn contiguous(&mut self) -> Option<&mut [T]> {
        let Extent2 { rows, width, stride } = self.extent;
        // SAFETY: as in `View::contiguous`.
        (stride == width || rows <= 1).then(|| unsafe {
            std::slice::from_raw_parts_mut(self.start, if rows == 0 { 0 } else { rows * width })
        })
    }

    /// Sets every element to `value`.
    pub fn fill(&mut self, value: T)
    where
        T: Copy,
    {
        for row in self.iter_mut() {
            row.fill(value);
        }
    }

    /// The rows before `at`, and those from `at` on: disjoint, so they may go to two threads.
    ///
    /// # Panics
    /// If `at` is out of range.
    pub fn split_rows(self, at: usize) -> (ViewMut<'a, T>, ViewMut<'a, T>) {
        assert!(at <= self.extent.rows, "split at row {at} of {}", self.extent.rows);
        let rest = self.extent.rows - at;
        let offset = if rest == 0 { 0 } else { at * self.extent.stride };
        // SAFETY: the two parts are disjoint parts of this view, which is consumed.
        let second = unsafe { self.start.add(offset) };
        (
            ViewMut { extent: Extent2 { rows: at, ..self.extent }, ..self },
            ViewMut { start: second, extent: Extent2 { rows: rest, ..self.extent }, life: PhantomData },
        )
    }

    /// Columns `from..to` of every row.
    ///
    /// # Panics
    /// If they are out of range.
    pub fn columns(self, from: usize, to: usize) -> Self {
        assert!(from <= to && to <= self.extent.width, "columns {from}..{to} of {}", self.extent.width);
        let offset = if self.extent.rows == 0 { 0 } else { from };
        Self {
            // SAFETY: these columns are columns of this view, which is consumed.
            start: unsafe { self.start.add(offset) },
            extent: Extent2 { width: to - from, ..self.extent },
            ..self
        }
    }

    /// The columns before `at`, and those from `at` on.
    ///
    /// # Panics
    /// If `at` is out of range.
    pub fn split_columns(self, at: usize) -> (ViewMut<'a, T>, ViewMut<'a, T>) {
        let Extent2 { rows, width, stride } = self.extent;
        assert!(at <= width, "split at column {at} of {width}");
        let offset = if rows == 0 { 0 } else { at };
        // SAFETY: the two parts are disjoint parts of this view, which is consumed.
        let second = unsafe { self.start.add(offset) };
        (
            ViewMut { extent: Extent2 { rows, width: at, stride }, ..self },
            ViewMut { start: second, extent: Extent2 { rows, width: width - at, stride }, life: PhantomData },
        )
    }

    /// The first element's address, for kernels.
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
