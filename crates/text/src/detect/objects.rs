//! Finds the wanted fields, such as the text and the label, in records of JSON or Parquet.

use std::collections::BTreeSet;

use unpadded::{Error, Result};

use super::column::{Column, LABEL, unread};
use super::columns::{Columns, missing, of_flags, shortened};
#[cfg(not(feature = "parquet"))]
use super::guess::no_parquet;
use super::options::ReadOptions;
use crate::TextFile;
use crate::format::fields::{LABEL_LISTS, Object, Value, are_scores, at, leads, names};
use crate::format::labels::flag;
#[cfg(feature = "parquet")]
use crate::format::parquet;
use crate::format::{FieldFormat, json};
use crate::source::lines::quoted;
use crate::source::reason::{Reason, no_records, wrong_format};
use crate::source::records::Stream;

/// The decisions about a file of JSON or Parquet: the wanted fields, and the layout of the records.
#[derive(Debug, Clone)]
pub(crate) struct FieldChoice {
    /// The name of the field for each wanted column.
    pub(crate) names: Vec<String>,
    pub(crate) notes: Vec<String>,
    /// The other fields of the first record; empty for records that are lists.
    others: Vec<String>,
    pub(crate) layout: FieldLayout,
}

#[derive(Debug, Clone)]
pub(crate) enum FieldLayout {
    Json(json::Layout),
    #[cfg(feature = "parquet")]
    Parquet,
}

/// Number of records from which fields are detected.
const LOOKED_AT: usize = 1000;
/// Number of records in which fields of 0 and 1 are looked for, for advice.
const FLAGS_IN: usize = 100;

#[cfg(feature = "parquet")]
fn is_single(value: &Value<'_>) -> bool {
    matches!(value, Value::Truth(_) | Value::Number(_))
}

/// Returns whether a column must have lists as values, as the columns of words and of tags must.
fn listed(one: &Column<'_>) -> bool {
    ["tokens", "tags"].contains(&one.what)
}

fn fits(one: &Column<'_>, value: &Value<'_>, options: &ReadOptions) -> bool {
    match value {
        Value::Object(object) => one.what == "label" && are_scores(object),
        Value::List(_) => listed(one) || (options.label_lists && one.what == "label"),
        _ => !listed(one),
    }
}

