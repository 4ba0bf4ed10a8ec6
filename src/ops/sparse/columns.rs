//! The operators `concat` and `slice` on the columns of csr matrices.

use super::among::given;
use crate::ops::prelude::*;

/// Slot numbers of `x` and `out`, in both operators of this file.
const X: usize = 0;
const OUT: usize = 0;

operator! {
    /// Concatenates the columns of csr matrices, row by row: `out_i = [x⁰_i, x¹_i, …]`, as csr.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::{Csr, Storage};
    /// use unpadded::{Variable, ops};
    /// let x = Variable::new(Csr::new([1, 3], vec![0, 1], vec![2], array![5.0])?, None)?;
    /// let op = ops::catalogue().parse("sparse_concat", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x.clone()), Operand::batch("x", x)])?;
    /// let expected = Csr::new([1, 6], vec![0, 2], vec![2, 5], array![5.0, 5.0])?;
    /// assert_eq!(out[0].storage(), &Storage::from(expected));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if there are no variables, or if two variables have different rows or dtypes.
    pub(in crate::ops) struct SparseConcat = sparse_concat {}
    inputs { X = x: many }
    kernels { [CSR] }
    stands_for { "concat" }
    outputs { OUT = out: one }
}

impl Op for SparseConcat {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        let Some(first) = s.optional(X) else {
            return Err(s.mismatch(X, "at least one variable"));
        };
        for (k, x) in s.many(X).iter().enumerate() {
            if x.lod != first.lod || x.shape.first() != first.shape.first() || x.dtype != first.dtype {
                let expected = format!("the dtype, rows and LoD of the first, {first}");
                return Err(Error::new(format!("input `x`[{k}]"), expected, x.to_string()));
            }
        }
        let widths = s.many(X).iter().map(|x| x.width()).try_fold(0, usize::checked_add);
        let width = widths.filter(|&width| i64::try_from(width).is_ok()).ok_or_else(|| {
            Error::new("the widths of `x` together", "a number that can be counted", "more")
        })?;
        s.set(OUT, first.with_width(width).stored(StorageKind::Csr));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => run.fill_csr(OUT, |run, out| {
            let out = out.fill::<T>(run.output_spec(OUT).width());
            out.indptr.push(0);
            for row in 0..given(run.csr(X))?.rows() {
                let mut first = 0;
                for k in 0..run.count(X) {
                    let x = given(run.csr_at(X, k))?.view::<T>()?;
                    let (columns, values) = x.row(row);
                    out.indices.extend(columns.iter().map(|column| first + column));
                    out.values.extend_from_slice(values);
                    first += x.columns() as i64;
                }
                out.indptr.push(out.indices.len() as i64);
            }
            Ok(())
        }))
    }

    gradient_reads!(X);

    fn stored(&self, _: usize) -> StorageBound {
        StorageBound::Together(&[X])
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            for k in 0..run.count(X) {
                run.fill_gradient::<T>(X, k, |run, dx, assign| {
                    let Some(dout) = run.output_gradient_csr(OUT) else { return Ok(()) };
                    let (dout, x) = (dout.view::<T>()?, given(run.csr_at(X, k))?);
                    for (row, part) in x.indptr().windows(2).enumerate() {
                        // In each row of the output, the entries of the variables 0 to k − 1 are before the entries of variable
                        // k.
                        let mut from = 0;
                        for before in 0..k {
                            let indptr = given(run.csr_at(X, before))?.indptr();
                            from += (indptr[row + 1] - indptr[row]) as usize;
                        }
                        let (_, dout) = dout.row(row);
                        let dx = &mut dx[part[0] as usize..part[1] as usize];
                        dx.iter_mut().zip(&dout[from..]).for_each(|(dx, &g)| assign.put(dx, g));
                    }
                    Ok(())
                })?;
            }
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let none = Attributes::new();
        let mut samples = CheckCase::of_csr(&none, 4, |sample, x| {
            let more = |width, salt| Variable::new(sparse_numbers(x.rows(), width, salt)?, x.lod().cloned());
            let batched = sample.operands[0].batched;
            let add = |s: CheckCase, y| if batched { s.batch("x", y) } else { s.constant("x", y) };
            Ok(add(add(sample, more(3, 1)?), more(5, 2)?))
        })?;
        samples.extend(CheckCase::of_csr(&none, 4, |sample, _| Ok(sample))?.into_iter().take(1));
        Ok(samples)
    }
}

operator! {
    /// Slices columns `from` to `to` − 1 out of a csr matrix: out_ij = x_i,from+j, as csr.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::{Csr, Storage};
    /// use unpadded::{Variable, ops};
    /// let x = Variable::new(Csr::new([1, 5], vec![0, 3], vec![0, 2, 4], array![5.0, 6.0, 7.0])?, None)?;
    /// let op = ops::catalogue().parse("sparse_slice", &Attributes::new().with("from", 1usize).with("to", 4usize))?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].storage(), &Storage::from(Csr::new([1, 3], vec![0, 1], vec![1], array![6.0])?));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the range is not within the width of `x`, or `x` holds no floats.
    pub(in crate::ops) struct SparseSlice = sparse_slice { from: usize, to: usize }
    inputs { X = x: one }
    kernels { [CSR] }
    stands_for { "slice" }
    outputs { OUT = out: one }
}

impl SparseSlice {
    /// Returns the range of the entries of a row that have columns in the sliced range; `columns` must ascend.
    fn part(&self, columns: &[i64]) -> std::ops::Range<usize> {
        let below = |limit: usize| columns.partition_point(|&column| (column as usize) < limit);
        below(self.from)..below(self.to)
    }
}

impl Op for SparseSlice {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        let (x, SparseSlice { from, to }) = (s.input(X), self);
        if from > to || *to > x.width() {
            return Err(s.mismatch(X, &format!("rows that have the columns {from}..{to}")));
        }
        s.set(OUT, x.with_width(to - from));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => run.fill_csr(OUT, |run, out| {
            let (x, out) = (given(run.csr(X))?.view::<T>()?, out.fill::<T>(self.to - self.from));
            out.indptr.push(0);
            for row in 0..x.rows() {
                let (columns, values) = x.row(row);
                let part = self.part(columns);
                out.indices.extend(columns[part.clone()].iter().map(|column| column - self.from as i64));
                out.values.extend_from_slice(&values[part]);
                out.indptr.push(out.indices.len() as i64);
            }
            Ok(())
        }))
    }

    gradient_reads!(X);

    fn stored(&self, _: usize) -> StorageBound {
        StorageBound::Together(&[X])
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            run.fill_gradient::<T>(X, 0, |run, dx, assign| {
                let Some(dout) = run.output_gradient_csr(OUT) else { return Ok(()) };
                let (dout, x) = (dout.view::<T>()?, given(run.csr(X))?);
                for (row, pair) in x.indptr().windows(2).enumerate() {
                    let entries = pair[0] as usize..pair[1] as usize;
                    let part = self.part(&x.indices()[entries.clone()]);
                    let dx = &mut dx[entries];
                    // The entries outside of the slice have the gradient 0, so the numbers of these entries in dx are
                    // not changed.
                    assign.put_row(&mut dx[part], dout.row(row).1);
                }
                Ok(())
            })?;
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let range = |from, to| SparseSlice { from, to }.attributes();
        let mut samples = CheckCase::of_csr(&range(1, 3), 5, |sample, _| Ok(sample))?;
        samples.extend(CheckCase::of_csr(&range(2, 2), 5, |sample, _| Ok(sample))?.into_iter().take(1));
        Ok(samples)
    }
}
