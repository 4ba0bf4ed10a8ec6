//! The operator `linear` on csr rows: the product of the rows and a weight matrix, plus a bias.

use super::among::{RenumberedColumns, given, values};
use crate::kernels::sparse::{Columns, csr_dense, sampled_product};
use crate::kernels::{MatrixUnit, Transpose, affine_gradient};
use crate::operator::RowBuffer;
use crate::ops::prelude::*;
use crate::ops::product::linear::product_of;
use crate::tensor::SelectedRows;

operator! {
    /// Linear layer on csr rows: out = x · W + b; the output is dense. The weights W are dense or selected rows.
    ///
    /// The gradient of a single dense W is stored as selected rows: one row for each column of x that has entries. The gradient
    /// of W is dense if there are several weights, if W is transposed, or if another use of W has a dense gradient. x has a
    /// gradient at its entries only. Only entries of x are multiplied, so a row of W for a column of x without entries has no
    /// effect, even if the row holds NaN.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::Csr;
    /// use unpadded::{Variable, ops};
    /// let bags = Csr::new([2, 3], vec![0, 2, 2], vec![0, 2], array![1.0, 2.0])?;
    /// let op = ops::catalogue().parse("sparse_linear", &Attributes::new())?;
    /// let out = op.call(&[
    ///     Operand::batch("x", Variable::new(bags, None)?),
    ///     Operand::constant("weight", array![[1.0], [10.0], [100.0]]),
    ///     Operand::constant("bias", array![0.5]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [201.5, 0.5]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the width of `x` differs from the height of a weight, or a bias does not have the width of its weight.
    pub(in crate::ops) struct SparseLinear = sparse_linear { transposed: Transpose }
    inputs { X = x: one, WEIGHT = weight: many, BIAS = bias: any }
    kernels { [CSR, DENSE, DENSE], [CSR, ROWS, DENSE] }
    stands_for { "linear" }
    outputs { OUT = out: one }
}

struct Scratch<T> {
    columns: Columns<T>,
    among: RenumberedColumns<T>,
    /// The transposed weight, if the attribute `transposed` is set.
    turned: Vec<T>,
    /// Rows of a weight's gradient: one row for each column of x that has entries.
    gradient: Vec<T>,
}

impl<T> Default for Scratch<T> {
    fn default() -> Self {
        let (columns, among) = (Columns::default(), RenumberedColumns::default());
        Self { columns, among, turned: Vec::new(), gradient: Vec::new() }
    }
}

/// The numbers of a weight, dense or selected rows.
#[derive(Clone, Copy)]
enum Weight<'a, T> {
    Dense(View<'a, T>),
    /// The row indices and the stored rows of a weight that is selected rows; rows that are not stored are 0.
    Rows(&'a [i64], View<'a, T>),
}

impl<'a, T: RowValue> Weight<'a, T> {
    fn rows(rows: &'a RowBuffer, width: usize) -> Result<Self> {
        Ok(Weight::Rows(rows.ids(), values::<T>(rows, width)?))
    }

    /// Returns the weight, or the transposed weight, with one row per column of `x`: `inputs` rows of `outputs` numbers.
    fn taken<'b>(
        self,
        transposed: Transpose,
        (inputs, outputs): (usize, usize),
        turned: &'b mut Vec<T>,
    ) -> Weight<'b, T>
    where
        'a: 'b,
    {
        if transposed == Transpose::No {
            return self;
        }
        turned.clear();
        turned.resize(inputs * outputs, T::ZERO);
        let mut put = |column: usize, row: &[T]| {
            turned.iter_mut().skip(column).step_by(outputs).zip(row).for_each(|(to, &w)| *to = w);
        };
        match self {
            Weight::Dense(weight) => weight.iter().enumerate().for_each(|(column, row)| put(column, row)),
            Weight::Rows(ids, weight) => {
                ids.iter().zip(weight.iter()).for_each(|(&column, row)| put(column as usize, row));
            }
        }
        Weight::Dense(View::new(turned, inputs, outputs))
    }
}

