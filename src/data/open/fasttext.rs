//! Lines of fastText: labels that begin with `__label__`, and the text behind them.

use crate::data::Labelled;
use crate::data::lines::Reason;
use crate::data::records::shown;

/// What a label begins with.
const LABEL: &str = "__label__";

/// Whether a line begins with a label.
pub(super) fn labelled(line: &str) -> bool {
    line.trim_start().starts_with(LABEL)
}

/// The text of a line and its one label; none of a blank line.
pub(super) fn record(line: &str) -> Result<Option<Labelled>, Reason> {
    let line = line.trim();
    if line.is_empty() {
        return Ok(None);
    }
    let wrong = |expected: &str, got: String| {
        Err(Reason { expected: expected.to_owned(), got: format!("{got} in {}", shown(line)) })
    };
    let labels = line.split_whitespace().filter(|word| word.starts_with(LABEL)).count();
    if labels > 1 {
        let expected = "one label a line: keep one of several, or write the line once with each";
        return wrong(expected, format!("{labels} labels"));
    }
    let Some(behind) = line.strip_prefix(LABEL) else {
        return wrong("a label at the start of the line, as `__label__good`", "none".to_owned());
    };
    let (label, text) = behind.split_once(char::is_whitespace).unwrap_or((behind, ""));
    match (label, text.trim()) {
        ("", _) => wrong("a name behind `__label__`", "none".to_owned()),
        (_, "") => wrong("a text behind the label", "none".to_owned()),
        (label, text) => Ok(Some(Labelled { text: text.to_owned(), label: label.to_owned() })),
    }
}
