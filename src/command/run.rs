//! Run folders: the resolved config, the metrics of each epoch, the checkpoints, TensorBoard events, and the report.

use std::fs::{self, File, TryLockError};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::events::Events;
use super::json;
use super::outcome::{Outcome, bad};
use unpadded::checkpoint::EpochScores;
use unpadded::recipes::Config;

/// The parent folder of runs without `--run`.
const RUNS: &str = "runs";
/// The name of the file that a training locks while it writes to the folder of this file.
const LOCK: &str = ".lock";
/// The name of the file with the figures in a folder of several runs: of `train --seeds`, `train --folds` and `tune`.
pub(crate) const SEEDS: &str = "seeds.json";
pub(crate) const FOLDS: &str = "folds.json";
pub(crate) const TRIALS: &str = "tune.json";
/// The files that a training writes, except event files.
const OURS: [&str; 6] =
    ["config.toml", "metrics.jsonl", "last.ckpt", "best.ckpt", "report.html", "test.json"];

/// Run folder, locked by this process until the value is dropped.
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

/// Returns the path of the training checkpoint in a run folder; the next functions return the paths of other files.
pub(crate) fn last(folder: &Path) -> PathBuf {
    folder.join("last.ckpt")
}

pub(crate) fn best(folder: &Path) -> PathBuf {
    folder.join("best.ckpt")
}

pub(crate) fn config(folder: &Path) -> PathBuf {
    folder.join("config.toml")
}

/// Returns the checkpoint of a path; for a run folder, its best checkpoint.
pub(crate) fn checkpoint(path: &Path) -> Outcome<PathBuf> {
    // Until a training has ended, its last checkpoint also has the best parameters.
    let found = match path.is_dir() {
        true => [best(path), last(path)].into_iter().find(|path| path.is_file()),
        false => path.is_file().then(|| path.to_owned()),
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let name = path.display();
    bad(match path.is_dir() {
        true if several(path) => format!(
            "run folder `{name}`: expected a best.ckpt or last.ckpt in it, got a folder of several runs: name one of them; \
             --ensemble of `predict` and `eval` joins them"
        ),
        true => format!("run folder `{name}`: expected a best.ckpt or last.ckpt in it, got neither"),
        false => format!("`{name}`: expected a run folder or a checkpoint, got nothing there"),
    })
}

/// Returns the first folder `runs/<task>-<number>` that does not exist.
pub(crate) fn free(config: &Config) -> PathBuf {
    free_of(config.run.task.name())
}

/// Returns the first folder `runs/<of>-<number>` that does not exist.
pub(crate) fn free_of(of: &str) -> PathBuf {
    let name = |number: u64| Path::new(RUNS).join(format!("{of}-{number}"));
    (1..).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(0))
}

/// Returns whether a training may begin in a folder: it does not exist, or contains at most a lock.
pub(crate) fn is_new(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(mut entries) => entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == LOCK)),
        Err(_) => !path.exists(),
    }
}

/// Returns whether a training has written to a folder.
pub(crate) fn is_run(path: &Path) -> bool {
    ["metrics.jsonl", "last.ckpt", "best.ckpt"].iter().any(|name| path.join(name).is_file())
}

/// Returns whether a folder holds several runs, which one command trained.
pub(crate) fn several(path: &Path) -> bool {
    [SEEDS, FOLDS, TRIALS].iter().any(|name| path.join(name).is_file())
}

/// Returns the run folders in a folder of several runs, by number.
pub(crate) fn members(path: &Path) -> Outcome<Vec<PathBuf>> {
    let wrong = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(path).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| {
            let number = ["seed-", "fold-", "trial-"].into_iter().find_map(|kind| name.strip_prefix(kind))?;
            number.parse().ok()
        });
        found.extend(number.map(|n| (n, entry.path())));
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Returns whether a file name in a run folder is an event file that this program wrote.
fn is_events(name: &str) -> bool {
    name.starts_with("events.out.tfevents.") && name.ends_with(Events::ENDING)
}

