//! The flags `--seeds` and `--folds` of `unpadded train`: several trainings, their mean and standard deviation.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use unpadded::metrics::Unit;
use unpadded::train::StopReason;
use unpadded_recipes::{Config, Preparation};
use unpadded_text::{Fold, text_of_path};

use super::file;
use super::findings::{ScoredTraining, TrainingFacts};
use super::outcome::{Ending, Outcome, UsageError, bad, word};
use super::run::{self, Folder};
use super::scores::factor;
use super::terminal::{self, Console};
use super::training::{Training, check_new, computed_in, prepared};

/// The setting in which the repeated trainings differ: its noun, in the singular and in the plural, and the file of the results.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Kind {
    names: [&'static str; 2],
    file: &'static str,
}

impl Kind {
    pub(crate) const SEEDS: Self = Self { names: ["seed", "seeds"], file: run::SEEDS };
    pub(crate) const FOLDS: Self = Self { names: ["fold", "folds"], file: run::FOLDS };
}

pub(crate) struct RepeatedTraining {
    kind: Kind,
    count: u64,
    config: Config,
    /// The folder that contains the run folder of each training.
    path: PathBuf,
    /// The results of the finished trainings; `None` before the first training begins.
    ended: Option<Vec<Value>>,
    console: Console,
}

impl RepeatedTraining {
    /// Returns the repeated trainings that the flags request, in a new folder.
    pub(crate) fn new(
        kind: Kind,
        count: u64,
        config: Config,
        path: Option<PathBuf>,
        console: Console,
    ) -> Outcome<Self> {
        let task = config.run.task;
        if kind == Kind::FOLDS && !Config::keys(task).any(|key| key.to_string() == "data.fold") {
            return bad(format!(
                "--folds {count}: expected `classify`, `tag` or `translate`, whose data are records, got `{}`, whose data \
                 are one running text; `--seeds {count}` trains it several times",
                task.name()
            ));
        }
        if let (Kind::FOLDS, Some(dev)) = (kind, &config.data.dev) {
            return bad(format!(
                "--folds {count}: expected no `data.dev` (`--dev`), since each fold is held out once, got `{dev}`"
            ));
        }
        let path = path.unwrap_or_else(|| run::free(config.run.task.name()));
        Ok(Self { kind, count, config, path, ended: None, console })
    }

    /// Returns the repeated trainings in a folder; `config` is the config of the folder, changed by the flags.
    pub(crate) fn resumed(path: &Path, config: Config, console: Console) -> Outcome<Self> {
        let name = word(path);
        let mut known = file::resumed(path)?;
        known.run.threads = config.run.threads;
        if known != config {
            return bad(format!(
                "--resume {name}: expected no settings but --threads, since some of its runs have ended, got other settings; `--run NEW` trains with these settings"
            ));
        }
        let Some(kind) = [Kind::SEEDS, Kind::FOLDS].into_iter().find(|kind| path.join(kind.file).is_file())
        else {
            return bad(format!(
                "--resume {name}: expected a folder of runs, got a folder of `tune`: use `unpadded tune --resume {name}`"
            ));
        };
        let file = path.join(kind.file);
        let text = std::fs::read_to_string(&file)?;
        let wrong = |got: String| {
            bad(format!(
                "{}: expected the figures that `train --{}` writes, got {got}",
                file.display(),
                kind.names[1]
            ))
        };
        let object: Value = match serde_json::from_str(&text) {
            Ok(object) => object,
            Err(e) => return wrong(format!("no JSON: {e}")),
        };
        let count = object.get(kind.names[1]).and_then(Value::as_u64);
        let ended = object.get("runs").and_then(Value::as_array);
        let (Some(count), Some(ended)) = (count, ended) else {
            return wrong("an object without `runs` or without the number of runs".to_owned());
        };
        Ok(Self { kind, count, config, path: path.to_owned(), ended: Some(ended.clone()), console })
    }

