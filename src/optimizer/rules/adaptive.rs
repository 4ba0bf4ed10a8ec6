//! Adaptive optimizers, which divide the step of each number by the size of the previous gradients of this number.

use super::{Attributes, Decay, Group, Optimizer, Options, Schedule, SparseMode, UpdateRule};
use crate::error::Result;

/// Adagrad, with the update operator `adagrad`.
#[derive(Debug, Clone, PartialEq)]
pub struct Adagrad {
    options: Options,
    epsilon: f64,
    rate_decay: f64,
    decay: Decay,
}

impl Adagrad {
    /// Makes Adagrad with the learning rate `rate`, epsilon 1e-10 and no decay.
    pub fn new(rate: f64) -> Self {
        Self { options: Options::new(rate), epsilon: 1e-10, rate_decay: 0.0, decay: Decay::default() }
    }
}

setting! { Adagrad:
    /// Sets epsilon, which is added to the root of the sum of squared gradients.
    epsilon,
    /// Sets the decay of the learning rate: in step t, counted from 0, the learning rate is divided by 1 + t · `rate_decay`.
    rate_decay,
}

/// RMSProp, with the update operators `rmsprop`, `rmsprop_momentum`, `rmsprop_centred` and `rmsprop_centred_momentum`.
#[derive(Debug, Clone, PartialEq)]
pub struct RmsProp {
    options: Options,
    alpha: f64,
    epsilon: f64,
    momentum: f64,
    centred: bool,
    decay: Decay,
}

impl RmsProp {
    /// Makes RMSProp with the learning rate `rate`, alpha 0.99, epsilon 1e-8, no momentum and no decay.
    pub fn new(rate: f64) -> Self {
        let (options, decay) = (Options::new(rate), Decay::default());
        Self { options, alpha: 0.99, epsilon: 1e-8, momentum: 0.0, centred: false, decay }
    }

    /// Centred RMSProp: divides the gradient by the standard deviation of the previous gradients, instead of their root mean
    /// square.
    #[must_use]
    pub fn centred(self) -> Self {
        Self { centred: true, ..self }
    }
}

setting! { RmsProp:
    /// Sets alpha, the factor per step of the running mean of squared gradients: at least 0 and below 1.
    alpha,
    /// Sets epsilon, which is added to the root; the gradient is divided by this sum.
    epsilon,
    /// Sets the momentum, the factor per step of a parameter's velocity: at least 0 and below 1.
    momentum,
}

/// Adadelta, with the update operator `adadelta`.
#[derive(Debug, Clone, PartialEq)]
pub struct Adadelta {
    options: Options,
    rho: f64,
    epsilon: f64,
    decay: Decay,
}

impl Adadelta {
    /// Makes Adadelta with the learning rate `rate` (1 in the paper), rho 0.9, epsilon 1e-6 and no decay.
    pub fn new(rate: f64) -> Self {
        Self { options: Options::new(rate), rho: 0.9, epsilon: 1e-6, decay: Decay::default() }
    }
}

setting! { Adadelta:
    /// Sets rho, the factor per step of the running averages of squared gradients and squared moves: at least 0 and below 1.
    rho,
    /// Sets epsilon, which is added under the root of the average squared gradient and under the root of the average squared
    /// move.
    epsilon,
}

/// FTRL-Proximal, an optimizer for sparse models, with the update operator `ftrl`. The L1 regularisation of FTRL makes
/// parameters exactly zero; parameters should start at 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Ftrl {
    options: Options,
    beta: f64,
    l1: f64,
    l2: f64,
}

impl Ftrl {
    /// Makes FTRL-Proximal with the learning rate `rate`, beta 1 and no regularisation.
    pub fn new(rate: f64) -> Self {
        Self { options: Options::new(rate), beta: 1.0, l1: 0.0, l2: 0.0 }
    }
}

setting! { Ftrl:
    /// Sets beta, which is added to the root of the sum of squared gradients: a larger beta makes the first steps smaller.
    beta,
    /// L1 regularisation: a term that is added once to the sum of the losses of all steps, not to the loss of each step.
    l1,
    /// L2 regularisation: a term that is added once to the sum of the losses of all steps, not to the loss of each step.
    l2,
}

options!(Adagrad, RmsProp, Adadelta, Ftrl);
decay!(Adagrad, RmsProp, Adadelta);
decoupled!(Adagrad, RmsProp, Adadelta);

impl Optimizer for Adagrad {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        let attributes = Attributes::new().with("epsilon", self.epsilon).with("rate_decay", self.rate_decay);
        Ok(UpdateRule { kind: "adagrad", attributes: self.decay.of(attributes) })
    }
}

impl Optimizer for RmsProp {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        let attributes = Attributes::new().with("alpha", self.alpha).with("epsilon", self.epsilon);
        let attributes = self.decay.of(attributes);
        let (kind, attributes) = match (self.centred, self.momentum == 0.0) {
            (false, true) => ("rmsprop", attributes),
            (true, true) => ("rmsprop_centred", attributes),
            (false, false) => ("rmsprop_momentum", attributes.with("momentum", self.momentum)),
            (true, false) => ("rmsprop_centred_momentum", attributes.with("momentum", self.momentum)),
        };
        Ok(UpdateRule { kind, attributes })
    }
}

impl Optimizer for Adadelta {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        let attributes = Attributes::new().with("rho", self.rho).with("epsilon", self.epsilon);
        Ok(UpdateRule { kind: "adadelta", attributes: self.decay.of(attributes) })
    }
}

impl Optimizer for Ftrl {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        let attributes = Attributes::new().with("beta", self.beta).with("l1", self.l1).with("l2", self.l2);
        Ok(UpdateRule { kind: "ftrl", attributes })
    }
}
