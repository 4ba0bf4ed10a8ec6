//! An upper bound on the probability mass that underflows to zero.

/// An upper bound on the probability mass that underflowed, relative to the sum of the numbers that did not underflow. At each
/// step, the bound assumes that the lost mass would have grown by the largest possible factor; the remaining sum grows by its
/// actual factor. If nothing underflows, the bound is 0.
#[derive(Debug, Clone, Copy)]
pub(in crate::kernels) struct VanishedMass {
    /// The logarithm of the current bound (`now`), and the logarithm of the largest bound so far (`most`).
    now: f64,
    most: f64,
    /// The largest part of the sum that may have underflowed in one step.
    once: f64,
}

/// The threshold of underflow for f64: a smaller number may underflow in the next product.
pub(in crate::kernels) const SMALL: f64 = 1e-290;

/// The logarithm of the largest part of a sum that counts as negligible.
const UNSEEN: f64 = -32.0;

impl VanishedMass {
    /// Returns the bound 0: nothing has underflowed.
    pub(in crate::kernels) fn new() -> Self {
        Self { now: f64::NEG_INFINITY, most: f64::NEG_INFINITY, once: 0.0 }
    }

    /// Records one step: `growth` is ln of the largest possible growth of a number, and `grown` is ln of the actual growth
    /// of the sum.
    pub(in crate::kernels) fn step(&mut self, growth: f64, grown: f64) {
        self.now += growth - grown;
        self.most = self.most.max(self.now);
    }

    /// Records that at most the share `part` of the sum may have underflowed in this step.
    pub(in crate::kernels) fn some(&mut self, part: f64) {
        self.once = self.once.max(part);
        self.now = self.now.max(part.ln());
        self.most = self.most.max(self.now);
    }

    /// Returns the largest part of the sum that may have underflowed in one step.
    pub(in crate::kernels) fn once(self) -> f64 {
        self.once
    }

    /// Returns whether any number may have underflowed.
    pub(in crate::kernels) fn anything(self) -> bool {
        self.most > f64::NEG_INFINITY
    }

    /// Returns whether the underflow is negligible, even relative to only the share `part` of the sum.
    pub(in crate::kernels) fn is_unseen(self, part: f64) -> bool {
        !self.anything() || self.most - part.ln() < UNSEEN
    }
}
