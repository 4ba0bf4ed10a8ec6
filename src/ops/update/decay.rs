//! Weight decay for any update rule: L1 and L2, added to the gradient or decoupled from the gradient.

use super::rule::ElementStep;
use crate::kernels::Float;
use crate::operator::Debt;

/// The weight decay of an update operator, as its attributes. With p = param,
///
/// - in the gradient: the rule uses grad + `weight_decay` · p + `l1` · sign(p) in place of grad;
/// - `decoupled`: first p ← (1 − rate · `weight_decay`) · p, then p moves by rate · `l1` towards 0 but not past it, then the
///   rule runs. For L2 this is the decay of AdamW: Loshchilov and Hutter, "Decoupled weight decay regularization", 2019,
///   arXiv:1711.05101. For L1 it is the proximal step of Duchi and Singer, "Efficient online and batch learning using forward
///   backward splitting", JMLR 10, 2009, but before the rule, not after it.
#[derive(Debug, Clone, Copy)]
pub struct Decay {
    /// The attribute `l1`.
    pub l1: f64,
    /// The attribute `weight_decay`.
    pub weight_decay: f64,
    /// The attribute `decoupled`.
    pub decoupled: bool,
}

impl Decay {
    /// No decay: the value for a rule without these attributes.
    pub const NONE: Decay = Decay { l1: 0.0, weight_decay: 0.0, decoupled: true };

    /// Returns when a row without a gradient makes its move, with this decay and a rule that has the debt `rule` without decay.
    pub fn owes(self, rule: Debt) -> Debt {
        match (self.l1 > 0.0, self.weight_decay > 0.0) {
            (true, _) => Debt::AtOnce("L1 decay"),
            (_, true) if !self.decoupled => {
                Debt::AtOnce("weight decay, which is added to the gradient (decoupled it can wait),")
            }
            (_, true) if rule == Debt::Nothing => Debt::Later,
            _ => rule,
        }
    }

    /// Returns the factor by which decoupled decay multiplies a parameter in one update at this learning rate.
    pub fn kept(self, rate: f64) -> f64 {
        1.0 - rate * self.weight_decay
    }

    /// Returns a step that applies this decay at `rate`, then `rule`.
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

/// A step that applies [`Decay`], then a rule's step.
#[derive(Clone, Copy)]
pub struct DecayStep<T, R> {
    /// The factor by which decoupled L2 decay multiplies the parameter.
    keep: T,
    /// The distance by which decoupled L1 decay then moves the parameter towards 0.
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
        // Without L1 nothing is subtracted, so that a zero keeps its sign.
        fields[0] = if self.shrink > T::ZERO { kept - towards } else { kept };
        self.rule.step(fields, grad)
    }
}

/// Returns 1, −1, or 0 at 0.
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
        // L1 decay moves a parameter to 0 but not past it.
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
