//! Pairs of texts of a path.

use std::path::PathBuf;

use super::columns::{SOURCE, TARGET, Wanted};
use super::guess::{Guess, Task, alike, guess};
use super::options::{FileFormat, ReadOptions};
use super::paths::{Found, find, prepared};
use super::{dictionary, fields, objects, table};
use crate::data::data_set::Record;
use crate::data::records::{OneLine, Stream};
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
        FileFormat::Dictionary => Ok(Box::new(file.records(OneLine(dictionary::reader(options.stress)))?)),
        format @ (FileFormat::JsonLines | FileFormat::Parquet) => {
            let picked = objects::picked(file, format, &wanted(options), options)?;
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
            let table = table::Table::of(file, format, options, &wanted(options));
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

impl Record for Pair {
    const PLURAL: &'static str = "pairs";

    fn held_out_by(&self, fingerprint: Fingerprint) -> Fingerprint {
        fingerprint.text(&self.source)
    }

    fn read(paths: &[PathBuf], options: &ReadOptions) -> Result<Pairs> {
        let (name, found) = find(paths)?;
        let (mut pairs, mut options) = (Vec::new(), options.told());
        for one in found {
            let file = match one {
                Found::File(file) => prepared(file, &options)?,
                Found::Folder(path) => {
                    let what = format!("pairs of `{}`", path.display());
                    let expected = "a file, or a zip with one (`some.zip!file` names one of several)";
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
