//! `dropout`: sets randomly chosen numbers to zero while training.

use crate::operator::Mode;
use crate::ops::prelude::*;

operator! {
    /// Dropout: while training, sets each number to zero with the probability `rate`, and multiplies all other numbers by 1 /
    /// (1 − rate).
    ///
    /// While training, out = x · k / (1 − rate), where k is 1 with probability 1 − rate, else 0; during inference, out = x. The
    /// operator computes each row alone, and the output has the LoD of x. The random number k depends on the seed, the step, the
    /// operator, the row's sequence, the row's position in the sequence, and the column. So a sequence gets the same dropout mask
    /// in any batch. The backward pass draws the dropout mask again instead of storing it. With the attribute `per_sequence`, k
    /// does not depend on the position: all rows of a top-level sequence share one mask. In a step block, all steps of a sequence
    /// share one mask. Dropout with `per_sequence` is variational dropout (Gal and Ghahramani, 2016).
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let x = Variable::from_sequences(&[vec![1.0, 2.0], vec![], vec![3.0]])?;
    /// let op = ops::catalogue().parse("dropout", &Attributes::new().with("rate", 0.5))?;
    /// let out = op.call(&[Operand::batch("x", x)])?;                 // a direct call infers
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 2.0, 3.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `rate` is not at least 0 and below 1, or `x` holds no floats.
    pub(in crate::ops) struct Dropout = dropout { rate: f64 => rate, per_sequence: Option<bool> }
    inputs { X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var {
        fn dropout(&self, x: Var, rate: f64) -> Var {
            let per_sequence = None;
        }
    }
}

builder_methods! { Builder, Var;
    /// Variational dropout: [`dropout`](Self::dropout) with one mask for all rows of a sequence (in a step block, for all
    /// steps): out_i = x_i ∘ k / (1 − rate).
    ///
    /// ```
    /// use ndarray::Array2;
    /// use unpadded::executor::{Run, Scope, interpret};
    /// use unpadded::{Builder, DType, Lod, Variable};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[4], 1);
    /// let y = x.variational_dropout(0.5);
    /// let (registry, program) = (net.registry(), net.finish()?);
    /// let ones = Variable::sequences(Array2::<f32>::ones((3, 4)), Lod::from_lengths1(&[3])?)?;
    /// let fed = [(x.id(), &ones)];
    /// let values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::train(&fed, 0))?;
    /// let rows: Vec<&[f32]> = values[&y.id()].as_slice()?.chunks(4).collect();
    /// assert_eq!((rows[0], rows[1]), (rows[1], rows[2]));
    /// assert!(rows[0].iter().all(|number| [0.0, 2.0].contains(number)));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors are the errors of [`dropout`](Self::dropout).
    #[doc(alias = "locked_dropout")]
    pub fn variational_dropout(&self, x: Var, rate: f64) -> Var {
        let op = Dropout { rate, per_sequence: Some(true) };
        self.append("dropout", &[("x", &[x])], op.attributes())
    }
}

fn rate(attributes: &Attributes, name: &str) -> Result<f64> {
    let rate = attributes.float(name)?;
    if !(0.0..1.0).contains(&rate) {
        let expected = "a number from 0 to below 1";
        return Err(Error::of(ErrorKind::Program, format!("attribute `{name}`"), expected, rate.to_string()));
    }
    Ok(rate)
}

/// Makes the closure that draws the random numbers of a row; the forward and the backward pass draw the same numbers.
macro_rules! draw {
    ($dropout:expr, $run:expr) => {
        |row, numbers: &mut [f32]| {
            if $dropout.per_sequence == Some(true) {
                $run.uniform_of_sequence(row, numbers);
            } else {
                $run.uniform(row, numbers);
            }
        }
    };
}

impl Op for Dropout {
    fn facts(&self) -> Facts {
        Facts { random: true, ..Facts::row_wise() }
    }

    fn hints(&self) -> Hints {
        Hints { draws_in_training: true, ..Hints::default() }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.set(Self::OUT, s.input(Self::X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let (x, out) = (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?);
            if run.run().mode == Mode::Infer {
                Assign::Write.put_rows(out, x);
                return Ok(());
            }
            let mut uniform = std::mem::take(run.scratch().get::<Uniform>());
            self.mask(x, out, Assign::Write, &mut uniform, draw!(self, run));
            *run.scratch().get() = uniform;
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let (Some((dx, assign)), Some(dout)) = (run.gradient::<T>(Self::X)?, run.output_gradient::<T>(Self::OUT)?) else {
                return Ok(());
            };
            if run.run().mode == Mode::Infer {
                assign.put_rows(dx, dout);
                return Ok(());
            }
            let mut uniform = std::mem::take(run.scratch().get::<Uniform>());
            self.mask(dout, dx, assign, &mut uniform, draw!(self, run));
            *run.scratch().get() = uniform;
            Ok(())
        })
    }

    gradient_reads!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let op = |rate, per_sequence| Dropout { rate, per_sequence }.attributes();
        let mut samples = CheckCase::of_rows(&op(0.4, None), 5, |sample, _| Ok(sample))?;
        samples.extend(CheckCase::of_rows(&op(0.0, None), 1, |sample, _| Ok(sample))?);
        samples.extend(CheckCase::of_rows(&op(0.4, Some(true)), 5, |sample, _| Ok(sample))?);
        Ok(samples)
    }
}

impl Dropout {
    /// Computes to = from · k / (1 − rate), with the same mask k in the forward and the backward pass.
    fn mask<T: Float>(
        &self,
        from: View<'_, T>,
        mut to: ViewMut<'_, T>,
        assign: Assign,
        uniform: &mut Uniform,
        draw: impl Fn(usize, &mut [f32]),
    ) {
        let (rate, scale) = (self.rate as f32, T::from_f64(1.0 / (1.0 - self.rate)));
        uniform.0.resize(from.width(), 0.0);
        for (i, to) in to.iter_mut().enumerate() {
            draw(i, &mut uniform.0);
            for ((to, &x), &u) in to.iter_mut().zip(from.row(i)).zip(&uniform.0) {
                assign.put(to, if u < rate { T::ZERO } else { x * scale });
            }
        }
    }
}

/// Scratch memory of a call: the random numbers of one row.
#[derive(Default)]
struct Uniform(Vec<f32>);
