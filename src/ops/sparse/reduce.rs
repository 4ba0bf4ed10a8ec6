//! Sums and means of sparse variables, and `sum_rows` of variables in any storage.

use super::entrywise::numbers;
use super::samples::of_storages;
use super::twin::twins;
use crate::operator::Kernel;
use crate::ops::feature::reduce::{self, Reduction};
use crate::ops::prelude::*;

/// Slot numbers of `x` and `out`, in all operators of this file.
const X: usize = 0;
const OUT: usize = 0;

/// A [`Reduction`] as function pointers, so that the loops over storages are compiled once for all reductions.
#[derive(Clone, Copy)]
struct Reduce<T> {
    /// Reduces rows to one number. The arguments are the stored numbers of each row, and `n`, the count of all elements in the
    /// rows, stored or not.
    reduce: fn(&mut dyn Iterator<Item = &[T]>, usize) -> T,
    /// Returns the derivative of the result with respect to any one of the `n` elements.
    slope: fn(usize) -> T,
}

impl<T: Float> Reduce<T> {
    fn of<R: Reduction>() -> Self {
        Self { reduce: |rows, n| R::reduce(rows, n), slope: |n| R::slope(0, n, 0) }
    }

    /// Reduces a row of `n` numbers; `row` holds only the stored numbers of the row.
    fn of_row(self, row: &[T], n: usize) -> T {
        (self.reduce)(&mut [row].into_iter(), n)
    }
}

/// The methods of [`OnSparse`] for a reduction of all numbers to one number.
macro_rules! whole_methods {
    (() ()) => {
        fn facts(&self) -> Facts {
            Facts::batch_wide(LodEffect::Drops)
        }

        fn hints(&self) -> Hints {
            Hints { total: Self::TOTAL, ..Hints::default() }
        }

        fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
            s.set(OUT, Spec::fixed(s.input(X).dtype, &[])?);
            Ok(())
        }

        fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
            with_float!(run.dtype(X), T => whole(run, Reduce::<T>::of::<Self>()))
        }

        fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
            with_float!(run.dtype(X), T => whole_gradient(run, Reduce::<T>::of::<Self>()))
        }

        #[cfg(feature = "testing")]
        fn samples() -> Result<Vec<CheckCase>> {
            of_storages(&Attributes::new(), &Ok)
        }
    };
}

fn whole<T: RowValue>(run: &mut Forward<'_>, reduction: Reduce<T>) -> Result<()> {
    let mut out = run.output::<T>(OUT)?;
    if let Some(x) = run.csr(X) {
        let values = x.values::<T>()?;
        let mut rows = x.indptr().windows(2).map(|pair| &values[pair[0] as usize..pair[1] as usize]);
        out.fill((reduction.reduce)(&mut rows, count(x.rows(), x.columns())?));
    }
    if let Some(x) = run.rows(X) {
        let mut rows = numbers::<T>(None, Some(x))?.chunks_exact(x.width().max(1));
        out.fill((reduction.reduce)(&mut rows, count(x.height(), x.width())?));
    }
    Ok(())
}

fn whole_gradient<T: RowValue>(run: &mut Backward<'_>, reduction: Reduce<T>) -> Result<()> {
    let Some(dout) = run.output_gradient::<T>(OUT)? else { return Ok(()) };
    run.fill_gradient::<T>(X, 0, |run, dx, assign| {
        let n = match (run.csr(X), run.rows(X)) {
            (Some(x), _) => count(x.rows(), x.columns())?,
            (None, x) => x.map_or(Ok(0), |x| count(x.height(), x.width()))?,
        };
        let g = dout.row(0)[0] * (reduction.slope)(n);
        dx.iter_mut().for_each(|dx| assign.put(dx, g));
        Ok(())
    })?;
    Ok(())
}

