//! `embedding`: looks up the row of a table for each id.

use super::ids::{self, Ids, below};
use crate::kernels::join;
use crate::operator::{RowBuffer, TableRows};
use crate::ops::prelude::*;

operator! {
    /// Looks up the row of `weight` `[height, width]` for each id in `ids`; the layer `embedding` creates the weight.
    ///
    /// out_i = W\[ids_i\], with ids `[rows]` or `[rows, 1]` of i64 or i32 and W `[height, width]`. The operator computes each
    /// row alone; the ids may have any LoD, which the output keeps.
    ///
    /// The gradient of a row of W is the sum of the output's gradients over all occurrences of the row's id. With `sparse`, the
    /// gradient of W is stored as selected rows: one row per occurrence of an id, in the order of the ids. The cost of
    /// this gradient does not depend on the height of the table. If `padding_id` is set, this id is looked up like any
    /// other id, but its row of W gets no gradient.
    ///
    /// `weight` may be a [row-sparse parameter](crate::Builder::row_sparse_parameter): a row that is not stored yet has its
    /// initial value, and the gradient is always stored as selected rows. `weight` may also be selected rows that the program
    /// computes: then all rows that are not stored are 0, and only the stored rows get a gradient.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let op = ops::catalogue().parse("embedding", &Attributes::new())?;
    /// let table = array![[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]];
    /// let out = op.clone().call(&[
    ///     Operand::batch("ids", Variable::from_sequences(&[vec![2i64, 0], vec![], vec![2]])?),
    ///     Operand::constant("weight", table.clone()),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [2.0, 2.5, 0.0, 0.5, 2.0, 2.5]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    ///
    /// let ids = Variable::from_sequences(&[vec![0i64, 3]])?;
    /// let error = op.call(&[Operand::batch("ids", ids), Operand::constant("weight", table)]).unwrap_err();
    /// let message = "variable `weight`: id of sample 0, position 1: expected at least 0 and below 3, the height, got 3";
    /// assert!(error.to_string().starts_with(message), "{error}");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `ids` are not whole numbers, one per row, or `weight` is not a matrix of floats.
    #[doc(alias = "embedding")]
    pub(in crate::ops) struct Embedding = embedding { padding_id: Option<i64>, sparse: bool = false }
    inputs { IDS = ids: one.without_gradient(), WEIGHT = weight: one.table() }
    kernels { [DENSE, DENSE], [DENSE, ROWS] }
    outputs { OUT = out: one }
    impl Builder, Var { fn lookup(&self, ids: Var, weight: Var, padding_id: Option<i64>, sparse: bool) -> Var; }
}

