//! Finds the texts to predict for in the records of a file. The text column is found by the header, or by the name or
//! the number that it has in the training data.

use unpadded::{Error, Result};

use super::answers::Form;
use crate::TextFile;
use crate::detect::column::{Column, LABEL, SURE, TEXT, TOKENS, language, plain};
use crate::detect::columns::number;
use crate::detect::guess::{Guess, guess, misnamed};
use crate::detect::objects::{self, FieldLayout};
use crate::detect::options::ReadOptions;
use crate::format::conll::{Columns, KnownColumns, SentenceWords, joined};
use crate::format::fields::FieldText;
use crate::format::line_format::{LineFormat, LineParser, LineSettings};
use crate::format::{FieldFormat, FileFormat, FormatKind, Task, fields, json, table};
use crate::record::projection::Projection;
use crate::source::lines::quoted;
use crate::source::reason::{Reason, wrong_format};
use crate::source::records::{OneLine, Parser};

/// The plan for reading the texts of a file and writing the file with answers.
pub(crate) struct AnswerPlan {
    pub(crate) source: Source,
    pub(crate) form: Form,
    pub(crate) names: Vec<String>,
    pub(crate) header: bool,
    /// Whether each line is a record, so that a blank line is a record without a text.
    pub(crate) blank: bool,
}

pub(crate) enum Source {
    Lines(Box<dyn Parser<SentenceWords>>),
    /// The rows of a Parquet file: the names of the text's fields, and a function that makes a text of a field.
    #[cfg(feature = "parquet")]
    Rows(Vec<String>, FieldText),
}

/// Returns the text of a field to answer; null or a blank string is an empty text.
fn text(object: &fields::Object<'_>, name: &str) -> Result<String, Reason> {
    match fields::at(object, name) {
        Some(fields::Value::Null) => Ok(String::new()),
        Some(fields::Value::Text(text)) => Ok(text.to_string()),
        _ => fields::text(object, name),
    }
}

/// Returns the words of a field as a text: a list of words with one word per line, or a string as one line.
fn words(object: &fields::Object<'_>, name: &str) -> Result<String, Reason> {
    match fields::at(object, name) {
        Some(fields::Value::Null) => Ok(String::new()),
        Some(fields::Value::Text(text)) => Ok(one_line(text)),
        _ => joined(&fields::list(object, name, false)?),
    }
}

/// Returns a text with spaces in place of line breaks, since a text of several lines has one word per line.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

impl AnswerPlan {
    fn lines(parser: Box<dyn Parser<SentenceWords>>, form: Form) -> Self {
        Self { source: Source::Lines(parser), form, names: Vec::new(), header: false, blank: false }
    }

    /// The plan for a file with one record per line, whose text `text` returns; answers are cells behind tabs.
    fn each(mut text: LineParser<String>) -> Self {
        let asked = move |_, line: &str| Ok(text(line)?.map(alone));
        Self::lines(Box::new(OneLine(asked)), Form::Cells('\t', false))
    }

    /// The plan for plain text: each line is a text.
    pub(crate) fn plain() -> Self {
        Self { blank: true, ..Self::each((LineFormat::DEFAULT.texts)(LineSettings::default())) }
    }

    /// The plan for a LIBSVM file of rows of features; blank lines and comments are not rows.
    pub(crate) fn rows() -> Self {
        let row = |_, line: &str| {
            let row = line.split('#').next().unwrap_or_default().trim();
            Ok((!row.is_empty()).then(|| alone(row.to_owned())))
        };
        Self::lines(Box::new(OneLine(row)), Form::Comment)
    }

