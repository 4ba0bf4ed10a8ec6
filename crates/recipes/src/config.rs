//! The config of a recipe: the settings of the task, the data, the tokens, the model and the training.

use unpadded::executor::Executor;
use unpadded::metrics::edit_distance;
use unpadded::train::MOST_PARTS;
use unpadded::{AtCaller, Error, Precision, Result};

use super::sections::{
    Average, BatchRule, DataConfig, DecodingConfig, ModelConfig, RateSchedule, Rule, RunConfig, Sentences,
    Target, Task, TextConfig, Tokens, TrainingConfig,
};
use super::settings::Value;

/// Maximum number of recurrent layers. Each layer adds operators to the program, so compilation takes seconds with 64
/// layers and minutes with a thousand.
const MOST_LAYERS: usize = 64;

/// The config of a recipe: a value for every setting of a task.
///
/// ```
/// use unpadded_recipes::{Config, Task, Value};
/// let mut config = Config::new(Task::Classify);
/// config.set("model.hidden", &Value::Int(64))?;
/// assert_eq!(config.model.hidden, 64);
/// let error = config.set("model.hiden", &Value::Int(64)).unwrap_err().to_string();
/// assert!(error.contains("`model.hidden`"), "{error}");
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Config {
    /// Settings of the run: the task, the seed and the number of threads.
    pub run: RunConfig,
    /// Settings of the data: paths, columns and formats.
    pub data: DataConfig,
    /// Settings of the tokens and the vocabulary.
    pub text: TextConfig,
    /// Settings of the model: layers, widths, dropout and pooling.
    pub model: ModelConfig,
    /// Settings of the training: epochs, batch size, optimizer and loss.
    pub training: TrainingConfig,
    /// Settings for the decoding of answers.
    pub decoding: DecodingConfig,
}

