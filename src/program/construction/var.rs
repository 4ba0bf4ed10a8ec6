//! A variable of the program that is being built.

use crate::operator::extent::VarId;

/// A variable of the program that is being built: a small copyable number. Formulas are written as in a paper,
/// `(x.linear(16) + h.linear(16)).tanh()`: each operator and layer with one main input is a method, and `+ - * /` take a
/// variable or a number (`f64` or `i32`) on either side. A method appends to the innermost open step block; a method of a
/// [`Builder`](crate::Builder) appends to that builder's block.
///
/// A call that does not fit returns an *unknown* variable. Every result computed from an unknown variable is unknown too,
/// without another error: [`Builder::finish`](crate::Builder::finish) returns only the errors that made variables unknown
/// first.
///
/// A builder stays on one thread. A call on another thread is an error, which the builder records. A call with a variable whose
/// builder is gone is an error that the calling thread keeps for its next [`Builder::check`](crate::Builder::check),
/// [`Builder::finish`](crate::Builder::finish) or [`Trainer::new`](crate::train::Trainer::new).
///
/// ```
/// use unpadded::{Builder, DType};
/// let net = Builder::new();
/// let x = net.feed("x", DType::F32, &[8], 1);
/// let y = (1.0 - x.linear(4)).tanh();
/// assert_eq!(format!("{y:?}"), "`tanh`: f32[rows0, 4] lod(0)");
/// assert_eq!(format!("{:?}", x + y), "unknown"); // 8 columns and 4
/// let error = net.finish().unwrap_err().to_string();
/// assert!(error.starts_with("add #3: input `y`: expected rows of 8 numbers, as `x` has, or of one"), "{error}");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Var {
    pub(super) builder: u64,
    pub(super) id: VarId,
}

/// The number of unknown variables; no variable of a program has it.
const UNKNOWN: VarId = VarId(u32::MAX);

/// The builder number of variables without a builder; no builder has it.
const NO_BUILDER: u64 = u64::MAX;

impl Var {
    /// An unknown variable of a builder.
    pub(super) fn unknown(builder: u64) -> Self {
        Self { builder, id: UNKNOWN }
    }

    /// A variable of a loaded program: it has a number, but no builder.
    pub(crate) fn of_program(id: VarId) -> Self {
        Self { builder: NO_BUILDER, id }
    }

    pub(super) fn is_unknown(self) -> bool {
        self.id == UNKNOWN
    }

    /// The variable's number in the program. The number of an unknown variable belongs to no variable of the program.
    pub fn id(self) -> VarId {
        self.id
    }
}

#[cfg(test)]
impl Var {
    /// The last error of the variable's builder: the error that made this variable unknown, right after the call.
    pub(crate) fn refused(self) -> crate::error::Error {
        assert!(self.is_unknown(), "it was built: {self:?}");
        crate::program::Builder::of(self)
            .and_then(|net| net.check().err()?.all().last().cloned())
            .expect("a refusal")
    }
}

impl From<Var> for VarId {
    fn from(var: Var) -> Self {
        var.id
    }
}
