//! The guide: pages about sequences, cells and programs. A page shows only the important lines of a program; the whole programs
//! are in `tests/it/guide/`, and the tests run them. The guide of the crate `unpadded-recipes` has a first model from labelled
//! texts, short answers to common tasks, and the pages on the command.
//!
//! | page | contents |
//! |---|---|
//! | [`lod`] | sequences in memory, with drawings, and the effect of operators on them |
//! | [`cells`] | a recurrent cell of your own: memories, static inputs, the operators that a step may contain |
//! | [`sparse`] | embeddings with sparse gradients, bags of words, update rules, the key-value store |
//! | [`structured`] | tags that depend on each other (CRF), labels without positions (CTC), attention in the step |
//! | [`generation`] | text generation: greedy, sampling, beam search, sessions, many callers at once |
//! | [`why`] | decisions that may surprise, with their reasons |
//! | [`coming_from_pytorch`], [`coming_from_keras`], [`coming_from_paddle`] | the same model in both, and a table of names |
//!
//! The pages are included only when the documentation is built, so an edit of a page recompiles no other code.

/// Sequences in memory, with drawings, and how operators change them.
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("lod.md"))]
pub mod lod {}

/// How to write a recurrent cell: memories, static inputs, and the operators that a step may contain.
///
/// [structured#attention-in-the-step]: crate::guide::structured#attention-in-the-step
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("cells.md"))]
pub mod cells {}

/// Sparse values: embeddings with sparse gradients, bags of words, update rules, the key-value store.
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("sparse.md"))]
pub mod sparse {}

/// Structured outputs: tags that depend on each other (CRF), labels without positions (CTC), attention in the step.
///
/// [generation]: crate::guide::generation
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("structured.md"))]
pub mod structured {}

/// Text generation: greedy, sampling, beam search, sessions, many callers at once.
///
/// [structured#attention-in-the-step]: crate::guide::structured#attention-in-the-step
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("generation.md"))]
pub mod generation {}

/// Design decisions that may surprise, with their reasons.
///
/// [generation]: crate::guide::generation
/// [sparse]: crate::guide::sparse
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("why.md"))]
pub mod why {}

/// A PyTorch model and the same model in this crate, and a table of names.
///
/// [cells]: crate::guide::cells
/// [lod]: crate::guide::lod
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("coming_from_pytorch.md"))]
pub mod coming_from_pytorch {}

/// A Keras model and the same model in this crate, and a table of names.
///
/// [lod]: crate::guide::lod
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("coming_from_keras.md"))]
pub mod coming_from_keras {}

/// A Paddle model and the same model in this crate, and a table of names.
///
/// [coming_from_pytorch]: crate::guide::coming_from_pytorch
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("coming_from_paddle.md"))]
pub mod coming_from_paddle {}
