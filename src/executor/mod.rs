//! Runs programs: compiles them to slots and buffers, feeds, runs, fetches.
//!
//! [`Executor::new`] compiles a program for the variables that are wanted; [`Executor::run`] runs it on a batch and a
//! [`Scope`]. What a run is about (train or infer, the number of the step, the numbers of the sequences in the data,
//! how far to go) is an argument of the run, a [`Run`], not of the program.

mod chain;
mod compile;
mod feed;
mod frame;
mod in_place;
pub mod interpret;
mod lanes;
mod layout;
pub mod listing;
mod lower;
mod machine;
mod making;
mod memory;
mod needs;
mod pin;
mod plan;
pub mod profile;
pub mod rank_table;
mod recorder;
mod recording;
mod recurrent;
mod rewrite;
mod run;
pub mod scope;
mod split;
mod through;
mod views;

pub use interpret::{diagnose, interpret};
pub use listing::Listing;
pub use profile::{Entry, Part, Profile};
pub use rank_table::RankTable;
pub use run::{Executor, Run, Stage};
pub use scope::Scope;
