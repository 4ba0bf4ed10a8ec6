//! Records with named fields, such as JSON objects, and the values of the fields.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::labels::{BEHIND, joined};
use crate::detect::column::missing_text;
use crate::source::lines::{count_parsed, quoted};
use crate::source::reason::Reason;
use crate::source::records::{of_columns, shown};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value<'a> {
    Null,
    Truth(bool),
    /// A number, with the same digits as in the file.
    Number(Cow<'a, str>),
    Text(Cow<'a, str>),
    List(Vec<Value<'a>>),
    Object(Object<'a>),
}

/// A record with named fields; the elements of a list are named by their positions, counted from 1.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Object<'a> {
    pub(crate) fields: Vec<(Cow<'a, str>, Value<'a>)>,
    pub(crate) is_list: bool,
    /// The line number of the record in the file; 0 if the record is not a line of its own.
    pub(crate) line: u64,
}

impl Value<'_> {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Truth(_) => "a truth value",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    pub(crate) fn owned(&self) -> Value<'static> {
        let own = |text: &Cow<'_, str>| Cow::Owned(text.to_string());
        match self {
            Self::Null => Value::Null,
            Self::Truth(truth) => Value::Truth(*truth),
            Self::Number(number) => Value::Number(own(number)),
            Self::Text(text) => Value::Text(own(text)),
            Self::List(list) => Value::List(list.iter().map(Value::owned).collect()),
            Self::Object(object) => Value::Object(object.owned()),
        }
    }
}

impl<'a> Object<'a> {
    /// Returns the value of the field with this name; if several fields have this name, the value of the last field.
    pub(crate) fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.fields.iter().rev().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// Copies the record, so that the copy does not borrow from the text of the file.
    pub(crate) fn owned(&self) -> Object<'static> {
        let field = |(name, value): &(Cow<'_, str>, Value<'_>)| (Cow::Owned(name.to_string()), value.owned());
        Object { fields: self.fields.iter().map(field).collect(), is_list: self.is_list, line: self.line }
    }
}

/// Maximum nesting depth of objects and lists.
const DEEPEST: usize = 64;

/// A JSON string, which is borrowed from the text of the file if the string has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Deserializes a JSON object; the values of fields that are not wanted become `Null`.
struct Fields<'w>(Option<&'w [String]>);

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some(Text(name)) = map.next_key()? {
            let value = match self.0.is_none_or(|wanted| leads(&name, wanted)) {
                true => of_raw(map.next_value::<&RawValue>()?).map_err(A::Error::custom)?,
                false => map.next_value::<IgnoredAny>().map(|_| Value::Null)?,
            };
            fields.push((name, value));
        }
        Ok(Object { fields, ..Object::default() })
    }
}

/// Parses a JSON value. A number stays text, because converting it to a numeric type and back could change its digits.
fn of_raw(raw: &RawValue) -> serde_json::Result<Value<'_>> {
    count_parsed(raw.get().len());
    Taker { rest: raw.get() }.value(DEEPEST)
}

/// A JSON value that is valid, except for the escapes in its strings. The value is cut in one pass, however deep it is nested.
struct Taker<'a> {
    rest: &'a str,
}

impl<'a> Taker<'a> {
    /// Returns the next byte behind white space, and moves to this byte.
    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.bytes().next()
    }

    fn take(&mut self, size: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(size).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn string(&mut self) -> serde_json::Result<Cow<'a, str>> {
        let mut escaped = false;
        let end = self.rest.bytes().skip(1).position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        serde_json::from_str::<Text<'_>>(self.take(end.map_or(usize::MAX, |end| end + 2)))
            .map(|Text(text)| text)
    }

    /// Moves past the bracket or the comma before an item and returns `true`, or past the bracket `end` and returns `false`.
    fn has_item(&mut self, end: &str) -> bool {
        self.peek();
        let ends = self.take(1) == end || self.peek().is_none();
        !ends && (!self.rest.starts_with(end) || self.take(1).is_empty())
    }

    fn value(&mut self, depth: usize) -> serde_json::Result<Value<'a>> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(serde_json::Error::custom(format!("more than {DEEPEST} nested values")));
        };
        Ok(match self.peek() {
            Some(b'"') => Value::Text(self.string()?),
            Some(b'{') => {
                let mut fields = Vec::new();
                while self.has_item("}") {
                    let name = self.string()?;
                    self.peek();
                    self.take(":".len());
                    fields.push((name, self.value(depth)?));
                }
                Value::Object(Object { fields, ..Object::default() })
            }
            Some(b'[') => {
                let mut list = Vec::new();
                while self.has_item("]") {
                    list.push(self.value(depth)?);
                }
                Value::List(list)
            }
            _ => {
                let ends = |c: char| matches!(c, ',' | ']' | '}') || c.is_ascii_whitespace();
                match self.take(self.rest.find(ends).unwrap_or(usize::MAX)) {
                    "null" => Value::Null,
                    truth @ ("true" | "false") => Value::Truth(truth == "true"),
                    number => Value::Number(Cow::Borrowed(number)),
                }
            }
        })
    }
}

