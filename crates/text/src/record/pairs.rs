//! Opens pairs of texts (a source and a target) from a path.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use unpadded::data::{FileLine, Fingerprint};
use unpadded::{Error, ErrorKind, Result};

use super::plan::{Opener, Plan};
use crate::dataset::data_set::Record;
use crate::detect::column::{Column, SOURCE, TARGET};
use crate::detect::guess::{Guess, Task, alike, guess};
use crate::detect::options::{FileFormat, ReadOptions};
use crate::detect::{languages, objects};
use crate::format::{dictionary, fields, parallel, table};
use crate::source::paths::{PathContent, find, prepared, two};
use crate::source::records::{OneLine, Records, Stream};
use crate::{Pair, TextFile};

fn wanted(options: &ReadOptions) -> [Column<'_>; 2] {
    [
        Column { what: "source", given: options.source.as_deref(), known: SOURCE },
        Column { what: "target", given: options.target.as_deref(), known: TARGET },
    ]
}

/// The place of the source and of the target in a record of the file.
enum Form {
    Dictionary(bool),
    Fields(objects::FieldChoice),
    /// Lines of `source<TAB>target` without a header; a third column is skipped.
    Lines,
    Cells(table::Table),
}

impl Form {
    fn of(file: &TextFile, guess: &Guess, options: &mut ReadOptions) -> Result<Self> {
        options.format = Some(guess.format);
        let names = |options: &mut ReadOptions, names: &[String]| {
            if let [source, target] = names {
                (options.source, options.target) = (Some(source.clone()), Some(target.clone()));
            }
        };
        match guess.format {
            FileFormat::Dictionary => {
                if !options.stress {
                    options.notes.push("stress, as the 1 of `AH1`, is left out".to_owned());
                }
                Ok(Self::Dictionary(options.stress))
            }
            format @ (FileFormat::JsonLines | FileFormat::Parquet) => {
                let pick = |options: &ReadOptions| objects::picked(file, format, &wanted(options), options);
                let picked = languages::pick(file, options, pick, |picked| Some(picked.names.clone()))?;
                options.notes.clone_from(&picked.notes);
                names(options, &picked.names);
                Ok(Self::Fields(picked))
            }
            format => {
                let others =
                    |given: &Option<String>, usual| given.as_deref().is_some_and(|given| given != usual);
                let given = others(&options.source, "1")
                    || others(&options.target, "2")
                    || options.separator.is_some();
                let pick = |options: &ReadOptions| table::Table::of(file, format, options, &wanted(options));
                let names_of = |table: &table::Table| table.has_header().then(|| table.names().to_vec());
                let table = languages::pick(file, options, pick, names_of);
                // In a file of pairs without a header, only some of the lines may have a third column.
                let plain = !given
                    && table
                        .as_ref()
                        .map_or(format == FileFormat::Tsv, |table| table.has_tabs() && !table.has_header());
                if plain && format == FileFormat::Tsv {
                    options.notes = table.map(|table| table.notes().to_vec()).unwrap_or_default();
                    names(options, &["1".to_owned(), "2".to_owned()]);
                    return Ok(Self::Lines);
                }
                let table = table?;
                table.note(options);
                names(options, table.names());
                Ok(Self::Cells(table))
            }
        }
    }

    fn records(&self, file: &TextFile) -> Result<Stream<Pair>> {
        match self {
            Self::Dictionary(stress) => Ok(placed(file, file.records(OneLine(dictionary::reader(*stress)))?)),
            Self::Fields(picked) => {
                let ([source, target], name) = (objects::two(&picked.names)?, Arc::from(file.name()));
                picked.records(file, move |object| {
                    let pair = Pair::new(fields::text(object, &source)?, fields::text(object, &target)?);
                    Ok(pair.placed(&name, object.line))
                })
            }
            Self::Lines => {
                let advised = |e: Error| {
                    e.noted("if the texts are in other columns, set `source` and `target` (`data.text` and `data.label` in a config) to their numbers")
                };
                Ok(Box::new(placed(file, file.translations()?).map(move |pair| pair.map_err(advised))))
            }
            Self::Cells(table) => Ok(placed(file, table.records(file, |cell| Pair::new(cell(0), cell(1)))?)),
        }
    }
}

/// Returns the pairs, each with the file and the line that it was read from.
fn placed(file: &TextFile, records: Records<Pair>) -> Stream<Pair> {
    let name = Arc::from(file.name());
    Box::new(records.with_lines().map(move |one| one.map(|(pair, line)| pair.placed(&name, line))))
}

/// Pairs two parallel files: line n of the first file is the source, and line n of the second file is the target.
fn parallel(mut paths: [PathBuf; 2], options: &mut ReadOptions, window: bool) -> Result<Opener<Pair>> {
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

/// Detects the format and the columns of a file of pairs. `all` has the options from earlier files; unless this file
/// has another format, `all` becomes the options that are detected in this file.
fn of_file(mut file: TextFile, all: &mut ReadOptions, several: bool) -> Result<Opener<Pair>> {
    let mut options = alike(all, &file, Task::Pairs);
    let guess = guess(&file, &options, Task::Pairs)?;
    let form = Form::of(&file, &guess, &mut options);
    options.encoded_as(&file);
    let form = form.map_err(|e| guess.explain(e))?;
    if all.format.is_none_or(|format| format == guess.format) {
        *all = options;
    }
    // With several files, each file is closed after detection, and opened again for reading, so that few files are open
    // at once.
    if several {
        file.close();
    }
    Ok(Box::new(move || Ok(guess.explained(form.records(&file).map_err(|e| guess.explain(e))?))))
}

impl Record for Pair {
    const PLURAL: &'static str = "pairs";

    fn file_line(&self) -> Option<FileLine> {
        self.place.clone()
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
        let mut options = options.told();
        if let [path] = paths
            && let Some(files) = two(path)
        {
            let input = parallel(files, &mut options, window)?;
            return Ok(Plan::of(path.display().to_string(), options, vec![input]));
        }
        let (name, found) = find(paths)?;
        let several = found.len() > 1;
        let mut open = |one| match one {
            PathContent::File(file) => {
                let file = prepared(file, &options, window)?;
                of_file(file, &mut options, several)
            }
            PathContent::Folder(path) => {
                let what = format!("pairs of `{}`", path.display());
                let expected = "a file, a zip with one file (`some.zip!file` names one of several files), or two files whose lines belong \
                                together, the source first, as `folder/train.{de,en}`";
                Err(Error::of(ErrorKind::Format, what, expected, "several files"))
            }
        };
        let inputs = found.into_iter().map(&mut open).collect::<Result<_>>()?;
        Ok(Plan::of(name, options, inputs))
    }
}
