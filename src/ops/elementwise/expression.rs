//! The expressions `+ - * /` and unary minus on variables and numbers, which append the operators `add`, `sub`, `mul`, `div`,
//! `scale` and `reciprocal`.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::ops::prelude::*;
use crate::program::Builder;
use crate::program::construction::vars::unknown_of;

/// Implements an expression such as `+` for two variables, for a variable and a number, and for a number and a
/// variable. A number in an expression is `f64` or `i32`: if `f32` were accepted too, the type of `1.0` in
/// `(1.0 - x).tanh()` would be ambiguous.
macro_rules! operators {
    ($($operator:ident, $name:ident: $text:literal, |$x:ident, $number:ident| $right:expr, $left:expr;)*) => {$(
        #[doc = $text]
        impl $operator for Var {
            type Output = Var;

            #[track_caller]
            fn $name(self, other: Var) -> Var {
                match Builder::of(self) {
                    Some(net) => net.$name(self, other),
                    None => unknown_of(self),
                }
            }
        }

        operators!($operator, $name: f64, |$x, $number| $right, $left);
        operators!($operator, $name: i32, |$x, $number| $right, $left);
    )*};
    ($operator:ident, $name:ident: $type:ty, |$x:ident, $number:ident| $right:expr, $left:expr) => {
        impl $operator<$type> for Var {
            type Output = Var;

            #[track_caller]
            fn $name(self, number: $type) -> Var {
                let ($x, $number) = (self, f64::from(number));
                $right
            }
        }

        impl $operator<Var> for $type {
            type Output = Var;

            #[track_caller]
            fn $name(self, x: Var) -> Var {
                let ($x, $number) = (x, f64::from(self));
                $left
            }
        }
    };
}

operators! {
    Add, add: "Appends [`Builder::add`]; with a number, [`Builder::scale`].", |x, c| x.scale(1.0, c), x.scale(1.0, c);
    Sub, sub: "Appends [`Builder::sub`]; with a number, [`Builder::scale`].", |x, c| x.scale(1.0, -c), x.scale(-1.0, c);
    Mul, mul: "Appends [`Builder::mul`]; with a number, [`Builder::scale`].", |x, c| x.scale(c, 0.0), x.scale(c, 0.0);
    Div, div: "Appends [`Builder::div`]; with a number as the divisor, [`Builder::scale`] by the reciprocal of the number.",
        |x, c| x.scale(1.0 / c, 0.0), x.reciprocal().scale(c, 0.0);
}

/// Negates a variable: the same as [`Builder::scale`] by −1.
impl Neg for Var {
    type Output = Var;

    #[track_caller]
    fn neg(self) -> Var {
        self.scale(-1.0, 0.0)
    }
}
