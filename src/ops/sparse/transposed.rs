//! `transposed_dot`: the product of a transposed sparse matrix and another matrix, a sum over the rows of the batch.

use super::among::{RenumberedColumns, given, values};
use super::linear::rows_of;
use crate::kernels::sparse::{
    Columns, CsrMut, CsrView, SparseRoom, csr_csr, csr_dense, sampled_left, sampled_product, sampled_right,
};
use crate::operator::entries::room_for_rows;
use crate::ops::prelude::*;

operator! {
    /// Multiplies a transposed csr matrix by another matrix: out = xᵀ · d, a sum over all rows of the batch. `x` is
    /// `[rows, k]`, `d` is `[rows, n]` with the same rows, and out is `[k, n]` without a LoD.
    ///
    /// With a dense `d`, the result is selected rows: one row for each column of `x` that has entries. With a csr `d`, the
    /// result is csr. The result has an entry at (a, b) if some row has an entry in column a of `x` and an entry in column b of
    /// `d`. For example, `bags.transposed_dot(bags)` counts how often two features occur in the same row. A sparse operand has
    /// a gradient at its stored numbers only.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::{Csr, SelectedRows, Storage};
    /// use unpadded::{Variable, ops};
    /// let x = Csr::new([2, 3], vec![0, 1, 3], vec![2, 0, 2], array![1.0, 2.0, 3.0])?;
    /// let op = ops::catalogue().parse("transposed_dot", &Attributes::new())?;
    /// let out = op.call(&[
    ///     Operand::batch("x", Variable::new(x, None)?),
    ///     Operand::batch("d", Variable::from(array![[1.0], [10.0]])),
    /// ])?;
    /// assert_eq!(out[0].storage(), &Storage::from(SelectedRows::new(3, vec![0, 2], array![[20.0], [31.0]])?));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` and `d` have different rows or dtypes.
    #[doc(alias = "gram")]
    pub(in crate::ops) struct TransposedDot = transposed_dot {}
    inputs { X = x: one, D = d: one }
    kernels { [CSR, DENSE], [CSR, CSR] }
    outputs { OUT = out: one }
    impl Builder, Var { fn transposed_dot(&self, x: Var, d: Var) -> Var; }
}

struct Scratch<T> {
    columns: Columns<T>,
    back: Columns<T>,
    among: RenumberedColumns<T>,
    sparse: SparseRoom<T>,
    indptr: Vec<i64>,
}

impl<T> Default for Scratch<T>
where
    SparseRoom<T>: Default,
{
    fn default() -> Self {
        let (columns, back) = (Columns::default(), Columns::default());
        Self {
            columns,
            back,
            among: RenumberedColumns::default(),
            sparse: SparseRoom::default(),
            indptr: Vec::new(),
        }
    }
}

impl Op for TransposedDot {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let ((rows, columns), (_, width)) = (sizes.input(Self::X), sizes.input(Self::D));
        let (forward, sparse) = (sizes.pass() == Pass::Forward, sizes.stored(Self::D) > 0);
        let (entries, of_d) = (sizes.stored(Self::X), sizes.stored(Self::D));
        let some = |used: bool, bytes: usize| if used { bytes } else { 0 };
        let of_sparse = sparse && (forward || sizes.wants(Self::D));
        let filled = entries.min(columns);
        with_float!(sizes.dtype(Self::X), T => {
            let room =
                SparseRoom::<T>::bytes_of(filled, sizes.stored_output(Self::OUT), (width, of_d), sizes.threads());
            let among = RenumberedColumns::<T>::bytes_of(rows, entries);
            Ok(CallMemory::default()
                .scratch::<Scratch<T>>(some(forward || of_sparse, Columns::<T>::bytes_of(entries, columns)))
                .scratch::<Scratch<T>>(some(!forward && !sparse, among))
                .scratch::<Scratch<T>>(some(!forward && of_sparse, Columns::<T>::bytes_of(entries, rows)))
                .scratch::<Scratch<T>>(some(sparse, room + (filled + 1) * size_of::<i64>()))
                .bounded(true))
        })
        .unwrap_or_default()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.same_dtype(Self::X, Self::D)?;
        s.same_rows(Self::X, Self::D)?;
        let (x, d) = (s.input(Self::X), s.input(Self::D));
        if d.shape.len() > 2 || x.shape.len() != 2 {
            return Err(s.mismatch(Self::D, "rows of numbers"));
        }
        let storage = match d.storage {
            StorageKind::Dense => StorageKind::SelectedRows,
            _ => StorageKind::Csr,
        };
        s.set(Self::OUT, Spec::fixed(x.dtype, &[x.width(), d.width()])?.stored(storage));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
            room.columns.prepare(given(run.csr(Self::X))?.view::<T>()?);
            let threads = run.run().threads;
            match run.output_spec(Self::OUT).storage {
                StorageKind::SelectedRows => run.fill_rows(Self::OUT, |run, out| {
                    let table = (Assign::Write, run.output_spec(Self::OUT));
                    rows_of(&room.columns, run.input::<T>(Self::D)?, out, table, threads);
                    Ok(())
                })?,
                _ => run.fill_csr(Self::OUT, |run, out| {
                    let (d, height) = (given(run.csr(Self::D))?.view::<T>()?, run.input_spec(Self::X).width());
                    product_of_sparse(&mut room, d, out.fill::<T>(d.columns()), height, threads)?;
                    Ok(())
                })?,
            }
            *run.scratch().get::<Scratch<T>>() = room;
            Ok(())
        })
    }

    fn gradient(&self, wrt: usize, inputs: &[Vec<Spec>]) -> Gradient {
        let reads = Gradient::reads_nothing().input(Self::X);
        if wrt == Self::D && inputs[Self::D][0].storage == StorageKind::Dense {
            reads
        } else {
            reads.input(Self::D)
        }
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
            match run.input_spec(Self::D).storage {
                StorageKind::Dense => of_rows(run, &mut room)?,
                _ => of_sparse(run, &mut room)?,
            }
            *run.scratch().get::<Scratch<T>>() = room;
            Ok(())
        })
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let width = if work.stored(Self::D) > 0 { 1 } else { work.output(Self::OUT).1 };
        let products = match work.pass() {
            Pass::Forward => 1,
            Pass::Backward => u64::from(work.wants(Self::X)) + u64::from(work.wants(Self::D)),
        };
        let product = (2 * work.stored(Self::X) * width).max(work.touched().flops);
        Cost { flops: products * product, ..work.touched() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let none = Attributes::new();
        let add = |sample: CheckCase, d| {
            if sample.operands[0].batched { sample.batch("d", d) } else { sample.constant("d", d) }
        };
        let mut samples = CheckCase::of_csr(&none, 5, |sample, x| {
            Ok(add(sample, Variable::from(numbers(x.rows(), 3, 1)).with_lod(x.lod().cloned())?))
        })?;
        let mut sparse = CheckCase::of_csr(&none, 5, |sample, x| {
            Ok(add(sample, Variable::new(sparse_numbers(x.rows(), 4, 2)?, x.lod().cloned())?))
        })?;
        sparse.iter_mut().for_each(|sample| sample.name += " by csr");
        samples.extend(sparse);
        Ok(samples)
    }
}

