//! The request for a training: a config file, flags, or both.

use std::path::PathBuf;

use clap::Args;
use unpadded_recipes::{Config, DataConfig, Task};
use unpadded_text::{DataPaths, QuestionKind};

use super::outcome::{Outcome, UsageError, bad};
use super::{file, init};

/// Request of a training: a config file, flags, or both.
#[derive(Args)]
pub(crate) struct TrainingRequest {
    /// Config file in TOML; without it, the task's defaults, which do well on a few thousand texts
    #[arg(value_name = "CONFIG", conflicts_with = "task")]
    pub(crate) config: Option<PathBuf>,
    /// Fine-tuning: start from the trained model in this run folder or checkpoint, with its settings; classify and tag can also
    /// start from a language model
    #[arg(long, value_name = "RUN", value_parser = init::path())]
    from: Option<String>,
    /// Task to train for: classify, tag, lm or translate [default: classify, or the task of --from]
    #[arg(long, value_parser = init::task)]
    task: Option<Task>,
    /// Training data: a file or a folder; for translate also two files with parallel lines, the source first, as 'train.{de,en}',
    /// or a folder of such files, as 'corpus/*.{de,en}'
    #[arg(long, value_name = "PATH", value_parser = init::path())]
    train: Option<String>,
    /// Source texts to translate, one per line; line by line, their translations are in --train-target
    #[arg(long, value_name = "PATH", value_parser = init::path(), requires = "train_target", conflicts_with = "train")]
    train_source: Option<String>,
    /// Target texts: the translations of the lines of --train-source
    #[arg(long, value_name = "PATH", value_parser = init::path(), requires = "train_source")]
    train_target: Option<String>,
    /// Setting of the config, as model.hidden=256; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = init::path())]
    set: Vec<String>,
    /// Threads to run on, 0 for one per core [default: as the config sets]
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER", value_parser = whole::<usize>)]
    threads: Option<usize>,
}

pub(crate) fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    // The number must fit into `i64`, since integers in config files are `i64`.
    let number = text.parse().ok().filter(|number| *number <= i64::MAX as u64);
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("expected a whole number from 0 to {}", i64::MAX))
}

/// Returns the data settings for other files of the same kind; their columns are detected again, unless several texts are set.
fn other_data(data: DataConfig) -> DataConfig {
    let DataConfig { hold_out, target, label_separator, binary, text, pair, label, .. } = data;
    let several = pair.is_some() || text.len() > 1;
    let (text, label) = if several { (text, label) } else { (Vec::new(), Vec::new()) };
    let mut data = DataConfig::default();
    (data.hold_out, data.target, data.binary) = (hold_out, target, binary);
    (data.text, data.pair, data.label, data.label_separator) = (text, pair, label, label_separator);
    data
}

impl TrainingRequest {
    /// Returns the requested config: a config file or the defaults of the task, changed by the flags.
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

    pub(crate) fn sets(&self, setting: &str) -> bool {
        self.set.iter().any(|flag| flag.split_once('=').is_some_and(|(name, _)| name.trim() == setting))
    }

    /// Notes in an error that the task is `lm`, because `--from` names a language model and no flag sets the task.
    pub(crate) fn of_task(&self, config: &Config, error: unpadded::Error) -> unpadded::Error {
        match (&self.from, &self.train) {
            (Some(run), Some(_))
                if self.task.is_none() && self.config.is_none() && config.run.task.continues_texts() =>
            {
                error.noted(format!(
                    "the task is `lm`, because `{run}` is a language model; `--task classify` trains a classifier over it"
                ))
            }
            _ => error,
        }
    }

    pub(crate) fn over(&self, mut config: Config) -> Outcome<Config> {
        if self.train.is_some() {
            config.data.train.clone_from(&self.train);
        }
        if let (Some(source), Some(target)) = (&self.train_source, &self.train_target) {
            if config.run.task.asking() != Some(QuestionKind::Source) {
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

/// Course of a training or a search: development data, epochs and seed.
#[derive(Args)]
pub(crate) struct Course {
    /// Development data, scored after each epoch [default: a part of the training texts is held out]
    #[arg(long, value_name = "PATH", value_parser = init::path())]
    dev: Option<String>,
    /// Epochs: passes over the training texts [default: as the config sets]
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER", value_parser = whole::<u64>)]
    epochs: Option<u64>,
    /// Seed of all random numbers: equal seeds give equal results [default: as the config sets]
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER", value_parser = whole::<u64>)]
    seed: Option<u64>,
}

impl Course {
    pub(crate) fn over(&self, config: &mut Config) {
        if self.dev.is_some() {
            config.data.dev.clone_from(&self.dev);
        }
        config.training.epochs = self.epochs.unwrap_or(config.training.epochs);
        config.run.seed = self.seed.unwrap_or(config.run.seed);
    }
}
