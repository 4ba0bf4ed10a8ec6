//! Dense tensors: an ndarray array of numbers of one [`DType`], always in standard (row-major) layout.

mod arithmetic;
mod serial;

use std::ops::Range;

use half::{bf16, f16};
use ndarray::{Array, ArrayD, ArrayViewD, ArrayViewMutD, Dimension, IxDyn};

pub(super) use arithmetic::{Combine, Pair};

use super::dtype::sealed::Sealed;
use super::dtype::{DType, Element, Number};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::reserve;

/// A dense tensor of any dtype and rank. The first dimension is the number of rows.
///
/// The numbers are in standard layout, so that all numbers can be borrowed as one slice. Making a tensor from an array
/// of another layout copies the array.
///
/// ```
/// use ndarray::array;
/// use unpadded::DType;
/// use unpadded::tensor::Dense;
/// let x = Dense::from(array![[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]]);
/// assert_eq!((x.dtype(), x.rows(), x.width()), (DType::F32, 3, 2));
/// assert_eq!(x.gather_rows(&[2, 0])?.as_slice::<f32>()?, [5.0, 6.0, 1.0, 2.0]);
/// assert!(x.view::<f64>().is_err()); // no conversion without `cast`
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Clone)]
pub struct Dense(Data);

#[derive(Clone)]
pub(crate) enum Data {
    F32(ArrayD<f32>),
    F64(ArrayD<f64>),
    I8(ArrayD<i8>),
    I16(ArrayD<i16>),
    I32(ArrayD<i32>),
    I64(ArrayD<i64>),
    Bool(ArrayD<bool>),
    F16(ArrayD<f16>),
    BF16(ArrayD<bf16>),
}

/// Evaluates `$body` for `$data` of any dtype; `$array` is the array with the Rust type of the numbers.
macro_rules! each {
    ($data:expr, $array:ident => $body:expr) => {
        match $data {
            Data::F32($array) => $body,
            Data::F64($array) => $body,
            Data::I8($array) => $body,
            Data::I16($array) => $body,
            Data::I32($array) => $body,
            Data::I64($array) => $body,
            Data::Bool($array) => $body,
            Data::F16($array) => $body,
            Data::BF16($array) => $body,
        }
    };
}

/// Evaluates `$body` for a dtype, with `$t` as the Rust type of the dtype.
macro_rules! for_dtype {
    ($dtype:expr, $t:ident => $body:expr) => {{
        macro_rules! arm {
            ($rust:ty) => {{
                type $t = $rust;
                $body
            }};
        }
        match $dtype {
            DType::F32 => arm!(f32),
            DType::F64 => arm!(f64),
            DType::I8 => arm!(i8),
            DType::I16 => arm!(i16),
            DType::I32 => arm!(i32),
            DType::I64 => arm!(i64),
            DType::Bool => arm!(bool),
            DType::F16 => arm!(f16),
            DType::BF16 => arm!(bf16),
        }
    }};
}

impl Dense {
    /// Makes a tensor of shape `shape` from its numbers in row-major order.
    ///
    /// # Errors
    /// Fails if the length of `numbers` is not the product of the extents, or if the shape is too large for memory.
    #[track_caller]
    pub fn from_vec<T: Element>(shape: &[usize], numbers: Vec<T>) -> Result<Self> {
        let (given, places) = (numbers.len(), elements(shape, T::DTYPE).at_caller()?);
        match ArrayD::from_shape_vec(IxDyn(shape), numbers) {
            Ok(array) => Ok(Self(T::wrap(array))),
            Err(_) => {
                let what = format!("numbers of shape {shape:?}");
                Err(Error::new(what, places.to_string(), given.to_string()))
            }
        }
    }

    /// Makes a tensor of zeros; a zero of bool is `false`.
    ///
    /// # Errors
    /// Fails if the shape is too large for memory; the process is not aborted.
    #[track_caller]
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Self> {
        let n = elements(shape, dtype).at_caller()?;
        for_dtype!(dtype, T => Self::from_vec(shape, blank::<T>(n).at_caller()?))
    }

