//! Reads records of JSON. A record is an object or a list in a line of its own, or an element of a list of records. A
//! list of records is the whole file, or a field of the file's only object.

use std::borrow::Cow;
use std::sync::Arc;

use unpadded::Result;

use super::extension;
use super::fields::{Object, Value, leads};
use super::not_finite::{finite, parsed};
use super::walk::Walk;
use crate::memory::Usage;
use crate::source::lines::quoted;
use crate::source::reason::{Reason, wrong_format};
use crate::source::records::{OneLine, SkippedRecords, Stream, shown, to_first_error};
use crate::{MalformedLines, TextFile};

/// The layout of a JSON file: the arrangement of the records, and the names of the elements of lists.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    arrangement: Arrangement,
    names: Option<Arc<[String]>>,
    /// Whether the first record is a list with the names of the elements.
    header: bool,
}

#[derive(Debug, Clone)]
enum Arrangement {
    /// Each line is a record.
    Lines,
    /// The file is one list; each element is a record.
    List,
    /// The file is one object with lists of these names; each element of a list is a record.
    Lists(Vec<String>),
    /// The file is one object; each value is a record.
    Values,
    /// The file is one object with columns of these names. A column is a list with one value per record, or an object
    /// that maps the name of each record to a value.
    Columns(Vec<String>),
    /// The file is one object over several lines, without records; its fields have these names.
    Object(Vec<String>),
}

impl Layout {
    /// Detects the layout of a file; a file that is one object is read to its end. `lists` is true if the fields of
    /// records are lists. If `lists` is false and the file is an object of lists, each list is a column.
    pub(crate) fn of(file: &TextFile, lists: bool) -> Result<Self> {
        let (arrangement, columns) = arrangement(file, lists)?;
        Ok(Self { arrangement, names: columns.map(Arc::from), header: false })
    }

    /// Returns `Some` if each line is a record. The inner value has the names in the header; `None` without a header.
    pub(crate) fn in_lines(&self) -> Option<Option<Arc<[String]>>> {
        matches!(self.arrangement, Arrangement::Lines).then(|| self.names.clone().filter(|_| self.header))
    }

    pub(crate) fn with_header(self, names: Vec<String>) -> Self {
        Self { names: Some(names.into()), header: true, ..self }
    }

    /// Returns a note for the user if the arrangement is unusual, such as records in one object.
    pub(crate) fn note(&self) -> Option<&'static str> {
        match self.arrangement {
            Arrangement::Values => Some("records are the values of one object"),
            Arrangement::Columns(_) => Some("records are in the columns of one object"),
            _ => (self.names.is_some() && !self.header).then_some("elements named by `columns`"),
        }
    }
}

/// Returns whether the extension of the file shows that each line is a record.
fn of_lines(file: &TextFile) -> bool {
    extension(&file.name().to_lowercase()).is_some_and(|ending| ["jsonl", "ndjson"].contains(&ending))
}

/// Detects the arrangement of the records. If the file has a list `columns`, also returns the names in this list.
fn arrangement(file: &TextFile, of_lists: bool) -> Result<(Arrangement, Option<Vec<String>>)> {
    let mut walk = Walk::ahead(file)?;
    match walk.peek()? {
        Some(b'[') => return Ok((list_or_lines(file)?, None)),
        Some(b'{') if file.list.is_none() => {}
        Some(b'{') => {
            return lists(file)
                .map(|lists_found| (Arrangement::Lists(lists_found.records), lists_found.columns));
        }
        _ => return Ok((Arrangement::Lines, None)),
    }
    let mut first = ends_in_line(&mut walk);
    if first.is_err() && !of_lines(file) {
        // The first value may be longer than the bytes that are read for the detection.
        first = Walk::new(&file.reopened()).and_then(|mut whole| ends_in_line(&mut whole));
    }
    let several = match first {
        Ok((true, next)) if of_lines(file) || next.is_some() => return Ok((Arrangement::Lines, None)),
        Ok((true, _)) => false,
        // If another object or the end of the file follows the first line, the line is truncated.
        Ok((false, None | Some(b'{'))) | Err(_) => return Ok((Arrangement::Lines, None)),
        Ok((false, _)) => true,
    };
    let found = lists(file)?;
    if let Some(whole) = found.whole(of_lists) {
        return Ok((whole, None));
    }
    let Lists { records, others, columns, .. } = found;
    Ok(match (records.is_empty(), several) {
        (false, _) => (Arrangement::Lists(records), columns),
        (true, true) => (Arrangement::Object(others), None),
        (true, false) => (Arrangement::Lines, None),
    })
}

