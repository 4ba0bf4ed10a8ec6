//! `unpadded init`.

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use unpadded_recipes::{Config, Space, Task};
use unpadded_text::text_of_path;

use super::outcome::{Ending, Outcome, UsageError};
use super::terminal;

/// The comment that the config file has above the table `[space]`.
const SPACE: &str = "\
# Search space: the settings that `tune` varies; a drawn value replaces the value above. The values of a list are equally
# likely; from and to are the ends of a range; log = true draws evenly on a logarithmic scale. Any setting of [text],
# [model] and [training] can be here, except training.epochs.
";

#[derive(Args)]
#[command(after_help = "\
Examples:
  unpadded init classify --train reviews.tsv > reviews.toml
  unpadded init classify --train reviews.tsv --space > space.toml   for `unpadded tune space.toml --budget 30m`")]
pub(crate) struct Init {
    /// Task to train for: classify, tag, lm or translate
    #[arg(value_parser = task)]
    task: Task,
    /// Training data: a file or a folder, entered as `data.train`
    #[arg(long, value_name = "PATH", value_parser = path())]
    train: Option<String>,
    /// Search space: also write a table [space] with the settings that `tune` varies
    #[arg(long)]
    space: bool,
}

/// Returns a parser of paths as texts for configs, with an escape for each byte that is not UTF-8.
pub(crate) fn path() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(text_of_path)
}

pub(crate) fn task(name: &str) -> Result<Task, String> {
    let names: Vec<&str> = Task::ALL.iter().map(|task| task.name()).collect();
    Task::from_name(name).ok_or_else(|| format!("expected one of `{}`", names.join("`, `")))
}

impl Init {
    pub(crate) fn run(self) -> Outcome<Ending> {
        let mut config = Config::new(self.task);
        config.data.train = self.train;
        let (mut start, mut space) =
            ("A training of `unpadded`. Start it with: unpadded train THIS_FILE", String::new());
        if self.space {
            start = "A search of settings. Start it with: unpadded tune THIS_FILE --budget 30m";
            space = format!("\n{SPACE}[space]\n{}", Space::of(&config).usage()?);
        }
        terminal::print(format!("# {start}\n#\n{}{space}", config.commented()).trim_end())?;
        Ok(Ending::Done)
    }
}
