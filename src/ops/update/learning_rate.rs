//! `learning_rate`: computes the learning rate of a step from a schedule and an optional factor that the caller feeds.

use super::schedule::Schedule;
use super::settings::not_negative;
use crate::error::{Error, Result};
use crate::operator::{
    Attributes, CheckCase, Declaration, DeclaredOp, Facts, Forward, InferShape, LodEffect, Op, Signature,
    Slot, Spec,
};
use crate::tensor::{DType, Dense, Variable};

const SCALE: usize = 0;
const RATE: usize = 0;

/// A learning-rate schedule and its base rate.
pub(in crate::ops) struct LearningRate {
    base: f64,
    schedule: Schedule,
}

/// `DeclaredOp` is implemented by hand, because the attributes depend on the kind of schedule.
impl DeclaredOp for LearningRate {
    fn declaration() -> &'static Declaration {
        const {
            &Declaration {
                stands_for: &[],
                kind: "learning_rate",
                text: "Computes the learning rate of a step from a `Schedule`, whose documentation has the formulas. \
                       With the input `scale`, the rate is multiplied by `scale`.",
                attributes: &[
                    "base", "warm_up", "kind", "every", "factor", "steps", "least", "start", "from",
                    "factors", "rise",
                ],
                signature: Signature {
                    inputs: &[Slot::optional("scale").without_gradient()],
                    outputs: &[Slot::one("rate")],
                    kernels: &[],
                },
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
        let rate = Spec::fixed(DType::F32, &[])?;
        if let Some(scale) = s.optional(SCALE).filter(|scale| **scale != rate) {
            return Err(Error::new("input `scale`", rate.to_string(), scale.to_string()));
        }
        s.set(RATE, rate);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let scale = run.optional::<f32>(SCALE)?.map_or(1.0, |scale| f64::from(scale.row(0)[0]));
        if !(scale.is_finite() && scale >= 0.0) {
            return Err(Error::new(
                "scale of the learning rate",
                "a finite number from 0",
                scale.to_string(),
            ));
        }
        let rate = self.schedule.rate(self.base, run.run().step) * scale;
        if !(rate as f32).is_finite() {
            let what = format!("learning rate of step {}", run.run().step + 1);
            return Err(Error::new(what, "a finite number in f32", rate.to_string()));
        }
        run.output::<f32>(RATE)?.fill(rate as f32);
        Ok(())
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let schedules = [
            ("constant", Schedule::constant()),
            ("steps", Schedule::step(10, 0.5).warm_up(3)),
            ("cosine", Schedule::cosine_to(100, 0.001)),
            ("one cycle", Schedule::one_cycle(100, 0.3)),
        ];
        let sample = |(name, s): (&str, Schedule)| CheckCase::new(name, s.attributes(0.1)).without_gradient();
        let mut samples = schedules.map(sample).to_vec();
        let half = Variable::dense(Dense::from_vec(&[], vec![0.5f32])?);
        samples.push(sample(("scaled", Schedule::linear(100))).fixed("scale", half));
        Ok(samples)
    }
}

#[cfg(test)]
mod tests {
    use ndarray::arr0;

    use super::*;
    use crate::operator::Operand;
    use crate::ops::catalogue;

    #[test]
    fn the_scale_multiplies_what_the_schedule_says() {
        let attributes = Schedule::constant().attributes(0.5);
        let rate = |scale: &[f32]| {
            let scale: Vec<Operand> = scale.iter().map(|&s| Operand::constant("scale", arr0(s))).collect();
            let out = catalogue().parse("learning_rate", &attributes).unwrap().call(&scale);
            out.map(|out| out[0].as_slice::<f32>().unwrap()[0]).map_err(|e| e.to_string())
        };
        assert_eq!((rate(&[]), rate(&[0.25])), (Ok(0.5), Ok(0.125)));
        for wrong in [-1.0, f32::NAN, f32::INFINITY] {
            assert!(rate(&[wrong]).unwrap_err().contains("scale of the learning rate"));
        }
        assert!(LearningRate::parse(&Schedule::constant().attributes(-1.0)).is_err());
    }
}
