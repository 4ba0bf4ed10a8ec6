//! Reads labelled texts from files and folders.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unpadded::data::{FileLine, Fingerprint};
use unpadded::{Error, ErrorKind, Result};

use super::plan::Plan;
use super::rows;
use crate::dataset::data_set::Record;
use crate::detect::column::{Column, LABEL};
use crate::detect::guess::{Guess, Task, alike, guess};
use crate::detect::objects;
use crate::detect::options::{FileFormat, ReadOptions};
use crate::format::{fasttext, fields, table, trees};
use crate::source::lines::quoted;
use crate::source::parts;
use crate::source::paths::{PathContent, by_ending, extension, find, is_note, prepared};
use crate::source::records::{OneLine, Records, SkippedRecords, Stream, of_columns, to_first_error};
use crate::{Folder, LabelledText, MalformedLines, TextFile};

/// A file of labelled texts: the file has the labels, or all texts of the file have one label.
#[derive(Debug)]
enum Input {
    /// Each record of the file has a text and a label. The form is known for the first file of a data set, and for
    /// checked tables. It is `None` for other files, whose form is detected when the file is read.
    Records(TextFile, Option<Box<Form>>),
    /// Each line of the file is a text with this label.
    Lines(TextFile, String),
    /// Each cell of the table's only column is a text with this label.
    Cells(TextFile, table::Table, String),
    /// The whole file is a text with this label.
    Whole(TextFile, String),
}

/// The decisions about a file of records: the format, the options, and the place of the text and the label.
#[derive(Debug, Clone)]
struct Form {
    guess: Guess,
    options: ReadOptions,
    parts: LabelFormat,
}

/// The place of the text and the label in a record.
#[derive(Debug, Clone)]
enum LabelFormat {
    Tree,
    FastText,
    Fields(objects::FieldChoice),
    Cells(table::Table),
}

impl Input {
    /// Opens the records of the file. If the form of the file is not known yet, it is detected with `options`.
    fn open(&self, options: &ReadOptions, window: bool) -> Result<Stream<LabelledText>> {
        match self {
            Self::Records(file, Some(form)) => form.records(file),
            Self::Records(file, None) => {
                let file = prepared(file.clone(), options, window)?;
                Form::of(&file, &alike(options, &file, Task::Labelled))?.records(&file)
            }
            Self::Lines(file, label) => {
                let label = label.clone();
                let text = move |line: &str| {
                    let text = line.trim();
                    Ok((!text.is_empty()).then(|| LabelledText::new(text, label.clone())))
                };
                Ok(placed(file, file.records(OneLine(text))?))
            }
            Self::Cells(file, table, label) => {
                let label = label.clone();
                let of =
                    move |cell: &mut dyn FnMut(usize) -> String| LabelledText::new(cell(0), label.clone());
                Ok(placed(file, table.records(file, of)?))
            }
            Self::Whole(file, label) => {
                let text = prepared(file.clone(), options, window)?.text()?;
                Ok(Box::new(std::iter::once(Ok(LabelledText::new(text, label.clone())))))
            }
        }
    }
}

/// Returns the texts, each with the file and the line that it was read from.
fn placed(file: &TextFile, records: Records<LabelledText>) -> Stream<LabelledText> {
    let name = Arc::from(file.name());
    Box::new(records.with_lines().map(move |one| one.map(|(text, line)| text.placed(&name, line))))
}

/// Returns the texts of lines that have several texts each. Each text gets the file and the line that the text was read
/// from.
fn all_placed(file: &TextFile, records: Records<Vec<LabelledText>>) -> Stream<LabelledText> {
    let name: Arc<str> = Arc::from(file.name());
    Box::new(records.with_lines().flat_map(move |one| match one {
        Ok((texts, line)) => texts.into_iter().map(|text| Ok(text.placed(&name, line))).collect(),
        Err(error) => vec![Err(error)],
    }))
}