/// Detects whether a file that begins with a list is one list, or has a list per line.
fn list_or_lines(file: &TextFile) -> Result<Arrangement> {
    let (mut walk, mut ahead) = (Walk::ahead(file)?, Walk::ahead(file)?);
    ahead.take(b'[', "a list")?;
    let first = ahead.peek()?;
    if first == Some(b'{') {
        return Ok(Arrangement::List);
    }
    Ok(match ends_in_line(&mut walk) {
        Ok((true, Some(b'['))) => Arrangement::Lines,
        // The file has one record: a list of single values.
        Ok((true, None)) if of_lines(file) && first != Some(b'[') => Arrangement::Lines,
        _ => Arrangement::List,
    })
}

/// Returns whether the next value ends in its first line, and the first byte behind the value or the line.
fn ends_in_line(walk: &mut Walk) -> Result<(bool, Option<u8>)> {
    walk.peek()?;
    let ends = walk.value_to(0, None, walk.line)?;
    Ok((ends, walk.peek()?))
}

/// The fields of a file that is one object, grouped by kind.
#[derive(Default)]
struct Lists {
    /// The names of the fields that are lists of records.
    records: Vec<String>,
    others: Vec<String>,
    /// The strings in the list `columns`; `None` without such a list.
    columns: Option<Vec<String>>,
    /// The number of fields that are lists of single values.
    of_values: usize,
    /// For each field that is an object, the name of its first field.
    within: Vec<String>,
}

impl Lists {
    /// Detects whether the values are all columns, which are lists of single values or objects with numbered fields, or are
    /// all records, which are objects with numbers as names.
    fn whole(&self, of_lists: bool) -> Option<Arrangement> {
        let numbered = |name: &String| name.parse::<u64>().is_ok();
        let all = self.others.len();
        if !self.records.is_empty() || all == 0 {
            return None;
        }
        let columns = || Arrangement::Columns(self.others.clone());
        if self.of_values == all {
            return (all > 1 && !of_lists).then(columns);
        }
        if self.within.len() != all {
            return None;
        }
        match (
            self.others.iter().filter(|n| numbered(n)).count(),
            self.within.iter().filter(|n| numbered(n)).count(),
        ) {
            (0, inner) if inner == all => Some(columns()),
            (outer, 0) if outer == all => Some(Arrangement::Values),
            _ => None,
        }
    }
}

fn lists(file: &TextFile) -> Result<Lists> {
    let (mut walk, mut found, mut first) = (Walk::new(&file.reopened())?, Lists::default(), true);
    walk.take(b'{', "an object")?;
    while let Some(name) = walk.name(std::mem::take(&mut first))? {
        let is_list = walk.peek()? == Some(b'[');
        if is_list {
            walk.pass();
        }
        let of_records = is_list && matches!(walk.peek()?, Some(b'{' | b'['));
        if walk.peek()? == Some(b'{') && !is_list {
            walk.pass();
            if let Some(name) = walk.name(true)? {
                found.within.push(name);
                walk.value(1, None)?;
            }
            found.others.push(name);
            continue;
        }
        found.of_values += usize::from(is_list && !of_records);
        if is_list && !of_records && name == "columns" {
            let mut list = vec![b'['];
            walk.value(1, Some(&mut list))?;
            found.columns = serde_json::from_slice(&list).ok();
        } else {
            walk.value(usize::from(is_list), None)?;
        }
        if of_records { found.records.push(name) } else { found.others.push(name) }
    }
    match walk.peek()? {
        None => Ok(found),
        other => Err(walk.unlike("the end of the file behind the object; write one object per line", other)),
    }
}

