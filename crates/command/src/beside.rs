//! The command `unpadded report`: compares several runs on one page.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;
use unpadded::checkpoint::Checkpoint;
use unpadded::metrics::Unit;
use unpadded::ops;
use unpadded_recipes::Config;
use unpadded_text::text_of_path;

use super::outcome::{Ending, Outcome, bad, fresh};
use super::output::print_or_write;
use super::report::{Epoch, Run, SeveralRuns, TestScores, several};
use super::scores::distinct;
use super::{run, terminal};

#[derive(Args)]
#[command(after_help = "\
Examples:
  unpadded report runs/classify-1 runs/classify-2 -o both.html
  unpadded report runs/* > all.html
The page has the curves of all runs in one chart, their scores with 95 % intervals, the settings that differ, and the F1 of
each class of the test set. It reads config.toml, metrics.jsonl, best.ckpt or last.ckpt (for the units of the metrics) and,
if `train --test` wrote it, test.json of each run.")]
pub(crate) struct Report {
    /// Run folders; a folder of several runs (--seeds, --folds, tune) adds all its runs
    #[arg(value_name = "RUN", required = true, num_args = 1..)]
    runs: Vec<PathBuf>,
    /// Output file, which must not exist [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Report {
    pub(crate) fn run(self) -> Outcome<Ending> {
        self.output.as_deref().map_or(Ok(()), fresh)?;
        let mut folders = Vec::new();
        for path in &self.runs {
            match run::several(path) {
                // Run folders in which no training has begun are skipped, since they contain no results.
                true => folders.extend(run::members(path)?.into_iter().filter(|path| run::is_run(path))),
                false => folders.push(path.clone()),
            }
        }
        if folders.is_empty() {
            return bad(
                "runs: expected run folders, got folders of several runs in which no training has begun",
            );
        }
        let read: Vec<(Config, Run)> = folders.iter().map(|path| read(path)).collect::<Outcome<_>>()?;
        let (configs, runs): (Vec<Config>, Vec<Run>) = read.into_iter().unzip();
        let page = several(&SeveralRuns { settings: settings(&configs.iter().collect::<Vec<_>>()), runs });
        print_or_write(self.output.as_deref(), &page)?;
        Ok(Ending::Done)
    }
}

/// Returns the settings that differ between the configs, except the path of the test file.
pub(crate) fn settings(configs: &[&Config]) -> Vec<(String, Vec<String>)> {
    let keys = configs.iter().flat_map(|config| Config::keys(config.run.task)).map(|key| key.to_string());
    let keys = distinct(keys.filter(|key| key != "data.test"));
    let values = |key: String| {
        let shown =
            |config: &&Config| config.get(&key).map_or_else(|| "–".to_owned(), |value| value.to_string());
        let values: Vec<String> = configs.iter().map(shown).collect();
        let equal = values.iter().all(|value| Some(value) == values.first());
        (!equal).then_some((key, values))
    };
    keys.into_iter().filter_map(values).collect()
}

/// Reads the config and the scores from a run folder.
fn read(folder: &Path) -> Outcome<(Config, Run)> {
    if !run::is_run(folder) {
        let got = if folder.is_dir() { "a folder without the files of a run" } else { "no folder" };
        return bad(format!(
            "`{}`: expected a run folder, as `train` writes it, got {got}",
            folder.display()
        ));
    }
    let config = run::load_config(folder)?;
    let tested = folder.join("test.json");
    let tested = match tested.is_file() {
        true => Some(scores(&tested)?),
        false => None,
    };
    let run = Run {
        name: text_of_path(folder),
        task: config.run.task.name().to_owned(),
        data: config.data.train.clone().unwrap_or_else(|| "built-in texts".to_owned()),
        epochs: epochs(&folder.join("metrics.jsonl"))?,
        units: units(folder),
        tested,
    };
    Ok((config, run))
}

/// Returns the units of a run's metrics from its checkpoint; without a readable checkpoint, warns and returns none.
fn units(folder: &Path) -> Vec<(String, Unit)> {
    let Some(checkpoint) = run::checkpoint(folder).ok().and_then(|path| Checkpoint::load(path).ok()) else {
        let run = folder.display();
        terminal::say(format!(
            "warning: `{run}` has no readable checkpoint: its held-out scores are shown without percent"
        ));
        return Vec::new();
    };
    Unit::of_metrics(&checkpoint, &ops::catalogue())
}

fn text(path: &Path) -> Outcome<String> {
    run::check_file(path)?;
    fs::read_to_string(path)
        .or_else(|e| bad(format!("{}: expected a file of text, got: {e}", path.display())))
}

fn scores(path: &Path) -> Outcome<TestScores> {
    let object: Value = serde_json::from_str(&text(path)?)
        .or_else(|e| bad(format!("{}:{}: expected a line of JSON, got: {e}", path.display(), e.line())))?;
    TestScores::of(&object).or_else(|e| bad(format!("{}: {e}; `train --test` writes it", path.display())))
}

/// Parses metrics.jsonl; a last line without a line end is skipped, since a training may still be writing it.
fn epochs(path: &Path) -> Outcome<Vec<Epoch>> {
    let text = text(path)?;
    let whole = text.rfind('\n').and_then(|end| text.get(..end)).unwrap_or_default();
    let lines = (1..).zip(whole.lines());
    let epoch = |(number, line): (usize, &str)| {
        let wrong = |got: &str| {
            bad(format!("{}:{number}: expected the metrics of an epoch, got {got}", path.display()))
        };
        match serde_json::from_str(line) {
            Ok(event) => epoch(&event).map_or_else(|| wrong(line), Ok),
            Err(e) => wrong(&e.to_string()),
        }
    };
    let mut epochs: Vec<Epoch> = lines.map(epoch).collect::<Outcome<_>>()?;
    epochs.sort_by_key(|epoch| epoch.epoch);
    Ok(epochs)
}

fn epoch(event: &Value) -> Option<Epoch> {
    // The file has null for NaN and infinity, which JSON cannot represent.
    let numbers = |name: &str| -> Option<Vec<(String, f64)>> {
        let all = event.get(name)?.as_object()?;
        Some(all.iter().map(|(name, value)| (name.clone(), value.as_f64().unwrap_or(f64::NAN))).collect())
    };
    Some(Epoch {
        epoch: event.get("epoch")?.as_u64()?,
        step: event.get("step")?.as_u64()?,
        rate: event.get("rate").and_then(Value::as_f64),
        train: numbers("train")?,
        dev: numbers("dev")?,
        best: event.get("best")?.as_bool()?,
    })
}
