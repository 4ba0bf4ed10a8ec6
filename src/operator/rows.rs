//! Buffers for selected rows while a program runs; the memory of a buffer is reused from step to step.

use crate::error::{AtCaller, Error, Result};
use crate::kernels::arena::Plain;
use crate::kernels::{Float, View, ViewMut};
use crate::tensor::DType;

/// A vector of f32 or of f64 numbers. Emptying the vector keeps the memory for both dtypes.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    dtype: Option<DType>,
    f32: Vec<f32>,
    f64: Vec<f64>,
}

impl Numbers {
    pub(super) fn allocated(&self) -> usize {
        self.f32.capacity() * size_of::<f32>() + self.f64.capacity() * size_of::<f64>()
    }

    /// Empties the vector, and makes `T` its dtype.
    pub(super) fn reset<T: RowValue>(&mut self) {
        self.dtype = Some(T::ROW_DTYPE);
        self.f32.clear();
        self.f64.clear();
    }

    /// Returns the vector of `T`, and makes `T` the dtype. The vector still has the numbers of type `T` that were stored last.
    fn kept<T: RowValue>(&mut self) -> &mut Vec<T> {
        self.dtype = Some(T::ROW_DTYPE);
        T::of_mut(self)
    }

    /// Returns the dtype; `None` before the first `reset`.
    pub(super) fn dtype(&self) -> Option<DType> {
        self.dtype
    }

    /// Returns the numbers; an error message calls them `what`.
    ///
    /// # Errors
    /// Fails if the numbers have another dtype.
    #[track_caller]
    pub(super) fn get<T: RowValue>(&self, what: &str) -> Result<&Vec<T>> {
        self.check::<T>(what).at_caller()?;
        Ok(T::of(self))
    }

    /// Returns the numbers, to be changed; an error message calls them `what`.
    ///
    /// # Errors
    /// Fails if the numbers have another dtype.
    #[track_caller]
    pub(super) fn get_mut<T: RowValue>(&mut self, what: &str) -> Result<&mut Vec<T>> {
        self.check::<T>(what).at_caller()?;
        Ok(T::of_mut(self))
    }

    /// Returns the size in bytes of the memory that the vector keeps.
    pub(super) fn bytes(&self) -> usize {
        self.f32.capacity() * size_of::<f32>() + self.f64.capacity() * size_of::<f64>()
    }

    fn check<T: RowValue>(&self, what: &str) -> Result<()> {
        if self.dtype == Some(T::ROW_DTYPE) {
            return Ok(());
        }
        let got = self.dtype.map_or("nothing".to_owned(), |d| d.to_string());
        Err(Error::new(what, T::ROW_DTYPE.to_string(), got))
    }
}

/// The float types that selected rows and csr matrices can hold: f32 and f64.
pub trait RowValue: Float + Plain {
    /// The dtype of the float type.
    const ROW_DTYPE: DType;
    #[doc(hidden)]
    fn of(numbers: &Numbers) -> &Vec<Self>;
    #[doc(hidden)]
    fn of_mut(numbers: &mut Numbers) -> &mut Vec<Self>;
}

impl RowValue for f32 {
    const ROW_DTYPE: DType = DType::F32;
    fn of(numbers: &Numbers) -> &Vec<f32> {
        &numbers.f32
    }
    fn of_mut(numbers: &mut Numbers) -> &mut Vec<f32> {
        &mut numbers.f32
    }
}

impl RowValue for f64 {
    const ROW_DTYPE: DType = DType::F64;
    fn of(numbers: &Numbers) -> &Vec<f64> {
        &numbers.f64
    }
    fn of_mut(numbers: &mut Numbers) -> &mut Vec<f64> {
        &mut numbers.f64
    }
}

/// Runs `$body` with `$T` as the name of the type f32 or f64, depending on the dtype. The name `$T` lets `$body` use the
/// constants and methods of the type.
///
/// ```
/// use unpadded::{DType, with_float};
/// fn size<T>() -> unpadded::Result<usize> { Ok(size_of::<T>()) }
/// assert_eq!(with_float!(DType::F64, T => size::<T>()), Ok(8));
/// assert!(with_float!(DType::I64, T => size::<T>()).is_err());
/// ```
#[macro_export]
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::DType::F64 => {
                type $T = f64;
                $body
            }
            other => Err($crate::Error::new("dtype", "f32 or f64", other.to_string())),
        }
    };
}

/// Selected rows: row numbers, which may repeat, and a row of values for each row number. A sparse gradient is stored
/// as selected rows.
#[derive(Debug, Clone, Default)]
pub struct RowBuffer {
    height: usize,
    width: usize,
    rows: Vec<i64>,
    numbers: Numbers,
    distinct: bool,
}

