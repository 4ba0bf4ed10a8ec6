//! The config of a recipe: the settings of the task, the data, the tokens, the model and the training.

use unpadded::metrics::edit_distance;
use unpadded::{AtCaller, Error, Result};

pub use super::sections::Config;
use super::sections::{
    DataConfig, DecodingConfig, ModelConfig, RunConfig, SettingRules, Task, TextConfig, TrainingConfig,
};
use super::settings::{SettingKey, Value, optimizers};

impl Config {
    /// Returns the default config of a task, suited to a few thousand texts.
    pub fn new(task: Task) -> Self {
        Self {
            run: RunConfig::of(task),
            data: DataConfig::of(task),
            text: TextConfig::of(task),
            model: ModelConfig::of(task),
            training: TrainingConfig::of(task),
            decoding: DecodingConfig::of(task),
        }
    }

    /// Returns all settings of a task, in the order in which config files have them.
    pub fn keys(task: Task) -> impl Iterator<Item = SettingKey> {
        SettingRules::all().filter(move |setting| setting.is_of(task)).map(|setting| setting.key)
    }

    pub(super) fn has(task: Task, name: &str) -> bool {
        Self::keys(task).any(|key| key.is(name))
    }

    /// Sets a setting; `name` is the dotted name, such as `model.hidden`.
    ///
    /// # Errors
    /// If the task has no such setting (the error names the nearest one), if the value has the wrong type, or if
    /// `data.text` gets an empty list.
    #[track_caller]
    pub fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        let task = self.run.task;
        if !Self::has(task, name) {
            let other = Task::ALL.iter().find(|other| Self::has(**other, name));
            let known: Vec<String> = Self::keys(task).map(|key| key.to_string()).collect();
            let expected = match (other, nearest(name, known.iter().map(String::as_str))) {
                (Some(other), _) => format!("a setting of this task, not of `{}`", other.name()),
                (None, Some(near)) => format!("a known setting, perhaps `{near}`"),
                (None, None) => format!("one of `{}`", known.join("`, `")),
            };
            return Err(Error::new(format!("settings of `{}`", task.name()), expected, format!("`{name}`")));
        }
        if (name, value) == ("data.text", &Value::List(Vec::new())) {
            return Err(Error::new(name, "at least one column", value.to_string()));
        }
        let set = SettingRules::named(name).map_or(Ok(()), |setting| (setting.set)(self, value));
        set.map_err(|expected| Error::new(name, expected, value.to_string())).at_caller()
    }

    /// Returns the value of a setting by its dotted name; `None` if the setting has no value.
    pub fn get(&self, name: &str) -> Option<Value> {
        SettingRules::named(name).and_then(|setting| (setting.get)(self))
    }

    /// Checks the value of every setting, and that no settings contradict each other.
    ///
    /// # Errors
    /// One error about all settings with an invalid value or a contradiction; [`Error::all`] returns the single errors.
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        let mut wrong = Vec::new();
        SettingRules::all().for_each(|setting| setting.check(self, &mut wrong));
        Error::several(&wrong).map_or(Ok(()), Err).at_caller()
    }

    /// Returns the config as TOML; settings without a value are left out. [`Self::from_toml`] parses the returned TOML.
    pub fn to_toml(&self) -> String {
        self.written(false)
    }

    /// Returns the config as TOML, with a comment above each setting; a setting without a value is commented out.
    pub fn commented(&self) -> String {
        self.written(true)
    }

    fn written(&self, comments: bool) -> String {
        let (mut text, mut section) = (String::new(), "");
        for SettingRules { key, get, .. } in SettingRules::all().filter(|one| one.is_of(self.run.task)) {
            if key.section != section {
                section = key.section;
                text += &format!("\n[{section}]\n");
            }
            if comments {
                text += &format!("#{}\n", key.doc.replace("[`OptimizerKind`]", &optimizers()));
            }
            match get(self) {
                Some(value) => text += &format!("{} = {value}\n", key.name),
                None if comments => text += &format!("# {} =\n", key.name),
                None => {}
            }
        }
        text
    }
}

/// Returns the known name that is most similar to `name` by edit distance; `None` if more than a few letters differ.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters = |name: &str| name.chars().collect::<Vec<_>>();
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let distance = |candidate: &&str| {
        let whole = edit_distance(&letters(name), &letters(candidate));
        // A name with the right key in a wrong table, such as `data.hidden`, counts as at most one wrong letter.
        if last(name) == last(candidate) { whole.min(1) } else { whole }
    };
    known.min_by_key(distance).filter(|near| distance(near) <= 1 + name.chars().count() / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_written_with_its_comment() -> Result<()> {
        for &task in Task::ALL {
            let config = Config::new(task);
            config.check()?;
            let commented = config.commented();
            let has = |key: SettingKey| commented.contains(&format!("{} =", key.name));
            assert!(Config::keys(task).all(has), "{commented}");
        }
        Ok(())
    }

    #[test]
    fn settings_that_would_not_act_are_refused() {
        let message = |set: &[(&str, Value)]| {
            let mut config = Config::new(Task::Classify);
            set.iter().for_each(|(name, value)| config.set(name, value).unwrap());
            config.check().err().map(|e| format!("{e:#}")).unwrap_or_default()
        };
        let text = |text: &str| Value::Text(text.into());
        let (labels, focal) = (("data.target", text("labels")), ("training.focal", Value::Int(2)));
        let weights = ("training.class_weights", text("balanced"));
        assert_eq!(message(&[labels.clone(), focal.clone()]), "");
        assert_eq!(message(&[labels.clone(), weights.clone()]), "");
        assert_eq!(message(&[focal.clone(), weights.clone()]), "");
        let all = message(&[labels, focal, weights]);
        assert!(all.contains("training.class_weights: expected none with `training.focal`"), "{all}");
        let none = message(&[("data.label_separator", text(""))]);
        assert!(none.contains("data.label_separator: expected at least one character"), "{none}");
    }

    #[test]
    fn mistakes_say_what_was_meant() {
        let mut config = Config::new(Task::Classify);
        for (name, value, expected) in [
            (
                "model.hiden",
                Value::Int(1),
                "expected a known setting, perhaps `model.hidden`, got `model.hiden`",
            ),
            ("hidden", Value::Int(1), "expected a known setting, perhaps `model.hidden`"),
            ("zzz", Value::Int(1), "expected one of `task`, `seed`"),
            ("model.hidden", Value::Text("x".into()), "expected a whole number from 0 on, got \"x\""),
            ("model.hidden", Value::Int(-1), "expected a whole number from 0 on, got -1"),
            ("model.cell", Value::Text("lsmt".into()), "expected one of `lstm`, `gru`, `rnn`"),
            ("model.dropout", Value::Float(f64::NAN), "expected a number, got NaN"),
        ] {
            assert!(config.set(name, &value).unwrap_err().to_string().contains(expected), "{name}");
        }
        config.model.dropout = 1.0;
        assert!(config.check().unwrap_err().to_string().contains("model.dropout: expected a share"));
    }
}
