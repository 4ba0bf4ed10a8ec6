//! What is lost where numbers get so small that they become zero.

/// A bound of what vanished, beside the sum of all that is left. Numbers that vanish grow from step to step as all do, and at
/// most by the most that a step can grow by; what is left grows by what it does. So the bound is exact where nothing vanishes,
/// and safe where something does.
#[derive(Debug, Clone, Copy)]
pub(in crate::kernels) struct VanishedMass {
    /// ln of the bound now, and of the largest that it was.
    now: f64,
    most: f64,
    /// The most that vanished at a step.
    once: f64,
}

/// f64 numbers from here down may vanish in the next product.
pub(in crate::kernels) const SMALL: f64 = 1e-290;

/// ln of a part of a sum that nobody sees.
const UNSEEN: f64 = -32.0;

impl VanishedMass {
    /// Nothing.
    pub(in crate::kernels) fn new() -> Self {
        Self { now: f64::NEG_INFINITY, most: f64::NEG_INFINITY, once: 0.0 }
    }

    /// A step, by ln of the most that any number can grow by and of what the sum grew by.
    pub(in crate::kernels) fn step(&mut self, growth: f64, grown: f64) {
        self.now += growth - grown;
        self.most = self.most.max(self.now);
    }

    /// Numbers of at most so much of the sum may have vanished.
    pub(in crate::kernels) fn some(&mut self, part: f64) {
        self.once = self.once.max(part);
        self.now = self.now.max(part.ln());
        self.most = self.most.max(self.now);
    }

    /// The most that vanished at a step, as a part of the sum then.
    pub(in crate::kernels) fn once(self) -> f64 {
        self.once
    }

    /// Whether anything vanished.
    pub(in crate::kernels) fn anything(self) -> bool {
        self.most > f64::NEG_INFINITY
    }

    /// Whether it would not be seen, also where what is left is `part` of the sum.
    pub(in crate::kernels) fn is_unseen(self, part: f64) -> bool {
        !self.anything() || self.most - part.ln() < UNSEEN
    }
}
