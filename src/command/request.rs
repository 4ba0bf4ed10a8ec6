//! What is to be trained: a config file, flags, or both.

use std::path::PathBuf;

use clap::Args;

use super::outcome::{Outcome, UsageError, bad};
use super::{file, init};
use unpadded::data::DataPaths;
use unpadded::recipes::{Config, DataConfig, Task};

/// What is to be trained.
#[derive(Args)]
pub(crate) struct TrainingRequest {
    /// A config file; without one, the settings that do well for the task
    #[arg(value_name = "CONFIG", conflicts_with = "task")]
    pub(crate) config: Option<PathBuf>,
    /// Fine-tuning: the run folder or checkpoint of a trained model that the training starts from, with its settings; of classify and tag
    /// also a language model's
    #[arg(long, value_name = "RUN")]
    from: Option<String>,
    /// What is to be learnt: classify, tag, lm or translate [default: classify, or that of --from]
    #[arg(long, value_parser = init::task)]
    task: Option<Task>,
    /// What to train on: a file or a folder; of `translate` also two files whose lines belong together, as 'train.{de,en}', or a
    /// folder of such files, as 'corpus/*.{de,en}': the source first
    #[arg(long, value_name = "PATH")]
    train: Option<String>,
    /// A file with a text a line to translate, whose translations are the lines of --train-target
    #[arg(long, value_name = "PATH", requires = "train_target", conflicts_with = "train")]
    train_source: Option<String>,
    /// A file with the translations of the lines of --train-source
    #[arg(long, value_name = "PATH", requires = "train_source")]
    train_target: Option<String>,
    /// Any other setting, as model.hidden=256; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Threads to run on, 0 for one a core
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER", value_parser = whole::<usize>)]
    threads: Option<usize>,
}

/// A whole number of a flag.
pub(crate) fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    // Files have no larger numbers.
    let number = text.parse().ok().filter(|number| *number <= i64::MAX as u64);
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("expected a whole number from 0 to {}", i64::MAX))
}

/// Data of the same kind in other files: which columns they have is detected, except where there are several texts.
fn other_data(data: DataConfig) -> DataConfig {
    let DataConfig { hold_out, target, label_separator, binary, text, pair, label, .. } = data;
    let several = pair.is_some() || text.len() > 1;
    let (text, label) = if several { (text, label) } else { (Vec::new(), None) };
    let mut data = DataConfig::default();
    (data.hold_out, data.target, data.binary) = (hold_out, target, binary);
    (data.text, data.pair, data.label, data.label_separator) = (text, pair, label, label_separator);
    data
}

impl TrainingRequest {
    /// The config: a file or the task's own, then flags.
    pub(crate) fn config(&self) -> Outcome<Config> {
        let mut config = match (&self.config, &self.from) {
            (Some(path), _) => Config::load(path).usage()?,
            (None, Some(run)) => Config::starting_from(run, self.task).usage()?,
            (None, None) => Config::new(self.task.unwrap_or(Task::Classify)),
        };
        if let Some(run) = &self.from {
            config.training.from = Some(run.clone());
            if self.config.is_none() && (self.train.is_some() || self.train_source.is_some()) {
                config.data = other_data(config.data);
            }
        }
        self.over(config)
    }

    /// Whether a flag `--set` sets a setting.
    pub(crate) fn sets(&self, setting: &str) -> bool {
        self.set.iter().any(|flag| flag.split_once('=').is_some_and(|(name, _)| name.trim() == setting))
    }

    /// Adds to an error of `prepare` that the task is that of a language model, where no flag names it.
    pub(crate) fn of_task(&self, config: &Config, error: unpadded::Error) -> unpadded::Error {
        match (&self.from, &self.train) {
            (Some(run), Some(_))
                if self.task.is_none() && self.config.is_none() && config.run.task == Task::Lm =>
            {
                error.noted(format!(
                    "the task is `lm`, that of `{run}`; `--task classify` trains a classifier over it"
                ))
            }
            _ => error,
        }
    }

    /// A config with what the flags say instead.
    pub(crate) fn over(&self, mut config: Config) -> Outcome<Config> {
        if self.train.is_some() {
            config.data.train.clone_from(&self.train);
        }
        if let (Some(source), Some(target)) = (&self.train_source, &self.train_target) {
            if config.run.task != Task::Translate {
                let got = config.run.task.name();
                let advice = match (&self.config, self.task) {
                    (None, None) => "`--task translate` is missing",
                    (None, Some(_)) => "`--task translate` is the task of two files",
                    (Some(_), _) => "set `task = \"translate\"` in the config",
                };
                return bad(format!(
                    "--train-source, --train-target: expected the task `translate`, got `{got}`: {advice}"
                ));
            }
            config.data.train = Some(DataPaths::of_lines(source, target));
        }
        config.run.threads = self.threads.unwrap_or(config.run.threads);
        self.set.iter().try_for_each(|flag| file::set(&mut config, flag))?;
        Ok(config)
    }
}

/// What is trained for how long: the flags of a training and of a search.
#[derive(Args)]
pub(crate) struct Course {
    /// What to measure on after each epoch; without it, a part of the training texts is held out
    #[arg(long, value_name = "PATH")]
    dev: Option<String>,
    /// Epochs of a whole training: passes over the training texts
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER", value_parser = whole::<u64>)]
    epochs: Option<u64>,
    /// Seed of all random numbers: equal seeds give equal results
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER", value_parser = whole::<u64>)]
    seed: Option<u64>,
}

impl Course {
    /// A config with the values of the flags.
    pub(crate) fn over(&self, config: &mut Config) {
        if self.dev.is_some() {
            config.data.dev.clone_from(&self.dev);
        }
        config.training.epochs = self.epochs.unwrap_or(config.training.epochs);
        config.run.seed = self.seed.unwrap_or(config.run.seed);
    }
}
