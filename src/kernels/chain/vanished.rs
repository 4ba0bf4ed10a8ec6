//! A bound on the probability mass that underflows to zero.

/// A bound on the probability mass that underflowed, relative to the sum of the remaining numbers. At each step, the lost mass
/// would have grown by at most the largest growth of any number; the remaining sum grows by its actual growth. So the bound is
/// 0 if nothing underflows, and an upper bound otherwise.
#[derive(Debug, Clone, Copy)]
pub(in crate::kernels) struct VanishedMass {
    /// The logarithms of the current bound, and of the largest bound so far.
    now: f64,
    most: f64,
    /// The largest part of the sum that underflowed at one step.
    once: f64,
}

/// A number below this may underflow in the next product (f64).
pub(in crate::kernels) const SMALL: f64 = 1e-290;

/// The logarithm of the largest part of a sum that is negligible.
const UNSEEN: f64 = -32.0;

impl VanishedMass {
    /// Returns a bound of zero.
    pub(in crate::kernels) fn new() -> Self {
        Self { now: f64::NEG_INFINITY, most: f64::NEG_INFINITY, once: 0.0 }
    }

    /// Records a step: `growth` is ln of the largest growth of any number, `grown` is ln of the growth of the sum.
    pub(in crate::kernels) fn step(&mut self, growth: f64, grown: f64) {
        self.now += growth - grown;
        self.most = self.most.max(self.now);
    }

    /// Records that numbers of at most `part` of the sum may have underflowed.
    pub(in crate::kernels) fn some(&mut self, part: f64) {
        self.once = self.once.max(part);
        self.now = self.now.max(part.ln());
        self.most = self.most.max(self.now);
    }

    /// Returns the largest part of the sum that underflowed at one step.
    pub(in crate::kernels) fn once(self) -> f64 {
        self.once
    }

    /// Returns whether anything underflowed.
    pub(in crate::kernels) fn anything(self) -> bool {
        self.most > f64::NEG_INFINITY
    }

    /// Returns whether the underflow is negligible, even relative to `part` times the sum.
    pub(in crate::kernels) fn is_unseen(self, part: f64) -> bool {
        !self.anything() || self.most - part.ln() < UNSEEN
    }
}
