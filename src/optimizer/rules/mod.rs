//! The optimizers of this crate, as settings with defaults.
//!
//! The methods that set options accept any number. [`Optimizer::minimize`], which appends the update operators, returns
//! an error for a number out of range.

use super::{Group, Optimizer, Options, Schedule, SparseMode, UpdateRule};
use crate::operator::Attributes;

/// The settings of weight decay and L1 regularisation, which most update rules have.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Decay {
    weight_decay: f64,
    l1: f64,
    decoupled: bool,
}

impl Decay {
    /// Adds the settings to the attributes of a rule: `weight_decay` always, `l1` and `decoupled` only if they are set.
    fn of(self, mut attributes: Attributes) -> Attributes {
        attributes.set("weight_decay", self.weight_decay);
        if self.l1 != 0.0 {
            attributes.set("l1", self.l1);
        }
        if self.decoupled {
            attributes.set("decoupled", true);
        }
        attributes
    }
}

/// Defines the methods that every optimizer has, such as gradient clipping.
macro_rules! options {
    ($($name:ident),*) => {$(
        impl $name {
            /// Gradient clipping by value: limits every number of each gradient to the range from −limit to limit. Clipping by
            /// value runs before clipping by norm and by global norm.
            #[must_use]
            pub fn clip_value(mut self, limit: f64) -> Self {
                self.options.clip_value = Some(limit);
                self
            }

            /// Gradient clipping by norm: scales the gradient of each parameter separately, so that the norm of the gradient is
            /// at most `max_norm`.
            #[must_use]
            pub fn clip_norm(mut self, max_norm: f64) -> Self {
                self.options.clip_norm = Some(max_norm);
                self
            }

            /// Gradient clipping by global norm: scales the gradients of all parameters by one factor, so that the norm of all
            /// gradients together is at most `max_norm`.
            #[must_use]
            pub fn clip_global_norm(mut self, max_norm: f64) -> Self {
                self.options.max_norm = Some(max_norm);
                self
            }

            /// Sets the learning rate schedule.
            #[must_use]
            pub fn schedule(mut self, schedule: Schedule) -> Self {
                self.options.schedule = schedule;
                self
            }

            /// Multiplies the learning rate of every step by the state [`RATE_SCALE`](crate::optimizer::RATE_SCALE), which is 1
            /// at the start and may be set between steps.
            #[must_use]
            pub fn adjustable(mut self) -> Self {
                self.options.adjustable = true;
                self
            }

            /// Adds a parameter group, which has settings of its own. If several groups contain a parameter and set the same
            /// option, the last of these groups applies.
            #[must_use]
            pub fn group(mut self, group: Group) -> Self {
                self.options.groups.push(group);
                self
            }

            /// Lazy updates: if a gradient is stored as selected rows, only the selected rows of the parameter and of the
            /// update rule's states change.
            #[must_use]
            pub fn lazy(mut self) -> Self {
                self.options.mode = SparseMode::Lazy;
                self
            }
        }
    )*};
}

/// Defines the methods of optimizers with weight decay.
macro_rules! decay {
    ($($name:ident),*) => {$(
        impl $name {
            /// Weight decay: adds `weight_decay` · parameter to the gradient (L2 regularisation); if decoupled, subtracts rate
            /// · `weight_decay` · parameter from the parameter instead.
            #[must_use]
            pub fn weight_decay(mut self, weight_decay: f64) -> Self {
                self.decay.weight_decay = weight_decay;
                self
            }

            /// L1 regularisation: adds `l1` · sign(parameter) to the gradient; if decoupled, moves the parameter towards 0 by
            /// rate · `l1` instead, but not past 0.
            #[must_use]
            pub fn l1(mut self, l1: f64) -> Self {
                self.decay.l1 = l1;
                self
            }
        }
    )*};
}

/// Defines the method `decoupled`, which decouples the decay from the gradient.
macro_rules! decoupled {
    ($($name:ident),*) => {$(
        impl $name {
            /// Decouples weight decay and L1 regularisation from the gradient: both move the parameter itself before the step,
            /// and leave the gradient unchanged.
            #[must_use]
            pub fn decoupled(mut self) -> Self {
                self.decay.decoupled = true;
                self
            }
        }
    )*};
}

/// Defines one method for each numeric setting of an optimizer.
macro_rules! setting {
    ($name:ident: $($(#[$doc:meta])* $setting:ident),* $(,)?) => {
        impl $name {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $setting(self, $setting: f64) -> Self {
                    Self { $setting, ..self }
                }
            )*
        }
    };
}

/// Defines the method `betas`, which sets the decay rates of both moments.
macro_rules! betas {
    ($($name:ident),*) => {$(
        impl $name {
            /// Sets the decay rates per step of the first and the second moment: each is at least 0 and below 1.
            #[must_use]
            pub fn betas(self, beta1: f64, beta2: f64) -> Self {
                Self { betas: [beta1, beta2], ..self }
            }
        }
    )*};
}

/// Returns the attributes `beta1` and `beta2`, the decay rates of both moments.
fn betas([beta1, beta2]: [f64; 2]) -> Attributes {
    Attributes::new().with("beta1", beta1).with("beta2", beta2)
}

mod adaptive;
mod descent;
mod moments;

pub use adaptive::{Adadelta, Adagrad, Ftrl, RmsProp};
pub use descent::{Lion, Sgd};
pub use moments::{Adam, AdamW, Adamax, Lamb, NAdam};
