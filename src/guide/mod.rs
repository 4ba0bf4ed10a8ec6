//! The guide: pages to read in order, and answers to look up. Every block of Rust in them is compiled by the tests, and run where it
//! needs no files.
//!
//! | page | what it is for |
//! |---|---|
//! | [`first_model`] | from labelled texts to a model that answers, line by line |
//! | [`lod`] | how sequences lie in memory, with drawings, and what operators do to them |
//! | [`cells`] | a recurrent cell of one's own: memories, static inputs, what may stand in a step |
//! | [`sparse`] | embeddings with sparse gradients, bags of words, update rules, the key-value store |
//! | [`structured`] | tags that hang together (CRF), labels without places (CTC), attention in the step |
//! | [`generation`] | writing: greedy, sampling, beam search, sessions, many callers at once |
//! | [`without_rust`] | the command: file formats, tasks, what to tune first, the report, the way to a service |
//! | [`settings`] | models without Rust: what the command learns, every setting |
//! | [`experiments`] | seeds, folds, a search of settings, ensembles |
//! | [`fine_tuning`] | starting from a trained model or a language model, gradual unfreezing |
//! | [`several_machines`] | training over `mpirun` or Slurm: starting, parts and bits, failures |
//! | [`why`] | decisions that may surprise, with their reasons |
//! | [`how_do_i`] | short answers to common tasks, to be copied |
//! | [`coming_from_pytorch`], [`coming_from_keras`], [`coming_from_paddle`] | the same model in both, and what is called what |
//!
//! Only documentation and its tests read the pages, so that an edit of one compiles nothing anew.

/// From labelled texts to a model that answers, line by line.
#[cfg_attr(any(doc, doctest), doc = include_str!("first_model.md"))]
pub mod first_model {}

/// How sequences lie in memory, with drawings, and what operators do to them.
#[cfg_attr(any(doc, doctest), doc = include_str!("lod.md"))]
pub mod lod {}

/// A recurrent cell of one's own: memories, static inputs, what may stand in a step.
#[cfg_attr(any(doc, doctest), doc = include_str!("cells.md"))]
pub mod cells {}

/// Embeddings with sparse gradients, bags of words, update rules, the key-value store.
#[cfg_attr(any(doc, doctest), doc = include_str!("sparse.md"))]
pub mod sparse {}

/// Tags that hang together (CRF), labels without places (CTC), attention in the step.
#[cfg_attr(any(doc, doctest), doc = include_str!("structured.md"))]
pub mod structured {}

/// Writing: greedy, sampling, beam search, sessions, many callers at once.
#[cfg_attr(any(doc, doctest), doc = include_str!("generation.md"))]
pub mod generation {}

/// The command: file formats, tasks, what to tune first, rare classes, the report, the way to a service.
#[cfg_attr(any(doc, doctest), doc = include_str!("without_rust.md"))]
pub mod without_rust {}

/// Models without Rust: what the command learns, every setting.
#[cfg_attr(any(doc, doctest), doc = include_str!("settings.md"))]
pub mod settings {}

/// Seeds, folds, a search of settings, ensembles.
#[cfg_attr(any(doc, doctest), doc = include_str!("experiments.md"))]
pub mod experiments {}

/// Starting from a trained model: new words and labels, a language model below, gradual unfreezing.
#[cfg_attr(any(doc, doctest), doc = include_str!("fine_tuning.md"))]
pub mod fine_tuning {}

/// Training over `mpirun` or Slurm: starting, parts and bits, failures.
#[cfg_attr(any(doc, doctest), doc = include_str!("several_machines.md"))]
pub mod several_machines {}

/// Decisions that may surprise, with their reasons.
#[cfg_attr(any(doc, doctest), doc = include_str!("why.md"))]
pub mod why {}

/// Short answers to common tasks, to be copied.
#[cfg_attr(any(doc, doctest), doc = include_str!("how_do_i.md"))]
pub mod how_do_i {}

/// The same model in PyTorch and in this crate, and what is called what.
#[cfg_attr(any(doc, doctest), doc = include_str!("coming_from_pytorch.md"))]
pub mod coming_from_pytorch {}

/// The same model in Keras and in this crate, and what is called what.
#[cfg_attr(any(doc, doctest), doc = include_str!("coming_from_keras.md"))]
pub mod coming_from_keras {}

/// The same model in Paddle and in this crate, and what is called what.
#[cfg_attr(any(doc, doctest), doc = include_str!("coming_from_paddle.md"))]
pub mod coming_from_paddle {}
