//! Reads folders of texts in which the name of a file or of a folder is the label of its texts.

use std::fs;
use std::path::{Path, PathBuf};

use unpadded::{AtCaller, Error, ErrorKind, Result};

use super::archive::{Member, Origin, Wrapping, debris};
use super::kind::is_markup;
use super::lines::quoted;
use super::path_text::text_of_path;
use super::reason::wrong_format;
use crate::TextFile;

/// The files of a folder or a zip, including the files of all inner folders, sorted by path. Hidden files are skipped.
#[derive(Debug, Clone)]
pub struct Folder {
    name: String,
    /// Each file, with its path below the folder.
    files: Vec<(String, TextFile)>,
}

/// Maximum depth of nested folders. Deeper folders are an error, since no data set has them.
const DEEPEST: usize = 16;

impl Folder {
    /// Finds all files of a folder or a zip.
    ///
    /// # Errors
    /// Fails if the path is neither a folder nor a zip, cannot be read, or has no file. Also fails if the folder
    /// contains a pipe, a broken link or a link to a folder.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = text_of_path(path);
        let mut files = Vec::new();
        if path.is_dir() {
            let mut found = Vec::new();
            walk(path, 0, &mut found).at_caller()?;
            for file in found {
                let below = file.strip_prefix(path).unwrap_or(&file);
                let below = text_of_path(below).replace(std::path::MAIN_SEPARATOR, "/");
                files.push((below, TextFile::open(&file)?));
            }
        } else {
            let origin = Origin::file(path).at_caller()?;
            if origin.wrapping().at_caller()? != Wrapping::Zip {
                let what = format!("file `{name}`");
                return Err(wrong_format(what, "a folder or a zip", "a file of another kind"));
            }
            let below =
                |member: Member| (member.name.to_string(), TextFile::of(origin.clone(), Some(member)));
            files.extend(origin.members().at_caller()?.into_iter().map(below));
        }
        files.retain(|(below, _)| !below.split('/').any(hidden));
        files.sort_by(|a, b| a.0.cmp(&b.0));
        Self { name, files }.filled("at least one")
    }

    /// Keeps only the files with this extension, such as `txt`.
    ///
    /// # Errors
    /// Fails if no file has this extension.
    #[track_caller]
    pub fn extension(mut self, extension: &str) -> Result<Self> {
        self.files.retain(|(below, _)| parts(below).2 == Some(extension));
        self.filled(&format!("files that end with `.{extension}`"))
    }

    /// Keeps only the files for whose path below the folder `wanted` returns true.
    pub(crate) fn retain(mut self, wanted: impl Fn(&str) -> bool) -> Result<Self> {
        self.files.retain(|(below, _)| wanted(below));
        self.filled("at least one")
    }

    #[track_caller]
    fn filled(self, expected: &str) -> Result<Self> {
        if self.files.is_empty() {
            return Err(wrong_format(format!("files of `{}`", self.name), expected, "none"));
        }
        Ok(self)
    }

    /// Every file with its path below the folder, sorted by path.
    pub fn files(&self) -> &[(String, TextFile)] {
        &self.files
    }

    /// Returns the label and the file of each class, for a folder with one file per class. The label is the file name
    /// without its extension. If the file names differ only in their extensions, the label is the extension.
    ///
    /// # Errors
    /// Fails if there is only one label, or if two files have the same label.
    #[track_caller]
    pub fn file_per_class(&self) -> Result<Vec<(String, TextFile)>> {
        let stems = || self.files.iter().map(|(below, _)| parts(below).1);
        let by_extension = stems().all(|stem| Some(stem) == stems().next()) && self.files.len() > 1;
        let label = |below: &str| {
            let (_, stem, extension) = parts(below);
            if by_extension { extension.unwrap_or_default().to_owned() } else { stem.to_owned() }
        };
        let mut classes: Vec<(String, TextFile)> =
            self.files.iter().map(|(below, file)| (label(below), file.clone())).collect();
        classes.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(pair) = classes.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let [a, b] = [0, 1].map(|i| format!("`{}`", pair[i].1.name()));
            let got = format!("label `{}` for {a} and {b}", pair[0].0);
            return Err(wrong_format(format!("labels in `{}`", self.name), "one file per label", got));
        }
        self.several(classes)
    }

    /// Returns each file with its label, for a folder with one folder per class. The label is the name of the folder
    /// that contains the file. HTML pages and XML documents are accepted if all files have the extension of HTML or
    /// XML.
    ///
    /// # Errors
    /// Fails if a file is not in a class folder, or if there is only one label.
    #[track_caller]
    pub fn folder_per_class(&self) -> Result<Vec<(String, TextFile)>> {
        let folder = |below: &str| {
            parts(below).0.rsplit('/').next().filter(|name| !name.is_empty()).map(str::to_owned)
        };
        let names = self.files.iter().map(|(below, _)| below.as_str());
        let mut stray = names.filter(|below| folder(below).is_none()).peekable();
        if stray.peek().is_some() {
            let got = format!("{} outside of any folder", quoted(stray));
            let what = format!("files of `{}`", self.name);
            return Err(wrong_format(what, "each file in a folder with the name of its label", got));
        }
        let markup = self.files.iter().all(|(below, _)| is_markup(below));
        let label = |(below, file): &(String, TextFile)| Some((folder(below)?, file.clone().markup(markup)));
        self.several(self.files.iter().filter_map(label).collect())
    }

    #[track_caller]
    fn several(&self, classes: Vec<(String, TextFile)>) -> Result<Vec<(String, TextFile)>> {
        match classes.first() {
            Some((first, _)) if classes.iter().all(|(label, _)| label == first) => {
                let what = format!("labels in `{}`", self.name);
                Err(wrong_format(what, "at least two", format!("only `{first}`")))
            }
            _ => Ok(classes),
        }
    }
}

/// Cuts a path into the folder, the name without its extension, and the extension (`None` without a dot).
fn parts(below: &str) -> (&str, &str, Option<&str>) {
    let (folder, name) = below.rsplit_once('/').unwrap_or(("", below));
    match name.rsplit_once('.') {
        Some((stem, extension)) => (folder, stem, Some(extension)),
        None => (folder, name, None),
    }
}

/// Returns whether a file or a folder of this name is hidden, and therefore skipped.
fn hidden(name: &str) -> bool {
    name.starts_with('.') || debris(name)
}

/// Collects all files below a folder, except hidden ones. Links to folders may be cycles, and are an error, as is any entry that
/// is neither a file nor a folder: its samples would be missing silently.
fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    let refused = |e: std::io::Error| Error::io(format!("folder `{}`", folder.display()), "read", &e);
    if depth > DEEPEST {
        let what = format!("folder `{}`", folder.display());
        return Err(wrong_format(what, format!("at most {DEEPEST} folders deep"), "more"));
    }
    for entry in fs::read_dir(folder).map_err(refused)? {
        let entry = entry.map_err(refused)?;
        let path = entry.path();
        if hidden(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let kind = entry.file_type().map_err(refused)?;
        if kind.is_dir() {
            walk(&path, depth + 1, found)?;
        } else if path.is_file() {
            found.push(path);
        } else {
            let got = match kind.is_symlink() {
                true if path.is_dir() => "a link to a folder: put the folder itself there",
                true if path.try_exists().map_err(refused)? => "a pipe or a device",
                true => "a link that leads nowhere",
                _ => "a pipe or a device",
            };
            return Err(Error::of(ErrorKind::Io, format!("`{}`", path.display()), "a file or a folder", got));
        }
    }
    Ok(())
}