/// Returns the wanted columns: the text columns, the label column and, if a group column is set, the group column.
fn wanted(options: &ReadOptions) -> Vec<Column<'_>> {
    let mut wanted = Column::texts(&options.text);
    wanted.push(Column { what: "label", given: options.label.as_deref(), known: LABEL });
    let group =
        options.group.as_deref().map(|group| Column { what: "group", given: Some(group), known: &[] });
    wanted.extend(group);
    wanted
}

impl Form {
    /// Detects the format and the columns of a file, unless the options set them.
    fn of(file: &TextFile, options: &ReadOptions) -> Result<Self> {
        let guess = guess(file, options, Task::Labelled)?;
        let mut options = ReadOptions { format: Some(guess.format), notes: Vec::new(), ..options.clone() };
        let parts = Self::parts(file, guess.format, &mut options).map_err(|e| guess.explain(e))?;
        options.encoded_as(file);
        Ok(Self { guess, options, parts })
    }

    fn parts(file: &TextFile, format: FileFormat, options: &mut ReadOptions) -> Result<LabelFormat> {
        if matches!(format, FileFormat::Trees | FileFormat::FastText) {
            options.without_columns(format, &format!("file `{}`", file.name()))?;
        }
        let (names, parts) = match format {
            FileFormat::Trees => return Ok(LabelFormat::Tree),
            FileFormat::FastText => {
                options.notes.extend(fasttext::note(file)?);
                return Ok(LabelFormat::FastText);
            }
            FileFormat::JsonLines | FileFormat::Parquet => {
                let picked = objects::picked(file, format, &wanted(options), options)?;
                options.notes.clone_from(&picked.notes);
                (picked.names.clone(), LabelFormat::Fields(picked))
            }
            _ => {
                let table = table::Table::of(file, format, options, &wanted(options))?;
                table.note(options);
                (table.names().to_vec(), LabelFormat::Cells(table))
            }
        };
        let mut texts = names;
        options.group = options.group.take().and_then(|_| texts.pop());
        options.label = texts.pop();
        options.text = texts;
        Ok(parts)
    }

    fn is_table(&self) -> bool {
        matches!(self.parts, LabelFormat::Cells(_))
    }

    /// Describes the format and the columns of the file; the description omits the reason for a header.
    fn reading(&self) -> String {
        let mut options = self.options.clone();
        options.notes.retain(|note| !note.contains("is a header"));
        options.to_string()
    }

    fn records(&self, file: &TextFile) -> Result<Stream<LabelledText>> {
        let grouped = self.options.group.is_some();
        let found: Result<Stream<LabelledText>> = match &self.parts {
            LabelFormat::Tree => {
                let binary = self.options.binary;
                match self.options.phrases {
                    true => file
                        .records(OneLine(move |line: &str| trees::phrases(line, binary)))
                        .map(|found| all_placed(file, found)),
                    false => file
                        .records(OneLine(move |line: &str| trees::tree(line, binary)))
                        .map(|found| placed(file, found)),
                }
            }
            LabelFormat::FastText => fasttext::records(file),
            LabelFormat::Fields(picked) => {
                let (mut texts, name) = (picked.names.clone(), Arc::from(file.name()));
                let group = if grouped { texts.pop() } else { None };
                let (label, lists) = (texts.pop().unwrap_or_default(), self.options.label_lists);
                let pair = self.options.pair;
                picked.records(file, move |object| {
                    let text = fields::text_in(object, &texts, fields::text, pair)?;
                    let mut found = LabelledText::new(text, fields::label(object, &label, lists)?);
                    found.group =
                        group.as_deref().map(|name| fields::label(object, name, false)).transpose()?;
                    Ok(found.placed(&name, object.line))
                })
            }
            LabelFormat::Cells(table) => {
                let label = table.names().len().saturating_sub(1 + usize::from(grouped));
                let of = move |cell: &mut dyn FnMut(usize) -> String| {
                    let text = of_columns((0..label).map(&mut *cell).collect());
                    let mut found = LabelledText::new(text, cell(label).trim());
                    found.group = grouped.then(|| cell(label + 1).trim().to_owned());
                    found
                };
                table.records(file, of).map(|found| placed(file, found))
            }
        };
        Ok(self.guess.explained(found.map_err(|e| self.guess.explain(e))?))
    }
}

