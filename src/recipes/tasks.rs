//! The tasks by their names: a new one is its file and a line here.

use super::config::Config;
use super::recipe::Recipe;
use super::sections::{DataConfig, DecodingConfig, ModelConfig, RunConfig, Task, TextConfig, TrainingConfig};
use super::settings::SettingKey;
use super::{classify, lm, tag, translate};

impl Task {
    /// How it is learnt.
    pub(super) fn recipe(self) -> &'static dyn Recipe {
        match self {
            Self::Classify => &classify::Classify,
            Self::Tag => &tag::Tag,
            Self::Lm => &lm::Lm,
            Self::Translate => &translate::Translate,
        }
    }
}

impl Config {
    /// The settings that do well for a task on a few thousand texts.
    pub fn new(task: Task) -> Self {
        let mut config = Self { run: RunConfig { task, ..RunConfig::default() }, ..Self::default() };
        task.recipe().defaults(&mut config);
        config
    }

    /// All settings that a task has, in the order of a file.
    pub fn keys(task: Task) -> impl Iterator<Item = SettingKey> {
        let all = [
            RunConfig::KEYS,
            DataConfig::KEYS,
            TextConfig::KEYS,
            ModelConfig::KEYS,
            TrainingConfig::KEYS,
            DecodingConfig::KEYS,
        ];
        let without = task.recipe().without();
        all.into_iter().flatten().copied().filter(move |key| !without.contains(&&*key.to_string()))
    }

    /// Whether a task has this setting.
    pub(super) fn has(task: Task, name: &str) -> bool {
        Self::keys(task).any(|key| key.to_string() == name)
    }
}
