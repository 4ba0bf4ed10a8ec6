//! `sequence_scatter`: adds each number of a sequence to one row of another variable, in the column given by an id.

use crate::ops::lookup::ids::{Ids, below, check, index};
use crate::ops::prelude::*;

operator! {
    /// Adds the `updates` of sequence i to row i of `x`; the column of each update is the id in the same row of `ids`.
    ///
    /// The output starts as a copy of x; then, for each row t of sequence i of the last level of `ids`, out_(i, ids_t) +=
    /// updates_t. If an id is repeated in a sequence, all updates of the id are added. `ids` and `updates` have one
    /// number per row, and the same LoD. x has one row of D numbers for each sequence of `ids`. x and the output have
    /// the LoD of `ids` without its last level. An empty sequence of ids adds nothing to its row. The gradient of x is
    /// the output's gradient; the gradient of updates_t is the output's gradient at row i, column ids_t.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let ids = Variable::from_sequences(&[vec![0i64, 2, 0], vec![], vec![1]])?;
    /// let updates = Variable::from_sequences(&[vec![1.0, 2.0, 4.0], vec![], vec![8.0]])?;
    /// let x = Variable::dense(array![[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]]);
    /// let op = ops::catalogue().parse("sequence_scatter", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x), Operand::batch("ids", ids), Operand::batch("updates", updates)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [5.5, 0.0, 2.0, 0.0, 0.5, 0.0, 0.0, 8.0, 0.5]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` does not have one row of floats for each sequence of `ids`, or `updates` does not have one number
    /// for each id; at a run, if an id is below 0 or not below D.
    pub(in crate::ops) struct SequenceScatter = sequence_scatter {}
    inputs { IDS = ids: one.without_gradient(), UPDATES = updates: one, X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn sequence_scatter(&self, x: Var, ids: Var, updates: Var) -> Var; }
}

impl Op for SequenceScatter {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::DropsLevel(Self::IDS))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        check(s, Self::IDS)?;
        s.has_lod(Self::IDS)?;
        s.is_float(Self::X)?;
        s.same_dtype(Self::X, Self::UPDATES)?;
        s.same_rows(Self::IDS, Self::UPDATES)?;
        if s.input(Self::UPDATES).width() != 1 {
            return Err(s.mismatch(Self::UPDATES, "one number for each row"));
        }
        s.row_for_each_sequence(Self::X, Self::IDS)?;
        let x = s.input(Self::X);
        if x.shape.len() > 2 {
            return Err(s.mismatch(Self::X, "rows of numbers"));
        }
        s.set(Self::OUT, x.clone());
        Ok(())
    }

    float_passes!(Self::X, T: (self, run) => forward::<T>(run), backward::<T>(run));

    fn gradient(&self, wrt: usize, _: &[Vec<Spec>]) -> Gradient {
        match wrt {
            Self::X => Gradient::reads_nothing().passes(true),
            _ => Gradient::reads_nothing().input(Self::IDS),
        }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for short in [false, true] {
            samples.extend(CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
                let ids = Array1::from_iter((0..lod.rows()).map(|i| [2i64, 0, 2, 1][i % 4]));
                let ids = match short {
                    false => Variable::sequences(ids, lod.clone())?,
                    true => Variable::sequences(ids.mapv(|id| id as i32), lod.clone())?,
                };
                let x = Variable::new(Dense::from(numbers(lod.last_len(), 3, 0)), lod.upper().cloned())?;
                let updates = Variable::sequences(numbers(lod.rows(), 1, 1), lod)?;
                Ok(sample.batch("x", x).batch("ids", ids).batch("updates", updates))
            })?);
        }
        Ok(samples)
    }
}

/// Returns the id of a row as a column index; returns an error unless the id is at least 0 and below `width`.
fn column(ids: &Ids<'_>, row: usize, width: usize) -> Result<usize> {
    let id = ids.get(row);
    index(id, width).ok_or_else(|| Error::new("id", below(width), id.to_string()).row(row))
}

fn forward<T: RowValue>(run: &mut Forward<'_>) -> Result<()> {
    let (x, ids) = (run.input::<T>(SequenceScatter::X)?, Ids::of(run, SequenceScatter::IDS)?);
    let (updates, mut out) =
        (run.input::<T>(SequenceScatter::UPDATES)?, run.output::<T>(SequenceScatter::OUT)?);
    for (i, rows) in run.sequences(SequenceScatter::IDS)?.iter().enumerate() {
        let out = out.row(i);
        out.copy_from_slice(x.row(i));
        for row in rows {
            out[column(&ids, row, x.width())?] += updates.row(row)[0];
        }
    }
    Ok(())
}

fn backward<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let dout = run.dout::<T>(SequenceScatter::OUT)?;
    if let Some((dx, assign)) = run.gradient::<T>(SequenceScatter::X)? {
        assign.put_rows(dx, dout);
    }
    let Some((mut updates, assign)) = run.gradient::<T>(SequenceScatter::UPDATES)? else { return Ok(()) };
    let ids = Ids::of(run, SequenceScatter::IDS)?;
    for (i, rows) in run.sequences(SequenceScatter::IDS)?.iter().enumerate() {
        for row in rows {
            assign.put(&mut updates.row(row)[0], dout.row(i)[column(&ids, row, dout.width())?]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_out_of_range_is_named() -> Result<()> {
        for id in [3i64, -1] {
            let ids = Variable::from_sequences(&[vec![0], vec![2, id]])?;
            let updates = Variable::from_sequences(&[vec![1.0], vec![2.0, 3.0]])?;
            let op = crate::ops::catalogue().parse("sequence_scatter", &Attributes::new())?;
            let x = ndarray::Array2::<f64>::zeros((2, 3));
            let operands =
                [Operand::batch("x", x), Operand::batch("ids", ids), Operand::batch("updates", updates)];
            let error = op.call(&operands).err().map(|error| error.to_string()).unwrap_or_default();
            let expected = format!("expected at least 0 and below 3, the height, got {id}");
            assert!(error.contains(&expected), "{error}");
        }
        Ok(())
    }
}