/// Returns the names of the lists of records in a file that is one object.
pub(crate) fn lists_in(file: &TextFile) -> Result<Vec<String>> {
    Ok(match Layout::of(file, true)?.arrangement {
        Arrangement::Lists(lists) => lists,
        _ => Vec::new(),
    })
}

/// Returns whether a file whose name does not show JSON is one JSON value that contains records.
pub(crate) fn is_whole(file: &TextFile) -> Result<bool> {
    let mut walk = Walk::ahead(file)?;
    match walk.peek()? {
        Some(b'{') => Ok(Layout::of(file, true).is_ok_and(|layout| {
            use Arrangement::{Columns, Lists, Values};
            matches!(layout.arrangement, Lists(_) | Columns(_) | Values)
        })),
        Some(b'[') => {
            walk.pass();
            let mut first = Vec::new();
            let begins = matches!(walk.peek()?, Some(b'{' | b'['));
            let kept = begins && walk.value(0, Some(&mut first)).is_ok();
            Ok(kept && serde_json::from_slice::<serde::de::IgnoredAny>(&first).is_ok())
        }
        _ => Ok(false),
    }
}

/// Parses the record in a line (an object or a list); `None` for a blank line. Only wanted fields keep their values.
pub(crate) fn object<'a>(
    line: &'a str,
    wanted: Option<&[String]>,
    names: Option<&[String]>,
) -> Result<Option<Object<'a>>, Reason> {
    if line.trim().is_empty() {
        return Ok(None);
    }
    if line.trim_start().starts_with('[') {
        return element(line, wanted, names).map(Some).map_err(|(_, reason)| reason);
    }
    let wrong = |got| Reason::of("a JSON object in one line", got);
    match parsed(line, wanted) {
        Ok(Value::Object(object)) => finite(&object, wanted).map(|()| Some(object)),
        Ok(other) => Err(wrong(format!("{} in {}", other.kind(), shown(line)))),
        // The line number of the parser is removed: the error gets the line number in the file. An error that is not
        // about the syntax has the column behind the value.
        Err(e) => {
            let (message, column) = (e.to_string(), format!(" at column {}", e.column()));
            let message = message.split(" at line ").next().unwrap_or_default();
            let column = if e.is_data() { "" } else { &column };
            Err(wrong(format!("{message}{column} in {}", shown(line))))
        }
    }
}

/// A reader of the elements of one list in the file.
struct List {
    walk: Walk,
    /// Whether the list is a field of an object.
    within: bool,
    /// Whether the list is written as an object: the values of the object are the elements.
    named: bool,
    /// The name of the element that was read last; `None` in a list.
    key: Option<String>,
    first: bool,
    room: Usage,
}

impl List {
    fn new(walk: Walk, within: bool, named: bool) -> Self {
        Self { walk, within, named, key: None, first: true, room: Usage::default() }
    }

    fn open(file: &TextFile, layout: &Layout) -> Result<Self> {
        let mut walk = Walk::new(file)?;
        if let Arrangement::Values = layout.arrangement {
            walk.take(b'{', "an object")?;
            return Ok(Self::new(walk, false, true));
        }
        let within = walk.peek()? == Some(b'{');
        if within {
            Self::find(&mut walk, "list", Self::named(file, layout)?)?;
        }
        walk.take(b'[', "a list of records")?;
        Ok(Self::new(walk, within, false))
    }

