//! Records of JSON, an object a line.

use serde_json::Value;

use super::fields::{Object, kind};
use crate::data::TextFile;
use crate::data::lines::Reason;
use crate::data::records::{OneLine, Stream, shown};
use crate::error::Result;

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

/// The first object of the file, if it has one.
pub(super) fn first(file: &TextFile) -> Result<Option<Object>> {
    file.first_records(OneLine(object))?.next().transpose()
}

/// The records of the file.
pub(super) fn records<R: 'static>(
    file: &TextFile,
    mut make: impl FnMut(&Object) -> Result<R, Reason> + Send + 'static,
) -> Result<Stream<R>> {
    let line = move |line: &str| object(line)?.as_ref().map(&mut make).transpose();
    Ok(Box::new(file.records(OneLine(line))?))
}
