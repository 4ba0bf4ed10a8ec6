//! `to_dense`, `to_csr`, `to_selected_rows`: convert a variable to another storage without changing its numbers.

use crate::operator::entries::room_for_rows;
use crate::operator::{CsrBuffer, RowBuffer};
use crate::ops::prelude::*;
use crate::tensor::{Coo, Csr, SelectedRows};

/// Slot numbers of `x` and `out`, in all operators of this file.
const X: usize = 0;
const OUT: usize = 0;

operator! {
    /// Converts `x` of any storage to dense: numbers that `x` does not store become 0. The output has the rows and the LoD of
    /// `x`.
    ///
    /// The gradient of a sparse `x` is the output's gradient at the stored numbers of `x`. If the builder appended `to_dense` by
    /// itself, the attribute `fallback` names the operator and the slot that needed a dense input
    /// ([`Builder::warnings`](crate::Builder::warnings)).
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::Csr;
    /// use unpadded::{Variable, ops};
    /// let bags = Csr::new([2, 3], vec![0, 2, 2], vec![2, 0], array![1.0, 5.0])?;
    /// let op = ops::catalogue().parse("to_dense", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", Variable::new(bags, None)?)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [5.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats.
    #[doc(alias = "densify")]
    pub(in crate::ops) struct ToDense = to_dense { fallback: Option<String> }
    inputs { X = x: one }
    kernels { [DENSE], [CSR], [ROWS] }
    outputs { OUT = out: one }
    impl Builder, Var { fn to_dense(&self, x: Var) -> Var { let fallback: Option<String> = None; } }
}

impl Op for ToDense {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.set(OUT, s.input(X).stored(StorageKind::Dense));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let mut out = run.output::<T>(OUT)?;
            if run.input_spec(X).storage == StorageKind::Dense {
                Assign::Write.put_rows(out, run.input::<T>(X)?);
                return Ok(());
            }
            out.fill(T::ZERO);
            match (run.csr(X), run.rows(X)) {
                (Some(x), _) => add_entries(x.indptr(), x.indices(), x.values::<T>()?, out),
                (None, Some(x)) => add_rows::<T>(x, out),
                (None, None) => Ok(()),
            }
        })
    }

    fn gradient(&self, _: usize, inputs: &[Vec<Spec>]) -> Gradient {
        match inputs[X][0].storage {
            StorageKind::Dense => Gradient::reads_nothing().passes(true),
            _ => Gradient::reads_nothing().input(X),
        }
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let Some(dout) = run.output_gradient::<T>(OUT)? else { return Ok(()) };
            if run.input_spec(X).storage == StorageKind::Dense {
                if let Some((dx, assign)) = run.gradient::<T>(X)? {
                    assign.put_rows(dx, dout);
                }
                return Ok(());
            }
            run.fill_gradient::<T>(X, 0, |run, dx, assign| {
                match (run.csr(X), run.rows(X)) {
                    (Some(x), _) => at_entries(x, dout, dx, assign),
                    (None, Some(x)) => at_rows(x, dout, dx, assign),
                    (None, None) => {}
                }
                Ok(())
            })?;
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let attributes = ToDense { fallback: None }.attributes();
        let dense = CheckCase::new("dense already", attributes.clone());
        let mut samples = vec![dense.batch("x", Variable::dense(array![[1.0, 0.0], [0.5, 2.0]]))];
        samples.extend(CheckCase::of_csr(&attributes, 4, |sample, _| Ok(sample))?);
        let coo = Coo::new(&[3, 2], array![[2, 1], [0, 0], [2, 1]], array![1.0, 2.0, 0.5])?;
        samples.push(CheckCase::new("coo", attributes.clone()).batch("x", Variable::new(coo, None)?));
        let rows = SelectedRows::new(4, vec![3, 1], array![[1.0, 2.0], [-1.0, 0.5]])?;
        samples.push(CheckCase::new("selected rows", attributes).constant("x", Variable::new(rows, None)?));
        Ok(samples)
    }
}