impl Op for Embedding {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        ids::check(s, Self::IDS)?;
        s.is_float(Self::WEIGHT)?;
        let (ids, weight) = (s.input(Self::IDS), s.input(Self::WEIGHT));
        let &[Extent::Known(height), Extent::Known(width)] = weight.shape.as_slice() else {
            return Err(s.mismatch(Self::WEIGHT, "a constant of shape [height, width]"));
        };
        if let Some(id) = self.padding_id.filter(|&id| ids::index(id, height).is_none()) {
            return Err(Error::new("attribute `padding_id`", below(height), id.to_string()));
        }
        s.set(Self::OUT, ids.with_dtype(weight.dtype).with_width(width));
        Ok(())
    }

    float_passes!(Self::WEIGHT, T: (self, run) => forward::<T>(run), self.gradient::<T>(run));

    fn gradient(&self, wrt: usize, inputs: &[Vec<Spec>]) -> Gradient {
        let reads = Gradient::reads_nothing().input(Self::IDS);
        match inputs[Self::WEIGHT][0].storage {
            StorageKind::Dense if wrt == Self::WEIGHT && self.sparse => {
                reads.stored(StorageKind::SelectedRows)
            }
            StorageKind::Dense => reads,
            // If `weight` is not dense, the backward pass reads the row numbers that the weight stores.
            _ => reads.input(Self::WEIGHT).stored(StorageKind::SelectedRows),
        }
    }

    fn rows_read(&self, table: usize) -> Option<usize> {
        (table == Self::WEIGHT).then_some(Self::IDS)
    }

    fn stored_gradient(&self, _: usize) -> StorageBound {
        StorageBound::Together(&[Self::IDS])
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let touched = work.touched();
        match work.pass() {
            // The operator reads from the table only the rows that the ids name: it reads as many numbers as it writes.
            Pass::Forward => Cost { flops: 0, read: touched.written, ..touched },
            Pass::Backward => touched,
        }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let weight = array![[0.3, -0.7], [1.1, 0.2], [-0.4, 0.9], [0.8, -0.1]];
        let sample = |name, ids: &[i64], lengths: &[Vec<usize>], sparse| -> Result<CheckCase> {
            let ids = Variable::sequences(ndarray::Array1::from(ids.to_vec()), Lod::from_lengths(lengths)?)?;
            let attributes = Embedding { padding_id: None, sparse }.attributes();
            Ok(CheckCase::new(name, attributes).batch("ids", ids).constant("weight", weight.clone()))
        };
        // Gradients are not checked here: the gradient of the padding row is zero by definition, but the derivative
        // with respect to this row is not zero.
        let padding = Embedding { padding_id: Some(0), sparse: false }.attributes();
        let padding = CheckCase::new("padding, i32, a column", padding).without_gradient();
        Ok(vec![
            sample("repeated ids", &[3, 0, 3], &[vec![2, 0, 1]], false)?,
            sample("repeated ids, sparse", &[3, 0, 3], &[vec![2, 0, 1]], true)?,
            sample("two levels", &[1, 2, 1, 1], &[vec![2, 0, 1], vec![1, 0, 3]], true)?,
            sample("all empty", &[], &[vec![0, 0]], false)?,
            sample("none, sparse", &[], &[vec![]], true)?,
            padding.batch("ids", Variable::dense(array![[2i32], [0]])).constant("weight", weight.clone()),
        ])
    }
}

fn forward<T: RowValue>(run: &mut Forward<'_>) -> Result<()> {
    let mut out = run.output::<T>(Embedding::OUT)?;
    let ids = Ids::of(run, Embedding::IDS)?;
    let weight = match (run.table(Embedding::WEIGHT), run.rows(Embedding::WEIGHT)) {
        (None, None) => {
            let weight = run.input::<T>(Embedding::WEIGHT)?;
            for (row, out) in out.iter_mut().enumerate() {
                out.copy_from_slice(weight.row(ids.index(row, weight.rows(), "weight")?));
            }
            return Ok(());
        }
        (Some(table), _) => Weight::Table(table.rows::<T>()?),
        (None, Some(rows)) => Weight::Rows(rows.ids(), rows_of::<T>(rows)?),
    };
    let height = run.input_spec(Embedding::WEIGHT).shape[0].known().unwrap_or(0);
    for row in 0..out.rows() {
        ids.index(row, height, "weight")?;
    }
    weight.look_up(&ids, 0, out, run.run().threads);
    Ok(())
}

/// The minimum number of output elements per thread: with fewer, another thread costs more time than it saves.
const GRAIN: usize = 1 << 14;

/// An embedding table that is not stored as a dense matrix.
#[derive(Clone, Copy)]
enum Weight<'a, T> {
    /// A row-sparse parameter, which returns the initial value of a row that is not stored.
    Table(TableRows<'a, T>),
    /// Selected rows: the ascending row indices, and the stored rows; rows that are not stored are 0.
    Rows(&'a [i64], View<'a, T>),
}

impl<T: RowValue> Weight<'_, T> {
    /// Looks up one row for each row of `out`, starting with the id at index `first`; the caller ensures that all ids are in
    /// range.
    fn look_up(self, ids: &Ids<'_>, first: usize, mut out: ViewMut<'_, T>, threads: usize) {
        let half = out.rows() / 2;
        if threads > 1 && half * out.width() >= GRAIN {
            let (head, tail) = out.split_rows(half);
            join(
                || self.look_up(ids, first, head, threads / 2),
                || self.look_up(ids, first + half, tail, threads - threads / 2),
            );
            return;
        }
        for (row, out) in out.iter_mut().enumerate() {
            let id = ids.get(first + row);
            match self {
                Weight::Table(table) => table.read(id, out),
                Weight::Rows(known, rows) => match known.binary_search(&id) {
                    Ok(index) => out.copy_from_slice(rows.row(index)),
                    Err(_) => out.fill(T::ZERO),
                },
            }
        }
    }
}

