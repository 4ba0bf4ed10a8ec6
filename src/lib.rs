//! Sequence models over variable-length text, without padding.
//!
//! A batch is the rows of all its sequences one after another, with nested offsets beside it: a [`Variable`] with a
//! [`Lod`]. A model is a [`Program`], plain data built by a [`Builder`] and run by an
//! [`Executor`](executor::Executor) on the parameters of a [`Scope`](executor::Scope), which a
//! [`Trainer`](train::Trainer) does for you. The [`guide`] begins with a
//! first model, and answers frequent questions.
//!
//! # The map
//!
//! [`prelude`] has the names that most programs use. The modules are stable: what may grow is marked `#[non_exhaustive]` and has
//! constructors or setters.
//!
//! | module | what it holds |
//! |---|---|
//! | [`data`] | files of text, vocabularies, batches |
//! | [`layers`] | operators with their parameters and how these start |
//! | [`ops`] | the operators that exist, and their options; each is a method of [`Builder`] and [`Var`] |
//! | [`optimizer`] | update rules, schedules, clipping |
//! | [`train`] | the training loop |
//! | [`metrics`] | accuracy and the like, over ragged batches |
//! | [`predict`] | prediction from a file, sessions, generation, beam search |
//! | [`checkpoint`] | a training, or a model to predict with, in one file |
//! | [`formats`] | weights in files of other frameworks |
//! | [`store`] | the key-value store: several trainers of one model |
//! | [`parallel`] | the processes of one training |
//! | [`recipes`] | whole tasks from a config: classify, tag, language model, translate |
//! | [`guide`] | no code: pages that teach, each example of which is a test |
//!
//! Below a training, each of these is used on its own as well:
//!
//! | module | what it holds |
//! |---|---|
//! | [`program`] | programs as data: variables, operators, step blocks, differentiation |
//! | [`executor`] | compiles a program and runs it; listing, profile |
//! | [`tensor`] | what a variable holds: dense, selected rows, csr, coo |
//! | [`op`] | for who writes operators and update rules; may change more between releases |
//!
//! `ARCHITECTURE.md` in the repository has the map of the sources, and follows a layer from its call to its update.

pub mod checkpoint;
pub mod data;
mod error;
pub mod executor;
pub mod formats;
pub mod guide;
#[cfg(feature = "internals")]
pub mod kernels;
#[cfg(not(feature = "internals"))]
#[allow(unreachable_pub)]
mod kernels;
pub mod layers;
mod lod;
pub mod metrics;
pub mod op;
mod operator;
pub mod ops;
pub mod optimizer;
pub mod parallel;
pub mod predict;
pub mod prelude;
mod printable;
pub mod program;
pub mod recipes;
pub mod store;
pub mod tensor;
pub mod train;
#[cfg(feature = "internals")]
pub mod wire;
#[cfg(not(feature = "internals"))]
#[allow(unreachable_pub)]
mod wire;

pub use error::{Error, ErrorKind, Place, Result};
pub use lod::{Lod, SeqPos};
/// Arrays: the input and the output of a [`Variable`].
pub use ndarray;
pub use operator::{Mode, Registry};
pub use printable::Printable;
pub use program::construction::builder::Builder;
pub use program::construction::var::Var;
pub use program::construction::warning::Fallback;
pub use program::description::program::Program;
pub use tensor::dtype::DType;
pub use tensor::variable::Variable;

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
