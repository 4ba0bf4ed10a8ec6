//! Parses config files in TOML; each mistake in a file is an error with the line.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};
use unpadded::{AtCaller, Error, ErrorKind, Result};

use super::config::{Config, nearest};
use super::rows;
use super::sections::Task;
use super::settings::{SettingKey, Value};
use super::space::{Space, Values};

/// Maximum size of a config file in bytes; a config with every setting has only a few thousand bytes.
const MOST: u64 = 1 << 20;
/// Settings in the default search space of `classify` that, as all of `[text]`, have no effect on rows of features.
const WORDS: [&str; 3] = ["model.bidirectional", "model.pool", "model.word_dropout"];

impl Config {
    /// Parses a config in TOML, as [`Self::to_toml`] and the command `unpadded init` write it. Settings that the text
    /// does not have get the defaults of the task.
    ///
    /// ```
    /// use unpadded_recipes::{Config, Task};
    /// let config = Config::from_toml("task = \"tag\"\n[model]\nhidden = 64\n")?;
    /// assert_eq!((config.run.task, config.model.hidden), (Task::Tag, 64));
    /// assert_eq!(Config::from_toml(&config.to_toml())?, config);
    /// let error = Config::from_toml("[model]\nhidden = \"wide\"").unwrap_err().to_string();
    /// assert!(error.starts_with("config:2: model.hidden: expected a whole number from 0 on, got \"wide\""), "{error}");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// One error about all settings that are unknown or invalid, each with its line and the expected value;
    /// [`Error::all`] returns the single errors.
    #[track_caller]
    pub fn from_toml(text: &str) -> Result<Self> {
        parse("config", text).map(|(config, _)| config).at_caller()
    }

    /// Reads a config file; an error names the file and the line.
    ///
    /// # Errors
    /// The errors of [`Self::from_toml`]; also if the file cannot be read, has more than 1 MiB, or is not UTF-8.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        load(path).map(|(config, _)| config).at_caller()
    }
}

impl Space {
    /// Reads the table `[space]` of a config file. Each setting in the table has a list of values, or a range
    /// `{ from = …, to = …, log = true }`. Returns `None` if the file has no table `[space]`.
    ///
    /// # Errors
    /// The errors of [`Config::load`]; also one error for each setting that a search cannot vary, and for each invalid
    /// value, with its line.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Option<Self>> {
        load(path.as_ref()).map(|(_, space)| space).at_caller()
    }

    /// Returns the default search space for the task of a config: the settings that matter most. Settings that the
    /// config already decides are left out:
    /// - If the config has pre-trained vectors, `model.embedding` is left out.
    /// - If the config sets `training.from`, all settings of the text and the model except `model.dropout` are left
    ///   out.
    /// - If the data are rows of features, the settings that concern words are left out.
    ///
    /// # Errors
    /// If the config is invalid, or names an unknown data format.
    #[track_caller]
    pub fn of(config: &Config) -> Result<Self> {
        let text = format!("{}\n[space]\n{}", config.to_toml(), Self::lines(config.run.task));
        let space = parse("space", &text).at_caller()?.1.unwrap_or_default();
        let train = config.data.train.as_ref().filter(|_| config.run.task == Task::Classify);
        let of_rows = train.map(|train| rows::are_meant(config, &unpadded_text::path_of_text(train)));
        let of_rows = of_rows.transpose().at_caller()?;
        let of_words = |name: &str| name.starts_with("text.") || WORDS.contains(&name);
        let decided = |name: &str| match config.training.from {
            _ if of_rows == Some(true) && of_words(name) => true,
            Some(_) => name != "model.dropout" && !name.starts_with("training."),
            None => name == "model.embedding" && config.text.vectors.is_some(),
        };
        Ok(space.without(decided))
    }
}

fn load(path: &Path) -> Result<(Config, Option<Space>)> {
    let what = || format!("config `{}`", path.display());
    let mut bytes = Vec::new();
    // The number of bytes is limited, since a device file may never end.
    let read = File::open(path).and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes));
    read.map_err(|e| Error::of(ErrorKind::Io, what(), "a file that can be read", e.to_string()))?;
    if bytes.len() as u64 > MOST {
        let error = Error::of(ErrorKind::Format, what(), format!("a config of at most {MOST} bytes"), "more");
        return Err(error.noted("`data.train` (`--train`) names a file of texts"));
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::of(ErrorKind::Format, what(), "TOML in UTF-8", format!("invalid UTF-8 from byte {at} on"))
    })?;
    parse(&path.display().to_string(), &text)
}

