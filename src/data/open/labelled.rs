//! Labelled texts of a path.

use std::path::Path;
use std::sync::Arc;

use super::columns::{LABEL, TEXT, Wanted};
use super::guess::{Guess, Task, alike, guess};
use super::options::{FileFormat, ReadOptions};
use super::paths::{Found, extension, find, is_note, prepared};
use super::{fields, objects, parts, rows, table, trees};
use crate::data::records::{OneLine, Stream};
use crate::data::{Folder, Labelled, LabelledTexts, TextFile};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// A file, and what its records are.
#[derive(Debug)]
enum Input {
    /// Each record has its label; read as these options say.
    Records(TextFile, Guess, ReadOptions),
    /// Each line is a text of this label.
    Lines(TextFile, String),
    /// The whole is a text of this label.
    Whole(TextFile, String),
}

impl Input {
    fn open(&self) -> Result<Stream<Labelled>> {
        match self {
            Self::Records(file, guess, options) => {
                records(file, guess.format, options).map_err(|e| guess.explain(e)).map(|found| {
                    let guess = guess.clone();
                    Box::new(found.map(move |one| one.map_err(|e| guess.explain(e)))) as Stream<Labelled>
                })
            }
            Self::Lines(file, label) => {
                let label = label.clone();
                let text = move |line: &str| {
                    let text = line.trim();
                    Ok((!text.is_empty()).then(|| Labelled { text: text.to_owned(), label: label.clone() }))
                };
                Ok(Box::new(file.records(OneLine(text))?))
            }
            Self::Whole(file, label) => {
                let (file, label) = (file.clone(), label.clone());
                Ok(Box::new(std::iter::once_with(move || Ok(Labelled { text: file.text()?, label }))))
            }
        }
    }
}

fn wanted(options: &ReadOptions) -> [Wanted<'_>; 2] {
    [
        Wanted { what: "text", given: options.text.as_deref(), known: TEXT },
        Wanted { what: "label", given: options.label.as_deref(), known: LABEL },
    ]
}

fn records(file: &TextFile, format: FileFormat, options: &ReadOptions) -> Result<Stream<Labelled>> {
    match format {
        FileFormat::Trees => {
            let binary = options.binary;
            Ok(Box::new(file.records(OneLine(move |line: &str| trees::tree(line, binary)))?))
        }
        FileFormat::JsonLines | FileFormat::Parquet => {
            let names = objects::two(objects::picked(file, format, &wanted(options))?)?;
            let [text, label] = names.clone();
            objects::records(file, format, &names, move |object| {
                Ok(Labelled {
                    text: fields::text(object, &text)?,
                    label: fields::text(object, &label)?.trim().to_owned(),
                })
            })
        }
        _ => {
            let picked = table::picked(file, format, options, &wanted(options))?;
            Ok(Box::new(table::records(file, format, options, &picked, |cell| {
                Ok(Labelled { text: cell(0)?, label: cell(1)?.trim().to_owned() })
            })?))
        }
    }
}

/// The options with the format and the columns that were found in a file.
fn settled(file: &TextFile, guess: &Guess, options: &ReadOptions) -> Result<ReadOptions> {
    let mut options = ReadOptions { format: Some(guess.format), ..options.clone() };
    match guess.format {
        FileFormat::Tsv | FileFormat::Csv => {
            let picked = table::picked(file, guess.format, &options, &wanted(&options))
                .map_err(|e| guess.explain(e))?;
            options.header = Some(picked.header);
            if let [text, label] = &picked.names[..] {
                (options.text, options.label) = (Some(text.clone()), Some(label.clone()));
            }
        }
        format @ (FileFormat::JsonLines | FileFormat::Parquet) => {
            let names = objects::picked(file, format, &wanted(&options)).map_err(|e| guess.explain(e))?;
            if let [text, label] = &names[..] {
                (options.text, options.label) = (Some(text.clone()), Some(label.clone()));
            }
        }
        _ => {}
    }
    Ok(options)
}

/// The files of a data set, and how they are read.
#[derive(Debug)]
pub(in crate::data) struct Plan {
    pub(in crate::data) name: String,
    inputs: Vec<Input>,
    pub(in crate::data) options: ReadOptions,
}

