//! Adam and its variants, which step along a running mean of the gradients.

use super::{Decay, Group, Optimizer, Options, Schedule, SparseMode, UpdateRule, betas};
use crate::error::Result;

/// The kind of the second moment; the step is divided by the root of this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Second {
    /// Adam: the current second moment, a running mean of squared gradients.
    Present,
    /// AMSGrad: the largest second moment of all steps so far.
    Largest,
}

/// Adam, in which weight decay is added to the gradient. The update operators of Adam are `adam` and, with [`Self::amsgrad`],
/// `amsgrad`.
#[derive(Debug, Clone, PartialEq)]
pub struct Adam {
    options: Options,
    betas: [f64; 2],
    epsilon: f64,
    second: Second,
    decay: Decay,
}

/// AdamW: Adam with decoupled weight decay, which subtracts rate · weight decay · parameter at every step.
#[derive(Debug, Clone, PartialEq)]
pub struct AdamW {
    options: Options,
    betas: [f64; 2],
    epsilon: f64,
    second: Second,
    decay: Decay,
}

impl Adam {
    /// Makes Adam with the learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-8 and no decay.
    pub fn new(rate: f64) -> Self {
        let (options, decay) = (Options::new(rate), Decay::default());
        Self { options, betas: [0.9, 0.999], epsilon: 1e-8, second: Second::Present, decay }
    }
}

impl AdamW {
    /// Makes AdamW with the learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-8 and a weight decay of 0.01.
    pub fn new(rate: f64) -> Self {
        let decay = Decay { weight_decay: 0.01, l1: 0.0, decoupled: true };
        let options = Options::new(rate);
        Self { options, betas: [0.9, 0.999], epsilon: 1e-8, second: Second::Present, decay }
    }
}

/// Defines the methods that Adam and AdamW share.
macro_rules! adam {
    ($($name:ident),*) => {$(
        setting! { $name:
            /// Sets epsilon, which is added to the root of the second moment; the step is divided by this sum.
            epsilon,
        }

        impl $name {
            /// AMSGrad: divides the step by the root of the largest second moment so far, instead of the current second moment.
            #[must_use]
            pub fn amsgrad(self) -> Self {
                Self { second: Second::Largest, ..self }
            }
        }

        impl Optimizer for $name {
            fn options(&self) -> &Options {
                &self.options
            }

            fn rule(&self) -> Result<UpdateRule> {
                let kind = match self.second {
                    Second::Present => "adam",
                    Second::Largest => "amsgrad",
                };
                let attributes = self.decay.of(betas(self.betas).with("epsilon", self.epsilon));
                Ok(UpdateRule { kind, attributes: attributes.with("decoupled", self.decay.decoupled) })
            }
        }
    )*};
}
adam!(Adam, AdamW);

/// Adamax: Adam in which the step is divided by a decaying maximum of the gradient's magnitude, instead of the root of the
/// second moment. The update operator of Adamax is `adamax`.
#[derive(Debug, Clone, PartialEq)]
pub struct Adamax {
    options: Options,
    betas: [f64; 2],
    epsilon: f64,
    decay: Decay,
}

impl Adamax {
    /// Makes Adamax with the learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-8 and no decay.
    pub fn new(rate: f64) -> Self {
        Self { options: Options::new(rate), betas: [0.9, 0.999], epsilon: 1e-8, decay: Decay::default() }
    }
}

setting! { Adamax:
    /// Sets epsilon, which is added to the magnitude of the gradient before the maximum is taken.
    epsilon,
}

/// NAdam: Adam with Nesterov momentum. The update operator of NAdam is `nadam`.
#[derive(Debug, Clone, PartialEq)]
pub struct NAdam {
    options: Options,
    betas: [f64; 2],
    epsilon: f64,
    momentum_decay: f64,
    decay: Decay,
}

impl NAdam {
    /// Makes NAdam with the learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-8, momentum decay 0.004 and no decay of the
    /// parameters.
    pub fn new(rate: f64) -> Self {
        let (options, decay) = (Options::new(rate), Decay::default());
        Self { options, betas: [0.9, 0.999], epsilon: 1e-8, momentum_decay: 4e-3, decay }
    }
}

setting! { NAdam:
    /// Sets epsilon, which is added to the root of the second moment; the step is divided by this sum.
    epsilon,
    /// Sets the momentum decay: with a larger number, the momentum rises faster from half of beta1 to beta1.
    momentum_decay,
}

/// LAMB: the step of Adam is scaled to the norm of the parameter, then multiplied by the learning rate. The update operator of
/// LAMB is `lamb`.
#[derive(Debug, Clone, PartialEq)]
pub struct Lamb {
    options: Options,
    betas: [f64; 2],
    epsilon: f64,
    weight_decay: f64,
}

impl Lamb {
    /// Makes LAMB with the learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-6 and no decay.
    pub fn new(rate: f64) -> Self {
        Self { options: Options::new(rate), betas: [0.9, 0.999], epsilon: 1e-6, weight_decay: 0.0 }
    }
}

setting! { Lamb:
    /// Sets epsilon, which is added to the root of the second moment; the step is divided by this sum.
    epsilon,
    /// Weight decay: adds `weight_decay` · parameter to the step of Adam, before the step is scaled to the norm of the
    /// parameter.
    weight_decay,
}

options!(Adam, AdamW, Adamax, NAdam, Lamb);
decay!(Adam, AdamW, Adamax, NAdam);
decoupled!(Adam, Adamax, NAdam);
betas!(Adam, AdamW, Adamax, NAdam, Lamb);

impl Optimizer for Adamax {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        let attributes = betas(self.betas).with("epsilon", self.epsilon);
        Ok(UpdateRule { kind: "adamax", attributes: self.decay.of(attributes) })
    }
}

impl Optimizer for NAdam {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        let attributes = betas(self.betas).with("epsilon", self.epsilon);
        let attributes = attributes.with("momentum_decay", self.momentum_decay);
        Ok(UpdateRule { kind: "nadam", attributes: self.decay.of(attributes) })
    }
}

impl Optimizer for Lamb {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        let attributes = betas(self.betas).with("epsilon", self.epsilon);
        Ok(UpdateRule { kind: "lamb", attributes: attributes.with("weight_decay", self.weight_decay) })
    }
}
