//! Detects JSON records that no task reads, for a message: character spans in place of tags, and series of numbers.

use unpadded::Error;

use super::column::{Column, TAGS, TOKENS};
use super::guess::TAGGER;
use crate::TextFile;
use crate::format::FieldFormat;
use crate::format::fields::{Object, Value};
use crate::format::json;
use crate::source::lines::has_word;
use crate::source::reason::wrong_format;

/// Number of records that are looked at: the first texts may have no span.
const LOOKED_AT: usize = 20;

fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Number(_))
}

/// Returns whether a value is a list of spans: `[start, end, label]`, or objects with a start and an end.
fn are_spans(value: &Value<'_>) -> bool {
    let is_span = |value: &Value<'_>| match value {
        Value::List(span) => {
            let [start, end, rest @ ..] = &span[..] else { return false };
            is_number(start) && is_number(end) && rest.iter().any(|value| matches!(value, Value::Text(_)))
        }
        Value::Object(span) => {
            let has = |start: &str| {
                span.fields.iter().any(|(name, value)| name.starts_with(start) && is_number(value))
            };
            has("start") && has("end")
        }
        _ => false,
    };
    matches!(value, Value::List(list) if !list.is_empty() && list.iter().all(is_span))
}

/// Returns the name of the field with spans, also below another field, such as `entities`.
fn spans(object: &Object<'_>) -> Option<String> {
    object.fields.iter().find_map(|(name, value)| match value {
        Value::Object(inner) => spans(inner),
        value => are_spans(value).then(|| name.to_string()),
    })
}

/// Returns whether a value has numbers and nothing else.
fn is_series(value: &Value<'_>) -> bool {
    match value {
        Value::Number(_) => true,
        Value::List(list) => list.iter().all(is_series),
        Value::Object(object) => object.fields.iter().all(|(_, value)| is_series(value)),
        Value::Null | Value::Truth(_) | Value::Text(_) => false,
    }
}

/// Returns the error for records that no task reads, if the first records are such records; else `error`.
pub(crate) fn explained(file: &TextFile, format: FieldFormat, wanted: &[Column<'_>], error: Error) -> Error {
    if !matches!(format, FieldFormat::Json) {
        return error;
    }
    let of_words = wanted.iter().any(|one| one.what == "tags");
    let first = json::Layout::of(file, of_words).and_then(|layout| json::first(file, &layout, LOOKED_AT));
    let Ok(first) = first else { return error };
    let what = format!("file `{}`", file.name());
    if let Some(name) = first.iter().find_map(spans) {
        let expected = "words and tags: the fields `tokens` and `tags` with lists of one length, or a word and its tag per line";
        let got = format!(
            "character spans in `{name}`, which are not read: cut each text into words, with a tag for each word"
        );
        let error = wrong_format(what, expected, got);
        return if of_words { error } else { error.noted(TAGGER) };
    }
    let lists = |names| {
        first.iter().any(|record| {
            record.fields.iter().any(|(name, value)| has_word(names, name) && matches!(value, Value::List(_)))
        })
    };
    if !of_words && lists(TOKENS) && lists(TAGS) {
        return error.noted(TAGGER);
    }
    let is_all = |object: &Object<'_>| {
        !object.fields.is_empty() && object.fields.iter().all(|(_, value)| is_series(value))
    };
    match !first.is_empty() && first.iter().all(is_all) {
        true => wrong_format(what, "texts", "series of numbers, which are not read yet"),
        false => error,
    }
}
