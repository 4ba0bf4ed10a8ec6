//! Pairs of texts of a path.

use std::path::{Path, PathBuf};

use super::guess::{Guess, Task, alike, guess};
use super::options::{FileFormat, ReadOptions};
use super::paths::{Found, find, prepared, two};
use super::wanted::{SOURCE, TARGET, Wanted};
use super::{dictionary, fields, languages, objects, table};
use crate::data::data_set::Record;
use crate::data::records::{OneLine, Records, Stream};
use crate::data::{Fingerprint, Pair, Pairs, TextFile};
use crate::error::{Error, ErrorKind, Result};

fn wanted(options: &ReadOptions) -> [Wanted<'_>; 2] {
    [
        Wanted { what: "source", given: options.source.as_deref(), known: SOURCE },
        Wanted { what: "target", given: options.target.as_deref(), known: TARGET },
    ]
}

fn records(file: &TextFile, guess: &Guess, options: &mut ReadOptions) -> Result<Stream<Pair>> {
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
            Ok(Box::new(file.records(OneLine(dictionary::reader(options.stress)))?))
        }
        format @ (FileFormat::JsonLines | FileFormat::Parquet) => {
            let pick = |options: &ReadOptions| objects::picked(file, format, &wanted(options), options);
            let picked = languages::pick(file, options, pick, |picked| Some(picked.names.clone()))?;
            options.notes.clone_from(&picked.notes);
            names(options, &picked.names);
            let [source, target] = objects::two(&picked.names)?;
            picked.records(file, move |object| {
                Ok(Pair { source: fields::text(object, &source)?, target: fields::text(object, &target)? })
            })
        }
        format => {
            let others = |given: &Option<String>, usual| given.as_deref().is_some_and(|given| given != usual);
            let given =
                others(&options.source, "1") || others(&options.target, "2") || options.separator.is_some();
            let pick = |options: &ReadOptions| table::Table::of(file, format, options, &wanted(options));
            let names_of = |table: &table::Table| table.has_header().then(|| table.names().to_vec());
            let table = languages::pick(file, options, pick, names_of);
            // Without a header a third column may be in some lines and not in others.
            let plain = !given
                && table
                    .as_ref()
                    .map_or(format == FileFormat::Tsv, |table| table.has_tabs() && !table.has_header());
            if plain && format == FileFormat::Tsv {
                options.notes = table.map(|table| table.notes().to_vec()).unwrap_or_default();
                names(options, &["1".to_owned(), "2".to_owned()]);
                let advised = |e: Error| {
                    e.noted("of other columns, `source` and `target` (`data.text` and `data.label` in a config) give the numbers")
                };
                return Ok(Box::new(file.translations()?.map(move |pair| pair.map_err(advised))));
            }
            let table = table?;
            table.note(options);
            names(options, table.names());
            Ok(Box::new(table.records(file, |cell| Pair { source: cell(0), target: cell(1) })?))
        }
    }
}

/// The lines of two files, each with the one in its place.
struct Parallel {
    names: [String; 2],
    lines: [Records<String>; 2],
    number: u64,
    ended: bool,
}

impl Parallel {
    fn of(mut paths: [PathBuf; 2], options: &mut ReadOptions) -> Result<Self> {
        languages::order(&mut paths, options);
        let open = |path: &Path| prepared(TextFile::open(path)?, options);
        let [source, target] = [open(&paths[0])?, open(&paths[1])?];
        options.format = Some(FileFormat::Parallel);
        options.notes.push(format!(
            "source in the lines of `{}`, target in those of `{}`",
            source.name(),
            target.name()
        ));
        options.encoded_as(&source);
        options.notes.extend(target.encoding_note());
        let (names, lines) = ([source.name(), target.name()], [source.lines()?, target.lines()?]);
        Ok(Self { names, lines, number: 0, ended: false })
    }

    /// The next pair that is not blank on both sides.
    fn read(&mut self) -> Result<Option<Pair>> {
        let [source_name, target_name] = &self.names;
        loop {
            self.number += 1;
            let [source, target] = &mut self.lines;
            let wrong = |what: String, expected: String, got: &str| {
                Err(Error::of(ErrorKind::Format, what, expected, got))
            };
            let blank = |name: &String, other: &String| {
                let expected = format!("a text, as line {} of `{other}` has one", self.number);
                wrong(format!("{name}:{}", self.number), expected, "a blank line")
            };
            match (source.next().transpose()?, target.next().transpose()?) {
                (None, None) => return Ok(None),
                (Some(_), None) | (None, Some(_)) => {
                    let expected = "as many lines in both";
                    let got = format!("{} in one of them, and more in the other", self.number - 1);
                    return wrong(
                        format!("lines of `{source_name}` and `{target_name}`"),
                        expected.into(),
                        &got,
                    );
                }
                (Some(source), Some(target)) => match (source.trim().is_empty(), target.trim().is_empty()) {
                    (true, true) => {}
                    (true, false) => return blank(source_name, target_name),
                    (false, true) => return blank(target_name, source_name),
                    (false, false) => return Ok(Some(Pair { source, target })),
                },
            }
        }
    }
}

/// An error is the last item.
impl Iterator for Parallel {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Result<Pair>> {
        if self.ended {
            return None;
        }
        let read = self.read().transpose();
        self.ended = !matches!(read, Some(Ok(_)));
        read
    }
}

impl Record for Pair {
    const PLURAL: &'static str = "pairs";

    fn held_out_by(&self, fingerprint: Fingerprint) -> Fingerprint {
        fingerprint.text(&self.source)
    }

    fn read(paths: &[PathBuf], options: &ReadOptions) -> Result<Pairs> {
        let (mut pairs, mut options) = (Vec::new(), options.told());
        if let [path] = paths
            && let Some(files) = two(path)
        {
            for pair in Parallel::of(files, &mut options)? {
                pairs.push(pair?);
            }
            return Ok(Pairs::new(&path.display().to_string(), pairs).read_by(options));
        }
        let (name, found) = find(paths)?;
        for one in found {
            let file = match one {
                Found::File(file) => prepared(file, &options)?,
                Found::Folder(path) => {
                    let what = format!("pairs of `{}`", path.display());
                    let expected = "a file, a zip with one (`some.zip!file` names one of several), or two files whose lines belong \
                                    together, the source first, as `folder/train.{de,en}`";
                    return Err(Error::of(ErrorKind::Format, what, expected, "several files"));
                }
            };
            let mut read = alike(&options, &file, Task::Pairs);
            let guess = guess(&file, &read, Task::Pairs)?;
            let found = records(&file, &guess, &mut read);
            read.encoded_as(&file);
            let found = found.and_then(Iterator::collect::<Result<Vec<_>>>);
            pairs.extend(found.map_err(|e| guess.explain(e))?);
            if options.format.is_none_or(|format| format == guess.format) {
                options = read;
            }
        }
        Ok(Pairs::new(&name, pairs).read_by(options))
    }
}
