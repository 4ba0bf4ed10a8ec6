//! Records of JSON: an object a line; or the elements of a list, which is the whole file or stands in the object that is it.

use super::fields::{Object, Value, record};
use super::paths::extension;
use super::walk::Walk;
use crate::data::lines::Reason;
use crate::data::records::{OneLine, Skipped, Stream, shown};
use crate::data::{Malformed, TextFile};
use crate::error::{Error, ErrorKind, Result};

/// How records stand in a file.
enum Layout {
    /// A line each.
    Lines,
    /// As elements of one list.
    List,
    /// As elements of the lists of one object that have these names.
    Lists(Vec<String>),
    /// The file is one object over several lines, without a list of records.
    Object(Vec<String>),
}

/// Whether a name says that each line is a record.
fn of_lines(file: &TextFile) -> bool {
    extension(&file.name().to_lowercase()).is_some_and(|of| ["jsonl", "ndjson"].contains(&of))
}

fn layout(file: &TextFile) -> Result<Layout> {
    let mut walk = Walk::ahead(file)?;
    match walk.peek()? {
        Some(b'[') => return Ok(Layout::List),
        Some(b'{') if file.list().is_none() => {}
        Some(b'{') => return lists(file).map(|(lists, _)| Layout::Lists(lists)),
        _ => return Ok(Layout::Lines),
    }
    let first = walk.line;
    let several = match walk.value_to(0, None, first) {
        Ok(true) if of_lines(file) || walk.peek()?.is_some() => return Ok(Layout::Lines),
        Ok(true) => false,
        // Behind a line that is cut short another record begins, or none.
        Ok(false) if matches!(walk.peek()?, None | Some(b'{')) => return Ok(Layout::Lines),
        Ok(false) => true,
        Err(_) => return Ok(Layout::Lines),
    };
    let (lists, others) = lists(file)?;
    Ok(match (lists.is_empty(), several) {
        (false, _) => Layout::Lists(lists),
        (true, true) => Layout::Object(others),
        (true, false) => Layout::Lines,
    })
}

/// The names of the lists of records in the object that a file is, and those of what else is in it.
fn lists(file: &TextFile) -> Result<(Vec<String>, Vec<String>)> {
    let (mut walk, mut found, mut others) = (Walk::new(&file.reopened())?, Vec::new(), Vec::new());
    walk.take(b'{', "an object")?;
    while let Some(name) = walk.name(found.is_empty() && others.is_empty())? {
        let is_list = walk.peek()? == Some(b'[');
        if is_list {
            walk.pass();
        }
        let of_records = is_list && matches!(walk.peek()?, Some(b'{' | b'['));
        walk.value(usize::from(is_list), None)?;
        if of_records { found.push(name) } else { others.push(name) }
    }
    match walk.peek()? {
        None => Ok((found, others)),
        other => Err(walk.unlike("the end of the file behind the object; of several, one a line", other)),
    }
}

