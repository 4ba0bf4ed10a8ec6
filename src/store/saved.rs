//! The state of a store in a file: a checkpoint whose program has every value as a parameter, with the operators of its rule.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use super::entry::Entry;
use super::key_value::Key;
use super::merge::checked_finite;
use super::rule::{Rule, feed, parameter, state, update_of};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, ErrorKind, Result};
use crate::program::{Program, Registry, Spec, VarRole};
use crate::tensor::{DType, Dense, Storage};
use crate::wire::Target;

const NAME: &str = "name:";
const NUMBER: &str = "number:";

/// What a key's value is called in the program of a file. What stands beside it is called `… of` that, which is no such name.
fn named(key: &Key) -> String {
    match key {
        Key::Name(name) => format!("{NAME}{name}"),
        Key::Number(number) => format!("{NUMBER}{number}"),
    }
}

fn key_of(name: &str) -> Option<Key> {
    match (name.strip_prefix(NAME), name.strip_prefix(NUMBER)) {
        (Some(name), _) => Some(Key::from(name)),
        (None, Some(number)) => number.parse().ok().map(Key::Number),
        (None, None) => None,
    }
}

fn beside(what: &str, value: &str) -> String {
    format!("{what} of {value}")
}

/// How often the rule was applied.
const STEPS: &str = "steps";

/// A tensor of a file.
struct Kept<'a> {
    entry: &'a Entry,
    what: What,
}

enum What {
    Value,
    /// Of the rule, by its slot.
    State(String),
    Steps,
}

/// Writes a file of all keys. One tensor at a time is copied.
///
/// # Errors
/// If a key is half updated, or the file cannot be written.
pub(super) fn save(keys: &BTreeMap<Key, Entry>, registry: &Registry, path: &Path) -> Result<()> {
    let (mut program, mut kept) = (Program::new(), BTreeMap::new());
    for (key, entry) in keys {
        entry.check_whole().map_err(|e| e.variable(key.to_string()))?;
        let (value, spec) = (named(key), Spec::fixed(entry.dtype(), entry.dims())?);
        let param = program.add_var(parameter(&value, spec.clone()))?;
        kept.insert(value.clone(), Kept { entry, what: What::Value });
        let steps = beside(STEPS, &value);
        program.add_var(state(&steps, Spec::fixed(DType::I64, &[])?))?;
        kept.insert(steps, Kept { entry, what: What::Steps });
        if let Some(rule) = entry.rule() {
            let grad = program.add_var(feed(&beside("gradient", &value), spec))?;
            rule.append(&mut program, registry, (param, grad), &|slot| beside(slot, &value))?;
            for slot in rule.states(registry)? {
                kept.insert(beside(&slot, &value), Kept { entry, what: What::State(slot) });
            }
        }
    }
    let tensor = &mut |name: &str| {
        let found = kept.get(name);
        let Kept { entry, what } =
            found.ok_or_else(|| Error::new("tensor of the store", "one of a key", name))?;
        let value = match what {
            What::Value => entry.whole(None)?,
            What::State(slot) => entry.whole(Some(slot))?,
            What::Steps => Dense::from_vec(&[], vec![entry.steps() as i64])?,
        };
        // One that could not be restored would stand in the place of one that can.
        let value = Storage::from(value);
        value.check_finite(name)?;
        Ok(Cow::Owned(value))
    };
    Checkpoint { program, ..Checkpoint::default() }.save_each(&Target::find(path)?, tensor)
}

/// The keys of a file, which are to be those of the store.
///
/// # Errors
/// If the file is damaged or lacks something, or its keys, their shapes, dtypes or rules are others.
pub(super) fn restore(
    known: &BTreeMap<Key, Entry>,
    registry: &Registry,
    shards: usize,
    path: &Path,
) -> Result<BTreeMap<Key, Entry>> {
    let Checkpoint { program, mut tensors, .. } = Checkpoint::load(path)?;
    let shown = format!("file `{}`", path.display());
    let refused = |what: &str, expected: String, got: String| {
        Error::of(ErrorKind::Format, format!("{shown}: {what}"), expected, got)
    };
    let mut found = BTreeMap::new();
    for (id, var) in program.vars().filter(|(_, var)| var.role == VarRole::Parameter) {
        let key = key_of(&var.name);
        let key = key
            .ok_or_else(|| refused("parameter", "a key of a store".to_owned(), format!("`{}`", var.name)))?;
        found.insert(key, id);
    }
    let listed = |keys: &mut dyn Iterator<Item = &Key>| {
        let names: Vec<String> = keys.map(|key| format!("`{key}`")).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    if !found.keys().eq(known.keys()) {
        let (expected, got) = (listed(&mut known.keys()), listed(&mut found.keys()));
        return Err(refused("keys", format!("those of the store, {expected}"), got));
    }
    let mut take = |name: &str| {
        tensors.remove(name).ok_or_else(|| refused("tensor", format!("`{name}`"), "none".to_owned()))
    };
    let mut restored = BTreeMap::new();
    for ((key, entry), (_, id)) in known.iter().zip(found) {
        let of_key = |e: Error| e.variable(key.to_string());
        let value_name = named(key);
        let ruled = update_of(&program, id).map(|_| Rule::of(&program, id));
        let rule = ruled.transpose().map_err(of_key)?;
        if rule.as_ref() != entry.rule() {
            let told = |rule: Option<&Rule>| rule.map_or_else(|| "none".to_owned(), Rule::told);
            let expected = format!("that of the store, {}", told(entry.rule()));
            return Err(of_key(refused("rule", expected, told(rule.as_ref()))));
        }
        let value = take(&value_name)?;
        if (value.dtype(), value.shape()) != (entry.dtype(), entry.dims()) {
            let expected = format!("{}{:?}", entry.dtype(), entry.dims());
            return Err(of_key(refused("value", expected, format!("{}{:?}", value.dtype(), value.shape()))));
        }
        let steps = take(&beside(STEPS, &value_name))?;
        let number = steps.as_dense().and_then(|steps| steps.as_slice::<i64>());
        let steps = number.ok().and_then(|steps| u64::try_from(*steps.first()?).ok());
        let steps = steps
            .ok_or_else(|| of_key(refused("steps", "a number from 0".to_owned(), "another".to_owned())))?;
        let mut states = Vec::new();
        for slot in rule.iter().map(|rule| rule.states(registry)).collect::<Result<Vec<_>>>()?.concat() {
            let state = take(&beside(&slot, &value_name))?;
            checked_finite(&state, &format!("{shown}: state `{slot}`")).map_err(of_key)?;
            states.push((slot, state.into_dense()?));
        }
        let mut entry = Entry::new(value, rule, registry, shards).map_err(of_key)?;
        entry.resume(states, steps).map_err(of_key)?;
        restored.insert(key.clone(), entry);
    }
    Ok(restored)
}
