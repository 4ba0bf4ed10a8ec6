//! `take_rows`: gathers rows of a sparse matrix by ids.

use super::among::values;
use crate::ops::lookup::ids::{self, Ids};
use crate::ops::prelude::*;
use crate::tensor::SelectedRows;

operator! {
    /// Gathers the rows of `x` at `ids`, which may be repeated: out_i = x\[ids_i\]. The output is csr, with the rows and the
    /// LoD of `ids`.
    ///
    /// `x` is csr or selected rows. A csr `x` is a constant of fixed height, or a variable of the batch; the rows of a batch
    /// are numbered from 0 through all sequences. If `x` is selected rows, a row of the output has an entry in every column if
    /// `x` stores the row, else no entries. `ids` holds one whole number per row. `x` has a gradient at its stored numbers
    /// only; the gradients of output rows with equal ids are summed.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::{Csr, Storage};
    /// use unpadded::{Variable, ops};
    /// let x = Variable::new(Csr::new([2, 3], vec![0, 2, 3], vec![0, 2, 1], array![1.0, 2.0, 3.0])?, None)?;
    /// let op = ops::catalogue().parse("take_rows", &Attributes::new())?;
    /// let ids = Operand::batch("ids", array![1i64, 0, 1]);
    /// let out = op.clone().call(&[ids, Operand::constant("x", x.clone())])?;
    /// let expected = Csr::new([3, 3], vec![0, 1, 3, 4], vec![1, 0, 2, 1], array![3.0, 1.0, 2.0, 3.0])?;
    /// assert_eq!(out[0].storage(), &Storage::from(expected));
    ///
    /// let error = op.call(&[Operand::batch("ids", array![0i64, 2]), Operand::constant("x", x)]).unwrap_err();
    /// let message = "id of sample 1: expected at least 0 and below 2, the height, got 2";
    /// assert!(error.to_string().contains(message), "{error}");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `ids` does not hold one whole number per row, or `x` is not a sparse matrix of floats.
    #[doc(alias = "gather")]
    pub(in crate::ops) struct TakeRows = take_rows { of_batch: bool = false }
    inputs { IDS = ids: one.without_gradient(), X = x: one }
    kernels { [DENSE, CSR], [DENSE, ROWS] }
    outputs { OUT = out: one }
    impl Builder, Var {
        fn take_rows(&self, x: Var, ids: Var) -> Var {
            let of_batch = self.spec(x).is_some_and(|x| x.batched());
        }
    }
}

impl Op for TakeRows {
    fn facts(&self) -> Facts {
        match self.of_batch {
            // An id is the number of a row in the whole batch, so the output for a sequence depends on all sequences of
            // the batch.
            true => Facts { batch_dependent: true, ..Facts::batch_wide(LodEffect::Keeps(Self::IDS)) },
            false => Facts::row_wise(),
        }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        ids::check(s, Self::IDS)?;
        s.is_float(Self::X)?;
        let x = s.input(Self::X);
        if x.shape.len() != 2 || x.batched() != self.of_batch {
            let height = if self.of_batch { "with the rows of the batch" } else { "of known height" };
            return Err(s.mismatch(Self::X, &format!("a matrix {height}")));
        }
        let out = s.input(Self::IDS).with_dtype(x.dtype).with_width(x.width());
        s.set(Self::OUT, out.stored(StorageKind::Csr));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => forward::<T>(run))
    }

    gradient_reads!(Self::IDS, Self::X);

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => backward::<T>(run))
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        // The kernel reads only the rows of x that it copies to the output.
        let touched = work.touched();
        Cost { flops: 0, read: touched.written.min(touched.read), ..touched }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let attributes = |of_batch| TakeRows { of_batch }.attributes();
        let sequences = |lengths: &[&[usize]], height: usize| -> Result<Variable> {
            let lengths: Vec<Vec<usize>> = lengths.iter().map(|l| l.to_vec()).collect();
            let lod = Lod::from_lengths(&lengths)?;
            let ids: Vec<i64> = (0..lod.rows()).map(|row| (row * 7 % height.max(1)) as i64).collect();
            Variable::sequences(ndarray::Array1::from(ids), lod)
        };
        let csr = Variable::new(sparse_numbers(5, 4, 2)?, None)?;
        let rows = Variable::new(SelectedRows::new(5, vec![3, 0], numbers(2, 3, 2))?, None)?;
        let mut samples = Vec::new();
        for (name, x) in [("csr", &csr), ("selected rows", &rows)] {
            for (table_rows, lengths) in [
                ("repeated ids", &[&[2, 0, 4][..]][..]),
                ("two levels", &[&[2, 0, 1], &[3, 0, 4]]),
                ("all empty", &[&[0, 0]]),
                ("none", &[&[]]),
            ] {
                let sample = CheckCase::new(&format!("{name}, {table_rows}"), attributes(false));
                samples.push(sample.batch("ids", sequences(lengths, 5)?).constant("x", x.clone()));
            }
        }
        let column = Variable::dense(array![[2i32], [0], [2]]);
        let sample = CheckCase::new("i32, a column", attributes(false)).batch("ids", column);
        samples.push(sample.constant("x", csr));
        for (name, lengths) in
            [("rows of the batch", &[&[2, 0, 4][..]][..]), ("rows of an empty batch", &[&[]])]
        {
            let ids = sequences(lengths, 6)?;
            let x = Variable::new(sparse_numbers(ids.rows(), 4, 1)?, ids.lod().cloned())?;
            samples.push(CheckCase::new(name, attributes(true)).batch("ids", ids).batch("x", x));
        }
        Ok(samples)
    }
}

