//! The macro that declares the optimizers of this crate, and the optimizer that each of them is.

use super::{Optimizer, Options, UpdateRule};
use crate::error::{Error, ErrorKind, Result};
use crate::operator::{Attributes, Literal};

/// An optimizer with any update rule. [`OptimizerKind::at_rate`](super::OptimizerKind::at_rate) returns an optimizer of this crate
/// by its name; another registered update operator is given by its kind.
///
/// ```
/// use unpadded::optimizer::{Adam, AnyOptimizer, Optimizer, OptimizerKind};
/// let mut adam = "adam".parse::<OptimizerKind>()?.at_rate(1e-3);
/// adam.options.max_norm = Some(5.0);
/// adam.rule.attributes.set("weight_decay", 0.1);
/// assert_eq!(adam, AnyOptimizer::from(Adam::new(1e-3).clip_global_norm(5.0).weight_decay(0.1)));
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct AnyOptimizer {
    /// The options that all optimizers have.
    pub options: Options,
    /// The update operator with its settings.
    pub rule: UpdateRule,
}

impl AnyOptimizer {
    /// Sets an attribute of the update operator.
    pub(super) fn with(mut self, name: &str, value: impl Into<Literal>) -> Self {
        self.rule.attributes.set(name, value);
        self
    }

    /// Sets an attribute of the update operator; removes the attribute for 0.
    pub(super) fn with_unless_zero(mut self, name: &str, value: f64) -> Self {
        if value != 0.0 {
            return self.with(name, value);
        }
        self.rule.attributes = without(&self.rule.attributes, name);
        self
    }
}

fn without(attributes: &Attributes, name: &str) -> Attributes {
    let kept = attributes.iter().filter(|(other, _)| *other != name);
    kept.fold(Attributes::new(), |kept, (name, value)| kept.with(name, value.clone()))
}

impl Optimizer for AnyOptimizer {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        let UpdateRule { kind, attributes } = &self.rule;
        match attributes.get("nesterov") {
            Some(&Literal::Bool(nesterov)) if attributes.get("momentum").is_none() => match nesterov {
                true => Err(Error::of(ErrorKind::Program, "Nesterov's step", "a momentum above 0", "0")),
                false => Ok(UpdateRule { kind, attributes: without(attributes, "nesterov") }),
            },
            _ => Ok(self.rule.clone()),
        }
    }
}

