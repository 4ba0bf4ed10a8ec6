//! Sequence models over variable-length text, without padding.
//!
//! A batch is the rows of all its sequences one after another, with nested offsets beside it: a [`Variable`] with a
//! [`Lod`]. A model is a [`Program`], plain data built by a [`Builder`] and run by an
//! [`Executor`](executor::Executor) on the parameters of a [`Scope`](executor::Scope), which a
//! [`Trainer`](train::Trainer) does for you. The [`tour`] goes from lines of text to a model that predicts, on one page; the [`guide`] takes
//! its time, and answers what is asked often.
//!
//! # The map, bottom up
//!
//! A module uses only those above it in this list; a test reads the sources and holds them to it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`Printable`] | text from outside, made fit for a terminal |
//! | [`error`] | the one error: what, where, expected, got |
//! | [`lod`] | nested offsets of variable-length sequences, checked when built |
//! | [`kernels`] | products, vector maths, gather and scatter, random numbers: the only `unsafe` |
//! | [`tensor`] | what a variable holds: dense, selected rows, csr, coo |
//! | [`wire`] | framing and checksums of files |
//! | [`operator`](mod@operator) | the contract of an operator, [`Op`](operator::Op), and what is known of a value before it is computed |
//! | [`program`] | programs as data: variables, operators, step blocks, differentiation |
//! | [`ops`] | the operators, a folder a family, and their catalogue |
//! | [`executor`] | from a program to slots and buffers; the step executor |
//! | [`testing`] | the check that every operator passes, a user's own too (the feature `testing`) |
//! | [`optimizer`] | front ends that append update operators |
//! | [`layers`] | operators with their parameters and how these start |
//! | [`data`] | files of text, vocabularies, batches |
//! | [`checkpoint`] | a training, or a model to predict with, in one file |
//! | [`formats`] | weights in files of other frameworks |
//! | [`metrics`] | accuracy and the like, over ragged batches |
//! | [`predict`] | the predictor, and drawing from what it says |
//! | [`parallel`] | the processes of a training, and how they exchange bytes |
//! | [`store`] | the key-value store: several trainers of one model |
//! | [`train`] | the training loop |
//! | [`recipes`] | whole tasks from a config: classify, tag, language model, translate |
//! | [`guide`] | no code: pages that teach, each example of which is a test |
//!
//! To read along the path of a training step: [`Builder::feed`], [`Builder::lstm`], [`program::construction::step`],
//! [`program::backward`], [`optimizer`], [`executor`], then any file of [`ops`]. `ARCHITECTURE.md` in the repository
//! goes through it stop by stop.

pub mod checkpoint;
pub mod data;
pub mod error;
pub mod executor;
pub mod formats;
pub mod guide;
pub mod kernels;
pub mod layers;
pub mod lod;
pub mod metrics;
pub mod operator;
pub mod ops;
pub mod optimizer;
pub mod parallel;
pub mod predict;
mod printable;
pub mod program;
pub mod recipes;
pub mod store;
pub mod tensor;
#[cfg(any(feature = "testing", doc))]
pub mod testing;
pub mod train;
pub mod wire;

pub use error::{Error, ErrorKind, Place, Result};
pub use lod::{Lod, SeqPos};
/// Arrays: what goes into a [`Variable`] and what comes out of one.
pub use ndarray;
pub use operator::{Mode, Registry};
pub use printable::Printable;
pub use program::{Builder, Fallback, Program, Var};
pub use tensor::{DType, Variable};

/// The tour: from lines of text to a model that predicts, on one page.
#[cfg_attr(any(doc, doctest), doc = include_str!("../TOUR.md"))]
pub mod tour {}

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
