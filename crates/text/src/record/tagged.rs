//! Opens tagged texts from a path.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use unpadded::data::{FileLine, Fingerprint};
use unpadded::{Error, ErrorKind, Result};

use super::plan::{Opener, Plan};
use crate::dataset::data_set::{Change, Record, RecordPass};
use crate::dataset::tagged_texts;
use crate::dataset::tagged_texts::TextLocation;
use crate::detect::column::{Column, INTENT, TAGS, TOKENS};
use crate::detect::guess::{Task, alike, guess};
use crate::detect::options::{FileFormat, ReadOptions};
use crate::detect::{objects, tag_spelling};
use crate::format::conll::Columns;
use crate::format::fields;
use crate::source::lines::Reason;
use crate::source::paths::{PathContent, find, prepared};
use crate::source::records::Stream;
use crate::{TaggedText, Tagging, TextFile};

/// The file names in a folder of parallel files: the words, the tags and the labels of the texts.
const PARALLEL: [&str; 3] = ["seq.in", "seq.out", "label"];

/// Opens a folder of parallel files as tagged texts.
fn folder(path: &Path, options: &mut ReadOptions, window: bool) -> Result<Opener<TaggedText>> {
    (options.format, options.columns) = (Some(FileFormat::Parallel), None);
    let [words, tags, labels] = PARALLEL.map(|name| path.join(name));
    if !(words.exists() || tags.exists()) {
        let what = format!("tagged texts of `{}`", path.display());
        let expected =
            "a file (`some.zip!file` names a file of a zip), or a folder with `seq.in` and `seq.out`";
        let got = "several files, or a folder without these two files";
        return Err(Error::of(ErrorKind::Format, what, expected, got));
    }
    let mut open = |path: &Path| -> Result<TextFile> {
        let file = prepared(TextFile::open(path)?, options, window)?;
        options.encoded_as(&file);
        Ok(file)
    };
    let labels = if labels.exists() { Some(open(&labels)?) } else { None };
    let (words, tags) = (open(&words)?, open(&tags)?);
    Ok(Box::new(move || tagged_texts::of_lines(&words, &tags, labels.as_ref())))
}

/// Detects the format and the columns of a file of tagged texts. `all` has the options that are set or were detected in
/// earlier files; this function adds the options that it detects.
fn of_file(mut file: TextFile, all: &mut ReadOptions, several: bool) -> Result<Opener<TaggedText>> {
    let options = &mut alike(all, &file, Task::Tagged);
    let guess = guess(&file, options, Task::Tagged)?;
    options.format = Some(guess.format);
    let found: Result<Records> = match guess.format {
        format @ (FileFormat::JsonLines | FileFormat::Parquet) => Objects::of(&file, format, options)
            .map(|objects| Box::new(move |file: &TextFile| objects.records(file)) as _),
        _ => {
            if let Some(separator) = options.separator {
                let what = format!("separator (`data.separator` in a config) of file `{}`", file.name());
                let expected = "none, since tabs or spaces separate the columns of words and tags";
                return Err(Error::of(ErrorKind::Format, what, expected, format!("{separator:?}")));
            }
            let [words, tags] = [&options.tokens, &options.tags].map(Option::as_deref);
            let columns = Columns::of(&file, words, tags, options.header, options.columns.as_deref());
            columns.map(|columns| {
                options.columns = Some(Box::new(columns.clone()));
                Box::new(move |file: &TextFile| tagged_texts::of_these(&columns, file)) as _
            })
        }
    };
    options.encoded_as(&file);
    if all.format.is_none_or(|format| format == guess.format) {
        all.clone_from(options);
    }
    let found = found.map_err(|e| guess.explain(e))?;
    // With several files, each file is closed after detection, and opened again for reading, so that few files are open
    // at once.
    if several {
        file.close();
    }
    Ok(Box::new(move || Ok(guess.explained(found(&file).map_err(|e| guess.explain(e))?))))
}

/// A function that opens the records of a file whose format and columns are decided.
type Records = Box<dyn Fn(&TextFile) -> Result<Stream<TaggedText>> + Send + Sync>;

/// The fields of a JSON object or Parquet row that have the words, the tags and the label.
#[derive(Clone)]
struct Objects {
    picked: objects::FieldChoice,
    tokens: String,
    tags: String,
    label: Option<String>,
}

