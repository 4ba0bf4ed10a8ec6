//! The type `Term`: the second operand of a comparison.

use super::var::Var;

/// The second operand of a comparison: a variable, or a number that becomes an attribute of the operator. Methods take `impl
/// Into<Term>`, so that a caller passes a variable or a number directly: `net.greater(x, y)`, `net.greater(x, 0.5)`.
///
/// A `Term` cannot be made from an f32: attributes are f64, and an f32 such as 0.1 is not equal to the f64 0.1.
///
/// ```
/// use unpadded::program::Term;
/// assert_eq!(Term::from(2), Term::from(2.0));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Term {
    /// A variable of the program, as the second operand.
    Var(Var),
    /// A number, as the second operand; it becomes an attribute of the operator.
    Number(f64),
}

impl Term {
    /// Returns the variable; `None` if the second operand is a number.
    pub(crate) fn var(self) -> Option<Var> {
        match self {
            Term::Var(var) => Some(var),
            Term::Number(_) => None,
        }
    }

    /// Returns the number; `None` if the second operand is a variable.
    pub(crate) fn number(self) -> Option<f64> {
        match self {
            Term::Var(_) => None,
            Term::Number(number) => Some(number),
        }
    }
}

impl From<Var> for Term {
    fn from(var: Var) -> Self {
        Term::Var(var)
    }
}

impl From<f64> for Term {
    fn from(number: f64) -> Self {
        Term::Number(number)
    }
}

impl From<i32> for Term {
    fn from(number: i32) -> Self {
        Term::Number(number.into())
    }
}
