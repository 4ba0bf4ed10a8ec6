//! The products `dot` and `matmul` with a sparse matrix as the left factor.

use super::among::{RenumberedColumns, given, values};
use super::linear::rows_of;
use crate::kernels::sparse::{
    Columns, SparseRoom, csr_csr, csr_dense, sampled_left, sampled_product, sampled_right,
};
use crate::ops::prelude::*;
use crate::tensor::SelectedRows;

/// Slot numbers of `x`, `y` and `out`, in both operators of this file.
const X: usize = 0;
const Y: usize = 1;
const OUT: usize = 0;

operator! {
    /// Multiplies csr rows `x` `[rows, k]` by a constant matrix `y` `[k, n]` in any storage, or by a dense constant vector
    /// `[k]`: out = x · y. The product with a vector has one number per row. See [`Builder::dot`](crate::Builder::dot).
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::{Csr, Storage};
    /// use unpadded::{Variable, ops};
    /// let x = Csr::new([2, 2], vec![0, 1, 2], vec![1, 0], array![2.0, 3.0])?;
    /// let y = Csr::new([2, 3], vec![0, 1, 2], vec![2, 0], array![10.0, 100.0])?;
    /// let op = ops::catalogue().parse("dot", &Attributes::new())?;
    /// let out = op.call(&[
    ///     Operand::batch("x", Variable::new(x, None)?),
    ///     Operand::constant("y", Variable::new(y, None)?),
    /// ])?;
    /// let expected = Csr::new([2, 3], vec![0, 1, 2], vec![0, 2], array![200.0, 30.0])?;
    /// assert_eq!(out[0].storage(), &Storage::from(expected));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the width of `x` is not the height of `y`, or if `y` has rows of the batch.
    pub(in crate::ops) struct Dot = dot {}
    inputs { X = x: one, Y = y: one }
    kernels { [CSR, DENSE], [CSR, CSR], [CSR, ROWS] }
    outputs { OUT = out: one }
}

builder_methods! { Builder, Var;
    /// Multiplies the rows of `x`, `[rows, k]`, by a constant matrix `y`, `[k, n]`: out = x · y. The output has the LoD of `x`.
    ///
    /// For a csr `x`, the result is dense if `y` is dense or selected rows. If `y` is csr or coo, the result is csr. The result
    /// has an entry wherever at least one product of two entries contributes, even if the sum of the products is 0. A dense `y`
    /// may be a vector `[k]`: then the result has one number per row, `[rows, 1]`. For a dense `x`, `dot` is
    /// [`product`](crate::Builder::product).
    ///
    /// A sparse operand has a gradient at its stored numbers only. The gradient of a dense matrix `y` is stored as selected
    /// rows: one row for each column of `x` that has entries. Only stored numbers are multiplied, so an infinite or NaN number
    /// in `y` has no effect where `x` has no entry.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// use unpadded::layers::init;
    /// let net = Builder::new();
    /// let bags = net.feed_csr("bags", DType::F32, 1000, 0);
    /// let topics = net.parameter("topics", DType::F32, &[1000, 8], init::zeros());
    /// assert_eq!(net.describe(bags.dot(topics)), "`dot`: f32[batch, 8]");
    /// ```
    ///
    /// # Errors
    /// It is an error if the width of `x` is not the height of `y`, or if `y` is not a constant.
    pub fn dot(&self, x: Var, y: Var) -> Var {
        if self.spec(x).is_some_and(|x| x.storage == crate::tensor::StorageKind::Dense) {
            return self.product(x, y, None);
        }
        self.append("dot", &[("x", &[x]), ("y", &[y])], Dot {}.attributes())
    }
}

