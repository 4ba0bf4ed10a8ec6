//! JSON output.

use serde_json::{Map, Value};

/// Returns a number as JSON; null for NaN and infinity, which JSON cannot represent.
pub(crate) fn number(x: f64) -> Value {
    serde_json::Number::from_f64(x).map_or(Value::Null, Value::Number)
}

/// Returns a JSON object with the given entries, in the given order.
pub(crate) fn object<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Object(entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Returns a JSON object of named numbers, in the given order.
pub(crate) fn numbers<'a>(of: impl IntoIterator<Item = &'a (String, f64)>) -> Value {
    Value::Object(of.into_iter().map(|(name, x)| (name.clone(), number(*x))).collect::<Map<_, _>>())
}