/// Parses a config and its table `[space]`; one error has all mistakes, and `name` names the config in it.
fn parse(name: &str, text: &str) -> Result<(Config, Option<Space>)> {
    let line = |at: usize| 1 + text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count();
    let location = |at: usize| format!("{name}:{}", line(at));
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(e) => {
            let at = e.span().map_or(0, |span| span.start);
            return Err(Error::of(ErrorKind::Format, location(at), "TOML", e.message()));
        }
    };
    let mut task = Task::Classify;
    if let Some((key, value)) = table.get_key_value("task") {
        let found = value.get_ref().as_str();
        match found.and_then(Task::from_name) {
            Some(found) => task = found,
            None => {
                let names: Vec<&str> = Task::ALL.iter().map(|task| task.name()).collect();
                let got = found.map_or_else(|| "no text".to_owned(), |found| format!("`{found}`"));
                let expected = format!("one of `{}`", names.join("`, `"));
                return Err(Error::new("task", expected, got).within(&location(key.span().start)));
            }
        }
    }
    let mut config = Config::new(task);
    let mut sections: Vec<&str> =
        Config::keys(task).map(|key| key.section).filter(|s| !s.is_empty()).collect();
    sections.dedup();
    let (mut settings, mut wrong, mut searched) = (Vec::new(), Vec::<(usize, Error)>::new(), None);
    for (key, value) in &table {
        let (name, at) = (key.get_ref(), key.span().start);
        match value.get_ref() {
            DeValue::Table(inner) if sections.contains(&name.as_ref()) => {
                for (inside, value) in inner {
                    let path = format!("{name}.{}", inside.get_ref());
                    settings.push((path, inside.span().start, value.get_ref()));
                }
            }
            DeValue::Table(inner) if name.as_ref() == SPACE => searched = Some(inner),
            DeValue::Table(_) => {
                let expected = format!("one of `[{}]`", sections.join("]`, `["));
                let error = Error::new("table", expected, format!("`[{name}]`")).within(&location(at));
                wrong.push((at, advised(error, task, name, &sections)));
            }
            other => settings.push((name.to_string(), at, other)),
        }
    }
    for (path, at, value) in &settings {
        let expected = "a number, a text, a list of texts or numbers, true or false";
        let value = scalar(value).ok_or_else(|| Error::new(path, expected, "a value of another type"));
        let outcome = value.and_then(|value| config.set(path, &value));
        wrong.extend(outcome.err().map(|e| (*at, e.within(&location(*at)))));
    }
    wrong.sort_by_key(|(at, _)| *at);
    let mut wrong: Vec<Error> = wrong.into_iter().map(|(_, error)| error).collect();
    if wrong.is_empty() {
        let makes_no_sense = config.check().err();
        let placed = |e: &Error| match settings.iter().find(|(path, ..)| path == e.what()) {
            Some((_, at, _)) => e.clone().within(&location(*at)),
            None => e.clone().within(name),
        };
        wrong.extend(makes_no_sense.iter().flat_map(Error::all).map(placed));
    }
    let space = searched.map(|table| space(table, &config, &location));
    wrong.extend(space.iter().flat_map(|(_, wrong)| wrong.iter().cloned()));
    Error::several(&wrong).map_or(Ok((config, space.map(|(space, _)| space))), Err)
}

const SPACE: &str = "space";

/// Parses a search space: the settings with valid values, and one error for each other setting.
fn space(table: &DeTable<'_>, config: &Config, location: &dyn Fn(usize) -> String) -> (Space, Vec<Error>) {
    let (mut space, mut wrong) = (Space::default(), Vec::new());
    let mut add = |name: &str, at: usize, value: &DeValue<'_>| {
        let added = values(name, value).and_then(|values| space.add(config, name, values));
        wrong.extend(added.err().map(|e| (at, e.within(&location(at)))));
    };
    for (key, value) in table {
        match value.get_ref() {
            // TOML parses the line `model.hidden = …` as a table `model` with the key `hidden`.
            DeValue::Table(inner) if !inner.contains_key("from") && !key.get_ref().contains('.') => {
                for (inside, value) in inner {
                    let name = format!("{}.{}", key.get_ref(), inside.get_ref());
                    add(&name, inside.span().start, value.get_ref());
                }
            }
            other => add(key.get_ref(), key.span().start, other),
        }
    }
    wrong.sort_by_key(|(at, _)| *at);
    (space, wrong.into_iter().map(|(_, error)| error).collect())
}

