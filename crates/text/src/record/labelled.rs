//! Reads labelled texts from files and folders.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unpadded::data::{FileLine, Fingerprint};
use unpadded::{ErrorKind, Result};

use super::plan::{Plan, StreamOpener};
use super::projection::{FilePlan, Projection};
use crate::dataset::data_set::Record;
use crate::detect::column::{Column, LABEL, TEXT};
use crate::detect::form::FileForm;
use crate::detect::guess::{misnamed, no_features};
use crate::detect::options::ReadOptions;
use crate::format::labels::{BEHIND, flag, joined};
use crate::format::line_format::LineFormat;
use crate::format::row::{FileRow, RecordMaker};
use crate::format::table::Table;
use crate::format::{FileFormat, FolderFormat, FormatKind, Task, extension};
use crate::source::lines::quoted;
use crate::source::parts;
use crate::source::paths::{PathContent, find, is_note, prepared};
use crate::source::reason::{Reason, wrong_format};
use crate::source::records::{SkippedRecords, Stream, shown, to_first_error};
use crate::{Folder, LabelNotation, LabelledText, MalformedLines, TextFile};

/// A file of labelled texts: the file has the labels, or all texts of the file have one label.
#[derive(Debug)]
enum Input {
    /// Each record of the file has a text and a label. The plan is known for the first file of a data set, and for
    /// checked tables. It is `None` for other files, whose form is detected when the file is read.
    Records(TextFile, Option<Box<FilePlan>>),
    /// Each line of the file, or each cell of its only column, is a text with this label.
    Texts(TextFile, FileForm, String),
    /// The whole file is a text with this label.
    Whole(TextFile, String),
}

/// Each line that is not blank is a text without a label.
const LINES: LineFormat = LineFormat {
    records: |_| {
        Box::new(|line| {
            let text = line.trim();
            Ok((!text.is_empty()).then(|| vec![[text.to_owned(), String::new()]]))
        })
    },
    ..LineFormat::DEFAULT
};

impl Input {
    /// Opens the records of the file. If the form of the file is not known yet, it is detected with `options`.
    fn open(&self, options: &ReadOptions, window: bool) -> Result<Stream<LabelledText>> {
        match self {
            Self::Records(file, Some(plan)) => plan.records(file),
            Self::Records(file, None) => {
                let file = prepared(file.clone(), options, window)?;
                FilePlan::of::<LabelledText>(&file, options)?.records(&file)
            }
            Self::Texts(file, form, label) => {
                let (name, label) = (Arc::from(file.name()), label.clone());
                let make = move |mut row: FileRow<'_>, line| {
                    Ok(LabelledText::new(row.text(0)?, label.as_str()).placed(&name, line))
                };
                form.records(file, Box::new(make))
            }
            Self::Whole(file, label) => {
                let text = prepared(file.clone(), options, window)?.text()?;
                Ok(Box::new(std::iter::once(Ok(LabelledText::new(text, label.clone())))))
            }
        }
    }
}

/// The cells of a text's label: one cell, or a cell of 0 or 1 for each of several labels.
#[derive(Debug, Clone)]
struct LabelCells {
    /// The names of the columns, which are the labels if there are several columns.
    names: Vec<String>,
    /// Whether a text may have several labels.
    lists: bool,
    notation: Option<LabelNotation>,
}

impl LabelCells {
    /// Takes the label, or the joined labels, from the cells of a row from `column` on.
    fn take(&self, row: &mut FileRow<'_>, column: usize) -> Result<String, Reason> {
        if self.names.len() > 1 {
            let mut labels = Vec::new();
            for (at, name) in (column..).zip(&self.names) {
                let cell = row.label(at, true)?;
                let expected = || format!("0 or 1 in the column of the label `{name}`");
                if flag(&cell).ok_or_else(|| Reason::of(expected(), shown(&cell)))? {
                    labels.push(name);
                }
            }
            return Ok(joined(labels));
        }
        let cell = row.label(column, self.lists)?;
        let Some(notation) = self.notation.as_ref().filter(|_| !cell.is_empty() && !cell.ends_with(BEHIND))
        else {
            return Ok(cell);
        };
        match &notation.labels(&cell)?[..] {
            [one] => Ok(one.to_string()),
            labels => Ok(joined(labels)),
        }
    }
}

impl Projection for LabelledText {
    const TASK: Task = Task::Labelled;

