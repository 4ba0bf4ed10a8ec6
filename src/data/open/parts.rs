//! The parts of a data set: to train on, to choose by, to test on.

use std::fs;
use std::path::{Path, PathBuf};

use super::paths::is_note;
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// What the parts are called: one of the words of a name, between dots, hyphens and underscores.
const NAMES: [&[&str]; 3] =
    [&["train", "training"], &["dev", "valid", "validation", "val"], &["test", "testing"]];

/// The parts of a data set that comes divided.
///
/// ```
/// use unpadded::data::Parts;
/// let parts = Parts::find(concat!(env!("CARGO_MANIFEST_DIR"), "/datasets/reviews"))?;
/// assert!(parts.train.ends_with("train.tsv") && parts.dev.unwrap().ends_with("dev.tsv") && parts.test.is_none());
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// To train on.
    pub train: PathBuf,
    /// To choose by, if there is one: else a part of `train` is to be held out.
    pub dev: Option<PathBuf>,
    /// To test on, if there is one.
    pub test: Option<PathBuf>,
}

/// Which part a file or folder of this name is.
fn part(name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    let mut words = name.split(['.', '-', '_']);
    words.find_map(|word| NAMES.iter().position(|names| names.contains(&word)))
}

/// The name of a part, if all that is in a folder is parts, by the paths below it.
pub(super) fn part_in<'a>(below: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut tops: Vec<&str> =
        below.into_iter().map(|below| below.split('/').next().unwrap_or(below)).collect();
    tops.dedup();
    let all = tops.len() > 1 && tops.iter().all(|top| part(top).is_some());
    all.then(|| tops.first().map(|top| (*top).to_owned())).flatten()
}

impl Parts {
    /// The parts that a path has: of a folder, the files or folders in it whose names say so, as `train.tsv`, `dev.tsv` and
    /// `test.tsv`, or `train/` and `valid/`. Of any other path it is all to train on.
    ///
    /// # Errors
    /// If it cannot be read, or has two files for a part.
    #[track_caller]
    pub fn find(path: impl AsRef<Path>) -> Result<Self> {
        Self::found(path.as_ref()).at_caller()
    }

    fn found(path: &Path) -> Result<Self> {
        let whole = Self { train: path.to_owned(), dev: None, test: None };
        if !path.is_dir() {
            return Ok(whole);
        }
        let refused = |e: std::io::Error| Error::io(format!("folder `{}`", path.display()), "read", &e);
        let mut found: [Option<PathBuf>; 3] = Default::default();
        let (mut entries, mut others) = (Vec::new(), false);
        for entry in fs::read_dir(path).map_err(refused)? {
            entries.push(entry.map_err(refused)?.path());
        }
        entries.sort();
        for entry in entries {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(place) = part(&name).filter(|_| !name.starts_with('.') && !is_note(&name)) else {
                others |= entry.is_dir() && !name.starts_with('.');
                continue;
            };
            if let Some(other) = &found[place] {
                let what = format!("parts of `{}`", path.display());
                let got = format!("`{}` and `{}`", other.display(), entry.display());
                return Err(Error::of(
                    ErrorKind::Format,
                    what,
                    format!("one to {}", ["train on", "choose by", "test on"][place]),
                    got,
                ));
            }
            found[place] = Some(entry);
        }
        // Folders beside it that are no parts are classes, and one of them has the name of a part.
        if found.iter().flatten().any(|part| part.is_dir()) && others {
            return Ok(whole);
        }
        let [train, dev, test] = found;
        Ok(train.map_or(whole, |train| Self { train, dev, test }))
    }
}