fn values(name: &str, value: &DeValue<'_>) -> Result<Values> {
    let wrong = |got: &str| {
        let expected =
            "a list of values, or `{ from = …, to = … }`, with `log = true` for even steps of the logarithm";
        Err(Error::new(name, expected, got))
    };
    match value {
        DeValue::Array(table) => {
            let values = table.iter().map(|value| scalar(value.get_ref())).collect::<Option<_>>();
            values.map_or_else(
                || wrong("a list with a value of another type"),
                |table| Ok(Values::OneOf(table)),
            )
        }
        DeValue::Table(table) => {
            let known = ["from", "to", "log"];
            if let Some((other, _)) = table.iter().find(|(key, _)| !known.contains(&&**key.get_ref())) {
                return wrong(&format!("a range with the key `{}`", other.get_ref()));
            }
            let table = |name: &str| table.get(name).and_then(|value| scalar(value.get_ref()));
            match (table("from"), table("to"), table("log").unwrap_or(Value::Flag(false))) {
                (Some(from), Some(to), Value::Flag(log)) => Ok(Values::Between { from, to, log }),
                (_, None, _) => wrong("a range without `to`"),
                (None, ..) => wrong("a range without `from`"),
                _ => wrong("another value of `log` than true or false"),
            }
        }
        _ => wrong("a single value: set a value for all trials in a table above `[space]`"),
    }
}

/// Adds a hint to the error about an unknown table: the table or setting that was probably meant.
fn advised(error: Error, task: Task, name: &str, sections: &[&str]) -> Error {
    let setting = Config::keys(task).find(|key| key.name == name);
    match (setting, nearest(name, sections.iter().copied())) {
        (Some(SettingKey { section: "", name, .. }), _) => {
            error.noted(format!("`{name}` is a setting: write `{name} = …` above all tables"))
        }
        (Some(key), _) => {
            error.noted(format!("`{key}` is a setting: write `{} = …` below `[{}]`", key.name, key.section))
        }
        (None, Some(near)) => error.noted(format!("perhaps `[{near}]` is meant")),
        (None, None) => error,
    }
}

fn scalar(value: &DeValue<'_>) -> Option<Value> {
    match value {
        DeValue::String(text) => Some(Value::Text(text.to_string())),
        DeValue::Boolean(flag) => Some(Value::Flag(*flag)),
        DeValue::Integer(number) => integer(number),
        DeValue::Float(number) => number.as_str().replace('_', "").parse().ok().map(Value::Float),
        DeValue::Array(items) => {
            // Numbers in a list become texts: a column may be named by its number, and a label may be a number.
            let text = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                DeValue::Integer(number) => integer(number).map(|value| value.to_string()),
                DeValue::Float(number) => Some(number.as_str().to_owned()),
                _ => None,
            };
            items.iter().map(text).collect::<Option<_>>().map(Value::List)
        }
        _ => None,
    }
}

fn integer(number: &DeInteger<'_>) -> Option<Value> {
    let digits = number.as_str().replace('_', "");
    i64::from_str_radix(&digits, number.radix()).ok().map(Value::Int)
}

