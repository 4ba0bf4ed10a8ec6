//! Runs programs: compiles them to slots and buffers, feeds, runs, fetches.
//!
//! The rooms, in the order in which one may use another: `rewrite` makes a program another that computes the same, `plan` is
//! what a compiled program is, as plain data, `compile` makes it, `run` is the machine that runs it, `observe` prints what
//! is in it and where its time goes. `reference` interprets programs without any of this. The [`Executor`] is in front.
//!
//! [`Executor::new`] compiles a program for the variables that are wanted; [`Executor::run`] runs it on a batch and a
//! [`Scope`]. What a run is about (train or infer, the number of the step, the numbers of the sequences in the data,
//! how far to go) is an argument of the run, a [`Run`], not of the program. A run may stop at its gradients, to be ended by
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
