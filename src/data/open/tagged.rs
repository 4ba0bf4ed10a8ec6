//! Tagged texts of a path.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fields;
use super::guess::{Task, alike, guess};
use super::objects;
use super::options::{FileFormat, ReadOptions};
use super::paths::{Found, find, prepared};
use super::wanted::{INTENT, TAGS, TOKENS, Wanted};
use crate::data::conll::Columns;
use crate::data::data_set::Record;
use crate::data::lines::Reason;
use crate::data::tagged_texts::At;
use crate::data::{Fingerprint, TaggedText, TaggedTexts, TextFile};
use crate::error::{Error, ErrorKind, Result};

/// The files of a folder of parallel files.
const PARALLEL: [&str; 3] = ["seq.in", "seq.out", "label"];

fn parallel(path: &Path, options: &mut ReadOptions) -> Result<TaggedTexts> {
    options.format = Some(FileFormat::Parallel);
    let [words, tags, labels] = PARALLEL.map(|name| path.join(name));
    if !(words.exists() || tags.exists()) {
        let what = format!("tagged texts of `{}`", path.display());
        let expected = "a file (of a zip with several `some.zip!file` names one), or a folder with `seq.in` and `seq.out`";
        return Err(Error::of(
            ErrorKind::Format,
            what,
            expected,
            "several files, or a folder without these two",
        ));
    }
    let mut open = |path: &Path| -> Result<TextFile> {
        let file = prepared(TextFile::open(path)?, options)?;
        options.encoded_as(&file);
        Ok(file)
    };
    let labels = if labels.exists() { Some(open(&labels)?) } else { None };
    TaggedTexts::of_parallel(&open(&words)?, &open(&tags)?, labels.as_ref())
}

fn of_objects(file: &TextFile, format: FileFormat, options: &mut ReadOptions) -> Result<TaggedTexts> {
    let wanted = [
        Wanted { what: "tokens", given: options.tokens.as_deref(), known: TOKENS },
        Wanted { what: "tags", given: options.tags.as_deref(), known: TAGS },
    ];
    let mut picked = objects::picked(file, format, &wanted, options)?;
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
        let mut text = TaggedText::new(fields::texts(object, &tokens)?, fields::tags(object, &tags)?);
        text.label = label.as_deref().map(|label| fields::text(object, label)).transpose()?;
        if text.words.len() != text.tags.len() {
            let expected = format!("{} tags in `{tags}`, one for each word in `{tokens}`", text.words.len());
            return Err(Reason { expected, got: text.tags.len().to_string() });
        }
        Ok((text, object.line))
    };
    let name = Arc::from(file.name());
    let place = |(text, number): (Result<(TaggedText, u64)>, u64)| {
        let at = |line| if line > 0 { At::Line(line) } else { At::Record(number) };
        text.map(|(text, line)| text.placed(&name, at(line)))
    };
    let texts = picked.records(file, text)?.zip(1..).map(place);
    Ok(TaggedTexts::new(&file.name(), texts.collect::<Result<Vec<_>>>()?))
}

fn of_file(file: &TextFile, all: &mut ReadOptions) -> Result<TaggedTexts> {
    let options = &mut alike(all, file, Task::Tagged);
    let guess = guess(file, options, Task::Tagged)?;
    options.format = Some(guess.format);
    let mut read = || match guess.format {
        format @ (FileFormat::JsonLines | FileFormat::Parquet) => of_objects(file, format, options),
        _ => {
            let [words, tags] = [&options.tokens, &options.tags].map(Option::as_deref);
            let columns = Columns::of(file, words, tags, options.header, options.columns.as_deref())?;
            let texts = TaggedTexts::of_these(&columns, file)?;
            options.columns = Some(Box::new(columns));
            Ok(texts)
        }
    };
    let found = read();
    options.encoded_as(file);
    if all.format.is_none_or(|format| format == guess.format) {
        all.clone_from(options);
    }
    found.map_err(|e| guess.explain(e))
}

impl Record for TaggedText {
    const PLURAL: &'static str = "texts";

    fn held_out_by(&self, fingerprint: Fingerprint) -> Fingerprint {
        self.words.iter().fold(fingerprint, |f, word| f.text(word))
    }

    fn read(paths: &[PathBuf], options: &ReadOptions) -> Result<TaggedTexts> {
        let (name, found) = find(paths)?;
        let (mut texts, mut options) = (Vec::new(), options.told());
        for one in found {
            texts.extend(match one {
                Found::File(file) => of_file(&prepared(file, &options)?, &mut options)?.records,
                Found::Folder(path) => parallel(&path, &mut options)?.records,
            });
        }
        let mut read = TaggedTexts::new(&name, texts);
        if options.repair_tags {
            let (tagging, repaired) = read.repair(options.tagging.take().map(|known| *known), options.scheme);
            let scheme = tagging.name();
            options
                .notes
                .push(format!("tags rewritten to keep {scheme}, as conlleval reads them: {repaired}"));
            options.tagging = Some(Box::new(tagging));
        }
        if let Some(known) = options.tagging.as_deref()
            && let Some(own) = read.translate(known, options.scheme.is_some())?
        {
            options.notes.push(format!("tags of {own} translated to {known}, which the training has"));
        }
        Ok(read.read_by(options))
    }
}
