//! Run folders: the resolved config, the metrics of each epoch, checkpoints, TensorBoard events and the report.

use std::fs::{self, File, TryLockError};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use unpadded::checkpoint::EpochScores;
use unpadded_recipes::Config;
use unpadded_text::{SkipReport, SkippedLine};

use super::events::Events;
use super::outcome::{Outcome, UsageError, bad, unwritten};
use super::output::{check_plain, create, replace};

/// The parent folder of the run folders that get a default name, without the flag `--run`.
const RUNS: &str = "runs";
/// The name of the lock file in a run folder; a training locks this file while it writes to the folder.
const LOCK: &str = ".lock";
/// The files with the results of `train --seeds`, of `train --folds` and of `tune`, beside the run folders.
pub(crate) const SEEDS: &str = "seeds.json";
pub(crate) const FOLDS: &str = "folds.json";
pub(crate) const TRIALS: &str = "tune.json";
/// The name of the file with the malformed records that `data.skip_bad` left out.
pub(crate) const SKIPPED: &str = "skipped.tsv";
/// The names of the files of text that a training writes to its run folder; a training also writes checkpoints and event files.
const TEXTS: [&str; 6] =
    ["config.toml", "metrics.jsonl", "report.html", "held_out.json", "test.json", SKIPPED];
const CHECKPOINTS: [&str; 2] = ["last.ckpt", "best.ckpt"];

/// Returns the names of the files that are written by [`Folder::write`] or by [`Log`].
fn written() -> impl Iterator<Item = &'static str> {
    TEXTS.into_iter().chain(["best.toml", SEEDS, FOLDS, TRIALS])
}

/// A run folder that this process has locked; the lock is released when the `Folder` is dropped.
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
    /// Whether this process has created the folder.
    created: bool,
}

/// Returns the path of `last.ckpt`, the checkpoint to resume from; the functions below return other paths.
pub(crate) fn last(folder: &Path) -> PathBuf {
    folder.join("last.ckpt")
}

pub(crate) fn best(folder: &Path) -> PathBuf {
    folder.join("best.ckpt")
}

pub(crate) fn config(folder: &Path) -> PathBuf {
    folder.join("config.toml")
}

/// Checks that a file of a run folder is no pipe: the opening of a pipe would wait. A missing file is no error here.
pub(crate) fn check_file(path: &Path) -> Outcome<()> {
    let got = match fs::metadata(path) {
        Ok(about) if about.is_file() => return Ok(()),
        Ok(about) if about.is_dir() => "a folder",
        Ok(_) => "a pipe or a device",
        Err(_) if path.is_symlink() => "a symbolic link to a file that is not there",
        Err(_) => return Ok(()),
    };
    bad(format!("{}: expected a file, got {got}: remove or rename it", path.display()))
}

pub(crate) fn load_config(folder: &Path) -> Outcome<Config> {
    let path = config(folder);
    check_file(&path)?;
    Config::load(path).usage()
}

/// Returns the path of a checkpoint: the given file, or the best checkpoint in the given run folder.
pub(crate) fn checkpoint(path: &Path) -> Outcome<PathBuf> {
    // While a training has not ended, there may be no best.ckpt; last.ckpt also contains the best parameters.
    let names = if path.is_dir() { vec![best(path), last(path)] } else { vec![path.to_owned()] };
    for found in names {
        check_file(&found)?;
        if found.is_file() {
            return Ok(found);
        }
    }
    let name = path.display();
    bad(match path.is_dir() {
        true if several(path) => format!(
            "run folder `{name}`: expected a best.ckpt or last.ckpt in it, got a folder of several runs: name one of the runs; --ensemble of `predict` and `eval` joins all runs"
        ),
        true => format!("run folder `{name}`: expected a best.ckpt or last.ckpt in it, got neither"),
        false => format!("`{name}`: expected a run folder or a checkpoint, got nothing there"),
    })
}

/// Returns the first path `runs/<of>-<number>` that does not exist yet.
pub(crate) fn free(folder: &str) -> PathBuf {
    let name = |number: u64| Path::new(RUNS).join(format!("{folder}-{number}"));
    (1..).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(0))
}

/// Returns whether a training may begin in a folder: it does not exist, is empty, or has only a lock file and the config of a command
/// that could write nothing else, as on a full disk. Without a lock file, the config is the user's.
pub(crate) fn is_new(path: &Path) -> bool {
    let Ok(entries) = fs::read_dir(path) else { return !path.exists() };
    let names: std::io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name())).collect();
    names.is_ok_and(|names| {
        let locked = names.iter().any(|name| name == LOCK);
        let temporary = |name: &str| written().any(|name_of_run| *name == format!(".{name_of_run}.new"));
        let ours = |name: &str| name == LOCK || (locked && (name == "config.toml" || temporary(name)));
        names.iter().all(|name| name.to_str().is_some_and(ours))
    })
}

/// Returns whether a training has already written results to a folder.
pub(crate) fn is_run(path: &Path) -> bool {
    ["metrics.jsonl", "last.ckpt", "best.ckpt"].iter().any(|name| path.join(name).is_file())
}

/// Returns whether a folder contains several run folders of one command, such as `train --seeds` or `tune`.
pub(crate) fn several(path: &Path) -> bool {
    [SEEDS, FOLDS, TRIALS].iter().any(|name| path.join(name).is_file())
}

/// Returns the run folders in a folder of several runs, in the order of their numbers.
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

