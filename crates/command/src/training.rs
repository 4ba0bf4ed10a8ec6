//! One training in its run folder: the files that it writes, and its scores.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Instant;

use serde_json::Value;
use unpadded::checkpoint::Checkpoint;
use unpadded::data::Data;
use unpadded::executor::Profile;
use unpadded::metrics::Metric;
use unpadded::parallel::World;
use unpadded::train::{Progress, Report, StopReason, Trainer, Until};
use unpadded::{ErrorKind, Precision};
use unpadded_recipes::{Config, Evaluation, Model, Preparation, finished, prepare, prepare_resumed};
use unpadded_text::text_of_path;

use super::findings::{ScoredTraining, TrainingFacts};
use super::interrupts::until_signal;
use super::outcome::{Outcome, UsageError, bad, unwritten, word};
use super::run::{self, Folder, Log};
use super::{memory, ranks, report, scores as show, terminal};

pub(crate) struct Training<'a> {
    pub(crate) config: &'a Config,
    pub(crate) folder: &'a Folder,
    /// Whether the training continues from the training checkpoint in the folder.
    pub(crate) resumes: bool,
    pub(crate) quiet: bool,
    /// The time at which the training is interrupted; `None` if there is no time limit.
    pub(crate) deadline: Option<Instant>,
}

pub(crate) struct TrainingResult {
    pub(crate) report: Report,
    /// The model of the best epoch, as in best.ckpt; `None` if no epoch has ended.
    best: Option<Checkpoint>,
    profile: Option<Profile>,
    /// Whether nothing was trained, and all files of the run were already written.
    settled: bool,
    pub(crate) facts: TrainingFacts,
}

/// Prepares a training in a run folder: continues from the training checkpoint if the folder has one, else begins.
pub(crate) fn prepared(config: &Config, folder: &Path) -> unpadded::Result<Preparation> {
    let last = run::last(folder);
    if last.is_file() { prepare_resumed(config, last) } else { prepare(config) }
}

/// Divides a prepared training into the trainer, the training and held-out data, and the facts for scores and the report.
pub(crate) fn parts(prepared: Preparation) -> (Trainer, [Box<dyn Data>; 2], TrainingFacts) {
    let Preparation { trainer, train, dev, test, name, metric, lengths, held_out, .. } = prepared;
    let (score_held_out, skipped) = (prepared.score_held_out, prepared.skipped);
    let selected = trainer.selected();
    let (unit, better) = (selected.map(Metric::unit).unwrap_or_default(), selected.map(Metric::better));
    let facts =
        TrainingFacts { name, metric, unit, better, test, lengths, held_out, score_held_out, skipped };
    (trainer, [train, dev], facts)
}

