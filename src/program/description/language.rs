//! The operators of the language: what runs a step block, and those that the language appends by itself. Nothing else in
//! `program` knows the kind of an operator.
//!
//! A program with step blocks, gradients or carried states can be built with any registry that has an operator of these
//! kinds. The catalogue has them.

/// The kind of the operator that runs a step block. It is no registry's: whoever runs programs knows it.
pub const RECURRENT: &str = "recurrent";

/// An operator that the language appends by itself, from the registry that the program is built with. It has one output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LanguageOp {
    /// Its kind.
    pub kind: &'static str,
    /// Its input slots, each for one variable.
    pub inputs: &'static [&'static str],
    /// Its attributes, as they are given to it.
    pub attributes: &'static [&'static str],
}

/// A copy of `x`, so that every output of a step block, and what each memory holds next, is written by an operator of its
/// own.
pub(crate) const COPY: LanguageOp = LanguageOp { kind: "assign", inputs: &["x"], attributes: &[] };

/// The number `value` in the shape of `x`: the gradient of a loss, which is 1.
pub(crate) const FILL: LanguageOp = LanguageOp { kind: "fill_like", inputs: &["x"], attributes: &["value"] };

/// A copy of `x`, to be the state that the feed `before` has at the next batch.
pub(crate) const CARRY: LanguageOp = LanguageOp { kind: "carry", inputs: &["x", "before"], attributes: &[] };

/// The dense meaning of `x`, for an operator that has no kernel for `x` as it is stored; the attribute says which one, and its slot.
pub(crate) const TO_DENSE: LanguageOp =
    LanguageOp { kind: "to_dense", inputs: &["x"], attributes: &["fallback"] };

/// All that the language appends by itself.
#[cfg(test)]
pub(crate) const APPENDED: [LanguageOp; 4] = [COPY, FILL, CARRY, TO_DENSE];
