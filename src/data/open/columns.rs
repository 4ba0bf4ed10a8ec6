//! Which columns of a table, or fields of JSON, are the ones that are wanted.

use std::collections::HashSet;

use crate::error::{Error, ErrorKind, Result};
use crate::kernels::edit_distance;

/// A column that is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// What it is, such as `text`: the option that names it.
    pub(super) what: &'static str,
    /// Its name or number, if it was said.
    pub(super) given: Option<&'a str>,
    /// What it is called in many data sets, the likeliest first.
    pub(super) known: &'static [&'static str],
}

pub(super) const TEXT: &[&str] = &[
    "text",
    "sentence",
    "review",
    "content",
    "body",
    "document",
    "comment",
    "tweet",
    "message",
    "question",
    "utterance",
    "query",
    "title",
    "phrase",
    "name",
];
pub(super) const LABEL: &[&str] = &[
    "label",
    "labels",
    "class",
    "category",
    "sentiment",
    "intent",
    "target",
    "topic",
    "rating",
    "stars",
    "polarity",
    "tag",
    "language",
    "score",
];
pub(super) const SOURCE: &[&str] =
    &["source", "src", "input", "question", "english", "en", "word", "from", "text"];
pub(super) const TARGET: &[&str] =
    &["target", "tgt", "output", "answer", "translation", "french", "fr", "to", "phonemes", "summary"];
pub(super) const TOKENS: &[&str] = &["tokens", "words"];
pub(super) const TAGS: &[&str] = &["tags", "ner_tags", "labels", "slots", "chunk_tags", "pos_tags", "ner"];
pub(super) const INTENT: &[&str] = &["intent", "label", "class"];

/// The columns that were found.
#[derive(Debug, Clone)]
pub(super) struct Picked {
    /// Counted from 0, in the order in which they were wanted.
    pub(super) columns: Vec<usize>,
    /// The name of each, or its number from 1.
    pub(super) names: Vec<String>,
    /// How many columns there are.
    pub(super) width: usize,
    /// Whether the first row is the names of the columns.
    pub(super) header: bool,
}

/// The first rows of a table.
pub(super) struct Columns<'a> {
    pub(super) name: &'a str,
    pub(super) rows: &'a [Vec<String>],
    pub(super) header: Option<bool>,
}

fn plain(name: &str) -> String {
    name.trim().to_lowercase()
}

fn quoted(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    names.into_iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}

