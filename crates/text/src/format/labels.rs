//! The notations of labels in one cell: several labels between separators or as a list, and numbers with decimal commas.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::source::lines::quoted;
use crate::source::reason::Reason;
use crate::source::records::shown;

/// The character behind each label of a text with several labels.
pub(crate) const BEHIND: char = '\u{1f}';

/// The notation of the labels of a text in one cell.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LabelNotation {
    /// Labels with this separator between them, such as `,`.
    Separator(String),
    /// Lists as Python and JSON write them, such as `['a', "b"]`.
    Lists,
    /// Numbers with a decimal comma, such as `2,5`.
    DecimalComma,
}

/// The separators that are detected.
const SEPARATORS: [&str; 4] = [",", ";", "|", "\n"];
const LISTS: &str = "lists";
const DECIMAL_COMMA: &str = "decimal comma";

impl LabelNotation {
    /// Parses a notation: `lists`, or a separator, in which `\n` and `\t` are a line break and a tab.
    pub fn parse(text: &str) -> Self {
        match text {
            LISTS => Self::Lists,
            separator => Self::Separator(separator.replace("\\n", "\n").replace("\\t", "\t")),
        }
    }

    /// Parses a notation in a read note; a note of numbers may name the decimal comma.
    pub(crate) fn of_note(text: &str, numbers: bool) -> Self {
        if numbers && text == DECIMAL_COMMA { Self::DecimalComma } else { Self::parse(text) }
    }

    /// Detects the notation of several labels in the cells of texts; `None` if no cell seems to have several labels.
    ///
    /// # Errors
    /// Fails with the possible notations, quoted, if there are several.
    pub(crate) fn detect<'c>(cells: impl IntoIterator<Item = &'c str>) -> Result<Option<Self>, String> {
        let cells: BTreeSet<&str> =
            cells.into_iter().map(str::trim).filter(|cell| !cell.is_empty()).collect();
        let lists = cells.iter().filter(|cell| is_list(cell)).count();
        let found: Vec<&str> = SEPARATORS
            .into_iter()
            .filter(|candidate| cells.iter().any(|cell| cell.contains(candidate)))
            .collect();
        match found[..] {
            _ if lists > 0 && lists * 2 >= cells.len() => return Ok(Some(Self::Lists)),
            _ if lists > 0 => return Err(quoted(["['a', 'b']", "a,b"])),
            [] => return Ok(None),
            [one] => return Ok(Some(Self::Separator(one.to_owned()))),
            _ => {}
        }
        let proved: Vec<&str> = found.iter().copied().filter(|separator| recur(&cells, separator)).collect();
        match proved[..] {
            [one] => Ok(Some(Self::Separator(one.to_owned()))),
            _ => Err(quoted(found.iter().map(|separator| separator.replace('\n', "\\n")))),
        }
    }

    /// Returns [`Self::DecimalComma`] if the cells are numbers of which some have a comma, and if no comma can separate
    /// thousands; else `None`.
    pub fn of_numbers<'c>(cells: impl IntoIterator<Item = &'c str>) -> Option<Self> {
        let (mut commas, mut decimal) = (false, false);
        for cell in cells.into_iter().map(str::trim).filter(|cell| !cell.is_empty()) {
            point(cell)?;
            if let Some((whole, digits)) = cell.trim_start_matches(['+', '-']).split_once(',') {
                commas = true;
                decimal |= digits.len() != 3 || whole.len() > 3 || whole.starts_with('0');
            }
        }
        (commas && decimal).then_some(Self::DecimalComma)
    }

    /// Returns the separator between the labels of an answer in one cell or line.
    pub fn joint(&self) -> &str {
        match self {
            Self::Separator(separator) if !separator.contains('\n') => separator,
            Self::Separator(_) | Self::Lists | Self::DecimalComma => ",",
        }
    }

    /// Returns the labels in a cell, without white space around them.
    pub(crate) fn labels<'c>(&self, cell: &'c str) -> Result<Vec<Cow<'c, str>>, Reason> {
        match self {
            Self::Separator(separator) => {
                let labels = cell.split(separator.as_str()).map(str::trim);
                Ok(labels.filter(|label| !label.is_empty()).map(Cow::Borrowed).collect())
            }
            Self::Lists => {
                let expected =
                    "a list of labels, as `['a', 'b']`; `data.label_separator` sets another notation";
                let found = list(cell).ok_or_else(|| Reason::of(expected, shown(cell)))?;
                Ok(found.into_iter().map(Cow::Owned).collect())
            }
            Self::DecimalComma => point(cell).map(|number| vec![Cow::Owned(number)]).ok_or_else(|| {
                Reason::of("a number with a decimal comma, as in the first records of the training (write all numbers of all files alike)", shown(cell))
            }),
        }
    }

    /// Returns a note for the user.
    pub(crate) fn note(&self) -> String {
        match self {
            Self::Separator(separator) => format!("labels separated by `{}`", separator.replace('\n', "\\n")),
            Self::Lists => "labels in lists, as `['a', 'b']`".to_owned(),
            Self::DecimalComma => "numbers with decimal commas".to_owned(),
        }
    }
}

