//! `unpadded eval`: a trained model is measured.

use clap::Args;
use serde_json::Value;

use super::outcome::{Asked, Ended, Outcome};
use super::which::Which;
use super::{json, terminal, train};
use unpadded::recipes::{Config, TestData, test_data};

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
        let TestData { data, said } = test_data(&config, &model).asked()?;
        said.iter().for_each(terminal::say);
        let scores = model.predictor().evaluate(&*data).asked()?;
        for (name, value) in &scores.0 {
            let shown =
                if train::shares(name) { format!("{:.2} %", 100.0 * value) } else { format!("{value:.4}") };
            terminal::print(format!("{name}: {shown}"))?;
        }
        if self.json {
            let first = scores.0.iter().find(|(name, _)| name != "loss");
            let value = first.map(|(name, x)| if train::shares(name) { 100.0 * x } else { *x });
            terminal::print(json::object([
                ("dataset", self.data.as_str().into()),
                ("metric", first.map_or(Value::Null, |(name, _)| name.as_str().into())),
                ("value", value.map_or(Value::Null, json::number)),
                ("scores", json::numbers(&scores.0)),
            ]))?;
        }
        Ok(Ended::Done)
    }
}