impl Folder {
    /// Creates the folder, if it does not exist, and locks it.
    pub(crate) fn take(path: PathBuf) -> Outcome<Self> {
        let name = path.display().to_string();
        let io = |e: std::io::Error| super::outcome::BadInput(format!("run folder `{name}`: {e}"));
        if path.exists() && !path.is_dir() {
            return bad(format!("run folder `{name}`: expected a folder, or nothing yet, got a file"));
        }
        fs::create_dir_all(&path).map_err(io)?;
        let lock = File::create(path.join(LOCK)).map_err(io)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => bad(format!(
                "run folder `{name}`: expected one that is not in use, got one that another training writes to; --run names another"
            )),
            // If the file system has no locks, the training runs without this lock; its checkpoint has a lock of its own.
            Err(TryLockError::Error(_)) => Ok(Self { path, _lock: lock }),
        }
    }

    /// Removes the files of an earlier run, and keeps all other files.
    pub(crate) fn clear(&self) -> Outcome<()> {
        let wrong = |e: std::io::Error| format!("run folder `{}`: {e}", self.path.display());
        for entry in fs::read_dir(&self.path).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if is_events(&name) || OURS.contains(&&*name) {
                fs::remove_file(entry.path()).map_err(wrong)?;
            }
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file atomically.
    pub(crate) fn write(&self, name: &str, text: &str) -> Outcome<()> {
        let (path, new) = (self.path.join(name), self.path.join(format!(".{name}.new")));
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
        written.map_err(|e| {
            // A partial file is removed: it is useless, and may fill the disk.
            fs::remove_file(&new).ok();
            format!("{}: {e}", path.display()).into()
        })
    }
}

/// Metrics log of a run, by epoch: metrics.jsonl and TensorBoard events.
pub(crate) struct Log {
    lines: File,
    events: Events,
}

impl Log {
    /// Starts the log anew, and writes the epochs of `history` to it.
    pub(crate) fn begin(folder: &Folder, history: &[EpochScores], config: &str) -> Outcome<Self> {
        let path = folder.path.join("metrics.jsonl");
        let wrong = |e: std::io::Error| format!("{}: {e}", path.display());
        // Event files from before a resume are removed: their epochs are written again.
        for entry in fs::read_dir(&folder.path).map_err(wrong)?.flatten() {
            if is_events(&entry.file_name().to_string_lossy()) {
                fs::remove_file(entry.path()).map_err(wrong)?;
            }
        }
        let mut log = Self {
            lines: File::create(&path).map_err(wrong)?,
            events: Events::create(&folder.path).map_err(wrong)?,
        };
        log.events.text(0, "config", &format!("```toml\n{config}\n```")).map_err(wrong)?;
        history.iter().try_for_each(|epoch| log.epoch(epoch)).map_err(wrong)?;
        log.events.flush().map_err(wrong)?;
        Ok(log)
    }

    /// Writes the scores of an epoch.
    pub(crate) fn epoch(&mut self, scores: &EpochScores) -> std::io::Result<()> {
        let EpochScores { epoch, step, rate, train, dev, best, .. } = scores;
        let line = json::object([
            ("epoch", (*epoch).into()),
            ("step", (*step).into()),
            ("rate", rate.map_or(Value::Null, json::number)),
            ("train", json::numbers(train)),
            ("dev", json::numbers(dev)),
            ("best", (*best).into()),
        ]);
        let before = self.lines.stream_position()?;
        if let Err(e) = self.lines.write_all(format!("{line}\n").as_bytes()) {
            // A partial line, which is no JSON, is removed.
            self.lines.set_len(before).ok();
            return Err(e);
        }
        for (part, scores) in [("train", train), ("dev", dev)] {
            for (name, value) in scores {
                self.events.scalar(*step, &format!("{name}/{part}"), *value)?;
            }
        }
        rate.map_or(Ok(()), |rate| self.events.scalar(*step, "rate", rate))?;
        self.events.flush()
    }
}
