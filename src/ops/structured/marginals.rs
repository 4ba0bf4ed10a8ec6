//! `crf_marginals`: the probability of each tag in each row, under a conditional random field (CRF).

use super::chain::HEAVY;
use super::chain::{self, EMISSIONS};
use crate::kernels::{ChainRoom, Transitions, marginals};
use crate::ops::prelude::*;

operator! {
    /// Computes the marginal probability of each tag in each row of a sequence under a [linear-chain conditional random
    /// field](Self::linear_chain_crf): p(y_t = tag) is the sum of the probabilities of all paths with this tag in row t.
    ///
    /// `emissions` `[rows, tags]`, `transitions` `[tags + 2, tags]` and `forbidden` have the meaning that they have in
    /// `linear_chain_crf`. The output has the rows and the LoD of the emissions; the probabilities in a row add up to 1. If
    /// every path of a sequence is forbidden, all probabilities in its rows are 0. `emissions` and `transitions` get no
    /// gradient.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[0.0, 0.0], [0.0, 0.0]], Lod::from_lengths1(&[2, 0])?)?;
    /// // There are four paths; the path 0, 1 is forbidden.
    /// let op = ops::catalogue().parse("crf_marginals", &Attributes::new().with("forbidden", vec![1i64]))?;
    /// let zeros = ndarray::Array2::<f64>::zeros((4, 2));
    /// let out = op.call(&[Operand::batch("emissions", x), Operand::constant("transitions", zeros)])?;
    /// for (p, thirds) in out[0].as_slice::<f64>()?.iter().zip([1.0, 2.0, 2.0, 1.0]) {
    ///     assert!((p - thirds / 3.0).abs() < 1e-12);
    /// }
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if widths or dtypes do not fit, or `emissions` has no LoD.
    pub(in crate::ops) struct CrfMarginals = crf_marginals { forbidden: Vec<i64> = Vec::new() }
    inputs { EMISSIONS = emissions: one.without_gradient(), TRANSITIONS = transitions: one.without_gradient() }
    outputs { OUT = out: one.without_gradient() }
    impl Builder, Var { fn crf_marginals(&self, emissions: Var, transitions: Var, forbidden: &[i64]) -> Var; }
}

#[derive(Default)]
struct Rooms(Transitions, ChainRoom);

impl Op for CrfMarginals {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(EMISSIONS))
    }

    fn hints(&self) -> Hints {
        Hints { heavy: HEAVY, ..Hints::default() }
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        chain::memory::<Rooms>(sizes, chain::sums_of_longest(sizes))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        chain::check(s, &self.forbidden)?;
        s.set(Self::OUT, s.input(EMISSIONS).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(EMISSIONS), T => self.likely::<T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples =
            chain::samples(&Self { forbidden: vec![] }.attributes(), 3, |sample, _| Ok(sample))?;
        let some = Self { forbidden: vec![0, 7, 13] }.attributes();
        samples.extend(chain::samples(&some, 3, |sample, _| Ok(sample))?);
        Ok(samples)
    }
}

impl CrfMarginals {
    fn likely<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (emissions, mut out) = (run.input::<T>(EMISSIONS)?, run.output::<T>(Self::OUT)?);
        let mut rooms = std::mem::take(run.scratch().get::<Rooms>());
        let transitions = chain::prepare::<T>(run, &self.forbidden, &mut rooms.0)?;
        for rows in run.sequences(EMISSIONS)?.iter() {
            let of_sequence = emissions.rows_range(rows.start, rows.end);
            marginals(transitions, of_sequence, &mut rooms.1, None, |row, likely| {
                out.row(rows.start + row).iter_mut().zip(likely).for_each(|(to, &p)| *to = T::from_f64(p));
            });
        }
        *run.scratch().get::<Rooms>() = rooms;
        Ok(())
    }
}