fn is_events(name: &str) -> bool {
    name.starts_with("events.out.tfevents.") && name.ends_with(Events::ENDING)
}

fn temporary(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!(".{name}.new"))
}

/// Returns the malformed records that were left out as a table; a last row has the number of further records.
pub(crate) fn skipped(reports: &[SkipReport]) -> String {
    // Backslashes are escaped, too, so that the text of a cell can be restored.
    let cell = |text: &str| {
        text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
    };
    let row = |line: &SkippedLine| {
        format!("{}\t{}\t{}\t{}\n", cell(&line.file), line.line, cell(&line.reason), cell(&line.text))
    };
    let rows = reports.iter().flat_map(|report| report.skipped.iter().map(row));
    let more: u64 = reports.iter().map(|report| report.more).sum();
    let more = (more > 0).then(|| format!("\t\t{more} more records were left out\t\n"));
    std::iter::once("file\tline\treason\ttext\n".to_owned()).chain(rows).chain(more).collect()
}

impl Folder {
    /// Creates the run folder if it does not exist, and locks the folder.
    pub(crate) fn take(path: PathBuf) -> Outcome<Self> {
        let name = path.display().to_string();
        let io = |e: std::io::Error| super::outcome::BadInput(format!("run folder `{name}`: {e}"));
        if path.exists() && !path.is_dir() {
            return bad(format!("run folder `{name}`: expected a folder, or nothing yet, got a file"));
        }
        let created = !path.exists();
        fs::create_dir_all(&path).map_err(io)?;
        let at = path.join(LOCK);
        let lock = match File::create_new(&at) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                check_plain(&at).and_then(|()| File::options().write(true).open(&at))
            }
            made => made,
        };
        let lock = lock.map_err(io)?;
        // Everything is checked before an earlier run in the folder is removed.
        let written = written().flat_map(|name| [path.join(name), temporary(&path, name)]);
        for at in written.chain([path.join(".last.ckpt.lock")]) {
            check_plain(&at).map_err(io)?;
        }
        // A checkpoint may be a link: a resumed training replaces the file at its end.
        [last(&path), best(&path)].iter().try_for_each(|at| check_file(at))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock, created }),
            Err(TryLockError::WouldBlock) => bad(format!(
                "run folder `{name}`: expected a folder that is not in use, got a folder that another training writes to; use `--run NEW` to choose another folder"
            )),
            // If the file system supports no locks, the training runs without; the checkpoint file has its own lock.
            Err(TryLockError::Error(_)) => Ok(Self { path, _lock: lock, created }),
        }
    }

    /// Removes the files that an earlier training wrote to the folder, and keeps all other files.
    pub(crate) fn clear(&self) -> Outcome<()> {
        let wrong = |e: std::io::Error| format!("run folder `{}`: {e}", self.path.display());
        for entry in fs::read_dir(&self.path).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // With dealt tables, each process has a file beside the last checkpoint.
            let of_rank = name.starts_with("last.ckpt.") && name.contains("-of-");
            if of_rank || is_events(&name) || TEXTS.contains(&&*name) || CHECKPOINTS.contains(&&*name) {
                fs::remove_file(entry.path()).map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// Removes the folder if this process has created it and nothing has been written to it.
    pub(crate) fn abandon(&self) {
        if self.created && is_new(&self.path) {
            fs::remove_file(self.path.join(LOCK)).and_then(|()| fs::remove_dir(&self.path)).ok();
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file of the run folder atomically.
    pub(crate) fn write(&self, name: &str, text: &str) -> Outcome<()> {
        let path = self.path.join(name);
        let written = replace(&path, temporary(&self.path, name), text);
        written.map_err(|e| unwritten(path.display(), &e))
    }
}

/// The log of a run's metrics for each epoch: the file metrics.jsonl and TensorBoard events.
pub(crate) struct Log {
    lines: File,
    events: Events,
}

impl Log {
    pub(crate) fn begin(folder: &Folder, history: &[EpochScores], config: &str) -> Outcome<Self> {
        let path = folder.path.join("metrics.jsonl");
        let wrong = |e: std::io::Error| unwritten(path.display(), &e);
        // After a resume, the old event files are removed, since the log writes the events of their epochs again.
        for entry in fs::read_dir(&folder.path).map_err(wrong)?.flatten() {
            if is_events(&entry.file_name().to_string_lossy()) {
                fs::remove_file(entry.path()).map_err(wrong)?;
            }
        }
        let mut log = Self {
            lines: create(&path).map_err(wrong)?,
            events: Events::create(&folder.path).map_err(wrong)?,
        };
        log.events.text(0, "config", &format!("```toml\n{config}\n```")).map_err(wrong)?;
        history.iter().try_for_each(|epoch| log.epoch(epoch)).map_err(wrong)?;
        log.events.flush().map_err(wrong)?;
        Ok(log)
    }

    pub(crate) fn epoch(&mut self, scores: &EpochScores) -> std::io::Result<()> {
        let EpochScores { epoch, step, rate, train, dev, best, .. } = scores;
        let [train_scores, dev_scores] = [train, dev].map(|all| all.iter().cloned().collect::<Value>());
        let line = json!({
            "epoch": epoch, "step": step, "rate": rate, "train": train_scores, "dev": dev_scores, "best": best,
        });
        let before = self.lines.stream_position()?;
        if let Err(e) = self.lines.write_all(format!("{line}\n").as_bytes()) {
            // An incomplete line is removed, since it is not valid JSON.
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