operator! {
    /// Matrix product with a csr matrix on the left: out = x · y. The output is csr if `y` is csr, else dense. Neither factor
    /// can be transposed; [`Builder::transposed_dot`](crate::Builder::transposed_dot) multiplies a transposed csr matrix.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::Csr;
    /// use unpadded::{Variable, ops};
    /// let x = Csr::new([2, 2], vec![0, 1, 2], vec![1, 0], array![2.0, 3.0])?;
    /// let no = Attributes::new().with("transpose_x", false).with("transpose_y", false);
    /// let out = ops::catalogue().parse("sparse_matmul", &no)?.call(&[
    ///     Operand::constant("x", Variable::new(x, None)?),
    ///     Operand::constant("y", array![[1.0], [10.0]]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [20.0, 3.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the width of `x` is not the height of `y`, or if `transpose_x` or `transpose_y` is true.
    pub(in crate::ops) struct SparseMatmul = sparse_matmul {
        transpose_x: bool => as_it_lies,
        transpose_y: bool => as_it_lies,
    }
    inputs { X = x: one, Y = y: one }
    kernels { [CSR, DENSE], [CSR, CSR], [CSR, ROWS] }
    stands_for { "matmul" }
    outputs { OUT = out: one }
}

/// Reads `transpose_x` or `transpose_y`; returns an error if the flag is true.
fn as_it_lies(attributes: &Attributes, name: &str) -> Result<bool> {
    match attributes.bool(name)? {
        true => Err(Error::new(format!("attribute `{name}`"), "false for sparse matrices", "true")),
        false => Ok(false),
    }
}

/// Infers the shape and the storage of the product x · y.
fn shape(s: &InferShape<'_>) -> Result<Spec> {
    s.is_float(X)?;
    s.same_dtype(X, Y)?;
    let (x, y) = (s.input(X), s.input(Y));
    let (height, width) = match (y.shape.as_slice(), y.storage) {
        (&[Extent::Known(height), Extent::Known(width)], _) => (height, width),
        (&[Extent::Known(height)], StorageKind::Dense) => (height, 1),
        _ => return Err(s.mismatch(Y, "a constant of shape [k, n], or a dense one of shape [k]")),
    };
    if x.shape.len() != 2 || x.width() != height {
        let expected = format!("rows of {height} numbers, since the height of `y` is {height}");
        return Err(s.mismatch(X, &expected));
    }
    let storage = if is_csr(y) { StorageKind::Csr } else { StorageKind::Dense };
    Ok(x.with_width(width).stored(storage))
}

fn is_csr(spec: &Spec) -> bool {
    matches!(spec.storage, StorageKind::Csr | StorageKind::Coo)
}

struct Scratch<T> {
    columns: Columns<T>,
    among: RenumberedColumns<T>,
    sparse: SparseRoom<T>,
}

impl<T> Default for Scratch<T>
where
    SparseRoom<T>: Default,
{
    fn default() -> Self {
        Self {
            columns: Columns::default(),
            among: RenumberedColumns::default(),
            sparse: SparseRoom::default(),
        }
    }
}

/// Returns the dense factor `y` as a matrix; a vector becomes a matrix of one column.
fn column<'a, T>(y: View<'a, T>, spec: &Spec) -> View<'a, T> {
    if spec.shape.len() == 1 { View::new(y.row(0), y.width(), 1) } else { y }
}

/// Returns the scratch memory of a product: for the gradient of `y`, for a selected-rows `y`, and for a csr or coo `y`.
fn memory<T: RowValue>(sizes: &CallSizes<'_>) -> CallMemory {
    let (wanted, (rows, width)) = (sizes.wants(Y), sizes.input(X));
    let (entries, of_y) = (sizes.stored(X), (sizes.output(OUT).1, sizes.stored(Y)));
    let some = |used: bool, bytes: usize| if used { bytes } else { 0 };
    let sparse = sizes.inputs[Y].first().is_some_and(is_csr);
    let room = SparseRoom::<T>::bytes_of(rows, sizes.stored_output(OUT), of_y, sizes.threads());
    CallMemory::default()
        .scratch::<Scratch<T>>(some(wanted, Columns::<T>::bytes_of(entries, width)))
        .scratch::<Scratch<T>>(some(sizes.is_table(Y), RenumberedColumns::<T>::bytes_of(rows, entries)))
        .scratch::<Scratch<T>>(some(sparse, room))
        .bounded(wanted || sparse)
}

