//! Decides, by the languages in headers or file extensions, which text of a pair is the source. The source has the
//! language of the source in the training data, in any order of columns or files.

use std::path::PathBuf;

use unpadded::Result;

use super::column::{Column, SOURCE, language, plain};
use super::form::FileForm;
use super::guess::guess;
use super::options::ReadOptions;
use crate::TextFile;
use crate::format::{Task, extension};
use crate::source::path_text::text_of_path;
use crate::source::reason::wrong_format;

/// Returns the languages of source and target, if the training files name them.
fn known(options: &ReadOptions) -> Option<[String; 2]> {
    let named = |column: &Option<String>| column.clone().filter(|name| language(name));
    match (named(&options.source), named(&options.target)) {
        (Some(source), Some(target)) => Some([source, target]),
        _ => options.languages.clone().filter(|_| options.source.is_none() && options.target.is_none()),
    }
}

/// Reads the columns whose names are the languages of earlier files. If there are no such columns, reads the columns
/// that are set or detected. `form` reads a file with given options.
///
/// # Errors
/// Fails if `form` fails, or if the columns are named by other languages: only the order of the columns would then show
/// which column is the source.
pub(crate) fn pick(
    file: &TextFile,
    options: &ReadOptions,
    form: &dyn Fn(&ReadOptions) -> Result<FileForm>,
) -> Result<FileForm> {
    let Some([source, target]) = known(options).filter(|_| options.source.is_none()) else {
        return form(options);
    };
    let named = ReadOptions { source: Some(source.clone()), target: Some(target.clone()), ..options.clone() };
    if let Ok(found) = form(&named)
        && matches!(found.choice(), (names, _, true) if names == [source.as_str(), target.as_str()])
    {
        return Ok(found);
    }
    let found = form(options)?;
    match found.choice() {
        (names, _, true) if names.iter().all(|name| language(name)) => {
            let what = format!("columns of file `{}`", file.name());
            let expected = format!("`{source}` and `{target}`, the languages of the training");
            let error = wrong_format(what, expected, format!("`{}`", names.join("` and `")));
            let set = "set `source` and `target` (`data.text` and `data.label` in a config) to the columns";
            Err(error.noted(set))
        }
        _ => Ok(found),
    }
}

/// If the extensions of the two files are the languages of earlier files, puts the file of the source first. For the
/// first two files, stores the languages in `options`.
///
/// # Errors
/// Fails if the extensions are other languages: only the order of the files would then decide which file is the source.
pub(crate) fn order(paths: &mut [PathBuf; 2], options: &mut ReadOptions) -> Result<()> {
    let ending = |path: &PathBuf| {
        let name = text_of_path(path);
        let name = extension(&name)?;
        language(name).then(|| name.to_owned())
    };
    if let [Some(source), Some(target)] = paths.each_ref().map(ending) {
        // Only the first part of a language code counts: `de-DE` equals `de`.
        let base = |name: &str| plain(name.split(['-', '_']).next().unwrap_or_default());
        let same = |a: &str, b: &str| base(a) == base(b);
        match known(options) {
            Some([first, second]) if same(&first, &target) && same(&second, &source) => {
                paths.reverse();
                options.notes.push(format!("source is `{first}`, as in the training"));
            }
            Some([first, second]) if same(&first, &source) && same(&second, &target) => {}
            Some([first, second]) => {
                let what = format!("endings of `{}` and `{}`", paths[0].display(), paths[1].display());
                let expected = format!("`{first}` and `{second}`, the languages of the training");
                let error = wrong_format(what, expected, format!("`{source}` and `{target}`"));
                let advice = "if the languages are the same, rename the files to the endings of the training";
                return Err(error.noted(advice));
            }
            None => options.languages = Some([source, target]),
        }
    }
    // Two parallel files have no columns, so names of columns are removed.
    (options.source, options.target) = (None, None);
    Ok(())
}

/// Makes the column that is named after the source language of the earlier files, if any, the source column.
pub(crate) fn name_source(file: &TextFile, options: &mut ReadOptions) {
    let Some([source, _]) = known(options).filter(|_| options.source.is_none()) else { return };
    let wanted = [Column { what: "source", given: Some(&source), known: SOURCE }];
    let named = ReadOptions { source: Some(source.clone()), ..options.clone() };
    let Ok(guess) = guess(file, &named, Task::Pairs) else { return };
    let found = FileForm::of(file, guess.format, &named, &wanted);
    if found.is_ok_and(|form| matches!(form.choice(), (names, _, true) if names == [source.as_str()])) {
        options.source = Some(source);
    }
}