/// Declares all optimizers: for each the documentation, the type, its name, the kind of its update operator, the settings of `new`,
/// the methods, and the variants that tests run. A variant has a name, its effect on rows without a gradient in exact mode, and
/// calls of methods.
macro_rules! optimizers {
    ($(
        $(#[doc = $doc:literal])*
        $type:ident = $name:literal of $kind:literal {
            $(#[doc = $about:literal])*
            new($($setting:ident: $value:expr),*);
            methods($($method:ident),*);
            $(settings { $($(#[doc = $own_doc:literal])* $own:ident;)* })?
            variants at $rate:literal {
                $($variant:literal => $owes:expr $(, $(.$call:ident($($argument:expr),*))*)?;)+
            }
        }
    )*) => {
        /// The optimizers of this crate. The text form is the name, such as `adam`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum OptimizerKind {
            $(#[doc = concat!("The optimizer [`", stringify!($type), "`].")] $type,)*
        }

        impl OptimizerKind {
            /// All optimizers of this crate.
            pub const ALL: &[Self] = &[$(Self::$type),*];

            /// Returns the name of the optimizer.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$type => $name),* }
            }

            /// Returns the optimizer with the learning rate `rate` and the default settings.
            pub fn at_rate(self, rate: f64) -> AnyOptimizer {
                match self { $(Self::$type => $type::new(rate).into()),* }
            }

            /// Returns each optimizer with the settings that tests run, so that a test of all rules has no list of its own.
            #[cfg(any(test, feature = "internals"))]
            pub fn variants() -> Vec<OptimizerVariant> {
                vec![$($(OptimizerVariant {
                    name: $variant,
                    optimizer: $type::new($rate)$($(.$call($($argument),*))*)?.into(),
                    owes: $owes,
                },)+)*]
            }
        }

        $(
            $(#[doc = $doc])*
            #[derive(Debug, Clone, PartialEq)]
            pub struct $type(AnyOptimizer);

            impl $type {
                $(#[doc = $about])*
                pub fn new(rate: f64) -> Self {
                    let attributes = Attributes::new()$(.with(stringify!($setting), $value))*;
                    Self(AnyOptimizer { options: Options::new(rate), rule: UpdateRule { kind: $kind, attributes } })
                }

                $($(
                    $(#[doc = $own_doc])*
                    #[must_use]
                    pub fn $own(self, $own: f64) -> Self {
                        Self(self.0.with(stringify!($own), $own))
                    }
                )*)?
            }

            impl Optimizer for $type {
                fn options(&self) -> &Options {
                    self.0.options()
                }

                fn rule(&self) -> Result<UpdateRule> {
                    self.0.rule()
                }
            }

            impl From<$type> for AnyOptimizer {
                fn from(optimizer: $type) -> Self {
                    optimizer.0
                }
            }

            methods!(options $type);
            $(methods!($method $type);)*
        )*
    };
}

/// Defines the methods that several optimizers have.
macro_rules! methods {
    (options $type:ident) => {
        impl $type {
            /// Gradient clipping by value: limits every number of each gradient to the range from −limit to limit. Clipping by
            /// value runs before clipping by norm and by global norm.
            #[must_use]
            pub fn clip_value(mut self, limit: f64) -> Self {
                self.0.options.clip_value = Some(limit);
                self
            }

            /// Gradient clipping by norm: scales the gradient of each parameter separately, so that the norm of the gradient is
            /// at most `max_norm`.
            #[must_use]
            pub fn clip_norm(mut self, max_norm: f64) -> Self {
                self.0.options.clip_norm = Some(max_norm);
                self
            }

            /// Gradient clipping by global norm: scales the gradients of all parameters by one factor, so that the norm of all
            /// gradients together is at most `max_norm`.
            #[must_use]
            pub fn clip_global_norm(mut self, max_norm: f64) -> Self {
                self.0.options.max_norm = Some(max_norm);
                self
            }

            /// Sets the learning rate schedule.
            #[must_use]
            pub fn schedule(mut self, schedule: Schedule) -> Self {
                self.0.options.schedule = schedule;
                self
            }

            /// Multiplies the learning rate of every step by the state [`RATE_SCALE`](crate::optimizer::RATE_SCALE), which is 1
            /// at the start and may be set between steps.
            #[must_use]
            pub fn adjustable(mut self) -> Self {
                self.0.options.adjustable = true;
                self
            }

            /// Adds a parameter group, which has settings of its own. If several groups contain a parameter and set the same
            /// option, the last of these groups applies.
            #[must_use]
            pub fn group(mut self, group: Group) -> Self {
                self.0.options.groups.push(group);
                self
            }

            /// Lazy updates: if a gradient is stored as selected rows, only the selected rows of the parameter and of the
            /// update rule's states change.
            #[must_use]
            pub fn lazy(mut self) -> Self {
                self.0.options.mode = SparseMode::Lazy;
                self
            }
        }
    };
    (decay $type:ident) => {
        impl $type {
            /// Weight decay: adds `weight_decay` · parameter to the gradient (L2 regularisation); if decoupled, subtracts rate
            /// · `weight_decay` · parameter from the parameter instead.
            #[must_use]
            pub fn weight_decay(self, weight_decay: f64) -> Self {
                Self(self.0.with("weight_decay", weight_decay))
            }

            /// L1 regularisation: adds `l1` · sign(parameter) to the gradient; if decoupled, moves the parameter towards 0 by
            /// rate · `l1` instead, but not past 0.
            #[must_use]
            pub fn l1(self, l1: f64) -> Self {
                Self(self.0.with_unless_zero("l1", l1))
            }
        }
    };
    (decoupled $type:ident) => {
        impl $type {
            /// Decouples weight decay and L1 regularisation from the gradient: both move the parameter itself before the step,
            /// and leave the gradient unchanged.
            #[must_use]
            pub fn decoupled(self) -> Self {
                Self(self.0.with("decoupled", true))
            }
        }
    };
    (betas $type:ident) => {
        impl $type {
            /// Sets the decay rates per step of the first and the second moment: each is at least 0 and below 1.
            #[must_use]
            pub fn betas(self, beta1: f64, beta2: f64) -> Self {
                Self(self.0.with("beta1", beta1).with("beta2", beta2))
            }
        }
    };
    (momentum $type:ident) => {
        impl $type {
            /// Sets the momentum, the factor per step of a parameter's velocity: at least 0 and below 1.
            #[must_use]
            pub fn momentum(self, momentum: f64) -> Self {
                Self(self.0.with_unless_zero("momentum", momentum))
            }
        }
    };
    (nesterov $type:ident) => {
        impl $type {
            /// Nesterov momentum: the step is the gradient plus the product of the momentum and the updated velocity. Nesterov
            /// momentum requires a momentum above 0.
            #[must_use]
            pub fn nesterov(self) -> Self {
                Self(self.0.with("nesterov", true))
            }
        }
    };
    (amsgrad $type:ident) => {
        impl $type {
            /// AMSGrad: divides the step by the root of the largest second moment so far, instead of the current second moment.
            #[must_use]
            pub fn amsgrad(self) -> Self {
                Self(self.0.with("amsgrad", true))
            }
        }
    };
    (centred $type:ident) => {
        impl $type {
            /// Centred RMSProp: divides the gradient by the standard deviation of the previous gradients, instead of their root
            /// mean square.
            #[must_use]
            pub fn centred(self) -> Self {
                Self(self.0.with("centred", true))
            }
        }
    };
}
pub(super) use {methods, optimizers};
