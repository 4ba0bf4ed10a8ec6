//! The flags that choose the model for a command.

use std::path::PathBuf;

use clap::Args;
use unpadded::checkpoint::Checkpoint;
use unpadded_recipes::Model;

use super::outcome::{Outcome, UsageError};
use super::run;

/// Model that a command loads.
#[derive(Args)]
pub(crate) struct ModelChoice {
    /// Run folder (its best epoch) or checkpoint
    #[arg(value_name = "RUN")]
    pub(crate) path: PathBuf,
}

impl ModelChoice {
    /// Loads the model from a run folder or a checkpoint.
    pub(crate) fn load(&self) -> Outcome<Model> {
        Model::load(run::checkpoint(&self.path)?).usage()
    }

    /// Loads the checkpoint from a run folder or a file.
    pub(crate) fn checkpoint(&self) -> Outcome<Checkpoint> {
        Checkpoint::load(run::checkpoint(&self.path)?).usage()
    }
}