    /// Returns the text columns, the label column and, if a group column is set, the group column.
    fn wanted(options: &ReadOptions) -> Vec<Column<'_>> {
        let mut wanted = Column::several("text", &options.text, TEXT);
        wanted.extend(Column::several("label", &options.label, LABEL));
        let group = options.group.as_deref();
        wanted.extend(group.map(|group| Column { what: "group", given: Some(group), known: "" }));
        wanted
    }

    fn form(file: &TextFile, format: FileFormat, options: &mut ReadOptions) -> Result<FileForm> {
        if !format.has_columns() {
            options.without_columns(format, &format!("file `{}`", file.name()))?;
        }
        let form = FileForm::of(file, format, options, &Self::wanted(options))?;
        form.note(file, options)?;
        let mut texts = form.choice().0.to_vec();
        if !texts.is_empty() {
            options.group = options.group.take().and_then(|_| texts.pop());
            options.label = texts.split_off(texts.len().saturating_sub(options.label.len().max(1)));
            options.text = texts;
            notation(file, &form, options)?;
        }
        Ok(form)
    }

    fn maker(file: &TextFile, options: &ReadOptions) -> RecordMaker<Self> {
        let (name, texts, grouped) =
            (Arc::from(file.name()), options.text.len().max(1), options.group.is_some());
        let pair = options.pair;
        let usual = || options.label_lists.then(|| LabelNotation::parse(","));
        let notation = options.notation.clone().or_else(usual);
        // Formats without columns have one label, or joined labels.
        let notation = notation.filter(|_| options.format.is_some_and(FileFormat::has_columns));
        let labels = LabelCells { names: options.label.clone(), lists: options.label_lists, notation };
        let group = texts + labels.names.len().max(1);
        // Without `Skip`, the user of the records checks their numbers.
        let checks = options.numbers && options.malformed == MalformedLines::Skip;
        let is_number = |label: &str| label.trim().parse::<f32>().is_ok_and(f32::is_finite);
        Box::new(move |mut row, line| {
            let mut found = Self::new(row.texts(texts, pair)?, labels.take(&mut row, texts)?);
            if checks && !is_number(&found.label) {
                return Err(Reason::of("a number, as 2.5", shown(&found.label)));
            }
            found.group.0 = if grouped { Some(row.label(group, false)?) } else { None };
            Ok(found.placed(&name, line))
        })
    }
}

/// Detects the notation of the labels in the first records, unless it is set or not needed.
fn notation(file: &TextFile, form: &FileForm, options: &mut ReadOptions) -> Result<()> {
    if !(options.label_lists || options.numbers) || options.label.len() > 1 {
        return Ok(());
    }
    let cells = form.first_cells(file, options.text.len())?;
    let cells = cells.iter().map(String::as_str);
    let wrong = |expected: &str, got: String| {
        let what = format!("labels in column `{}` of file `{}`", options.label.concat(), file.name());
        wrong_format(what, expected, got)
            .noted("`label_notation` (`data.label_separator` in a config) sets the separator, or `lists`")
    };
    let is_set = options.as_set.as_ref().is_some_and(|as_set| as_set.notation.is_some());
    let found = match &options.notation {
        None if options.numbers => LabelNotation::of_numbers(cells),
        None => LabelNotation::detect(cells).map_err(|possible| {
            wrong("several labels in one notation", format!("several possible ones: {possible}"))
        })?,
        Some(earlier @ LabelNotation::Separator(_))
            if !is_set && LabelNotation::detect(cells) == Ok(Some(LabelNotation::Lists)) =>
        {
            let expected = format!("{}, as in an earlier file", earlier.note());
            return Err(wrong(&expected, LabelNotation::Lists.note()));
        }
        Some(earlier) => Some(earlier.clone()),
    };
    options.notation = found;
    options.notes.extend(options.notation.as_ref().map(LabelNotation::note));
    Ok(())
}

/// Describes how a file is read; the description omits the reason for a header.
fn description(plan: &FilePlan) -> String {
    let mut options = plan.options.clone();
    options.notes.retain(|note| !note.contains("is a header"));
    options.to_string()
}

/// Names of folders that have texts without labels, next to class folders.
const UNLABELLED: [&str; 4] = ["unsup", "unlabeled", "unlabelled", "unsupervised"];

/// Returns whether the extension of a file shows that the file has labelled texts, as a table has.
fn has_records(below: &str) -> bool {
    let ending = |ending| {
        let mut formats = FileFormat::ALL.into_iter().filter(|format| format.may_have(Task::Labelled));
        // In a folder, a file that ends with `.tab` is a class.
        ending != "tab" && formats.any(|format| format.endings().contains(&ending))
    };
    extension(below).is_some_and(ending)
}

