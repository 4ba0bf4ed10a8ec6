//! [`Schedule`]: the learning rate as a pure function of the training step.

use std::f64::consts::PI;

use super::settings::{not_negative, number, positive};
use crate::error::{Error, ErrorKind, Result};
use crate::operator::Attributes;

/// A learning-rate schedule over the steps of training; the default is constant. The operator `learning_rate` computes the rate
/// of each step.
///
/// In the first `warm_up` steps, the rate rises linearly to the base rate: base · (step + 1) / warm_up. After the warm-up, with
/// t = 0, 1, … the number of steps since the warm-up, the rate is:
///
/// - `constant`: the base rate;
/// - `step`: base · factorᶠ with f = ⌊t / every⌋;
/// - `step_after`: base before t = start, then base · factorᶠ with f = ⌊(t − start) / every⌋ + 1;
/// - `piecewise`: base · the factor of the last pair (step, factor) with step ≤ t, or base if there is no such pair;
/// - `cosine`: least + (base − least) · (1 + cos(π · t / steps)) / 2, and `least` from t = steps on;
/// - `linear`: base + (least − base) · t / steps, and `least` from t = steps on;
/// - `inverse_sqrt`: base · √(steps / (steps + t));
/// - `one_cycle`: the rate rises along half a cosine wave from base / 25 at t = 0 to base at t = rise · steps − 1, then falls
///   along half a cosine wave to base / 250 000 at t = steps − 1; later steps have the rate base / 250 000. If rise · steps is
///   below 1, the fall begins before t = 0; if rise is 1, the rate at t = steps − 1 is base.
///
/// The formulas equal the formulas of PyTorch's `StepLR`, `CosineAnnealingLR` (Loshchilov and Hutter, "SGDR", 2017,
/// arXiv:1608.03983, without restarts) and `OneCycleLR` (Smith and Topin, "Super-convergence", 2017, arXiv:1708.07120). A
/// warm-up of `steps` before `inverse_sqrt(steps)` is the schedule of Vaswani et al., "Attention is all you need", 2017,
/// arXiv:1706.03762. `step_after` is the schedule of Zaremba et al., "Recurrent neural network regularization", 2014,
/// arXiv:1409.2329.
///
/// ```
/// use unpadded::optimizer::Schedule;
/// let rates = Schedule::step(2, 0.5).warm_up(2);
/// let first: Vec<f64> = (0..7).map(|step| rates.rate(0.4, step)).collect();
/// assert_eq!(first, [0.2, 0.4, 0.4, 0.4, 0.2, 0.2, 0.1]);
/// let rates = Schedule::piecewise([(1, 0.5), (3, 0.25)]);
/// assert_eq!([0, 1, 2, 3, 9].map(|step| rates.rate(0.4, step)), [0.4, 0.2, 0.2, 0.1, 0.1]);
/// let rates = Schedule::step_after(2, 2, 0.5);
/// assert_eq!([0, 1, 2, 3, 4].map(|step| rates.rate(0.4, step)), [0.4, 0.4, 0.2, 0.2, 0.1]);
/// let rates = Schedule::inverse_sqrt(4).warm_up(4);
/// assert_eq!([0, 3, 4, 16].map(|step| rates.rate(0.5, step)), [0.125, 0.5, 0.5, 0.25]);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Schedule {
    form: Form,
    warm_up: usize,
}

#[derive(Debug, Clone, PartialEq, Default)]
enum Form {
    #[default]
    Constant,
    Step {
        every: usize,
        factor: f64,
    },
    StepAfter {
        start: usize,
        every: usize,
        factor: f64,
    },
    /// A list of pairs (step, factor): from the step on, the learning rate is base · factor.
    Piecewise(Vec<(usize, f64)>),
    Cosine {
        steps: usize,
        least: f64,
    },
    Linear {
        steps: usize,
        least: f64,
    },
    InverseSqrt {
        steps: usize,
    },
    OneCycle {
        steps: usize,
        rise: f64,
    },
}

impl From<Form> for Schedule {
    fn from(form: Form) -> Self {
        Self { form, warm_up: 0 }
    }
}

impl Schedule {
    /// Constant: the base rate at every step.
    pub fn constant() -> Self {
        Self::default()
    }