/// Adds the entries of a csr matrix to a dense matrix, each entry at its position.
pub(in crate::ops) fn add_entries<T: Float>(
    indptr: &[i64],
    indices: &[i64],
    values: &[T],
    mut out: ViewMut<'_, T>,
) -> Result<()> {
    for (row, pair) in indptr.windows(2).enumerate() {
        let (out, entries) = (out.row(row), pair[0] as usize..pair[1] as usize);
        for (&column, &value) in indices[entries.clone()].iter().zip(&values[entries]) {
            out[column as usize] += value;
        }
    }
    Ok(())
}

/// Adds selected rows to the rows of a dense table.
pub(in crate::ops) fn add_rows<T: RowValue>(rows: &RowBuffer, mut out: ViewMut<'_, T>) -> Result<()> {
    if rows.ids().is_empty() {
        return Ok(());
    }
    for (&id, row) in rows.ids().iter().zip(rows.values::<T>()?.iter()) {
        out.row(id as usize).iter_mut().zip(row).for_each(|(out, &x)| *out += x);
    }
    Ok(())
}

/// Writes or adds to `to` the numbers of the dense matrix `from` at the entries of the csr matrix `x`.
pub(in crate::ops) fn at_entries<T: Float>(x: &CsrBuffer, from: View<'_, T>, to: &mut [T], assign: Assign) {
    for (row, pair) in x.indptr().windows(2).enumerate() {
        let (from, entries) = (from.row(row), pair[0] as usize..pair[1] as usize);
        for (&column, to) in x.indices()[entries.clone()].iter().zip(&mut to[entries]) {
            assign.put(to, from[column as usize]);
        }
    }
}

/// Writes or adds to `to` the rows that `x` selects from the dense table `from`.
pub(in crate::ops) fn at_rows<T: Float>(x: &RowBuffer, from: View<'_, T>, to: &mut [T], assign: Assign) {
    for (&id, to) in x.ids().iter().zip(to.chunks_exact_mut(x.width().max(1))) {
        assign.put_row(to, from.row(id as usize));
    }
}

operator! {
    /// Converts `x` to csr: every number of a dense `x` that is not 0 becomes an entry. The output has the rows and the LoD of
    /// `x`.
    ///
    /// The gradient of a dense `x` is the output's gradient where the output stores a number, and 0 elsewhere.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::{Csr, Storage};
    /// use unpadded::ops;
    /// let op = ops::catalogue().parse("to_csr", &Attributes::new())?;
    /// let out = op.call(&[Operand::constant("x", array![[0.0, 5.0], [0.0, 0.0]])])?;
    /// let expected = Csr::new([2, 2], vec![0, 1, 1], vec![1], array![5.0])?;
    /// assert_eq!(out[0].storage(), &Storage::from(expected));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats or does not have two dimensions.
    #[doc(alias = "to_sparse")]
    pub(in crate::ops) struct ToCsr = to_csr {}
    inputs { X = x: one }
    kernels { [DENSE], [CSR], [ROWS] }
    outputs { OUT = out: one }
    impl Builder, Var { fn to_csr(&self, x: Var) -> Var; }
}

