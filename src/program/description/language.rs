//! The operators of the language: the operator that runs a step block, and the operators that the language appends by
//! itself. `program` knows the kind of no other operator.
//!
//! A program with step blocks, gradients or carried states can be built with any registry that has an operator of these
//! kinds. The catalogue has them.

/// The kind of the operator that runs a step block. It is in no registry: compilers and interpreters implement it.
pub const RECURRENT: &str = "recurrent";

/// An operator that the language appends by itself, from the registry of the program's builder. It has one output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LanguageOp {
    /// The kind.
    pub kind: &'static str,
    /// The input slots, each for one variable.
    pub inputs: &'static [&'static str],
    /// The attributes that the language gives.
    pub attributes: &'static [&'static str],
}

/// A copy of `x`, so that an operator of its own writes every output of a step block, and the next value of each memory.
pub(crate) const COPY: LanguageOp = LanguageOp { kind: "assign", inputs: &["x"], attributes: &[] };

/// The number `value` in the shape of `x`: the gradient of a loss, which is 1.
pub(crate) const FILL: LanguageOp = LanguageOp { kind: "fill_like", inputs: &["x"], attributes: &["value"] };

/// A copy of `x`, the state that the feed `before` has at the next batch.
pub(crate) const CARRY: LanguageOp = LanguageOp { kind: "carry", inputs: &["x", "before"], attributes: &[] };

/// The dense meaning of `x`, for an operator without a kernel for the storage of `x`; the attribute names the operator and
/// its slot.
pub(crate) const TO_DENSE: LanguageOp =
    LanguageOp { kind: "to_dense", inputs: &["x"], attributes: &["fallback"] };

/// All operators that the language appends by itself.
#[cfg(test)]
pub(crate) const APPENDED: [LanguageOp; 4] = [COPY, FILL, CARRY, TO_DENSE];