fn parent(below: &str) -> &str {
    below.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Keeps only the files in class folders, if there are any, and returns notes on the other files.
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
        let advice =
            "move their texts into the class folder, or move these folders beside the class folders or away";
        return Err(wrong_format(what, "only texts in a class folder", got).noted(advice));
    }
    let records: Vec<&str> = files().filter(top).filter(|below| has_records(below)).collect();
    if !records.is_empty() {
        let what = format!("folder `{}`", path.display());
        let got = format!("{} beside the folders {}", quoted(records), quoted(of_classes));
        return Err(wrong_format(what, "files of records, or a folder for each class", got));
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

/// Returns whether each file is a class: several tables with only a text column, without digits in the names.
fn are_classes(files: &[(String, TextFile)], options: &ReadOptions) -> Result<bool> {
    let numbered = |(below, _): &(String, TextFile)| below.contains(|c: char| c.is_ascii_digit());
    if files.len() < 2 || files.iter().any(numbered) {
        return Ok(false);
    }
    for (_, file) in files {
        let mut file = prepared(file.clone(), options, true)?;
        let is = Table::of_texts(&file, options)?.is_some();
        file.close();
        if !is {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Detects the format of a folder, appends its files to `records` or `inputs`, and returns notes.
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
    let of_records = files.iter().all(|(below, _)| has_records(below));
    let format = match options.format {
        Some(format) => format,
        None => {
            let names = || files.iter().map(|(below, _)| below.as_str());
            let what = || format!("folder `{}`", path.display());
            if let Some([one, other]) = parts::parts_in(names()) {
                let expected =
                    "the files of one part: give the path of the part, in a zip as `some.zip!train.csv`";
                return Err(wrong_format(what(), expected, format!("`{one}` beside `{other}`")));
            }
            if !of_records && parents.len() == 1 && names().any(has_records) {
                let got = format!(
                    "{} beside {}",
                    quoted(names().filter(|below| has_records(below))),
                    quoted(names().filter(|below| !has_records(below)))
                );
                let expected = "only files of records, or one file per class: give the path of a file";
                return Err(wrong_format(what(), expected, got));
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
        // A file whose name shows the format of another task is no class of texts.
        files.iter().find_map(|(_, file)| misnamed(file, Task::Labelled)).map_or(Ok(()), Err)?;
        // Maximum number of files that are checked: a checked file stays open until it is read.
        const LOOKED_AT: usize = 100;
        for (_, file) in files.iter().take(LOOKED_AT) {
            no_features(file, Task::Labelled.name())?;
        }
    }
    let FormatKind::Folders(folder_format @ (FolderFormat::ClassFolders | FolderFormat::ClassFiles)) =
        format.kind()
    else {
        records.extend(files.iter().cloned());
        return Ok(notes);
    };
    options.without_columns(format, &format!("folder `{}`", path.display()))?;
    notes.insert(0, format!("`{format}`"));
    if let FolderFormat::ClassFolders = folder_format {
        for (label, file) in folder.folder_per_class()? {
            let file = if options.format.is_some() { file.markup(true) } else { file };
            inputs.push(Input::Whole(file, label));
        }
        return Ok(notes);
    }
    for (label, file) in folder.file_per_class()? {
        let file = prepared(file, options, window)?;
        let noted = |note: &String| format!("class `{label}`: {note}");
        notes.extend(file.encoding_note().as_ref().map(noted));
        let table = Table::of_texts(&file, options)?;
        notes.extend(table.iter().flat_map(|table| &table.picked.notes).map(noted));
        inputs.push(match table {
            Some(table) => Input::Texts(file.reopened(), FileForm::Cells(table), label),
            None => Input::Texts(file, FileForm::Lines(&LINES, options.lines), label),
        });
    }
    Ok(notes)
}

/// Finds the files of these paths, and detects the form of the first file of records.
fn found(paths: &[PathBuf], set: &ReadOptions, window: bool) -> Result<(String, Vec<Input>, ReadOptions)> {
    let (name, found) = find(paths)?;
    let (mut inputs, mut options) = (Vec::new(), set.as_set());
    let (mut classes, mut notes) = (Vec::new(), Vec::new());
    for one in found {
        match one {
            PathContent::File(file) => classes.push((file.name(), file)),
            PathContent::Folder(path) => {
                notes.extend(folder(&path, &options, window, &mut inputs, &mut classes)?)
            }
        }
    }
    // With the format `file-per-class`, each of several files, such as `rt-polarity.*`, is a class.
    if options.format == Some(FileFormat::FilePerClass) && inputs.is_empty() {
        options.without_columns(FileFormat::FilePerClass, &format!("`{name}`"))?;
        let label = |name: &str| {
            let name = name.rsplit(['/', '!']).next().unwrap_or(name);
            name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
        };
        for (name, file) in classes.drain(..) {
            let file = prepared(file, &options, window)?;
            inputs.push(Input::Texts(file, FileForm::Lines(&LINES, options.lines), label(&name)));
        }
    }
    // Maximum number of later tables whose form is compared with the first table.
    const LOOKED_AT: usize = 100;
    let mut first: Option<String> = None;
    for (_, mut file) in classes {
        // Other files have the form of the first file, unless the name of a file shows another format.
        let is_compared = first.is_some()
            && inputs.len() <= LOOKED_AT
            && FileFormat::of_name(&file.name()).is_some_and(FileFormat::is_table);
        if !(inputs.is_empty() || is_compared) {
            inputs.push(Input::Records(file, None));
            continue;
        }
        file = prepared(file, &options, window)?;
        let plan = FilePlan::of::<LabelledText>(&file, &options)?;
        if let Some(first) = &first {
            let reading = description(&plan);
            if reading != *first {
                notes.push(format!("`{}` read as {reading}", file.name()));
            }
            file = file.reopened();
        } else {
            options = plan.options.clone();
            first = matches!(plan.form, FileForm::Cells(_)).then(|| description(&plan));
        }
        inputs.push(Input::Records(file, Some(Box::new(plan))));
    }
    // Later files may have another format than the files for which the options are set.
    let of_lines = match inputs.first().filter(|_| set.as_set.is_none()) {
        Some(Input::Records(_, Some(plan))) if matches!(plan.form, FileForm::Lines(..)) => {
            plan.options.format
        }
        Some(Input::Texts(_, FileForm::Lines(..), _)) => Some(FileFormat::FilePerClass),
        Some(Input::Whole(..)) => Some(FileFormat::FolderPerClass),
        Some(Input::Records(..) | Input::Texts(..)) | None => None,
    };
    of_lines.map_or(Ok(()), |format| set.unused(format, &format!("`{name}`")))?;
    options.notes.extend(notes);
    Ok((name, inputs, options))
}

/// Iterates over the records of all files, up to the first error.
fn records(inputs: Arc<[Input]>, options: ReadOptions, window: bool) -> Stream<LabelledText> {
    // If malformed records are collected, one error reports all files in class folders that cannot be read.
    let (mut number, mut strays) = (0, SkippedRecords::default());
    let next = move || -> Option<Stream<LabelledText>> {
        let Some(input) = inputs.get(number) else {
            let error = std::mem::take(&mut strays).all::<LabelledText>(0).err()?;
            let error = error.noted("move the files that are not texts out of the class folders");
            return Some(Box::new(std::iter::once(Err(error))));
        };
        number += 1;
        Some(input.open(&options, window).unwrap_or_else(|e| -> Stream<LabelledText> {
            match input {
                Input::Whole(..) if options.malformed == MalformedLines::Collect => {
                    strays.add(|| e);
                    Box::new(std::iter::empty())
                }
                // Only an error about the contents of a file is left out, and none about reading it.
                Input::Whole(file, _)
                    if options.malformed == MalformedLines::Skip && e.kind() == ErrorKind::Format =>
                {
                    let reason = Reason::of("a text", e.to_string());
                    let added = options.skips.0.add(&file.name(), [0; 2], &reason, "");
                    Box::new(added.err().into_iter().map(Err))
                }
                _ => Box::new(std::iter::once(Err(e))),
            }
        }))
    };
    let mut records = std::iter::from_fn(next).flatten();
    to_first_error(move || records.next().transpose())
}

impl Record for LabelledText {
    const PLURAL: &'static str = "texts";

    fn file_line(&self) -> Option<FileLine> {
        self.location.0.clone()
    }

    fn bytes(&self) -> usize {
        let group = self.group.0.as_ref().map_or(0, String::len);
        size_of::<Self>() + self.text.len() + self.label.len() + group
    }

    fn held_out_by(&self, fingerprint: Fingerprint) -> Fingerprint {
        fingerprint.text(self.group.0.as_ref().unwrap_or(&self.text))
    }

    fn input(&self, fingerprint: Fingerprint) -> Fingerprint {
        fingerprint.text(&self.text)
    }

    fn stratum(&self) -> std::borrow::Cow<'_, str> {
        (&*self.label).into()
    }

    fn fingerprint(&self, fingerprint: Fingerprint) -> Fingerprint {
        fingerprint.text(&self.text).text(&self.label)
    }

    fn plan(paths: &[PathBuf], options: &ReadOptions, window: bool) -> Result<Plan<Self>> {
        let (name, inputs, options) = found(paths, options, window)?;
        let (inputs, plan_options) = (Arc::<[Input]>::from(inputs), options.clone());
        let open = move || records(Arc::clone(&inputs), plan_options.clone(), window);
        Ok(Plan { name, options, records: StreamOpener::new(open) })
    }
}
