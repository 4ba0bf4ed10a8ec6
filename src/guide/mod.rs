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
//! | [`how_do_i`] | short answers to common tasks, to be copied |
//! | [`coming_from_pytorch`], [`coming_from_keras`], [`coming_from_paddle`] | the same model in both, and what is called what |
//!
//! The [`tour`](crate::tour) is the shortest way through all of it, on one page.

#[doc = include_str!("first_model.md")]
pub mod first_model {}

#[doc = include_str!("lod.md")]
pub mod lod {}

#[doc = include_str!("cells.md")]
pub mod cells {}

#[doc = include_str!("sparse.md")]
pub mod sparse {}

#[doc = include_str!("structured.md")]
pub mod structured {}

#[doc = include_str!("generation.md")]
pub mod generation {}

#[doc = include_str!("how_do_i.md")]
pub mod how_do_i {}

#[doc = include_str!("coming_from_pytorch.md")]
pub mod coming_from_pytorch {}

#[doc = include_str!("coming_from_keras.md")]
pub mod coming_from_keras {}

#[doc = include_str!("coming_from_paddle.md")]
pub mod coming_from_paddle {}
