//! Tagged texts of a path.

use std::path::Path;

use super::columns::{INTENT, TAGS, TOKENS, Wanted};
use super::fields;
use super::guess::{Task, alike, guess};
use super::objects;
use super::options::{FileFormat, ReadOptions};
use super::paths::{Found, find, prepared};
use crate::data::conll::Columns;
use crate::data::lines::Reason;
use crate::data::memory::Whole;
use crate::data::{TaggedText, TaggedTexts, TextFile};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// The files of a folder of parallel files.
const PARALLEL: [&str; 3] = ["seq.in", "seq.out", "label"];

fn parallel(path: &Path, options: &ReadOptions) -> Result<TaggedTexts> {
    let [words, tags, labels] = PARALLEL.map(|name| path.join(name));
    let open = |path: &Path| prepared(TextFile::open(path)?, options);
    let labels = if labels.exists() { Some(open(&labels)?) } else { None };
    TaggedTexts::of_parallel(&open(&words)?, &open(&tags)?, labels.as_ref())
}

fn of_objects(file: &TextFile, format: FileFormat, options: &mut ReadOptions) -> Result<Vec<TaggedText>> {
    let wanted = [
        Wanted { what: "tokens", given: options.tokens.as_deref(), known: TOKENS },
        Wanted { what: "tags", given: options.tags.as_deref(), known: TAGS },
    ];
    let mut picked = objects::picked(file, format, &wanted, options.header)?;
    let [tokens, tags] = objects::two(&picked.names)?;
    options.notes.clone_from(&picked.notes);
    if options.label.is_none() {
        options.label =
            INTENT.iter().find(|name| picked.has_single(file, name)).map(|name| (*name).to_owned());
    }
    (options.tokens, options.tags) = (Some(tokens.clone()), Some(tags.clone()));
    let label = options.label.clone();
    picked.names.extend(label.clone());
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
    picked.records(file, text)?.collect()
}

fn of_file(file: &TextFile, all: &mut ReadOptions) -> Result<TaggedTexts> {
    let options = &mut alike(all, file, Task::Tagged);
    let guess = guess(file, options, Task::Tagged)?;
    options.format = Some(guess.format);
    let mut read = || match guess.format {
        format @ (FileFormat::JsonLines | FileFormat::Parquet) => {
            of_objects(file, format, options).map(|texts| TaggedTexts::of_records(file, texts))
        }
        _ => {
            let [words, tags] = [&options.tokens, &options.tags].map(Option::as_deref);
            let columns = Columns::of(file, words, tags, options.header, options.columns.as_deref())?;
            let texts = TaggedTexts::of_these(&columns, file)?;
            options.columns = Some(Box::new(columns));
            Ok(texts)
        }
    };
    let found = read();
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

    /// Tagged texts of these paths together, read as the options say: of columns by number from 1 on, of CoNLL-U also by
    /// name, of JSON and Parquet by name.
    ///
    /// # Errors
    /// As [`Self::open`]; if there is no path, or no column or field of the name that is given.
    #[track_caller]
    pub fn open_with<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        options: &ReadOptions,
    ) -> Result<Self> {
        let read = || {
            let _whole = Whole::begin();
            let (name, found) = find(paths)?;
            let (mut read, mut options) = (None, options.told());
            for one in found {
                let texts = match one {
                    Found::File(file) => of_file(&prepared(file, &options)?, &mut options)?,
                    Found::Folder(path) => {
                        options.format = Some(FileFormat::Parallel);
                        parallel(&path, &options)?
                    }
                };
                read = Some(match read.take() {
                    None => texts,
                    Some(before) => TaggedTexts::and(before, texts),
                });
            }
            let mut read = read.unwrap_or_else(|| TaggedTexts::new(&name, []));
            if read.texts().is_empty() {
                let what = format!("texts of `{name}`");
                return Err(Error::of(ErrorKind::Format, what, "at least one", "none"));
            }
            if options.repair_tags {
                let known = options.tagging.take().map(|known| *known);
                options.tagging = Some(Box::new(read.repair(known, options.scheme)));
            }
            Ok(read.read_by(&name, options))
        };
        read().at_caller()
    }
}