    /// Step decay: multiplies the learning rate by `factor` once in `every` steps.
    pub fn step(every: usize, factor: f64) -> Self {
        Form::Step { every, factor }.into()
    }

    /// Delayed step decay: multiplies the learning rate by `factor` at step `start`, and then once in `every` steps.
    pub fn step_after(start: usize, every: usize, factor: f64) -> Self {
        Form::StepAfter { start, every, factor }.into()
    }

    /// Piecewise constant: each pair (step, factor) sets the learning rate to base · factor from the given step on. The steps
    /// must ascend, and are counted from 0 after the warm-up.
    pub fn piecewise(pieces: impl IntoIterator<Item = (usize, f64)>) -> Self {
        Form::Piecewise(pieces.into_iter().collect()).into()
    }

    /// Cosine decay to zero over `steps` steps (warm-up steps not counted).
    pub fn cosine(steps: usize) -> Self {
        Self::cosine_to(steps, 0.0)
    }

    /// Cosine decay to the rate `least` over `steps` steps (warm-up steps not counted).
    pub fn cosine_to(steps: usize, least: f64) -> Self {
        Form::Cosine { steps, least }.into()
    }

    /// Linear decay to zero over `steps` steps (warm-up steps not counted).
    pub fn linear(steps: usize) -> Self {
        Self::linear_to(steps, 0.0)
    }

    /// Linear change, down or up, to the rate `least` over `steps` steps (warm-up steps not counted).
    pub fn linear_to(steps: usize, least: f64) -> Self {
        Form::Linear { steps, least }.into()
    }

    /// Inverse square root decay: the learning rate is base · √(steps / (steps + t)) at step t, so 1/√2 of the base rate after
    /// `steps` steps.
    pub fn inverse_sqrt(steps: usize) -> Self {
        Form::InverseSqrt { steps }.into()
    }

    /// One cycle of `steps` steps: the learning rate rises to the base rate, then falls to almost zero. `rise` is the share of
    /// the steps in which the rate rises, from 0 to 1; 0.3 is usual.
    pub fn one_cycle(steps: usize, rise: f64) -> Self {
        Form::OneCycle { steps, rise }.into()
    }

    /// Warm-up: the learning rate rises linearly to the base rate in the first `steps` steps.
    #[must_use]
    pub fn warm_up(self, steps: usize) -> Self {
        Self { warm_up: steps, ..self }
    }

    /// Returns the learning rate at step `step`, counted from 0, for the base rate `base`.
    pub fn rate(&self, base: f64, step: u64) -> f64 {
        let warm_up = self.warm_up as u64;
        if step < warm_up {
            return base * (step + 1) as f64 / warm_up as f64;
        }
        let t = step - warm_up;
        match &self.form {
            Form::Constant => base,
            Form::Step { every, factor } => base * factor.powf((t / (*every).max(1) as u64) as f64),
            Form::StepAfter { start, .. } if t < *start as u64 => base,
            Form::StepAfter { start, every, factor } => {
                let times = (t - *start as u64) / (*every).max(1) as u64 + 1;
                base * factor.powf(times as f64)
            }
            Form::Piecewise(pieces) => {
                let reached = pieces.iter().take_while(|(from, _)| *from as u64 <= t).last();
                reached.map_or(base, |(_, factor)| base * factor)
            }
            Form::Cosine { steps, least } if t < *steps as u64 => {
                wave(base, *least, t as f64 / *steps as f64)
            }
            Form::Linear { steps, least } if t < *steps as u64 => {
                base + (least - base) * (t as f64 / *steps as f64)
            }
            Form::Cosine { least, .. } | Form::Linear { least, .. } => *least,
            Form::InverseSqrt { steps } => {
                let steps = *steps as f64;
                base * (steps / (steps + t as f64)).sqrt()
            }
            Form::OneCycle { steps, rise } => {
                const START: f64 = 25.0;
                const END: f64 = 1e4;
                let (t, last) = (t as f64, *steps as f64 - 1.0);
                // Without a step of the rise, the fall starts before step 0, as in PyTorch; PyTorch divides by zero at top = 0.
                let top = rise * *steps as f64 - 1.0;
                let start = base / START;
                if t <= top {
                    wave(start, base, if top > 0.0 { t / top } else { 1.0 })
                } else if t < last {
                    wave(base, start / END, (t - top) / (last - top))
                } else {
                    start / END
                }
            }
        }
    }

