//! Adaptive optimizers: steps in units of the previous gradients.

use super::{Attributes, Decay, Group, Optimizer, Options, Schedule, SparseMode, UpdateRule};
use crate::error::Result;

/// Adagrad: the operator `adagrad`.
#[derive(Debug, Clone, PartialEq)]
pub struct Adagrad {
    options: Options,
    epsilon: f64,
    rate_decay: f64,
    decay: Decay,
}

impl Adagrad {
    /// With epsilon 1e-10 and no decay.
    pub fn new(rate: f64) -> Self {
        Self { options: Options::new(rate), epsilon: 1e-10, rate_decay: 0.0, decay: Decay::default() }
    }
}

setting! { Adagrad:
    /// Sets epsilon, which is added to the root of the sum.
    epsilon,
    /// Divides the rate by 1 + t times this at step t.
    rate_decay,
}

/// RMSProp: the operators `rmsprop`, `rmsprop_momentum`, `rmsprop_centred` and `rmsprop_centred_momentum`.
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
    /// With alpha 0.99, epsilon 1e-8, no momentum and no decay.
    pub fn new(rate: f64) -> Self {
        let (options, decay) = (Options::new(rate), Decay::default());
        Self { options, alpha: 0.99, epsilon: 1e-8, momentum: 0.0, centred: false, decay }
    }

    /// Divides by the standard deviation of the gradients, instead of their root mean square.
    #[must_use]
    pub fn centred(self) -> Self {
        Self { centred: true, ..self }
    }
}

setting! { RmsProp:
    /// Sets the decay of the mean of the squares per step: from 0 and below 1.
    alpha,
    /// Sets epsilon, which is added to the root.
    epsilon,
    /// Sets the momentum, the share of its velocity that a parameter keeps per step: from 0 and below 1.
    momentum,
}

/// Adadelta: the operator `adadelta`.
#[derive(Debug, Clone, PartialEq)]
pub struct Adadelta {
    options: Options,
    rho: f64,
    epsilon: f64,
    decay: Decay,
}

impl Adadelta {
    /// With rho 0.9, epsilon 1e-6 and no decay. The rate of the paper is 1.
    pub fn new(rate: f64) -> Self {
        Self { options: Options::new(rate), rho: 0.9, epsilon: 1e-6, decay: Decay::default() }
    }
}

setting! { Adadelta:
    /// Sets rho, the decay of the averages per step: from 0 and below 1.
    rho,
    /// Sets epsilon, which is added under both roots.
    epsilon,
}

/// FTRL-Proximal, for sparse models: the operator `ftrl`. Its L1 gives exact zeros; parameters should start at 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Ftrl {
    options: Options,
    beta: f64,
    l1: f64,
    l2: f64,
}

impl Ftrl {
    /// With beta 1 and neither L1 nor L2.
    pub fn new(rate: f64) -> Self {
        Self { options: Options::new(rate), beta: 1.0, l1: 0.0, l2: 0.0 }
    }
}

setting! { Ftrl:
    /// Sets beta, which is added to the root of the sum of squares: a larger beta makes the first steps smaller.
    beta,
    /// L1 regularisation, of the sum of all losses.
    l1,
    /// L2 regularisation, of the sum of all losses.
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