impl Training<'_> {
    /// Trains until `epochs` epochs have ended, and writes config, metrics and checkpoints to the run folder.
    pub(crate) fn fit(
        &self,
        prepared: Preparation,
        epochs: u64,
        world: &mut Option<World>,
    ) -> Outcome<TrainingResult> {
        let Self { config, folder, resumes, quiet, deadline } = *self;
        let (mut trainer, [train, dev], facts) = parts(prepared);
        let last = run::last(folder.path());
        trainer = trainer.checkpoint(&last);
        if quiet {
            trainer = trainer.progress(Progress::Quiet);
        }
        if let (None, false) = (config.run.memory, resumes) {
            trainer = memory::limited(trainer);
        }
        if let Some(world) = world {
            trainer = ranks::distributed(trainer, world)?;
        }
        if resumes {
            let anew = |e: unpadded::Error| match e.kind() {
                ErrorKind::Memory => e,
                _ => self.trains_anew(e),
            };
            trainer.resume(&last).map_err(anew).usage()?;
            trainer.check_data(&*train, &*dev).map_err(anew).usage()?;
        } else {
            // An earlier run in the folder is removed only if this training can begin.
            trainer.check_data(&*train, &*dev).inspect_err(|_| folder.abandon())?;
            folder.clear()?;
        }
        let [best, page, held, test] =
            ["best.ckpt", "report.html", "held_out.json", "test.json"].map(|name| folder.path().join(name));
        let at = trainer.position();
        let is_over = at.epoch >= epochs || (1..=at.since_best).contains(&config.training.patience);
        let scored =
            (facts.score_held_out.is_none() || held.is_file()) && (facts.test.is_none() || test.is_file());
        let settled = resumes && is_over && scored && best.is_file() && page.is_file();
        if resumes && !is_over {
            self.say_rate();
        }
        let log = if settled {
            None
        } else {
            // The resumed training may find a better epoch; last.ckpt also contains the best parameters.
            [best, page, held, test].iter().for_each(|path| drop(std::fs::remove_file(path)));
            folder.write("config.toml", &config.commented())?;
            if !facts.skipped.is_empty() {
                folder.write(run::SKIPPED, &run::skipped(&facts.skipped))?;
            }
            Some(Log::begin(folder, trainer.history(), &config.to_toml())?)
        };
        let log = Rc::new(RefCell::new((log, None)));
        let to = log.clone();
        trainer = trainer.on_epoch(move |epoch| {
            let mut to = to.borrow_mut();
            match to.0.as_mut().map_or(Ok(()), |log| log.epoch(epoch)) {
                Ok(()) => ControlFlow::Continue(()),
                // If the log cannot be written, as on a full disk, the training ends after its checkpoint is saved.
                Err(e) => {
                    to.1 = Some(e);
                    ControlFlow::Break(())
                }
            }
        });
        trainer.start_profile()?;
        let alarm = deadline.map(|deadline| alarm(trainer.stop_flag(), deadline));
        let report = trainer.fit(&*train, &*dev, Until::Epochs(epochs));
        drop(alarm);
        let report = report.map_err(|e| match e.kind() {
            ErrorKind::NotFinite => {
                let training = &self.config.training;
                e.noted(format!(
                    "a smaller `training.rate` (it is {}) or `training.clip` (it is {}) keeps numbers finite",
                    training.rate, training.clip
                ))
            }
            _ => e,
        })?;
        let profile = trainer.take_profile();
        let best = match report.history.is_empty() {
            true => Ok(None),
            false => trainer.for_inference().map(Some),
        };
        let kept = |best: unpadded::Result<Option<Checkpoint>>| {
            let Some(best) = best? else { return Ok(None) };
            let best = finished(best, &*dev)?;
            let saved = if settled { Ok(()) } else { best.save(run::best(folder.path())) };
            saved.map(|()| Some(best))
        };
        if report.ended == StopReason::Interrupted {
            // The best checkpoint is saved before MPI is closed, since closing may block until `mpirun` kills this process.
            return Ok(TrainingResult { report, best: kept(best)?, profile, settled, facts });
        }
        // The process leaves the world of processes here, so that the other processes end without waiting for the report.
        drop((trainer, world.take()));
        if let Some(e) = log.borrow_mut().1.take() {
            return Err(unwritten(format!("metrics of `{}`", folder.path().display()), &e));
        }
        Ok(TrainingResult { report, best: kept(best)?, profile, settled, facts })
    }

    /// Reports a learning rate or a schedule that differs from the training so far.
    fn say_rate(&self) {
        let Ok(before) = run::load_config(self.folder.path()) else { return };
        for key in ["training.rate", "training.schedule"] {
            if let ([Some(was), Some(is)], false) =
                ([&before, self.config].map(|config| config.get(key)), self.quiet)
                && was != is
            {
                terminal::say(format!("{key}: {was} in the training so far, {is} from here on"));
            }
        }
    }

    /// Adds the settings that differ from the checkpoint, and the commands that train with them, to an error of a resume.
    fn trains_anew(&self, mut e: unpadded::Error) -> unpadded::Error {
        let path = self.folder.path();
        let saved = Checkpoint::load(run::last(path)).ok();
        let saved = saved.and_then(|saved| Config::from_toml(saved.notes.get("config")?).ok());
        let value = |run_config: &Config, key: &str| {
            run_config.get(key).map_or("none".to_owned(), |value| value.to_string())
        };
        let mut flags = String::new();
        for key in Config::keys(self.config.run.task).map(|key| key.to_string()) {
            let now = value(self.config, &key);
            let before = saved.as_ref().map_or_else(|| now.clone(), |saved| value(saved, &key));
            if now != before {
                e = e.noted(format!("`{key}` was {before}, and is {now}"));
                if key == "decoding.threshold" {
                    e = e.noted("`predict` and `eval` take `--set decoding.threshold=…` without a training");
                }
                // No flag removes a setting.
                if let Some(now) = self.config.get(&key) {
                    flags += &format!(" --set {}", word(format!("{key}={now}")));
                }
            }
        }
        let (config, run) = (word(run::config(path)), word(path));
        e = e.noted(format!("`unpadded train {config}{flags} --run NEW` trains anew"));
        match run::best(path).is_file() {
            true => e.noted(format!("`unpadded train --from {run} --run NEW` starts from the trained model")),
            false => e,
        }
    }

    /// Writes the report of an interrupted training; before the end of the first epoch, the report has no scores.
    pub(crate) fn interrupted(&self, mut fitted: TrainingResult) -> Outcome<()> {
        fitted.facts.test = None;
        match fitted.best {
            Some(_) => self.finish(fitted).map(drop),
            None => {
                let mut page = fitted.facts.page(self.config, &fitted.report);
                page.facts.push(self.interruption(&fitted.report));
                self.folder.write("report.html", &report::html(&page))
            }
        }
    }

    /// Returns the fact, for a report, that a training was interrupted.
    fn interruption(&self, report: &Report) -> (String, String) {
        let (after, all) = (report.epochs, self.config.training.epochs);
        let run = word(self.folder.path());
        let message = format!("after {after} of {all} epochs; `unpadded train --resume {run}` continues");
        ("interrupted".to_owned(), message)
    }

    /// Scores the best epoch's model on the held-out texts and on the test set, and writes the report.
    pub(crate) fn finish(&self, fitted: TrainingResult) -> Outcome<ScoredTraining> {
        let Self { config, folder, .. } = *self;
        let TrainingResult { report, best, profile, settled, mut facts } = fitted;
        let write = |name, text: String| if settled { Ok(()) } else { folder.write(name, &text) };
        let keep = |file, dataset: &str, scored: Evaluation| -> Outcome<(Evaluation, Value)> {
            let object = show::object(dataset, &scored);
            write(file, format!("{object}\n"))?;
            Ok((scored, object))
        };
        let Some(best) = best else {
            let run = folder.path().display();
            return Err(
                format!("model of `{run}`: expected a training with a finished epoch, got none").into()
            );
        };
        let value = report.best.map_or(f64::NAN, |best| best.value);
        let model = Model::new(best.clone())?;
        let run = word(folder.path());
        let (score, test) = (facts.score_held_out.take(), facts.test.clone());
        let (held, tested, untested) = (None, None, None);
        let mut scored = ScoredTraining { facts, report, model, value, profile, held, tested, untested };
        let write_report = |scored: &ScoredTraining, best, note: Option<&str>| {
            let mut page = scored.page(config, best)?;
            let note = note.map(|note| ("interrupted".to_owned(), note.replacen("interrupted ", "", 1)));
            let ended =
                (scored.report.ended == StopReason::Interrupted).then(|| self.interruption(&scored.report));
            page.facts.extend(note.or(ended));
            write("report.html", report::html(&page))
        };
        let note = format!(
            "interrupted while scoring the held-out texts: the model is saved; `unpadded train --resume {run}` writes the whole report"
        );
        let end = || write_report(&scored, best.clone(), Some(&note));
        let predictor = scored.model.predictor();
        let held = score.map(|score| until_signal(&note, end, || score(predictor))).transpose()?;
        match held {
            Some(Ok(held)) => {
                scored.held = Some(keep("held_out.json", &scored.facts.held_out.name, held)?);
            }
            // The training itself has succeeded, so its results are written without the table.
            Some(Err(e)) => {
                terminal::say(format!("warning: the held-out texts could not be scored: {e}"));
            }
            None => {}
        }
        if let Some(path) = test {
            let mut config = config.clone();
            let (file, path) = (word(&path), text_of_path(path));
            config.data.test = Some(path.clone());
            let note = format!(
                "interrupted while scoring `{path}`: the training has ended, and its model is saved; `unpadded eval {run} {file}` scores it"
            );
            let end = || write_report(&scored, best.clone(), Some(&note));
            let model = &scored.model;
            match until_signal(&note, end, || unpadded_recipes::scores(&config, model))? {
                Ok(tested) => scored.tested = Some(keep("test.json", &path, tested)?),
                // The training has succeeded, so its results are written before this error is reported.
                Err(e) => {
                    scored.untested = Some(e.noted(format!(
                        "the run is saved: `unpadded eval {run} {file}` computes the test scores later"
                    )));
                }
            }
        }
        write_report(&scored, best, None)?;
        Ok(scored)
    }
}