    /// Returns the dtype of the numbers.
    pub fn dtype(&self) -> DType {
        match self.0 {
            Data::F32(_) => DType::F32,
            Data::F64(_) => DType::F64,
            Data::I8(_) => DType::I8,
            Data::I16(_) => DType::I16,
            Data::I32(_) => DType::I32,
            Data::I64(_) => DType::I64,
            Data::Bool(_) => DType::Bool,
            Data::F16(_) => DType::F16,
            Data::BF16(_) => DType::BF16,
        }
    }

    /// Returns the shape: the extent of each dimension. The first extent is the number of rows; the shape of a single
    /// number is empty.
    pub fn shape(&self) -> &[usize] {
        each!(&self.0, array => array.shape())
    }

    /// Returns the number of rows: the first extent; 1 for a single number without dimensions.
    pub fn rows(&self) -> usize {
        self.shape().first().copied().unwrap_or(1)
    }

    /// Returns the width: the number of elements per row, which is the product of all extents but the first.
    pub fn width(&self) -> usize {
        self.shape().iter().skip(1).product()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        each!(&self.0, array => array.len())
    }

    /// Returns whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Borrows the numbers as an ndarray view.
    ///
    /// # Errors
    /// Fails if `T` is not the Rust type of the tensor's dtype.
    #[track_caller]
    pub fn view<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
        self.typed().map(|array| array.view()).at_caller()
    }

    /// Borrows the numbers as a mutable ndarray view.
    ///
    /// # Errors
    /// Fails if `T` is not the Rust type of the tensor's dtype.
    #[track_caller]
    pub fn view_mut<T: Element>(&mut self) -> Result<ArrayViewMutD<'_, T>> {
        self.typed_mut().map(|array| array.view_mut()).at_caller()
    }

    /// Borrows the numbers as a slice, in row-major order.
    ///
    /// # Errors
    /// Fails if `T` is not the Rust type of the tensor's dtype.
    #[track_caller]
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.typed().at_caller()?.as_slice().ok_or_else(layout).at_caller()
    }

    /// Borrows the numbers as a mutable slice, in row-major order.
    ///
    /// # Errors
    /// Fails if `T` is not the Rust type of the tensor's dtype.
    #[track_caller]
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        self.typed_mut().at_caller()?.as_slice_mut().ok_or_else(layout).at_caller()
    }

    /// Converts the tensor to an ndarray array, without a copy.
    ///
    /// # Errors
    /// Fails if `T` is not the Rust type of the tensor's dtype.
    #[track_caller]
    pub fn into_array<T: Element>(self) -> Result<ArrayD<T>> {
        T::unwrap(self.0).map_err(|data| Self(data).wrong_dtype::<T>()).at_caller()
    }

    /// Reshapes the tensor, without a copy.
    ///
    /// # Errors
    /// Fails if the product of the new extents is not the number of elements.
    #[track_caller]
    pub fn reshape(self, shape: &[usize]) -> Result<Self> {
        let places = elements(shape, self.dtype()).at_caller()?;
        if places != self.len() {
            let what = format!("reshape from {:?} to {shape:?}", self.shape());
            return Err(Error::new(what, format!("{} places", self.len()), places.to_string()));
        }
        each!(self.0, array => Ok(Self(Sealed::wrap(array.into_shape_with_order(shape).map_err(|_| layout())?))))
    }

    /// Converts the numbers to another dtype. In a narrower float dtype, a number becomes the nearest float. In an
    /// integer dtype, a number beyond the range becomes the nearest bound, and NaN becomes 0. A bool becomes 0 or 1.
    /// In the dtype bool, any number except 0 becomes true.
    #[must_use]
    pub fn cast(&self, dtype: DType) -> Self {
        if dtype == self.dtype() {
            return self.clone();
        }
        let mut out = for_dtype!(dtype, T => Self(T::wrap(ArrayD::default(self.shape()))));
        // A piece of the tensor is read into an array of `Number`, then written in the new dtype. Each dtype therefore
        // needs one loop that reads and one loop that writes, instead of a loop for each pair of dtypes.
        let mut piece = [Number::Integer(0); 256];
        for start in (0..self.len()).step_by(piece.len()) {
            let numbers = &mut piece[..(self.len() - start).min(256)];
            self.read_numbers_from(start, numbers);
            out.write_numbers_from(start, numbers);
        }
        out
    }

    fn read_numbers_from(&self, start: usize, to: &mut [Number]) {
        each!(&self.0, array => {
            let from = array.as_slice().unwrap_or(&[]);
            for (to, x) in to.iter_mut().zip(&from[start..]) {
                *to = x.number();
            }
        });
    }

    fn write_numbers_from(&mut self, start: usize, from: &[Number]) {
        for_dtype!(self.dtype(), T => {
            let to = T::get_mut(&mut self.0).and_then(|array| array.as_slice_mut()).unwrap_or(&mut []);
            for (to, &x) in to[start..].iter_mut().zip(from) {
                *to = T::from_number(x);
            }
        });
    }

    /// Makes a tensor of the listed rows, in the listed order; a row may be listed repeatedly.
    ///
    /// # Errors
    /// Fails if a row number is not less than [`Dense::rows`], if the tensor has no dimensions, or if the result is too
    /// large for memory.
    #[doc(alias = "take")]
    #[doc(alias = "index_select")]
    #[track_caller]
    pub fn gather_rows(&self, rows: &[usize]) -> Result<Self> {
        let shape = self.with_rows(rows.len()).at_caller()?;
        if let Some(index) = rows.iter().position(|&row| row >= self.rows()) {
            let what = format!("row number at place {index}");
            return Err(Error::new(what, format!("below {}", self.rows()), rows[index].to_string()));
        }
        let w = self.width();
        each!(&self.0, array => {
            let from = array.as_slice().ok_or_else(layout).at_caller()?;
            let mut numbers = reserved(elements(&shape, self.dtype()).at_caller()?).at_caller()?;
            rows.iter().for_each(|&row| numbers.extend_from_slice(&from[row * w..(row + 1) * w]));
            Self::from_vec(&shape, numbers)
        })
    }

    /// Slices the rows: copies the rows in a range.
    ///
    /// # Errors
    /// Fails if the range ends before it starts or beyond the last row, or if the tensor has no dimensions.
    #[track_caller]
    pub fn slice_rows(&self, part: Range<usize>) -> Result<Self> {
        if part.start > part.end || part.end > self.rows() {
            let expected = format!("a range within 0..{}", self.rows());
            return Err(Error::new("rows to slice", expected, format!("{part:?}")));
        }
        let (shape, w) = (self.with_rows(part.len()).at_caller()?, self.width());
        each!(&self.0, array => {
            let from = array.as_slice().ok_or_else(layout).at_caller()?;
            Self::from_vec(&shape, from[part.start * w..part.end * w].to_vec())
        })
    }

    /// Concatenates the rows of tensors.
    ///
    /// # Errors
    /// Fails if `parts` is empty, or if tensors differ in dtype or in an extent other than the first.
    #[doc(alias = "concatenate")]
    #[track_caller]
    pub fn concat_rows(parts: &[&Dense]) -> Result<Self> {
        let Some((first, rest)) = parts.split_first() else {
            return Err(Error::new("tensors to concatenate", "at least one", "none"));
        };
        let mut rows = first.rows();
        for (i, part) in rest.iter().enumerate() {
            let fits = part.dtype() == first.dtype() && part.shape().get(1..) == first.shape().get(1..);
            if !fits {
                let expected = format!("{} {:?} (the first extent may differ)", first.dtype(), first.shape());
                let got = format!("{} {:?}", part.dtype(), part.shape());
                return Err(Error::new(format!("tensor {} to concatenate", i + 1), expected, got));
            }
            rows = rows.saturating_add(part.rows());
        }
        let shape = first.with_rows(rows).at_caller()?;
        for_dtype!(first.dtype(), T => {
            let mut numbers = reserved(elements(&shape, T::DTYPE).at_caller()?).at_caller()?;
            for part in parts {
                numbers.extend_from_slice(part.as_slice::<T>()?);
            }
            Self::from_vec(&shape, numbers)
        })
    }

    /// Finds the first float that satisfies a predicate; returns the position in row-major order, and the float.
    pub(crate) fn find_float(&self, so: fn(f64) -> bool) -> Option<(usize, f64)> {
        fn first<T: Copy + Into<f64>>(all: &ArrayD<T>, so: fn(f64) -> bool) -> Option<(usize, f64)> {
            for (index, &x) in all.as_slice()?.iter().enumerate() {
                if so(x.into()) {
                    return Some((index, x.into()));
                }
            }
            None
        }
        match &self.0 {
            Data::F32(all) => first(all, so),
            Data::F64(all) => first(all, so),
            Data::F16(all) => first(all, so),
            Data::BF16(all) => first(all, so),
            _ => None,
        }
    }

    /// Checks that no number of the tensor is NaN or infinite.
    ///
    /// # Errors
    /// Fails if a number is NaN or infinite. The message has the name of the tensor, `what`, and the index and the
    /// value of the number.
    pub(crate) fn check_finite(&self, what: &str) -> Result<()> {
        let Some((mut position, number)) = self.find_float(|x| !x.is_finite()) else { return Ok(()) };
        let mut index = vec![0; self.shape().len()];
        for (i, &size) in index.iter_mut().zip(self.shape()).rev() {
            (*i, position) = (position % size, position / size);
        }
        Err(Error::of(ErrorKind::NotFinite, what, "finite numbers", format!("{number} at {index:?}")))
    }

    /// Returns whether dtype, shape and every bit of both tensors are equal. Unlike in `==`, NaN equals a NaN of equal
    /// bits, and 0 differs from -0.
    pub fn bits_eq(&self, other: &Dense) -> bool {
        each!(&self.0, array => match alike(array, other) {
            Some((a, b)) => a.iter().zip(b).all(|(a, b)| a.bits() == b.bits()),
            None => false,
        })
    }

    /// Adds up runs of rows. `order` has the indices of the rows; a run is a part of `order` in which `same` is true
    /// for all neighbors, and which cannot be extended. Returns the sum of each run as a row, and the index of each
    /// run's first row. 16-bit floats are added in `f32`, integers wrap around, and the sum of bools is "or".
    pub(super) fn sum_runs(
        &self,
        order: &[usize],
        same: &dyn Fn(usize, usize) -> bool,
    ) -> Result<(Self, Vec<usize>)> {
        let runs: Vec<&[usize]> = order.chunk_by(|&a, &b| same(a, b)).collect();
        let heads = runs.iter().map(|run| run[0]).collect();
        let (shape, w) = (self.with_rows(runs.len())?, self.width());
        let sums = for_dtype!(self.dtype(), T => {
            let from = self.as_slice::<T>()?;
            let mut numbers: Vec<T> = reserved(elements(&shape, T::DTYPE)?)?;
            for run in runs {
                for column in 0..w {
                    let mut sum = from[run[0] * w + column].summand();
                    for row in &run[1..] {
                        sum = T::add(sum, from[row * w + column]);
                    }
                    numbers.push(T::narrow(sum));
                }
            }
            Self::from_vec(&shape, numbers)?
        });
        Ok((sums, heads))
    }

    /// Returns a tensor of shape `shape` in which row *i* of this tensor is row `at[i]`, and all other rows are zeros.
    /// The rows of both tensors have the same width.
    pub(super) fn scatter(&self, at: &mut dyn Iterator<Item = usize>, shape: &[usize]) -> Result<Self> {
        let (mut out, w) = (Self::zeros(self.dtype(), shape)?, self.width());
        for_dtype!(self.dtype(), T => {
            let (from, to) = (self.as_slice::<T>()?, out.as_mut_slice::<T>()?);
            for (row, index) in at.enumerate() {
                to[index * w..(index + 1) * w].copy_from_slice(&from[row * w..(row + 1) * w]);
            }
        });
        Ok(out)
    }

    /// Returns the indices of the rows in which at least one number is not 0.
    pub(super) fn nonzero_rows(&self) -> Result<Vec<usize>> {
        let w = self.width();
        for_dtype!(self.dtype(), T => {
            let from = self.as_slice::<T>()?;
            let nonzero = |row: &usize| from[row * w..(row + 1) * w].iter().any(|&x| x != T::default());
            Ok(if w == 0 { Vec::new() } else { (0..self.rows()).filter(nonzero).collect() })
        })
    }

    /// Returns the shape of this tensor with the first extent `rows`; an error if the tensor has no dimensions.
    fn with_rows(&self, rows: usize) -> Result<Vec<usize>> {
        let mut shape = self.shape().to_vec();
        match shape.first_mut() {
            Some(first) => *first = rows,
            None => return Err(Error::new("rows of a tensor", "at least one dimension", "shape []")),
        }
        Ok(shape)
    }

    fn typed<T: Element>(&self) -> Result<&ArrayD<T>> {
        T::get(&self.0).ok_or_else(|| self.wrong_dtype::<T>())
    }

    fn typed_mut<T: Element>(&mut self) -> Result<&mut ArrayD<T>> {
        let got = self.dtype();
        T::get_mut(&mut self.0).ok_or_else(|| Error::new("dtype", T::DTYPE.name(), got.name()))
    }

    fn wrong_dtype<T: Element>(&self) -> Error {
        Error::new("dtype", T::DTYPE.name(), self.dtype().name())
    }
}