/// Returns the rows that the selected rows `rows` store; returns no rows if the buffer was never filled.
fn rows_of<T: RowValue>(rows: &RowBuffer) -> Result<View<'_, T>> {
    if rows.dtype().is_none() { Ok(View::new(&[], 0, rows.width())) } else { rows.values::<T>() }
}

impl Embedding {
    fn gradient<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let dout = run.dout::<T>(Self::OUT)?;
        let ids = Ids::of(run, Self::IDS)?;
        let spec = run.input_spec(Self::WEIGHT);
        let (height, width) = (spec.shape[0].known().unwrap_or(0), spec.width());
        let learning = |row: &usize| self.padding_id != Some(ids.get(*row));
        if run.rows(Self::WEIGHT).is_some() {
            run.fill_gradient::<T>(Self::WEIGHT, 0, |run, numbers, _| {
                let Some(known) = run.rows(Self::WEIGHT) else { return Ok(()) };
                for row in (0..dout.rows()).filter(learning) {
                    let id = ids.index(row, height, "weight")? as i64;
                    if let Ok(index) = known.ids().binary_search(&id) {
                        let numbers = &mut numbers[index * width..(index + 1) * width];
                        numbers.iter_mut().zip(dout.row(row)).for_each(|(sum, &d)| *sum += d);
                    }
                }
                Ok(())
            })?;
            return Ok(());
        }
        if let Some((rows, assign)) = run.gradient_rows(Self::WEIGHT) {
            if assign == Assign::Write || rows.dtype().is_none() {
                rows.reset::<T>(height, width);
            }
            rows.reserve::<T>(dout.rows());
            for row in (0..dout.rows()).filter(learning) {
                rows.push(ids.index(row, height, "weight")? as i64, dout.row(row));
            }
        } else if let Some((mut dw, assign)) = run.gradient::<T>(Self::WEIGHT)? {
            if assign == Assign::Write {
                dw.fill(T::ZERO);
            }
            for row in (0..dout.rows()).filter(learning) {
                let index = ids.index(row, height, "weight")?;
                for (dw, &d) in dw.row(index).iter_mut().zip(dout.row(row)) {
                    *dw += d;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::call::Direct;
    use crate::tensor::Storage;

    fn gradient(op: Embedding, before: Option<Dense>) -> Result<Storage> {
        let operands = [
            Operand::batch("ids", Variable::from_sequences(&[vec![2i64, 0], vec![], vec![2]])?),
            Operand::constant("weight", array![[0.0f32], [1.0], [2.0]]),
        ];
        let direct = Direct::new(Arc::new(op), &operands)?;
        let dout: Storage = Dense::from(array![[1.0f32], [10.0], [100.0]]).into();
        let before = before.map(|dense| vec![vec![None], vec![Some(dense.into())]]);
        let gradients = direct.backward(
            &direct.forward()?,
            &[vec![Some(dout)]],
            &|slot| slot == Embedding::WEIGHT,
            before.as_ref(),
        )?;
        Ok(gradients[Embedding::WEIGHT][0].clone().expect("asked for"))
    }

    #[test]
    fn dense_and_sparse_gradients_leave_the_padding_out() -> Result<()> {
        let dense = gradient(Embedding { padding_id: Some(0), sparse: false }, None)?;
        assert_eq!(dense.as_dense()?.as_slice::<f32>()?, [0.0, 0.0, 101.0]);
        let sparse = gradient(Embedding { padding_id: Some(0), sparse: true }, None)?;
        let rows = sparse.as_selected_rows()?;
        assert_eq!((rows.row_ids(), rows.height()), ([2, 2].as_slice(), 3));
        assert_eq!(sparse.to_dense()?.as_slice::<f32>()?, [0.0, 0.0, 101.0]);
        Ok(())
    }

    #[test]
    fn gradients_are_added_on_request() -> Result<()> {
        let before = Dense::from(array![[5.0f32], [6.0], [7.0]]);
        let sum = gradient(Embedding { padding_id: None, sparse: false }, Some(before))?;
        assert_eq!(sum.as_dense()?.as_slice::<f32>()?, [15.0, 6.0, 108.0]);
        Ok(())
    }
}
