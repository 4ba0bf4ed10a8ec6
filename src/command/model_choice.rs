//! Which model is asked.

use std::path::PathBuf;

use clap::Args;

use super::outcome::{Outcome, UsageError};
use super::run;
use unpadded::checkpoint::Checkpoint;
use unpadded::recipes::Model;

/// Which model is asked.
#[derive(Args)]
pub(crate) struct ModelChoice {
    /// A run folder, of which the best epoch is taken, or a checkpoint
    #[arg(value_name = "RUN")]
    pub(crate) path: PathBuf,
}

impl ModelChoice {
    /// The model in a run folder or a checkpoint.
    pub(crate) fn load(&self) -> Outcome<Model> {
        Model::load(run::checkpoint(&self.path)?).usage()
    }

    /// The checkpoint.
    pub(crate) fn checkpoint(&self) -> Outcome<Checkpoint> {
        Checkpoint::load(run::checkpoint(&self.path)?).usage()
    }
}