impl RowBuffer {
    /// Empties the buffer, and sets the height and width of the table and the dtype `T`.
    pub fn reset<T: RowValue>(&mut self, height: usize, width: usize) {
        self.height = height;
        self.width = width;
        self.rows.clear();
        self.numbers.reset::<T>();
        self.distinct = true;
    }

    /// Returns the number of rows of the whole table.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Returns the number of elements of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the dtype of the values; `None` before the first `reset`.
    pub(crate) fn dtype(&self) -> Option<DType> {
        self.numbers.dtype()
    }

    /// Returns the row numbers, one per row of values.
    pub fn ids(&self) -> &[i64] {
        &self.rows
    }

    /// Returns whether the row numbers are known to be sorted and distinct. The result is true after
    /// [`Self::set_merged`] or [`Self::refill`], and for a buffer without rows after [`Self::reset`].
    pub(crate) fn merged(&self) -> bool {
        self.distinct
    }

    /// Returns the values: one row for each row number of [`Self::ids`].
    ///
    /// # Errors
    /// Fails if the buffer holds another dtype.
    #[track_caller]
    pub fn values<T: RowValue>(&self) -> Result<View<'_, T>> {
        let numbers = self.numbers.get::<T>(WHAT).at_caller()?;
        Ok(View::new(numbers, self.rows.len(), self.width))
    }

    /// Returns the values, to be changed in place.
    ///
    /// # Errors
    /// Fails if the buffer holds another dtype.
    #[track_caller]
    pub(crate) fn values_mut<T: RowValue>(&mut self) -> Result<ViewMut<'_, T>> {
        let numbers = self.numbers.get_mut::<T>(WHAT).at_caller()?;
        Ok(ViewMut::new(numbers, self.rows.len(), self.width))
    }

    /// Reserves exactly the memory for `rows` more rows.
    pub(crate) fn reserve<T: RowValue>(&mut self, rows: usize) {
        self.rows.reserve_exact(rows);
        T::of_mut(&mut self.numbers).reserve_exact(rows.saturating_mul(self.width));
    }

    /// Appends a row with the row number `id`; a row number may be appended several times.
    pub fn push<T: RowValue>(&mut self, id: i64, row: &[T]) {
        self.rows.push(id);
        T::of_mut(&mut self.numbers).extend_from_slice(row);
        self.distinct = false;
    }

    /// Appends a row of zeros for each row number in `ids`; returns the view of the new rows, to be filled.
    pub fn extend<T: RowValue>(&mut self, ids: impl Iterator<Item = i64>) -> ViewMut<'_, T> {
        let before = self.rows.len();
        self.rows.extend(ids);
        self.distinct = false;
        let (added, width) = (self.rows.len() - before, self.width);
        let values = T::of_mut(&mut self.numbers);
        values.resize((before + added) * width, T::ZERO);
        ViewMut::new(&mut values[before * width..], added, width)
    }

    /// Sets the row numbers to `ids`, which are sorted and distinct, in a table of `height` rows of `width` elements. Returns the
    /// view of the values, which hold old numbers and must be overwritten.
    pub(crate) fn refill<T: RowValue>(&mut self, height: usize, width: usize, ids: &[i64]) -> ViewMut<'_, T> {
        (self.height, self.width, self.distinct) = (height, width, true);
        self.rows.clear();
        self.rows.extend_from_slice(ids);
        let values = self.numbers.kept::<T>();
        values.resize(ids.len() * width, T::ZERO);
        ViewMut::new(values, ids.len(), width)
    }

    pub(super) fn allocated(&self) -> usize {
        self.rows.capacity() * size_of::<i64>() + self.numbers.allocated()
    }

    /// Marks the row numbers as sorted and distinct.
    pub(crate) fn set_merged(&mut self) {
        self.distinct = true;
    }

    /// Returns the values of all rows in order, to be changed in place.
    ///
    /// # Errors
    /// Fails if the buffer holds another dtype.
    pub(crate) fn flat_mut<T: RowValue>(&mut self) -> Result<&mut [T]> {
        self.numbers.get_mut::<T>(WHAT).map(Vec::as_mut_slice)
    }

    /// Copies the row numbers of another buffer; all values become zero.
    pub(crate) fn zeros_at<T: RowValue>(&mut self, like: &RowBuffer) {
        self.reset::<T>(like.height, like.width);
        self.rows.extend_from_slice(&like.rows);
        T::of_mut(&mut self.numbers).resize(like.rows.len() * like.width, T::ZERO);
        self.distinct = like.distinct;
    }

    /// Returns the size in bytes of the row numbers and the values.
    pub(crate) fn bytes(&self) -> usize {
        let size = self.dtype().map_or(0, |dtype| dtype.size_of());
        self.rows.len() * (size_of::<i64>() + self.width * size)
    }
}

/// The name of a `RowBuffer`'s values in messages.
const WHAT: &str = "selected rows";
