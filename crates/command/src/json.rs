//! JSON output.

use serde_json::{Map, Value};

/// Returns a number as JSON; null for NaN and infinity, which JSON cannot represent.
pub(crate) fn number(x: f64) -> Value {
    serde_json::Number::from_f64(x).map_or(Value::Null, Value::Number)
}

pub(crate) fn object<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Object(entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

pub(crate) fn numbers<'a>(of: impl IntoIterator<Item = &'a (String, f64)>) -> Value {
    Value::Object(of.into_iter().map(|(name, x)| (name.clone(), number(*x))).collect::<Map<_, _>>())
}