/// Returns the number of elements of a tensor of this shape; an error if the size in bytes exceeds `isize::MAX`. As in
/// ndarray, this check ignores extents of 0.
pub(crate) fn elements(shape: &[usize], dtype: DType) -> Result<usize> {
    let nonzero = shape.iter().filter(|&&extent| extent != 0);
    let bytes = nonzero.copied().try_fold(dtype.size_of(), usize::checked_mul);
    match bytes {
        Some(bytes) if isize::try_from(bytes).is_ok() => Ok(shape.iter().product()),
        _ => {
            Err(Error::new("shape", format!("at most {} bytes", isize::MAX), format!("{shape:?} of {dtype}")))
        }
    }
}

/// Returns an empty vector with capacity `n`; if memory is short, an error instead of an abort.
fn reserved<T>(n: usize) -> Result<Vec<T>> {
    let mut vector = Vec::new();
    match reserve::fits_exactly(&mut vector, n) {
        true => Ok(vector),
        false => Err(Error::new("tensor", "a size that fits into memory", format!("{n} numbers"))),
    }
}

/// Returns a vector of `n` zeros. The memory for a large vector is first reserved and freed again, so that too little
/// memory is an error and not an abort. Then `vec!` allocates memory that the system has zeroed.
fn blank<T: Element>(n: usize) -> Result<Vec<T>> {
    if n >= 1 << 20 {
        drop(reserved::<T>(n)?);
    }
    Ok(vec![T::default(); n])
}

