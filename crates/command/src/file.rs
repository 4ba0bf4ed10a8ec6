//! The config files of run folders, and the flags `--set` that override their settings.

use std::path::Path;

use toml::de::DeTable;
use unpadded_recipes::{Config, Model, Value};
use unpadded_text::QuestionKind;

use super::outcome::{Outcome, UsageError, bad, plain, word};

/// Loads the config of a run folder, to resume its training; refuses a truncated config, which would set defaults.
pub(crate) fn resumed(folder: &Path) -> Outcome<Config> {
    let path = super::run::config(folder);
    let config = super::run::load_config(folder)?;
    let text = std::fs::read_to_string(&path)?;
    let table = DeTable::parse(&text)?;
    let written = |name: &str| table.get_ref().get_key_value(name).is_some();
    let tables = Config::keys(config.run.task).map(|key| key.section).filter(|name| !name.is_empty());
    let missing = match written("task") {
        false => Some("no `task`".to_owned()),
        true => tables.into_iter().find(|name| !written(name)).map(|name| format!("no table `[{name}]`")),
    };
    let Some(missing) = missing else { return Ok(config) };
    let (name, folder) = (path.display(), word(folder));
    bad(format!(
        "{name}: expected the config that the training has written, got a config with {missing}; `unpadded inspect {folder}` \
         prints the config of the checkpoint"
    ))
}

/// Returns the config of a model's training, changed by the flags `--set name=value`.
pub(crate) fn of_model(model: &Model, flags: &[String]) -> Outcome<Config> {
    let mut config = model.trained_by().clone();
    // The checkpoint has a note of the columns of the training files, so only the columns that a flag sets are kept.
    if model.predictor().note("read as").is_some() {
        (config.data.text, config.data.label) = (Vec::new(), Vec::new());
        // For columns of words, the note also has the format and the header; a table of texts has its own.
        if model.asking() == Some(QuestionKind::Words) {
            (config.data.format, config.data.header) = (None, None);
        }
    }
    for flag in flags {
        let name = flag.split('=').next().unwrap_or_default().trim();
        let is_known = Config::keys(config.run.task).any(|key| key.to_string() == name);
        let of_file = name.strip_prefix("data.").is_some_and(|name| !OF_TRAINING.contains(&name));
        if is_known && !of_file && !name.starts_with("decoding.") {
            return bad(format!(
                "--set {flag}: expected a setting of how FILE is read (`data.text`, `data.label`, …) or of `decoding`, got a setting of the training, which a trained model keeps"
            ));
        }
        set(&mut config, flag)?;
    }
    if !flags.is_empty() {
        config.check().usage()?;
    }
    Ok(config)
}

/// The settings in `[data]` that only a training uses, so that `--set` cannot change them for a trained model.
const OF_TRAINING: [&str; 7] = ["train", "dev", "test", "hold_out", "fold", "target", "phrases"];

/// Sets a flag `--set name=value`; any value except a number, a list, `true` and `false` is a text.
pub(crate) fn set(config: &mut Config, flag: &str) -> Outcome<()> {
    let Some((name, text)) = flag.split_once('=') else {
        return bad(format!("--set {flag}: expected name=value, as model.hidden=256, got no `=`"));
    };
    // The value of a separator setting may be a space, so a value of only spaces is not trimmed.
    let (name, text) = (name.trim(), if text.trim().is_empty() { text } else { text.trim() });
    if name == "task" {
        return bad(format!(
            "--set {flag}: expected a setting of the task, got the task itself, which --task sets"
        ));
    }
    let value = match (text.parse::<i64>(), text.parse::<f64>(), text.parse::<bool>()) {
        (Ok(number), ..) => Value::Int(number),
        (_, Ok(number), _) => Value::Float(number),
        (.., Ok(flag)) => Value::Flag(flag),
        _ if text.starts_with('[') => match Value::list(text) {
            Some(list) => list,
            None if takes_lists(config, name) => {
                return bad(format!(
                    "--set {flag}: expected a list as TOML writes it, as --set '{name}=[\"a\", \"b\"]', got `{text}`; a shell removes quotation marks that are not inside other quotation marks"
                ));
            }
            None => Value::Text(text.to_owned()),
        },
        _ => Value::Text(text.trim_matches('"').to_owned()),
    };
    let Err(e) = config.set(name, &value) else { return Ok(()) };
    if matches!(value, Value::List(_)) && takes_lists(config, name) {
        return bad(format!("--set {flag}: {}", plain(&e)));
    }
    // A number may be meant as a text, such as the name of the column `2`, whose quotation marks the shell removes.
    match config.set(name, &Value::Text(text.to_owned())) {
        Ok(()) => Ok(()),
        Err(_) => bad(format!("--set {flag}: {}", plain(&e))),
    }
}

/// Returns whether the value of a setting may be a list.
fn takes_lists(config: &Config, name: &str) -> bool {
    config.clone().set(name, &Value::List(vec![String::new()])).is_ok()
}

#[cfg(test)]
mod tests {
    use unpadded_recipes::Task;

    use super::*;

    #[test]
    fn flags_set_what_files_set() -> Outcome<()> {
        let mut config = Config::new(Task::Classify);
        for flag in ["model.hidden=256", "training.rate=1e-3", "text.lowercase=false", "data.train=a b.tsv"] {
            set(&mut config, flag)?;
        }
        assert_eq!((config.model.hidden, config.training.rate, config.text.lowercase), (256, 1e-3, false));
        assert_eq!(config.data.train.as_deref(), Some("a b.tsv"));
        let error = set(&mut config, "model.cell=lsmt").map_err(|e| e.to_string()).err().unwrap_or_default();
        assert!(error.contains("--set model.cell=lsmt: model.cell: expected one of `lstm`"), "{error}");
        assert!(set(&mut config, "x").is_err());
        set(&mut config, "data.text=[1, 2]")?;
        assert_eq!(config.data.text, ["1", "2"]);
        for (flag, expected) in [
            (
                "data.text=[title, body]",
                "expected a list as TOML writes it, as --set 'data.text=[\"a\", \"b\"]'",
            ),
            ("data.text=[]", "--set data.text=[]: data.text: expected at least one column, got []"),
        ] {
            let error = set(&mut config, flag).map_err(|e| e.to_string()).err().unwrap_or_default();
            assert!(error.contains(expected), "{error}");
        }
        set(&mut config, "data.train=[a] b.tsv")?;
        assert_eq!(config.data.train.as_deref(), Some("[a] b.tsv"));
        Ok(())
    }
}
