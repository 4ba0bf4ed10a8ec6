//! Training: the loop, metrics, progress and checkpoints.

mod checkpoint;

pub use checkpoint::{Best, Checkpoint, Position};
