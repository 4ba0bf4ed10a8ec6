//! `sequence_pool_piece`: pools sequences that arrive piece by piece at inference.

use super::pool_kind::{EarlierRows, Pool};
use crate::operator::attributes::Attribute;
use crate::ops::prelude::*;

operator! {
    /// Pools sequences that arrive piece by piece; the result equals the result of `sequence_pool` on the whole
    /// sequences.
    ///
    /// x holds the next piece of each sequence. The input `seen` holds the number of earlier rows of each sequence
    /// (i64); without `seen`, no sequence has earlier rows. The input `carried` holds the accumulated value of the
    /// earlier rows, one row per sequence. The output `out` is the pooled value of all rows so far. The outputs
    /// `carried` and `seen` are inputs of the call for the next piece. Rows are added one by one in the order of the
    /// sequence, so the output `out` for the last piece is bit-identical to the result of `sequence_pool` on the whole
    /// sequences. With the attribute `from_end`, the last piece of a sequence is passed first; only the pools `first`
    /// and `last` allow `from_end`. An empty piece does not change the accumulated value of its sequence. Programs for
    /// inference in pieces contain `sequence_pool_piece` in place of `sequence_pool`. The operator has no gradient.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let op = ops::catalogue().parse("sequence_pool_piece", &Attributes::new().with("pool", "mean"))?;
    /// let x = |rows: &[Vec<f64>]| Variable::from_sequences(rows).map(|x| Operand::batch("x", x));
    /// let first = op.clone().call(&[x(&[vec![1.0, 2.0], vec![5.0]])?])?;
    /// assert_eq!(first[0].as_slice::<f64>()?, [1.5, 5.0]);
    /// let before = [Operand::batch("carried", first[1].clone()), Operand::batch("seen", first[2].clone())];
    /// let second = op.call(&[&[x(&[vec![6.0], vec![]])?], &before[..]].concat())?;
    /// assert_eq!(second[0].as_slice::<f64>()?, [3.0, 5.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct SequencePoolPiece = sequence_pool_piece {
        pool: Pool,
        pad_value: f64 = 0.0,
        from_end: Option<bool> => from_end,
    }
    inputs { X = x: one.without_gradient(), CARRIED = carried: optional.without_gradient(), SEEN = seen: optional.without_gradient() }
    outputs { OUT = out: one.without_gradient(), CARRIED_ON = carried: one.without_gradient(), SEEN_NOW = seen: one.without_gradient() }
}

impl SequencePoolPiece {
    /// Returns whether the last piece of a sequence may be passed first: true for the pools `first` and `last`. For all other
    /// pools, rows would not be accumulated in the order of the sequence, which would change the bits of the result.
    pub(in crate::ops) fn reads_from_end(pool: Pool) -> bool {
        matches!(pool, Pool::First | Pool::Last)
    }
}

fn from_end(attributes: &Attributes, name: &str) -> Result<Option<bool>> {
    let (pool, from_end) = (Pool::read(attributes, "pool")?, Option::<bool>::read(attributes, name)?);
    if from_end == Some(true) && !SequencePoolPiece::reads_from_end(pool) {
        let expected = "first or last where pieces come from the end";
        return Err(Error::of(ErrorKind::Program, "attribute `pool`", expected, pool.name()));
    }
    Ok(from_end)
}

impl Op for SequencePoolPiece {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::DropsLevel(Self::X))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.has_lod(Self::X)?;
        let out = s.input(Self::X).drop_level(s.top())?;
        let mut seen = out.with_dtype(DType::I64);
        seen.shape.truncate(1);
        for (slot, spec) in [(Self::CARRIED, &out), (Self::SEEN, &seen)] {
            if s.optional(slot).is_some_and(|given| given != spec) {
                return Err(s.mismatch(slot, &format!("{spec}, as the output of that name")));
            }
        }
        s.set(Self::OUT, out.clone());
        s.set(Self::CARRIED_ON, out);
        s.set(Self::SEEN_NOW, seen);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => self.pool::<T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let from_end = [(Pool::First, Some(true)), (Pool::Last, Some(true))];
        let mut samples = Vec::new();
        for (pool, from_end) in Pool::ALL.map(|pool| (pool, None)).into_iter().chain(from_end) {
            let attributes = SequencePoolPiece { pool, pad_value: -0.5, from_end }.attributes();
            samples.extend(CheckCase::of_sequences(&attributes, |sample, lod| {
                let end = if from_end == Some(true) { " from the end" } else { "" };
                let name = format!("{}{end}, {}", pool.name(), sample.name);
                let (sequences, upper) = (lod.last_len(), lod.upper().cloned());
                // Some sequences have earlier rows, among them a sequence with an empty piece.
                let seen = Array1::from_iter((0..sequences as i64).map(|i| i % 3));
                let carried = Variable::new(Dense::from(numbers(sequences, 3, 1)), upper.clone())?;
                Ok(CheckCase { name, ..sample }
                    .batch("x", Variable::sequences(numbers(lod.rows(), 3, 0), lod)?)
                    .batch("carried", carried)
                    .batch("seen", Variable::new(Dense::from(seen), upper)?))
            })?);
        }
        Ok(samples)
    }
}

impl SequencePoolPiece {
    fn pool<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (x, sequences) = (run.input::<T>(Self::X)?, run.sequences(Self::X)?);
        let (before, seen) = (run.optional::<T>(Self::CARRIED)?, run.optional::<i64>(Self::SEEN)?);
        let (mut out, mut carried) = (run.output::<T>(Self::OUT)?, run.output::<T>(Self::CARRIED_ON)?);
        let mut now = run.output::<i64>(Self::SEEN_NOW)?;
        for (sequence, rows) in sequences.iter().enumerate() {
            let seen = seen.map_or(0, |seen| seen.row(sequence)[0]).max(0);
            let (out, carried) = (out.row(sequence), carried.row(sequence));
            match before {
                Some(before) => carried.copy_from_slice(before.row(sequence)),
                None => carried.fill(T::ZERO),
            }
            let all = seen.saturating_add(rows.len() as i64);
            now.row(sequence)[0] = all;
            match (self.from_end == Some(true), self.pool) {
                (true, Pool::First) => self.pool.take(x, rows, EarlierRows::Nothing, carried),
                (true, Pool::Last) if seen > 0 => {}
                _ => {
                    let before = if seen > 0 { EarlierRows::Rows } else { EarlierRows::Nothing };
                    self.pool.take(x, rows, before, carried)
                }
            }
            if all == 0 {
                out.fill(T::from_f64(self.pad_value));
            } else {
                out.copy_from_slice(carried);
                self.pool.finish(all as usize, out);
            }
        }
        Ok(())
    }
}