impl SparseLinear {
    fn memory_of<T: RowValue>(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let ((_, inputs), (_, outputs)) = (sizes.input(Self::X), sizes.output(Self::OUT));
        let (entries, number) = (sizes.stored(Self::X), size_of::<T>());
        let some = |wanted: bool, bytes: usize| if wanted { bytes } else { 0 };
        let (transposed, wanted) = (self.transposed == Transpose::Yes, sizes.wants(Self::WEIGHT));
        let gradient = wanted && (transposed || sizes.count(Self::WEIGHT) > 1);
        let among = RenumberedColumns::<T>::bytes_of(sizes.input(Self::X).0, entries);
        CallMemory::default()
            .scratch::<Scratch<T>>(some(wanted, Columns::<T>::bytes_of(entries, inputs)))
            .scratch::<Scratch<T>>(some(transposed, inputs * outputs * number))
            .scratch::<Scratch<T>>(some(gradient, entries.min(inputs) * outputs * number))
            .scratch::<Scratch<T>>(some(sizes.is_table(Self::WEIGHT), among))
            .bounded(wanted)
    }
}

impl Op for SparseLinear {
    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        with_float!(sizes.dtype(Self::X), T => Ok(self.memory_of::<T>(sizes))).unwrap_or_default()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        let out = product_of(s, self.transposed)?;
        s.set(Self::OUT, out.stored(StorageKind::Dense));
        Ok(())
    }

    fn rows_read(&self, table: usize) -> Option<usize> {
        (table == Self::WEIGHT && self.transposed == Transpose::No).then_some(Self::X)
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
            let out = run.output::<T>(Self::OUT)?;
            self.products(run, out, &mut room)?;
            *run.scratch().get::<Scratch<T>>() = room;
            Ok(())
        })
    }

    fn gradient(&self, wrt: usize, inputs: &[Vec<Spec>]) -> Gradient {
        let weights = &inputs[Self::WEIGHT];
        let dense = weights.iter().all(|weight| weight.storage == StorageKind::Dense);
        match wrt {
            Self::X => Gradient::reads_nothing().input(Self::X).input(Self::WEIGHT),
            Self::WEIGHT if !dense => Gradient::reads_nothing().input(Self::X).input(Self::WEIGHT),
            Self::WEIGHT if weights.len() == 1 && self.transposed == Transpose::No => {
                Gradient::reads_nothing().input(Self::X).stored(StorageKind::SelectedRows)
            }
            Self::WEIGHT => Gradient::reads_nothing().input(Self::X),
            _ => Gradient::reads_nothing(),
        }
    }

    fn stored_gradient(&self, _: usize) -> StorageBound {
        StorageBound::Together(&[Self::X])
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let Some(dout) = run.output_gradient::<T>(Self::OUT)? else { return Ok(()) };
            let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
            run.fill_gradient::<T>(Self::X, 0, |run, dx, assign| {
                self.at_entries(run, dout, &mut room, dx, assign)
            })?;
            self.weights(run, dout, &mut room)?;
            *run.scratch().get::<Scratch<T>>() = room;
            let threads = run.run().threads;
            let mut from = 0;
            for k in 0..run.count(Self::BIAS) {
                let columns = self.part(run.input_spec_at(Self::WEIGHT, k), &mut from);
                if let Some((mut db, assign)) = run.gradient_at::<T>(Self::BIAS, k)? {
                    let dout = dout.columns(columns.start, columns.end);
                    let bias = Some((db.row(0), assign));
                    let unit = MatrixUnit::F32;
                    affine_gradient(dout.into(), None, bias, unit, run.scratch().get(), threads);
                }
            }
            Ok(())
        })
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let (rows, width) = work.output(Self::OUT);
        let product = 2 * work.stored(Self::X) * width;
        let flops = match work.pass() {
            Pass::Forward => product,
            Pass::Backward => {
                let products = u64::from(work.wants(Self::X)) + u64::from(work.wants(Self::WEIGHT));
                products * product + u64::from(work.wants(Self::BIAS)) * rows * width
            }
        };
        Cost { flops, ..work.touched() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let weight = |width, salt, transposed| -> Array2<f64> {
            let weight = numbers(5, width, salt);
            if transposed == Transpose::Yes {
                weight.reversed_axes().as_standard_layout().into_owned()
            } else {
                weight
            }
        };
        let mut samples = Vec::new();
        for transposed in [Transpose::No, Transpose::Yes] {
            let attributes = SparseLinear { transposed }.attributes();
            let one = |sample: CheckCase, bias: bool| {
                let sample = sample.constant("weight", weight(2, 1, transposed));
                if bias { sample.constant("bias", array![0.5, -0.25]) } else { sample }
            };
            samples.extend(CheckCase::of_csr(&attributes, 5, |sample, _| Ok(one(sample, true)))?);
            let plain = CheckCase::of_csr(&attributes, 5, |sample, _| Ok(one(sample, false)))?;
            let many = plain.iter().map(|sample| {
                let mut sample = sample.clone().constant("weight", weight(1, 3, transposed));
                sample.name += ", two weights";
                sample
            });
            samples.extend(many.take(2));
            samples.extend(plain.into_iter().take(3));
            let mut rows = CheckCase::of_csr(&attributes, 5, |sample, _| {
                let rows = match transposed {
                    Transpose::No => SelectedRows::new(5, vec![1, 4], numbers(2, 3, 2))?,
                    Transpose::Yes => SelectedRows::new(3, vec![2, 0], numbers(2, 5, 2))?,
                };
                Ok(sample
                    .constant("weight", Variable::new(rows, None)?)
                    .constant("bias", array![0.5, -0.25, 1.0]))
            })?;
            rows.iter_mut().for_each(|sample| sample.name += ", a weight of selected rows");
            samples.extend(rows);
        }
        Ok(samples)
    }
}

