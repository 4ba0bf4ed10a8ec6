//! The optimizers by name: settings with defaults.
//!
//! Numbers out of range are refused when the optimizer is used, by the operators that carry them.

use super::{Optimizer, Options, Schedule, SparseMode, UpdateRule};
use crate::error::{Error, ErrorKind, Result};
use crate::program::Attributes;

/// Stochastic gradient descent, with momentum if asked for: the operators `sgd` and `momentum`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    options: Options,
    momentum: f64,
    nesterov: bool,
    weight_decay: f64,
}

impl Sgd {
    /// Plain descent.
    pub fn new(rate: f64) -> Self {
        Self { options: Options::new(rate), momentum: 0.0, nesterov: false, weight_decay: 0.0 }
    }

    /// How much of its velocity a parameter keeps from step to step: from 0 and below 1.
    #[must_use]
    pub fn momentum(self, momentum: f64) -> Self {
        Self { momentum, ..self }
    }

    /// Looks ahead along the velocity; needs a momentum.
    #[must_use]
    pub fn nesterov(self) -> Self {
        Self { nesterov: true, ..self }
    }

    /// Adds so much of the parameter to its gradient (L2 regularisation).
    #[must_use]
    pub fn weight_decay(self, weight_decay: f64) -> Self {
        Self { weight_decay, ..self }
    }
}

/// Adagrad: the operator `adagrad`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adagrad {
    options: Options,
    epsilon: f64,
    rate_decay: f64,
    weight_decay: f64,
}

impl Adagrad {
    /// With epsilon 1e-10 and no decay.
    pub fn new(rate: f64) -> Self {
        Self { options: Options::new(rate), epsilon: 1e-10, rate_decay: 0.0, weight_decay: 0.0 }
    }

    /// What is added to the root of the sum.
    #[must_use]
    pub fn epsilon(self, epsilon: f64) -> Self {
        Self { epsilon, ..self }
    }

    /// Divides the rate by 1 + t times this at step t.
    #[must_use]
    pub fn rate_decay(self, rate_decay: f64) -> Self {
        Self { rate_decay, ..self }
    }

    /// Adds so much of the parameter to its gradient (L2 regularisation).
    #[must_use]
    pub fn weight_decay(self, weight_decay: f64) -> Self {
        Self { weight_decay, ..self }
    }
}

/// What Adam and AdamW share: the operator `adam`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Moments {
    betas: (f64, f64),
    epsilon: f64,
    weight_decay: f64,
}

/// What weight decay does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decay {
    /// It is added to the gradient.
    InGradient,
    /// It shrinks the parameter before the step.
    Decoupled,
}

impl Moments {
    fn rule(self, decay: Decay) -> UpdateRule {
        let (beta1, beta2) = self.betas;
        let attributes = Attributes::new().with("beta1", beta1).with("beta2", beta2);
        let attributes = attributes.with("epsilon", self.epsilon).with("weight_decay", self.weight_decay);
        UpdateRule { kind: "adam", attributes: attributes.with("decoupled", decay == Decay::Decoupled) }
    }
}

/// Adam; its weight decay is added to the gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    options: Options,
    moments: Moments,
}

/// Adam with decoupled weight decay: every step takes rate · decay of the parameter away.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    options: Options,
    moments: Moments,
}

impl Adam {
    /// With betas 0.9 and 0.999, epsilon 1e-8 and no decay.
    pub fn new(rate: f64) -> Self {
        let moments = Moments { betas: (0.9, 0.999), epsilon: 1e-8, weight_decay: 0.0 };
        Self { options: Options::new(rate), moments }
    }
}

impl AdamW {
    /// With betas 0.9 and 0.999, epsilon 1e-8 and a decay of 0.01.
    pub fn new(rate: f64) -> Self {
        let moments = Moments { betas: (0.9, 0.999), epsilon: 1e-8, weight_decay: 0.01 };
        Self { options: Options::new(rate), moments }
    }
}

macro_rules! moments {
    ($($name:ident),*) => {$(
        impl $name {
            /// How much of the moments is kept from step to step: each from 0 and below 1.
            #[must_use]
            pub fn betas(mut self, beta1: f64, beta2: f64) -> Self {
                self.moments.betas = (beta1, beta2);
                self
            }

            /// What is added to the root of the second moment.
            #[must_use]
            pub fn epsilon(mut self, epsilon: f64) -> Self {
                self.moments.epsilon = epsilon;
                self
            }

            /// The weight decay.
            #[must_use]
            pub fn weight_decay(mut self, weight_decay: f64) -> Self {
                self.moments.weight_decay = weight_decay;
                self
            }
        }
    )*};
}
moments!(Adam, AdamW);

macro_rules! options {
    ($($name:ident),*) => {$(
        impl $name {
            /// Scales all gradients together so that their norm is at most `max_norm`.
            #[must_use]
            pub fn clip_global_norm(mut self, max_norm: f64) -> Self {
                self.options.max_norm = Some(max_norm);
                self
            }

            /// How the learning rate moves over the steps.
            #[must_use]
            pub fn schedule(mut self, schedule: Schedule) -> Self {
                self.options.schedule = schedule;
                self
            }

            /// Under a gradient of selected rows only the touched rows and their state move.
            #[must_use]
            pub fn lazy(mut self) -> Self {
                self.options.mode = SparseMode::Lazy;
                self
            }
        }
    )*};
}
options!(Sgd, Adagrad, Adam, AdamW);

impl Optimizer for Sgd {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        let attributes = Attributes::new().with("weight_decay", self.weight_decay);
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

impl Optimizer for Adagrad {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        let attributes = Attributes::new().with("epsilon", self.epsilon).with("rate_decay", self.rate_decay);
        Ok(UpdateRule { kind: "adagrad", attributes: attributes.with("weight_decay", self.weight_decay) })
    }
}

impl Optimizer for Adam {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        Ok(self.moments.rule(Decay::InGradient))
    }
}

impl Optimizer for AdamW {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        Ok(self.moments.rule(Decay::Decoupled))
    }
}