/// Computes the product xᵀ · d as csr. Row i of the product is computed only if column i of `x` has entries; else the row is
/// empty.
fn product_of_sparse<T: RowValue>(
    room: &mut Scratch<T>,
    d: CsrView<'_, T>,
    out: CsrMut<'_, T>,
    height: usize,
    threads: usize,
) -> Result<()> {
    let CsrMut { indptr, indices, values } = out;
    room_for_rows(indptr, height)?;
    let some = CsrMut { indptr: &mut room.indptr, indices, values };
    csr_csr(room.columns.transposed(), d, some, &mut room.sparse, threads);
    for (&id, &start) in room.columns.ids().iter().zip(&room.indptr) {
        indptr.resize(id as usize + 1, start);
    }
    indptr.resize(height + 1, indices.len() as i64);
    Ok(())
}

const X: usize = TransposedDot::X;
const D: usize = TransposedDot::D;
const OUT: usize = TransposedDot::OUT;

fn of_rows<T: RowValue>(run: &mut Backward<'_>, room: &mut Scratch<T>) -> Result<()> {
    let (threads, among, width) = (run.run().threads, &mut room.among, run.input_spec(D).width());
    match (run.csr(X), run.output_gradient_rows(OUT)) {
        (Some(x), Some(dout)) => among.find(x.view::<T>()?, dout.ids()),
        _ => return Ok(()),
    }
    run.fill_gradient::<T>(X, 0, |run, dx, assign| {
        let Some(dout) = run.output_gradient_rows(OUT) else { return Ok(()) };
        let (d, dout) = (run.input::<T>(D)?, values::<T>(dout, width)?);
        among.at_entries(dx, assign, |x, dx| sampled_product(x, d, dout, dx, Assign::Write, threads));
        Ok(())
    })?;
    if let (Some((dd, assign)), Some(dout)) = (run.gradient::<T>(D)?, run.output_gradient_rows(OUT)) {
        csr_dense(among.view(), values::<T>(dout, width)?, dd, assign, threads);
    }
    Ok(())
}

/// Computes the gradients of a csr product c = xᵀ·d: dx = d·dcᵀ at the stored numbers of x, and dd = x·dc at the stored numbers
/// of d.
fn of_sparse<T: RowValue>(run: &mut Backward<'_>, room: &mut Scratch<T>) -> Result<()> {
    let Scratch { columns, back, sparse, indptr, .. } = room;
    if run.output_gradient_csr(OUT).is_none() {
        return Ok(());
    }
    run.fill_gradient::<T>(X, 0, |run, dx, assign| {
        let (x, d) = (given(run.csr(X))?.view::<T>()?, given(run.csr(D))?.view::<T>()?);
        let dc = given(run.output_gradient_csr(OUT))?.view::<T>()?;
        sampled_left(x, dc, d, dx, assign, sparse);
        Ok(())
    })?;
    run.fill_gradient::<T>(D, 0, |run, dd, assign| {
        let (x, d) = (given(run.csr(X))?.view::<T>()?, given(run.csr(D))?.view::<T>()?);
        let dc = given(run.output_gradient_csr(OUT))?;
        columns.prepare(x);
        // Row i of c is empty if column i of x has no entries, so the rows of dc for columns of x without entries are
        // left out.
        indptr.clear();
        indptr.extend(columns.ids().iter().map(|&id| dc.indptr()[id as usize]));
        indptr.push(dc.entries() as i64);
        let dc = CsrView::new(dc.columns(), indptr, dc.indices(), dc.values::<T>()?);
        sampled_right(columns.transposed(), d, dc, dd, assign, back, sparse);
        Ok(())
    })?;
    Ok(())
}