/// Returns a note for the held-out figure of a training in bf16, since the model predicts in f32.
pub(crate) fn computed_in(precision: Precision) -> &'static str {
    if precision == Precision::Bf16 { " (computed in bf16; the model predicts in f32)" } else { "" }
}

/// Checks that a training may begin in a folder: it is new, or the user allows to overwrite its run.
pub(crate) fn check_new(path: &Path, overwrite: bool) -> Outcome<()> {
    if run::is_new(path) {
        return Ok(());
    }
    let name = word(path);
    if !run::is_run(path) {
        let expected = "expected a new or empty folder, or with --overwrite a run folder";
        let command = if path.join(run::TRIALS).is_file() { "tune" } else { "train" };
        return bad(match run::several(path) {
            true => format!(
                "--run {name}: expected a new folder, got a folder of several runs; `unpadded {command} --resume {name}` continues these runs"
            ),
            false => format!("--run {name}: {expected}, got a folder with other files"),
        });
    }
    if !overwrite {
        let advice = match run::last(path).is_file() {
            true => format!("--resume {name} continues the run, --overwrite replaces it"),
            false => "nothing was saved in the folder yet; --overwrite replaces the run".to_owned(),
        };
        return bad(format!("--run {name}: expected a new folder, got a run folder; {advice}"));
    }
    Ok(())
}

/// Sets the stop flag of a training at the time `at`, unless the returned sender is dropped before this time.
fn alarm(stop: Arc<AtomicBool>, at: Instant) -> Sender<()> {
    let (end, ended) = channel();
    std::thread::spawn(move || {
        let left = at.saturating_duration_since(Instant::now());
        if ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
            stop.store(true, Ordering::SeqCst);
        }
    });
    end
}
