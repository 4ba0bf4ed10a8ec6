//! What a checkpoint is for.

use crate::tensor::named::named;

/// What a checkpoint is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Purpose {
    /// To go on with a training; a predictor takes it too.
    #[default]
    Training,
    /// To predict with, or to start another training from its parameters.
    Inference,
}

named!(Purpose, "purpose of a checkpoint", Training = "training", Inference = "inference");
