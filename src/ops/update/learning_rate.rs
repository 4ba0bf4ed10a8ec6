//! `learning_rate`: the rate of a step, by a schedule.

use super::rule::{not_negative, number};
use crate::error::{Error, ErrorKind, Result};
use crate::program::{
    Attributes, Declaration, Declared, Facts, Forward, InferShape, LodEffect, Op, Sample, Signature, Slot,
    Spec,
};
use crate::tensor::DType;

/// How the learning rate moves over the steps of training; starts constant. The operator `learning_rate` computes it.
///
/// The first `warm_up` steps rise in equal parts to the base rate: (step + 1) / warm_up of it. Then, with t counted
/// from 0 after them,
///
/// - `constant`: the base rate;
/// - `step`: base · factorᶠ with f = ⌊t / every⌋;
/// - `cosine`: least + (base − least) · (1 + cos(π · t / steps)) / 2, and `least` from t = steps on.
///
/// The forms of PyTorch's `StepLR` and `CosineAnnealingLR`; the latter is Loshchilov and Hutter, "SGDR", 2017,
/// arXiv:1608.03983, without restarts.
///
/// ```
/// use unpadded::ops::Schedule;
/// let rates = Schedule::step(2, 0.5).warm_up(2);
/// let first: Vec<f64> = (0..7).map(|step| rates.rate(0.4, step)).collect();
/// assert_eq!(first, [0.2, 0.4, 0.4, 0.4, 0.2, 0.2, 0.1]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Schedule {
    form: Form,
    warm_up: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Form {
    #[default]
    Constant,
    Step {
        every: usize,
        factor: f64,
    },
    Cosine {
        steps: usize,
        least: f64,
    },
}

impl Schedule {
    /// The same rate at every step.
    pub fn constant() -> Self {
        Self::default()
    }

    /// Multiplied by `factor` every so many steps.
    pub fn step(every: usize, factor: f64) -> Self {
        Self { form: Form::Step { every, factor }, warm_up: 0 }
    }

    /// Down half a cosine wave to zero over `steps` steps (those of the warm-up not counted).
    pub fn cosine(steps: usize) -> Self {
        Self::cosine_to(steps, 0.0)
    }

    /// The same down to the rate `least`.
    pub fn cosine_to(steps: usize, least: f64) -> Self {
        Self { form: Form::Cosine { steps, least }, warm_up: 0 }
    }

    /// Rises to the base rate over so many steps first.
    #[must_use]
    pub fn warm_up(self, steps: usize) -> Self {
        Self { warm_up: steps, ..self }
    }

    /// The rate at `step`, counted from 0, for the base rate `base`.
    pub fn rate(&self, base: f64, step: u64) -> f64 {
        let warm_up = self.warm_up as u64;
        if step < warm_up {
            return base * (step + 1) as f64 / warm_up as f64;
        }
        let t = step - warm_up;
        match self.form {
            Form::Constant => base,
            Form::Step { every, factor } => base * factor.powf((t / every.max(1) as u64) as f64),
            Form::Cosine { steps, least } if t < steps as u64 => {
                let part = t as f64 / steps as f64;
                least + (base - least) * (1.0 + (std::f64::consts::PI * part).cos()) / 2.0
            }
            Form::Cosine { least, .. } => least,
        }
    }

    /// The attributes of the operator that computes it.
    pub(crate) fn attributes(&self, base: f64) -> Attributes {
        let attributes = Attributes::new().with("base", base).with("warm_up", self.warm_up);
        match self.form {
            Form::Constant => attributes.with("kind", "constant"),
            Form::Step { every, factor } => {
                attributes.with("kind", "step").with("every", every).with("factor", factor)
            }
            Form::Cosine { steps, least } => {
                attributes.with("kind", "cosine").with("steps", steps).with("least", least)
            }
        }
    }

    fn parse(attributes: &Attributes) -> Result<Self> {
        let count = |name: &str| match attributes.size(name)? {
            0 => Err(Error::of(ErrorKind::Program, format!("attribute `{name}`"), "at least 1 step", "0")),
            steps => Ok(steps),
        };
        let form = match attributes.text("kind")? {
            "constant" => Form::Constant,
            "step" => Form::Step {
                every: count("every")?,
                factor: number(attributes, "factor", "a finite number above 0", |v| v > 0.0)?,
            },
            "cosine" => Form::Cosine { steps: count("steps")?, least: not_negative(attributes, "least")? },
            other => {
                let expected = "constant, step or cosine";
                return Err(Error::of(ErrorKind::Program, "attribute `kind`", expected, other));
            }
        };
        Ok(Self { form, warm_up: attributes.size("warm_up")? })
    }
}

const RATE: usize = 0;

/// A schedule with its base rate.
pub(in crate::ops) struct LearningRate {
    base: f64,
    schedule: Schedule,
}

/// Which attributes there are depends on the form.
impl Declared for LearningRate {
    fn declaration() -> &'static Declaration {
        const {
            &Declaration {
                stands_for: &[],
                kind: "learning_rate",
                text: "The rate of a step, by a `Schedule`: there are the formulas.",
                attributes: &["base", "warm_up", "kind", "every", "factor", "steps", "least"],
                signature: Signature { inputs: &[], outputs: &[Slot::one("rate")], kernels: &[] },
            }
        }
    }

    fn parse(attributes: &Attributes) -> Result<Self> {
        Ok(Self { base: not_negative(attributes, "base")?, schedule: Schedule::parse(attributes)? })
    }

    fn declared(&self) -> &'static Declaration {
        Self::declaration()
    }
}

impl Op for LearningRate {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.set(RATE, Spec::fixed(DType::F32, &[])?);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        run.output::<f32>(RATE)?.fill(self.schedule.rate(self.base, run.run().step) as f32);
        Ok(())
    }

    fn samples() -> Result<Vec<Sample>> {
        let schedules = [
            ("constant", Schedule::constant()),
            ("steps", Schedule::step(10, 0.5).warm_up(3)),
            ("cosine", Schedule::cosine_to(100, 0.001)),
        ];
        Ok(schedules.map(|(name, s)| Sample::new(name, s.attributes(0.1)).without_gradient()).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cosine_falls_to_its_least_after_the_warm_up() {
        let schedule = Schedule::cosine_to(4, 0.1).warm_up(1);
        let rates: Vec<f64> = (0..7).map(|step| schedule.rate(1.1, step)).collect();
        let half = 0.5f64.sqrt() / 2.0;
        for (rate, expected) in rates.iter().zip([1.1, 1.1, 0.6 + half, 0.6, 0.6 - half, 0.1, 0.1]) {
            assert!((rate - expected).abs() < 1e-12, "{rates:?}");
        }
    }

    #[test]
    fn schedules_are_read_back_from_their_attributes() {
        let cases = [Schedule::constant(), Schedule::step(3, 0.1), Schedule::cosine_to(9, 0.5).warm_up(2)];
        for schedule in cases {
            assert_eq!(Schedule::parse(&schedule.attributes(1.0)), Ok(schedule));
        }
        for schedule in [Schedule::step(0, 0.1), Schedule::step(1, 0.0), Schedule::cosine(0)] {
            assert!(LearningRate::parse(&schedule.attributes(1.0)).is_err());
        }
        assert!(LearningRate::parse(&Schedule::constant().attributes(-1.0)).is_err());
    }
}
