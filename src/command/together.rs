//! `--ensemble`: several runs that answer together.

use std::path::{Path, PathBuf};

use super::outcome::{Asked, Outcome, bad};
use super::run;
use unpadded::checkpoint::Checkpoint;
use unpadded::recipes::Model;

/// The models of these runs as one. A folder of seeds or folds is all runs in it.
pub(crate) fn load(paths: &[PathBuf], threads: usize) -> Outcome<Model> {
    let mut runs = Vec::new();
    for path in paths {
        runs.extend(members(path)?);
    }
    let mut model: Option<Model> = None;
    for path in &runs {
        let own = Model::load(run::checkpoint(path)?).asked()?.threads(threads);
        let of = |e: unpadded::Error| e.noted(format!("run `{}` cannot join `--ensemble`", path.display()));
        model = Some(match model {
            Some(first) => first.join(own).map_err(of).asked()?,
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

/// Whether a path is a model or a folder of models, and no file of records.
pub(crate) fn is_model(path: &Path) -> bool {
    match path.is_dir() {
        true => run::several(path) || run::checkpoint(path).is_ok(),
        false => Checkpoint::load(path).is_ok(),
    }
}

/// The run folders of a path: of a folder of seeds or folds all that have a checkpoint, by number.
fn members(path: &Path) -> Outcome<Vec<PathBuf>> {
    if !run::several(path) {
        return Ok(vec![path.to_owned()]);
    }
    let name = path.display();
    if path.join(run::TRIALS).is_file() {
        return bad(format!(
            "--ensemble {name}: expected runs, got a folder of `tune`: name the trials to join"
        ));
    }
    let wrong = |e: std::io::Error| format!("{name}: {e}");
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(path).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| {
            let number = ["seed-", "fold-"].into_iter().find_map(|kind| name.strip_prefix(kind))?;
            number.parse().ok()
        });
        found.extend(number.filter(|_| run::checkpoint(&entry.path()).is_ok()).map(|n| (n, entry.path())));
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}