/// Parses a JSON record; the values of fields that are not in `wanted`, if given, become `Null`.
pub(crate) fn record<'a>(json: &'a str, wanted: Option<&[String]>) -> serde_json::Result<Value<'a>> {
    if !json.trim_start().starts_with('{') {
        return of_raw(serde_json::from_str(json)?);
    }
    let mut from = serde_json::Deserializer::from_str(json);
    let object = from.deserialize_map(Fields(wanted))?;
    from.end().map(|()| Value::Object(object))
}

/// Returns whether the field `name` is one of these paths, or an object on one of them.
pub(crate) fn leads(name: &str, paths: &[String]) -> bool {
    let below =
        |path: &String| path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    paths.iter().any(below)
}

/// Returns the value of the field with this path; a dot in the path leads into a nested object.
pub(crate) fn at<'v, 'a>(object: &'v Object<'a>, path: &str) -> Option<&'v Value<'a>> {
    if let Some(value) = object.get(path) {
        return Some(value);
    }
    path.match_indices('.').find_map(|(dot, _)| match object.get(path.get(..dot)?)? {
        Value::Object(inner) => at(inner, path.get(dot + 1..)?),
        _ => None,
    })
}

/// Returns the paths of all fields of an object, such as `review.text` for the field `text` of a nested object.
pub(crate) fn names(object: &Object<'_>) -> Vec<String> {
    let name_of = |(name, value): &(Cow<'_, str>, Value<'_>)| match value {
        Value::Object(inner) if !inner.fields.is_empty() => {
            names(inner).into_iter().map(|below| format!("{name}.{below}")).collect()
        }
        _ => vec![name.to_string()],
    };
    object.fields.iter().flat_map(name_of).collect()
}

fn found<'v, 'a>(object: &'v Object<'a>, name: &str) -> Result<&'v Value<'a>, Reason> {
    at(object, name).ok_or_else(|| match object.is_list {
        true => {
            Reason::of(format!("an element {name}"), format!("a list of {} elements", object.fields.len()))
        }
        false => {
            let got = format!("an object with {}", quoted(names(object)));
            Reason::of(format!("a field `{name}`"), got)
        }
    })
}

/// Returns the value of a field as text. The value must be a nonempty string, a number, or a truth value.
pub(crate) fn text(object: &Object<'_>, name: &str) -> Result<String, Reason> {
    match found(object, name)? {
        Value::Text(text) if text.trim().is_empty() => Err(Reason::of(
            format!("something in the field `{name}`"),
            "an empty string: fill it, or remove the record",
        )),
        Value::Text(text) | Value::Number(text) => Ok(text.to_string()),
        Value::Truth(truth) => Ok(truth.to_string()),
        other => Err(Reason::of(format!("a string in the field `{name}`"), other.kind())),
    }
}

