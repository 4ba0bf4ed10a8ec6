//! The flag `--ensemble`: several runs are used as one model.

use std::path::{Path, PathBuf};

use serde_json::Value;
use unpadded::checkpoint::Checkpoint;
use unpadded_recipes::Model;

use super::outcome::{Outcome, UsageError, bad, word};
use super::{run, terminal};

/// Joins the models of runs into one model; a folder of `train --seeds` or `--folds` means all its runs.
pub(crate) fn load(paths: &[PathBuf], threads: usize) -> Outcome<Model> {
    let mut runs = Vec::new();
    for path in paths {
        runs.extend(members(path)?);
    }
    let mut model: Option<Model> = None;
    for path in &runs {
        let own = Model::load(run::checkpoint(path)?).usage()?.threads(threads);
        let noted =
            |e: unpadded::Error| e.noted(format!("run `{}` cannot join `--ensemble`", path.display()));
        model = Some(match model {
            Some(first) => first.join(own).map_err(noted).usage()?,
            None => own,
        });
    }
    match model {
        Some(model) if runs.len() > 1 => Ok(model),
        _ => bad(format!(
            "--ensemble: expected several runs, or a folder of `train --seeds` or `--folds`, got {} run",
            runs.len()
        )),
    }
}

/// Returns whether a path is a checkpoint, a run folder or a folder of several runs, rather than a file of records.
pub(crate) fn is_model(path: &Path) -> bool {
    match path.is_dir() {
        true => run::several(path) || run::is_run(path),
        false => Checkpoint::load(path).is_ok(),
    }
}

/// Returns the run folders for a path: the path itself, or, for a folder of seeds or folds, all runs that have a checkpoint.
fn members(path: &Path) -> Outcome<Vec<PathBuf>> {
    if !run::several(path) {
        return Ok(vec![path.to_owned()]);
    }
    let name = word(path);
    if path.join(run::TRIALS).is_file() {
        return bad(format!(
            "--ensemble {name}: expected runs, got a folder of `tune`: name the trials to join"
        ));
    }
    let saved = |run: &PathBuf| run::best(run).exists() || run::last(run).exists();
    let found: Vec<PathBuf> = run::members(path)?.into_iter().filter(saved).collect();
    let plural = if found.len() == 1 { "" } else { "s" };
    terminal::say(format!("--ensemble {name}: joins {} run{plural}", found.len()));
    let missing: Vec<String> =
        planned(path)?.into_iter().filter(|run| !found.contains(&path.join(run))).collect();
    if !missing.is_empty() {
        terminal::say(format!(
            "warning: {name}: no checkpoint of {}; `train --resume {name}` trains the missing runs",
            missing.join(", ")
        ));
    }
    Ok(found)
}

/// Returns the names of all run folders that `train --seeds` or `train --folds` writes to a folder; empty for other folders.
fn planned(path: &Path) -> Outcome<Vec<String>> {
    for (file, count, name) in [(run::SEEDS, "seeds", "seed"), (run::FOLDS, "folds", "fold")] {
        let file = path.join(file);
        if !file.is_file() {
            continue;
        }
        let object: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)
            .or_else(|e| bad(format!("{}: expected JSON, got: {e}", file.display())))?;
        let first = if name == "seed" { run::load_config(path)?.run.seed } else { 1 };
        // `train` takes at most 1000 seeds or folds; a file with a larger number is damaged.
        let count = object[count].as_u64().unwrap_or(0).min(1_000);
        return Ok((0..count).map(|at| format!("{name}-{}", first.saturating_add(at))).collect());
    }
    Ok(Vec::new())
}
