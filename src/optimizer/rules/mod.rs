//! The optimizers: settings with defaults.
//!
//! A setting out of range is no error in its setter: [`Optimizer::minimize`] returns the error when it appends the update
//! operators.

use super::{Group, Optimizer, Options, Schedule, SparseMode, UpdateRule};
use crate::operator::Attributes;

/// The settings of weight decay and L1 regularisation, for most update rules.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Decay {
    weight_decay: f64,
    l1: f64,
    decoupled: bool,
}

impl Decay {
    /// Adds the decay to a rule's attributes: `weight_decay` always, `l1` and `decoupled` only if they are set.
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

/// Defines the methods that every optimizer has.
macro_rules! options {
    ($($name:ident),*) => {$(
        impl $name {
            /// Gradient clipping by value: limits every number of each gradient to −limit … limit. Runs before all other
            /// clipping.
            #[must_use]
            pub fn clip_value(mut self, limit: f64) -> Self {
                self.options.clip_value = Some(limit);
                self
            }

            /// Gradient clipping by norm: scales each parameter's gradient separately so that its norm is at most `max_norm`.
            #[must_use]
            pub fn clip_norm(mut self, max_norm: f64) -> Self {
                self.options.clip_norm = Some(max_norm);
                self
            }

            /// Gradient clipping by global norm: scales all gradients together so that their norm is at most `max_norm`.
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

            /// Scales the learning rate of every step by the state [`RATE_SCALE`](crate::optimizer::RATE_SCALE), which starts at
            /// 1 and can be set between steps.
            #[must_use]
            pub fn adjustable(mut self) -> Self {
                self.options.adjustable = true;
                self
            }

            /// Adds a parameter group with its own settings. If several groups contain a parameter, the last group that sets an
            /// option takes precedence.
            #[must_use]
            pub fn group(mut self, group: Group) -> Self {
                self.options.groups.push(group);
                self
            }

            /// Lazy updates: if a gradient is selected rows, only the rows in it and their state change.
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
            /// Weight decay: adds `weight_decay` times the parameter to its gradient (L2 regularisation); if decoupled,
            /// subtracts rate times `weight_decay` times the parameter from the parameter.
            #[must_use]
            pub fn weight_decay(mut self, weight_decay: f64) -> Self {
                self.decay.weight_decay = weight_decay;
                self
            }

            /// L1 regularisation: adds `l1` times the parameter's sign to its gradient; if decoupled, first moves the parameter
            /// towards 0 by rate times `l1`, at most to 0.
            #[must_use]
            pub fn l1(mut self, l1: f64) -> Self {
                self.decay.l1 = l1;
                self
            }
        }
    )*};
}

/// Defines the method of optimizers whose decay may be decoupled.
macro_rules! decoupled {
    ($($name:ident),*) => {$(
        impl $name {
            /// Decouples weight decay and L1 from the gradient: they move the parameter before the step, and leave the gradient
            /// unchanged.
            #[must_use]
            pub fn decoupled(mut self) -> Self {
                self.decay.decoupled = true;
                self
            }
        }
    )*};
}

/// Defines the method of each numeric setting.
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

/// Defines the method that sets the decay rates of the two moments.
macro_rules! betas {
    ($($name:ident),*) => {$(
        impl $name {
            /// Sets the decay rates of the two moments per step: each at least 0 and below 1.
            #[must_use]
            pub fn betas(self, beta1: f64, beta2: f64) -> Self {
                Self { betas: [beta1, beta2], ..self }
            }
        }
    )*};
}

/// The attributes `beta1` and `beta2`.
fn betas([beta1, beta2]: [f64; 2]) -> Attributes {
    Attributes::new().with("beta1", beta1).with("beta2", beta2)
}

mod adaptive;
mod descent;
mod moments;

pub use adaptive::{Adadelta, Adagrad, Ftrl, RmsProp};
pub use descent::{Lion, Sgd};
pub use moments::{Adam, AdamW, Adamax, Lamb, NAdam};
