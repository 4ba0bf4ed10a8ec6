//! Opens pairs of texts (a source and a target) from a path.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use unpadded::Result;
use unpadded::data::{FileLine, Fingerprint};

use super::plan::{Opener, Plan};
use super::projection::{Projection, plan};
use crate::dataset::data_set::Record;
use crate::detect::column::{Column, SOURCE, TARGET};
use crate::detect::form::FileForm;
use crate::detect::languages;
use crate::detect::options::ReadOptions;
use crate::format::line_format::LineFormat;
use crate::format::row::RecordMaker;
use crate::format::{FileFormat, Task, parallel};
use crate::source::path_text::text_of_path;
use crate::source::paths::{prepared, two};
use crate::source::reason::wrong_format;
use crate::source::records::translation;
use crate::{Pair, TextFile};

/// Lines of `source<TAB>target` without a header; a third column is skipped.
const LINES: LineFormat = LineFormat {
    records: |_| {
        Box::new(|line| Ok(translation(line)?.map(|Pair { source, target, .. }| vec![[source, target]])))
    },
    advice: Some(
        "if the texts are in other columns, set `source` and `target` (`data.text` and `data.label` in a config) to their numbers",
    ),
    ..LineFormat::DEFAULT
};

impl Projection for Pair {
    const TASK: Task = Task::Pairs;

    fn wanted(options: &ReadOptions) -> Vec<Column<'_>> {
        vec![
            Column { what: "source", given: options.source.as_deref(), known: SOURCE },
            Column { what: "target", given: options.target.as_deref(), known: TARGET },
        ]
    }

    fn form(file: &TextFile, format: FileFormat, options: &mut ReadOptions) -> Result<FileForm> {
        let form = languages::pick(file, options, &|options| {
            FileForm::of(file, format, options, &Self::wanted(options))
        });
        let others = |given: &Option<String>, usual| given.as_deref().is_some_and(|given| given != usual);
        let given =
            others(&options.source, "1") || others(&options.target, "2") || options.separator.is_some();
        // In a file of pairs without a header, only some of the lines may have a third column.
        let plain = match &form {
            Ok(FileForm::Cells(table)) => table.has_tabs() && !table.has_header(),
            Ok(FileForm::Fields(_) | FileForm::Lines(..) | FileForm::Words(_)) => false,
            Err(_) => true,
        };
        if format == FileFormat::Tsv && plain && !given {
            let notes = |form: FileForm| form.choice().1.iter().cloned().chain(form.unread()).collect();
            options.notes = form.map(notes).unwrap_or_default();
            (options.source, options.target) = (Some("1".to_owned()), Some("2".to_owned()));
            return Ok(FileForm::Lines(&LINES, options.lines));
        }
        let form = form?;
        form.note(file, options)?;
        if let ([source, target], ..) = form.choice() {
            (options.source, options.target) = (Some(source.clone()), Some(target.clone()));
        }
        Ok(form)
    }

    fn maker(file: &TextFile, _: &ReadOptions) -> RecordMaker<Self> {
        let name = Arc::from(file.name());
        Box::new(move |mut row, line| Ok(Self::new(row.text(0)?, row.text(1)?).placed(&name, line)))
    }
}

/// Pairs two parallel files: line n of the first file is the source, and line n of the second file is the target.
fn parallel(mut paths: [PathBuf; 2], options: &mut ReadOptions, window: bool) -> Result<Opener<Pair>> {
    options.only_of_tables(FileFormat::Parallel, "parallel files")?;
    languages::order(&mut paths, options)?;
    let open = |path: &Path| prepared(TextFile::open(path)?, options, window);
    let [source, target] = [open(&paths[0])?, open(&paths[1])?];
    options.format = Some(FileFormat::Parallel);
    let note =
        format!("source in the lines of `{}`, target in the lines of `{}`", source.name(), target.name());
    options.notes.push(note);
    options.encoded_as(&source);
    options.notes.extend(target.encoding_note());
    Ok(Box::new(move || parallel::pairs(&source, &target)))
}

/// Refuses a folder, since the texts of several files are no pairs.
fn folder(path: &Path, _: &mut ReadOptions, _: bool) -> Result<Opener<Pair>> {
    let what = format!("pairs of `{}`", path.display());
    let expected = "a file, a zip with one file (`some.zip!file` names one of several files), or two files whose lines belong \
                    together, the source first, as `folder/train.{de,en}`";
    Err(wrong_format(what, expected, "several files"))
}

impl Record for Pair {
    const PLURAL: &'static str = "pairs";

    fn file_line(&self) -> Option<FileLine> {
        self.location.0.clone()
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.source.len() + self.target.len()
    }

    fn held_out_by(&self, fingerprint: Fingerprint) -> Fingerprint {
        fingerprint.text(&self.source)
    }

    fn fingerprint(&self, fingerprint: Fingerprint) -> Fingerprint {
        fingerprint.text(&self.source).text(&self.target)
    }

    fn plan(paths: &[PathBuf], options: &ReadOptions, window: bool) -> Result<Plan<Self>> {
        let mut options = options.as_set();
        if let [path] = paths
            && let Some(files) = two(path)
        {
            let input = parallel(files, &mut options, window)?;
            return Ok(Plan::of(text_of_path(path), options, vec![input]));
        }
        plan(paths, options, window, folder)
    }
}
