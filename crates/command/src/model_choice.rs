//! The flags that choose the model for a command, and the threads on which it runs.

use std::path::PathBuf;

use clap::Args;
use unpadded::checkpoint::Checkpoint;
use unpadded_recipes::{Config, Model};

use super::outcome::{Outcome, UsageError};
use super::request::whole;
use super::run;

/// Model that a command loads.
#[derive(Args)]
pub(crate) struct ModelChoice {
    /// Run folder (its best epoch) or checkpoint
    #[arg(value_name = "RUN")]
    pub(crate) path: PathBuf,
}

impl ModelChoice {
    pub(crate) fn load(&self) -> Outcome<Model> {
        Model::load(run::checkpoint(&self.path)?).usage()
    }

    pub(crate) fn checkpoint(&self) -> Outcome<Checkpoint> {
        Checkpoint::load(run::checkpoint(&self.path)?).usage()
    }
}

/// Threads on which a trained model runs.
#[derive(Args, Clone, Copy)]
pub(crate) struct ThreadCount {
    /// Threads to run on, 0 for one per core
    #[arg(long = "threads", allow_negative_numbers = true, value_name = "NUMBER", default_value_t = 0, value_parser = whole::<usize>)]
    pub(crate) number: usize,
}

impl ThreadCount {
    /// Sets the threads in the config of a model, and checks the config.
    pub(crate) fn over(self, config: &mut Config) -> Outcome<()> {
        config.run.threads = self.number;
        config.check().usage()
    }
}
