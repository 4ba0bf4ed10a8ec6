//! The machine: runs the instructions of a plan.

mod chain;
pub(crate) mod feed;
pub(crate) mod frame;
mod lanes;
pub(crate) mod levels;
pub(crate) mod machine;
pub mod rank_table;
pub(crate) mod recorder;
mod recording;
pub mod scope;
pub(crate) mod step_loop;
