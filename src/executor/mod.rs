//! The executor: compiles programs to slots and buffers, feeds, runs, fetches.
//!
//! The modules, in an order in which a later module may use an earlier one: `rewrite` turns a program into another one with the
//! same results, `plan` is a compiled program as plain data, `compile` makes the plan, `run` is the machine that runs it,
//! `observe` prints the plan and the time of its runs. `reference` interprets programs without any of these. The [`Executor`] is
//! the interface to them.
//!
//! [`Executor::new`] compiles a program for the variables that are wanted; [`Executor::run`] runs it on a batch and a
//! [`Scope`]. The facts of a run (train or infer, the number of the step, the numbers of the sequences in the data, the last
//! stage) are an argument of the run, a [`Run`], not of the program. A run may stop at its gradients, to be continued by
//! [`Executor::update`].

mod compile;
#[allow(clippy::module_inception)]
mod executor;
mod observe;
mod parts;
mod plan;
mod reference;
mod rewrite;
mod run;
mod settle;

pub use crate::kernels::Bandwidth;
pub use executor::Executor;
pub use observe::bound::{Bound, Rates};
pub use observe::listing::Listing;
pub use observe::profile::{Entry, LoopPhase, Profile};
pub(crate) use parts::{BatchLoss, Totals, Whole, checked_weight};
pub use reference::{diagnose, interpret};
pub(crate) use run::request::PlacedFeeds;
pub use run::request::{Run, Stage};
pub use run::scope::Scope;
pub(crate) use run::threads::Threads;
pub use settle::settle;
