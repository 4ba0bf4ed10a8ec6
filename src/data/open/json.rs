//! Records of JSON, an object a line.

use serde_json::{Map, Value};

use super::columns::{Wanted, missing};
use crate::data::lines::Reason;
use crate::data::records::{OneLine, shown};
use crate::data::{Records, TextFile};
use crate::error::{Error, ErrorKind, Result};

pub(super) type Object = Map<String, Value>;

/// The object of a line; none of a blank one.
fn object(line: &str) -> Result<Option<Object>, Reason> {
    if line.trim().is_empty() {
        return Ok(None);
    }
    let wrong = |got| Reason { expected: "a JSON object in one line".to_owned(), got };
    match serde_json::from_str(line) {
        Ok(Value::Object(object)) => Ok(Some(object)),
        Ok(other) => Err(wrong(format!("{} in {}", kind(&other), shown(line)))),
        // The line is that of the file, not of the text that was parsed.
        Err(e) => Err(wrong(format!(
            "{} in {}",
            e.to_string().replace(" at line 1 column", " at column"),
            shown(line)
        ))),
    }
}

pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// What stands under a name, which may lead through objects by dots.
fn at<'a>(object: &'a Object, path: &str) -> Option<&'a Value> {
    if let Some(value) = object.get(path) {
        return Some(value);
    }
    path.match_indices('.').find_map(|(dot, _)| match object.get(path.get(..dot)?)? {
        Value::Object(inner) => at(inner, path.get(dot + 1..)?),
        _ => None,
    })
}

/// All names in an object, of objects in it with the dots.
fn names(object: &Object) -> Vec<String> {
    let of = |(name, value): (&String, &Value)| match value {
        Value::Object(inner) => names(inner).into_iter().map(|below| format!("{name}.{below}")).collect(),
        _ => vec![name.clone()],
    };
    object.iter().flat_map(of).collect()
}

/// The names of the fields that are wanted, by the first object of the file.
pub(super) fn picked(file: &TextFile, wanted: &[Wanted<'_>]) -> Result<Vec<String>> {
    let first = file.records(OneLine(object))?.next().transpose()?;
    let Some(first) = first else {
        let what = format!("records of file `{}`", file.name());
        return Err(Error::of(ErrorKind::Format, what, "at least one", "none"));
    };
    let all = names(&first);
    let mut found: Vec<String> = Vec::new();
    for one in wanted {
        // Words and their tags are lists, and nothing else is.
        let listed = ["tokens", "tags"].contains(&one.what);
        let fits = |value: &Value| value.is_array() == listed && !value.is_object();
        let free =
            |name: &&&str| first.get(**name).is_some_and(fits) && !found.iter().any(|other| other == **name);
        let name = match one.given {
            Some(given) if at(&first, given).is_some() => given.to_owned(),
            Some(given) => {
                let what = format!("field `{given}` of file `{}`, the {}", file.name(), one.what);
                return Err(missing(what, given, &all));
            }
            None => match one.known.iter().find(free) {
                Some(name) => (*name).to_owned(),
                None => {
                    let what = format!("field of the {} in file `{}`", one.what, file.name());
                    let quote = |names: &[String]| format!("`{}`", names.join("`, `"));
                    let known: Vec<String> =
                        one.known.iter().take(4).map(|name| (*name).to_owned()).collect();
                    let expected = format!("one called {}", quote(&known));
                    return Err(Error::of(
                        ErrorKind::Format,
                        what,
                        expected,
                        format!("the fields {}", quote(&all)),
                    )
                    .noted(format!("`{}` names it; a dot leads into an object", one.what)));
                }
            },
        };
        found.push(name);
    }
    Ok(found)
}

/// Whether the first object of the file has such a field, with a single value.
pub(super) fn has_single(file: &TextFile, name: &str) -> bool {
    let first = file.records(OneLine(object)).ok().and_then(|mut records| records.next()?.ok());
    first.is_some_and(|first| first.get(name).is_some_and(|value| value.is_string() || value.is_number()))
}

/// The records of the file.
pub(super) fn records<R: 'static>(
    file: &TextFile,
    mut make: impl FnMut(&Object) -> Result<R, Reason> + Send + 'static,
) -> Result<Records<R>> {
    file.records(OneLine(move |line: &str| object(line)?.as_ref().map(&mut make).transpose()))
}

fn found<'a>(object: &'a Object, name: &str) -> Result<&'a Value, Reason> {
    at(object, name).ok_or_else(|| {
        let got = format!("an object with {}", names(object).join(", "));
        Reason { expected: format!("a field `{name}`"), got }
    })
}

/// A text that is not empty, or a number or a truth value written out.
pub(super) fn text(object: &Object, name: &str) -> Result<String, Reason> {
    match found(object, name)? {
        Value::String(text) if text.trim().is_empty() => Err(Reason {
            expected: format!("something in the field `{name}`"),
            got: "an empty string".to_owned(),
        }),
        Value::String(text) => Ok(text.clone()),
        value @ (Value::Number(_) | Value::Bool(_)) => Ok(value.to_string()),
        other => {
            Err(Reason { expected: format!("a string in the field `{name}`"), got: kind(other).to_owned() })
        }
    }
}

/// A list of strings.
pub(super) fn texts(object: &Object, name: &str) -> Result<Vec<String>, Reason> {
    let wrong = |got: &Value| Reason {
        expected: format!("a list of strings in the field `{name}`"),
        got: kind(got).to_owned(),
    };
    let value = found(object, name)?;
    let list = value.as_array().ok_or_else(|| wrong(value))?;
    let text = |one: &Value| match one {
        Value::String(text) => Ok(text.clone()),
        other => Err(Reason { got: format!("{} in it", kind(other)), ..wrong(other) }),
    };
    list.iter().map(text).collect()
}