    fn column(file: &TextFile, name: &str) -> Result<Self> {
        let mut walk = Walk::new(&file.reopened())?;
        Self::find(&mut walk, "column", name)?;
        let named = walk.peek()? == Some(b'{');
        walk.pass();
        Ok(Self::new(walk, true, named))
    }

    /// Moves from the start of an object to the value of the field `name`; `kind` is the kind of the field for messages.
    fn find(walk: &mut Walk, kind: &str, name: &str) -> Result<()> {
        walk.take(b'{', "an object")?;
        let mut first = true;
        while let Some(own) = walk.name(std::mem::take(&mut first))? {
            if own == name {
                return Ok(());
            }
            walk.value(0, None)?;
        }
        Err(walk.unlike(&format!("a {kind} `{name}`"), None))
    }

    /// Returns the name of the list of records: the name behind `!` in the path, or the name of the only list.
    fn named<'a>(file: &'a TextFile, layout: &'a Layout) -> Result<&'a str> {
        let what = format!("file `{}`", file.name());
        let wrong = |expected, got| Err(wrong_format(&*what, expected, got));
        match (&layout.arrangement, file.list.as_deref()) {
            (Arrangement::Lists(lists), Some(name)) if lists.iter().any(|own| own == name) => Ok(name),
            (Arrangement::Lists(lists), Some(_)) if lists.is_empty() => {
                wrong("a list of records in the object".to_owned(), "none".to_owned())
            }
            (Arrangement::Lists(lists), Some(name)) => {
                wrong(format!("one of the lists {}", quoted(lists)), format!("`{name}`"))
            }
            (Arrangement::Lists(lists), None) => match &lists[..] {
                [one] => Ok(one),
                lists => {
                    let example = format!("{}!{}", file.name(), lists.first().map_or("", String::as_str));
                    let expected = format!("the name of a list of records, as `{example}`");
                    wrong(expected, format!("the lists {}", quoted(lists)))
                }
            },
            (Arrangement::Object(names), _) => {
                let expected = "one object per line, a list of objects, or an object with a list of objects";
                let got = format!("one object over several lines, with {}", quoted(names));
                let error = wrong_format(what, expected, got);
                Err(error.noted(
                    "`jq -c .` writes an object in one line; `jq -c '.[]'` writes each record of a map in one line",
                ))
            }
            _ => wrong("a list of records".to_owned(), "none".to_owned()),
        }
    }

    /// Reads the bytes of the next element; returns the element's line number, or `None` behind the last element.
    fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<u64>> {
        into.clear();
        let more = match self.named {
            true => {
                self.key = self.walk.name(self.first)?;
                self.key.is_some()
            }
            false => self.walk.element(self.first)?,
        };
        if !more {
            if let (false, Some(other)) = (self.within, self.walk.peek()?) {
                return Err(self.walk.unlike("the end of the file behind the list", Some(other)));
            }
            return Ok(None);
        }
        self.first = false;
        self.walk.peek()?;
        let line = self.walk.line;
        self.walk.value(0, Some(into))?;
        self.room.read(into.len(), || format!("{}:{line}", self.walk.name))?;
        Ok(Some(line))
    }
}

/// The source of records in a file whose lines are not records.
enum Source {
    List(List),
    /// The name and the reader of each column; a record has one value of each column.
    Columns(Vec<(String, List)>),
}

impl Source {
    fn open(file: &TextFile, layout: &Layout, wanted: Option<&[String]>) -> Result<Self> {
        let Arrangement::Columns(names) = &layout.arrangement else {
            return List::open(file, layout).map(Self::List);
        };
        let is_wanted = |name: &&String| wanted.is_none_or(|wanted| leads(name, wanted));
        let column = |name: &String| Ok((name.clone(), List::column(file, name)?));
        names.iter().filter(is_wanted).map(column).collect::<Result<_>>().map(Self::Columns)
    }

    fn walk(&self) -> Option<&Walk> {
        match self {
            Self::List(list) => Some(&list.walk),
            Self::Columns(columns) => columns.first().map(|(_, list)| &list.walk),
        }
    }