    /// Returns the config of training `number` (from 1 on) and the name of its run folder.
    fn of(&self, number: u64) -> Outcome<(Config, String)> {
        let mut config = self.config.clone();
        let name = match self.kind {
            Kind::SEEDS => {
                config.run.seed = config.run.seed.saturating_add(number - 1);
                format!("seed-{}", config.run.seed)
            }
            _ => {
                config.data.fold = Fold::new(number, self.count);
                format!("fold-{number}")
            }
        };
        config.check().usage()?;
        Ok((config, name))
    }

    pub(crate) fn run(mut self) -> Outcome<Ending> {
        let [one, several] = self.kind.names;
        // Every config is checked before a file is written, since a later seed may be too large. For folds, the last fold is read:
        // if any fold has no text, the last one has none.
        (1..=self.count).try_for_each(|number| self.of(number).map(drop))?;
        let resumes = self.ended.is_some();
        let first = match &self.ended {
            Some(ended) => ended.len() as u64 + 1,
            None if self.kind == Kind::FOLDS => self.count,
            None => 1,
        };
        let mut ready = None;
        if first <= self.count {
            let (config, name) = self.of(first)?;
            let mut prepared = prepared(&config, &self.path.join(name)).usage()?;
            prepared.trainer.check_data(&*prepared.train, &*prepared.dev)?;
            ready = Some((first, prepared));
        }
        if !resumes {
            check_new(&self.path, false)?;
        }
        let folder = Folder::take(self.path.clone())?;
        let mut ended = self.ended.take().unwrap_or_default();
        if !resumes {
            folder.write("config.toml", &self.config.commented())?;
            folder.write(self.kind.file, &format!("{}\n", self.object(&ended)))?;
        }
        if !self.console.quiet {
            terminal::say(format!("folder of the runs: {}", text_of_path(&self.path)));
        }
        let mut messages = Vec::new();
        for number in 1..=self.count {
            let (config, name) = self.of(number)?;
            if let Some(known) = ended.iter().find(|run| run["run"] == *name) {
                self.console.result(self.line(number, &config, known))?;
                continue;
            }
            let prepared = match ready.take_if(|(ready, _)| *ready == number) {
                Some((_, prepared)) => prepared,
                None => prepared(&config, &self.path.join(&name)).usage()?,
            };
            if !self.console.quiet {
                // Most lines are the same for each run: of the later runs, only lines that differ from the run before.
                prepared.messages.iter().filter(|line| !messages.contains(*line)).for_each(terminal::say);
                messages.clone_from(&prepared.messages);
                terminal::say(format!("{one} {number} of {} {several}: {name}", self.count));
            }
            let Some(figures) = self.train(&config, &name, prepared)? else {
                terminal::say(format!("--resume {} continues the training", word(&self.path)));
                return Ok(Ending::Interrupted);
            };
            self.console.result(self.line(number, &config, &figures))?;
            ended.push(figures);
            folder.write(self.kind.file, &format!("{}\n", self.object(&ended)))?;
        }
        self.conclude(&ended)
    }

    /// Trains in the run folder `name`, and returns the results of the training; `None` if the training was interrupted.
    fn train(&self, config: &Config, name: &str, prepared: Preparation) -> Outcome<Option<Value>> {
        let folder = Folder::take(self.path.join(name))?;
        let resumes = run::last(folder.path()).is_file();
        let training =
            Training { config, folder: &folder, resumes, quiet: self.console.quiet, deadline: None };
        let fitted = training.fit(prepared, config.training.epochs, &mut None)?;
        if fitted.report.ended == StopReason::Interrupted {
            training.interrupted(fitted)?;
            return Ok(None);
        }
        let ScoredTraining { facts, report, value, tested, untested, .. } = training.finish(fitted)?;
        let TrainingFacts { name: dataset, metric, unit, .. } = facts;
        if let Some(e) = untested {
            return Err(e.into());
        }
        let percent = factor(unit);
        let test = tested.as_ref().and_then(|(scored, _)| scored.get(metric));
        Ok(Some(json!({
            "run": name, "dataset": dataset, "metric": metric, "share": unit == Unit::Share,
            "value": percent * value, "test": test.map(|test| percent * test),
            "epoch": report.best.map(|best| best.epoch), "epochs": report.epochs,
            "train_seconds": report.seconds,
        })))
    }

