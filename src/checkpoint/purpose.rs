//! The purpose of a checkpoint.

use crate::tensor::named::named;

/// The purpose of a checkpoint: training or inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Purpose {
    /// To resume a training; a predictor accepts it, too.
    #[default]
    Training,
    /// To predict with, or to start another training from its parameters.
    Inference,
}

named!(Purpose, "purpose of a checkpoint", Training = "training", Inference = "inference");
