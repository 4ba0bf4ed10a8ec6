//! The macro `family!`: with it, a generic wrapper type `Wrapper<F>` is one operator for each type `F`. The macro
//! `float_passes!` for operators in f32 and f64.

/// Implements `DeclaredOp` for a generic wrapper type: `Wrapper<F>` is one operator, with the declaration of `F`.
macro_rules! family {
    ($wrapper:ident) => {
        impl<F: $crate::operator::DeclaredOp> $crate::operator::DeclaredOp for $wrapper<F> {
            fn declaration() -> &'static $crate::operator::Declaration {
                F::declaration()
            }

            fn parse(attributes: &$crate::operator::Attributes) -> $crate::error::Result<Self> {
                F::parse(attributes).map(Self)
            }

            fn declared(&self) -> &'static $crate::operator::Declaration {
                F::declaration()
            }
        }
    };
}

/// Implements `Op::forward` and `Op::backward` for the dtype of an input: both run with `$T` as the name of f32 or f64.
macro_rules! float_passes {
    ($input:expr, $T:ident: ($self:ident, $run:ident) => $forward:expr, $backward:expr) => {
        fn forward(&$self, $run: &mut $crate::operator::context::Forward<'_>) -> $crate::Result<()> {
            $crate::with_float!($run.dtype($input), $T => $forward)
        }

        fn backward(&$self, $run: &mut $crate::operator::context::Backward<'_>) -> $crate::Result<()> {
            $crate::with_float!($run.dtype($input), $T => $backward)
        }
    };
}
