//! Wrappers that are operators by what they wrap.

/// Makes a wrapper a family of operators: each operator is what it wraps, which is declared.
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