/// Checks that a text of several fields does not have a field twice.
fn differ(file: &TextFile, wanted: &[Column<'_>]) -> Result<()> {
    let texts: Vec<&str> =
        wanted.iter().filter(|one| one.what == "text").filter_map(|one| one.given).collect();
    let twice = (1..).zip(&texts).find(|(behind, one)| texts.iter().skip(*behind).any(|other| other == *one));
    let Some((_, twice)) = twice else { return Ok(()) };
    let what = format!("fields of the text in file `{}`", file.name());
    let error = wrong_format(what, "each field once", format!("`{twice}` twice"));
    Err(error.noted("`text` (`data.text` in a config) sets the fields"))
}

/// Finds the wanted fields; if records are lists, the header setting sets whether the first list is a header.
pub(crate) fn picked(
    file: &TextFile,
    format: FieldFormat,
    wanted: &[Column<'_>],
    options: &ReadOptions,
) -> Result<FieldChoice> {
    differ(file, wanted)?;
    let layout = match format {
        FieldFormat::Json => json::Layout::of(file, wanted.iter().any(listed))?,
        #[cfg(feature = "parquet")]
        FieldFormat::Parquet => {
            let example = parquet::example(file)?;
            let first = || {
                let names = example.fields.iter().filter(|(_, value)| is_single(value));
                let names: Vec<String> = names.map(|(name, _)| name.to_string()).collect();
                let rows = parquet::records(file, &names, |row| Ok(row.owned()));
                rows.map_or(Vec::new(), |rows| rows.take(FLAGS_IN).map_while(Result::ok).collect())
            };
            let names = named(file, &example, wanted, options).map_err(|e| noted_flags(e, wanted, &first))?;
            let others = others(&example, &names);
            return Ok(FieldChoice { names, notes: Vec::new(), others, layout: FieldLayout::Parquet });
        }
        #[cfg(not(feature = "parquet"))]
        FieldFormat::Parquet => return Err(no_parquet(file)),
    };
    let example = example(file, &layout)?;
    if example.is_list {
        return of_lists(file, layout, &example, wanted, options);
    }
    let mut notes: Vec<String> = layout.note().map(str::to_owned).into_iter().collect();
    let example = completed(file, &layout, example, wanted, options)?;
    let first = || json::first(file, &layout, FLAGS_IN).unwrap_or_default();
    let names = named(file, &example, wanted, options).map_err(|e| noted_flags(e, wanted, &first))?;
    let has_scores =
        |name: &&String| matches!(at(&example, name), Some(Value::Object(object)) if are_scores(object));
    let scores = wanted.iter().zip(&names).find(|(one, name)| one.what == "label" && has_scores(name));
    notes
        .extend(scores.map(|(_, name)| format!("labels in `{name}` are those with a score of at least 0.5")));
    let others = others(&example, &names);
    Ok(FieldChoice { names, notes, others, layout: FieldLayout::Json(layout) })
}

/// Adds advice to the error for an unknown label field if several fields have only 0 and 1 in the first records.
fn noted_flags(error: Error, wanted: &[Column<'_>], first: &dyn Fn() -> Vec<Object<'static>>) -> Error {
    let Some(label) = wanted.iter().find(|one| one.what == "label" && one.given.is_none()) else {
        return error;
    };
    let first = first();
    let is_flag = |name: &str| {
        first.iter().all(|record| match record.get(name) {
            Some(Value::Truth(_)) => true,
            Some(Value::Number(number)) => flag(number).is_some(),
            _ => false,
        })
    };
    let names = first.iter().take(1).flat_map(|record| &record.fields).map(|(name, _)| &**name);
    let flags: Vec<&str> = names.filter(|name| is_flag(name)).collect();
    of_flags(error, label, &flags)
}

/// Returns the fields of a record that are not wanted, without those that are objects with a wanted field.
fn others(example: &Object<'_>, wanted: &[String]) -> Vec<String> {
    let names = example.fields.iter().map(|(name, _)| name.to_string());
    names.filter(|name| !leads(name, wanted)).collect()
}

/// Returns the first record, with the wanted fields that only later records have: a record may lack some fields.
fn completed(
    file: &TextFile,
    layout: &json::Layout,
    mut example: Object<'static>,
    wanted: &[Column<'_>],
    options: &ReadOptions,
) -> Result<Object<'static>> {
    let several = wanted.iter().filter(|one| one.what == "text").count() > 1;
    let may_lack =
        |one: &&Column<'_>| (one.what == "text" && several) || (one.what == "label" && options.label_lists);
    let names = |one: &Column<'_>| -> Vec<String> {
        one.given.map_or_else(|| one.known().map(str::to_owned).collect(), |given| vec![given.to_owned()])
    };
    let lacks = |one: &&Column<'_>| !names(one).iter().any(|name| at(&example, name).is_some());
    let lacking: Vec<String> = wanted.iter().filter(may_lack).filter(lacks).flat_map(names).collect();
    if lacking.is_empty() {
        return Ok(example);
    }
    let later = json::first(file, layout, LOOKED_AT)?;
    for name in lacking {
        if let Some(value) = later.iter().find_map(|record| at(record, &name)) {
            example.fields.push((name.into(), value.owned()));
        }
    }
    Ok(example)
}

/// Returns the first record, with all fields; an error if there is no record.
fn example(file: &TextFile, layout: &json::Layout) -> Result<Object<'static>> {
    json::first(file, layout, 1)?.pop().ok_or_else(|| no_records(&file.name()))
}

/// Finds the wanted elements of records that are lists. Lists of single values are treated as the rows of a table.
fn of_lists(
    file: &TextFile,
    layout: json::Layout,
    shown: &Object<'_>,
    wanted: &[Column<'_>],
    options: &ReadOptions,
) -> Result<FieldChoice> {
    let row = |record: &Object<'_>| -> Option<Vec<String>> {
        let cell = |(_, value): &(_, Value<'_>)| match value {
            Value::Text(cell) | Value::Number(cell) => Some(cell.to_string()),
            Value::Truth(truth) => Some(truth.to_string()),
            Value::Null => Some(String::new()),
            Value::List(_) | Value::Object(_) => None,
        };
        record.fields.iter().map(cell).collect()
    };
    let choice = |names, notes, layout| {
        Ok(FieldChoice { names, notes, others: Vec::new(), layout: FieldLayout::Json(layout) })
    };
    let message = |names: &[String]| {
        let all = wanted.iter().zip(names).map(|(one, name)| format!("element {name} is the {}", one.what));
        all.collect::<Vec<_>>().join(", ")
    };
    let Some(first) = row(shown).filter(|_| !wanted.iter().any(listed)) else {
        let names = row(shown).filter(|first| {
            let is = |one: &Column<'_>, cell: &String| one.given.map_or(one.has(cell), |given| given == cell);
            options.header != Some(false) && wanted.iter().all(|one| first.iter().any(|cell| is(one, cell)))
        });
        if let Some(names) = names {
            let layout = layout.with_header(names);
            let names = named(file, &example(file, &layout)?, wanted, options)?;
            let note = "the first list is a header, since it has known names";
            return choice(names, vec![note.to_owned()], layout);
        }
        let names = positions(file, shown, wanted, options)?;
        let notes = vec![message(&names)];
        return choice(names, notes, layout);
    };
    let rows: Vec<Vec<String>> = json::first(file, &layout, LOOKED_AT)?.iter().map_while(row).collect();
    let line = json::first_line(file, &layout)?;
    // If only the text is wanted, the label is detected, too, so that the label is not mistaken for the text.
    let label = Column { what: "label", given: None, known: LABEL };
    let both = wanted.first().map(|text| [*text, label]);
    let sought = match (wanted, &both) {
        ([text], Some(both)) if text.what == "text" && text.given.is_none() && first.len() == 2 => &both[..],
        _ => wanted,
    };
    let found = Columns::detect((&file.name(), line), &rows, options, sought)?;
    let mut names = found.names;
    names.truncate(wanted.len());
    let decided = found.notes.iter().filter(|note| *note != "no header");
    let mut notes: Vec<String> =
        decided.map(|note| note.replace(&format!("line {line}"), "the first list")).collect();
    if !found.header {
        notes.push(message(&names));
        return choice(names, notes, layout);
    }
    // An element whose name in the header is empty or repeated is named by its number.
    let once = |cell: &str| !cell.is_empty() && first.iter().filter(|own| own.trim() == cell).count() == 1;
    let name = |(number, cell): (usize, &String)| {
        let cell = cell.trim();
        if once(cell) { cell.to_owned() } else { number.to_string() }
    };
    let all = (1..).zip(&first).map(name).collect();
    choice(names, notes, layout.with_header(all))
}

/// Finds the element for each wanted column by its form, a list or a single value: first the text, source or words.
fn positions(
    file: &TextFile,
    example: &Object<'_>,
    wanted: &[Column<'_>],
    options: &ReadOptions,
) -> Result<Vec<String>> {
    let is_list = |value: &Value<'_>| matches!(value, Value::List(_));
    let lists = options.label_lists && example.fields.iter().any(|(_, value)| is_list(value));
    let listed = |one: &Column<'_>| listed(one) || (lists && one.what == "label");
    let position = |(index, one): (usize, &Column<'_>)| {
        if let Some(given) = one.given {
            return given_name(file, example, one, given);
        }
        let fits = |value: &Value<'_>| is_list(value) == listed(one) && fits(one, value, options);
        let fitting: Vec<_> = example.fields.iter().filter(|(_, value)| fits(value)).collect();
        let alike =
            |wanted: &[Column<'_>]| wanted.iter().filter(|position| listed(position) == listed(one)).count();
        match fitting.get(alike(wanted.get(..index).unwrap_or_default())) {
            Some((name, _)) if fitting.len() == 2 || alike(wanted) == fitting.len() => Ok(name.to_string()),
            _ => {
                let what = format!("element of the {} in file `{}`", one.what, file.name());
                let kind = if listed(one) { "lists" } else { "single values" };
                let expected = format!("two {kind} in each record");
                let got = format!(
                    "a record of {} elements, of which {} are {kind}",
                    example.fields.len(),
                    fitting.len()
                );
                let advice = format!("`{}` sets the number of the element, counted from 1", one.what);
                Err(wrong_format(what, expected, got).noted(advice))
            }
        }
    };
    wanted.iter().enumerate().map(position).collect()
}

fn given_name(file: &TextFile, example: &Object<'_>, one: &Column<'_>, given: &str) -> Result<String> {
    if at(example, given).is_some() {
        return Ok(given.to_owned());
    }
    let what = format!("field `{given}` of file `{}`, the {}", file.name(), one.what);
    Err(missing(what, given, &names(example)))
}

/// Finds the field for each wanted column in the object `example`, by the name that the user set, or by known names.
fn named(
    file: &TextFile,
    example: &Object<'_>,
    wanted: &[Column<'_>],
    options: &ReadOptions,
) -> Result<Vec<String>> {
    let mut found: Vec<String> = Vec::new();
    for one in wanted {
        let free = |name: &&str| {
            example.get(name).is_some_and(|value| fits(one, value, options))
                && !found.iter().any(|other| other == name)
        };
        let name = match (one.given, one.known().find(free)) {
            (Some(given), _) => given_name(file, example, one, given)?,
            (None, Some(name)) => name.to_owned(),
            (None, None) => {
                let what = format!("field of the {} in file `{}`", one.what, file.name());
                let expected = format!("a field called {}", quoted(one.known().take(4)));
                let other = |name: &str| {
                    let value = example.get(name).filter(|value| !matches!(value, Value::Object(_)))?;
                    let taken = found.iter().any(|other| other == name);
                    (!taken).then(|| format!("{} in the field `{name}`", value.kind()))
                };
                let fields = || match example.fields.is_empty() {
                    true => "a record without fields".to_owned(),
                    false => format!("the fields {}", quoted(names(example))),
                };
                let got = one.known().find_map(other).unwrap_or_else(fields);
                let is_list = |name: &str| matches!(example.get(name), Some(Value::List(_)));
                let labels = one.what == "label" && one.known().any(is_list);
                let error = wrong_format(what, expected, got).noted(format!(
                    "`{}` (`{}` in a config) sets the field; a dot selects a field of an object",
                    one.what,
                    one.setting()
                ));
                return Err(if labels { error.noted(LABEL_LISTS) } else { error });
            }
        };
        found.push(name);
    }
    Ok(found)
}

impl FieldChoice {
    pub(crate) fn unread(&self) -> Option<String> {
        let others = self.others.iter().filter(|name| !self.names.contains(name));
        unread("field", &others.map(|name| format!("`{}`", shortened(name))).collect::<Vec<_>>())
    }

    /// Returns the first records of JSON, at most `count`, or an example record of Parquet, with all fields.
    fn examples(&self, file: &TextFile, count: usize) -> Result<Vec<Object<'static>>> {
        match &self.layout {
            FieldLayout::Json(layout) => json::first(file, layout, count),
            #[cfg(feature = "parquet")]
            FieldLayout::Parquet => parquet::example(file).map(|example| vec![example]),
        }
    }

    /// Returns the names of all fields of the first records, sorted, without fields of nested objects.
    pub(crate) fn fields(&self, file: &TextFile) -> Vec<String> {
        let first = self.examples(file, LOOKED_AT).unwrap_or_default();
        let names = first.iter().flat_map(|object| &object.fields).map(|(name, _)| name.to_string());
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the strings of a wanted field in the first records.
    pub(crate) fn first_texts(&self, file: &TextFile, field: usize) -> Result<Vec<String>> {
        let Some(name) = self.names.get(field) else { return Ok(Vec::new()) };
        let first = match &self.layout {
            FieldLayout::Json(layout) => json::first(file, layout, LOOKED_AT)?,
            #[cfg(feature = "parquet")]
            FieldLayout::Parquet => {
                let rows = parquet::records(file, std::slice::from_ref(name), |row| Ok(row.owned()))?;
                rows.take(LOOKED_AT).map_while(Result::ok).collect()
            }
        };
        let text = |record: &Object<'_>| match at(record, name) {
            Some(Value::Text(text)) => Some(text.to_string()),
            _ => None,
        };
        Ok(first.iter().filter_map(text).collect())
    }

    /// Returns whether the first record has a field of this name with a text or a number.
    pub(crate) fn has_single(&self, file: &TextFile, name: &str) -> bool {
        let is_single =
            |object: &Object<'_>| matches!(object.get(name), Some(Value::Text(_) | Value::Number(_)));
        self.examples(file, 1).is_ok_and(|first| first.first().is_some_and(is_single))
    }

    pub(crate) fn records<R: 'static>(
        &self,
        file: &TextFile,
        make: impl FnMut(&Object<'_>) -> Result<R, Reason> + Send + 'static,
    ) -> Result<Stream<R>> {
        match &self.layout {
            FieldLayout::Json(layout) => json::records(file, layout, Some(self.names.clone()), make),
            #[cfg(feature = "parquet")]
            FieldLayout::Parquet => parquet::records(file, &self.names, make),
        }
    }
}