fn quoted(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// The names of the lists of records, if a file is one object that has some.
pub(super) fn lists_in(file: &TextFile) -> Result<Vec<String>> {
    Ok(match layout(file)? {
        Layout::Lists(lists) => lists,
        _ => Vec::new(),
    })
}

/// Whether a file whose name says nothing is one value of JSON that has records in it.
pub(super) fn is_whole(file: &TextFile) -> Result<bool> {
    let mut walk = Walk::ahead(file)?;
    match walk.peek()? {
        Some(b'{') => Ok(layout(file).is_ok_and(|layout| matches!(layout, Layout::Lists(_)))),
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

/// The object of a line; none of a blank one.
fn object<'a>(line: &'a str, wanted: Option<&[String]>) -> Result<Option<Object<'a>>, Reason> {
    if line.trim().is_empty() {
        return Ok(None);
    }
    let wrong = |got| Reason { expected: "a JSON object in one line".to_owned(), got };
    match record(line, wanted) {
        Ok(Value::Object(object)) => Ok(Some(object)),
        Ok(other) => Err(wrong(format!("{} in {}", other.kind(), shown(line)))),
        // The line is that of the file, not of the text that was parsed.
        Err(e) => Err(wrong(format!(
            "{} in {}",
            e.to_string().replace(" at line 1 column", " at column"),
            shown(line)
        ))),
    }
}

/// The elements of the list that is meant.
struct List {
    walk: Walk,
    /// Whether the list is in an object.
    within: bool,
    first: bool,
}

impl List {
    fn open(file: &TextFile, layout: &Layout) -> Result<Self> {
        let mut walk = Walk::new(file)?;
        let within = matches!(walk.peek()?, Some(b'{'));
        if within {
            let name = Self::named(file, layout)?;
            walk.take(b'{', "an object")?;
            let mut first = true;
            loop {
                let Some(own) = walk.name(first)? else {
                    return Err(walk.unlike(&format!("a list `{name}`"), None));
                };
                if own == name {
                    break;
                }
                walk.value(0, None)?;
                first = false;
            }
        }
        walk.take(b'[', "a list of records")?;
        Ok(Self { walk, within, first: true })
    }

    /// The name of the list: as it is said, or that of the only one.
    fn named<'a>(file: &'a TextFile, layout: &'a Layout) -> Result<&'a str> {
        let what = format!("file `{}`", file.name());
        let wrong = |expected, got| Err(Error::of(ErrorKind::Format, &*what, expected, got));
        match (layout, file.list()) {
            (Layout::Lists(lists), Some(name)) if lists.iter().any(|own| own == name) => Ok(name),
            (Layout::Lists(lists), Some(name)) => match lists.is_empty() {
                true => wrong("a list of records in its object".to_owned(), "none".to_owned()),
                false => wrong(format!("one of the lists {}", quoted(lists)), format!("`{name}`")),
            },
            (Layout::Lists(lists), None) => match &lists[..] {
                [one] => Ok(one),
                lists => {
                    let example = format!("{}!{}", file.name(), lists.first().map_or("", String::as_str));
                    let expected = format!("one of its lists of records, as `{example}`");
                    wrong(expected, format!("{}: {}", lists.len(), quoted(lists)))
                }
            },
            (Layout::Object(names), _) => {
                let expected = "one object a line, a list of objects, or an object with such a list in it";
                let got = format!("one object over several lines, with {}", quoted(names));
                let error = Error::of(ErrorKind::Format, what, expected, got);
                Err(error.noted("`jq -c .` writes an object in one line"))
            }
            _ => wrong("a list of records".to_owned(), "none".to_owned()),
        }
    }

    /// The bytes of the next element and its line; none behind the last.
    fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<u64>> {
        into.clear();
        if !self.walk.element(self.first)? {
            if let (false, Some(other)) = (self.within, self.walk.peek()?) {
                return Err(self.walk.unlike("the end of the file behind the list", Some(other)));
            }
            return Ok(None);
        }
        self.first = false;
        self.walk.peek()?;
        let line = self.walk.line;
        self.walk.value(0, Some(into))?;
        Ok(Some(line))
    }
}

/// The record that an element is, and if it is none, in which of its lines.
fn element<'a>(json: &'a str, wanted: Option<&[String]>) -> Result<Object<'a>, (u64, Reason)> {
    let expected = "an object, or a list of its fields".to_owned();
    match record(json, wanted) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(Value::List(list)) => {
            let fields =
                (1..).zip(list).map(|(number, value): (usize, _)| (number.to_string().into(), value));
            Ok(Object { fields: fields.collect(), is_list: true })
        }
        Ok(other) => Err((0, Reason { expected, got: format!("{} in {}", other.kind(), shown(json)) })),
        Err(e) => {
            let said = e.to_string();
            let said = said.split(" at line ").next().unwrap_or_default();
            let got = format!("no JSON ({said} at column {}) in {}", e.column(), shown(json));
            Err(((e.line() as u64).saturating_sub(1), Reason { expected, got }))
        }
    }
}

/// The first record of the file, if it has one, with all its fields.
pub(super) fn first(file: &TextFile) -> Result<Option<Object<'static>>> {
    if let Layout::Lines = layout(file)? {
        let owned = |line: &str| Ok(object(line, None)?.map(|object| object.owned()));
        return file.first_records(OneLine(owned))?.next().transpose();
    }
    records(&file.reopened(), None, |object| Ok(object.owned()))?.next().transpose()
}

/// The records of the file, with the values of the wanted fields.
pub(super) fn records<R: 'static>(
    file: &TextFile,
    wanted: Option<Vec<String>>,
    mut make: impl FnMut(&Object<'_>) -> Result<R, Reason> + Send + 'static,
) -> Result<Stream<R>> {
    let layout = layout(file)?;
    if let Layout::Lines = layout {
        let line = move |line: &str| object(line, wanted.as_deref())?.as_ref().map(&mut make).transpose();
        return Ok(Box::new(file.records(OneLine(line))?));
    }
    let (list, policy, (_, encoding)) = (List::open(file, &layout)?, file.policy(), file.records_of());
    let (mut list, mut bytes, mut skipped, mut width) = (Some(list), Vec::new(), Skipped::default(), None);
    let mut read = move |list: &mut List| -> Result<Option<R>> {
        while let Some(line) = list.next(&mut bytes)? {
            let text = encoding.decode(&bytes).map_err(|reason| (0, reason));
            let record = text.and_then(|text| {
                let object = element(&text, wanted.as_deref())?;
                even(&object, &mut width).and_then(|()| make(&object)).map_err(|reason| (0, reason))
            });
            match record {
                Ok(record) => return Ok(Some(record)),
                Err((_, _)) if policy == Malformed::Skip => {}
                Err((behind, reason)) => {
                    let error = list.walk.malformed(line + behind, reason);
                    if policy == Malformed::Error {
                        return Err(error);
                    }
                    skipped.add(|| error);
                }
            }
        }
        skipped.all()
    };
    Ok(Box::new(std::iter::from_fn(move || {
        let record: Option<Result<R>> = read(list.as_mut()?).transpose();
        if !matches!(record, Some(Ok(_))) {
            list = None; // An error is the last item.
        }
        record
    })))
}

/// Checks that records that are lists are as long as the first.
fn even(object: &Object<'_>, width: &mut Option<usize>) -> Result<(), Reason> {
    let own = object.fields.len();
    match object.is_list.then(|| *width.get_or_insert(own)) {
        Some(width) if width != own => {
            Err(Reason { expected: format!("a list of {width}, as the first"), got: own.to_string() })
        }
        _ => Ok(()),
    }
}
