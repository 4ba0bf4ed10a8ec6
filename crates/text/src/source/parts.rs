//! Finds the parts of a data set: training, validation and test data.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use unpadded::{AtCaller, Error, Result};

use super::path_text::{path_of_text, text_of_path};
use super::paths::{is_note, of_two, two};
use super::reason::wrong_format;
use crate::TextFile;
use crate::format::{FileFormat, json};

/// The names of each part, which are words of a file name between dots, hyphens and underscores.
const NAMES: [&[&str]; 3] =
    [&["train", "training"], &["dev", "valid", "validation", "val"], &["test", "testing"]];

/// The paths of a data set that is already divided into training, validation and test data.
///
/// ```
/// use unpadded_text::DataPaths;
/// let parts = DataPaths::find(concat!(env!("CARGO_MANIFEST_DIR"), "/../../datasets/reviews"))?;
/// assert!(parts.train.ends_with("train.tsv") && parts.dev.unwrap().ends_with("dev.tsv") && parts.test.is_none());
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataPaths {
    /// Training data.
    pub train: PathBuf,
    /// Validation data; `None` if the data set has none (then hold out a part of `train`).
    pub dev: Option<PathBuf>,
    /// Test data; `None` if the data set has none.
    pub test: Option<PathBuf>,
    /// Paths that are not used, such as a path with a less exact name, or a list that is not named like a part.
    pub left_out: Vec<PathBuf>,
}

/// Returns the index of the part (0 training, 1 validation, 2 test) that a file name names.
fn part(name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    let mut words = name.split(['.', '-', '_']);
    words.find_map(|word| NAMES.iter().position(|names| names.contains(&word)))
}

/// Returns whether a name, up to its first dot, is exactly the name of a part, such as `train`.
fn is_exact(name: &str) -> bool {
    let name = name.to_lowercase();
    let stem = name.split('.').next().unwrap_or_default();
    NAMES.iter().any(|names| names.contains(&stem))
}

/// The parts so far, each with whether its file is named exactly like the part, and the paths left out.
#[derive(Default)]
struct Finding {
    found: [Option<(PathBuf, bool)>; 3],
    left_out: Vec<PathBuf>,
}

impl Finding {
    /// Adds a path as the part that `name` names. An exact name (`train.tsv`) replaces a name that only contains the
    /// part (`train-small.tsv`); two exact names, or two inexact names, of the same part are an error.
    fn add(&mut self, folder: &Path, name: &str, path: PathBuf) -> Result<()> {
        let Some(part_number) = part(name) else {
            self.left_out.push(path);
            return Ok(());
        };
        let (slot, exact) = (&mut self.found[part_number], is_exact(name));
        match slot {
            Some((_, true)) if !exact => self.left_out.push(path),
            Some((other, false)) if exact => {
                self.left_out.push(std::mem::replace(other, path));
                *slot = slot.take().map(|(path, _)| (path, true));
            }
            Some((other, _)) => {
                let what = format!("parts of `{}`", folder.display());
                let expected = format!("one file to {}", ["train on", "choose by", "test on"][part_number]);
                let got = format!("`{}` and `{}`", other.display(), path.display());
                let error = wrong_format(what, expected, got);
                return Err(error.noted("`data.train`, `data.dev` and `data.test` name the parts"));
            }
            None => *slot = Some((path, exact)),
        }
        Ok(())
    }

    /// Returns the paths of the parts; `None` if there is no training data.
    fn parts(self) -> Option<DataPaths> {
        let Self { found: [train, dev, test], left_out } = self;
        let path = |found: Option<(PathBuf, bool)>| found.map(|(path, _)| path);
        Some(DataPaths { train: path(train)?, dev: path(dev), test: path(test), left_out })
    }
}

/// Returns two paths of different parts, such as `train` and `test`, if there are any.
pub(crate) fn parts_in<'a>(below: impl IntoIterator<Item = &'a str>) -> Option<[&'a str; 2]> {
    let mut first: Option<(usize, &str)> = None;
    for path in below {
        let names = path.match_indices('/').map(|(at, _)| at).chain([path.len()]).filter_map(|end| {
            let whole = path.get(..end)?;
            let name = whole.rsplit('/').next()?;
            let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
            Some((part(stem).filter(|_| is_exact(stem))?, whole))
        });
        for (part, whole) in names {
            match first {
                Some((other, path)) if other != part => return Some([path, whole]),
                Some(_) => {}
                None => first = Some((part, whole)),
            }
        }
    }
    None
}

