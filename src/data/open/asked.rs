//! What of a file's records a model is asked about: the column of the text, by the name that the training knew, or by the header.

use super::answers::Form;
use super::columns::number;
use super::guess::{Guess, Task, guess};
use super::options::{FileFormat, ReadOptions};
use super::paths::by_ending;
use super::wanted::{LABEL, SOURCE, TARGET, TEXT, TOKENS, Wanted, language, plain};
use super::{dictionary, fasttext, fields, json, objects, table, trees};
use crate::data::TextFile;
use crate::data::conll::{Asked, Columns, Known, joined};
use crate::data::lines::{Reason, quoted};
use crate::data::records::{OneLine, Parser};
use crate::error::{Error, ErrorKind, Result};

/// How a file is read and answered.
pub(super) struct Opened {
    pub(super) source: Source,
    pub(super) form: Form,
    /// The names of the columns.
    pub(super) names: Vec<String>,
    /// Whether the first record is these names.
    pub(super) header: bool,
}

/// What gives the records.
pub(super) enum Source {
    Lines(Box<dyn Parser<Asked>>),
    /// The rows of Parquet: the text in this field, or its words.
    #[cfg(feature = "parquet")]
    Rows(String, Text),
}

/// What makes a text of a field of a record.
pub(super) type Text = fn(&fields::Object<'_>, &str) -> Result<String, Reason>;

/// The words of a field, as models are asked about them.
fn words(object: &fields::Object<'_>, name: &str) -> Result<String, Reason> {
    joined(&fields::texts(object, name)?)
}

impl Opened {
    fn lines(parser: Box<dyn Parser<Asked>>, form: Form) -> Self {
        Self { source: Source::Lines(parser), form, names: Vec::new(), header: false }
    }

    /// A text a line, each made by `text`; cells of an answer are behind tabs.
    fn each(mut text: impl FnMut(&str) -> Result<Option<String>, Reason> + Send + 'static) -> Self {
        let asked = move |line: &str| Ok(text(line)?.map(alone));
        Self::lines(Box::new(OneLine(asked)), Form::Cells('\t', false))
    }

    /// A text in each line that is not blank.
    fn plain() -> Self {
        Self::each(|line| Ok((!line.trim().is_empty()).then(|| line.to_owned())))
    }

    /// Of a file with nothing in it.
    pub(super) fn nothing() -> Self {
        Self::each(|_| Ok(None))
    }

    /// Rows of features; a blank line and a comment are none.
    pub(super) fn rows() -> Self {
        let row = |line: &str| {
            let row = line.split('#').next().unwrap_or_default().trim();
            Ok((!row.is_empty()).then(|| alone(row.to_owned())))
        };
        Self::lines(Box::new(OneLine(row)), Form::Comment)
    }

    /// Texts that may have labels, or sources that may have targets.
    pub(super) fn texts(file: &TextFile, options: &mut ReadOptions, task: Task) -> Result<Self> {
        if options.format == Some(FileFormat::Plain) {
            return Ok(Self::plain());
        }
        let guess = guess(file, options, task).or_else(|e| lines_alone(file, options, e))?;
        options.format = Some(guess.format);
        let (source, label) = (options.source.clone(), options.label.clone());
        let (given, wanted, label) = match task {
            Task::Pairs => (
                source,
                Wanted { what: "source", given: None, known: SOURCE },
                Wanted { what: "target", given: options.target.as_deref(), known: TARGET },
            ),
            _ => (
                options.text.clone(),
                Wanted { what: "text", given: None, known: TEXT },
                Wanted { what: "label", given: label.as_deref(), known: LABEL },
            ),
        };
        let text = Wanted { given: given.as_deref(), ..wanted };
        let (mut of, target) = (options.clone(), label.given.map(str::to_owned));
        let label = Wanted { given: target.as_deref(), ..label };
        let opened = match guess.format {
            FileFormat::Trees => Ok(Self::each(|line| Ok(trees::tree(line, false)?.map(|tree| tree.text)))),
            FileFormat::FastText => {
                Ok(Self::each(|line| Ok((!line.trim().is_empty()).then(|| fasttext::text(line)))))
            }
            FileFormat::Dictionary => {
                let mut pair = dictionary::reader(options.stress);
                Ok(Self::each(move |line| Ok(pair(line)?.map(|pair| pair.source))))
            }
            FileFormat::JsonLines | FileFormat::Parquet => Self::objects(file, &mut of, text, fields::text),
            _ => Self::table(file, &guess, &mut of, [text, label]),
        };
        *options = of;
        opened
    }

    /// A table: its text is in the column that the training knew by name, or in that of a known name, or in that of the same number.
    fn table(
        file: &TextFile,
        guess: &Guess,
        options: &mut ReadOptions,
        [text, label]: [Wanted<'_>; 2],
    ) -> Result<Self> {
        let told = options.told.clone().unwrap_or_default();
        let is_set = told.text.is_some() || told.source.is_some();
        let wrong = |expected: &str, got: &str| {
            Err(Error::of(ErrorKind::Format, format!("file `{}`", file.name()), expected, got))
        };
        let rows = table::Table::first_rows(file, guess.format, options)?;
        let (named, note) = match is_set {
            true => (None, None),
            false => by_header(&file.name(), &rows, &text, options.header)?.unzip(),
        };
        let table = match &named {
            Some(name) => {
                table::Table::of(file, guess.format, options, &[Wanted { given: Some(name), ..text }])?
            }
            None => by_place(file, guess, options, [text, label])
                .map_err(|e| if is_set { e } else { remedied(e, &text) })?,
        };
        let is_table = told.format.is_some() || told.separator.is_some() || by_ending(&file.name()).is_some();
        if !table.has_header() && table.width() > 1 && !is_table && !table.has_tabs() {
            let expected = "a text a line, or a table: set `format` (`data.format`) to `plain` or `csv`";
            return wrong(expected, "lines with a separator in each, which may be text");
        }
        if named.is_none() && !is_set && table.has_numbers(file)? {
            let expected =
                "texts: set `text` (`data.text`) to the name of their column, or to its number from 1 on";
            return wrong(expected, &format!("numbers alone in column {}", table.names().concat()));
        }
        table.note(options);
        options.notes.extend(note.flatten());
        keep(options, &text, table.names().first().cloned());
        let (separator, quotes) = table.writes();
        Ok(Self {
            source: Source::Lines(table.first_cells(alone)),
            form: Form::Cells(separator, quotes),
            names: table.header(file)?,
            header: table.has_header(),
        })
    }

    /// Records whose fields have names, each a text in the field that `make` reads.
    fn objects(file: &TextFile, options: &mut ReadOptions, wanted: Wanted<'_>, make: Text) -> Result<Self> {
        let Some(format) = options.format else { return Ok(Self::plain()) };
        let told = options.told.clone().unwrap_or_default();
        let is_set = told.text.is_some() || told.source.is_some() || told.tokens.is_some();
        let found = objects::picked(file, format, &[wanted], options).or_else(|e| {
            let (false, Some(given)) = (is_set, wanted.given) else { return Err(e) };
            let other = objects::picked(file, format, &[Wanted { given: None, ..wanted }], options);
            let Ok(mut other) = other else { return Err(remedied(e, &wanted)) };
            let (fields, name) = (other.fields(file), other.names.concat());
            let is_known = |name: &&String| wanted.known.contains(&name.as_str());
            let several = given.parse::<usize>().is_err() && fields.iter().filter(is_known).count() > 1;
            if several || name.parse::<usize>().is_ok() {
                return Err(remedied(e, &wanted));
            }
            other.notes.push(instead(&wanted, &name, given));
            Ok(other)
        });
        let picked = found?;
        options.notes.extend(picked.notes.iter().cloned());
        let (name, names) = (picked.names.concat(), picked.fields(file));
        keep(options, &wanted, Some(name.clone()));
        #[cfg(feature = "parquet")]
        if format == FileFormat::Parquet {
            let (source, form) = (Source::Rows(name, make), Form::Json);
            return Ok(Self { source, form, names, header: false });
        }
        let Some(elements) = picked.in_lines() else {
            let expected = "records in lines: CSV, TSV, JSON Lines, columns or a text a line";
            let got = "JSON that is not an object or a list a line: `jq -c '.[]'` writes it so";
            return Err(Error::of(ErrorKind::Format, format!("file `{}`", file.name()), expected, got));
        };
        let (wanted, header) = (picked.names, elements.is_some());
        let asked = move |line: &str| {
            json::object(line, Some(&wanted), elements.as_deref())?
                .map(|object| make(&object, &name).map(alone))
                .transpose()
        };
        Ok(Self { source: Source::Lines(Box::new(OneLine(asked))), form: Form::Json, names, header })
    }

    /// Words, which may have tags.
    pub(super) fn words(file: &TextFile, options: &mut ReadOptions) -> Result<Self> {
        let told = options.told.as_ref().and_then(|told| told.format);
        let guess = guess(file, &ReadOptions { format: None, ..options.clone() }, Task::Tagged)?;
        options.format = Some(guess.format);
        if matches!(guess.format, FileFormat::JsonLines | FileFormat::Parquet) {
            let given = options.tokens.clone();
            let wanted = Wanted { what: "tokens", given: given.as_deref(), known: TOKENS };
            return Self::objects(file, options, wanted, words);
        }
        let named = by_ending(&file.name()) == Some(FileFormat::Columns);
        let like = options.columns.take();
        let told_words = options.told.as_ref().and_then(|told| told.tokens.clone());
        let known = Known {
            like: like.as_deref(),
            words: told_words.as_deref(),
            columns: named || told == Some(FileFormat::Columns),
        };
        let Some(columns) = Columns::of_words(file, known)? else {
            options.format = Some(FileFormat::Plain);
            let note = "a text a line; of a word a line, a name that ends with `.conll` says so";
            options.notes.push(note.to_owned());
            return Ok(Self::plain());
        };
        options.columns = Some(Box::new(columns.clone()));
        let names = columns.titles();
        let names = names.into_iter().chain(intents(file)?).collect();
        let form = Form::Columns(columns.clone());
        Ok(Self { source: Source::Lines(columns.asked()), form, names, header: false })
    }
}

fn alone(text: String) -> Asked {
    Asked { text, ..Asked::default() }
}

/// Notes where the text was found.
fn keep(options: &mut ReadOptions, text: &Wanted<'_>, name: Option<String>) {
    match text.what {
        "source" => options.source = name,
        "tokens" => options.tokens = name,
        _ => options.text = name,
    }
    (options.label, options.target, options.tags) = (None, None, None);
}

fn instead(wanted: &Wanted<'_>, name: &str, given: &str) -> String {
    let what = wanted.what;
    match given.parse::<usize>() {
        Ok(number) => format!("{what} in `{name}` by its name; the training had it in column {number}"),
        Err(_) => format!("{what} in `{name}`, since there is no `{given}`, which the training had"),
    }
}

/// What to do about a column that the training had and the file has not.
fn remedied(error: Error, wanted: &Wanted<'_>) -> Error {
    let Some(given) = wanted.given.filter(|given| given.parse::<usize>().is_err()) else { return error };
    error.noted(format!(
        "`{given}` is the {} of the training; another column is set as by `--set {}=NAME`",
        wanted.what,
        wanted.setting()
    ))
}

/// The name in a header by which the text is found, and a note if that is no name of the training; none without such a header.
fn by_header(
    file: &str,
    rows: &[Vec<String>],
    text: &Wanted<'_>,
    header: Option<bool>,
) -> Result<Option<(String, Option<String>)>> {
    /// The names that a header of one column has.
    const SURE: [&str; 4] = ["text", "texts", "sentence", "sentences"];
    let Some((first, below)) = rows.split_first().filter(|_| header != Some(false)) else { return Ok(None) };
    let cells: Vec<&str> = first.iter().map(|cell| cell.trim()).collect();
    let given = text.given.map(str::trim);
    let place = given.and_then(|given| given.parse::<usize>().ok());
    if let Some(given) = given.filter(|given| place.is_none() && cells.contains(given)) {
        return Ok(Some((given.to_owned(), None)));
    }
    let once = |at: usize| {
        let cell = cells.get(at).copied();
        !below.iter().any(|row| row.get(at).map(|other| other.trim()) == cell)
    };
    if cells.iter().any(|cell| cell.is_empty() || number(cell)) {
        return Ok(None);
    }
    // Of two languages the name of the training says which is the source, else the place.
    let languages: Vec<usize> =
        (0..cells.len()).filter(|&at| once(at) && cells.get(at).is_some_and(|cell| language(cell))).collect();
    if let (true, [first, _, ..]) = (text.what == "source", &languages[..]) {
        if let (Some(given), None) = (given, place) {
            let expected = format!("the language `{given}`");
            let got = quoted(cells.iter().copied());
            let what = format!("header of file `{file}`");
            return Err(remedied(Error::of(ErrorKind::Format, what, expected, got), text));
        }
        let at = place.unwrap_or(1).saturating_sub(1);
        let at = if languages.contains(&at) { at } else { *first };
        let Some(name) = cells.get(at) else { return Ok(None) };
        let note = format!(
            "source in `{name}` by its place, since the training had no names: `--set data.text=NAME` sets another"
        );
        return Ok(Some(((*name).to_owned(), Some(note))));
    }
    let fits = |at: &usize| {
        let name = plain(cells.get(*at).copied().unwrap_or_default());
        let sure = cells.len() > 1 || SURE.contains(&name.as_str());
        text.known.contains(&name.as_str())
            && sure
            && once(*at)
            && !(text.what == "source" && language(&name))
    };
    let fitting: Vec<usize> = (0..cells.len()).filter(fits).collect();
    let rank = |at: &&usize| {
        let name = plain(cells.get(**at).copied().unwrap_or_default());
        text.known.iter().position(|known| *known == name)
    };
    let Some(&at) = fitting.iter().min_by_key(rank) else { return Ok(None) };
    let Some(&name) = cells.get(at) else { return Ok(None) };
    match given {
        Some(_) if place.is_none() && fitting.len() > 1 => Ok(None),
        Some(given) if place != Some(at + 1) => Ok(Some((name.to_owned(), Some(instead(text, name, given))))),
        _ => Ok(Some((name.to_owned(), None))),
    }
}

/// The table whose text is in the column of the same number or name as in the training; of texts alone in the only column.
fn by_place(
    file: &TextFile,
    guess: &Guess,
    options: &ReadOptions,
    [text, label]: [Wanted<'_>; 2],
) -> Result<table::Table> {
    let of = |wanted: &[Wanted<'_>]| table::Table::of(file, guess.format, options, wanted);
    // Where labels are named, too, texts are not taken for them; without names, a text alone comes first.
    let both = of(&[text, label]);
    let named = |table: &table::Table| table.has_header() || label.given.is_some();
    match both {
        Ok(table) if named(&table) => Ok(table),
        both => match (of(&[text]), both) {
            // The label has its column, and is not where it was in the training.
            (Ok(table), Err(e)) if !table.has_header() && table.has_column(label.given) => {
                Err(guess.explain(e))
            }
            (Ok(table), _) => Ok(table),
            (Err(e), both) => {
                // A file of texts alone has one column, whatever their number was in the training.
                let alone = of(&[Wanted { given: Some("1"), ..text }]);
                let alone = alone.ok().filter(|table| table.width() == 1);
                alone.or(both.ok()).ok_or_else(|| guess.explain(e))
            }
        },
    }
}

/// A file that is no table of two columns may have a text a line.
fn lines_alone(file: &TextFile, options: &ReadOptions, error: Error) -> Result<Guess> {
    let alone = ReadOptions { format: Some(FileFormat::Tsv), ..options.clone() };
    if options.format.is_some() || file.name().contains(".json") {
        return Err(error);
    }
    guess(file, &alone, Task::Labelled)
}

/// What comments of the first lines are about that an answer would add, too.
fn intents(file: &TextFile) -> Result<Vec<String>> {
    const LOOKED_AT: usize = 1000;
    let key = |line: &str| {
        let (key, _) = line.strip_prefix('#')?.split_once('=')?;
        Some(key.trim().to_owned()).filter(|key| ["intent", "probability"].contains(&key.as_str()))
    };
    let lines = file.first_records(OneLine(move |line: &str| Ok(Some(key(line)))))?;
    Ok(lines.take(LOOKED_AT).flatten().flatten().collect())
}