    fn line(&self, number: u64, config: &Config, figures: &Value) -> String {
        let name = match self.kind {
            Kind::SEEDS => format!("seed {}", config.run.seed),
            _ => format!("fold {number} of {}", self.count),
        };
        let metric = figures["metric"].as_str().unwrap_or_default();
        let (unit, value) = (unit(figures), figures["value"].as_f64().unwrap_or(f64::NAN));
        let test = figures["test"].as_f64().map(|test| format!("; test {metric}: {test:.2}{unit}"));
        let (epoch, epochs, test) = (&figures["epoch"], &figures["epochs"], test.unwrap_or_default());
        let precision = computed_in(config.training.precision);
        format!("{name}: held-out {metric}: {value:.2}{unit}, in epoch {epoch} of {epochs}{precision}{test}")
    }

    fn object(&self, ended: &[Value]) -> Value {
        let known = |name: &str| ended.first().map(|run| &run[name]);
        let mut object = json!({
            "task": self.config.run.task.name(), "dataset": known("dataset"), "metric": known("metric"),
            (self.kind.names[1]): self.count,
        });
        for (name, deviation) in [("value", "deviation"), ("test", "test_deviation")] {
            let spread = Spread::of(ended, name);
            object[name] = spread.as_ref().map(|spread| spread.mean).into();
            object[deviation] = spread.and_then(|spread| spread.deviation).into();
        }
        object["runs"] = ended.into();
        object
    }

    fn conclude(&self, ended: &[Value]) -> Outcome<Ending> {
        let (console, several) = (self.console, self.kind.names[1]);
        console.more("")?;
        for (part, name) in [("held-out", "value"), ("test", "test")] {
            let (Some(spread), Some(first)) = (Spread::of(ended, name), ended.first()) else { continue };
            let metric = first["metric"].as_str().unwrap_or_default();
            let (shown, unit, count) = (spread.shown(), unit(first), spread.count);
            console.result(format!(
                "{part} {metric}: {shown}{unit}, mean and standard deviation of {count} {several}"
            ))?;
        }
        let first = ended.first().and_then(|part| part["run"].as_str()).unwrap_or_default();
        console.more(format!(
            "\nask one:  unpadded predict {}\nask all:  unpadded predict --ensemble {}",
            word(self.path.join(first)),
            word(&self.path)
        ))?;
        console.object(|| {
            let mut object = self.object(ended);
            object["run"] = text_of_path(&self.path).into();
            object
        })?;
        Ok(Ending::Done)
    }
}

fn unit(figures: &Value) -> &'static str {
    if figures["share"] == true { " %" } else { "" }
}

struct Spread {
    count: usize,
    mean: f64,
    /// The sample standard deviation, with the divisor n − 1; `None` for a single training.
    deviation: Option<f64>,
}

impl Spread {
    /// Computes the mean and the deviation of the score with the given name; `None` if a training lacks this score.
    fn of(ended: &[Value], name: &str) -> Option<Self> {
        let values: Vec<f64> = ended.iter().map(|run| run[name].as_f64()).collect::<Option<_>>()?;
        (!values.is_empty()).then(|| {
            let (count, n) = (values.len(), values.len() as f64);
            let mean = values.iter().sum::<f64>() / n;
            let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
            let deviation = (count > 1).then(|| (squares / (n - 1.0)).sqrt());
            Self { count, mean, deviation }
        })
    }

    fn shown(&self) -> String {
        match self.deviation {
            Some(deviation) => format!("{:.2} ± {deviation:.2}", self.mean),
            None => format!("{:.2}", self.mean),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deviation_is_that_of_a_sample() {
        let runs = |values: &[f64]| -> Vec<Value> { values.iter().map(|&x| json!({"value": x})).collect() };
        let shown = |values: &[f64]| Spread::of(&runs(values), "value").map(|spread| spread.shown());
        assert_eq!(shown(&[1.0, 2.0, 3.0]).as_deref(), Some("2.00 ± 1.00"));
        assert_eq!(shown(&[4.0]).as_deref(), Some("4.00"));
        assert!(shown(&[]).is_none() && Spread::of(&runs(&[1.0]), "test").is_none());
    }
}