fn forward<T: RowValue>(run: &mut Forward<'_>) -> Result<()> {
    run.fill_csr(TakeRows::OUT, |run, out| {
        let (ids, width) = (Ids::of(run, TakeRows::IDS)?, run.input_spec(TakeRows::X).width());
        let out = out.fill::<T>(width);
        out.indptr.push(0);
        match (run.csr(TakeRows::X), run.rows(TakeRows::X)) {
            (Some(x), _) => {
                let x = x.view::<T>()?;
                for row in 0..ids.len() {
                    let (columns, values) = x.row(ids.index(row, x.rows(), "x")?);
                    out.indices.extend_from_slice(columns);
                    out.values.extend_from_slice(values);
                    out.indptr.push(out.indices.len() as i64);
                }
            }
            (None, Some(x)) => {
                let (stored, values) = (x.ids(), values::<T>(x, width)?);
                for row in 0..ids.len() {
                    let index = ids.index(row, x.height(), "x")? as i64;
                    if let Ok(at) = stored.binary_search(&index) {
                        out.indices.extend(0..width as i64);
                        out.values.extend_from_slice(values.row(at));
                    }
                    out.indptr.push(out.indices.len() as i64);
                }
            }
            (None, None) => return Err(neither()),
        }
        Ok(())
    })
}

fn backward<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    run.fill_gradient::<T>(TakeRows::X, 0, |run, dx, assign| {
        // The loop below adds the gradients of equal ids, so with `Assign::Write` the buffer is filled with zeros
        // first.
        if assign == Assign::Write {
            dx.fill(T::ZERO);
        }
        let Some(dout) = run.output_gradient_csr(TakeRows::OUT) else { return Ok(()) };
        let (ids, dout) = (Ids::of(run, TakeRows::IDS)?, dout.view::<T>()?);
        for row in 0..ids.len() {
            let (_, dout) = dout.row(row);
            let from = match (run.csr(TakeRows::X), run.rows(TakeRows::X)) {
                (Some(x), _) => x.indptr()[ids.index(row, x.rows(), "x")?] as usize,
                (None, Some(x)) => match x.ids().binary_search(&(ids.index(row, x.height(), "x")? as i64)) {
                    Ok(at) => at * x.width(),
                    Err(_) => continue,
                },
                (None, None) => return Err(neither()),
            };
            dx[from..from + dout.len()].iter_mut().zip(dout).for_each(|(dx, &g)| *dx += g);
        }
        Ok(())
    })?;
    Ok(())
}

fn neither() -> Error {
    Error::of(ErrorKind::Program, "input `x`", "csr or selected rows", "another storage")
}
