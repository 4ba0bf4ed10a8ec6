//! Config files: TOML, held against the settings of their task, with the line of what does not fit.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::outcome::{Outcome, bad, plain};
use toml::de::{DeInteger, DeTable, DeValue};
use unpadded::recipes::{Config, Key, Task, Value, nearest};

/// The longest config that is read, in bytes: one with every setting has a few thousand.
const MOST: u64 = 1 << 20;

/// Reads a config file of at most [`MOST`] bytes.
pub(crate) fn read(path: &Path) -> Outcome<Config> {
    let name = path.display();
    let mut bytes = Vec::new();
    // A device may have no end.
    let read = File::open(path).and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes));
    if let Err(e) = read {
        return bad(format!("config `{name}`: expected a file that can be read, got: {e}"));
    }
    if bytes.len() as u64 > MOST {
        let expected = format!("expected a config of at most {MOST} bytes, got more");
        return bad(format!("config `{name}`: {expected}; `--train` is the flag for a file of texts"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => parse(&name.to_string(), &text),
        Err(e) => {
            let at = e.utf8_error().valid_up_to();
            bad(format!("config `{name}`: expected TOML in UTF-8, got other bytes from byte {at} on"))
        }
    }
}

/// The config of a run folder, which a training has written: one that was emptied or cut would go on with other settings.
pub(crate) fn resumed(folder: &Path) -> Outcome<Config> {
    let path = super::run::config(folder);
    let config = read(&path)?;
    let text = std::fs::read_to_string(&path)?;
    let table = DeTable::parse(&text)?;
    let written = |name: &str| table.get_ref().get_key_value(name).is_some();
    let tables = Config::keys(config.run.task).map(|key| key.section).filter(|name| !name.is_empty());
    let missing = match written("task") {
        false => Some("no `task`".to_owned()),
        true => tables.into_iter().find(|name| !written(name)).map(|name| format!("no table `[{name}]`")),
    };
    let Some(missing) = missing else { return Ok(config) };
    let (name, folder) = (path.display(), folder.display());
    bad(format!(
        "{name}: expected the config that the training has written, got one with {missing}; `unpadded inspect {folder}` \
         prints the config of the checkpoint"
    ))
}

/// All that is wrong is said at once.
pub(crate) fn parse(name: &str, text: &str) -> Outcome<Config> {
    let line = |at: usize| 1 + text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count();
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(e) => {
            let at = e.span().map_or(1, |span| line(span.start));
            return bad(format!("{name}:{at}: expected TOML, got: {}", e.message()));
        }
    };
    let mut wrong: Vec<String> = Vec::new();
    let mut task = Task::Classify;
    if let Some((key, value)) = table.get_key_value("task") {
        let found = value.get_ref().as_str();
        match found.and_then(Task::from_name) {
            Some(found) => task = found,
            None => {
                let names: Vec<&str> = Task::ALL.iter().map(|task| task.name()).collect();
                let got = found.map_or_else(|| "no text".to_owned(), |found| format!("`{found}`"));
                let expected = format!("one of `{}`", names.join("`, `"));
                let at = line(key.span().start);
                return bad(format!("{name}:{at}: task: expected {expected}, got {got}"));
            }
        }
    }
    let mut config = Config::new(task);
    let mut sections: Vec<&str> =
        Config::keys(task).map(|key| key.section).filter(|s| !s.is_empty()).collect();
    sections.dedup();
    let mut set = |path: String, at: usize, value: &DeValue<'_>| {
        let outcome = match scalar(value) {
            Some(value) => config.set(&path, &value).map_err(|e| plain(&e)),
            None => {
                Err(format!("{path}: expected a number, a text, true or false, got another kind of value"))
            }
        };
        wrong.extend(outcome.err().map(|e| format!("{name}:{}: {e}", line(at))));
    };
    let mut unknown: Vec<(usize, String)> = Vec::new();
    for (key, value) in &table {
        match value.get_ref() {
            DeValue::Table(inner) if sections.contains(&key.get_ref().as_ref()) => {
                for (inside, value) in inner {
                    set(
                        format!("{}.{}", key.get_ref(), inside.get_ref()),
                        inside.span().start,
                        value.get_ref(),
                    );
                }
            }
            DeValue::Table(_) => {
                let key_name = key.get_ref();
                let setting = Config::keys(task).find(|key| key.name == key_name);
                let advice = match (setting, nearest(key_name, sections.iter().copied())) {
                    (Some(Key { section: "", name, .. }), _) => {
                        format!("; `{name}` is a setting: write `{name} = …` above all tables")
                    }
                    (Some(key), _) => {
                        format!("; `{key}` is a setting: write `{} = …` below `[{}]`", key.name, key.section)
                    }
                    (None, Some(near)) => format!("; perhaps `[{near}]` is meant"),
                    (None, None) => String::new(),
                };
                let (at, known) = (line(key.span().start), sections.join(", "));
                let said =
                    format!("{name}:{at}: unknown table `[{key_name}]`; known tables: {known}{advice}");
                unknown.push((at, said));
            }
            other => set(key.get_ref().to_string(), key.span().start, other),
        }
    }
    unknown.sort();
    wrong.extend(unknown.into_iter().map(|(_, said)| said));
    if wrong.is_empty() {
        let makes_no_sense = config.check().err();
        let each = makes_no_sense.iter().flat_map(unpadded::Error::all);
        wrong.extend(each.map(|e| format!("{name}: {}", plain(e))));
    }
    if wrong.is_empty() { Ok(config) } else { bad(wrong.join("\n       ")) }
}

