//! `viterbi_decode`: finds the n paths of tags with the highest scores, for each sequence.

use super::chain::HEAVY;
use super::chain::{self, EMISSIONS};
use crate::kernels::{BestPaths, Transitions, best_paths};
use crate::ops::prelude::*;

/// The maximum of n, the number of paths per sequence.
const MOST: usize = 4096;

operator! {
    /// Finds the likeliest paths of tags of each sequence under a [linear-chain conditional random
    /// field](Self::linear_chain_crf), best first, and their scores (Viterbi, "Error bounds for convolutional codes and an
    /// asymptotically optimum decoding algorithm", 1967).
    ///
    /// `emissions` `[rows, tags]`, `transitions` `[tags + 2, tags]` and `forbidden` have the meaning that they have in
    /// `linear_chain_crf`; n is `n_best`. The output `paths`, i64 `[rows, n]`, has the rows and the LoD of the emissions:
    /// column k is the k-th best path. The output `scores` `[sequences, n]` has the LoD of the emissions without its last
    /// level. If a sequence has fewer than n allowed paths, the tags of the missing paths are −1, and the scores of the missing
    /// paths are minus infinity. If all paths of a sequence are forbidden, the first path has tag 0 in every row and the score
    /// minus infinity. A path with the score NaN counts as forbidden. A sequence without rows has one path, with the score 0.
    /// Two paths with equal scores are sorted by their tags at the last row where the tags differ, the smaller tag first.
    /// `emissions` and `transitions` get no gradient.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[2.0, 0.0], [1.0, 2.0]], Lod::from_lengths1(&[2, 0])?)?;
    /// let op = ops::catalogue().parse("viterbi_decode", &Attributes::new().with("n_best", 2usize))?;
    /// let zeros = ndarray::Array2::<f64>::zeros((4, 2));
    /// let out = op.call(&[Operand::batch("emissions", x), Operand::constant("transitions", zeros)])?;
    /// assert_eq!(out[0].as_slice::<i64>()?, [0, 0, 1, 0]); // the best path is 0, 1; the second 0, 0
    /// assert_eq!(out[1].as_slice::<f64>()?, [4.0, 3.0, 0.0, f64::NEG_INFINITY]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if widths or dtypes do not fit, `emissions` has no LoD, or n is not from 1 to 4096; when the
    /// program runs, it is also an error if 4 · rows · tags · n bytes of memory, for the rows of one sequence, cannot
    /// be allocated.
    pub(in crate::ops) struct ViterbiDecode = viterbi_decode {
        n_best: usize => some_paths,
        forbidden: Vec<i64> = Vec::new(),
    }
    inputs { EMISSIONS = emissions: one.without_gradient(), TRANSITIONS = transitions: one.without_gradient() }
    outputs { PATHS = paths: one.without_gradient(), SCORES = scores: one.without_gradient() }
    impl Builder, Var {
        fn viterbi_decode(&self, emissions: Var, transitions: Var, n_best: usize, forbidden: &[i64]) -> (Var, Var);
    }
}

fn some_paths(attributes: &Attributes, name: &str) -> Result<usize> {
    let paths = attributes.size(name)?;
    if (1..=MOST).contains(&paths) {
        return Ok(paths);
    }
    let what = format!("attribute `{name}`");
    Err(Error::of(ErrorKind::Program, what, format!("1 to {MOST}"), paths.to_string()))
}

#[derive(Default)]
struct Rooms(Transitions, BestPaths);

impl Op for ViterbiDecode {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(EMISSIONS))
    }

    fn hints(&self) -> Hints {
        Hints { heavy: HEAVY, ..Hints::default() }
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let (_, tags) = sizes.input(EMISSIONS);
        chain::memory::<Rooms>(sizes, BestPaths::bytes_of(sizes.longest(EMISSIONS), tags, self.n_best))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        let sequences = chain::check(s, &self.forbidden)?;
        s.set(Self::PATHS, s.input(EMISSIONS).with_dtype(DType::I64).with_width(self.n_best));
        s.set(Self::SCORES, sequences.with_width(self.n_best));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(EMISSIONS), T => self.best::<T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for (n_best, forbidden) in [(1, vec![]), (1, vec![0, 7, 13]), (3, vec![1])] {
            let op = ViterbiDecode { n_best, forbidden }.attributes();
            samples.extend(chain::samples(&op, 3, |sample, _| Ok(sample))?);
        }
        Ok(samples)
    }
}

impl ViterbiDecode {
    fn best<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let emissions = run.input::<T>(EMISSIONS)?;
        let (mut paths, mut scores) = (run.output::<i64>(Self::PATHS)?, run.output::<T>(Self::SCORES)?);
        paths.iter_mut().for_each(|row| row.fill(-1));
        scores.fill(T::NEG_INFINITY);
        let mut rooms = std::mem::take(run.scratch().get::<Rooms>());
        let transitions = chain::prepare::<T>(run, &self.forbidden, &mut rooms.0)?;
        for (sequence, rows) in run.sequences(EMISSIONS)?.iter().enumerate() {
            let of_sequence = emissions.rows_range(rows.start, rows.end);
            best_paths(transitions, of_sequence, self.n_best, &mut rooms.1, |rank, score, path| {
                scores.row(sequence)[rank] = T::from_f64(score);
                rows.clone().zip(path).for_each(|(row, &tag)| paths.row(row)[rank] = tag as i64);
            })
            .map_err(|e| e.noted(format!("in sequence {sequence}")))?;
        }
        *run.scratch().get::<Rooms>() = rooms;
        Ok(())
    }
}
