//! Predicting with a trained model, and drawing from what it says. A predictor needs a checkpoint and no trainer.

mod batch_runner;
mod carried;
mod compiled;
mod ctc_beam;
mod evaluate;
#[cfg_attr(not(test), allow(dead_code, unused_imports, reason = "what runs a model step by step comes next"))]
mod generate;
mod logits;
mod model;
mod predictor;
mod sampling;
mod turn;
mod windows;

pub(crate) use batch_runner::{BatchRunner, DataBatch};
pub use ctc_beam::{CtcBeam, CtcLabels};
pub use generate::{Beam, Generated, Generation, Hypothesis};
pub use predictor::Predictor;
pub use sampling::{Sampler, Sampling};
