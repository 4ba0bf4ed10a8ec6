//! The guide: a first model, short answers to common tasks, and the pages on the command `unpadded`. A page shows only the
//! important lines of a program; the whole programs are in `tests/recipes/guide/`, and the tests run them. The guide of the
//! engine ([`unpadded::guide`]) has the pages about sequences, cells and programs.
//!
//! | page | contents |
//! |---|---|
//! | [`first_model`] | from labelled texts to a model that answers, line by line |
//! | [`without_rust`] | the command: file formats, tasks, what to tune first, the report, the way to a service |
//! | [`settings`] | models without Rust: the tasks of the command, and every setting |
//! | [`memory`] | what a training takes, the memory limit, what to do when a model does not fit |
//! | [`experiments`] | seeds, folds, hyperparameter search, ensembles |
//! | [`fine_tuning`] | starting from a trained model or a language model, gradual unfreezing |
//! | [`several_machines`] | training over `mpirun` or Slurm: starting, parts and bits, failures |
//! | [`how_do_i`] | short answers to common tasks, to copy |
//!
//! The pages are included only when the documentation is built, so an edit of a page recompiles no other code.

/// A first model, from labelled texts to predictions, line by line.
///
/// [cells]: unpadded::guide::cells
/// [how_do_i#read-in-both-directions]: crate::guide::how_do_i#read-in-both-directions
/// [how_do_i#resume-after-a-stop]: crate::guide::how_do_i#resume-after-a-stop
/// [how_do_i#start-from-pre-trained-word-vectors]: crate::guide::how_do_i#start-from-pre-trained-word-vectors
/// [lod]: unpadded::guide::lod
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("first_model.md"))]
pub mod first_model {}

/// The command `unpadded`: file formats, tasks, what to tune first, rare classes, the report, and how to run a service.
///
/// [experiments]: crate::guide::experiments
/// [fine_tuning]: crate::guide::fine_tuning
/// [generation]: unpadded::guide::generation
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

/// Short answers to common tasks, to copy.
///
/// [cells]: unpadded::guide::cells
/// [cells#residual-and-dropout]: unpadded::guide::cells#residual-and-dropout
/// [first_model]: crate::guide::first_model
/// [generation#many-callers-at-once]: unpadded::guide::generation#many-callers-at-once
/// [lod#two-levels-in-a-model]: unpadded::guide::lod#two-levels-in-a-model
#[cfg_attr(all(doc, not(doctest)), doc = include_str!("how_do_i.md"))]
pub mod how_do_i {}
