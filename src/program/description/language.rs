//! The operators whose kinds the module `program` knows by name. One operator runs a step block. The builder and differentiation
//! append the other operators, such as `to_dense`, without a call by the user.
//!
//! A registry needs operators of these kinds to build programs with step blocks, gradients or carried states; the crate's
//! catalogue has these operators.

/// The kind of the operator that runs a step block. The operator `recurrent` is in no registry: compilers and interpreters
/// implement it.
pub const RECURRENT: &str = "recurrent";

/// An operator that the builder or differentiation appends without a call by the user. The operator comes from the builder's
/// registry and has one output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LanguageOp {
    /// The kind of the operator.
    pub kind: &'static str,
    /// The names of the operator's input slots, with one variable per slot.
    pub inputs: &'static [&'static str],
    /// The names of the attributes that are set when the operator is appended.
    pub attributes: &'static [&'static str],
}

/// Copies `x`. The builder appends a copy so that each output of a step block, and each memory's next value, is the output of its
/// own operator.
pub(crate) const COPY: LanguageOp = LanguageOp { kind: "assign", inputs: &["x"], attributes: &[] };

/// Makes a variable with the shape of `x` in which every number is `value`. Differentiation makes the gradient of the loss,
/// which is 1, by this operator.
pub(crate) const FILL: LanguageOp = LanguageOp { kind: "fill_like", inputs: &["x"], attributes: &["value"] };

/// Copies `x`: the copy is the value of the feed `before` in the next batch.
pub(crate) const CARRY: LanguageOp = LanguageOp { kind: "carry", inputs: &["x", "before"], attributes: &[] };

/// Makes `x` dense for an operator without a kernel for the storage of `x`. The attribute `fallback` has the kind of the operator
/// without a kernel, and the slot that `x` is bound to.
pub(crate) const TO_DENSE: LanguageOp =
    LanguageOp { kind: "to_dense", inputs: &["x"], attributes: &["fallback"] };

/// All operators that are appended without a call by the user.
#[cfg(test)]
pub(crate) const APPENDED: [LanguageOp; 4] = [COPY, FILL, CARRY, TO_DENSE];
