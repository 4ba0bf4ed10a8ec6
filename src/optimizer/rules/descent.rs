//! Gradient descent: a step along the gradient, along a velocity (momentum), or with the sign of a momentum (Lion).

use super::{Attributes, Decay, Group, Optimizer, Options, Schedule, SparseMode, UpdateRule, betas};
use crate::error::{Error, ErrorKind, Result};

/// Stochastic gradient descent (SGD), optionally with momentum, with the update operators `sgd` and `momentum`.
#[derive(Debug, Clone, PartialEq)]
pub struct Sgd {
    options: Options,
    momentum: f64,
    nesterov: bool,
    decay: Decay,
}

impl Sgd {
    /// Makes stochastic gradient descent with the learning rate `rate`, without momentum and without decay.
    pub fn new(rate: f64) -> Self {
        Self { options: Options::new(rate), momentum: 0.0, nesterov: false, decay: Decay::default() }
    }

    /// Nesterov momentum: the step is the gradient plus the product of the momentum and the updated velocity. Nesterov momentum
    /// requires a momentum above 0.
    #[must_use]
    pub fn nesterov(self) -> Self {
        Self { nesterov: true, ..self }
    }
}

setting! { Sgd:
    /// Sets the momentum, the factor per step of a parameter's velocity: at least 0 and below 1.
    momentum,
}

/// Lion: each number of a parameter moves by the learning rate, in the direction of the sign of a momentum. The update operator
/// of Lion is `lion`.
///
/// The weight decay of Lion is decoupled from the gradient. For Lion, a usual learning rate is a tenth to a third of the rate
/// for Adam, and a usual weight decay is three to ten times the decay for Adam.
#[derive(Debug, Clone, PartialEq)]
pub struct Lion {
    options: Options,
    betas: [f64; 2],
    decay: Decay,
}

impl Lion {
    /// Makes Lion with the learning rate `rate`, betas 0.9 and 0.99 and no decay.
    pub fn new(rate: f64) -> Self {
        let decay = Decay { decoupled: true, ..Decay::default() };
        Self { options: Options::new(rate), betas: [0.9, 0.99], decay }
    }
}

options!(Sgd, Lion);
decay!(Sgd, Lion);
decoupled!(Sgd);
betas!(Lion);

impl Optimizer for Sgd {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        let attributes = self.decay.of(Attributes::new());
        if self.momentum == 0.0 {
            if self.nesterov {
                return Err(Error::of(ErrorKind::Program, "Nesterov's step", "a momentum above 0", "0"));
            }
            return Ok(UpdateRule { kind: "sgd", attributes });
        }
        let attributes = attributes.with("momentum", self.momentum).with("nesterov", self.nesterov);
        Ok(UpdateRule { kind: "momentum", attributes })
    }
}

impl Optimizer for Lion {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        Ok(UpdateRule { kind: "lion", attributes: self.decay.of(betas(self.betas)) })
    }
}