impl Op for ToCsr {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        if s.input(X).shape.len() != 2 {
            return Err(s.mismatch(X, "two dimensions"));
        }
        s.set(OUT, s.input(X).stored(StorageKind::Csr));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            run.fill_csr(OUT, |run, out| {
                let columns = run.input_spec(X).width();
                match (run.csr(X), run.rows(X)) {
                    (Some(x), _) => {
                        out.zeros_at::<T>(x);
                        out.values_mut::<T>()?.copy_from_slice(x.values::<T>()?);
                    }
                    (None, Some(x)) => entries_of_rows::<T>(x, columns, out)?,
                    (None, None) => {
                        let x = run.input::<T>(X)?;
                        entries_of(x.iter(), columns, out);
                    }
                }
                Ok(())
            })
        })
    }

    fn gradient(&self, _: usize, inputs: &[Vec<Spec>]) -> Gradient {
        let reads = Gradient::reads_nothing().output(OUT);
        if inputs[X][0].storage == StorageKind::Dense { reads } else { reads.input(X) }
    }

    fn stored(&self, _: usize) -> StorageBound {
        StorageBound::Everything
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let to_dense = run.gradient::<T>(X)?;
            let Some(dout) = run.output_gradient_csr(OUT) else { return Ok(()) };
            if let Some((mut dx, assign)) = to_dense {
                if assign == Assign::Write {
                    dx.fill(T::ZERO);
                }
                return add_entries(dout.indptr(), dout.indices(), dout.values::<T>()?, dx);
            }
            run.fill_gradient::<T>(X, 0, |run, dx, assign| {
                let Some(dout) = run.output_gradient_csr(OUT) else { return Ok(()) };
                let dout = dout.values::<T>()?;
                match run.rows(X) {
                    // The zeros that x stores are not entries of the output, so these zeros get no gradient.
                    Some(x) => {
                        let mut next = dout.iter();
                        for (dx, &x) in dx.iter_mut().zip(x.values::<T>()?.iter().flatten()) {
                            let g = if x == T::ZERO { T::ZERO } else { next.next().copied().unwrap_or(T::ZERO) };
                            assign.put(dx, g);
                        }
                    }
                    None => dx.iter_mut().zip(dout).for_each(|(dx, &g)| assign.put(dx, g)),
                }
                Ok(())
            })?;
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let attributes = ToCsr {}.attributes();
        let mut samples = CheckCase::of_rows(&attributes, 3, |sample, _| Ok(sample))?;
        samples.extend(CheckCase::of_csr(&attributes, 4, |sample, _| Ok(sample))?);
        let rows = SelectedRows::new(4, vec![1, 3], array![[1.0, 2.0], [-1.0, 0.5]])?;
        samples.push(CheckCase::new("selected rows", attributes).constant("x", Variable::new(rows, None)?));
        Ok(samples)
    }
}

/// Appends an entry to `out` for each number of a dense matrix that is not 0, row by row.
fn entries_of<'a, T: RowValue>(rows: impl Iterator<Item = &'a [T]>, columns: usize, out: &mut CsrBuffer) {
    let out = out.fill::<T>(columns);
    out.indptr.push(0);
    for row in rows {
        for (column, &x) in row.iter().enumerate().filter(|(_, x)| **x != T::ZERO) {
            out.indices.push(column as i64);
            out.values.push(x);
        }
        out.indptr.push(out.indices.len() as i64);
    }
}

/// Appends an entry to `out` for each number other than 0 in selected rows. The selected rows must not have duplicate
/// row numbers.
fn entries_of_rows<T: RowValue>(x: &RowBuffer, columns: usize, out: &mut CsrBuffer) -> Result<()> {
    let out = out.fill::<T>(columns);
    room_for_rows(out.indptr, x.height())?;
    out.indptr.push(0);
    if !x.ids().is_empty() {
        for (&id, row) in x.ids().iter().zip(x.values::<T>()?.iter()) {
            // Rows of the table that are not selected become empty rows of the csr matrix.
            out.indptr.resize(id as usize + 1, out.indices.len() as i64);
            for (column, &x) in row.iter().enumerate().filter(|(_, x)| **x != T::ZERO) {
                out.indices.push(column as i64);
                out.values.push(x);
            }
        }
    }
    out.indptr.resize(x.height() + 1, out.indices.len() as i64);
    Ok(())
}

operator! {
    /// Converts `x` to selected rows. From a dense `x`, the output stores only the rows with at least one nonzero
    /// number. `x` is a table of known height, not a batch.
    ///
    /// The gradient of a dense `x` is the output's gradient in the rows that the output stores, and 0 elsewhere.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::{SelectedRows, Storage};
    /// use unpadded::ops;
    /// let op = ops::catalogue().parse("to_selected_rows", &Attributes::new())?;
    /// let out = op.call(&[Operand::constant("x", array![[0.0, 0.0], [0.0, 5.0]])])?;
    /// assert_eq!(out[0].storage(), &Storage::from(SelectedRows::new(2, vec![1], array![[0.0, 5.0]])?));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats or is batched.
    pub(in crate::ops) struct ToSelectedRows = to_selected_rows {}
    inputs { X = x: one }
    kernels { [DENSE], [CSR], [ROWS] }
    outputs { OUT = out: one }
    impl Builder, Var { fn to_selected_rows(&self, x: Var) -> Var; }
}