impl Config {
    /// Sets a setting; `name` is the dotted name, such as `model.hidden`.
    ///
    /// # Errors
    /// If the task has no such setting (the error names the nearest one), if the value has the wrong type, or if
    /// `data.text` gets an empty list.
    #[track_caller]
    pub fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        let task = self.run.task;
        if !Self::has(task, name) {
            if let Some(other) = Task::ALL.iter().find(|other| Self::has(**other, name)) {
                let expected = format!("a setting of this task, not of `{}`", other.name());
                return Err(Error::new(
                    format!("settings of `{}`", task.name()),
                    expected,
                    format!("`{name}`"),
                ));
            }
            let known: Vec<String> = Self::keys(task).map(|key| key.to_string()).collect();
            let expected = match nearest(name, known.iter().map(String::as_str)) {
                Some(near) => format!("a known setting, perhaps `{near}`"),
                None => format!("one of `{}`", known.join("`, `")),
            };
            return Err(Error::new(format!("settings of `{}`", task.name()), expected, format!("`{name}`")));
        }
        if (name, value) == ("data.text", &Value::List(Vec::new())) {
            return Err(Error::new(name, "at least one column", value.to_string()));
        }
        let (section, key) = name.split_once('.').unwrap_or(("", name));
        match section {
            "data" => self.data.set(key, value),
            "text" => self.text.set(key, value),
            "model" => self.model.set(key, value),
            "training" => self.training.set(key, value),
            "decoding" => self.decoding.set(key, value),
            _ => self.run.set(key, value),
        }
    }

    /// Returns the value of a setting by its dotted name; `None` if the setting has no value.
    pub fn get(&self, name: &str) -> Option<Value> {
        let (section, key) = name.split_once('.').unwrap_or(("", name));
        match section {
            "data" => self.data.get(key),
            "text" => self.text.get(key),
            "model" => self.model.get(key),
            "training" => self.training.get(key),
            "decoding" => self.decoding.get(key),
            _ => self.run.get(key),
        }
    }

    /// Checks the value of every setting, and that no settings contradict each other.
    ///
    /// # Errors
    /// One error about all settings with an invalid value or a contradiction; [`Error::all`] returns the single errors.
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        let wrong = self.wrong();
        Error::several(&wrong).map_or(Ok(()), Err).at_caller()
    }

    fn wrong(&self) -> Vec<Error> {
        let Self { run, data, text, model, training, decoding } = self;
        let mut wrong = Vec::new();
        let mut need = |right: bool, name: &str, expected: &str, got: String| {
            if !right {
                wrong.push(Error::new(name, expected, got));
            }
        };
        if let (Task::Tag, Some(path)) = (run.task, &text.tokenizer) {
            need(false, "text.tokenizer", "none for `tag`, whose words are given", format!("`{path}`"));
        }
        if let Some(first) = data.first_index.filter(|&first| first > 1) {
            need(false, "data.first_index", "0 or 1", first.to_string());
        }
        if data.window.is_some() && data.train.is_none() {
            let expected = "none without `data.train`";
            need(false, "data.window", expected, data.window.unwrap_or(0).to_string());
        }
        let most = Executor::MOST_THREADS;
        let threads = format!("at most {most}");
        let largest = i64::MAX as u64;
        need(run.seed <= largest, "seed", &format!("at most {largest}"), run.seed.to_string());
        need(run.threads <= most, "threads", &threads, run.threads.to_string());
        let held = data.hold_out;
        if !(0.0..=0.5).contains(&held) {
            need(false, "data.hold_out", "a share from 0 to 0.5", held.to_string());
        } else if data.dev.is_none() && data.fold.is_none() && data.train.is_some() {
            let expected = "a share above 0, or `data.dev`";
            need(held > 0.0, "data.hold_out", expected, "0 and no `data.dev`".to_owned());
        }
        let shares = [
            ("model.dropout", model.dropout),
            ("model.embedding_dropout", model.embedding_dropout.unwrap_or(0.0)),
            ("model.recurrent_dropout", model.recurrent_dropout),
            ("model.word_dropout", model.word_dropout),
            ("training.label_smoothing", training.label_smoothing.unwrap_or(0.0)),
            ("training.momentum", training.momentum),
        ];
        for (name, share) in shares {
            need((0.0..1.0).contains(&share), name, "a share from 0 to below 1", share.to_string());
        }
        let counts_from_0 = [
            ("training.weight_decay", training.weight_decay.unwrap_or(0.0)),
            ("training.focal", training.focal),
            ("decoding.length_penalty", decoding.length_penalty),
        ];
        for (name, got) in counts_from_0 {
            need((0.0..=1e3).contains(&got), name, "a number from 0 to 1,000", got.to_string());
        }
        let decay = training.averaging_decay;
        let is_decay = decay > 0.0 && decay < 1.0;
        need(is_decay, "training.averaging_decay", "a number above 0 and below 1", decay.to_string());
        for (name, got) in [("training.rate", training.rate), ("training.clip", training.clip)] {
            // Optimizers compute with the learning rate and the clipping norm as `f32`.
            let is_rate = got > 0.0 && got <= f64::from(f32::MAX);
            need(is_rate, name, "a number above 0 and at most 3.4e38", format!("{got:e}"));
        }
        let lower = training.lower_rates;
        need(
            lower > 0.0 && lower <= 1.0,
            "training.lower_rates",
            "a number above 0, at most 1",
            lower.to_string(),
        );
        if training.from.is_none() {
            let unfreeze = training.unfreeze;
            let none = "none without `training.from`";
            need(unfreeze == 0, "training.unfreeze", none, unfreeze.to_string());
            need(lower == 1.0, "training.lower_rates", none, lower.to_string());
        }
        let counts = [
            ("data.window", data.window.unwrap_or(1)),
            ("text.min_count", text.min_count),
            ("text.max_size", text.max_size.unwrap_or(1)),
            ("model.embedding", model.embedding),
            ("model.hidden", model.hidden),
            ("model.layers", model.layers),
            ("training.epochs", training.epochs as usize),
            ("training.batch", training.batch),
            ("training.halve_after", training.halve_after as usize),
            ("decoding.beam", decoding.beam),
            ("decoding.n_best", decoding.n_best),
        ];
        for (name, count) in counts {
            need(count > 0, name, "at least 1", count.to_string());
        }
        if let Some(parts) = training.parts {
            let expected = format!("a power of two up to {MOST_PARTS}");
            let right = parts.is_power_of_two() && parts <= MOST_PARTS;
            need(right, "training.parts", &expected, parts.to_string());
        }
        self.contradictions(&mut wrong);
        wrong
    }

    /// Adds an error for each setting that contradicts another setting.
    fn contradictions(&self, wrong: &mut Vec<Error>) {
        let Self { run, data, text, model, training, decoding } = self;
        let mut need = |right: bool, name: &str, expected: &str, got: String| {
            if !right {
                wrong.push(Error::new(name, expected, got));
            }
        };
        let layers = format!("at most {MOST_LAYERS}");
        need(model.layers <= MOST_LAYERS, "model.layers", &layers, model.layers.to_string());
        let (n_best, beam) = (decoding.n_best, decoding.beam);
        need(
            n_best <= beam,
            "decoding.n_best",
            &format!("at most `decoding.beam`, {beam}"),
            n_best.to_string(),
        );
        let rule = training.optimizer.name();
        let is_sgd = training.optimizer == Rule::Sgd;
        let momentum = format!("0 with the optimizer `{rule}`: only `sgd` has a momentum");
        need(
            is_sgd || training.momentum == 0.0,
            "training.momentum",
            &momentum,
            training.momentum.to_string(),
        );
        let of_classify = run.task == Task::Classify;
        let one = format!("one column of `{}`", run.task.name());
        need(of_classify || data.text.len() <= 1, "data.text", &one, format!("{} columns", data.text.len()));
        let spelt = "false with `text.tokens = \"characters\"`, whose tokens are characters already";
        let by_characters =
            of_classify && text.tokens == Some(Tokens::Characters) && text.tokenizer.is_none();
        need(!(model.characters && by_characters), "model.characters", spelt, "true".to_owned());
        let with_dev = "false without `data.dev`: phrases of a sentence would be on both sides of a hold-out";
        need(!data.phrases || data.dev.is_some(), "data.phrases", with_dev, "true".to_owned());
        let frozen = "false without `text.vectors`";
        need(!text.freeze || text.vectors.is_some(), "text.freeze", frozen, "true".to_owned());
        let of_labels = data.target != Target::Number;
        let numbers = "none with `data.target = \"number\"`, whose loss is the squared error";
        need(
            of_labels || training.class_weights.is_empty(),
            "training.class_weights",
            numbers,
            training.class_weights.join(", "),
        );
        need(
            of_labels || training.focal == 0.0,
            "training.focal",
            "0 with `data.target = \"number\"`",
            training.focal.to_string(),
        );
        let weighed = of_classify && data.target == Target::Labels && training.focal > 0.0;
        need(
            !weighed || training.class_weights.is_empty(),
            "training.class_weights",
            "none with `training.focal` and `data.target = \"labels\"`: set only one of the two",
            training.class_weights.join(", "),
        );
        need(
            training.precision == Precision::Bf16 || !training.allow_slow,
            "training.allow_slow",
            "false unless `training.precision` is `bf16`",
            "true".to_owned(),
        );
        let halves = matches!(training.schedule, RateSchedule::Halve | RateSchedule::Plateau);
        need(
            training.batching == BatchRule::Texts || halves || training.schedule == RateSchedule::Constant,
            "training.schedule",
            "`constant`, `halve` or `plateau` with `training.batching = \"memory\"`: the number of steps is not known in advance",
            training.schedule.name().to_owned(),
        );
        let unset = TrainingConfig::default();
        let halve = "the default unless `training.schedule` is `halve` or `plateau`";
        need(
            halves || training.halve_after == unset.halve_after,
            "training.halve_after",
            halve,
            training.halve_after.to_string(),
        );
        let averages = training.averaging != Average::None;
        let averaged = "the default without `training.averaging`";
        let from = training.averaging_from;
        need(averages || from == unset.averaging_from, "training.averaging_from", averaged, from.to_string());
        let below = format!("below the epochs, {}", training.epochs);
        need(
            !averages || from == unset.averaging_from || from < training.epochs,
            "training.averaging_from",
            &below,
            from.to_string(),
        );
        let of_ema = training.averaging == Average::Ema || training.averaging_decay == unset.averaging_decay;
        let ema = "the default unless `training.averaging` is `ema`";
        need(of_ema, "training.averaging_decay", ema, training.averaging_decay.to_string());
        let parted = "at least one character, as `;`";
        need(!data.label_separator.is_empty(), "data.label_separator", parted, "none".to_owned());
        if let Some(threshold) = decoding.threshold {
            let several = data.target == Target::Labels;
            need(
                several,
                "decoding.threshold",
                "none unless `data.target` is `labels`",
                threshold.to_string(),
            );
        }
        let one = data.target == Target::Label;
        let smoothing = training.label_smoothing.unwrap_or(0.0);
        need(
            one || smoothing == 0.0,
            "training.label_smoothing",
            "0 unless `data.target` is `label`",
            smoothing.to_string(),
        );
        need(
            training.focal == 0.0 || smoothing == 0.0,
            "training.focal",
            "0 with `training.label_smoothing`: set only one of the two",
            training.focal.to_string(),
        );
        if model.documents != Sentences::None {
            let name = model.documents.name().to_owned();
            need(data.pair.is_none(), "model.documents", "`none` with `data.pair`", name.clone());
            need(!model.characters, "model.documents", "`none` with `model.characters`", name);
        }
    }

    /// Returns the label smoothing: the value in the config or, without a value, the default of the task.
    pub(super) fn label_smoothing(&self) -> f64 {
        let Self { run, data, training, .. } = self;
        let smooths = match run.task {
            Task::Translate => true,
            Task::Classify => data.target == Target::Label && training.focal == 0.0,
            Task::Tag | Task::Lm => false,
        };
        training.label_smoothing.unwrap_or(if smooths { 0.1 } else { 0.0 })
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
        for key in Self::keys(self.run.task) {
            if key.section != section {
                section = key.section;
                text += &format!("\n[{section}]\n");
            }
            let value = self.get(&key.to_string());
            if comments {
                text += &format!("#{}\n", key.doc);
            }
            match value {
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
    let distance = |of: &&str| {
        let whole = edit_distance(&letters(name), &letters(of));
        // A name with the right key in a wrong table, such as `data.hidden`, counts as at most one wrong letter.
        if last(name) == last(of) { whole.min(1) } else { whole }
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
            assert!(
                Config::keys(task).all(|key| commented.contains(&format!("{} =", key.name))),
                "{commented}"
            );
        }
        Ok(())
    }

    #[test]
    fn settings_that_would_not_act_are_refused() {
        let said = |set: &[(&str, Value)]| {
            let mut config = Config::new(Task::Classify);
            set.iter().for_each(|(name, value)| config.set(name, value).unwrap());
            config.check().err().map(|e| format!("{e:#}")).unwrap_or_default()
        };
        let text = |text: &str| Value::Text(text.into());
        let (labels, focal) = (("data.target", text("labels")), ("training.focal", Value::Int(2)));
        let weights = ("training.class_weights", text("balanced"));
        assert_eq!(said(&[labels.clone(), focal.clone()]), "");
        assert_eq!(said(&[labels.clone(), weights.clone()]), "");
        assert_eq!(said(&[focal.clone(), weights.clone()]), "");
        let all = said(&[labels, focal, weights]);
        assert!(all.contains("training.class_weights: expected none with `training.focal`"), "{all}");
        let none = said(&[("data.label_separator", text(""))]);
        assert!(none.contains("data.label_separator: expected at least one character"), "{none}");
    }

    #[test]
    fn mistakes_say_what_was_meant() {
        let mut config = Config::new(Task::Classify);
        let mut said = |name: &str, value: Value| config.set(name, &value).unwrap_err().to_string();
        assert!(
            said("model.hiden", Value::Int(1))
                .contains("expected a known setting, perhaps `model.hidden`, got `model.hiden`")
        );
        assert!(said("hidden", Value::Int(1)).contains("expected a known setting, perhaps `model.hidden`"));
        assert!(said("zzz", Value::Int(1)).contains("expected one of `task`, `seed`"));
        assert!(
            said("model.hidden", Value::Text("x".into()))
                .contains("expected a whole number from 0 on, got \"x\"")
        );
        assert!(said("model.hidden", Value::Int(-1)).contains("expected a whole number from 0 on, got -1"));
        assert!(
            said("model.cell", Value::Text("lsmt".into())).contains("expected one of `lstm`, `gru`, `rnn`")
        );
        assert!(said("model.dropout", Value::Float(f64::NAN)).contains("expected a number, got NaN"));
        config.model.dropout = 1.0;
        assert!(config.check().unwrap_err().to_string().contains("model.dropout: expected a share"));
    }
}