fn forward<T: RowValue>(run: &mut Forward<'_>) -> Result<()> {
    let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
    let threads = run.run().threads;
    let spec = run.input_spec(Y);
    if is_csr(spec) {
        run.fill_csr(OUT, |run, out| {
            let (x, y) = (given(run.csr(X))?.view::<T>()?, given(run.csr(Y))?.view::<T>()?);
            csr_csr(x, y, out.fill::<T>(spec.width()), &mut room.sparse, threads);
            Ok(())
        })?;
    } else {
        let assign = run.assign();
        let out = run.output::<T>(OUT)?;
        let x = given(run.csr(X))?.view::<T>()?;
        match run.rows(Y) {
            Some(y) => {
                room.among.find(x, y.ids());
                csr_dense(room.among.view(), values::<T>(y, spec.width())?, out, assign, threads);
            }
            None => csr_dense(x, column(run.input::<T>(Y)?, spec), out, assign, threads),
        }
    }
    *run.scratch().get::<Scratch<T>>() = room;
    Ok(())
}

fn backward<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
    if is_csr(run.input_spec(Y)) {
        of_sparse_result::<T>(run, &mut room)?;
    } else if let Some(dout) = run.output_gradient::<T>(OUT)? {
        of_dense_result(run, dout, &mut room)?;
    }
    *run.scratch().get::<Scratch<T>>() = room;
    Ok(())
}

fn of_sparse_result<T: RowValue>(run: &mut Backward<'_>, room: &mut Scratch<T>) -> Result<()> {
    let Scratch { columns, sparse, .. } = room;
    if run.output_gradient_csr(OUT).is_none() {
        return Ok(());
    }
    run.fill_gradient::<T>(X, 0, |run, dx, assign| {
        let (x, y) = (given(run.csr(X))?.view::<T>()?, given(run.csr(Y))?.view::<T>()?);
        let dout = given(run.output_gradient_csr(OUT))?.view::<T>()?;
        sampled_left(x, y, dout, dx, assign, sparse);
        Ok(())
    })?;
    run.fill_gradient::<T>(Y, 0, |run, dy, assign| {
        let (x, y) = (given(run.csr(X))?.view::<T>()?, given(run.csr(Y))?.view::<T>()?);
        let dout = given(run.output_gradient_csr(OUT))?.view::<T>()?;
        sampled_right(x, y, dout, dy, assign, columns, sparse);
        Ok(())
    })?;
    Ok(())
}

fn of_dense_result<T: RowValue>(
    run: &mut Backward<'_>,
    dout: View<'_, T>,
    room: &mut Scratch<T>,
) -> Result<()> {
    let (threads, spec) = (run.run().threads, run.input_spec(Y));
    let Scratch { columns, among, .. } = room;
    run.fill_gradient::<T>(X, 0, |run, dx, assign| {
        let x = given(run.csr(X))?.view::<T>()?;
        match run.rows(Y) {
            Some(y) => {
                let rows = values::<T>(y, spec.width())?;
                among.find(x, y.ids());
                among.at_entries(dx, assign, |x, dx| {
                    sampled_product(x, dout, rows, dx, Assign::Write, threads);
                });
            }
            None => sampled_product(x, dout, column(run.input::<T>(Y)?, spec), dx, assign, threads),
        }
        Ok(())
    })?;
    if !run.wants(Y) {
        return Ok(());
    }
    if spec.storage == StorageKind::SelectedRows {
        run.fill_gradient::<T>(Y, 0, |run, dy, assign| {
            let Some(y) = run.rows(Y) else { return Ok(()) };
            among.find(given(run.csr(X))?.view::<T>()?, y.ids());
            columns.prepare(among.view());
            let mut dy = ViewMut::new(dy, y.ids().len(), spec.width());
            assign.put_nothing(dy.reborrow());
            columns.product_into(dout, dy, threads);
            Ok(())
        })?;
        return Ok(());
    }
    columns.prepare(given(run.csr(X))?.view::<T>()?);
    if let Some((mut dy, assign)) = run.gradient::<T>(Y)? {
        assign.put_nothing(dy.reborrow());
        let height = dy.width();
        let dy = if spec.shape.len() == 1 { ViewMut::new(dy.row(0), height, 1) } else { dy };
        columns.product_into(dout, dy, threads);
    } else if let Some((rows, assign)) = run.gradient_rows(Y) {
        rows_of(columns, dout, rows, (assign, spec), threads);
    }
    Ok(())
}