/// File extensions that mark the source texts of parallel files.
const SOURCES: [&str; 2] = ["src", "source"];
const TARGETS: [&str; 3] = ["tgt", "trg", "target"];

/// Splits a name at its last dot, after removing `.gz`; returns `None` for a name without a dot.
fn split_ending(name: &str) -> Option<(&str, &str)> {
    name.strip_suffix(".gz").unwrap_or(name).rsplit_once('.')
}

/// Parses a path such as `folder/*.{de,en}` into the folder and the two extensions (source, target).
fn endings(path: &Path) -> Option<(PathBuf, [String; 2])> {
    let [source, target] = two(path)?;
    let ending = |pattern: &Path| pattern.file_name()?.to_str()?.strip_prefix("*.").map(str::to_owned);
    let pattern = [ending(&source)?, ending(&target)?];
    (source.parent() == target.parent())
        .then(|| (source.parent().map(Path::to_owned).unwrap_or_default(), pattern))
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let refused = |e: std::io::Error| Error::io(format!("folder `{}`", folder.display()), "read", &e);
    let read = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut names = Vec::new();
    for entry in fs::read_dir(read).map_err(refused)? {
        names.push(text_of_path(entry.map_err(refused)?.file_name()));
    }
    names.sort();
    Ok(names)
}

/// Finds the parts in a folder of parallel files: each part is two files with the extensions `source` and `target`.
fn parallel(folder: &Path, [source, target]: &[String; 2]) -> Result<DataPaths> {
    let mut found: BTreeMap<String, [Option<String>; 2]> = BTreeMap::new();
    let shown = if folder.as_os_str().is_empty() { Path::new(".") } else { folder }.display();
    let (mut finding, mut others) = (Finding::default(), Vec::new());
    for name in names(folder)? {
        let Some((stem, ending)) = split_ending(&name).filter(|_| part(&name).is_some()) else { continue };
        let Some(side) = [source, target].iter().position(|known| *known == ending) else {
            others.push(folder.join(path_of_text(&name)));
            continue;
        };
        let slot = &mut found.entry(stem.to_owned()).or_default()[side];
        if let Some(other) = slot {
            let what = format!("`{stem}.{ending}` of `{shown}`");
            return Err(wrong_format(what, "one file", format!("`{other}` and `{name}`")));
        }
        *slot = Some(name);
    }
    for (stem, files) in found {
        let [Some(a), Some(b)] = files else {
            let what = format!("part `{stem}` of `{shown}`");
            let [has, lacks] = if files[0].is_some() { [source, target] } else { [target, source] };
            return Err(wrong_format(what, format!("`{stem}.{lacks}` beside `{stem}.{has}`"), "none"));
        };
        let [first, second] = [&a, &b].map(|name| name.get(stem.len() + 1..).unwrap_or_default());
        let short = folder.join(path_of_text(&format!("{stem}.{{{first},{second}}}")));
        let whole = [a, b].map(|name| folder.join(path_of_text(&name)));
        // The path is `stem.{de,en}`; if the names contain braces, both names are within the braces.
        let path = match two(&short).is_some_and(|found| found == whole) {
            true => short,
            false => {
                let [a, b] = whole.each_ref().map(text_of_path);
                path_of_text(&of_two([&a, &b]))
            }
        };
        finding.add(folder, &stem, path)?;
    }
    finding.left_out.extend(others);
    finding.parts().ok_or_else(|| {
        wrong_format(format!("parts of `{shown}`"), format!("`train.{source}` and `train.{target}`"), "none")
    })
}

