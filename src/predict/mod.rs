//! Prediction with a trained model, generation of sequences, and sampling. Prediction needs a checkpoint, but no trainer.

mod batch_limit;
mod checks;
mod compiled;
mod ctc_beam;
mod evaluate;
mod generate;
mod generator;
mod known;
mod logits;
mod model;
mod predictor;
mod queue;
mod sampling;
mod session;
mod stepping;
mod turn;
mod windows;

pub use ctc_beam::{CtcBeam, CtcLabels};
pub use generate::{Beam, Generation, Hypotheses, Hypothesis};
pub use generator::Generator;
pub use predictor::Predictor;
pub use queue::Queue;
pub use sampling::{Sampler, Sampling};
pub use session::Session;
