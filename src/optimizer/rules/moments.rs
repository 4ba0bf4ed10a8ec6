//! Adam and its variants: steps along a decaying mean of the gradients.

use super::{Decay, Group, Optimizer, Options, Schedule, SparseMode, UpdateRule, betas};
use crate::error::Result;

/// The second moment whose root divides a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Second {
    /// The current second moment.
    Present,
    /// The largest second moment so far: AMSGrad.
    Largest,
}

/// Adam; its weight decay is added to the gradient. The operators `adam` and `amsgrad`.
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
    /// Adam with learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-8 and no decay.
    pub fn new(rate: f64) -> Self {
        let (options, decay) = (Options::new(rate), Decay::default());
        Self { options, betas: [0.9, 0.999], epsilon: 1e-8, second: Second::Present, decay }
    }
}

impl AdamW {
    /// AdamW with learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-8 and a weight decay of 0.01.
    pub fn new(rate: f64) -> Self {
        let decay = Decay { weight_decay: 0.01, l1: 0.0, decoupled: true };
        let options = Options::new(rate);
        Self { options, betas: [0.9, 0.999], epsilon: 1e-8, second: Second::Present, decay }
    }
}

/// The methods of Adam and AdamW.
macro_rules! adam {
    ($($name:ident),*) => {$(
        setting! { $name:
            /// Sets epsilon, which is added to the root of the second moment.
            epsilon,
        }

        impl $name {
            /// AMSGrad: divides by the root of the largest second moment so far, instead of the current second moment.
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

/// Adamax: Adam divided by a decaying maximum of the gradient's magnitude, instead of the root of the second moment. The
/// operator `adamax`.
#[derive(Debug, Clone, PartialEq)]
pub struct Adamax {
    options: Options,
    betas: [f64; 2],
    epsilon: f64,
    decay: Decay,
}

impl Adamax {
    /// Adamax with learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-8 and no decay.
    pub fn new(rate: f64) -> Self {
        Self { options: Options::new(rate), betas: [0.9, 0.999], epsilon: 1e-8, decay: Decay::default() }
    }
}

setting! { Adamax:
    /// Sets epsilon, which is added to the magnitude of the gradient before the maximum is taken.
    epsilon,
}

/// NAdam: Adam with Nesterov momentum. The operator `nadam`.
#[derive(Debug, Clone, PartialEq)]
pub struct NAdam {
    options: Options,
    betas: [f64; 2],
    epsilon: f64,
    momentum_decay: f64,
    decay: Decay,
}

impl NAdam {
    /// NAdam with learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-8, momentum decay 0.004 and no decay of the parameters.
    pub fn new(rate: f64) -> Self {
        let (options, decay) = (Options::new(rate), Decay::default());
        Self { options, betas: [0.9, 0.999], epsilon: 1e-8, momentum_decay: 4e-3, decay }
    }
}

setting! { NAdam:
    /// Sets epsilon, which is added to the root of the second moment.
    epsilon,
    /// Sets how fast the momentum rises from half of beta1 to beta1.
    momentum_decay,
}

/// LAMB: Adam's step, scaled to the norm of the parameter and then multiplied by the learning rate. The operator `lamb`.
#[derive(Debug, Clone, PartialEq)]
pub struct Lamb {
    options: Options,
    betas: [f64; 2],
    epsilon: f64,
    weight_decay: f64,
}

impl Lamb {
    /// LAMB with learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-6 and no decay.
    pub fn new(rate: f64) -> Self {
        Self { options: Options::new(rate), betas: [0.9, 0.999], epsilon: 1e-6, weight_decay: 0.0 }
    }
}

setting! { Lamb:
    /// Sets epsilon, which is added to the root of the second moment.
    epsilon,
    /// Weight decay: adds `weight_decay` times the parameter to Adam's step, before the step is scaled.
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
