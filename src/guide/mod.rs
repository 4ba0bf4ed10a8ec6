//! The guide: pages to read in order, and pages with answers to single questions. A page shows only the important lines of a
//! program; the whole programs are in `tests/it/guide/`, and the tests run them.
//!
//! | page | contents |
//! |---|---|
//! | [`first_model`] | from labelled texts to a model that answers, line by line |
//! | [`lod`] | sequences in memory, with drawings, and the effect of operators on them |
//! | [`cells`] | a recurrent cell of your own: memories, static inputs, the operators that a step may contain |
//! | [`sparse`] | embeddings with sparse gradients, bags of words, update rules, the key-value store |
//! | [`structured`] | tags that depend on each other (CRF), labels without positions (CTC), attention in the step |
//! | [`generation`] | text generation: greedy, sampling, beam search, sessions, many callers at once |
//! | [`without_rust`] | the command: file formats, tasks, what to tune first, the report, the way to a service |
//! | [`settings`] | models without Rust: the tasks of the command, and every setting |
//! | [`memory`] | what a training takes, the memory limit, what to do when a model does not fit |
//! | [`experiments`] | seeds, folds, hyperparameter search, ensembles |
//! | [`fine_tuning`] | starting from a trained model or a language model, gradual unfreezing |
//! | [`several_machines`] | training over `mpirun` or Slurm: starting, parts and bits, failures |
//! | [`why`] | decisions that may surprise, with their reasons |
//! | [`how_do_i`] | short answers to common tasks, to copy |
//! | [`coming_from_pytorch`], [`coming_from_keras`], [`coming_from_paddle`] | the same model in both, and a table of names |
//!
//! The pages are included only when the documentation is built, so an edit of a page recompiles no other code.

/// A first model, from labelled texts to predictions, line by line.
///
/// [cells]: crate::guide::cells
/// [how_do_i#read-in-both-directions]: crate::guide::how_do_i#read-in-both-directions
/// [how_do_i#resume-after-a-stop]: crate::guide::how_do_i#resume-after-a-stop
/// [how_do_i#start-from-pre-trained-word-vectors]: crate::guide::how_do_i#start-from-pre-trained-word-vectors
/// [lod]: crate::guide::lod
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("first_model.md"))]
pub mod first_model {}

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

/// The command `unpadded`: file formats, tasks, what to tune first, rare classes, the report, and how to run a service.
///
/// [experiments]: crate::guide::experiments
/// [fine_tuning]: crate::guide::fine_tuning
/// [generation]: crate::guide::generation
/// [memory]: crate::guide::memory
/// [settings]: crate::guide::settings
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("without_rust.md"))]
pub mod without_rust {}

/// Models without Rust: the tasks of the command `unpadded`, and every setting.
///
/// [fine_tuning]: crate::guide::fine_tuning
/// [several_machines]: crate::guide::several_machines
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("settings.md"))]
pub mod settings {}

/// Memory: what a training or a prediction takes, the memory limit, and what to do when a model does not fit.
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("memory.md"))]
pub mod memory {}

/// Experiments with the command `unpadded`: seeds, folds, hyperparameter search, ensembles.
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("experiments.md"))]
pub mod experiments {}

/// Fine-tuning of a trained model: new words and labels, layers of a language model, gradual unfreezing.
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("fine_tuning.md"))]
pub mod fine_tuning {}

/// Training on several machines with `mpirun` or Slurm: start, parts of a batch, bit-identical results, failures.
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("several_machines.md"))]
pub mod several_machines {}

/// Design decisions that may surprise, with their reasons.
///
/// [generation]: crate::guide::generation
/// [sparse]: crate::guide::sparse
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("why.md"))]
pub mod why {}

/// Short answers to common tasks, to copy.
///
/// [cells]: crate::guide::cells
/// [cells#residual-and-dropout]: crate::guide::cells#residual-and-dropout
/// [first_model]: crate::guide::first_model
/// [generation#many-callers-at-once]: crate::guide::generation#many-callers-at-once
/// [lod#two-levels-in-a-model]: crate::guide::lod#two-levels-in-a-model
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("how_do_i.md"))]
pub mod how_do_i {}

/// A PyTorch model and the same model in this crate, and a table of names.
///
/// [cells]: crate::guide::cells
/// [how_do_i#import-from-pytorch]: crate::guide::how_do_i#import-from-pytorch
/// [lod]: crate::guide::lod
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("coming_from_pytorch.md"))]
pub mod coming_from_pytorch {}

/// A Keras model and the same model in this crate, and a table of names.
///
/// [how_do_i#weigh-rare-classes-class-weights]: crate::guide::how_do_i#weigh-rare-classes-class-weights
/// [lod]: crate::guide::lod
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("coming_from_keras.md"))]
pub mod coming_from_keras {}

/// A Paddle model and the same model in this crate, and a table of names.
///
/// [coming_from_pytorch]: crate::guide::coming_from_pytorch
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("coming_from_paddle.md"))]
pub mod coming_from_paddle {}
