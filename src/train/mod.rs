//! Training: the loop, metrics, progress and checkpoints.

mod checkpoint;
mod predictor;

pub use checkpoint::{Best, Checkpoint, Position};
pub use predictor::Predictor;
