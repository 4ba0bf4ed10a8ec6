//! `sequence_pool`: pools the rows of each sequence to one row.

use half::bf16;

use super::pool_kind::{EarlierRows, Pool};
use super::pool_piece::SequencePoolPiece;
use crate::kernels::exceeds;
use crate::ops::prelude::*;

operator! {
    /// Pooling: reduces each sequence of the last level to one row, with `pad_value` for an empty sequence.
    ///
    /// | pool | out_s, over the rows x_t of sequence s | gradient of x_t |
    /// |---|---|---|
    /// | sum | Σ x_t | d |
    /// | mean | Σ x_t / n | d / n |
    /// | sqrt | Σ x_t / √n | d / √n |
    /// | max | the largest number of each column; NaN counts as the largest | d at the first maximum, else 0 |
    /// | first | the first row | d at the first row, else 0 |
    /// | last | the last row | d at the last row, else 0 |
    ///
    /// In the table, n is the number of rows of sequence s, and d is the gradient of out_s. An empty sequence gives a row of
    /// `pad_value`, and passes no gradient. The output has the LoD of x without its last level.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// // Two documents: one has two sentences, the other has one.
    /// let lod = Lod::from_lengths(&[vec![2, 1], vec![2, 0, 1]])?;
    /// let x = Variable::sequences(array![[1.0, 5.0], [3.0, 4.0], [5.0, 6.0]], lod)?;
    /// let op = ops::catalogue().parse("sequence_pool", &Attributes::new().with("pool", "max"))?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [3.0, 5.0, 0.0, 0.0, 5.0, 6.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` has no LoD or does not hold floats.
    pub(in crate::ops) struct SequencePool = sequence_pool { pool: Pool, pad_value: f64 = 0.0 }
    inputs { X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn sequence_pool_with(&self, x: Var, pool: Pool, pad_value: f64) -> Var; }
}

builder_methods! { Builder, Var;
    /// Pooling: reduces each sequence of the last level to one row, such as the sum, mean or maximum of the rows. An empty
    /// sequence gives a row of zeros. The table at [`sequence_pool_with`](Self::sequence_pool_with) has the formulas.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0], [3.0], [5.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let op = ops::catalogue().parse("sequence_pool", &Attributes::new().with("pool", "mean"))?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [2.0, 0.0, 5.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` has no LoD or does not hold floats.
    pub fn sequence_pool(&self, x: Var, pool: Pool) -> Var {
        self.sequence_pool_with(x, pool, 0.0)
    }
}

impl Op for SequencePool {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::DropsLevel(Self::X))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.has_lod(Self::X)?;
        let out = s.input(Self::X).drop_level(s.top())?;
        s.set(Self::OUT, out);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        if run.holds_bf16(Self::X) {
            return self.copy::<bf16>(run);
        }
        with_float!(run.dtype(Self::X), T => self.pool::<T>(run))
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => self.gradient::<T>(run))
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        if self.pool == Pool::Max {
            Gradient::reads_nothing().input(Self::X)
        } else {
            Gradient::reads_nothing()
        }
    }

    fn hints(&self) -> Hints {
        let SequencePool { pool, pad_value } = *self;
        let pieces = |from_end| Pieces {
            into: SequencePoolPiece::kind(),
            attributes: SequencePoolPiece { pool, pad_value, from_end }.attributes(),
            carried: &["carried", "seen"],
        };
        let from_end = SequencePoolPiece::reads_from_end(pool).then(|| pieces(Some(true)));
        let copies = matches!(pool, Pool::First | Pool::Last) && pad_value.to_bits() == 0;
        Hints { pieces: Some(pieces(None)), pieces_from_end: from_end, copies, ..Hints::default() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        let copies = [Pool::First, Pool::Last].map(|pool| (pool, 0.0));
        for (pool, pad_value) in Pool::ALL.map(|pool| (pool, -0.5)).into_iter().chain(copies) {
            let attributes = SequencePool { pool, pad_value }.attributes();
            samples.extend(CheckCase::of_sequences(&attributes, |sample, lod| {
                let name = format!("{}, padded with {pad_value}, {}", pool.name(), sample.name);
                let x = Variable::sequences(numbers(lod.rows(), 3, 0), lod)?;
                Ok(CheckCase { name, ..sample }.batch("x", x))
            })?);
        }
        Ok(samples)
    }
}

