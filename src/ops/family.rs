//! The macro `family!`: with it, a generic wrapper type `Wrapper<F>` is one operator for each type `F`.

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