fn gradient(wrt: usize, inputs: &[Vec<Spec>]) -> Gradient {
    let (reads, y) = (Gradient::reads_nothing().input(X), &inputs[Y][0]);
    match (wrt, y.storage) {
        (Y, StorageKind::Dense) if y.shape.len() == 2 => reads.stored(StorageKind::SelectedRows),
        (Y, StorageKind::Dense) => reads,
        _ => reads.input(Y),
    }
}

/// Estimates the cost of a product. With a dense or selected-rows `y`, the cost is two operations for each entry of `x` and each
/// column of the result.
fn cost(work: &Work<'_>) -> Cost {
    let width = if work.stored(Y) > 0 { 1 } else { work.output(OUT).1 };
    let products = match work.pass() {
        Pass::Forward => 1,
        Pass::Backward => u64::from(work.wants(X)) + u64::from(work.wants(Y)),
    };
    let product = (2 * work.stored(X) * width).max(work.touched().flops);
    Cost { flops: products * product, ..work.touched() }
}

/// Makes check cases with a csr `x` of five columns and a `y` in every storage.
fn samples_beside(attributes: &Attributes) -> Result<Vec<CheckCase>> {
    let rows = Variable::new(SelectedRows::new(5, vec![4, 1], numbers(2, 3, 2))?, None)?;
    let mut samples = Vec::new();
    for (name, y) in [
        ("", Variable::from(numbers(5, 3, 1))),
        (" by csr", Variable::new(sparse_numbers(5, 4, 2)?, None)?),
        (" by selected rows", rows),
        (" by a vector", Variable::from(array![0.5, -1.0, 2.0, 0.25, 1.5])),
    ] {
        let mut cases = CheckCase::of_csr(attributes, 5, |sample, _| Ok(sample.constant("y", y.clone())))?;
        cases.iter_mut().for_each(|sample| sample.name += name);
        samples.extend(cases);
    }
    Ok(samples)
}

impl Op for Dot {
    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        with_float!(sizes.dtype(X), T => Ok(memory::<T>(sizes))).unwrap_or_default()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        let out = shape(s)?;
        s.set(OUT, out);
        Ok(())
    }

    float_passes!(X, T: (self, run) => forward::<T>(run), backward::<T>(run));

    fn gradient(&self, wrt: usize, inputs: &[Vec<Spec>]) -> Gradient {
        gradient(wrt, inputs)
    }

    fn rows_read(&self, table: usize) -> Option<usize> {
        (table == Y).then_some(X)
    }

    fn stored_gradient(&self, _: usize) -> StorageBound {
        StorageBound::Together(&[X])
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        cost(work)
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        samples_beside(&Attributes::new())
    }
}

impl Op for SparseMatmul {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        with_float!(sizes.dtype(X), T => Ok(memory::<T>(sizes))).unwrap_or_default()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        if s.input(X).batched() {
            return Err(s.mismatch(X, "a matrix that is not batched"));
        }
        let out = shape(s)?;
        s.set(OUT, out);
        Ok(())
    }

    float_passes!(X, T: (self, run) => forward::<T>(run), backward::<T>(run));

    fn gradient(&self, wrt: usize, inputs: &[Vec<Spec>]) -> Gradient {
        gradient(wrt, inputs)
    }

    fn stored_gradient(&self, _: usize) -> StorageBound {
        StorageBound::Together(&[X])
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        cost(work)
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let attributes = SparseMatmul { transpose_x: false, transpose_y: false }.attributes();
        let constant = |sample: &CheckCase| !sample.operands[0].batched;
        Ok(samples_beside(&attributes)?.into_iter().filter(constant).collect())
    }
}