    pub(crate) fn attributes(&self, base: f64) -> Attributes {
        let attributes = Attributes::new().with("base", base).with("warm_up", self.warm_up);
        match &self.form {
            Form::Constant => attributes.with("kind", "constant"),
            Form::Step { every, factor } => {
                attributes.with("kind", "step").with("every", *every).with("factor", *factor)
            }
            Form::StepAfter { start, every, factor } => {
                let attributes = attributes.with("kind", "step_after").with("start", *start);
                attributes.with("every", *every).with("factor", *factor)
            }
            Form::Piecewise(pieces) => {
                let (from, factors): (Vec<usize>, Vec<f64>) = pieces.iter().copied().unzip();
                attributes.with("kind", "piecewise").with("from", from).with("factors", factors)
            }
            Form::Cosine { steps, least } => {
                attributes.with("kind", "cosine").with("steps", *steps).with("least", *least)
            }
            Form::Linear { steps, least } => {
                attributes.with("kind", "linear").with("steps", *steps).with("least", *least)
            }
            Form::InverseSqrt { steps } => attributes.with("kind", "inverse_sqrt").with("steps", *steps),
            Form::OneCycle { steps, rise } => {
                attributes.with("kind", "one_cycle").with("steps", *steps).with("rise", *rise)
            }
        }
    }

    pub(crate) fn parse(attributes: &Attributes) -> Result<Self> {
        let count = |name: &str| match attributes.size(name)? {
            0 => Err(Error::of(ErrorKind::Program, format!("attribute `{name}`"), "at least 1 step", "0")),
            steps => Ok(steps),
        };
        let factor = || positive(attributes, "factor");
        let form = match attributes.text("kind")? {
            "constant" => Form::Constant,
            "step" => Form::Step { every: count("every")?, factor: factor()? },
            "step_after" => Form::StepAfter {
                start: attributes.size("start")?,
                every: count("every")?,
                factor: factor()?,
            },
            "piecewise" => Form::Piecewise(pieces(attributes)?),
            "cosine" => Form::Cosine { steps: count("steps")?, least: not_negative(attributes, "least")? },
            "linear" => Form::Linear { steps: count("steps")?, least: not_negative(attributes, "least")? },
            "inverse_sqrt" => Form::InverseSqrt { steps: count("steps")? },
            "one_cycle" => {
                let rise = number(attributes, "rise", "a number from 0 to 1", |v| (0.0..=1.0).contains(&v))?;
                Form::OneCycle { steps: count("steps")?, rise }
            }
            other => {
                let expected =
                    "constant, step, step_after, piecewise, cosine, linear, inverse_sqrt or one_cycle";
                return Err(Error::of(ErrorKind::Program, "attribute `kind`", expected, other));
            }
        };
        Ok(Self { form, warm_up: attributes.size("warm_up")? })
    }
}

/// Interpolates between two numbers along half a cosine wave.
fn wave(from: f64, to: f64, part: f64) -> f64 {
    to + (from - to) * (1.0 + (PI * part).cos()) / 2.0
}

