//! `unpadded init`.

use clap::Args;

use super::outcome::{Ended, Outcome};
use super::terminal;
use unpadded::recipes::{Config, Task};

#[derive(Args)]
#[command(after_help = "Example:\n  unpadded init classify --train reviews.tsv > reviews.toml")]
pub(crate) struct Init {
    /// What is to be learnt: classify, tag, lm or translate
    #[arg(value_parser = task)]
    task: Task,
    /// What to train on
    #[arg(long, value_name = "PATH")]
    train: Option<String>,
}

/// A task by its name.
pub(crate) fn task(name: &str) -> Result<Task, String> {
    let names: Vec<&str> = Task::ALL.iter().map(|task| task.name()).collect();
    Task::from_name(name).ok_or_else(|| format!("expected one of `{}`", names.join("`, `")))
}

impl Init {
    pub(crate) fn run(self) -> Outcome<Ended> {
        let mut config = Config::new(self.task);
        config.data.train = self.train;
        terminal::print(format!(
            "# A training of `unpadded`. Start it with: unpadded train THIS_FILE\n#\n{}",
            config.commented().trim_end()
        ))?;
        Ok(Ended::Done)
    }
}
