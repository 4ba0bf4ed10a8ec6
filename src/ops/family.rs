//! The macro `operators!`, which registers the operators of a family. The macro `family!`: with it, a generic wrapper type
//! `Wrapper<F>` is one operator for each type `F`. The macros `gradient_reads!` and `float_passes!` write methods that many
//! operators share.

use crate::operator::registry::OperatorEntry;

/// Operator types for the registry.
pub(in crate::ops) type OperatorList = &'static [fn() -> OperatorEntry];

/// Registers the operators of a family: the lists of files that declare similar operators by a macro, in brackets, then the
/// other operator types.
macro_rules! operators {
    ([$($list:path),* $(,)?] $($op:ty),* $(,)?) => {
        pub(super) const OPERATORS: &[$crate::ops::family::OperatorList] = &[$($list,)* entries![$($op),*]];
    };
    ($($op:ty),* $(,)?) => {
        operators! { [] $($op),* }
    };
}

/// Returns operator types as [`OperatorList`].
macro_rules! entries {
    ($($op:ty),* $(,)?) => {
        &[$($crate::operator::registry::OperatorEntry::of::<$op>),*]
    };
}

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

/// Implements `Op::gradient` for dense gradients: `backward` reads only the values in the given input slots.
macro_rules! gradient_reads {
    ($($slot:expr),*) => {
        fn gradient(&self, _: usize, _: &[Vec<$crate::operator::Spec>]) -> $crate::operator::Gradient {
            $crate::operator::Gradient::reads_nothing()$(.input($slot))*
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