fn scalar(value: &DeValue<'_>) -> Option<Value> {
    match value {
        DeValue::String(text) => Some(Value::Text(text.to_string())),
        DeValue::Boolean(flag) => Some(Value::Flag(*flag)),
        DeValue::Integer(number) => integer(number),
        DeValue::Float(number) => number.as_str().replace('_', "").parse().ok().map(Value::Float),
        _ => None,
    }
}

fn integer(number: &DeInteger<'_>) -> Option<Value> {
    let digits = number.as_str().replace('_', "");
    i64::from_str_radix(&digits, number.radix()).ok().map(Value::Int)
}

/// Sets what a flag `--set name=value` says; a value that is neither a number nor true or false is a text.
pub(crate) fn set(config: &mut Config, flag: &str) -> Outcome<()> {
    let Some((name, text)) = flag.split_once('=') else {
        return bad(format!("--set {flag}: expected name=value, as model.hidden=256, got no `=`"));
    };
    // A separator may be a space.
    let (name, text) = (name.trim(), if text.trim().is_empty() { text } else { text.trim() });
    if name == "task" {
        return bad(format!("--set {flag}: expected a setting of the task, got the task: --task says it"));
    }
    let value = match (text.parse::<i64>(), text.parse::<f64>(), text.parse::<bool>()) {
        (Ok(number), ..) => Value::Int(number),
        (_, Ok(number), _) => Value::Float(number),
        (.., Ok(flag)) => Value::Flag(flag),
        _ => Value::Text(text.trim_matches('"').to_owned()),
    };
    let Err(e) = config.set(name, &value) else { return Ok(()) };
    // A column may be called 2, and a shell takes quotation marks away.
    match config.set(name, &Value::Text(text.to_owned())) {
        Ok(()) => Ok(()),
        Err(_) => bad(format!("--set {flag}: {}", plain(&e))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        parse("run.toml", text).map_err(|e| e.to_string()).err().unwrap_or_default()
    }

    #[test]
    fn what_init_writes_is_read() -> Outcome<()> {
        for &task in Task::ALL {
            let config = parse("run.toml", &Config::new(task).commented())?;
            assert_eq!(config, Config::new(task));
        }
        Ok(())
    }

    #[test]
    fn mistakes_have_their_line() {
        let said = wrong("task = \"classify\"\n[model]\nhiden = 3\nlayers = \"two\"\n[modle]\nx = 1\n");
        assert!(
            said.contains("run.toml:3: settings of `classify`: expected `model.hidden`, perhaps"),
            "{said}"
        );
        assert!(
            said.contains("run.toml:4: model.layers: expected a whole number from 0 on, got \"two\""),
            "{said}"
        );
        let unknown = "run.toml:5: unknown table `[modle]`; known tables: data, text, model, training; perhaps `[model]` is meant";
        assert!(said.contains(unknown), "{said}");
        let said = wrong("[train]\ntrain = \"a.tsv\"\n");
        assert!(
            said.contains(
                "unknown table `[train]`; known tables: data, text, model, training; `data.train` is"
            ),
            "{said}"
        );
        let said = wrong("[model\n");
        assert!(said.starts_with("run.toml:1: expected TOML, got: "), "{said}");
        assert!(wrong("task = \"clasify\"").contains("run.toml:1: task: expected one of `classify`"));
        assert!(wrong("[model]\ndropout = 1.5").contains("model.dropout: expected a share"));
        assert!(wrong("seed = [1]").contains("run.toml:1: seed: expected a number, a text"));
    }

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
        Ok(())
    }
}
