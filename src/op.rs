//! The interface for authors of operators and update rules: the contract of an operator, the access to the inputs and outputs
//! of a call, and the check of operators.
//!
//! This module may change more from release to release than the rest of the crate, because new features of the compiler
//! may need new declarations from operators. Models do not need this module: models call operators as methods of
//! [`Builder`](crate::Builder) and [`Var`](crate::Var), and [`ops`](crate::ops) lists these methods.
//!
//! | to write | start at |
//! |---|---|
//! | an operator | the macro [`operator!`](crate::operator!), then the trait [`Op`] |
//! | its shape rule | [`InferShape`] |
//! | its computation and its gradient | [`Forward`], [`Backward`], [`View`], [`ViewMut`] |
//! | hints for the compiler | [`Facts`], [`Gradient`], [`Hints`] |
//! | an update rule | the macro [`update_rule!`](crate::update_rule!), then the trait [`ElementRule`] |
//! | a loop over numbers, compiled for each CPU path | [`Sweep`], [`sweep`] |
//! | its check cases, and the test that runs them | [`CheckCase`], [`testing`] |
//!
//! To use an operator of your own crate, add it to a registry with the catalogue's operators; then call it like an operator of
//! the catalogue:
//!
//! ```
//! use unpadded::op::{Forward, InferShape, Op};
//! use unpadded::{Builder, DType, Result, Var, operator, ops, with_float};
//!
//! operator! {
//!     /// out = 2 · x.
//!     ///
//!     /// # Errors
//!     /// If `x` holds no floats.
//!     struct Twice = "acme.twice" {}
//!     inputs { X = x: one }
//!     outputs { OUT = out: one }
//!     trait BuildTwice, ApplyTwice { fn twice(&self, x: Var) -> Var; }
//! }
//!
//! impl Op for Twice {
//!     fn infer_shape(&self, shapes: &mut InferShape<'_>) -> Result<()> {
//!         shapes.is_float(Self::X)?;
//!         shapes.set(Self::OUT, shapes.input(Self::X).clone());
//!         Ok(())
//!     }
//!
//!     fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
//!         with_float!(run.dtype(Self::X), T => {
//!             let (x, mut out) = (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?);
//!             out.iter_mut().flatten().zip(x.iter().flatten()).for_each(|(out, &x)| *out = x + x);
//!             Ok(())
//!         })
//!     }
//! }
//!
//! let mut registry = ops::catalogue();
//! registry.add::<Twice>()?;
//! let net = Builder::with_registry(registry);
//! let x = net.feed("x", DType::F32, &[3], 1);
//! assert_eq!(net.describe(x.twice()), "`acme.twice`: f32[rows0, 3] lod(0)");
//! net.finish()?;
//! # Ok::<(), unpadded::Error>(())
//! ```

#[cfg(any(feature = "testing", doc))]
pub mod testing;

// The declarations of operators, and the access to the inputs and outputs of a call.
pub use crate::kernels::sparse::CsrView;
pub use crate::kernels::{Arithmetic, Assign, Float, Sweep, View, ViewMut, int8_unit, philox, sweep};
pub use crate::operator::attributes::{Attribute, or_default};
pub use crate::operator::call::Direct;
pub use crate::operator::context::Scratch;
pub use crate::operator::sample::{numbers, sparse_numbers};
pub use crate::operator::{
    Arity, Attributes, Backward, CSR, CallInputs, CallMemory, CallSizes, CheckCase, Cost, CsrBuffer, DENSE,
    DENSE_OR_CSR, DENSE_OR_ROWS, Debt, Declaration, DeclaredOp, Extent, Facts, Forward, Gradient, Hints,
    InferShape, Kernel, Literal, LiteralRef, LodEffect, MatrixUnit, NewLevels, Op, Operand, Pass, Pieces,
    Prepare, ROWS, Reach, RowBuffer, RowValue, RunFacts, Sequences, Shape, Signature, Size, Slot, Spec,
    StorageBound, Total, Work,
};

#[cfg(feature = "internals")]
pub use crate::operator::hints::{Fusion, Merge};

// The declarations of update rules.
pub use crate::ops::update::decay::Decay;
pub use crate::ops::update::element::{ElementRule, RuleSettings};
pub use crate::ops::update::owed::Moment;
pub use crate::ops::update::rule::ElementStep;
pub use crate::ops::update::settings;

// Items that are public only for the code that the macros generate.
#[doc(hidden)]
pub use crate::{
    ops::update::element::parts as update_parts,
    program::construction::{operator::InputArgument, vars::unknown_of},
};
