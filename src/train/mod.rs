//! The training loop, metrics, checkpoints and progress.

mod checkpoint;

pub use checkpoint::{Best, Checkpoint, Position};
