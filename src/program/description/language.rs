//! The operators whose kinds this module `program` knows: the operator that runs a step block, and the operators that building
//! and differentiating append without a call of the user's.
//!
//! A registry must have operators of these kinds, as the catalogue has, to build programs with step blocks, gradients or
//! carried states.

/// The kind of the operator that runs a step block. It is in no registry: compilers and interpreters implement it.
pub const RECURRENT: &str = "recurrent";

/// An operator that building or differentiating appends without a call of the user's. It comes from the builder's registry and
/// has one output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LanguageOp {
    /// The kind.
    pub kind: &'static str,
    /// The input slots, each for one variable.
    pub inputs: &'static [&'static str],
    /// The attributes that are set when the operator is appended.
    pub attributes: &'static [&'static str],
}

/// A copy of `x`, so that each output of a step block, and each memory's next value, is written by an operator of its own.
pub(crate) const COPY: LanguageOp = LanguageOp { kind: "assign", inputs: &["x"], attributes: &[] };

/// The number `value` in the shape of `x`, for the gradient of a loss, which is 1.
pub(crate) const FILL: LanguageOp = LanguageOp { kind: "fill_like", inputs: &["x"], attributes: &["value"] };

/// A copy of `x`: the value that the feed `before` has at the next batch.
pub(crate) const CARRY: LanguageOp = LanguageOp { kind: "carry", inputs: &["x", "before"], attributes: &[] };

/// The dense form of `x`, for an operator without a kernel for the storage of `x`; the attribute names this operator and its
/// slot.
pub(crate) const TO_DENSE: LanguageOp =
    LanguageOp { kind: "to_dense", inputs: &["x"], attributes: &["fallback"] };

/// All operators that are appended without a call of the user's.
#[cfg(test)]
pub(crate) const APPENDED: [LanguageOp; 4] = [COPY, FILL, CARRY, TO_DENSE];
