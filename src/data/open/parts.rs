//! The parts of a data set: to train on, to choose by, to test on.

use std::fs;
use std::path::{Path, PathBuf};

use super::json;
use super::options::FileFormat;
use super::paths::{by_ending, is_note};
use crate::data::TextFile;
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
    /// What is none of these, though its name has the word of one, or it is beside them in a JSON file.
    pub left_out: Vec<PathBuf>,
}

/// Which part a file or folder of this name is.
fn part(name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    let mut words = name.split(['.', '-', '_']);
    words.find_map(|word| NAMES.iter().position(|names| names.contains(&word)))
}

/// Whether a name, without its endings, is that of a part and nothing more.
fn is_exact(name: &str) -> bool {
    let name = name.to_lowercase();
    let stem = name.split('.').next().unwrap_or_default();
    NAMES.iter().any(|names| names.contains(&stem))
}

/// The parts that are found, one after another.
#[derive(Default)]
struct Finding {
    found: [Option<(PathBuf, bool)>; 3],
    left_out: Vec<PathBuf>,
}

impl Finding {
    /// Adds what has this name; one whose name is exact has the place of one whose name is not.
    fn add(&mut self, of: &Path, name: &str, path: PathBuf) -> Result<()> {
        let Some(place) = part(name) else {
            self.left_out.push(path);
            return Ok(());
        };
        let (slot, exact) = (&mut self.found[place], is_exact(name));
        match slot {
            Some((_, true)) if !exact => self.left_out.push(path),
            Some((other, false)) if exact => {
                self.left_out.push(std::mem::replace(other, path));
                *slot = slot.take().map(|(path, _)| (path, true));
            }
            Some((other, _)) => {
                let what = format!("parts of `{}`", of.display());
                let expected = format!("one to {}", ["train on", "choose by", "test on"][place]);
                let got = format!("`{}` and `{}`", other.display(), path.display());
                let error = Error::of(ErrorKind::Format, what, expected, got);
                return Err(match other.file_stem() == path.file_stem() {
                    // As `train.en` and `train.de`.
                    true => error.noted(format!(
                        "if their lines belong together, `{}.{{{},{}}}` names both, the source first",
                        path.with_extension("").display(),
                        other.extension().unwrap_or_default().display(),
                        path.extension().unwrap_or_default().display()
                    )),
                    false => error.noted("`data.train`, `data.dev` and `data.test` name the parts"),
                });
            }
            None => *slot = Some((path, exact)),
        }
        Ok(())
    }

    /// The parts, if one of them is to train on.
    fn parts(self) -> Option<Parts> {
        let Self { found: [train, dev, test], left_out } = self;
        let path = |found: Option<(PathBuf, bool)>| found.map(|(path, _)| path);
        Some(Parts { train: path(train)?, dev: path(dev), test: path(test), left_out })
    }
}

/// Two paths of different parts, if files or folders below a folder are called so.
pub(super) fn parts_in<'a>(below: impl IntoIterator<Item = &'a str>) -> Option<[&'a str; 2]> {
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

impl Parts {
    /// The parts that a path has: of a folder, the files or folders in it whose names say so, as `train.tsv`, `dev.tsv` and
    /// `test.tsv`, or `train/` and `valid/`; of a JSON file, the lists in its object, as `data.json!train`. A name that is the word for a
    /// part is preferred to one that has it among others. Of any other path it is all to train on.
    ///
    /// # Errors
    /// If it cannot be read, or has two files for a part.
    #[track_caller]
    pub fn find(path: impl AsRef<Path>) -> Result<Self> {
        Self::found(path.as_ref()).at_caller()
    }

    fn found(path: &Path) -> Result<Self> {
        let whole = Self { train: path.to_owned(), dev: None, test: None, left_out: Vec::new() };
        let mut finding = Finding::default();
        if !path.is_dir() {
            // Whatever else it is, whoever reads it says what is wrong with it.
            let lists = || json::lists_in(&TextFile::open(path)?);
            let other = path.to_str().and_then(by_ending).is_some_and(|of| of != FileFormat::JsonLines);
            let lists = if path.is_file() && !other { lists().unwrap_or_default() } else { Vec::new() };
            for list in lists {
                finding.add(path, &list, PathBuf::from(format!("{}!{list}", path.display())))?;
            }
            return Ok(finding.parts().unwrap_or(whole));
        }
        let refused = |e: std::io::Error| Error::io(format!("folder `{}`", path.display()), "read", &e);
        let (mut entries, mut others) = (Vec::new(), false);
        for entry in fs::read_dir(path).map_err(refused)? {
            entries.push(entry.map_err(refused)?.path());
        }
        entries.sort();
        for entry in entries {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if part(&name).is_none() || name.starts_with('.') || is_note(&name) {
                others |= entry.is_dir() && !name.starts_with('.');
                continue;
            }
            finding.add(path, &name, entry)?;
        }
        // Folders beside it that are no parts are classes, and one of them has the name of a part.
        if finding.found.iter().flatten().any(|(part, _)| part.is_dir()) && others {
            return Ok(whole);
        }
        Ok(finding.parts().unwrap_or(whole))
    }
}