    /// Reads the bytes of the next record; returns the record's line number, or `None` behind the last record.
    fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<u64>> {
        let columns = match self {
            Self::List(list) => return list.next(into),
            Self::Columns(columns) => columns,
        };
        into.clear();
        into.push(b'{');
        // The line and the name of the record in the first column; each other column must have a value with this name.
        let (mut first, mut value) = (None, Vec::new());
        for (name, list) in columns.iter_mut() {
            let found = (list.next(&mut value)?, list.key.take());
            let (line, key) = first.get_or_insert_with(|| found.clone());
            if line.is_some() != found.0.is_some() || *key != found.1 {
                let record = |(line, key): &(Option<u64>, Option<String>)| match (line, key) {
                    (None, _) => "no value".to_owned(),
                    (_, Some(key)) => format!("the value of record `{key}`"),
                    _ => "a value".to_owned(),
                };
                let expected = format!("in column `{name}` one value for each value in the first column");
                let got = format!("{} beside {}", record(&found), record(&(*line, key.clone())));
                return Err(list.walk.malformed(list.walk.line, Reason::of(expected, got)));
            }
            if into.len() > 1 {
                into.push(b',');
            }
            into.extend(serde_json::to_string(name).unwrap_or_default().bytes());
            into.push(b':');
            into.extend_from_slice(&value);
        }
        into.push(b'}');
        Ok(first.and_then(|(line, _)| line))
    }
}

/// Parses a record; `names` has the names of the elements of a list, which are otherwise numbered from 1. The line number
/// in the error counts from the first line of the record, 0.
fn element<'a>(
    json: &'a str,
    wanted: Option<&[String]>,
    names: Option<&[String]>,
) -> Result<Object<'a>, (u64, Reason)> {
    let expected = "an object, or a list of its fields".to_owned();
    let checked = |object: Object<'a>| finite(&object, wanted).map(|()| object).map_err(|reason| (0, reason));
    match parsed(json, wanted) {
        Ok(Value::Object(object)) => checked(object),
        Ok(Value::List(list)) if names.is_some_and(|names| names.len() != list.len()) => {
            let expected = format!("a list of {} elements, one per name", names.map_or(0, <[_]>::len));
            Err((0, Reason::of(expected, format!("{} in {}", list.len(), shown(json)))))
        }
        Ok(Value::List(list)) => {
            let named = |at: usize| names.and_then(|names| names.get(at).cloned());
            let name = |at: usize| named(at).unwrap_or_else(|| (at + 1).to_string()).into();
            let fields = list.into_iter().enumerate().map(|(at, value)| (name(at), value)).collect();
            checked(Object { fields, is_list: names.is_none(), line: 0 })
        }
        Ok(other) => Err((0, Reason::of(expected, format!("{} in {}", other.kind(), shown(json))))),
        Err(e) => {
            let message = e.to_string();
            let message = message.split(" at line ").next().unwrap_or_default();
            let got = format!("no JSON ({message} at column {}) in {}", e.column(), shown(json));
            Err(((e.line() as u64).saturating_sub(1), Reason::of(expected, got)))
        }
    }
}

/// Returns the first `count` records of the file, with all fields.
pub(crate) fn first(file: &TextFile, layout: &Layout, count: usize) -> Result<Vec<Object<'static>>> {
    let all: Stream<Object<'static>> = match layout.arrangement {
        Arrangement::Lines => {
            let (names, mut header) = (layout.names.clone(), layout.header);
            let owned = move |_, line: &str| {
                let object = object(line, None, names.as_deref())?;
                Ok(object.filter(|_| !std::mem::take(&mut header)).map(|object| object.owned()))
            };
            Box::new(file.first_records(OneLine(owned))?)
        }
        _ => {
            let mut file = file.reopened();
            file.skips = None;
            records(&file, layout, None, |object| Ok(object.owned()))?
        }
    };
    let (mut found, mut all) = (Vec::new(), all.take(count));
    found.extend(all.next().transpose()?);
    // Only an error in the first record is returned: the reader of the records reports later errors.
    found.extend(all.map_while(Result::ok));
    Ok(found)
}

