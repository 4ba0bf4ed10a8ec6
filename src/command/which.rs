//! Which model is asked.

use std::path::PathBuf;

use clap::Args;

use super::outcome::{Asked, Outcome};
use super::run;
use unpadded::checkpoint::Checkpoint;
use unpadded::recipes::Model;

/// Which model is asked.
#[derive(Args)]
pub(crate) struct Which {
    /// A run folder, of which the best epoch is taken, or a checkpoint
    #[arg(value_name = "RUN")]
    pub(crate) path: PathBuf,
}

impl Which {
    /// The model in a run folder or a checkpoint.
    pub(crate) fn load(&self) -> Outcome<Model> {
        Model::load(run::checkpoint(&self.path)?).asked()
    }

    /// The checkpoint.
    pub(crate) fn checkpoint(&self) -> Outcome<Checkpoint> {
        Checkpoint::load(run::checkpoint(&self.path)?).asked()
    }
}