/// The methods of [`OnSparse`] for a reduction of each row: one number per row of a sparse matrix, one number per stored row of
/// selected rows.
macro_rules! per_row_methods {
    (() ()) => {
        fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
            let x = s.input(X);
            let storage = match x.storage {
                StorageKind::SelectedRows => StorageKind::SelectedRows,
                _ => StorageKind::Dense,
            };
            s.set(OUT, x.with_width(1).stored(storage));
            Ok(())
        }

        fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
            with_float!(run.dtype(X), T => per_row(run, Reduce::<T>::of::<Self>()))
        }

        fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
            with_float!(run.dtype(X), T => per_row_gradient(run, Reduce::<T>::of::<Self>()))
        }

        #[cfg(feature = "testing")]
        fn samples() -> Result<Vec<CheckCase>> {
            of_storages(&Attributes::new(), &Ok)
        }
    };
}

fn per_row<T: RowValue>(run: &mut Forward<'_>, reduction: Reduce<T>) -> Result<()> {
    if run.rows(X).is_some() {
        return run.fill_rows(OUT, |run, out| {
            let Some(x) = run.rows(X) else { return Ok(()) };
            out.reset::<T>(x.height(), 1);
            let rows = numbers::<T>(None, Some(x))?.chunks_exact(x.width().max(1));
            for (&id, row) in x.ids().iter().zip(rows) {
                out.push(id, &[reduction.of_row(row, x.width())]);
            }
            out.set_merged();
            Ok(())
        });
    }
    let mut out = run.output::<T>(OUT)?;
    let Some(x) = run.csr(X) else { return Ok(()) };
    let values = x.values::<T>()?;
    for (out, pair) in out.iter_mut().zip(x.indptr().windows(2)) {
        out.fill(reduction.of_row(&values[pair[0] as usize..pair[1] as usize], x.columns()));
    }
    Ok(())
}

fn per_row_gradient<T: RowValue>(run: &mut Backward<'_>, reduction: Reduce<T>) -> Result<()> {
    let dense = run.output_spec(OUT).storage == StorageKind::Dense;
    let dout = if dense { run.output_gradient::<T>(OUT)? } else { None };
    run.fill_gradient::<T>(X, 0, |run, dx, assign| {
        if let (Some(x), Some(dout)) = (run.csr(X), dout) {
            let slope = (reduction.slope)(x.columns());
            for (pair, g) in x.indptr().windows(2).zip(dout.iter()) {
                let g = g[0] * slope;
                dx[pair[0] as usize..pair[1] as usize].iter_mut().for_each(|dx| assign.put(dx, g));
            }
        }
        if let Some(x) = run.rows(X) {
            let slope = (reduction.slope)(x.width());
            let dout = numbers::<T>(None, run.output_gradient_rows(OUT))?;
            for (dx, &g) in dx.chunks_exact_mut(x.width().max(1)).zip(dout) {
                dx.iter_mut().for_each(|dx| assign.put(dx, g * slope));
            }
        }
        Ok(())
    })?;
    Ok(())
}

const KERNELS: &[Kernel] = &[&[CSR], &[ROWS]];

twins! {
    WHOLE: whole_methods, inputs ["x"],
    "a csr, coo or selected-rows `x`, in which a number that is not stored counts as 0. The result is one dense number.", "";
    reduce::Sum = "sparse_sum" of "sum" () KERNELS, ();
    reduce::Mean = "sparse_mean" of "mean" () KERNELS, ();
}

twins! {
    PER_ROW: per_row_methods, inputs ["x"],
    "a csr, coo or selected-rows `x`, in which a number that is not stored counts as 0. For a csr or coo matrix, the result is \
    dense, with one number per row; for selected rows, the same rows with one number each.", "";
    reduce::SumFeatures = "sparse_sum_features" of "sum_features" () KERNELS, ();
    reduce::MeanFeatures = "sparse_mean_features" of "mean_features" () KERNELS, ();
}

