//! `rotary`: rotary position embedding, which rotates pairs of columns by an angle that grows with the position of the row.

use crate::kernels::emptied;
use crate::operator::attributes::or_default;
use crate::ops::prelude::*;

operator! {
    /// Rotary position embedding: in each head of d columns, rotates columns c and c + d/2 of row t of a sequence by the angle
    /// t · base^(−2c/d). If queries and keys are both rotated, the dot product of a query and a key depends on their
    /// positions only through the distance between the two positions.
    ///
    /// Source: Su et al., "RoFormer" (2021); as in GPT-NeoX, each pair has one column in the first half of a head and one
    /// column in the second half. `x` is `[rows, heads · d]` with d even; the output has the shape and LoD of `x`. With a =
    /// x_c, b = x_(c + d/2) and the angle α of the row and the pair: out_c = a cos α − b sin α, out_(c + d/2) = b cos
    /// α + a sin α. The position t is counted from 0 in each sequence of the last level; an empty sequence stays empty.
    /// The method `rotary` uses the `base` 10,000.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let op = ops::catalogue().parse("rotary", &Attributes::new().with("heads", 1usize))?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 0.0, 1f64.cos(), 1f64.sin(), 1.0, 0.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` has no LoD or holds no floats; if the width of a head is not even; if `base` is not
    /// above 0.
    #[doc(alias = "RoPE")]
    pub(in crate::ops) struct Rotary = rotary { heads: usize, base: f64 => base }
    inputs { X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn rotary(&self, x: Var, heads: usize) -> Var { let base = 10_000.0; } }
}

fn base(attributes: &Attributes, name: &str) -> Result<f64> {
    let base = or_default(attributes, name, 10_000.0)?;
    if base.is_finite() && base > 0.0 {
        return Ok(base);
    }
    let what = format!("attribute `{name}`");
    Err(Error::of(ErrorKind::Program, what, "a finite number above 0", base.to_string()))
}

impl Op for Rotary {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(Self::X))
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        // The scratch memory holds a cosine and a sine for each position and each pair of columns of a head.
        let numbers = sizes.longest(Self::X) * sizes.input(Self::X).1 / self.heads;
        with_float!(sizes.dtype(Self::X), T => {
            Ok(CallMemory::default().scratch::<Turns<T>>(sizes.threads() * numbers * size_of::<T>()))
        })
        .unwrap_or_default()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.has_lod(Self::X)?;
        let x = s.input(Self::X);
        if self.heads == 0 || x.shape.len() != 2 || !x.width().is_multiple_of(2 * self.heads) {
            let expected = format!("rows of {} heads of an even width each", self.heads);
            return Err(s.mismatch(Self::X, &expected));
        }
        s.set(Self::OUT, x.clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let (x, out) = (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?);
            let sequences = run.sequences(Self::X)?;
            let mut turns = std::mem::take(run.scratch().get::<Turns<T>>());
            self.turn(x, (out, Assign::Write), sequences, &mut turns, T::ONE);
            *run.scratch().get::<Turns<T>>() = turns;
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let dout = run.dout::<T>(Self::OUT)?;
            let Some(dx) = run.gradient::<T>(Self::X)? else { return Ok(()) };
            let sequences = run.sequences(Self::X)?;
            let mut turns = std::mem::take(run.scratch().get::<Turns<T>>());
            // The backward pass rotates the gradient by the negative angles.
            self.turn(dout, dx, sequences, &mut turns, -T::ONE);
            *run.scratch().get::<Turns<T>>() = turns;
            Ok(())
        })
    }

    gradient_reads!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for (heads, width) in [(1, 4), (2, 8)] {
            let attributes = Rotary { heads, base: 100.0 }.attributes();
            samples.extend(CheckCase::of_sequences(&attributes, |sample, lod| {
                Ok(sample.batch("x", Variable::sequences(numbers(lod.rows(), width, 0), lod)?))
            })?);
        }
        Ok(samples)
    }
}

/// The cosine and the sine for each position and pair of columns, up to the longest sequence so far; later calls reuse these
/// numbers.
struct Turns<T> {
    of: (usize, f64),
    angles: Vec<(T, T)>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { of: (0, 0.0), angles: vec![] }
    }
}

impl<T: Float> Turns<T> {
    /// Ensures that the cosines and sines of the first `places` positions are stored. Computes all of them again if
    /// `pairs` or `base` changed, or if fewer positions are stored.
    fn learn(&mut self, pairs: usize, base: f64, places: usize) {
        if self.of != (pairs, base) {
            (self.of, self.angles) = ((pairs, base), vec![]);
        }
        if self.angles.len() >= places * pairs {
            return;
        }
        emptied(&mut self.angles, places * pairs);
        for index in 0..places {
            self.angles.extend((0..pairs).map(|pair| {
                let angle = index as f64 * base.powf(-(pair as f64) / pairs as f64);
                (T::from_f64(angle.cos()), T::from_f64(angle.sin()))
            }));
        }
    }
}

impl Rotary {
    fn turn<T: RowValue>(
        &self,
        x: View<'_, T>,
        (mut to, assign): (ViewMut<'_, T>, Assign),
        sequences: Sequences<'_>,
        turns: &mut Turns<T>,
        sense: T,
    ) {
        let head = x.width() / self.heads;
        let pairs = head / 2;
        if pairs == 0 {
            return;
        }
        turns.learn(pairs, self.base, sequences.iter().map(|rows| rows.len()).max().unwrap_or(0));
        for rows in sequences.iter() {
            for (row, turns) in rows.zip(turns.angles.chunks_exact(pairs)) {
                let heads = x.row(row).chunks_exact(head).zip(to.row(row).chunks_exact_mut(head));
                for (x, to) in heads {
                    let ((a, b), (to_a, to_b)) = (x.split_at(pairs), to.split_at_mut(pairs));
                    for (pair, &(cos, sin)) in turns.iter().enumerate() {
                        let sin = sense * sin;
                        assign.put(&mut to_a[pair], a[pair] * cos - b[pair] * sin);
                        assign.put(&mut to_b[pair], b[pair] * cos + a[pair] * sin);
                    }
                }
            }
        }
    }
}