/// What is in a folder: files of records, or files and folders of a class each.
fn folder(
    path: &Path,
    options: &ReadOptions,
    inputs: &mut Vec<Input>,
    records: &mut Vec<(String, TextFile)>,
) -> Result<()> {
    let folder = Folder::open(path)?.retain(|below| !is_note(below))?;
    let files = folder.files();
    let parent = |below: &str| below.rsplit_once('/').map_or(String::new(), |(parent, _)| parent.to_owned());
    let parents: std::collections::BTreeSet<String> = files.iter().map(|(below, _)| parent(below)).collect();
    let tables = ["tsv", "csv", "jsonl", "ndjson", "json", "parquet"];
    let of_records = files.iter().all(|(below, _)| extension(below).is_some_and(|e| tables.contains(&e)));
    let format = match options.format {
        Some(format) => format,
        None => {
            let named = files.iter().map(|(below, _)| below.as_str());
            if let Some(part) = parts::part_in(named) {
                let what = format!("folder `{}`", path.display());
                let expected = "the files of one part: give the path of that part";
                return Err(Error::of(ErrorKind::Format, what, expected, format!("`{part}` beside others")));
            }
            for (_, file) in files {
                rows::texts(file, "labelled texts")?;
            }
            match () {
                () if of_records => FileFormat::Tsv,
                () if parents.len() > 1 => FileFormat::FolderPerClass,
                () => FileFormat::FilePerClass,
            }
        }
    };
    match format {
        FileFormat::FolderPerClass => {
            for (label, file) in folder.folder_per_class()? {
                inputs.push(Input::Whole(prepared(file, options)?, label));
            }
        }
        FileFormat::FilePerClass => {
            for (label, file) in folder.file_per_class()? {
                inputs.push(Input::Lines(prepared(file, options)?, label));
            }
        }
        _ => {
            for (below, file) in files {
                records.push((below.clone(), prepared(file.clone(), options)?));
            }
        }
    }
    Ok(())
}

impl Plan {
    /// Finds the files of these paths, and out of their first lines how all are read.
    pub(in crate::data) fn new<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        options: &ReadOptions,
    ) -> Result<Self> {
        let (name, found) = find(paths, options)?;
        let (mut inputs, mut options) = (Vec::new(), options.told());
        let mut classes = Vec::new();
        for one in found {
            match one {
                Found::File(file) => classes.push((file.name(), file)),
                Found::Folder(path) => folder(&path, &options, &mut inputs, &mut classes)?,
            }
        }
        // Several files of a text a line, as `rt-polarity.*`, are a file a class.
        if options.format == Some(FileFormat::FilePerClass) && inputs.is_empty() {
            let label = |name: &str| {
                let name = name.rsplit(['/', '!']).next().unwrap_or(name);
                name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned()
            };
            inputs.extend(classes.drain(..).map(|(name, file)| Input::Lines(file, label(&name))));
        }
        for (_, file) in classes {
            let of_file = alike(&options, &file, Task::Labelled);
            let guess = guess(&file, &of_file, Task::Labelled)?;
            // All are read as the first, as far as it says it.
            let alone = inputs.is_empty() || of_file.format.is_none();
            let read = if alone { settled(&file, &guess, &of_file)? } else { of_file };
            if inputs.is_empty() {
                options = read.clone();
            }
            inputs.push(Input::Records(file, guess, read));
        }
        Ok(Self { name, inputs, options })
    }

    /// All that is in them, one after another; what is wrong in a file comes as an item.
    pub(in crate::data) fn records(self: Arc<Self>) -> Stream<Labelled> {
        let open = move |number: usize| self.inputs.get(number).map(Input::open);
        Box::new((0..).map_while(open).flat_map(|records| -> Stream<Labelled> {
            records.unwrap_or_else(|e| Box::new(std::iter::once(Err(e))))
        }))
    }
}

/// All of them up to the first error, where there must be one.
pub(super) fn all<R>(name: &str, records: impl Iterator<Item = Result<R>>) -> Result<Vec<R>> {
    let records: Vec<R> = records.collect::<Result<_>>()?;
    if records.is_empty() {
        let what = format!("records of `{name}`");
        return Err(Error::of(ErrorKind::Format, what, "at least one", "none"));
    }
    Ok(records)
}

impl LabelledTexts {
    /// Labelled texts of a path: a file of columns between tabs or commas, of JSON Lines, of Parquet or of trees; a folder or a zip with a file a
    /// class (a text a line) or a folder a class (a text a file); several files by a pattern such as `data/*.tsv`; a file in a zip as
    /// `some.zip!file`. [`FileFormat`] lists the formats. Which it is, and which columns are text and label, is found out;
    /// [`Self::open_with`] says it.
    ///
    /// ```
    /// use unpadded::data::LabelledTexts;
    /// # let path = std::env::temp_dir().join(format!("unpadded-open-{}.csv", std::process::id()));
    /// # std::fs::write(&path, "id,review,label\n1,\"Fine, but dull\",blame\n2,Good.,praise\n").unwrap();
    /// let reviews = LabelledTexts::open(&path)?; // id,review,label ↵ 1,"Fine, but dull",blame ↵ …
    /// assert_eq!((&*reviews.texts()[0].text, &*reviews.texts()[0].label), ("Fine, but dull", "blame"));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is nothing, nothing in it, or something that is not as its format says: with the file and the line, and how the format
    /// was guessed.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with([path], &ReadOptions::default())
    }

    /// Labelled texts of these paths together, read as the options say.
    ///
    /// # Errors
    /// As [`Self::open`]; if there is no path, or no column of the name that is given.
    #[track_caller]
    pub fn open_with<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        options: &ReadOptions,
    ) -> Result<Self> {
        let read = || {
            let plan = Arc::new(Plan::new(paths, options)?);
            let texts = all(&plan.name, Arc::clone(&plan).records())?;
            Ok(Self::new(&plan.name, texts).read_by(plan.options.clone()))
        };
        read().at_caller()
    }
}