/// Returns the two extensions of parallel training files in a folder, the source first; `None` if the folder has no
/// parallel files.
///
/// # Errors
/// Fails if the extensions do not show which file has the source texts; the user must then choose.
fn languages(folder: &Path, names: &[String]) -> Result<Option<[String; 2]>> {
    let all = || names.iter().filter(|name| part(name) == Some(0) && !is_note(name));
    let exact = all().any(|name| is_exact(name));
    let mut train: Vec<(&str, &str)> =
        all().filter(|name| !exact || is_exact(name)).filter_map(|name| split_ending(name)).collect();
    train.retain(|(stem, ending)| FileFormat::of_name(&format!("{stem}.{ending}")).is_none());
    train.sort_unstable();
    train.dedup();
    let Some(alike) = train.chunk_by(|a, b| a.0 == b.0).find(|alike| alike.len() > 1) else {
        return Ok(None);
    };
    let endings: Vec<&str> = alike.iter().map(|(_, ending)| *ending).collect();
    let language = |known: &[&str]| {
        endings.iter().find(|ending| known.contains(ending)).map(|language| (*language).to_owned())
    };
    if let (2, Some(source), Some(target)) = (endings.len(), language(&SOURCES), language(&TARGETS)) {
        return Ok(Some([source, target]));
    }
    let (stem, at) = (alike.first().map_or("", |(stem, _)| stem), folder.display());
    let got: Vec<String> = endings.iter().map(|ending| format!("`{stem}.{ending}`")).collect();
    let error = wrong_format(format!("parts of `{at}`"), "one file to train on", got.join(" and "));
    let path = |a: &str, b: &str| format!("`{}`", folder.join(format!("*.{{{a},{b}}}")).display());
    let to = match endings[..] {
        [a, b] => {
            format!("{} if `{a}` is the source, to {} if `{b}` is the source", path(a, b), path(b, a))
        }
        _ => format!("{}, with the endings of source and target", path("SOURCE", "TARGET")),
    };
    Err(error.noted(format!("if their lines belong together, set `data.train` (`--train`) to {to}")))
}

impl DataPaths {
    /// Joins the paths of two parallel files into one path, in the form of the setting `data.train`.
    ///
    /// ```
    /// assert_eq!(unpadded_text::DataPaths::of_lines("a,b.en", "c.de"), r"{a\,b.en,c.de}");
    /// ```
    pub fn of_lines(source: &str, target: &str) -> String {
        of_two([source, target])
    }

    /// Finds the training, validation and test data of a path. In a folder, the parts are the files or folders with the
    /// names of parts, such as `train.tsv`, `dev.tsv` and `test.tsv`, or `train/` and `valid/`. For a path
    /// `folder/*.{de,en}`, each part is two files in the folder with these extensions (also with `.gz`), the source
    /// first. In a JSON file, each part is a list of the top-level object: `data.json!train` is the list `train`. A
    /// file named exactly after a part (`train.tsv`) is preferred to a file whose name contains the part
    /// (`train-small.tsv`). All texts of any other path are training data.
    ///
    /// # Errors
    /// Fails if the path cannot be read, or if two files have names of the same part that are equally exact. Also fails
    /// if the folder has files such as `train.de` and `train.en`; the message explains how to choose the source. Files
    /// `train.src` and `train.tgt` need no choice.
    #[track_caller]
    pub fn find(path: impl AsRef<Path>) -> Result<Self> {
        Self::found(path.as_ref()).at_caller()
    }

    fn found(path: &Path) -> Result<Self> {
        let whole = Self { train: path.to_owned(), dev: None, test: None, left_out: Vec::new() };
        let mut finding = Finding::default();
        if let Some((folder, endings)) = endings(path) {
            return parallel(&folder, &endings);
        }
        if !path.is_dir() {
            // An error in parsing the file as JSON is ignored here: the reader of the data set reports errors.
            let lists = || json::lists_in(&TextFile::open(path)?);
            let text = text_of_path(path);
            let other = FileFormat::of_name(&text).is_some_and(|known| known != FileFormat::JsonLines);
            let lists = if path.is_file() && !other { lists().unwrap_or_default() } else { Vec::new() };
            for list in lists {
                finding.add(path, &list, path_of_text(&format!("{text}!{list}")))?;
            }
            return Ok(finding.parts().unwrap_or(whole));
        }
        let (names, mut others) = (names(path)?, false);
        if let Some(endings) = languages(path, &names)? {
            return parallel(path, &endings);
        }
        for name in names {
            let entry = path.join(path_of_text(&name));
            if part(&name).is_none() || name.starts_with('.') || is_note(&name) {
                others |= entry.is_dir() && !name.starts_with('.');
                continue;
            }
            finding.add(path, &name, entry)?;
        }
        // Folders with other names beside `train/` show that folders are classes, one of them named like a part.
        if finding.found.iter().flatten().any(|(part, _)| part.is_dir()) && others {
            return Ok(whole);
        }
        Ok(finding.parts().unwrap_or(whole))
    }
}
