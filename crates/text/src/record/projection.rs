//! Opens the records of files, whatever kind of record they are: each kind names its columns, and makes a record of a row.

use std::path::{Path, PathBuf};

use unpadded::Result;

use super::plan::{Opener, Plan};
use crate::TextFile;
use crate::detect::column::Column;
use crate::detect::form::FileForm;
use crate::detect::guess::{Guess, alike, guess};
use crate::detect::options::ReadOptions;
use crate::format::row::RecordMaker;
use crate::format::{FileFormat, Task};
use crate::source::paths::{PathContent, find, prepared};
use crate::source::records::Stream;

/// A kind of record: the columns that it has, and how a row of these columns becomes a record.
pub(crate) trait Projection: Send + Sized + 'static {
    const TASK: Task;

    fn wanted(options: &ReadOptions) -> Vec<Column<'_>>;

    /// Finds the wanted columns of a file, and stores their names and notes in the options.
    fn form(file: &TextFile, format: FileFormat, options: &mut ReadOptions) -> Result<FileForm>;

    /// Returns a function that makes records of the rows of a file; `options` has the names of the columns.
    fn maker(file: &TextFile, options: &ReadOptions) -> RecordMaker<Self>;
}

/// The decisions about a file: the format, the columns, and the options with what was detected.
#[derive(Debug)]
pub(crate) struct FilePlan {
    guess: Guess,
    pub(crate) form: FileForm,
    pub(crate) options: ReadOptions,
}

impl FilePlan {
    /// Detects the format and the columns of a file. `all` has the options of earlier files of the data set.
    pub(crate) fn of<R: Projection>(file: &TextFile, all: &ReadOptions) -> Result<Self> {
        let mut options = alike(all, file, R::TASK);
        let guess = guess(file, &options, R::TASK)?;
        options.format = Some(guess.format);
        options.only_of_tables(guess.format, &format!("file `{}`", file.name()))?;
        let form = R::form(file, guess.format, &mut options).map_err(|e| guess.explain(e))?;
        options.encoded_as(file);
        Ok(Self { guess, form, options })
    }

    pub(crate) fn records<R: Projection>(&self, file: &TextFile) -> Result<Stream<R>> {
        let records = self.form.records(file, R::maker(file, &self.options));
        Ok(self.guess.explained(records.map_err(|e| self.guess.explain(e))?))
    }
}

/// Returns the plan for reading the records of several paths. `folder` opens a folder, or a zip with several files.
pub(crate) fn plan<R: Projection>(
    paths: &[PathBuf],
    mut options: ReadOptions,
    window: bool,
    folder: fn(&Path, &mut ReadOptions, bool) -> Result<Opener<R>>,
) -> Result<Plan<R>> {
    let (name, found) = find(paths)?;
    let several = found.len() > 1;
    let mut inputs = Vec::new();
    for one in found {
        inputs.push(match one {
            PathContent::Folder(path) => folder(&path, &mut options, window)?,
            PathContent::File(file) => {
                let mut file = prepared(file, &options, window)?;
                let plan = FilePlan::of::<R>(&file, &options)?;
                // Later files are read alike, unless this file has another format.
                if options.format.is_none_or(|format| Some(format) == plan.options.format) {
                    options.clone_from(&plan.options);
                }
                // With several files, each file is closed after detection, so that few files are open at once.
                if several {
                    file.close();
                }
                Box::new(move || plan.records(&file)) as Opener<R>
            }
        });
    }
    Ok(Plan::of(name, options, inputs))
}