fn pieces(attributes: &Attributes) -> Result<Vec<(usize, f64)>> {
    let (from, factors) = (attributes.sizes("from")?, attributes.floats("factors")?);
    if !from.is_sorted_by(|a, b| a < b) {
        let got = format!("{from:?}");
        return Err(Error::of(ErrorKind::Program, "attribute `from`", "steps that rise", got));
    }
    if from.len() != factors.len() || !factors.iter().all(|f| f.is_finite() && *f >= 0.0) {
        let expected = format!("{} finite numbers from 0", from.len());
        return Err(Error::of(ErrorKind::Program, "attribute `factors`", expected, format!("{factors:?}")));
    }
    Ok(from.into_iter().zip(factors).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(schedule: &Schedule, base: f64, expected: &[(u64, f64)]) {
        for &(step, expected) in expected {
            let rate = schedule.rate(base, step);
            assert!((rate - expected).abs() < 1e-12, "{schedule:?} at {step}: {rate} for {expected}");
        }
    }

    #[test]
    fn a_cosine_falls_to_its_least_after_the_warm_up() {
        let schedule = Schedule::cosine_to(4, 0.1).warm_up(1);
        let half = 0.5f64.sqrt() / 2.0;
        let rates = [1.1, 1.1, 0.6 + half, 0.6, 0.6 - half, 0.1, 0.1];
        close(&schedule, 1.1, &(0..).zip(rates).collect::<Vec<_>>());
    }

    #[test]
    fn a_line_falls_to_its_least_and_a_root_as_far_as_it_says() {
        close(
            &Schedule::linear_to(4, 0.2).warm_up(1),
            1.0,
            &[(0, 1.0), (1, 1.0), (3, 0.6), (5, 0.2), (99, 0.2)],
        );
        close(&Schedule::linear(4), 1.0, &[(0, 1.0), (3, 0.25), (4, 0.0)]);
        close(&Schedule::inverse_sqrt(100), 1.0, &[(0, 1.0), (100, 0.5f64.sqrt()), (9900, 0.1)]);
    }

    /// The expected rates are computed from the formula of PyTorch's
    /// `OneCycleLR(max_lr = 1, total_steps = 20, pct_start = 0.3)`.
    #[test]
    fn one_cycle_rises_and_falls() {
        let up = |part: f64| 1.0 + (0.04 - 1.0) / 2.0 * (1.0 + (PI * part).cos());
        let down = |part: f64| 4e-6 + (1.0 - 4e-6) / 2.0 * (1.0 + (PI * part).cos());
        let expected = [
            (0, 0.04),
            (2, up(0.4)),
            (5, 1.0),
            (6, down(1.0 / 14.0)),
            (12, down(0.5)),
            (19, 4e-6),
            (50, 4e-6),
        ];
        close(&Schedule::one_cycle(20, 0.3), 1.0, &expected);
        // Without a step of the rise, the fall starts at t = rise · steps − 1 < 0; with rise = 1, there is no fall.
        close(&Schedule::one_cycle(2, 0.3), 1.0, &[(0, down(0.4 / 1.4)), (1, 4e-6)]);
        close(&Schedule::one_cycle(4, 0.0), 1.0, &[(0, down(0.25)), (1, down(0.5)), (3, 4e-6), (9, 4e-6)]);
        close(&Schedule::one_cycle(4, 0.25), 1.0, &[(0, 1.0), (1, down(1.0 / 3.0)), (3, 4e-6)]);
        close(&Schedule::one_cycle(3, 1.0), 1.0, &[(0, 0.04), (1, 0.52), (2, 1.0), (3, 4e-6)]);
        close(&Schedule::one_cycle(1, 0.0), 1.0, &[(0, 4e-6)]);
        close(&Schedule::one_cycle(1, 1.0), 1.0, &[(0, 1.0), (1, 4e-6)]);
    }

    #[test]
    fn schedules_are_read_back_from_their_attributes() {
        let cases = [
            Schedule::constant(),
            Schedule::step(3, 0.1),
            Schedule::step_after(5, 3, 0.5),
            Schedule::piecewise([(4, 0.5), (8, 0.0)]).warm_up(3),
            Schedule::piecewise([]),
            Schedule::cosine_to(9, 0.5).warm_up(2),
            Schedule::linear_to(9, 0.5),
            Schedule::inverse_sqrt(7).warm_up(7),
            Schedule::one_cycle(10, 0.25),
        ];
        for schedule in cases {
            assert_eq!(Schedule::parse(&schedule.attributes(1.0)), Ok(schedule));
        }
        let refused = [
            (Schedule::step(0, 0.1), "every"),
            (Schedule::step(1, 0.0), "factor"),
            (Schedule::step_after(1, 0, 0.5), "every"),
            (Schedule::piecewise([(4, 0.5), (4, 0.25)]), "from"),
            (Schedule::piecewise([(4, -0.5)]), "factors"),
            (Schedule::cosine(0), "steps"),
            (Schedule::linear_to(4, f64::NAN), "least"),
            (Schedule::inverse_sqrt(0), "steps"),
            (Schedule::one_cycle(10, 1.5), "rise"),
        ];
        for (schedule, name) in refused {
            let error = Schedule::parse(&schedule.attributes(1.0)).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")), "{error}");
        }
    }
}
