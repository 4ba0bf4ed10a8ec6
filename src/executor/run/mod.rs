//! The machine: runs the instructions of a plan. The machine depends on the plan, but neither on the compiler nor on the code
//! that calls the executor.

mod call;
mod chain;
pub(crate) mod counts;
mod feed;
mod frame;
mod keys;
mod lanes;
mod levels;
pub(crate) mod machine;
mod moves;
pub(super) mod rank_table;
pub(crate) mod recorder;
mod recording;
pub(crate) mod request;
pub(super) mod scope;
pub(crate) mod stages;
mod state;
mod step_loop;
pub(crate) mod threads;
mod worker;
mod worth;