impl Op for ToSelectedRows {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        let x = s.input(X);
        if x.batched() || x.shape.len() < 2 {
            return Err(s.mismatch(X, "a table: two dimensions or more, all known"));
        }
        s.set(OUT, x.stored(StorageKind::SelectedRows));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            run.fill_rows(OUT, |run, out| {
                let spec = run.input_spec(X);
                let (height, width) = (spec.shape[0].known().unwrap_or(0), spec.width());
                out.reset::<T>(height, width);
                match (run.csr(X), run.rows(X)) {
                    (Some(x), _) => {
                        let values = x.values::<T>()?;
                        for (row, pair) in x.indptr().windows(2).enumerate().filter(|(_, p)| p[0] < p[1]) {
                            let entries = pair[0] as usize..pair[1] as usize;
                            let mut to = out.extend::<T>(std::iter::once(row as i64));
                            let to = to.row(0);
                            for (&column, &x) in x.indices()[entries.clone()].iter().zip(&values[entries]) {
                                to[column as usize] = x;
                            }
                        }
                    }
                    (None, Some(x)) => {
                        if !x.ids().is_empty() {
                            x.ids().iter().zip(x.values::<T>()?.iter()).for_each(|(&id, row)| out.push(id, row));
                        }
                    }
                    (None, None) => {
                        let rows = run.input::<T>(X)?;
                        for (id, row) in rows.iter().enumerate().filter(|(_, r)| r.iter().any(|x| *x != T::ZERO)) {
                            out.push(id as i64, row);
                        }
                    }
                }
                out.set_merged();
                Ok(())
            })
        })
    }

    fn gradient(&self, _: usize, inputs: &[Vec<Spec>]) -> Gradient {
        let reads = Gradient::reads_nothing().output(OUT);
        if inputs[X][0].storage == StorageKind::Dense { reads } else { reads.input(X) }
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let to_dense = run.gradient::<T>(X)?;
            let Some(dout) = run.output_gradient_rows(OUT) else { return Ok(()) };
            if let Some((mut dx, assign)) = to_dense {
                if assign == Assign::Write {
                    dx.fill(T::ZERO);
                }
                return add_rows::<T>(dout, dx);
            }
            run.fill_gradient::<T>(X, 0, |run, dx, assign| {
                let Some(dout) = run.output_gradient_rows(OUT).filter(|rows| !rows.ids().is_empty()) else {
                    return Ok(());
                };
                let values = dout.values::<T>()?;
                match run.csr(X) {
                    Some(x) => {
                        // The stored rows of the output are the rows of x that have entries, in the order of x.
                        let mut rows = values.iter();
                        for pair in x.indptr().windows(2).filter(|p| p[0] < p[1]) {
                            let Some(row) = rows.next() else { break };
                            let entries = pair[0] as usize..pair[1] as usize;
                            for (&column, dx) in x.indices()[entries.clone()].iter().zip(&mut dx[entries]) {
                                assign.put(dx, row[column as usize]);
                            }
                        }
                    }
                    None => dx.iter_mut().zip(values.iter().flatten()).for_each(|(dx, &g)| assign.put(dx, g)),
                }
                Ok(())
            })?;
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let attributes = ToSelectedRows {}.attributes();
        let sample = |name: &str| CheckCase::new(name, attributes.clone());
        let csr = Csr::new([3, 4], vec![0, 2, 2, 3], vec![3, 0, 1], array![1.0, 2.0, -0.5])?;
        let rows = SelectedRows::new(4, vec![1, 3], array![[1.0, 2.0], [-1.0, 0.5]])?;
        let none = SelectedRows::new(4, vec![], ndarray::Array2::<f64>::zeros((0, 2)))?;
        Ok(vec![
            sample("dense").constant("x", array![[1.0, -2.0], [0.5, 0.25]]),
            sample("zeros").without_gradient().constant("x", array![[0.0, 0.0], [0.5, 0.0]]),
            sample("csr").constant("x", Variable::new(csr, None)?),
            sample("selected rows").constant("x", Variable::new(rows, None)?),
            sample("no rows").constant("x", Variable::new(none, None)?),
        ])
    }
}