fn layout() -> Error {
    Error::new("tensor", "standard layout", "strides")
}

/// Returns the numbers of both tensors if dtype and shape are equal; else `None`.
fn alike<'a, T: Element>(a: &'a ArrayD<T>, b: &'a Dense) -> Option<(&'a [T], &'a [T])> {
    let b = T::get(&b.0).filter(|b| a.shape() == b.shape())?;
    a.as_slice().zip(b.as_slice())
}

/// Two tensors are equal if dtype, shape and all numbers are equal.
impl PartialEq for Dense {
    fn eq(&self, other: &Self) -> bool {
        each!(&self.0, array => alike(array, other).is_some_and(|(a, b)| a == b))
    }
}

impl<T: Element, D: Dimension> From<Array<T, D>> for Dense {
    fn from(array: Array<T, D>) -> Self {
        let array = if array.is_standard_layout() { array } else { array.as_standard_layout().into_owned() };
        Self(T::wrap(array.into_dyn()))
    }
}

impl<T: Element, D: Dimension> TryFrom<Dense> for Array<T, D> {
    type Error = Error;

    #[track_caller]
    fn try_from(dense: Dense) -> Result<Self> {
        let array = dense.into_array::<T>()?;
        let got = format!("shape {:?}", array.shape());
        let expected = || format!("{} dimensions", D::NDIM.unwrap_or(0));
        array.into_dimensionality().map_err(|_| Error::new("array", expected(), got)).at_caller()
    }
}

#[cfg(test)]
mod tests;