operator! {
    /// Sums all rows of the batch, out_j = Σ_i x_ij, for any LoD and storage. The result is one dense row without a LoD. The
    /// numbers of a column are added up first to last, in f64. If x holds only 0 and 1, `sum_rows` counts the rows with a 1 in
    /// each column, such as the document frequency of each word.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::Csr;
    /// use unpadded::{Variable, ops};
    /// let op = ops::catalogue().parse("sum_rows", &Attributes::new())?;
    /// let bags = Variable::new(Csr::new([2, 3], vec![0, 1, 3], vec![2, 0, 2], array![3.0, 1.0, 5.0])?, None)?;
    /// let out = op.call(&[Operand::batch("x", bags)])?;
    /// assert_eq!((out[0].as_slice::<f64>()?, out[0].shape()), ([1.0, 0.0, 8.0].as_slice(), [3].as_slice()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats.
    pub(in crate::ops) struct SumRows = sum_rows {}
    inputs { X = x: one }
    kernels { [DENSE], [CSR], [ROWS] }
    outputs { OUT = out: one }
    impl Builder, Var { fn sum_rows(&self, x: Var) -> Var; }
}

impl Op for SumRows {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        CallMemory::default().scratch::<Sums>(sizes.output(OUT).1 * size_of::<f64>())
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        let x = s.input(X);
        // A constant vector counts as a matrix of one row.
        let row = if x.shape.len() > 1 { &x.shape[1..] } else { x.row_shape() };
        let dims: Vec<usize> = row.iter().filter_map(|extent| extent.known()).collect();
        s.set(OUT, Spec::fixed(x.dtype, &dims)?);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let mut out = run.output::<T>(OUT)?;
            let mut sums = std::mem::take(run.scratch().get::<Sums>());
            sums.0.clear();
            sums.0.resize(out.width(), 0.0);
            let add = |sums: &mut Sums, row: &[T]| {
                sums.0.iter_mut().zip(row).for_each(|(sum, x)| *sum += x.to_f64());
            };
            if let Some(x) = run.csr(X) {
                for (&column, x) in x.indices().iter().zip(x.values::<T>()?) {
                    sums.0[column as usize] += x.to_f64();
                }
            } else if let Some(x) = run.rows(X) {
                let rows = numbers::<T>(None, Some(x))?.chunks_exact(x.width().max(1));
                rows.for_each(|row| add(&mut sums, row));
            } else {
                run.input::<T>(X)?.iter().for_each(|row| add(&mut sums, row));
            }
            out.row(0).iter_mut().zip(&sums.0).for_each(|(out, &sum)| *out = T::from_f64(sum));
            *run.scratch().get() = sums;
            Ok(())
        })
    }

    fn gradient(&self, _: usize, inputs: &[Vec<Spec>]) -> Gradient {
        let dense = inputs[X][0].storage == StorageKind::Dense;
        if dense { Gradient::reads_nothing() } else { Gradient::reads_nothing().input(X) }
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let Some(dout) = run.output_gradient::<T>(OUT)? else { return Ok(()) };
            let dout = dout.row(0);
            if let Some((mut dx, assign)) = run.gradient::<T>(X)? {
                dx.iter_mut().for_each(|dx| assign.put_row(dx, dout));
                return Ok(());
            }
            run.fill_gradient::<T>(X, 0, |run, dx, assign| {
                match run.csr(X) {
                    Some(x) => {
                        let columns = dx.iter_mut().zip(x.indices());
                        columns.for_each(|(dx, &column)| assign.put(dx, dout[column as usize]));
                    }
                    None => {
                        let rows = dx.chunks_exact_mut(dout.len().max(1));
                        rows.for_each(|dx| assign.put_row(dx, dout));
                    }
                }
                Ok(())
            })?;
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = CheckCase::of_rows(&Attributes::new(), 3, |sample, _| Ok(sample))?;
        let vector = CheckCase::new("a vector", Attributes::new());
        samples.push(vector.constant("x", array![0.5, -1.5, 2.0]));
        samples.extend(of_storages(&Attributes::new(), &Ok)?);
        Ok(samples)
    }
}

/// Scratch memory: one sum per column of x.
#[derive(Default)]
struct Sums(Vec<f64>);

/// Returns the number of elements of x, rows · width; returns an error if the product overflows.
fn count(rows: usize, width: usize) -> Result<usize> {
    rows.checked_mul(width).ok_or_else(|| {
        Error::new("numbers of `x`", "as many as can be counted", format!("{rows} rows of {width}"))
    })
}
