//! The purpose of a checkpoint.

use crate::tensor::named::named;

/// The purpose of a checkpoint: training or inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Purpose {
    /// The checkpoint can resume a training; a predictor can load it, too.
    #[default]
    Training,
    /// The checkpoint is a model: it can predict, and another training can start from its parameters.
    Inference,
}

named!(Purpose, "purpose of a checkpoint", Training = "training", Inference = "inference");
