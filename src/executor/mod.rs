//! The executor: compiles a program to slots and buffers, feeds it, runs it, and fetches results.
//!
//! The modules, in the order of their dependencies: `rewrite` turns a program into another program with equal results, and
//! `plan` is a compiled program as plain data. The module `compile` makes the plan, `run` is the machine that runs the plan,
//! and `observe` prints the plan and the profile of its runs. The module `reference` interprets programs and uses none of the
//! other modules. The [`Executor`] is the public interface of the compiler and the machine.
//!
//! [`Executor::new`] compiles a program for the variables to fetch; [`Executor::run`] runs it on a batch with the variables of
//! a [`Scope`]. The settings of a run are not part of the program: they are fields of the [`Run`] that [`Executor::run`] takes.
//! The settings are the mode (train or infer), the step number, the numbers of the sequences, and the last stage. A run may
//! stop after the backward pass; [`Executor::update`] then applies the updates.

mod compile;
#[allow(clippy::module_inception)]
mod executor;
mod memory;
mod observe;
mod plan;
mod reference;
mod rewrite;
mod run;
mod settle;

pub(crate) use compile::compile;
pub use executor::Executor;
pub use memory::MemoryUse;
pub use observe::bound::{Bound, Rates};
pub use observe::listing::Listing;
pub use observe::profile::{Entry, LoopPhase, Profile};
pub(crate) use plan::Plan;
pub use reference::{diagnose, interpret};
pub use run::counts::RowCounts;
pub(crate) use run::request::PlacedFeeds;
pub use run::request::{Run, Stage};
pub use run::scope::Scope;
pub(crate) use run::threads::Threads;
pub use settle::settle;
