//! The purpose of a checkpoint.

use crate::tensor::named::named;

/// The purpose of a checkpoint: training or inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Purpose {
    /// The checkpoint can resume a training; a predictor can load it, too.
    #[default]
    Training,
    /// The checkpoint is a model to predict with, or to start another training from its parameters.
    Inference,
}

named!(Purpose, "purpose of a checkpoint", Training = "training", Inference = "inference");
