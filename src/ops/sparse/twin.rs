//! The operators on sparse variables that replace a dense operator: one wrapper, [`Twin`], around the type of the dense
//! operator. The type has a sparse kernel if it implements [`OnSparse`].

use crate::ops::prelude::*;

/// A dense operator, or a function that a dense operator applies, with a kernel for sparse variables. The first input slot is
/// `x`.
pub(in crate::ops) trait OnSparse: DeclaredOp + Sized {
    /// The declaration of the operator on sparse variables.
    const DECLARATION: &'static Declaration;

    /// Checks that the sparse kernel can compute the dense operator with these attributes.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    fn hints(&self) -> Hints {
        Hints::default()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()>;

    fn forward(&self, run: &mut Forward<'_>) -> Result<()>;

    /// By default, the backward pass reads only `x`: the gradient has numbers at the entries of `x`.
    fn gradient(&self, _wrt: usize, _inputs: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().input(0)
    }

    /// By default, the output stores at most as much as `x`.
    fn stored(&self) -> StorageBound {
        StorageBound::Together(&[0])
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()>;

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>>;
}

/// The operator on sparse variables that replaces a dense operator.
pub(in crate::ops) struct Twin<F>(F);

impl<F: OnSparse> DeclaredOp for Twin<F> {
    fn declaration() -> &'static Declaration {
        F::DECLARATION
    }

    fn parse(attributes: &Attributes) -> Result<Self> {
        let dense = F::parse(attributes)?;
        dense.check()?;
        Ok(Self(dense))
    }

    fn declared(&self) -> &'static Declaration {
        F::DECLARATION
    }
}

impl<F: OnSparse> Op for Twin<F> {
    fn facts(&self) -> Facts {
        self.0.facts()
    }

    fn hints(&self) -> Hints {
        self.0.hints()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(0)?;
        self.0.infer_shape(s)
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        self.0.forward(run)
    }

    fn gradient(&self, wrt: usize, inputs: &[Vec<Spec>]) -> Gradient {
        self.0.gradient(wrt, inputs)
    }

    fn stored(&self, _: usize) -> StorageBound {
        self.0.stored()
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        self.0.backward(run)
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        F::samples()
    }
}

/// Implements [`OnSparse`] for dense operators, and lists them in the constant `$list`. The macro `$methods` writes the methods of
/// the trait. The first text describes the operands and the result, after "`kind` of"; the second text is the second operand of
/// the example. A line has the type, the kind of the sparse operator, the kind of the dense operator, the attributes of the
/// example, the combinations of storages, and words for `$methods`.
macro_rules! twins {
    (
        $list:ident: $methods:ident, inputs $inputs:tt, $about:literal, $operand:literal;
        $($type:ty = $kind:literal of $of:literal ($($attribute:ident = $value:literal),*) $kernels:expr, $words:tt;)*
    ) => {
        pub(super) const $list: $crate::ops::family::OperatorList = entries![$($crate::ops::sparse::twin::Twin<$type>),*];

        $(
            impl $crate::ops::sparse::twin::OnSparse for $type {
                #[doc = twins!(text $kind, $of, $about, $operand, $(concat!(".with(\"", stringify!($attribute), "\", ", stringify!($value), ")")),*)]
                const DECLARATION: &'static Declaration = &Declaration {
                    kind: $kind,
                    text: twins!(text $kind, $of, $about, $operand, $(concat!(".with(\"", stringify!($attribute), "\", ", stringify!($value), ")")),*),
                    attributes: &[$(stringify!($attribute)),*],
                    signature: Signature {
                        inputs: twins!(inputs $inputs),
                        outputs: &[Slot::one("out")],
                        kernels: $kernels,
                    },
                    stands_for: &[$of],
                };

                $methods!(($($attribute = $value),*) $words);
            }
        )*
    };
    (inputs [$($input:literal),*]) => { &[$(Slot::one($input)),*] };
    (text $kind:literal, $of:literal, $about:literal, $operand:literal, $($with:expr),*) => {
        concat!(
            "[`", $of, "`](crate::Builder::", $of, ") of ", $about, " A call of `", $of, "` with such variables appends this \
            operator instead.\n\n\
            ```\n\
            use ndarray::array;\n\
            use unpadded::op::{Attributes, Operand};\n\
            use unpadded::tensor::{Csr, Storage};\n\
            use unpadded::{Variable, ops};\n\
            let result = |kind: &str, x: Storage| {\n\
                let op = ops::catalogue().parse(kind, &Attributes::new()", $($with,)* ")?;\n\
                let out = op.call(&[Operand::constant(\"x\", Variable::new(x, None)?)", $operand, "])?;\n\
                Ok::<_, unpadded::Error>(out[0].storage().to_dense()?.into_owned())\n\
            };\n\
            let x = Csr::new([2, 3], vec![0, 1, 2], vec![2, 0], array![4.0, 2.5])?;\n\
            let dense = x.to_dense()?;\n\
            assert_eq!(result(\"", $kind, "\", x.into())?, result(\"", $of, "\", dense.into())?);\n\
            # Ok::<(), unpadded::Error>(())\n\
            ```\n\n\
            # Errors\n\
            It is an error if `x` holds no floats, if no variable is sparse, or if the dense operator would refuse the \
            variables or the attributes.\n"
        )
    };
}
pub(super) use twins;
