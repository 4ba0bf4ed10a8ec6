//! Reads files for fastText: a line has one or more labels that begin with `__label__`, then a text.

use std::sync::Arc;

use unpadded::Result;

use crate::source::lines::Reason;
use crate::source::records::{OneLine, Stream, shown};
use crate::{LabelledText, TextFile};

/// The prefix of each label in a file for fastText.
const LABEL: &str = "__label__";

/// Returns whether a line begins with `__label__`.
pub(crate) fn labelled(line: &str) -> bool {
    line.trim_start().starts_with(LABEL)
}

/// Cuts a line into the distinct labels at the start of the line, and the text behind the labels.
fn cut(line: &str) -> (Vec<&str>, &str) {
    let (mut labels, mut rest) = (Vec::new(), line.trim());
    while let Some(behind) = rest.strip_prefix(LABEL) {
        let (label, text) = behind.split_once(char::is_whitespace).unwrap_or((behind, ""));
        if !labels.contains(&label) {
            labels.push(label);
        }
        rest = text.trim_start();
    }
    (labels, rest)
}

/// Returns the text of a line, without the labels.
pub(crate) fn text(line: &str) -> String {
    cut(line).1.to_owned()
}

/// Returns the records of a line: one labelled text per label; `None` for a blank line.
fn record(line: &str) -> Result<Option<Vec<LabelledText>>, Reason> {
    if line.trim().is_empty() {
        return Ok(None);
    }
    let wrong = |expected: &str| {
        Err(Reason { expected: expected.to_owned(), got: format!("none in {}", shown(line.trim())) })
    };
    match cut(line) {
        (labels, _) if labels.is_empty() => wrong("a label at the start of the line, as `__label__good`"),
        (labels, _) if labels.contains(&"") => wrong("a name behind `__label__`"),
        (_, "") => wrong("a text behind the label"),
        (labels, text) => {
            let with = |label: &str| LabelledText::new(text, label);
            Ok(Some(labels.into_iter().map(with).collect()))
        }
    }
}

/// Reads the records of a file.
pub(crate) fn records(file: &TextFile) -> Result<Stream<LabelledText>> {
    let name = Arc::from(file.name());
    let all = move |of: Result<(Vec<LabelledText>, u64)>| {
        let ((records, line), error) =
            of.map_or_else(|e| ((Vec::new(), 0), Some(Err(e))), |records| (records, None));
        let name = Arc::clone(&name);
        records.into_iter().map(move |text| Ok(text.placed(&name, line))).chain(error)
    };
    Ok(Box::new(file.records(OneLine(record))?.with_lines().flat_map(all)))
}

/// Returns a note for the user if texts in the first lines have several labels; else `None`.
pub(crate) fn note(file: &TextFile) -> Result<Option<String>> {
    let several = |line: &str| Ok(Some(cut(line).0.len() > 1));
    let several = file.first_records(OneLine(several))?.filter(|one| matches!(one, Ok(true))).count();
    Ok(match several {
        0 => None,
        1 => Some("1 text with several labels is read once with each".to_owned()),
        _ => Some(format!("{several} texts with several labels are read once with each")),
    })
}