impl SequencePool {
    /// Copies the first or the last row of each sequence; the row of an empty sequence has zeros.
    fn copy<T: Plain + Default>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (x, mut out, sequences) =
            (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?, run.sequences(Self::X)?);
        for (rows, out) in sequences.iter().zip(out.iter_mut()) {
            let row = if self.pool == Pool::First { Some(rows.start) } else { rows.end.checked_sub(1) };
            match row.filter(|row| rows.contains(row)) {
                Some(row) => out.copy_from_slice(x.row(row)),
                None => out.fill(T::default()),
            }
        }
        Ok(())
    }

    fn pool<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (x, mut out, sequences) =
            (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?, run.sequences(Self::X)?);
        for (rows, out) in sequences.iter().zip(out.iter_mut()) {
            if rows.is_empty() {
                out.fill(T::from_f64(self.pad_value));
                continue;
            }
            self.pool.take(x, rows.clone(), EarlierRows::Nothing, out);
            self.pool.finish(rows.len(), out);
        }
        Ok(())
    }

    fn gradient<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let dout = run.dout::<T>(Self::OUT)?;
        let Some((mut dx, assign)) = run.gradient::<T>(Self::X)? else { return Ok(()) };
        let sequences = run.sequences(Self::X)?;
        if assign == Assign::Write && matches!(self.pool, Pool::First | Pool::Last | Pool::Max) {
            dx.fill(T::ZERO);
        }
        for (rows, dout) in sequences.iter().zip(dout.iter()).filter(|(rows, _)| !rows.is_empty()) {
            match self.pool {
                Pool::First => add(dx.row(rows.start), dout),
                Pool::Last => add(dx.row(rows.end - 1), dout),
                Pool::Max => {
                    let x = run.input::<T>(Self::X)?;
                    let best = &mut run.scratch().get::<FirstMaximum>().0;
                    first_maximum(x, rows, best);
                    for (column, (&row, &d)) in best.iter().zip(dout).enumerate() {
                        dx.row(row)[column] += d;
                    }
                }
                Pool::Sum | Pool::Mean | Pool::Sqrt => {
                    let divisor = self.pool.divisor::<T>(rows.len());
                    for row in rows {
                        let pairs = dx.row(row).iter_mut().zip(dout);
                        match assign {
                            Assign::Write => pairs.for_each(|(dx, &d)| *dx = d / divisor),
                            Assign::Add => pairs.for_each(|(dx, &d)| *dx += d / divisor),
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Scratch memory: for each column, the index of the first row that has the maximum.
#[derive(Default)]
struct FirstMaximum(Vec<usize>);

fn first_maximum<T: Float>(x: View<'_, T>, rows: Range<usize>, best: &mut Vec<usize>) {
    best.clear();
    best.resize(x.width(), rows.start);
    for row in rows.start + 1..rows.end {
        for (column, (best, &value)) in best.iter_mut().zip(x.row(row)).enumerate() {
            if exceeds(value, x.row(*best)[column]) {
                *best = row;
            }
        }
    }
}

fn add<T: Float>(to: &mut [T], from: &[T]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::call::Direct;
    use crate::tensor::Storage;

    fn gradient(pool: Pool, before: Option<f64>) -> Result<Vec<f64>> {
        let x = array![[1.0, 2.0], [1.0, 3.0], [9.0, 9.0]];
        let x = Variable::sequences(x, Lod::from_lengths1(&[2, 0, 1])?)?;
        let direct = Direct::new(Arc::new(SequencePool { pool, pad_value: 0.0 }), &[Operand::batch("x", x)])?;
        let dout: Storage = Dense::from(array![[2.0, 4.0], [100.0, 100.0], [6.0, 8.0]]).into();
        let before =
            before.map(|v| vec![vec![Some(Dense::from(ndarray::Array2::from_elem((3, 2), v)).into())]]);
        let out = direct.backward(&direct.forward()?, &[vec![Some(dout)]], &|_| true, before.as_ref())?;
        Ok(out[SequencePool::X][0].as_ref().expect("asked for").as_dense()?.as_slice::<f64>()?.to_vec())
    }

    #[test]
    fn the_gradient_of_a_maximum_goes_to_the_first_of_equal_ones() -> Result<()> {
        assert_eq!(gradient(Pool::Max, None)?, [2.0, 0.0, 0.0, 4.0, 6.0, 8.0]);
        assert_eq!(gradient(Pool::Max, Some(1.0))?, [3.0, 1.0, 1.0, 5.0, 7.0, 9.0]);
        assert_eq!(gradient(Pool::Mean, Some(1.0))?, [2.0, 3.0, 2.0, 3.0, 7.0, 9.0]);
        Ok(())
    }

    #[test]
    fn a_nan_is_the_maximum() -> Result<()> {
        for column in [array![[f32::NAN], [1.0]], array![[1.0], [f32::NAN]]] {
            let x = Variable::sequences(column, Lod::from_lengths1(&[2])?)?;
            let op: Arc<dyn Op> = Arc::new(SequencePool { pool: Pool::Max, pad_value: 0.0 });
            assert!(op.call(&[Operand::batch("x", x)])?[0].as_slice::<f32>()?[0].is_nan());
        }
        Ok(())
    }
}
