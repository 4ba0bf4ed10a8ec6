//! Reads files for fastText: a line has one or more labels that begin with `__label__`, then a text.

use unpadded::Result;

use super::labels::joined;
use super::line_format::LineFormat;
use crate::TextFile;
use crate::source::reason::Reason;
use crate::source::records::{OneLine, shown};

pub(crate) const FORMAT: LineFormat = LineFormat {
    fits: |line| line.trim_start().starts_with(LABEL),
    why: "its lines begin with `__label__`",
    records: |settings| Box::new(move |line| records(line, settings.label_lists)),
    texts: |_| Box::new(|line| Ok((!line.trim().is_empty()).then(|| labels_and_text(line).1.to_owned()))),
    note: |file, settings| note(file, settings.label_lists),
    ..LineFormat::DEFAULT
};

/// The prefix of each label in a file for fastText.
const LABEL: &str = "__label__";

/// Cuts a line into the distinct labels at the start of the line, and the text behind the labels.
fn labels_and_text(line: &str) -> (Vec<&str>, &str) {
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

/// Returns the records of a line: the text with each of its labels or, if `lists` is true, with all of them; `None` for a
/// blank line.
fn records(line: &str, lists: bool) -> Result<Option<Vec<[String; 2]>>, Reason> {
    if line.trim().is_empty() {
        return Ok(None);
    }
    let wrong = |expected: &str| Err(Reason::of(expected, format!("none in {}", shown(line.trim()))));
    match labels_and_text(line) {
        (labels, _) if labels.is_empty() => wrong("a label at the start of the line, as `__label__good`"),
        (labels, _) if labels.contains(&"") => wrong("a name behind `__label__`"),
        (_, "") => wrong("a text behind the label"),
        (labels, text) if lists => Ok(Some(vec![[text.to_owned(), joined(labels)]])),
        (labels, text) => {
            Ok(Some(labels.into_iter().map(|label| [text.to_owned(), label.to_owned()]).collect()))
        }
    }
}

/// Returns a note for the user if texts in the first lines have several labels; else `None`.
fn note(file: &TextFile, lists: bool) -> Result<Option<String>> {
    let several = |_, line: &str| Ok(Some(labels_and_text(line).0.len() > 1));
    let several = file.first_records(OneLine(several))?.filter(|one| matches!(one, Ok(true))).count();
    let plural = if several == 1 { "" } else { "s" };
    let read = if several == 1 { "is read" } else { "are read" };
    Ok((several > 0 && !lists).then(|| {
        format!("{several} text{plural} with several labels {read} once with each (`data.target = \"labels\"` reads them together)")
    }))
}
