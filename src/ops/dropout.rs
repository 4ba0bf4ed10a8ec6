//! `dropout`: numbers are left out at random while training.
//!
//! Train: out = x · k / (1 − rate), where k is 1 with probability 1 − rate and else 0. Infer: out = x. Row-wise; the
//! output keeps x's LoD. k depends on the seed, the step, the operator, the row's sequence and place in it and the
//! column, so a sequence gets the same mask in any batch; the backward pass draws it again instead of keeping it. With
//! the attribute `per_sequence` the place does not count: all rows of a (top-level) sequence share one mask, in a step
//! block all its steps do. That is variational dropout (Gal and Ghahramani, 2016).
//!
//! ```
//! use unpadded::program::{Attributes, Operand};
//! use unpadded::{Variable, ops};
//! let x = Variable::from_sequences(&[vec![1.0, 2.0], vec![], vec![3.0]])?;
//! let op = ops::catalogue().parse("dropout", &Attributes::new().with("rate", 0.5))?;
//! let out = op.call(&[Operand::batch("x", x)])?;                 // a direct call infers
//! assert_eq!(out[0].as_slice::<f64>()?, [1.0, 2.0, 3.0]);
//! assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
//! # Ok::<(), unpadded::Error>(())
//! ```

use crate::error::{Error, ErrorKind, Result};
use crate::kernels::{Float, Store, View, ViewMut};
use crate::program::{
    Attributes, Backward, Builder, Facts, Forward, InferShape, Mode, Needs, Op, Sample, Signature, Slot, Var,
};
use crate::with_float;

use super::optional;
use super::rowwise::{put, put_rows, row_samples};

const X: usize = 0;
const OUT: usize = 0;

/// out = x · k / (1 − rate).
pub(super) struct Dropout {
    rate: f64,
    per_sequence: bool,
}

impl Builder {
    /// Leaves out each number with probability `rate` while training, and scales the others up.
    ///
    /// # Errors
    /// If `rate` is not in [0, 1) or `x` holds no floats.
    #[track_caller]
    pub fn dropout(&self, x: Var, rate: f64) -> Result<Var> {
        self.append1("dropout", &[("x", &[x])], Attributes::new().with("rate", rate))
    }

    /// [`Self::dropout`] with one mask for all rows of a sequence of the batch, and in a step block for all its steps.
    ///
    /// # Errors
    /// As [`Self::dropout`].
    #[doc(alias = "locked_dropout")]
    #[track_caller]
    pub fn variational_dropout(&self, x: Var, rate: f64) -> Result<Var> {
        let attributes = Attributes::new().with("rate", rate).with("per_sequence", true);
        self.append1("dropout", &[("x", &[x])], attributes)
    }
}

/// The numbers of a row of either pass.
macro_rules! draw {
    ($dropout:expr, $run:expr) => {
        |row, numbers: &mut [f32]| {
            if $dropout.per_sequence {
                $run.uniform_of_sequence(row, numbers);
            } else {
                $run.uniform(row, numbers);
            }
        }
    };
}

impl Op for Dropout {
    fn kind() -> &'static str {
        "dropout"
    }

    fn parse(attributes: &Attributes) -> Result<Self> {
        let rate = attributes.float("rate")?;
        if !(0.0..1.0).contains(&rate) {
            let expected = "a number from 0 to below 1";
            return Err(Error::of(ErrorKind::Program, "attribute `rate`", expected, rate.to_string()));
        }
        let per_sequence = optional(attributes, "per_sequence", Attributes::bool)?.unwrap_or(false);
        Ok(Self { rate, per_sequence })
    }

    fn signature(&self) -> Signature {
        const { Signature { inputs: &[Slot::one("x")], outputs: &[Slot::one("out")] } }
    }

    fn facts(&self) -> Facts {
        Facts { random: true, ..Facts::row_wise() }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.set(OUT, s.input(X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let (x, out) = (run.input::<T>(X)?, run.output::<T>(OUT)?);
            if run.run().mode == Mode::Infer {
                put_rows(out, x, Store::Write);
                return Ok(());
            }
            let mut uniform = std::mem::take(run.scratch().get::<Uniform>());
            self.mask(x, out, Store::Write, &mut uniform, draw!(self, run));
            *run.scratch().get() = uniform;
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let (Some((dx, store)), Some(dout)) = (run.gradient::<T>(X)?, run.output_gradient::<T>(OUT)?) else {
                return Ok(());
            };
            if run.run().mode == Mode::Infer {
                put_rows(dx, dout, store);
                return Ok(());
            }
            let mut uniform = std::mem::take(run.scratch().get::<Uniform>());
            self.mask(dout, dx, store, &mut uniform, draw!(self, run));
            *run.scratch().get() = uniform;
            Ok(())
        })
    }

    fn needs(&self, _: usize) -> Needs {
        Needs::nothing()
    }

    fn samples() -> Vec<Sample> {
        let rate = |rate: f64| Attributes::new().with("rate", rate);
        let mut samples = row_samples(&rate(0.4), 5, |sample, _| Ok(sample));
        samples.extend(row_samples(&rate(0.0), 1, |sample, _| Ok(sample)));
        samples.extend(row_samples(&rate(0.4).with("per_sequence", true), 5, |sample, _| Ok(sample)));
        samples
    }
}

impl Dropout {
    /// to = from · k / (1 − rate), the same k for the same row.
    fn mask<T: Float>(
        &self,
        from: View<'_, T>,
        mut to: ViewMut<'_, T>,
        store: Store,
        uniform: &mut Uniform,
        draw: impl Fn(usize, &mut [f32]),
    ) {
        let (rate, scale) = (self.rate as f32, T::from_f64(1.0 / (1.0 - self.rate)));
        uniform.0.resize(from.width(), 0.0);
        for (i, to) in to.iter_mut().enumerate() {
            draw(i, &mut uniform.0);
            for ((to, &x), &u) in to.iter_mut().zip(from.row(i)).zip(&uniform.0) {
                put(to, if u < rate { T::ZERO } else { x * scale }, store);
            }
        }
    }
}

/// The random numbers of a row.
#[derive(Default)]
struct Uniform(Vec<f32>);