impl Value {
    /// Parses a list of texts or numbers in TOML, such as `["title", "body"]`; `None` for any other text.
    pub fn list(text: &str) -> Option<Self> {
        scalar(DeValue::parse(text).ok()?.get_ref()).filter(|value| matches!(value, Value::List(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_have_values_that_make_sense() -> Result<()> {
        for &task in Task::ALL {
            let config = Config::new(task);
            let space = Space::of(&config)?;
            assert_eq!(space.names().count(), Space::lines(task).lines().count());
            let text = format!("{}[space]\n{space}", config.commented());
            assert_eq!(parse("again", &text)?, (config.clone(), Some(space.clone())));
            let drawn = (1..=50).map(|number| space.draw(&config, 3, number)).collect::<Result<Vec<_>>>()?;
            drawn.iter().try_for_each(Config::check)?;
            assert!(drawn.iter().enumerate().all(|(at, one)| !drawn[at + 1..].contains(one)));
        }
        let mut config = Config::new(Task::Classify);
        config.text.vectors = Some("vectors".into());
        assert!(Space::of(&config)?.names().all(|name| name != "model.embedding"));
        config.data.train =
            Some(concat!(env!("CARGO_MANIFEST_DIR"), "/../../datasets/clicks/train.libsvm").into());
        let of_rows = Space::of(&config)?;
        let of_words = |name: &str| name.starts_with("text.") || WORDS.contains(&name);
        assert!(!of_rows.names().any(of_words), "{of_rows}");
        assert!(of_rows.names().any(|name| name == "model.hidden"), "{of_rows}");
        config.data.train = None;
        config.training.from = Some("run".into());
        let from = Space::of(&config)?;
        assert!(from.names().all(|name| name == "model.dropout" || name.starts_with("training.")));
        let quoted =
            "[space]\n\"model.hidden\" = [1, 2]\ntraining.rate = { from = 1e-3, to = 1, log = true }\n";
        let space = parse("quoted", quoted)?.1.unwrap_or_default();
        assert_eq!(space.names().collect::<Vec<_>>(), ["model.hidden", "training.rate"]);
        Ok(())
    }

    #[test]
    fn mistakes_in_a_space_have_their_line() {
        let message = wrong(
            "seed = 2\n[space]\nmodel.hiden = [1]\nmodel.hidden = []\nmodel.dropout = { from = 0.1, to = 1.5 }\n\
             training.rate = { from = 0, to = 1, log = true }\ntraining.batch = 5\ntraining.epochs = [1, 2]\n\
             data.train = [\"a\"]\ntraining.clip = { from = 1 }\nmodel.cell = [\"lsmt\"]\ntext.min_count = { from = 2, upto = 3 }\n",
        );
        for expected in [
            "run.toml:3: settings of `classify`: expected a known setting, perhaps `model.hidden`",
            "run.toml:4: model.hidden: expected a list of values, got an empty list",
            "run.toml:5: model.dropout: expected a share",
            "run.toml:6: training.rate: expected two numbers above 0 in `from` and `to`, the smaller one first",
            "run.toml:7: training.batch: expected a list of values, or `{ from",
            "run.toml:8: space: expected a setting of `text`, `model` or `training` except `training.epochs`, got",
            "run.toml:9: space: expected a setting of",
            "run.toml:10: training.clip: expected",
            "run.toml:11: model.cell: expected one of `lstm`",
            "run.toml:12: text.min_count: expected",
        ] {
            assert!(message.contains(expected), "{expected}: {message}");
        }
    }

    fn wrong(text: &str) -> String {
        parse("run.toml", text).err().map(|e| format!("{e:#}")).unwrap_or_default()
    }

    #[test]
    fn every_setting_comes_back_from_toml() -> Result<()> {
        for &task in Task::ALL {
            assert_eq!(Config::from_toml(&Config::new(task).commented())?, Config::new(task));
            for key in Config::keys(task).filter(|key| key.name != "task") {
                let (mut config, name) = (Config::new(task), key.to_string());
                let needs = match key.name {
                    "freeze" => Some(("text.vectors", "v.txt")),
                    "halve_after" => Some(("training.schedule", "halve")),
                    "averaging_from" | "averaging_decay" => Some(("training.averaging", "ema")),
                    "momentum" => Some(("training.optimizer", "sgd")),
                    "batching" => Some(("training.schedule", "constant")),
                    "allow_slow" => Some(("training.precision", "bf16")),
                    "phrases" => Some(("data.dev", "d.tsv")),
                    "threshold" => Some(("data.target", "labels")),
                    "window" => Some(("data.train", "t.tsv")),
                    "unfreeze" | "lower_rates" => Some(("training.from", "runs/lm-1")),
                    _ => None,
                };
                needs.into_iter().try_for_each(|(name, text)| config.set(name, &Value::Text(text.into())))?;
                let value = match (key.name, config.get(&name)) {
                    ("tokens" | "target_tokens", _) => Value::Text("whitespace".into()),
                    ("cell", _) => Value::Text("rnn".into()),
                    ("pool", _) => Value::Text("mean".into()),
                    ("fold", _) => Value::Text("2/5".into()),
                    ("target", _) => Value::Text("number".into()),
                    ("threshold", _) => Value::Text("per-label".into()),
                    ("documents", _) => Value::Text("lines".into()),
                    ("optimizer", _) => Value::Text("sgd".into()),
                    ("schedule", _) => Value::Text("plateau".into()),
                    ("batching", _) => Value::Text("memory".into()),
                    ("precision", _) => Value::Text("bf16".into()),
                    ("averaging", _) => Value::Text("mean".into()),
                    ("tables", _) => Value::Text("dealt".into()),
                    ("text", _) if key.section == "data" && task == Task::Classify => {
                        Value::List(vec!["a \"b\"".into(), "c".into()])
                    }
                    ("class_weights", _) => Value::List(vec!["a=b=2".into(), "c, d=0.5".into()]),
                    ("header", _) => Value::Flag(true),
                    ("window" | "first_index" | "max_size" | "parts" | "skip_lines", _) => Value::Int(1),
                    ("memory", _) => Value::Text("4 GB".into()),
                    ("embedding_dropout" | "weight_decay", _) => Value::Float(0.25),
                    ("label_smoothing", _) => Value::Float(0.05),
                    (_, Some(Value::Flag(flag))) => Value::Flag(!flag),
                    (_, Some(Value::Int(number))) => Value::Int(number + 1),
                    (_, Some(Value::Float(_))) => Value::Float(2.5e-7),
                    _ => Value::Text(format!("{name} \"b\" \\ \u{7}\u{85}\t\n# é")),
                };
                let before = config.get(&name);
                config.set(&name, &value)?;
                assert!(config.get(&name) != before, "{name}");
                for text in [config.to_toml(), config.commented()] {
                    assert_eq!(Config::from_toml(&text)?, config, "{text}");
                }
            }
        }
        Ok(())
    }

    #[test]
    fn each_condition_of_a_setting_holds() {
        for (task, other, expected) in [
            ("classify", "training.averaging = \"ema\"", "`whole` with `training.averaging`"),
            ("lm", "model.tied = true", "`whole` with `model.tied`"),
            ("classify", "training.optimizer = \"lamb\"", "`whole` with `lamb`"),
            ("classify", "training.from = \"runs/a\"", "`whole` with `text.vectors` or `training.from`"),
        ] {
            let text = format!("task = \"{task}\"\n{other}\ntraining.tables = \"dealt\"\n");
            let message = wrong(&text);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn mistakes_have_their_line() {
        let message = wrong("task = \"classify\"\n[model]\nhiden = 3\nlayers = \"two\"\n[modle]\nx = 1\n");
        for expected in [
            "run.toml:3: settings of `classify`: expected a known setting, perhaps `model.hidden`",
            "run.toml:4: model.layers: expected a whole number from 0 on, got \"two\"",
            "run.toml:5: table: expected one of `[data]`, `[text]`, `[model]`, `[training]`, `[decoding]`, got `[modle]`; perhaps `[model]` is meant",
        ] {
            assert!(message.contains(expected), "{message}");
        }
        let message = wrong("[train]\ntrain = \"a.tsv\"\n");
        let expected = "got `[train]`; `data.train` is a setting: write `train = …` below `[data]`";
        assert!(message.contains(expected), "{message}");
        let message = wrong("[model\n");
        assert!(message.starts_with("run.toml:1: expected TOML, got "), "{message}");
        assert!(wrong("task = \"clasify\"").contains("run.toml:1: task: expected one of `classify`"));
        let message = wrong("[data]\ntext = []\n");
        assert!(message.contains("run.toml:2: data.text: expected at least one column, got []"), "{message}");
        let list = Value::List(vec!["1".into(), "b".into(), "2.50".into()]);
        assert_eq!(Value::list("[1, \"b\", 2.50]"), Some(list));
        assert!(wrong("\n[model]\ndropout = 1.5").contains("run.toml:3: model.dropout: expected a share"));
        assert!(wrong("seed = [true]").contains("run.toml:1: seed: expected a number, a text"));
        let error = Config::load("no such file.toml").unwrap_err().to_string();
        let expected = "config `no such file.toml`: expected a file that can be read, got";
        assert!(error.starts_with(expected), "{error}");
    }
}