impl Columns<'_> {
    /// The columns that are wanted.
    pub(super) fn pick(&self, wanted: &[Wanted<'_>]) -> Result<Picked> {
        let Some(first) = self.rows.first() else {
            let what = format!("records of file `{}`", self.name);
            return Err(Error::of(ErrorKind::Format, what, "at least one", "none"));
        };
        let width = first.len();
        let numbered = |given: &str| {
            given.parse().ok().filter(|number| (1..=width).contains(number)).map(|number: usize| number - 1)
        };
        let position = |name: &str| first.iter().position(|cell| cell.trim() == name.trim());
        let known = |name: &&str| first.iter().position(|cell| plain(cell) == **name);
        let named = |one: &Wanted<'_>| match one.given {
            Some(given) => position(given).is_some() || numbered(given).is_none(),
            None => one.known.iter().any(|name| known(name).is_some()),
        };
        let header = self.header.or(wanted.iter().any(named).then_some(true));
        let mut columns = vec![None; wanted.len()];
        for (place, one) in wanted.iter().enumerate() {
            let Some(given) = one.given else { continue };
            let found = position(given).filter(|_| header == Some(true)).or_else(|| numbered(given));
            columns[place] = Some(found.ok_or_else(|| self.missing(one.what, given, first, header))?);
        }
        if header == Some(true) {
            for (place, one) in wanted.iter().enumerate().filter(|(_, one)| one.given.is_none()) {
                let free = |column: &usize| !columns.contains(&Some(*column));
                let found = one.known.iter().filter_map(known).find(free);
                columns[place] = found;
            }
        }
        let free: Vec<usize> = (0..width).filter(|column| !columns.contains(&Some(*column))).collect();
        let open: Vec<usize> = (0..wanted.len()).filter(|&place| columns[place].is_none()).collect();
        let labelled = wanted.iter().any(|one| one.what == "label");
        match (&open[..], &free[..]) {
            ([], _) => {}
            (&[a], &[one]) => columns[a] = Some(one),
            (&[a, b], &[left, right]) => {
                let swapped = labelled && self.labels_come_first(left, right);
                (columns[a], columns[b]) =
                    if swapped { (Some(right), Some(left)) } else { (Some(left), Some(right)) };
            }
            // Of pairs what stands behind them is notes.
            (&[a, b], &[left, right, ..]) if !labelled => {
                (columns[a], columns[b]) = (Some(left), Some(right))
            }
            _ => {
                let open = wanted.iter().enumerate().find(|(place, _)| columns[*place].is_none());
                let one = open.map_or(&wanted[0], |(_, one)| one);
                return Err(self.unclear(one, first, header));
            }
        }
        let columns: Vec<usize> = columns.into_iter().flatten().collect();
        let often = |column: usize| first.iter().filter(|cell| Some(*cell) == first.get(column)).count();
        if header == Some(true) {
            for (one, &column) in wanted.iter().zip(&columns) {
                let by_number = one.given.is_some_and(|given| numbered(given).is_some());
                if often(column) > 1 && !by_number {
                    let name = first.get(column).map_or("", |name| name.trim());
                    let what = format!("column `{name}` of file `{}`, the {}", self.name, one.what);
                    let advice = format!("`{}` may be the number of one, from 1 on", one.what);
                    let got = often(column).to_string();
                    return Err(Error::of(ErrorKind::Format, what, "one of that name", got).noted(advice));
                }
            }
        }
        let label = wanted.iter().position(|one| one.what == "label").and_then(|place| columns.get(place));
        let header = header.unwrap_or_else(|| label.is_some_and(|&label| self.is_heading(label)));
        let name = |&column: &usize| match first.get(column) {
            Some(cell) if header && !cell.trim().is_empty() && often(column) == 1 => cell.trim().to_owned(),
            _ => (column + 1).to_string(),
        };
        let names = columns.iter().map(name).collect();
        Ok(Picked { columns, names, width, header })
    }

    /// What a column has in the rows behind the first.
    fn column(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().skip(1).filter_map(move |row| row.get(column)).map(|cell| cell.trim())
    }

    /// Whether the left one of two columns is the label: it has fewer different values, and no longer ones.
    fn labels_come_first(&self, left: usize, right: usize) -> bool {
        let cells =
            |column: usize| self.rows.iter().filter_map(move |row| row.get(column)).map(|cell| cell.trim());
        let different = |column| cells(column).collect::<HashSet<_>>().len();
        let long = |column| cells(column).map(str::len).sum::<usize>();
        different(left) < different(right) && long(left) <= long(right)
    }

    /// Whether what the first row has in the column of labels is no label: no other row has it, of many that have few.
    fn is_heading(&self, label: usize) -> bool {
        const MANY: usize = 20;
        let others: HashSet<&str> = self.column(label).collect();
        let first = self.rows.first().and_then(|row| row.get(label)).map(|cell| cell.trim());
        self.rows.len() > MANY
            && others.len() * 4 <= self.rows.len()
            && first.is_some_and(|first| !others.contains(first))
    }

    fn missing(&self, what: &str, given: &str, first: &[String], header: Option<bool>) -> Error {
        let what = format!("column `{given}` of file `{}`, the {what}", self.name);
        if header != Some(true) {
            let expected = format!("a number from 1 to {}, as the columns have no names", first.len());
            return Error::of(ErrorKind::Format, what, expected, format!("`{given}`"));
        }
        missing(what, given, first)
    }

    fn unclear(&self, one: &Wanted<'_>, first: &[String], header: Option<bool>) -> Error {
        let what = format!("column of the {} in file `{}`", one.what, self.name);
        let got = match header {
            Some(true) => format!("the columns {}", quoted(first.iter().map(|cell| cell.trim()))),
            _ => format!("{} without a name that is known", counted(first.len())),
        };
        let expected = format!("one called {}", quoted(one.known.iter().take(4)));
        let advice = format!("`{}` names it, or gives its number from 1 on", one.what);
        Error::of(ErrorKind::Format, what, expected, got).noted(advice)
    }
}

fn counted(columns: usize) -> String {
    if columns == 1 { "1 column".to_owned() } else { format!("{columns} columns") }
}

/// The error of a name that is none of these.
pub(super) fn missing(what: String, given: &str, names: &[impl AsRef<str>]) -> Error {
    let names = || names.iter().map(|name| name.as_ref().trim());
    let error =
        Error::of(ErrorKind::Format, what, format!("one of {}", quoted(names())), format!("`{given}`"));
    let letters = |name: &str| plain(name).chars().collect::<Vec<_>>();
    let nearest = names().map(|name| (edit_distance(&letters(name), &letters(given)), name)).min();
    match nearest {
        Some((distance, name)) if distance * 2 <= given.chars().count().max(2) => {
            error.noted(format!("the nearest is `{name}`"))
        }
        _ => error,
    }
}