pub(crate) fn first_line(file: &TextFile, layout: &Layout) -> Result<u64> {
    let mut walk = match layout.arrangement {
        Arrangement::Lines => Walk::ahead(file)?,
        _ => List::open(&file.reopened(), layout)?.walk,
    };
    walk.peek()?;
    Ok(walk.line)
}

/// Reads the records of the file; `make` gets each record with the values of the wanted fields.
pub(crate) fn records<R: 'static>(
    file: &TextFile,
    layout: &Layout,
    wanted: Option<Vec<String>>,
    mut make: impl FnMut(&Object<'_>) -> Result<R, Reason> + Send + 'static,
) -> Result<Stream<R>> {
    let (names, mut header) = (layout.names.clone(), layout.header);
    let below = header;
    if let Arrangement::Lines = layout.arrangement {
        let mut width = None;
        let make = move |number, line: &str| {
            let Some(object) = object(line, wanted.as_deref(), names.as_deref())? else { return Ok(None) };
            even(&object, &mut width)?;
            if std::mem::take(&mut header) {
                return Ok(None);
            }
            no_header(&object, below)?;
            make(&Object { line: number, ..object }).map(Some)
        };
        return Ok(Box::new(file.records(OneLine(make))?));
    }
    let (mut list, policy) = (Source::open(file, layout, wanted.as_deref())?, file.malformed);
    let (encoding, guessed) = file.characters();
    if header {
        list.next(&mut Vec::new())?;
    }
    let (mut bytes, mut skipped, mut width, log) =
        (Vec::new(), SkippedRecords::default(), None, file.skips.clone());
    let (mut read, mut number) = (0, 0);
    Ok(to_first_error(move || {
        while let Some(line) = list.next(&mut bytes)? {
            number += 1;
            let text = encoding.decode(guessed, &bytes).map_err(|reason| (0, reason));
            let record = text.and_then(|text| {
                let object = element(&text, wanted.as_deref(), names.as_deref())?;
                even(&object, &mut width)
                    .and_then(|()| no_header(&object, below))
                    .and_then(|()| make(&object))
                    .map_err(|reason| (0, reason))
            });
            match record {
                Ok(record) => {
                    read += 1;
                    return Ok(Some(record));
                }
                Err((behind, reason)) => {
                    let Some(walk) = list.walk() else { return Ok(None) };
                    if policy == MalformedLines::Skip {
                        if let Some(log) = &log {
                            let text = String::from_utf8_lossy(&bytes);
                            log.add(&walk.name, [line + behind, number], &reason, &text)?;
                        }
                        continue;
                    }
                    let error = walk.malformed(line + behind, reason);
                    if policy == MalformedLines::Error {
                        return Err(error);
                    }
                    skipped.add(|| error);
                }
            }
        }
        skipped.all(read)
    }))
}

/// Refuses a list that repeats the header, if `below` says that the list is below one.
fn no_header(object: &Object<'_>, below: bool) -> Result<(), Reason> {
    let again = |(name, value): &(Cow<'_, str>, Value<'_>)| matches!(value, Value::Text(text) if text.trim() == *name);
    if below && object.fields.iter().all(again) {
        return Err(Reason::of("a record", "the header again: remove this list"));
    }
    Ok(())
}

/// Checks that a list record has as many elements as the first list record, whose length sets `width`.
fn even(object: &Object<'_>, width: &mut Option<usize>) -> Result<(), Reason> {
    let own = object.fields.len();
    match object.is_list.then(|| *width.get_or_insert(own)) {
        Some(width) if width != own => {
            Err(Reason::of(format!("{width} elements, as the first list"), own.to_string()))
        }
        _ => Ok(()),
    }
}
