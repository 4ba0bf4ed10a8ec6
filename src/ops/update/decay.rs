//! Weight decay for any update rule: L1 and L2, added to the gradient or decoupled from the gradient.

use super::rule::ElementStep;
use crate::kernels::Float;
use crate::operator::Debt;

/// The weight decay of an update operator: the values of its attributes. With p = param, weight decay is one of:
///
/// - decay in the gradient: the rule uses grad + `weight_decay` · p + `l1` · sign(p) in place of grad;
/// - decoupled decay: first p ← (1 − rate · `weight_decay`) · p, then p moves by rate · `l1` towards 0 but not past 0, then the
///   rule runs. Decoupled L2 decay is the decay of AdamW: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019,
///   arXiv:1711.05101. Decoupled L1 decay is the proximal step of Duchi and Singer, "Efficient online and batch learning using
///   forward backward splitting", JMLR 10, 2009, but applied before the rule, not after the rule.
#[derive(Debug, Clone, Copy)]
pub struct Decay {
    /// The strength of L1 decay: the attribute `l1`.
    pub l1: f64,
    /// The strength of L2 decay: the attribute `weight_decay`.
    pub weight_decay: f64,
    /// Whether decay changes the parameter before the rule, not the gradient: the attribute `decoupled`.
    pub decoupled: bool,
}

impl Decay {
    /// No decay: the value for a rule without attributes of weight decay.
    pub const NONE: Decay = Decay { l1: 0.0, weight_decay: 0.0, decoupled: true };

    /// Returns whether an update changes a row without a gradient, and whether the change can be made later. `rule` is
    /// the return value for the rule without weight decay.
    pub fn owes(self, rule: Debt) -> Debt {
        match (self.l1 > 0.0, self.weight_decay > 0.0) {
            (true, _) => Debt::AtOnce("L1 decay"),
            (_, true) if !self.decoupled => {
                Debt::AtOnce("weight decay that is added to the gradient (decoupled weight decay can wait)")
            }
            (_, true) if rule == Debt::Nothing => Debt::Later,
            _ => rule,
        }
    }

    /// Returns the factor by which decoupled L2 decay multiplies a parameter in one update at the learning rate `rate`.
    pub(crate) fn kept(self, rate: f64) -> f64 {
        1.0 - rate * self.weight_decay
    }

    /// Returns a step that applies this decay at the learning rate `rate`, then the step `rule`.
    pub fn before<T: Float, R>(self, rate: f64, rule: R) -> DecayStep<T, R> {
        let Self { l1, weight_decay, decoupled } = self;
        let (keep, shrink, l2, l1) = match decoupled {
            true => (1.0 - rate * weight_decay, rate * l1, 0.0, 0.0),
            false => (1.0, 0.0, weight_decay, l1),
        };
        let [keep, shrink, l2, l1] = [keep, shrink, l2, l1].map(T::from_f64);
        DecayStep { keep, shrink, l2, l1, rule }
    }
}

/// A step that applies [`Decay`], then the step of an update rule.
#[derive(Clone, Copy)]
pub struct DecayStep<T, R> {
    /// The factor by which decoupled L2 decay multiplies the parameter.
    keep: T,
    /// The distance by which decoupled L1 decay moves the parameter towards 0, after L2 decay.
    shrink: T,
    l2: T,
    l1: T,
    rule: R,
}

impl<T: Float, R: ElementStep<T, N>, const N: usize> ElementStep<T, N> for DecayStep<T, R> {
    #[inline(always)]
    fn step(&self, mut fields: [T; N], grad: T) -> [T; N] {
        let param = fields[0];
        let grad = grad + self.l2 * param + sign(param) * self.l1;
        let kept = self.keep * param;
        let towards = if kept > self.shrink {
            self.shrink
        } else if kept < -self.shrink {
            -self.shrink
        } else {
            kept
        };
        // Without L1 decay, nothing is subtracted from the parameter, so that a parameter of −0 keeps its sign.
        fields[0] = if self.shrink > T::ZERO { kept - towards } else { kept };
        self.rule.step(fields, grad)
    }
}

/// Returns the sign of x: 1, −1, or 0 if x is 0 or NaN.
#[inline(always)]
pub(in crate::ops) fn sign<T: Float>(x: T) -> T {
    if x > T::ZERO {
        T::ONE
    } else if x < T::ZERO {
        -T::ONE
    } else {
        T::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Shows;

    impl ElementStep<f64, 2> for Shows {
        #[inline(always)]
        fn step(&self, [param, _]: [f64; 2], grad: f64) -> [f64; 2] {
            [param, grad]
        }
    }

    #[test]
    fn decay_stands_in_the_gradient_or_before_the_step() {
        let after = |decoupled, param| {
            Decay { l1: 0.25, weight_decay: 0.5, decoupled }.before(0.5, Shows).step([param, 0.0], 1.0)
        };
        assert_eq!(after(false, -4.0), [-4.0, 1.0 - 2.0 - 0.25]);
        assert_eq!(after(false, 0.0), [0.0, 1.0]);
        assert_eq!(after(true, -4.0), [-3.0 + 0.125, 1.0]);
        assert_eq!(after(true, 4.0), [3.0 - 0.125, 1.0]);
        // L1 decay moves a parameter to 0 but not past 0.
        assert_eq!(after(true, 0.1), [0.0, 1.0]);
        assert!(after(true, f64::NAN)[0].is_nan());
    }

    #[test]
    fn without_decay_the_rule_sees_what_was_there() {
        let none = Decay { l1: 0.0, weight_decay: 0.0, decoupled: true };
        for param in [0.0, -0.0, 1.5, f64::MIN_POSITIVE] {
            let [seen, grad] = none.before(0.5, Shows).step([param, 0.0], 0.25);
            assert_eq!((seen.to_bits(), grad), (param.to_bits(), 0.25));
        }
    }
}