impl SparseLinear {
    /// Returns the range of output columns that a weight computes. The range starts at `from`; then `from` is set to the end of
    /// the range.
    fn part(&self, weight: &Spec, from: &mut usize) -> std::ops::Range<usize> {
        let (_, width) = self.sides(weight);
        *from += width;
        *from - width..*from
    }

    /// Returns the number of inputs and the number of outputs of a weight.
    fn sides(&self, weight: &Spec) -> (usize, usize) {
        self.transposed.shape((weight.shape[0].known().unwrap_or(0), weight.width()))
    }

    fn products<T: RowValue>(
        &self,
        run: &Forward<'_>,
        mut out: ViewMut<'_, T>,
        room: &mut Scratch<T>,
    ) -> Result<()> {
        let x = given(run.csr(Self::X))?.view::<T>()?;
        let threads = run.run().threads;
        let biased = run.count(Self::BIAS) > 0;
        let mut from = 0;
        for k in 0..run.count(Self::WEIGHT) {
            let columns = self.part(run.input_spec_at(Self::WEIGHT, k), &mut from);
            let mut out = out.reborrow().columns(columns.start, columns.end);
            let assign = if biased { Assign::Add } else { Assign::Write };
            if biased {
                let bias = run.input_at::<T>(Self::BIAS, k)?.row(0);
                out.iter_mut().for_each(|out| out.copy_from_slice(bias));
            }
            let spec = run.input_spec_at(Self::WEIGHT, k);
            let weight = match run.rows_at(Self::WEIGHT, k) {
                Some(rows) => Weight::rows(rows, spec.width())?,
                None => Weight::Dense(run.input_at::<T>(Self::WEIGHT, k)?),
            };
            match weight.taken(self.transposed, self.sides(spec), &mut room.turned) {
                Weight::Dense(weight) => csr_dense(x, weight, out, assign, threads),
                Weight::Rows(ids, weight) => {
                    room.among.find(x, ids);
                    csr_dense(room.among.view(), weight, out, assign, threads);
                }
            }
        }
        Ok(())
    }

    /// Computes the gradient of `x` at the entries of `x`.
    fn at_entries<T: RowValue>(
        &self,
        run: &Backward<'_>,
        dout: View<'_, T>,
        room: &mut Scratch<T>,
        dx: &mut [T],
        mut assign: Assign,
    ) -> Result<()> {
        let x = given(run.csr(Self::X))?.view::<T>()?;
        let threads = run.run().threads;
        let mut from = 0;
        for k in 0..run.count(Self::WEIGHT) {
            let columns = self.part(run.input_spec_at(Self::WEIGHT, k), &mut from);
            let dout = dout.columns(columns.start, columns.end);
            let spec = run.input_spec_at(Self::WEIGHT, k);
            let weight = match run.rows_at(Self::WEIGHT, k) {
                Some(rows) => Weight::rows(rows, spec.width())?,
                None => Weight::Dense(run.input_at::<T>(Self::WEIGHT, k)?),
            };
            match weight.taken(self.transposed, self.sides(spec), &mut room.turned) {
                Weight::Dense(weight) => sampled_product(x, dout, weight, dx, assign, threads),
                Weight::Rows(ids, weight) => {
                    room.among.find(x, ids);
                    room.among.at_entries(dx, assign, |x, dx| {
                        sampled_product(x, dout, weight, dx, Assign::Write, threads);
                    });
                }
            }
            assign = Assign::Add;
        }
        Ok(())
    }

