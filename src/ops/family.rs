//! The macro `family!`, which makes operators of wrapped types.

/// Makes a wrapper type a family of operators: one operator for each wrapped type, which has its own declaration.
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
