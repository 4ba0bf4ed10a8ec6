//! The recipe and the settings of each task. To add a task, write its recipe in a new file, and add a line to
//! `Task::recipe`.

use super::config::Config;
use super::recipe::Recipe;
use super::sections::{DataConfig, DecodingConfig, ModelConfig, RunConfig, Task, TextConfig, TrainingConfig};
use super::settings::SettingKey;
use super::{classify, lm, tag, translate};

impl Task {
    /// Returns the recipe of the task.
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
    /// Returns the default config of a task, suited to a few thousand texts.
    pub fn new(task: Task) -> Self {
        let mut config = Self { run: RunConfig { task, ..RunConfig::default() }, ..Self::default() };
        task.recipe().defaults(&mut config);
        config
    }

    /// Returns all settings of a task, in the order in which config files have them.
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

    /// Returns whether a task has the setting with this dotted name.
    pub(super) fn has(task: Task, name: &str) -> bool {
        Self::keys(task).any(|key| key.to_string() == name)
    }
}