    fn weights<T: RowValue>(
        &self,
        run: &mut Backward<'_>,
        dout: View<'_, T>,
        room: &mut Scratch<T>,
    ) -> Result<()> {
        if !run.wants(Self::WEIGHT) {
            return Ok(());
        }
        room.columns.prepare(given(run.csr(Self::X))?.view::<T>()?);
        let threads = run.run().threads;
        let mut from = 0;
        for k in 0..run.count(Self::WEIGHT) {
            let columns = self.part(run.input_spec_at(Self::WEIGHT, k), &mut from);
            let dout = dout.columns(columns.start, columns.end);
            let spec = run.input_spec_at(Self::WEIGHT, k);
            if spec.storage != StorageKind::Dense {
                run.fill_gradient::<T>(Self::WEIGHT, k, |run, dw, assign| {
                    let Some(rows) = run.rows_at(Self::WEIGHT, k) else { return Ok(()) };
                    let (ids, width) = (rows.ids(), spec.width());
                    let mut dw = ViewMut::new(dw, ids.len(), width);
                    if self.transposed == Transpose::Yes {
                        room.turned_gradient(dout, dw, assign, Some(ids), threads);
                        return Ok(());
                    }
                    assign.put_nothing(dw.reborrow());
                    room.among.find(given(run.csr(Self::X))?.view::<T>()?, ids);
                    room.columns.prepare(room.among.view());
                    room.columns.product_into(dout, dw, threads);
                    Ok(())
                })?;
                continue;
            }
            if let Some((mut dw, assign)) = run.gradient_at::<T>(Self::WEIGHT, k)? {
                if self.transposed == Transpose::Yes {
                    room.turned_gradient(dout, dw, assign, None, threads);
                } else {
                    assign.put_nothing(dw.reborrow());
                    room.columns.product_into(dout, dw, threads);
                }
            } else if let Some((rows, assign)) = run.gradient_rows(Self::WEIGHT).filter(|_| k == 0) {
                rows_of(&room.columns, dout, rows, (assign, spec), threads);
            }
        }
        Ok(())
    }
}

/// Computes a weight's gradient as selected rows: one row for each column of x that has entries. The new rows are appended to
/// `rows` if `assign` is `Add`, and replace the old rows in `rows` if `assign` is `Write`.
pub(in crate::ops) fn rows_of<T: RowValue>(
    columns: &Columns<T>,
    dout: View<'_, T>,
    rows: &mut RowBuffer,
    (assign, table): (Assign, &Spec),
    threads: usize,
) {
    if assign == Assign::Write || rows.dtype().is_none() {
        rows.reset::<T>(table.shape[0].known().unwrap_or(0), table.width());
    }
    let alone = rows.ids().is_empty();
    columns.product(dout, rows.extend::<T>(columns.ids().iter().copied()), Assign::Write, threads);
    if alone {
        rows.set_merged();
    }
}

impl<T: Float> Scratch<T> {
    /// Computes the gradient of a transposed weight; if `rows` is given, computes only these rows of the gradient.
    fn turned_gradient(
        &mut self,
        dout: View<'_, T>,
        mut dw: ViewMut<'_, T>,
        assign: Assign,
        rows: Option<&[i64]>,
        threads: usize,
    ) {
        let (len, width) = (self.columns.ids().len(), dout.width());
        self.gradient.resize(len * width, T::ZERO);
        self.columns.product(dout, ViewMut::new(&mut self.gradient, len, width), Assign::Write, threads);
        assign.put_nothing(dw.reborrow());
        for (at, dw) in dw.iter_mut().enumerate() {
            let output = rows.map_or(at, |ids| ids[at] as usize);
            let of_output = self.gradient.iter().skip(output).step_by(width.max(1));
            self.columns.ids().iter().zip(of_output).for_each(|(&column, &g)| dw[column as usize] += g);
        }
    }
}
