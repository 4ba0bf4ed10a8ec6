//! What stands in a record whose fields have names.

use serde_json::{Map, Value};

use crate::data::lines::Reason;

/// A record whose fields have names.
pub(super) type Object = Map<String, Value>;

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
pub(super) fn at<'a>(object: &'a Object, path: &str) -> Option<&'a Value> {
    if let Some(value) = object.get(path) {
        return Some(value);
    }
    path.match_indices('.').find_map(|(dot, _)| match object.get(path.get(..dot)?)? {
        Value::Object(inner) => at(inner, path.get(dot + 1..)?),
        _ => None,
    })
}

/// All names in an object, of objects in it with the dots.
pub(super) fn names(object: &Object) -> Vec<String> {
    let of = |(name, value): (&String, &Value)| match value {
        Value::Object(inner) if !inner.is_empty() => {
            names(inner).into_iter().map(|below| format!("{name}.{below}")).collect()
        }
        _ => vec![name.clone()],
    };
    object.iter().flat_map(of).collect()
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
    list(object, name, "strings", |_| false)
}

/// A list of strings or whole numbers, which are written out.
pub(super) fn tags(object: &Object, name: &str) -> Result<Vec<String>, Reason> {
    list(object, name, "strings or whole numbers", |value| value.is_i64() || value.is_u64())
}

fn list(
    object: &Object,
    name: &str,
    of: &str,
    written: impl Fn(&Value) -> bool,
) -> Result<Vec<String>, Reason> {
    let wrong = |got: String| Reason { expected: format!("a list of {of} in the field `{name}`"), got };
    let value = found(object, name)?;
    let list = value.as_array().ok_or_else(|| wrong(kind(value).to_owned()))?;
    let text = |one: &Value| match one {
        Value::String(text) => Ok(text.clone()),
        other if written(other) => Ok(other.to_string()),
        other => Err(wrong(format!("{} in it", kind(other)))),
    };
    list.iter().map(text).collect()
}