    /// The plan for a file of texts (with or without labels) or of source texts (with or without translations).
    pub(crate) fn texts<R: Projection>(file: &TextFile, options: &mut ReadOptions) -> Result<Self> {
        if options.format == Some(FileFormat::Plain) {
            return Ok(Self::plain());
        }
        let guess = guess(file, options, R::TASK).or_else(|e| lines_alone(file, options, e))?;
        options.format = Some(guess.format);
        if R::TASK == Task::Labelled && !guess.format.has_columns() {
            options.without_columns(guess.format, &format!("file `{}`", file.name()))?;
        }
        let (mut own, wanted) = (options.clone(), ReadOptions { group: None, ..options.clone() });
        let mut texts = R::wanted(&wanted);
        let is_text = |one: &Column<'_>| ["text", "source"].contains(&one.what);
        let labels = texts.split_off(texts.iter().take_while(|one| is_text(one)).count());
        let opened = match guess.format.kind() {
            FormatKind::Lines(format) => Ok(Self::each((format.texts)(options.lines))),
            FormatKind::Fields(format) => Self::objects(file, format, &mut own, &texts, text),
            FormatKind::Table => Self::table(file, &guess, &mut own, (&texts, &labels), alone),
            FormatKind::Words | FormatKind::Features | FormatKind::Text | FormatKind::Folders(_) => {
                Ok(Self::plain())
            }
        };
        *options = own;
        opened
    }

    /// The plan for a table. The text column has the name in the training data, else a known name, else the number in the
    /// training data; several text columns are always those in the training data. Other files have a text per line.
    fn table(
        file: &TextFile,
        guess: &Guess,
        options: &mut ReadOptions,
        (texts, labels): (&[Column<'_>], &[Column<'_>]),
        make: fn(String) -> SentenceWords,
    ) -> Result<Self> {
        let as_set = options.as_set.clone().unwrap_or_default();
        let is_set = !as_set.text.is_empty() || as_set.source.is_some();
        let alone = is_set && as_set.label.is_empty() && as_set.target.is_none();
        let is_table = as_set.format.is_some()
            || as_set.separator.is_some()
            || FileFormat::of_name(&file.name()).is_some();
        let wrong =
            |expected: &str, got: &str| Err(wrong_format(format!("file `{}`", file.name()), expected, got));
        let rows = table::Table::first_rows(file, guess.format, options)?;
        let named = match texts {
            [text] if !is_set => {
                by_header(&file.name(), &rows, text, options.header)?.map(|found| (text, found))
            }
            _ => None,
        };
        let table = match &named {
            Some((text, (name, _))) => {
                let text = Column { given: Some(name), ..**text };
                table::Table::of(file, guess.format, options, &[text])?
            }
            // A text column that the user set may be the label column of the training data.
            None => match by_column(file, guess, options, (texts, if alone { &[] } else { labels }), alone) {
                Err(_) if texts.len() > 1 && !is_table && !has_names(&rows, texts) => {
                    options.format = Some(FileFormat::Plain);
                    let note = "one text per line, with tabs between the columns of the training";
                    options.notes.push(note.to_owned());
                    return Ok(Self::plain());
                }
                table => table.map_err(|e| if is_set { e } else { remedied(e, texts) })?,
            },
        };
        if !table.has_header() && table.picked.width > 1 && !is_table && !table.has_tabs() {
            let expected = "one text per line, or a table: set `format` (`data.format`) to `plain` or `csv`";
            return wrong(expected, "a separator in each line, which may be part of the text");
        }
        if named.is_none() && !is_set && table.has_numbers(file)? {
            let expected =
                "texts: set `text` (`data.text`) to the name or the number (from 1) of the text column";
            let column = table.picked.names.first().map_or("", String::as_str);
            return wrong(expected, &format!("only numbers in column {column}"));
        }
        table.note(options);
        options.notes.extend(named.and_then(|(_, (_, note))| note));
        keep(options, texts, &table.picked.names);
        let (separator, quotes) = table.writes();
        Ok(Self {
            source: Source::Lines(table.texts(texts.len(), make)),
            form: Form::Cells(separator, quotes),
            names: table.header.to_vec(),
            header: table.has_header(),
            blank: table.picked.width == 1 && !table.has_header() && !quotes,
        })
    }

