//! `unpadded eval`: a trained model is measured.

use super::outcome::{Asked, Ended, Outcome};
use super::which::Which;
use super::{scores as show, terminal};
use clap::Args;
use unpadded::recipes::{Config, scores};

#[derive(Args)]
#[command(after_help = "Example:\n  unpadded eval runs/classify-1 test.tsv")]
pub(crate) struct Eval {
    #[command(flatten)]
    which: Which,
    /// The texts, with what is right, as for a training
    #[arg(value_name = "PATH")]
    data: String,
    /// End in a line of JSON
    #[arg(long)]
    json: bool,
}

impl Eval {
    pub(crate) fn run(self) -> Outcome<Ended> {
        let model = self.which.load()?;
        let mut config: Config = super::file::parse("config of the checkpoint", model.config())?;
        config.data.test = Some(self.data.clone());
        let scored = scores(&config, &model).asked()?;
        show::say(&scored);
        show::print(&scored)?;
        if self.json {
            terminal::print(show::object(&self.data, &scored))?;
        }
        Ok(Ended::Done)
    }
}
