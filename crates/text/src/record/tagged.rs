//! Opens tagged texts from a path.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use unpadded::Result;
use unpadded::data::{FileLine, Fingerprint};

use super::plan::{Opener, Plan};
use super::projection::{Projection, plan};
use crate::dataset::data_set::{Change, Record, RecordPass};
use crate::dataset::tagged_texts::{self, TextLocation};
use crate::detect::column::{Column, INTENT, TAGS, TOKENS};
use crate::detect::form::FileForm;
use crate::detect::options::ReadOptions;
use crate::detect::tag_spelling;
use crate::format::row::{FileRow, RecordMaker};
use crate::format::{FileFormat, Task};
use crate::source::paths::prepared;
use crate::source::reason::{Reason, wrong_format};
use crate::{TaggedText, Tagging, TextFile};

/// The file names in a folder of parallel files: the words, the tags and the labels of the texts.
const PARALLEL: [&str; 3] = ["seq.in", "seq.out", "label"];

fn folder(path: &Path, options: &mut ReadOptions, window: bool) -> Result<Opener<TaggedText>> {
    options.only_of_tables(FileFormat::Parallel, "parallel files")?;
    (options.format, options.columns) = (Some(FileFormat::Parallel), None);
    let [words, tags, labels] = PARALLEL.map(|name| path.join(name));
    if !(words.exists() || tags.exists()) {
        let what = format!("tagged texts of `{}`", path.display());
        let expected =
            "a file (`some.zip!file` names a file of a zip), or a folder with `seq.in` and `seq.out`";
        return Err(wrong_format(what, expected, "several files, or a folder without these two files"));
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

impl Projection for TaggedText {
    const TASK: Task = Task::Tagged;

    fn wanted(options: &ReadOptions) -> Vec<Column<'_>> {
        vec![
            Column { what: "tokens", given: options.tokens.as_deref(), known: TOKENS },
            Column { what: "tags", given: options.tags.as_deref(), known: TAGS },
        ]
    }

    fn form(file: &TextFile, format: FileFormat, options: &mut ReadOptions) -> Result<FileForm> {
        let mut form = FileForm::of(file, format, options, &Self::wanted(options))?;
        if let FileForm::Fields(picked) = &mut form {
            if let [tokens, tags] = &picked.names[..] {
                (options.tokens, options.tags) = (Some(tokens.clone()), Some(tags.clone()));
            }
            let known = || INTENT.iter().find(|name| picked.has_single(file, name));
            if options.label.is_empty() {
                options.label.extend(known().map(|name| (*name).to_owned()));
            }
            picked.names.extend(options.label.clone());
        }
        form.note(file, options)?;
        Ok(form)
    }

    fn maker(file: &TextFile, options: &ReadOptions) -> RecordMaker<Self> {
        let (name, mut number, labelled) = (Arc::from(file.name()), 0, !options.label.is_empty());
        let [tokens, tags] = [&options.tokens, &options.tags].map(|name| name.clone().unwrap_or_default());
        Box::new(move |mut row, line| {
            number += 1;
            let (at, labelled) = match &row {
                FileRow::Sentence(sentence) => {
                    let first = sentence.lines.first().copied().unwrap_or_default();
                    let at = if sentence.has_gaps { TextLocation::Line } else { TextLocation::LineOfFirst };
                    (at(first), false)
                }
                FileRow::Cells(_) | FileRow::Object(..) if line > 0 => (TextLocation::Line(line), labelled),
                FileRow::Cells(_) | FileRow::Object(..) => (TextLocation::Record(number), labelled),
            };
            let label = if labelled { Some(row.text(2)) } else { None };
            let [words, own] = row.words()?;
            let mut text = Self::new(words, own);
            text.label = label.transpose()?;
            if text.words.len() != text.tags.len() {
                let expected =
                    format!("{} tags in `{tags}`, one for each word in `{tokens}`", text.words.len());
                return Err(Reason::of(expected, text.tags.len().to_string()));
            }
            Ok(text.placed(&name, at))
        })
    }
}

impl Record for TaggedText {
    const PLURAL: &'static str = "texts";

    fn file_line(&self) -> Option<FileLine> {
        match self.location.0.as_ref()? {
            (file, TextLocation::LineOfFirst(line) | TextLocation::Line(line)) => {
                Some(FileLine::new(Arc::clone(file), *line))
            }
            (_, TextLocation::Record(_)) => None,
        }
    }

    fn bytes(&self) -> usize {
        let words = |words_of: &Vec<String>| {
            words_of.iter().map(|word| size_of::<String>() + word.len()).sum::<usize>()
        };
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
        plan(paths, options.as_set(), window, folder)
    }

    /// Decides how tags are rewritten: repaired if the option `repair_tags` is set, and translated to the scheme of the
    /// training texts if these texts have another scheme.
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
            let note = format!("tags rewritten to keep {tagging}, as conlleval reads them: {rewritten}");
            options.notes.push(note);
            options.tagging = Some(Box::new(tagging.clone()));
            repairs = Some(tagging);
        }
        let repaired = |tags: &[String]| repairs.as_ref().and_then(|tagging| tagging.repaired(tags));
        let mut translation = None;
        if let Some(known) = options.tagging.as_deref() {
            let sentences = |visit: &mut dyn FnMut(&[String])| {
                raw(&mut |tags| visit(repaired(tags).as_deref().unwrap_or(tags)))
            };
            let location = |at: usize, word: usize| {
                let (mut number, mut location) = (0, String::new());
                all(&mut |text| {
                    number += 1;
                    if number == at + 1 {
                        location = text.location_of(word).unwrap_or_else(|| format!("tags of text {number}"));
                    }
                })?;
                Ok(location)
            };
            if let Some(own) = Tagging::translated(known, options.scheme.is_some(), &sentences, &location)? {
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
