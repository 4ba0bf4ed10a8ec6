//! Predicting with a trained model, and drawing from what it says. A predictor needs a checkpoint and no trainer.

mod carried;
mod compiled;
mod model;
mod predictor;
mod sampling;
mod windows;

pub(crate) use carried::fed;
pub use predictor::Predictor;
pub use sampling::{Sampler, Sampling};
