//! The numbers `NaN`, `Infinity` and `-Infinity`, which Python writes although JSON has no such numbers.

use std::borrow::Cow;

use super::fields::{Object, Value, at, record};
use crate::source::reason::Reason;

const NAMES: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
/// The character with which [`parsed`] begins the string in place of such a number.
const MARK: char = '\u{fffe}';

/// Returns the JSON text with `other` in place of each number that is not finite; `None` without such a number.
fn replaced(json: &str, other: fn(&str) -> String) -> Option<String> {
    let (mut found, mut rest, mut within, mut escaped) = (String::new(), json, false, false);
    let mut any = false;
    while let Some(c) = rest.chars().next() {
        let name = NAMES.iter().find(|name| !within && rest.starts_with(**name));
        match name {
            Some(name) => {
                found.push_str(&other(name));
                any = true;
            }
            None => found.push(c),
        }
        (within, escaped) = match c {
            '"' if !escaped => (!within, false),
            _ => (within, c == '\\' && !escaped),
        };
        rest = rest.get(name.map_or(c.len_utf8(), |name| name.len())..).unwrap_or_default();
    }
    any.then_some(found)
}

/// Returns the name of the first number that is not finite in a value.
fn name<'v>(value: &'v Value<'_>) -> Option<&'v str> {
    match value {
        Value::Text(text) => text.strip_prefix(MARK),
        Value::List(list) => list.iter().find_map(name),
        Value::Object(object) => object.fields.iter().find_map(|(_, value)| name(value)),
        Value::Null | Value::Truth(_) | Value::Number(_) => None,
    }
}

/// Replaces the marked strings in a value by numbers, for the detection of fields.
fn unmark(value: &mut Value<'_>) {
    match value {
        Value::Text(text) => {
            if let Some(name) = text.strip_prefix(MARK) {
                *value = Value::Number(Cow::Owned(name.to_owned()));
            }
        }
        Value::List(list) => list.iter_mut().for_each(unmark),
        Value::Object(object) => object.fields.iter_mut().for_each(|(_, value)| unmark(value)),
        Value::Null | Value::Truth(_) | Value::Number(_) => {}
    }
}

/// Parses a record as [`record`] does, but accepts numbers that are not finite; [`finite`] refuses them in wanted fields.
pub(crate) fn parsed<'a>(json: &'a str, wanted: Option<&[String]>) -> serde_json::Result<Value<'a>> {
    record(json, wanted).or_else(|e| {
        let Some(marked) = replaced(json, |name| format!("\"{MARK}{name}\"")) else { return Err(e) };
        let Ok(value) = record(&marked, wanted) else {
            // With numbers of the same length, the column in the error is the one in the file.
            let whole = replaced(json, |name| "1".repeat(name.len())).unwrap_or_default();
            return Err(record(&whole, wanted).err().unwrap_or(e));
        };
        let mut value = value.owned();
        if wanted.is_none() {
            unmark(&mut value);
        }
        Ok(value)
    })
}

/// Refuses a wanted field whose value is or contains a number that is not finite.
pub(crate) fn finite(object: &Object<'_>, wanted: Option<&[String]>) -> Result<(), Reason> {
    let found =
        wanted.into_iter().flatten().find_map(|field| Some((field, at(object, field).and_then(name)?)));
    match found {
        None => Ok(()),
        Some((field, name)) => Err(Reason::of(
            format!("a finite number, a text or null in the field `{field}`"),
            format!("{name}, which is no JSON: write a value, or remove the record"),
        )),
    }
}