/// A function that makes a text of a field, from the record and the name of the field.
pub(crate) type FieldText = fn(&Object<'_>, &str) -> Result<String, Reason>;

/// Makes a text of the fields `names`; `field_text` makes the text of each field. Some of several fields may be missing or empty.
/// If `pair` is true, the last field is a second text, which must not be empty.
pub(crate) fn text_in(
    object: &Object<'_>,
    names: &[String],
    field_text: FieldText,
    pair: bool,
) -> Result<String, Reason> {
    let is_empty = |name: &String| match at(object, name) {
        None | Some(Value::Null) => true,
        Some(value) => matches!(value, Value::Text(text) if text.trim().is_empty()),
    };
    let empty: Vec<bool> = names.iter().map(is_empty).collect();
    let missing = missing_text(&empty, pair);
    let cell = |(number, (name, empty)): (usize, (&String, &bool))| match empty {
        true if missing != Some(number) => Ok(String::new()),
        _ => field_text(object, name),
    };
    names.iter().zip(&empty).enumerate().map(cell).collect::<Result<_, _>>().map(of_columns)
}

/// Returns the trimmed label in a field; an object of scores has the labels with a score of at least 0.5. If `lists` is true,
/// the field may be missing, which is an empty string, or a list: U+001F follows each label, and is alone for an empty list.
pub(crate) fn label(object: &Object<'_>, name: &str, lists: bool) -> Result<String, Reason> {
    let value = match at(object, name) {
        None | Some(Value::Null) if lists => return Ok(String::new()),
        _ => found(object, name)?,
    };
    let list = match value {
        Value::List(list) if lists => list,
        Value::Object(scores) if are_scores(scores) || (lists && scores.fields.is_empty()) => {
            let fit = scores.fields.iter().filter(|(_, value)| score(value) >= Some(0.5));
            let labels: Vec<&str> = fit.map(|(label, _)| label.trim()).collect();
            if let Some(label) = labels.iter().find(|label| label.is_empty() || label.contains(BEHIND)) {
                let expected = format!("a name for each score in the field `{name}`");
                let got = format!("{}: no name may be empty or have U+001F", shown(label));
                return Err(Reason::of(expected, got));
            }
            return match labels[..] {
                _ if lists => Ok(joined(labels)),
                [one] => Ok(one.to_owned()),
                _ => {
                    let expected = format!("one label with a score of at least 0.5 in the field `{name}`");
                    Err(Reason::of(expected, format!("{} such labels; {LABEL_LISTS}", labels.len())))
                }
            };
        }
        Value::Object(_) if lists => {
            let expected = format!(
                "a string, a list, or an object with a score from 0 to 1 for each label in the field `{name}`"
            );
            return Err(Reason::of(expected, "another object"));
        }
        Value::List(_) => {
            let got = format!("a list; {LABEL_LISTS}");
            return Err(Reason::of(format!("a string in the field `{name}`"), got));
        }
        Value::Text(text) if lists && text.trim().is_empty() => return Ok(String::new()),
        _ => return text(object, name).map(|label| label.trim().to_owned()),
    };
    let wrong = |got: String| Reason::of(format!("labels in the list of the field `{name}`"), got);
    let label = |item: &Value<'_>| {
        let (Value::Text(item) | Value::Number(item)) = item else {
            return Err(wrong(format!("{}: a label is a string or a number", item.kind())));
        };
        match item.trim() {
            "" => Err(wrong("an empty string: fill it, or remove it from the list".to_owned())),
            item if item.contains(BEHIND) => {
                Err(wrong(format!("{}: remove U+001F, which separates labels", shown(item))))
            }
            item => Ok(item.to_owned()),
        }
    };
    list.iter().map(label).collect::<Result<Vec<_>, _>>().map(joined)
}

/// Returns whether an object has a score from 0 to 1, or a truth value, for each label.
pub(crate) fn are_scores(object: &Object<'_>) -> bool {
    !object.fields.is_empty() && object.fields.iter().all(|(_, value)| score(value).is_some())
}

/// Returns the score of a label, from 0 to 1; a truth value is a score of 0 or 1. The reader refuses scores that are not finite.
fn score(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Truth(truth) => Some(f64::from(*truth)),
        Value::Number(number) => {
            number.parse().ok().filter(|score: &f64| (0.0..=1.0).contains(score) || !score.is_finite())
        }
        Value::Null | Value::Text(_) | Value::List(_) | Value::Object(_) => None,
    }
}

/// Advice in messages for a label that is a list.
pub(crate) const LABEL_LISTS: &str =
    "`data.target = \"labels\"` in a config (`label_lists`) reads several labels per text";

/// Returns the strings in the list of a field. With `numbers`, the list may also have whole numbers, which become strings.
pub(crate) fn list(object: &Object<'_>, name: &str, numbers: bool) -> Result<Vec<String>, Reason> {
    let items = if numbers { "strings or whole numbers" } else { "strings" };
    let is_whole = |number: &str| number.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit());
    let wrong = |got: String| Reason::of(format!("a list of {items} in the field `{name}`"), got);
    let value = found(object, name)?;
    let Value::List(list) = value else { return Err(wrong(value.kind().to_owned())) };
    let text = |one: &Value<'_>| match one {
        Value::Text(text) => Ok(text.to_string()),
        Value::Number(number) if numbers && is_whole(number) => Ok(number.to_string()),
        other => Err(wrong(format!("a list with {}", other.kind()))),
    };
    list.iter().map(text).collect()
}
