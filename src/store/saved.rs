//! The file of a store: a checkpoint whose program has the value of every key as a parameter, with the operators of the key's
//! rule.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use super::entry::Entry;
use super::key_value::Key;
use super::merge::checked_finite;
use super::rule::{Rule, feed, parameter, state, update_of};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::{Registry, Spec};
use crate::program::{Program, VarRole};
use crate::tensor::{DType, Dense, Storage};
use crate::wire::Target;

const NAME: &str = "name:";
const NUMBER: &str = "number:";

/// Returns the name of a key's value in the program of a saved file. A state's name is the slot, ` of ` and the name of
/// the value. The names of states and of values differ, since the name of a value begins with [`NAME`] or [`NUMBER`].
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

/// The slot of the variable that counts the updates of a value; the variable's name begins with the slot.
const STEPS: &str = "steps";

/// A tensor of a saved file: the entry of its key, and the field of the entry.
struct TensorRecord<'a> {
    entry: &'a Entry,
    what: SavedField,
}

enum SavedField {
    Value,
    /// A state of the key's rule, named by its slot.
    State(String),
    Steps,
}

/// Writes the values and states of all keys to a file. The function copies one tensor at a time, to limit memory.
///
/// # Errors
/// Returns an error if a key is half updated, or the file cannot be written.
pub(super) fn save(keys: &BTreeMap<Key, Entry>, registry: &Registry, path: &Path) -> Result<()> {
    let (mut program, mut kept) = (Program::new(), BTreeMap::new());
    for (key, entry) in keys {
        entry.check_whole().map_err(|e| e.variable(key.to_string()))?;
        let (value, spec) = (named(key), Spec::fixed(entry.dtype(), entry.dims())?);
        let param = program.add_var(parameter(&value, spec.clone()))?;
        kept.insert(value.clone(), TensorRecord { entry, what: SavedField::Value });
        let steps = beside(STEPS, &value);
        program.add_var(state(&steps, Spec::fixed(DType::I64, &[])?))?;
        kept.insert(steps, TensorRecord { entry, what: SavedField::Steps });
        if let Some(rule) = entry.rule() {
            let grad = program.add_var(feed(&beside("gradient", &value), spec))?;
            rule.append(&mut program, registry, (param, grad), &|slot| beside(slot, &value))?;
            for slot in rule.states(registry)? {
                kept.insert(beside(&slot, &value), TensorRecord { entry, what: SavedField::State(slot) });
            }
        }
    }
    let tensor = &mut |name: &str| {
        let found = kept.get(name);
        let TensorRecord { entry, what } =
            found.ok_or_else(|| Error::new("tensor of the store", "a tensor of a key", name))?;
        let value = match what {
            SavedField::Value => entry.whole(None)?,
            SavedField::State(slot) => entry.whole(Some(slot))?,
            SavedField::Steps => Dense::from_vec(&[], vec![entry.steps() as i64])?,
        };
        // Only finite tensors are written, since a file that cannot be restored would replace a file that can be
        // restored.
        let value = Storage::from(value);
        value.check_finite(name)?;
        Ok(Cow::Owned(value))
    };
    Checkpoint { program, ..Checkpoint::default() }.save_each(&Target::find(path)?, tensor)
}

/// The value, the states and the number of updates of one key, read from a file.
struct Loaded {
    value: Dense,
    /// The states of the key's rule, each with its slot.
    states: Vec<(String, Dense)>,
    steps: u64,
}

/// Reads the keys of a file, which must match the keys of the store. Each value is divided into `shards` shards.
///
/// # Errors
/// Returns an error if the file is damaged or incomplete; if the keys, shapes, dtypes or rules in the file differ from the keys,
/// shapes, dtypes or rules of the store.
pub(super) fn restore(
    known: &BTreeMap<Key, Entry>,
    registry: &Registry,
    shards: usize,
    path: &Path,
) -> Result<BTreeMap<Key, Entry>> {
    let mut restored = BTreeMap::new();
    for (key, Loaded { value, states, steps }) in load(known, registry, path)? {
        let of_key = |e: Error| e.variable(key.to_string());
        let rule = known.get(&key).and_then(Entry::rule).cloned();
        let mut entry = Entry::new(value.into(), rule, registry, shards).map_err(of_key)?;
        entry.resume(states, steps).map_err(of_key)?;
        restored.insert(key, entry);
    }
    Ok(restored)
}

/// Reads the keys of a file.
fn load(known: &BTreeMap<Key, Entry>, registry: &Registry, path: &Path) -> Result<BTreeMap<Key, Loaded>> {
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
        return Err(refused("keys", format!("the store's keys, {expected}"), got));
    }
    let mut take = |name: &str| {
        tensors.remove(name).ok_or_else(|| refused("tensor", format!("`{name}`"), "none".to_owned()))
    };
    let mut loaded = BTreeMap::new();
    for ((key, entry), (_, id)) in known.iter().zip(found) {
        let of_key = |e: Error| e.variable(key.to_string());
        let value_name = named(key);
        let ruled = update_of(&program, id).map(|_| Rule::of(&program, registry, id));
        let rule = ruled.transpose().map_err(of_key)?;
        if rule.as_ref() != entry.rule() {
            let rule_name = |rule: Option<&Rule>| rule.map_or_else(|| "none".to_owned(), Rule::shown);
            let expected = format!("the store's rule, {}", rule_name(entry.rule()));
            return Err(of_key(refused("rule", expected, rule_name(rule.as_ref()))));
        }
        let value = take(&value_name)?;
        if (value.dtype(), value.shape()) != (entry.dtype(), entry.dims()) {
            let expected = format!("{}{:?}", entry.dtype(), entry.dims());
            return Err(of_key(refused("value", expected, format!("{}{:?}", value.dtype(), value.shape()))));
        }
        let steps = take(&beside(STEPS, &value_name))?;
        let number = steps.as_dense().and_then(|steps| steps.as_slice::<i64>());
        let steps = number.ok().and_then(|steps| u64::try_from(*steps.first()?).ok());
        let steps = steps.ok_or_else(|| {
            of_key(refused("steps", "a number from 0".to_owned(), "another value".to_owned()))
        })?;
        let mut states = Vec::new();
        for slot in rule.iter().map(|rule| rule.states(registry)).collect::<Result<Vec<_>>>()?.concat() {
            let state = take(&beside(&slot, &value_name))?;
            checked_finite(&state, &format!("{shown}: state `{slot}`")).map_err(of_key)?;
            states.push((slot, state.into_dense()?));
        }
        loaded.insert(key.clone(), Loaded { value: value.into_dense()?, states, steps });
    }
    Ok(loaded)
}
