//! Detection of file records among the lines of standard input, to warn the user.

use serde_json::Value;
use unpadded_recipes::Model;
use unpadded_text::QuestionKind;

/// Returns a warning if a line of standard input looks like a record of a training file instead of a text; else `None`.
pub(super) fn record(model: &Model, number: u64, line: &str) -> Option<String> {
    // A model of rows of features accepts lines with a label and skips the label, so there is no warning.
    let asking = model.asking();
    if asking == Some(QuestionKind::Row) {
        return None;
    }
    let known = |cell: &str| {
        let has = |name| model.predictor().vocabulary(name).is_ok_and(|labels| labels.id(cell).is_some());
        has("labels") || has("tags")
    };
    labelled(line, known)
        .or_else(|| json(line, known))
        .or_else(|| header(model, line).filter(|_| number == 1))
        .or_else(|| columns(asking?, line, known))
}

/// Detects a label of the model beside a separator, or before the text as in fastText files (`__label__spam`).
fn labelled(line: &str, known: impl Fn(&str) -> bool) -> Option<String> {
    for (separator, name) in [('\t', "tab"), (',', "comma"), (';', "semicolon"), ('|', "bar")] {
        let Some((first, rest)) = line.split_once(separator) else { continue };
        let last = rest.rsplit(separator).next().unwrap_or_default();
        // A label before a comma or semicolon is not detected, since a sentence may begin with the same word.
        let cells = [Some(last), Some(first).filter(|_| matches!(separator, '\t' | '|'))];
        let mut cells = cells.into_iter().flatten().map(|cell| cell.trim().trim_matches('"'));
        if let Some(label) = cells.find(|cell| known(cell)) {
            return Some(format!(
                "`{label}` beside a {name} is a label of the model, and is read as text: expected the text without its label"
            ));
        }
    }
    let words = line.split_whitespace().map_while(|word| word.strip_prefix("__label__"));
    let label = words.into_iter().find(|label| known(label))?;
    Some(format!(
        "`__label__{label}` is a label of the model, and is read as text: expected the text without its labels"
    ))
}

/// Detects a JSON object, or a JSON list with a string; a list of numbers such as `[1]` may be a text.
fn json(line: &str, known: impl Fn(&str) -> bool) -> Option<String> {
    let (kind, cells): (_, Vec<Value>) = match serde_json::from_str(line) {
        Ok(Value::Object(fields)) => ("object", fields.into_iter().map(|(_, value)| value).collect()),
        Ok(Value::Array(cells)) if cells.iter().any(Value::is_string) => ("list", cells),
        _ => return None,
    };
    let label = cells.iter().filter_map(Value::as_str).find(|cell| known(cell));
    let label = label.map(|label| format!("`{label}` is a label of the model, and ")).unwrap_or_default();
    Some(format!(
        "{label}the whole JSON {kind} is read as text: expected only the text, as from `jq -r .text`"
    ))
}

/// Detects a header line, which has the names of the columns of the training files.
fn header(model: &Model, line: &str) -> Option<String> {
    let note: Value = serde_json::from_str(model.predictor().note("read as")?).ok()?;
    // The note of the checkpoint has a number instead of a name for a column without a name.
    let named = |keys: [&str; 3]| {
        let name = keys.into_iter().find_map(|key| note[key].as_str())?;
        name.parse::<usize>().is_err().then(|| name.to_owned())
    };
    let (text, label) = (named(["text", "source", "tokens"])?, named(["label", "target", "tags"]));
    for separator in ['\t', ',', ';', '|'] {
        let cells: Vec<&str> = line.split(separator).map(|cell| cell.trim_matches('"')).collect();
        let has = |name: &str| cells.contains(&name);
        // A line is a header only if it also has the name of the label column, or if all its cells are single words.
        let bare = cells.iter().all(|cell| !cell.is_empty() && !cell.contains(char::is_whitespace));
        if cells.len() > 1 && has(&text) && (bare || label.as_deref().is_some_and(has)) {
            return Some(format!(
                "`{text}` is a column of the training, and the header is read as text: expected only texts; `unpadded predict RUN FILE` reads columns"
            ));
        }
    }
    None
}

/// Detects lines with columns: words and their tags, or a text and its translation.
fn columns(asking: QuestionKind, line: &str, known: impl Fn(&str) -> bool) -> Option<String> {
    let expected = match asking {
        QuestionKind::Words => "one sentence per line, without tags",
        QuestionKind::Source => "only the source text",
        QuestionKind::Text | QuestionKind::Row => return None,
    };
    if line.contains('\t') {
        return Some(format!("all columns of a line with tabs are read as text: expected {expected}"));
    }
    // Not every tag at the end of a line is detected: a sentence may end with a word that is also a tag, such as `O` or `.`.
    // Tags such as `B-place`, or `NNP` after a single word, are detected, since they are rarely words.
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_capital = |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
    let tag = match &words[..] {
        [word, tag] if is_capital(tag) && !is_capital(word) && known(tag) => Some(*tag),
        [_, rest @ ..] => {
            rest.iter().copied().find(|tag| tag.get(1..2) == Some("-") && tag.len() > 2 && known(tag))
        }
        [] => None,
    };
    let tag = tag.filter(|_| asking == QuestionKind::Words)?;
    Some(format!("`{tag}` is a tag of the model, and is read as a word: expected {expected}"))
}
