//! The type `Var`, a variable of the program that is being built.

use crate::operator::extent::VarId;

/// A variable of the program that is being built. A `Var` holds the builder's number and the variable's number, and is cheap to
/// copy. Formulas are written as in a paper: `(x.linear(16) + h.linear(16)).tanh()`. Each operator or layer with one main input
/// is a method of `Var`, and each of `+ - * /` takes a variable or a number (`f64` or `i32`) on either side. A method of a
/// variable appends to the innermost open step block; a method of a [`Builder`](crate::Builder) appends to that builder's
/// block.
///
/// A call with arguments that do not fit returns an *unknown* variable. A result that is computed from an unknown variable is
/// unknown too, without another error. Therefore [`Builder::finish`](crate::Builder::finish) returns only the errors of the calls
/// that were wrong themselves.
///
/// A builder belongs to the thread that made it. Using a variable on another thread is an error, which the variable's builder
/// records. Using a variable whose builder no longer exists is an error, which the calling thread keeps. The thread's next
/// [`Builder::check`](crate::Builder::check), [`Builder::finish`](crate::Builder::finish) or
/// [`Trainer::new`](crate::train::Trainer::new) returns the error.
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

/// The number that marks a variable as unknown; no variable of a program has this number.
const UNKNOWN: VarId = VarId(u32::MAX);

/// The builder number of a variable that has no builder; no builder has this number.
const NO_BUILDER: u64 = u64::MAX;

impl Var {
    pub(super) fn unknown(builder: u64) -> Self {
        Self { builder, id: UNKNOWN }
    }

    /// Returns a variable of a loaded program; the variable has no builder.
    pub(crate) fn of_program(id: VarId) -> Self {
        Self { builder: NO_BUILDER, id }
    }

    pub(super) fn is_unknown(self) -> bool {
        self.id == UNKNOWN
    }

    /// Returns the variable's number in the program. An unknown variable returns a number that no variable of the program has.
    pub fn id(self) -> VarId {
        self.id
    }
}

#[cfg(test)]
impl Var {
    /// Returns the last error that the variable's builder recorded. Right after a refused call, this is the error of that call.
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
