//! Sequence models over variable-length text, without padding.
//!
//! A batch is a [`Variable`]. It has the rows of all sequences, one after another, and a [`Lod`]: the nested offsets at
//! which the sequences begin. A model is a [`Program`]: plain data that a [`Builder`] builds. An
//! [`Executor`](executor::Executor) runs the program on the parameters in a [`Scope`](executor::Scope); a
//! [`Trainer`](train::Trainer) makes its own executor and scope. The crate `unpadded-text` reads files of
//! text, and the crate `unpadded-recipes` has whole tasks from a config and a guide with a first model and answers to frequent
//! questions.
//!
//! # The map
//!
//! The module [`prelude`] has the names that most programs use. The modules are stable: a type that may get more fields or
//! variants is `#[non_exhaustive]`, and has constructors or setters.
//!
//! | module | what it holds |
//! |---|---|
//! | [`data`] | tokenizers, vocabularies, samples, batches |
//! | [`layers`] | operators with their parameters and the parameters' initializers |
//! | [`ops`] | all operators and their options; each operator is a method of [`Builder`] and [`Var`] |
//! | [`optimizer`] | update rules, schedules, clipping |
//! | [`train`] | the training loop |
//! | [`metrics`] | accuracy and the like, over ragged batches |
//! | [`predict`] | prediction from a file, sessions, generation, beam search |
//! | [`checkpoint`] | files that hold a training, or a model for prediction |
//! | [`formats`] | weights in files of other frameworks |
//! | [`store`] | the key-value store: several trainers of one model |
//! | [`parallel`] | data-parallel training by several processes |
//! | [`guide`] | pages that teach; each example on them is a test |
//!
//! A [`Trainer`](train::Trainer) is built on the following modules, which you can also use without a trainer:
//!
//! | module | what it holds |
//! |---|---|
//! | [`program`] | programs as data: variables, operators, step blocks, differentiation |
//! | [`executor`] | compiles a program and runs it; listing, profile |
//! | [`tensor`] | the value of a variable: dense, selected rows, csr, coo |
//! | [`op`] | for authors of operators and update rules; less stable than the other modules |
//! | [`memory`], [`reserve`] | for crates that read data: the memory of the machine, reservations that can fail |
//!
//! The page `ARCHITECTURE.md` in the repository lists the source files, and follows a layer from the call that builds it to the
//! update of its parameters.

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
pub mod memory;
pub mod metrics;
mod on_data;
pub mod op;
mod operator;
pub mod ops;
pub mod optimizer;
pub mod parallel;
pub mod predict;
pub mod prelude;
mod printable;
pub mod program;
pub mod reserve;
pub mod store;
pub mod tensor;
pub mod train;
#[cfg(feature = "internals")]
pub mod wire;
#[cfg(not(feature = "internals"))]
#[allow(unreachable_pub)]
mod wire;

pub use error::{AtCaller, Error, ErrorKind, Place, Result};
pub use lod::{Lod, SeqPos};
/// The crate `ndarray`: a [`Variable`] is made from arrays of this crate, and can be converted to them.
pub use ndarray;
pub use operator::{Mode, Precision, Registry};
pub use printable::Printable;
pub use program::construction::builder::Builder;
pub use program::construction::var::Var;
pub use program::construction::warning::Fallback;
pub use program::description::program::Program;
pub use tensor::dtype::DType;
pub use tensor::variable::Variable;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