    /// The plan for JSON or Parquet records; `make` makes a text of a field.
    fn objects(
        file: &TextFile,
        format: FieldFormat,
        options: &mut ReadOptions,
        wanted: &[Column<'_>],
        make: FieldText,
    ) -> Result<Self> {
        let as_set = options.as_set.clone().unwrap_or_default();
        let is_set = !as_set.text.is_empty() || as_set.source.is_some() || as_set.tokens.is_some();
        let found = objects::picked(file, format, wanted, options).or_else(|e| {
            let (false, &[one]) = (is_set, wanted) else {
                return Err(if is_set { e } else { remedied(e, wanted) });
            };
            let Some(given) = one.given else { return Err(e) };
            let other = objects::picked(file, format, &[Column { given: None, ..one }], options);
            let Ok(mut other) = other else { return Err(remedied(e, wanted)) };
            let (fields, name) = (other.fields(file), other.names.concat());
            let is_known = |name: &&String| one.has(name);
            let several = given.parse::<usize>().is_err() && fields.iter().filter(is_known).count() > 1;
            if several || name.parse::<usize>().is_ok() {
                return Err(remedied(e, wanted));
            }
            other.notes.push(instead(&one, &name, given));
            Ok(other)
        });
        let (picked, pair) = (found?, options.pair);
        options.notes.extend(picked.notes.iter().cloned());
        let names = picked.fields(file);
        keep(options, wanted, &picked.names);
        let elements = match &picked.layout {
            FieldLayout::Json(layout) => layout.in_lines(),
            #[cfg(feature = "parquet")]
            FieldLayout::Parquet => {
                let (source, form) = (Source::Rows(picked.names, make), Form::Json);
                return Ok(Self { source, form, names, header: false, blank: false });
            }
        };
        let Some(elements) = elements else {
            let expected =
                "one record per line: CSV, TSV, JSON Lines, columns or plain text with one text per line";
            let got = "JSON without one object or list per line: `jq -c '.[]'` writes one element per line";
            return Err(wrong_format(format!("file `{}`", file.name()), expected, got));
        };
        let (wanted, header) = (picked.names, elements.is_some());
        let asked = move |_, line: &str| {
            json::object(line, Some(&wanted), elements.as_deref())?
                .map(|object| fields::text_in(&object, &wanted, make, pair).map(alone))
                .transpose()
        };
        Ok(Self { names, header, ..Self::lines(Box::new(OneLine(asked)), Form::Json) })
    }

    /// The plan for sentences of words, with or without tags, and for texts, whose words spaces separate.
    pub(crate) fn words(file: &TextFile, options: &mut ReadOptions) -> Result<Self> {
        let as_set = options.as_set.clone().unwrap_or_default();
        let guess = guess(file, &ReadOptions { format: as_set.format, ..options.clone() }, Task::ToTag)?;
        let like = options.columns.take();
        options.format = Some(guess.format);
        match guess.format.kind() {
            FormatKind::Fields(format) => {
                let given = options.tokens.take();
                let wanted = Column { what: "tokens", given: given.as_deref(), known: TOKENS };
                let of_lists = Self::objects(file, format, options, &[wanted], words);
                let text = Column { what: "text", given: None, known: TEXT };
                return of_lists.or_else(|e| {
                    let known = "a field with a known name, such as `text`, may also have texts to tag";
                    let texts = || Self::objects(file, format, options, &[text], words);
                    let found = as_set.tokens.is_none().then(texts);
                    found.map_or(Err(e.clone()), |plan| plan.map_err(|_| e.noted(known)))
                });
            }
            FormatKind::Lines(format) => return Ok(Self::each((format.texts)(options.lines))),
            FormatKind::Text => return Ok(Self::plain()),
            FormatKind::Table | FormatKind::Words | FormatKind::Features | FormatKind::Folders(_) => {}
        }
        let named = FileFormat::of_name(&file.name()) == Some(FileFormat::Columns);
        let known = KnownColumns {
            like: like.as_deref(),
            words: as_set.tokens.as_deref(),
            columns: as_set.format == Some(FileFormat::Columns) || (named && as_set.format.is_none()),
        };
        if !known.columns
            && let Some(plan) = Self::texts_to_tag(file, &guess, options, known)?
        {
            return Ok(plan);
        }
        options.format = Some(FileFormat::Columns);
        let Some(columns) = Columns::of_words(file, known)? else {
            options.format = Some(FileFormat::Plain);
            let note = "one text per line; for one word per line, let the file name end with `.conll`";
            options.notes.push(note.to_owned());
            return Ok(Self::plain());
        };
        options.columns = Some(Box::new(columns.clone()));
        let names = columns.header_names().iter().cloned().chain(intents(file)?).collect();
        Ok(Self { names, ..Self::lines(columns.asked(), Form::Columns(columns)) })
    }

    /// The plan for a table with a column of texts to tag: by the name or a setting, by a header that names the texts, or by
    /// tabs between columns of which one has several words in most cells. `None` for other files.
    fn texts_to_tag(
        file: &TextFile,
        guess: &Guess,
        options: &mut ReadOptions,
        known: KnownColumns<'_>,
    ) -> Result<Option<Self>> {
        let (mut as_set, mut guess) = (options.as_set.clone().unwrap_or_default(), guess.clone());
        let is_open = guess.format == FileFormat::Columns;
        guess.format = if is_open { FileFormat::Tsv } else { guess.format };
        let is_set = as_set.format.is_some() || as_set.separator.is_some() || guess.format == FileFormat::Csv;
        let mut own = ReadOptions {
            format: Some(guess.format),
            header: as_set.header,
            tokens: None,
            ..options.clone()
        };
        let rows = table::Table::first_rows(file, guess.format, &own)?;
        let (width, running) = (rows.first().map_or(0, Vec::len), running(&rows));
        let mut text = Column { what: "text", given: known.words, known: TEXT };
        let header = by_header(&file.name(), &rows, &text, own.header)?.map(|(name, _)| name);
        let header = header.filter(|_| width > 1 || !is_open);
        let at = header.as_ref().and_then(|name| rows.first()?.iter().position(|cell| cell.trim() == name));
        // A name of a column does not occur again below: the first word of a sentence may be a known name, too.
        let again = |(at, cell): (usize, &String)| rows.iter().skip(1).any(|row| row.get(at) == Some(cell));
        let is_named = || rows.first().is_some_and(|first| !first.iter().enumerate().any(again));
        let is_table = is_set
            || at.is_some_and(|at| running.contains(&at))
            || (width > 1
                && if at.is_some() { is_named() } else { !running.is_empty() && has_tabs(file)? }
                && !Columns::are_sentences(file, known)?);
        if !is_table {
            return Ok(None);
        }
        let number = running.first().map(|at| (at + 1).to_string());
        if at.is_none() && known.words.is_none() && width > 1 {
            if running.len() != 1 {
                let what = format!("column of the texts in file `{}`", file.name());
                let expected = "a header with a known name, such as `text`, or one column with several words per cell: set `data.text` to the name or the number (from 1) of the column";
                let got = format!("{} such columns of {width}", running.len());
                return Err(wrong_format(what, expected, got));
            }
            text.given = number.as_deref();
        }
        as_set.text = known.words.map(str::to_owned).into_iter().collect();
        own.as_set = Some(as_set);
        let label = Column { what: "label", given: None, known: LABEL };
        let plan = Self::table(file, &guess, &mut own, (&[text], &[label]), |text| alone(one_line(&text)))?;
        *options = own;
        Ok(Some(plan))
    }
}

/// Number of lines that are read for the properties of a file.
const LOOKED_AT: usize = 1000;

fn has_tabs(file: &TextFile) -> Result<bool> {
    let line = |_, line: &str| Ok(Some(line.contains('\t')));
    Ok(file.first_records(OneLine(line))?.take(LOOKED_AT).any(|has| matches!(has, Ok(true))))
}

/// Returns the columns that have several words in at least half of the records, counted from 0.
fn running(rows: &[Vec<String>]) -> Vec<usize> {
    let several = |cell: &String| cell.split_whitespace().nth(1).is_some();
    let count = |at: usize| rows.iter().filter(|row| row.get(at).is_some_and(several)).count();
    (0..rows.first().map_or(0, Vec::len)).filter(|&at| count(at) * 2 >= rows.len()).collect()
}

fn alone(text: String) -> SentenceWords {
    SentenceWords { text, ..SentenceWords::default() }
}

/// Stores the names of the text columns in the options, and removes the other columns from the options.
fn keep(options: &mut ReadOptions, texts: &[Column<'_>], names: &[String]) {
    match texts.first().map(|text| text.what) {
        Some("source") => options.source = names.first().cloned(),
        Some("tokens") => options.tokens = names.first().cloned(),
        _ => options.text = names.iter().take(texts.len()).cloned().collect(),
    }
    options.label.clear();
    (options.target, options.tags) = (None, None);
}

fn instead(wanted: &Column<'_>, name: &str, given: &str) -> String {
    let what = wanted.what;
    match given.parse::<usize>() {
        Ok(number) => format!(
            "{what} in `{name}`, by the name of the column; in the training, {what} in column {number}"
        ),
        Err(_) => format!("{what} in `{name}`, since there is no `{given}`, which the training had"),
    }
}

/// Adds advice to an error about a column that the training data has and the file lacks.
fn remedied(error: Error, texts: &[Column<'_>]) -> Error {
    let is_name = |given: &&str| given.parse::<usize>().is_err();
    match texts {
        [text] => match text.given.filter(is_name) {
            Some(given) => error.noted(format!(
                "`{given}` is the {} of the training; `--set {}=NAME` sets another column",
                text.what,
                text.setting()
            )),
            None => error,
        },
        _ => error.noted(format!(
            "the text of the training is in the columns {}; `data.text` sets other columns",
            quoted(texts.iter().filter_map(|text| text.given))
        )),
    }
}

/// Returns whether the first record has the name of one of the text's columns.
fn has_names(rows: &[Vec<String>], texts: &[Column<'_>]) -> bool {
    rows.first().is_some_and(|first| first.iter().any(|cell| texts.iter().any(|text| text.names(cell))))
}

/// Finds the text column in the header: returns the column's name, and a note if the name or the position differs from
/// the training data. Returns `None` if there is no header, or if no name in the header is known.
fn by_header(
    file: &str,
    rows: &[Vec<String>],
    text: &Column<'_>,
    header: Option<bool>,
) -> Result<Option<(String, Option<String>)>> {
    let Some((first, below)) = rows.split_first().filter(|_| header != Some(false)) else { return Ok(None) };
    let cells: Vec<&str> = first.iter().map(|cell| cell.trim()).collect();
    let given = text.given.map(str::trim);
    let column_number = given.and_then(|given| given.parse::<usize>().ok());
    if let Some(given) = given.filter(|given| column_number.is_none() && cells.contains(given)) {
        return Ok(Some((given.to_owned(), None)));
    }
    let once = |at: usize| {
        let cell = cells.get(at).copied();
        !below.iter().any(|row| row.get(at).map(|other| other.trim()) == cell)
    };
    if cells.iter().any(|cell| cell.is_empty() || number(cell)) {
        return Ok(None);
    }
    // If the header names two languages, the source is the column whose language is the source in the training data,
    // else the column at the same position as in the training data.
    let languages: Vec<usize> =
        (0..cells.len()).filter(|&at| once(at) && cells.get(at).is_some_and(|cell| language(cell))).collect();
    if let (true, [first, _, ..]) = (text.what == "source", &languages[..]) {
        if let (Some(given), None) = (given, column_number) {
            let expected = format!("the language `{given}`");
            let got = quoted(cells);
            let error = wrong_format(format!("header of file `{file}`"), expected, got);
            return Err(remedied(error, std::slice::from_ref(text)));
        }
        let at = column_number.unwrap_or(1).saturating_sub(1);
        let at = if languages.contains(&at) { at } else { *first };
        let Some(name) = cells.get(at) else { return Ok(None) };
        let note = format!(
            "source in `{name}` by its place, since the training had no names: `--set data.text=NAME` sets another column"
        );
        return Ok(Some(((*name).to_owned(), Some(note))));
    }
    let name = |at: usize| plain(cells.get(at).copied().unwrap_or_default());
    let fits = |at: &usize| {
        let name = name(*at);
        let sure = cells.len() > 1 || SURE.contains(&name.as_str());
        text.has(&name) && sure && once(*at) && !(text.what == "source" && language(&name))
    };
    let fitting: Vec<usize> = (0..cells.len()).filter(fits).collect();
    let rank = |at: &&usize| text.known().position(|known| known == name(**at));
    let Some(&at) = fitting.iter().min_by_key(rank) else { return Ok(None) };
    let Some(&name) = cells.get(at) else { return Ok(None) };
    match given {
        Some(_) if column_number.is_none() && fitting.len() > 1 => Ok(None),
        Some(given) if column_number != Some(at + 1) => {
            Ok(Some((name.to_owned(), Some(instead(text, name, given)))))
        }
        _ => Ok(Some((name.to_owned(), None))),
    }
}

/// Returns a table whose text column has the number or the name in the training data, or is the only column.
fn by_column(
    file: &TextFile,
    guess: &Guess,
    options: &ReadOptions,
    (texts, labels): (&[Column<'_>], &[Column<'_>]),
    alone: bool,
) -> Result<table::Table> {
    let column = |wanted: &[Column<'_>]| table::Table::of(file, guess.format, options, wanted);
    // The label column is detected, too, so that it is not mistaken for a text column.
    let both = column(&[texts, labels].concat());
    let has = |table: &table::Table, number: &str| {
        number.trim().parse().is_ok_and(|number: usize| (1..=table.picked.width).contains(&number))
    };
    let named = |table: &table::Table| table.has_header() || labels.iter().any(|label| label.given.is_some());
    match both {
        Ok(table) if named(&table) => Ok(table),
        both => match (column(texts), both) {
            // The file has no header, and its label column is at another position than in the training data.
            (Ok(table), Err(e))
                if !table.has_header()
                    && labels.iter().any(|label| label.given.is_some_and(|given| has(&table, given))) =>
            {
                Err(guess.explain(e))
            }
            (Ok(table), _) => Ok(table),
            (Err(e), both) => {
                // A table with a single column has the text in this column, whatever number it has in the training data.
                let mut set = texts.iter().filter(|_| alone).filter_map(|one| one.given);
                let is_set = set.any(|column| column.trim().parse::<u64>().is_ok());
                let only = match texts {
                    [text] if !is_set => column(&[Column { given: Some("1"), ..*text }]).ok(),
                    _ => None,
                };
                let only = only.filter(|table| table.picked.width == 1);
                only.or(both.ok()).ok_or_else(|| guess.explain(e))
            }
        },
    }
}

/// Returns the format of a file that may have one text per line, after `error` has shown that the file is no table of
/// two columns. Returns `error` if the format is set or the file name contains `.json`.
fn lines_alone(file: &TextFile, options: &ReadOptions, error: Error) -> Result<Guess> {
    let alone = ReadOptions { format: Some(FileFormat::Tsv), ..options.clone() };
    let is_misnamed = misnamed(file, Task::Labelled).is_some();
    if options.format.is_some() || file.name().contains(".json") || is_misnamed {
        return Err(error);
    }
    guess(file, &alone, Task::Labelled)
}

/// Returns the comment keys in the first lines that answers also use: `intent` and `probability`.
fn intents(file: &TextFile) -> Result<Vec<String>> {
    let key = |line: &str| {
        let (key, _) = line.strip_prefix('#')?.split_once('=')?;
        Some(key.trim().to_owned()).filter(|key| ["intent", "probability"].contains(&key.as_str()))
    };
    let lines = file.first_records(OneLine(move |_, line: &str| Ok(Some(key(line)))))?;
    Ok(lines.take(LOOKED_AT).flatten().flatten().collect())
}
