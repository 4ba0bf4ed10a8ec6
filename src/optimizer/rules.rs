//! The list of the optimizers of this crate, as settings with defaults.
//!
//! The methods that set options accept any number. [`Optimizer::minimize`], which appends the update operators, returns
//! an error for a number out of range.

use std::fmt;
use std::str::FromStr;

use super::declare::{AnyOptimizer, methods, optimizers};
#[cfg(any(test, feature = "internals"))]
use super::variants::OptimizerVariant;
use super::{Group, Optimizer, Options, Schedule, SparseMode, UpdateRule};
use crate::error::{Error, ErrorKind, Result};
use crate::operator::Attributes;
#[cfg(any(test, feature = "internals"))]
use crate::operator::Debt::{AtOnce, Later, Nothing, Whole};

optimizers! {
    /// Stochastic gradient descent (SGD), optionally with momentum, with the update operator `sgd`.
    Sgd = "sgd" of "sgd" {
        /// Makes stochastic gradient descent with the learning rate `rate`, without momentum and without decay.
        new(weight_decay: 0.0, nesterov: false);
        methods(momentum, nesterov, decay, decoupled);
        variants at 0.05 {
            "sgd" => Nothing;
            "sgd with decay" => Later, .weight_decay(0.02);
            "sgd with decoupled decay" => Later, .weight_decay(0.02).decoupled();
            "sgd with l1" => AtOnce("L1 decay"), .l1(0.01);
            "momentum" => Later, .momentum(0.8);
            "momentum with decay" => Later, .momentum(0.8).weight_decay(0.01);
            "nesterov" => Later, .momentum(0.8).nesterov().weight_decay(0.01).decoupled();
        }
    }

    /// Adagrad, with the update operator `adagrad`.
    Adagrad = "adagrad" of "adagrad" {
        /// Makes Adagrad with the learning rate `rate`, epsilon 1e-10 and no decay.
        new(epsilon: 1e-10, rate_decay: 0.0, weight_decay: 0.0);
        methods(decay, decoupled);
        settings {
            /// Sets epsilon, which is added to the root of the sum of squared gradients.
            epsilon;
            /// Sets the decay of the learning rate: in step t, counted from 0, the learning rate is divided by 1 + t · `rate_decay`.
            rate_decay;
        }
        variants at 0.05 {
            "adagrad" => Nothing, .rate_decay(0.01);
            "adagrad with decay" => AtOnce("weight decay that is added to the gradient"), .weight_decay(0.02);
            "adagrad with decoupled decay" => Later, .weight_decay(0.02).decoupled();
            "adagrad with decoupled l1" => AtOnce("L1 decay"), .l1(0.02).decoupled();
        }
    }

    /// Adam, in which weight decay is added to the gradient. The update operator of Adam is `adam`.
    Adam = "adam" of "adam" {
        /// Makes Adam with the learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-8 and no decay.
        new(beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0, decoupled: false);
        methods(betas, amsgrad, decay, decoupled);
        settings {
            /// Sets epsilon, which is added to the root of the second moment; the step is divided by this sum.
            epsilon;
        }
        variants at 0.01 {
            "adam" => Later;
            "adam with other betas" => Later, .betas(0.5, 0.9).epsilon(1e-4);
            "adam without beta1" => Later, .betas(0.0, 0.99);
            "adam with decay" => AtOnce("weight decay that is added to the gradient"), .weight_decay(0.1);
            "adam with close betas" => AtOnce("Adam, whose steps fade too slowly"), .betas(0.9, 0.7);
            "amsgrad" => Later, .amsgrad();
        }
    }

    /// AdamW: Adam with decoupled weight decay, which subtracts rate · weight decay · parameter at every step.
    AdamW = "adamw" of "adam" {
        /// Makes AdamW with the learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-8 and a weight decay of 0.01.
        new(beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01, decoupled: true);
        methods(betas, amsgrad, decay);
        settings {
            /// Sets epsilon, which is added to the root of the second moment; the step is divided by this sum.
            epsilon;
        }
        variants at 0.01 {
            "adamw" => Later, .weight_decay(0.05);
            "adamw with slow betas" => Later, .betas(0.97, 0.9999);
            "amsgrad with decoupled decay" => Later, .weight_decay(0.05).amsgrad();
        }
    }

    /// Adamax: Adam in which the step is divided by a decaying maximum of the gradient's magnitude, instead of the root of the
    /// second moment. The update operator of Adamax is `adamax`.
    Adamax = "adamax" of "adamax" {
        /// Makes Adamax with the learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-8 and no decay.
        new(beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0);
        methods(betas, decay, decoupled);
        settings {
            /// Sets epsilon, which is added to the magnitude of the gradient before the maximum is taken.
            epsilon;
        }
        variants at 0.01 {
            "adamax" => Later;
            "adamax with decoupled decay" => Later, .weight_decay(0.03).decoupled();
            "adamax with close betas" => AtOnce("beta1 is about beta2"), .betas(0.9, 0.9);
        }
    }

    /// NAdam: Adam with Nesterov momentum. The update operator of NAdam is `nadam`.
    NAdam = "nadam" of "nadam" {
        /// Makes NAdam with the learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-8, momentum decay 0.004 and no decay of the
        /// parameters.
        new(beta1: 0.9, beta2: 0.999, epsilon: 1e-8, momentum_decay: 4e-3, weight_decay: 0.0);
        methods(betas, decay, decoupled);
        settings {
            /// Sets epsilon, which is added to the root of the second moment; the step is divided by this sum.
            epsilon;
            /// Sets the momentum decay: with a larger number, the momentum rises faster from half of beta1 to beta1.
            momentum_decay;
        }
        variants at 0.01 {
            "nadam" => Later;
            "nadam with decoupled decay" => Later, .momentum_decay(0.02).weight_decay(0.03).decoupled();
            "nadam with close betas" => AtOnce("NAdam, whose steps fade too slowly"), .betas(0.99, 0.9);
        }
    }

    /// LAMB: the step of Adam is scaled to the norm of the parameter, then multiplied by the learning rate. The update operator of
    /// LAMB is `lamb`.
    Lamb = "lamb" of "lamb" {
        /// Makes LAMB with the learning rate `rate`, betas 0.9 and 0.999, epsilon 1e-6 and no decay.
        new(beta1: 0.9, beta2: 0.999, epsilon: 1e-6, weight_decay: 0.0);
        methods(betas);
        settings {
            /// Sets epsilon, which is added to the root of the second moment; the step is divided by this sum.
            epsilon;
            /// Weight decay: adds `weight_decay` · parameter to the step of Adam, before the step is scaled to the norm of the
            /// parameter.
            weight_decay;
        }
        variants at 0.01 {
            "lamb" => Whole("LAMB, which divides by the length of the whole parameter,"), .weight_decay(0.1);
        }
    }

    /// Lion: each number of a parameter moves by the learning rate, in the direction of the sign of a momentum. The update operator
    /// of Lion is `lion`.
    ///
    /// The weight decay of Lion is decoupled from the gradient. For Lion, a usual learning rate is a tenth to a third of the rate
    /// for Adam, and a usual weight decay is three to ten times the decay for Adam.
    Lion = "lion" of "lion" {
        /// Makes Lion with the learning rate `rate`, betas 0.9 and 0.99 and no decay.
        new(beta1: 0.9, beta2: 0.99, weight_decay: 0.0, decoupled: true);
        methods(betas, decay);
        variants at 0.001 {
            "lion" => Later;
            "lion with decay" => Later, .weight_decay(0.05);
            "lion with a short moment" => AtOnce("Lion, whose moment"), .betas(0.9, 0.5);
        }
    }

    /// RMSProp, with the update operator `rmsprop`.
    RmsProp = "rmsprop" of "rmsprop" {
        /// Makes RMSProp with the learning rate `rate`, alpha 0.99, epsilon 1e-8, no momentum and no decay.
        new(alpha: 0.99, epsilon: 1e-8, weight_decay: 0.0);
        methods(centred, momentum, decay, decoupled);
        settings {
            /// Sets alpha, the factor per step of the running mean of squared gradients: at least 0 and below 1.
            alpha;
            /// Sets epsilon, which is added to the root; the gradient is divided by this sum.
            epsilon;
        }
        variants at 0.005 {
            "rmsprop" => Later;
            "rmsprop with decoupled decay" => Later, .weight_decay(0.1).decoupled();
            "rmsprop with momentum" => Later, .momentum(0.8);
            // Where the deviation is almost 0, its rounding errors matter.
            "rmsprop, centred" => Later, .centred().epsilon(1e-3);
            "rmsprop, centred, with momentum" => Later, .centred().epsilon(1e-3).momentum(0.7);
        }
    }

    /// Adadelta, with the update operator `adadelta`.
    Adadelta = "adadelta" of "adadelta" {
        /// Makes Adadelta with the learning rate `rate` (1 in the paper), rho 0.9, epsilon 1e-6 and no decay.
        new(rho: 0.9, epsilon: 1e-6, weight_decay: 0.0);
        methods(decay, decoupled);
        settings {
            /// Sets rho, the factor per step of the running averages of squared gradients and squared moves: at least 0 and below 1.
            rho;
            /// Sets epsilon, which is added under the root of the average squared gradient and under the root of the average squared
            /// move.
            epsilon;
        }
        variants at 0.5 {
            "adadelta" => Later;
            "adadelta with decoupled decay" => Later, .weight_decay(0.01).decoupled();
        }
    }

    /// FTRL-Proximal, an optimizer for sparse models, with the update operator `ftrl`. The L1 regularisation of FTRL makes
    /// parameters exactly zero; parameters should start at 0.
    Ftrl = "ftrl" of "ftrl" {
        /// Makes FTRL-Proximal with the learning rate `rate`, beta 1 and no regularisation.
        new(beta: 1.0, l1: 0.0, l2: 0.0);
        methods();
        settings {
            /// Sets beta, which is added to the root of the sum of squared gradients: a larger beta makes the first steps smaller.
            beta;
            /// L1 regularisation: a term that is added once to the sum of the losses of all steps, not to the loss of each step.
            l1;
            /// L2 regularisation: a term that is added once to the sum of the losses of all steps, not to the loss of each step.
            l2;
        }
        variants at 0.05 {
            "ftrl" => Nothing, .l1(0.001).l2(0.1);
        }
    }
}

impl fmt::Display for OptimizerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for OptimizerKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|one| one.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|one| one.name()).collect();
            Error::of(
                ErrorKind::Program,
                "optimizer",
                format!("one of {}", names.join(", ")),
                format!("`{name}`"),
            )
        })
    }
}
