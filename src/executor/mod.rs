//! Runs programs: compiles them to slots and buffers, feeds, runs, fetches.
//!
//! [`Executor::new`] compiles a program for the variables that are wanted; [`Executor::run`] runs it on a batch and a
//! [`Scope`]. What a run is about (train or infer, the number of the step, the numbers of the sequences in the data,
//! how far to go) is an argument of the run, a [`Run`], not of the program.

mod compile;
#[allow(clippy::module_inception)]
mod executor;
mod observe;
mod plan;
mod reference;
mod rewrite;
mod run;
mod threads;

pub use executor::{Executor, Run, Stage};
pub use observe::listing::Listing;
pub use observe::profile::{Entry, Part, Profile};
pub use observe::{listing, profile};
pub use reference::{diagnose, interpret};
pub use run::rank_table;
pub use run::rank_table::RankTable;
pub use run::scope;
pub use run::scope::Scope;
pub(crate) use threads::Threads;