impl Objects {
    fn of(file: &TextFile, format: FileFormat, options: &mut ReadOptions) -> Result<Self> {
        let wanted = [
            Column { what: "tokens", given: options.tokens.as_deref(), known: TOKENS },
            Column { what: "tags", given: options.tags.as_deref(), known: TAGS },
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
        Ok(Self { picked, tokens, tags, label })
    }

    fn records(&self, file: &TextFile) -> Result<Stream<TaggedText>> {
        let Self { picked, tokens, tags, label } = self.clone();
        let name = Arc::from(file.name());
        let text = move |object: &fields::Object| {
            let mut text = TaggedText::new(fields::texts(object, &tokens)?, fields::tags(object, &tags)?);
            text.label = label.as_deref().map(|label| fields::text(object, label)).transpose()?;
            if text.words.len() != text.tags.len() {
                let expected =
                    format!("{} tags in `{tags}`, one for each word in `{tokens}`", text.words.len());
                return Err(Reason { expected, got: text.tags.len().to_string() });
            }
            Ok((text, object.line))
        };
        let place = move |(text, number): (Result<(TaggedText, u64)>, u64)| {
            let at = |line| if line > 0 { TextLocation::Line(line) } else { TextLocation::Record(number) };
            text.map(|(text, line)| text.placed(&name, at(line)))
        };
        Ok(Box::new(picked.records(file, text)?.zip(1..).map(place)))
    }
}

impl Record for TaggedText {
    const PLURAL: &'static str = "texts";

    fn file_line(&self) -> Option<FileLine> {
        self.line()
    }

    fn bytes(&self) -> usize {
        let words = |of: &Vec<String>| of.iter().map(|word| size_of::<String>() + word.len()).sum::<usize>();
        let label = self.label.as_ref().map_or(0, String::len);
        size_of::<Self>() + words(&self.words) + words(&self.tags) + label
    }

    fn held_out_by(&self, fingerprint: Fingerprint) -> Fingerprint {
        self.words.iter().fold(fingerprint, |f, word| f.text(word))
    }

    fn fingerprint(&self, fingerprint: Fingerprint) -> Fingerprint {
        let label = self.label.as_deref().unwrap_or_default();
        self.words
            .iter()
            .zip(&self.tags)
            .fold(fingerprint.text(label), |f, (word, tag)| f.text(word).text(tag))
    }

    fn plan(paths: &[PathBuf], options: &ReadOptions, window: bool) -> Result<Plan<Self>> {
        let (name, found) = find(paths)?;
        let (several, mut options) = (found.len() > 1, options.told());
        let mut open = |one| match one {
            PathContent::Folder(path) => folder(&path, &mut options, window),
            PathContent::File(file) => {
                let file = prepared(file, &options, window)?;
                of_file(file, &mut options, several)
            }
        };
        let inputs = found.into_iter().map(&mut open).collect::<Result<_>>()?;
        Ok(Plan::of(name, options, inputs))
    }

    /// Decides whether and how tags are rewritten. If the option `repair_tags` is set, tags that break the scheme are
    /// repaired. If the training texts have another scheme than these texts, the tags are translated to the scheme of
    /// the training texts.
    fn settled(all: RecordPass<'_, Self>, options: &mut ReadOptions) -> Result<Option<Change<Self>>> {
        let mut repairs = None;
        let raw = |visit: &mut dyn FnMut(&[String])| all(&mut |text| visit(&text.tags));
        if options.repair_tags {
            let tagging = match options.tagging.take() {
                Some(known) => *known,
                None => tag_spelling::TagSurvey::of(&raw, options.scheme)?.tagging,
            };
            let mut rewritten = 0;
            raw(&mut |tags| {
                let repaired = tagging.repaired(tags).unwrap_or_default();
                rewritten += repaired.iter().zip(tags).filter(|(tag, before)| tag != before).count();
            })?;
            let name = tagging.name();
            options
                .notes
                .push(format!("tags rewritten to keep {name}, as conlleval reads them: {rewritten}"));
            options.tagging = Some(Box::new(tagging.clone()));
            repairs = Some(tagging);
        }
        let repaired = |tags: &[String]| repairs.as_ref().and_then(|tagging| tagging.repaired(tags));
        let mut translation = None;
        if let Some(known) = options.tagging.as_deref() {
            let sentences = |visit: &mut dyn FnMut(&[String])| {
                raw(&mut |tags| visit(repaired(tags).as_deref().unwrap_or(tags)))
            };
            let place = |at: usize, word: usize| {
                let (mut number, mut place) = (0, String::new());
                all(&mut |text| {
                    number += 1;
                    if number == at + 1 {
                        place = text.place_of(word).unwrap_or_else(|| format!("tags of text {number}"));
                    }
                })?;
                Ok(place)
            };
            if let Some(own) = Tagging::translated(known, options.scheme.is_some(), &sentences, &place)? {
                options.notes.push(format!("tags of {own} translated to {known}, which the training has"));
                translation = Some((own, known.clone()));
            }
        }
        if repairs.is_none() && translation.is_none() {
            return Ok(None);
        }
        Ok(Some(Box::new(move |mut text: Self| {
            let repaired = repairs.as_ref().and_then(|tagging| tagging.repaired(&text.tags));
            text.tags = repaired.unwrap_or(text.tags);
            let translated = translation.as_ref().and_then(|(own, known)| known.written(own, &text.tags));
            text.tags = translated.unwrap_or(text.tags);
            text
        })))
    }
}
