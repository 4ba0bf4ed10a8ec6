//! Selected rows while a program runs: buffers that keep their memory from step to step.

use crate::error::{AtCaller, Error, Result};
use crate::kernels::arena::Plain;
use crate::kernels::{Float, View, ViewMut};
use crate::tensor::DType;

/// The rows of a sparse gradient: row numbers that may repeat, and a row of values for each.
#[derive(Debug, Clone, Default)]
pub struct RowBuffer {
    height: usize,
    width: usize,
    dtype: Option<DType>,
    rows: Vec<i64>,
    f32: Vec<f32>,
    f64: Vec<f64>,
    distinct: bool,
}

/// The floats a [`RowBuffer`] holds.
pub trait RowValue: Float + Plain {
    /// The dtype's name.
    const ROW_DTYPE: DType;
    #[doc(hidden)]
    fn of(rows: &RowBuffer) -> &Vec<Self>;
    #[doc(hidden)]
    fn of_mut(rows: &mut RowBuffer) -> &mut Vec<Self>;
}

impl RowValue for f32 {
    const ROW_DTYPE: DType = DType::F32;
    fn of(rows: &RowBuffer) -> &Vec<f32> {
        &rows.f32
    }
    fn of_mut(rows: &mut RowBuffer) -> &mut Vec<f32> {
        &mut rows.f32
    }
}

impl RowValue for f64 {
    const ROW_DTYPE: DType = DType::F64;
    fn of(rows: &RowBuffer) -> &Vec<f64> {
        &rows.f64
    }
    fn of_mut(rows: &mut RowBuffer) -> &mut Vec<f64> {
        &mut rows.f64
    }
}

impl RowBuffer {
    /// Empties it for a table of `height` rows of `width` elements of `T`.
    pub fn reset<T: RowValue>(&mut self, height: usize, width: usize) {
        self.height = height;
        self.width = width;
        self.dtype = Some(T::ROW_DTYPE);
        self.rows.clear();
        self.f32.clear();
        self.f64.clear();
        self.distinct = true;
    }

    /// Rows of the whole table.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The dtype, once it was filled.
    pub fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// The row numbers.
    pub fn ids(&self) -> &[i64] {
        &self.rows
    }

    /// Whether the row numbers are sorted and distinct: [`Self::set_merged`] was the last to fill it.
    pub fn merged(&self) -> bool {
        self.distinct
    }

    /// The values, one row for each of [`Self::ids`].
    ///
    /// # Errors
    /// If it holds another dtype.
    #[track_caller]
    pub fn values<T: RowValue>(&self) -> Result<View<'_, T>> {
        self.check::<T>().at_caller()?;
        Ok(View::new(T::of(self), self.rows.len(), self.width))
    }

    /// The values, to be changed in place.
    ///
    /// # Errors
    /// If it holds another dtype.
    #[track_caller]
    pub fn values_mut<T: RowValue>(&mut self) -> Result<ViewMut<'_, T>> {
        self.check::<T>().at_caller()?;
        let (rows, width) = (self.rows.len(), self.width);
        Ok(ViewMut::new(T::of_mut(self), rows, width))
    }

    /// Adds a row; the same number may be added again.
    pub fn push<T: RowValue>(&mut self, id: i64, row: &[T]) {
        self.rows.push(id);
        T::of_mut(self).extend_from_slice(row);
        self.distinct = false;
    }

    /// Adds zero rows for `ids` and returns the view of their values, to be filled.
    pub fn extend<T: RowValue>(&mut self, ids: impl Iterator<Item = i64>) -> ViewMut<'_, T> {
        let before = self.rows.len();
        self.rows.extend(ids);
        self.distinct = false;
        let (added, width) = (self.rows.len() - before, self.width);
        let values = T::of_mut(self);
        values.resize((before + added) * width, T::ZERO);
        ViewMut::new(&mut values[before * width..], added, width)
    }

    /// Makes it the rows `ids`, sorted and distinct, of a table of `height` rows of `width` elements, and returns the view of
    /// their values, to be written whole: they are what was there before.
    pub fn refill<T: RowValue>(&mut self, height: usize, width: usize, ids: &[i64]) -> ViewMut<'_, T> {
        (self.height, self.width, self.dtype, self.distinct) = (height, width, Some(T::ROW_DTYPE), true);
        self.rows.clear();
        self.rows.extend_from_slice(ids);
        let values = T::of_mut(self);
        values.resize(ids.len() * width, T::ZERO);
        ViewMut::new(values, ids.len(), width)
    }

    /// Says that the rows are sorted and distinct.
    pub fn set_merged(&mut self) {
        self.distinct = true;
    }

    fn check<T: RowValue>(&self) -> Result<()> {
        if self.dtype == Some(T::ROW_DTYPE) {
            return Ok(());
        }
        let got = self.dtype.map_or("nothing".to_owned(), |d| d.to_string());
        Err(Error::new("selected rows", T::ROW_DTYPE.to_string(), got))
    }
}
