//! `sequence_topk_pool`: the mean of the k largest numbers in each column of each sequence.

use crate::kernels::exceeds;
use crate::ops::prelude::*;

operator! {
    /// Computes the mean of the k largest numbers in each column of each sequence, for every k in `counts`. The means for all k
    /// are side by side in one row per sequence.
    ///
    /// out_s = [m_k1, m_k2, …] for sequence s, where each m_k has D numbers: column c of m_k is the mean of the min(k, n)
    /// largest numbers x_tc over the n rows t of the sequence. So k = 1 gives the maximum, and k ≥ n gives the mean. Of equal
    /// numbers, the number in the earlier row counts as larger; NaN counts as larger than any number. An empty sequence gives
    /// `pad_value` in every column and passes no gradient. In a sequence with rows, each of the min(k, n) largest numbers gets
    /// the gradient of m_k, divided by min(k, n). The output has the LoD of x without its last level.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let x = Variable::from_sequences(&[vec![1.0, 5.0, 3.0], vec![], vec![4.0]])?;
    /// let attributes = Attributes::new().with("counts", vec![1, 2]);
    /// let out = ops::catalogue().parse("sequence_topk_pool", &attributes)?.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].shape(), [3, 2]);
    /// assert_eq!(out[0].as_slice::<f64>()?, [5.0, 4.0, 0.0, 0.0, 4.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` has no LoD or does not hold floats, or if `counts` is empty or contains 0.
    pub(in crate::ops) struct SequenceTopkPool = sequence_topk_pool { counts: Vec<usize> => some, pad_value: f64 = 0.0 }
    inputs { X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn sequence_topk_pool(&self, x: Var, counts: &[usize], pad_value: f64) -> Var; }
}

fn some(attributes: &Attributes, name: &str) -> Result<Vec<usize>> {
    let counts = attributes.sizes(name)?;
    if counts.is_empty() || counts.contains(&0) {
        let got = format!("{counts:?}");
        return Err(Error::of(
            ErrorKind::Program,
            format!("attribute `{name}`"),
            "one or more numbers, each at least 1",
            got,
        ));
    }
    Ok(counts)
}

/// Scratch memory: the indices of the rows that have the largest values in one column, the row with the largest value first.
#[derive(Default)]
struct Largest(Vec<usize>);

impl Op for SequenceTopkPool {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::DropsLevel(Self::X))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.has_lod(Self::X)?;
        let x = s.input(Self::X);
        let Some(width) = x.width().checked_mul(self.counts.len()) else {
            return Err(s.mismatch(Self::X, "rows whose width times the number of counts fits into a usize"));
        };
        let mut out = x.drop_level(s.top())?;
        out.shape.truncate(1);
        out.shape.push(Extent::Known(width));
        s.set(Self::OUT, out);
        Ok(())
    }

    float_passes!(Self::X, T: (self, run) => self.pooled::<T>(run), self.gradients::<T>(run));

    gradient_reads!(Self::X);

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for (counts, width) in [(vec![2], 3), (vec![1, 3], 2), (vec![5, 2, 2], 1)] {
            let attributes = SequenceTopkPool { counts, pad_value: -0.5 }.attributes();
            samples.extend(CheckCase::of_sequences(&attributes, |sample, lod| {
                Ok(sample.batch("x", Variable::sequences(numbers(lod.rows(), width, 0), lod)?))
            })?);
        }
        Ok(samples)
    }
}

/// Writes row indices to `chosen`: the rows with the `count` largest values in one column, in descending order of the values.
fn choose<T: Float>(
    x: View<'_, T>,
    rows: Range<usize>,
    column: usize,
    count: usize,
    chosen: &mut Vec<usize>,
) {
    chosen.clear();
    for row in rows {
        let value = x.row(row)[column];
        // A number is inserted after equal numbers, so that the earlier row is first among rows with equal numbers.
        let at =
            chosen.iter().position(|&other| exceeds(value, x.row(other)[column])).unwrap_or(chosen.len());
        if at < count {
            chosen.truncate(count - 1);
            chosen.insert(at, row);
        }
    }
}

impl SequenceTopkPool {
    fn most(&self) -> usize {
        self.counts.iter().copied().max().unwrap_or(0)
    }

    fn pooled<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (x, mut out, sequences) =
            (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?, run.sequences(Self::X)?);
        let chosen = &mut run.scratch().get::<Largest>().0;
        for (rows, out) in sequences.iter().zip(out.iter_mut()) {
            if rows.is_empty() {
                out.fill(T::from_f64(self.pad_value));
                continue;
            }
            for column in 0..x.width() {
                choose(x, rows.clone(), column, self.most(), chosen);
                for (k, &count) in self.counts.iter().enumerate() {
                    let some = &chosen[..count.min(chosen.len())];
                    let sum = some.iter().fold(T::ZERO, |sum, &row| sum + x.row(row)[column]);
                    out[k * x.width() + column] = sum / T::from_f64(some.len() as f64);
                }
            }
        }
        Ok(())
    }

    fn gradients<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let dout = run.dout::<T>(Self::OUT)?;
        let Some((mut dx, assign)) = run.gradient::<T>(Self::X)? else { return Ok(()) };
        assign.put_nothing(dx.reborrow());
        let (x, sequences) = (run.input::<T>(Self::X)?, run.sequences(Self::X)?);
        let chosen = &mut run.scratch().get::<Largest>().0;
        for (rows, dout) in sequences.iter().zip(dout.iter()) {
            for column in 0..x.width() {
                choose(x, rows.clone(), column, self.most(), chosen);
                // The gradients for all k are summed before the sum is added to dx, because dx may already hold the gradient of
                // another use of x.
                for (index, &row) in chosen.iter().enumerate() {
                    let shares = self.counts.iter().enumerate().filter(|&(_, &count)| index < count);
                    let sum = shares.fold(T::ZERO, |sum, (k, &count)| {
                        sum + dout[k * x.width() + column] / T::from_f64(count.min(chosen.len()) as f64)
                    });
                    dx.row(row)[column] += sum;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_and_nan_count_in_order() -> Result<()> {
        let x = [1.0, 2.0, f64::NAN, 2.0, 2.0];
        let view = View::new(&x, 5, 1);
        let mut chosen = vec![];
        for (count, expected) in [(1, &[2][..]), (3, &[2, 1, 3]), (9, &[2, 1, 3, 4, 0])] {
            choose(view, 0..5, 0, count, &mut chosen);
            assert_eq!(chosen, expected);
        }
        let catalogue = crate::ops::catalogue();
        for counts in [vec![], vec![2, 0]] {
            let attributes = SequenceTopkPool { counts, pad_value: 0.0 }.attributes();
            let error = catalogue.parse("sequence_topk_pool", &attributes).err().map(|e| e.to_string());
            assert!(error.is_some_and(|error| error.contains("attribute `counts`: expected one or more")));
        }
        let flat = catalogue.parse("sequence_topk_pool", &Attributes::new().with("counts", vec![1]))?;
        assert!(flat.call(&[Operand::batch("x", ndarray::array![[1.0]])]).is_err());
        Ok(())
    }
}