/// Formats the notation as read notes have it.
impl fmt::Display for LabelNotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Separator(separator) => f.write_str(separator),
            Self::Lists => f.write_str(LISTS),
            Self::DecimalComma => f.write_str(DECIMAL_COMMA),
        }
    }
}

/// Returns a number with a decimal comma as a number with a decimal point; `None` for other text.
fn point(cell: &str) -> Option<String> {
    let number = cell.trim().replacen(',', ".", 1);
    (!cell.contains('.') && number.parse::<f64>().is_ok_and(f64::is_finite)).then_some(number)
}

/// Returns whether a separator cuts a cell into parts that also occur in other cells.
fn recur(cells: &BTreeSet<&str>, separator: &str) -> bool {
    let parts = cells.iter().map(|cell| cell.split(separator).map(str::trim).filter(|part| !part.is_empty()));
    let parts: Vec<BTreeSet<&str>> = parts.map(Iterator::collect).collect();
    let mut counts = BTreeMap::<&str, usize>::new();
    parts.iter().flatten().for_each(|part| *counts.entry(part).or_default() += 1);
    let again = |part: &&str| counts.get(part).is_some_and(|count| *count > 1);
    parts.iter().any(|parts| parts.len() > 1 && parts.iter().all(again))
}

/// Returns whether a cell is a list, and not a single label in brackets.
fn is_list(cell: &str) -> bool {
    list(cell).is_some_and(|labels| labels.len() != 1 || cell.contains(['\'', '"']))
}

/// Returns the character of an escape sequence of Python, whose backslash is read; `None` for other sequences.
fn escaped(rest: &mut impl Iterator<Item = (usize, char)>) -> Option<char> {
    let digits = match rest.next()?.1 {
        c @ ('\\' | '\'' | '"') => return Some(c),
        'n' => return Some('\n'),
        't' => return Some('\t'),
        'r' => return Some('\r'),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => return None,
    };
    let code = (0..digits).try_fold(0, |code, _| Some(code * 16 + rest.next()?.1.to_digit(16)?));
    code.and_then(char::from_u32)
}

/// Parses a list of labels, as Python, NumPy or JSON write it; `None` for other text.
fn list(cell: &str) -> Option<Vec<String>> {
    let cell = cell.trim();
    if let Ok(labels) = serde_json::from_str::<Vec<String>>(cell) {
        return Some(labels);
    }
    let brackets = [('[', ']'), ('(', ')'), ('{', '}')];
    let mut rest =
        brackets.into_iter().find_map(|(a, b)| cell.strip_prefix(a)?.strip_suffix(b))?.trim_start();
    if !cell.starts_with('[') && !rest.starts_with(['\'', '"']) {
        return None;
    }
    let mut labels = Vec::new();
    while let Some(first) = rest.chars().next() {
        let end = match first {
            mark @ ('\'' | '"') => {
                let (mut label, mut characters) = (String::new(), rest.char_indices().skip(1));
                let end = loop {
                    match characters.next()? {
                        (at, c) if c == mark => break at + 1,
                        (_, '\\') => label.push(escaped(&mut characters)?),
                        (_, c) => label.push(c),
                    }
                };
                labels.push(label);
                end
            }
            _ => {
                let end = rest.find(',').unwrap_or(rest.len());
                labels.push(rest.get(..end)?.trim().to_owned());
                end
            }
        };
        let behind = rest.get(end..)?;
        rest = behind.trim_start();
        if behind.starts_with(|c: char| c != ',' && !c.is_whitespace()) {
            return None;
        }
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    labels.iter().all(|label| !label.trim().is_empty() && !label.contains(BEHIND)).then_some(labels)
}

/// Parses the cell of a column that says whether a text has the column's label.
pub(crate) fn flag(cell: &str) -> Option<bool> {
    match &*cell.trim().to_lowercase() {
        "1" | "1.0" | "true" | "yes" => Some(true),
        "0" | "0.0" | "false" | "no" => Some(false),
        _ => None,
    }
}

/// Joins the labels of a text: U+001F follows each label, and an empty list is U+001F alone.
pub(crate) fn joined<L: AsRef<str>>(labels: impl IntoIterator<Item = L>) -> String {
    let mut joined = String::new();
    for label in labels {
        joined.push_str(label.as_ref());
        joined.push(BEHIND);
    }
    if joined.is_empty() { BEHIND.to_string() } else { joined }
}