/// The files of a data set, with the form of each file.
#[derive(Debug)]
struct Inputs {
    name: String,
    inputs: Vec<Input>,
    options: ReadOptions,
    /// Whether the records are read from the files in each pass, instead of being held in memory.
    window: bool,
}

/// Extensions of files of records, such as tables.
const RECORDS: [&str; 6] = ["tsv", "csv", "jsonl", "ndjson", "json", "parquet"];
/// Names of folders that have texts without labels, next to class folders.
const UNLABELLED: [&str; 4] = ["unsup", "unlabeled", "unlabelled", "unsupervised"];

/// Returns the folder part of a path.
fn parent(below: &str) -> &str {
    below.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// If a folder has class folders, keeps only the files in class folders, and returns notes on the files that are left
/// out.
fn classes(folder: Folder, path: &Path) -> Result<(Folder, Vec<String>)> {
    let files = || folder.files().iter().map(|(below, _)| below.as_str());
    let top = |below: &&str| parent(below).is_empty();
    let unlabelled =
        |below: &str| parent(below).rsplit('/').next().is_some_and(|name| UNLABELLED.contains(&name));
    let of_classes =
        files().filter(|below| !top(below) && !unlabelled(below)).map(parent).collect::<BTreeSet<_>>();
    if of_classes.len() < 2 {
        return Ok((folder, Vec::new()));
    }
    let nested = of_classes.iter().filter(|inner| of_classes.contains(parent(inner)));
    let nested: Vec<&str> = nested.copied().collect();
    if !nested.is_empty() {
        let what = format!("class folders of `{}`", path.display());
        let got = format!("folders beside the texts of a class: {}", quoted(nested));
        let error = Error::of(ErrorKind::Format, what, "only texts in a class folder", got);
        return Err(error.noted(
            "move their texts into the class folder, or move these folders beside the class folders or away",
        ));
    }
    let records: Vec<&str> =
        files().filter(top).filter(|below| extension(below).is_some_and(|e| RECORDS.contains(&e))).collect();
    if !records.is_empty() {
        let what = format!("folder `{}`", path.display());
        let got = format!("{} beside the folders {}", quoted(records), quoted(of_classes));
        return Err(Error::of(ErrorKind::Format, what, "files of records, or a folder for each class", got));
    }
    let mut notes = Vec::new();
    let beside: Vec<&str> = files().filter(top).collect();
    if !beside.is_empty() {
        notes.push(format!("left out, since they are beside the class folders: {}", quoted(beside)));
    }
    let without: BTreeSet<&str> = files().filter(|below| unlabelled(below)).map(parent).collect();
    if !without.is_empty() {
        notes.push(format!("left out, since texts in it have no label: {}", quoted(without)));
    }
    let folder = folder.clone().retain(|below| !parent(below).is_empty() && !unlabelled(below))?;
    Ok((folder, notes))
}

/// Returns whether each file of a folder is a class: there are several tables, each table has only a text column, and
/// no file name has digits.
fn are_classes(files: &[(String, TextFile)], options: &ReadOptions) -> Result<bool> {
    let numbered = |(below, _): &(String, TextFile)| below.contains(|c: char| c.is_ascii_digit());
    if files.len() < 2 || files.iter().any(numbered) {
        return Ok(false);
    }
    for (_, file) in files {
        let mut file = prepared(file.clone(), options, true)?;
        let is = table::Table::of_texts(&file, options)?.is_some();
        file.close();
        if !is {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Detects whether a folder has files of records, a file per class or a folder per class. Appends the files to
/// `records` or `inputs`, and returns notes on the decisions.
fn folder(
    path: &Path,
    options: &ReadOptions,
    window: bool,
    inputs: &mut Vec<Input>,
    records: &mut Vec<(String, TextFile)>,
) -> Result<Vec<String>> {
    let mut folder = Folder::open(path)?.retain(|below| !is_note(below))?;
    let mut notes = Vec::new();
    if options.format.is_none_or(|format| format == FileFormat::FolderPerClass) {
        (folder, notes) = classes(folder, path)?;
    }
    let files = folder.files();
    let parents: BTreeSet<&str> = files.iter().map(|(below, _)| parent(below)).collect();
    let of_records = files.iter().all(|(below, _)| extension(below).is_some_and(|e| RECORDS.contains(&e)));
    let format = match options.format {
        Some(format) => format,
        None => {
            let names = || files.iter().map(|(below, _)| below.as_str());
            let what = || format!("folder `{}`", path.display());
            if let Some([one, other]) = parts::parts_in(names()) {
                let expected =
                    "the files of one part: give the path of the part, in a zip as `some.zip!train.csv`";
                let got = format!("`{one}` beside `{other}`");
                return Err(Error::of(ErrorKind::Format, what(), expected, got));
            }
            let is_of_records = |below: &&str| extension(below).is_some_and(|e| RECORDS.contains(&e));
            if !of_records && parents.len() == 1 && names().any(|below| is_of_records(&below)) {
                let got = format!(
                    "{} beside {}",
                    quoted(names().filter(is_of_records)),
                    quoted(names().filter(|below| !is_of_records(below)))
                );
                let expected = "only files of records, or one file per class: give the path of a file";
                return Err(Error::of(ErrorKind::Format, what(), expected, got));
            }
            match () {
                // Files with numbers in their names are shards of one data set, and not classes.
                () if of_records && are_classes(files, options)? => FileFormat::FilePerClass,
                () if of_records || files.len() == 1 => FileFormat::Tsv,
                () if parents.len() > 1 => FileFormat::FolderPerClass,
                () => FileFormat::FilePerClass,
            }
        }
    };
    if options.format.is_none() && format != FileFormat::FolderPerClass {
        // Maximum number of files that are checked: a checked file stays open until it is read.
        const LOOKED_AT: usize = 100;
        for (_, file) in files.iter().take(LOOKED_AT) {
            rows::texts(file, "labelled texts")?;
        }
    }
    if matches!(format, FileFormat::FolderPerClass | FileFormat::FilePerClass) {
        options.without_columns(format, &format!("folder `{}`", path.display()))?;
    }
    match format {
        FileFormat::FolderPerClass => {
            notes.insert(0, format!("`{format}`"));
            for (label, file) in folder.folder_per_class()? {
                let file = if options.format.is_some() { file.markup(true) } else { file };
                inputs.push(Input::Whole(file, label));
            }
        }
        FileFormat::FilePerClass => {
            notes.insert(0, format!("`{format}`"));
            for (label, file) in folder.file_per_class()? {
                let file = prepared(file, options, window)?;
                let name = label.clone();
                notes.extend(file.encoding_note().map(|note| format!("class `{name}`: {note}")));
                inputs.push(match table::Table::of_texts(&file, options)? {
                    Some(table) => {
                        notes.extend(table.notes().iter().map(|note| format!("class `{name}`: {note}")));
                        Input::Cells(file.reopened(), table, label)
                    }
                    None => Input::Lines(file, label),
                });
            }
        }
        _ => {
            for (below, file) in files {
                records.push((below.clone(), file.clone()));
            }
        }
    }
    Ok(notes)
}

/// Prepares a later file of a data set; adds a note if the file's format or columns differ from the first table.
fn later(
    file: TextFile,
    first: &str,
    options: &ReadOptions,
    window: bool,
    notes: &mut Vec<String>,
    number: usize,
) -> Result<Input> {
    const LOOKED_AT: usize = 100;
    if number > LOOKED_AT || !matches!(by_ending(&file.name()), Some(FileFormat::Csv | FileFormat::Tsv)) {
        return Ok(Input::Records(file, None));
    }
    let file = prepared(file, options, window)?;
    let form = Form::of(&file, &alike(options, &file, Task::Labelled))?;
    let reading = form.reading();
    if reading != first {
        notes.push(format!("`{}` read as {reading}", file.name()));
    }
    Ok(Input::Records(file.reopened(), Some(Box::new(form))))
}

impl Inputs {
    /// Finds the files of these paths, and detects the form of the first file of records.
    fn new(paths: &[PathBuf], options: &ReadOptions, window: bool) -> Result<Self> {
        let (name, found) = find(paths)?;
        let (mut inputs, mut options) = (Vec::new(), options.told());
        let (mut classes, mut notes) = (Vec::new(), Vec::new());
        for one in found {
            match one {
                PathContent::File(file) => classes.push((file.name(), file)),
                PathContent::Folder(path) => {
                    notes.extend(folder(&path, &options, window, &mut inputs, &mut classes)?)
                }
            }
        }
        // With the format `file-per-class`, each of several files, such as `rt-polarity.*`, is a class with a text per
        // line.
        if options.format == Some(FileFormat::FilePerClass) && inputs.is_empty() {
            options.without_columns(FileFormat::FilePerClass, &format!("`{name}`"))?;
            let label = |name: &str| {
                let name = name.rsplit(['/', '!']).next().unwrap_or(name);
                name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
            };
            for (name, file) in classes.drain(..) {
                inputs.push(Input::Lines(prepared(file, &options, window)?, label(&name)));
            }
        }
        let mut first: Option<String> = None;
        for (_, file) in classes {
            // Other files have the form of the first file, unless the name of a file shows another format.
            if let Some(first) = &first {
                let later = later(file, first, &options, window, &mut notes, inputs.len())?;
                inputs.push(later);
                continue;
            }
            if !inputs.is_empty() {
                inputs.push(Input::Records(file, None));
                continue;
            }
            let file = prepared(file, &options, window)?;
            let form = Form::of(&file, &alike(&options, &file, Task::Labelled))?;
            options = form.options.clone();
            first = form.is_table().then(|| form.reading());
            inputs.push(Input::Records(file, Some(Box::new(form))));
        }
        options.notes.extend(notes);
        Ok(Self { name, inputs, options, window })
    }

    /// Iterates over the records of all files, up to the first error.
    fn records(self: Arc<Self>) -> Stream<LabelledText> {
        // If malformed records are collected, one error reports all files in class folders that cannot be read.
        let (mut number, mut strays) = (0, SkippedRecords::default());
        let next = move || -> Option<Stream<LabelledText>> {
            let Some(input) = self.inputs.get(number) else {
                let error = std::mem::take(&mut strays).all::<LabelledText>().err()?;
                let error = error.noted("move the files that are not texts out of the class folders");
                return Some(Box::new(std::iter::once(Err(error))));
            };
            number += 1;
            Some(input.open(&self.options, self.window).unwrap_or_else(|e| -> Stream<LabelledText> {
                match input {
                    Input::Whole(..) if self.options.malformed == MalformedLines::Collect => {
                        strays.add(|| e);
                        Box::new(std::iter::empty())
                    }
                    _ => Box::new(std::iter::once(Err(e))),
                }
            }))
        };
        to_first_error(std::iter::from_fn(next).flatten())
    }
}

impl Record for LabelledText {
    const PLURAL: &'static str = "texts";

    fn file_line(&self) -> Option<FileLine> {
        self.place.clone()
    }

    fn bytes(&self) -> usize {
        let group = self.group.as_ref().map_or(0, String::len);
        size_of::<Self>() + self.text.len() + self.label.len() + group
    }

    fn held_out_by(&self, fingerprint: Fingerprint) -> Fingerprint {
        fingerprint.text(self.group.as_ref().unwrap_or(&self.text))
    }

    fn stratum(&self) -> std::borrow::Cow<'_, str> {
        (&*self.label).into()
    }

    fn fingerprint(&self, fingerprint: Fingerprint) -> Fingerprint {
        fingerprint.text(&self.text).text(&self.label)
    }

    fn plan(paths: &[PathBuf], options: &ReadOptions, window: bool) -> Result<Plan<Self>> {
        let inputs = Arc::new(Inputs::new(paths, options, window)?);
        let (name, options) = (inputs.name.clone(), inputs.options.clone());
        Ok(Plan { name, options, open: Arc::new(move || Arc::clone(&inputs).records()) })
    }
}
