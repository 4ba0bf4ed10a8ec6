//! Tagged texts of a path.

use std::path::Path;

use super::columns::{INTENT, TAGS, TOKENS, Wanted};
use super::fields;
use super::guess::{Task, alike, guess};
use super::labelled::all;
use super::objects;
use super::options::{FileFormat, ReadOptions};
use super::paths::{Found, find, prepared};
use crate::data::lines::Reason;
use crate::data::{ColumnSpec, TaggedText, TaggedTexts, TextFile};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// The files of a folder of parallel files.
const PARALLEL: [&str; 3] = ["seq.in", "seq.out", "label"];

fn parallel(path: &Path, options: &ReadOptions) -> Result<TaggedTexts> {
    let [words, tags, labels] = PARALLEL.map(|name| path.join(name));
    let open = |path: &Path| prepared(TextFile::open(path)?, options);
    let labels = if labels.exists() { Some(open(&labels)?) } else { None };
    TaggedTexts::of_parallel(&open(&words)?, &open(&tags)?, labels.as_ref())
}

/// The number of a column, counted from 0.
fn number(file: &TextFile, what: &str, given: &str, columns: usize) -> Result<usize> {
    let found = given.parse().ok().filter(|number| (1..=columns).contains(number));
    found.map(|number: usize| number - 1).ok_or_else(|| {
        let what = format!("column of the {what} in file `{}`", file.name());
        Error::of(ErrorKind::Format, what, format!("a number from 1 to {columns}"), format!("`{given}`"))
    })
}

/// Columns of which not the first and the last are meant.
fn columns(file: &TextFile, options: &ReadOptions) -> Result<Vec<TaggedText>> {
    let first = file.lines()?.map_while(Result::ok).find(|line| !line.trim().is_empty());
    let columns = first.map_or(0, |line| line.split_whitespace().count());
    let at = |what, given: &Option<String>, else_: usize| match given {
        Some(given) => number(file, what, given, columns),
        None => Ok(else_),
    };
    let word = at("words", &options.tokens, 0)?;
    let tag = at("tags", &options.tags, columns.saturating_sub(1))?;
    let found = file.columns(ColumnSpec { columns, ..ColumnSpec::default() })?;
    let text = |sentence: Result<Vec<Vec<String>>>| {
        let sentence = sentence?;
        let column = |at: usize| sentence.get(at).cloned().unwrap_or_default();
        Ok(TaggedText { words: column(word), tags: column(tag), label: None })
    };
    found.map(text).collect()
}

fn of_objects(file: &TextFile, format: FileFormat, options: &mut ReadOptions) -> Result<Vec<TaggedText>> {
    let wanted = [
        Wanted { what: "tokens", given: options.tokens.as_deref(), known: TOKENS },
        Wanted { what: "tags", given: options.tags.as_deref(), known: TAGS },
    ];
    let [tokens, tags] = objects::two(objects::picked(file, format, &wanted)?)?;
    if options.label.is_none() {
        options.label =
            INTENT.iter().find(|name| objects::has_single(file, format, name)).map(|name| (*name).to_owned());
    }
    (options.tokens, options.tags) = (Some(tokens.clone()), Some(tags.clone()));
    let label = options.label.clone();
    let names: Vec<String> = [&tokens, &tags].into_iter().chain(&label).cloned().collect();
    let text = move |object: &fields::Object| {
        let text = TaggedText {
            words: fields::texts(object, &tokens)?,
            tags: fields::tags(object, &tags)?,
            label: label.as_deref().map(|label| fields::text(object, label)).transpose()?,
        };
        if text.words.len() != text.tags.len() {
            let expected = format!("{} tags in `{tags}`, one for each word in `{tokens}`", text.words.len());
            return Err(Reason { expected, got: text.tags.len().to_string() });
        }
        Ok(text)
    };
    objects::records(file, format, &names, text)?.collect()
}

fn of_file(file: &TextFile, all: &mut ReadOptions) -> Result<Vec<TaggedText>> {
    let options = &mut alike(all, file, Task::Tagged);
    let guess = guess(file, options, Task::Tagged)?;
    options.format = Some(guess.format);
    let found = match guess.format {
        format @ (FileFormat::JsonLines | FileFormat::Parquet) => of_objects(file, format, options),
        _ if options.tokens.is_some() || options.tags.is_some() => columns(file, options),
        _ => TaggedTexts::of_columns(file).map(|found| found.texts().to_vec()),
    };
    if all.format.is_none_or(|format| format == guess.format) {
        all.clone_from(options);
    }
    found.map_err(|e| guess.explain(e))
}

impl TaggedTexts {
    /// Tagged texts of a path: a file of columns ([`Self::of_columns`]); JSON Lines or Parquet with a list of the words and one of the tags; or a
    /// folder of parallel files ([`Self::of_parallel`]): `seq.in` with the words of a text a line, `seq.out` with their tags, and
    /// perhaps `label` with what each text is. Several files by a pattern such as `data/*.conll`; a file in a zip as `some.zip!file`.
    ///
    /// # Errors
    /// If there is nothing, nothing in it, or something that is not as its format says: with the file and the line.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with([path], &ReadOptions::default())
    }

    /// Tagged texts of these paths together, read as the options say: of columns by number from 1 on, of JSON and Parquet by name.
    ///
    /// # Errors
    /// As [`Self::open`]; if there is no path, or no column or field of the name that is given.
    #[track_caller]
    pub fn open_with<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        options: &ReadOptions,
    ) -> Result<Self> {
        let read = || {
            let (name, found) = find(paths)?;
            let (mut texts, mut options) = (Vec::new(), options.told());
            for one in found {
                match one {
                    Found::File(file) => texts.extend(of_file(&file, &mut options)?),
                    Found::Folder(path) => {
                        texts.extend(parallel(&path, &options)?.texts().iter().cloned());
                        options.format = Some(FileFormat::Parallel);
                    }
                }
            }
            Ok(Self::new(&name, all(&name, texts.into_iter().map(Ok))?).read_by(options))
        };
        read().at_caller()
    }
}
