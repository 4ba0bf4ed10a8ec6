//! The training loop, metrics, checkpoints and progress.

mod checkpoint;
pub mod metrics;

pub use checkpoint::{Best, Checkpoint, Position};
