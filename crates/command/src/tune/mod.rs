//! The command `unpadded tune`: searches hyperparameters within a time budget.

mod budget;
mod schedule;
mod state;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use unpadded::ErrorKind;
use unpadded::metrics::Better;
use unpadded::train::{Report, StopReason};
use unpadded_recipes::{Config, Space, prepare};
use unpadded_text::{path_of_text, text_of_path};

use self::schedule::{Step, next, rungs};
use self::state::{State, Trial};
use super::outcome::{Ending, Outcome, UsageError, bad, plain, word};
use super::request::{Course, TrainingRequest};
use super::run::{self, Folder};
use super::scores::{Table, factor};
use super::terminal::{self, Console};
use super::training::{Training, check_new, parts, prepared};
use super::{file, init};

/// The maximum number of trials in the table at the end of a search, which lists the best trials first.
const ROWS: usize = 20;
/// The maximum number of draws to find a new config; if none is found, no further trial is drawn.
const DRAWS: u64 = 100;

#[derive(Args)]
#[command(after_help = "\
Examples:
  unpadded tune --train reviews.tsv --budget 30m        the settings that matter most for the task
  unpadded init classify --space > space.toml           a config with a table [space] to edit
  unpadded tune space.toml --budget 2h
  unpadded tune --resume runs/tune-1                    continues an interrupted search
  unpadded tune --resume runs/tune-1 --budget 4h        continues until 4 hours are used in all
  unpadded train runs/tune-1/best.toml --test test.tsv  the best settings, tested once
Random search with successive halving: each trial trains a ninth of the epochs, the best third of the trials trains a
third of the epochs, and the best third of these trains all epochs. Trial 1 is the config without drawn values. Trials
continue from their checkpoints; a learning-rate schedule is over all epochs from the start. A trial that would not fit
into the budget is not begun, and training stops when the budget ends. Each trial has a run folder (trial-1 …) inside one
folder, beside tune.json (the state) and best.toml. The test set is for the end: --test is refused. Equal seeds draw
equal settings. --json writes `value` (in percent if it is a share), `best` (the run folder), `config`, and `trials`, whose
values are shares.")]
pub(crate) struct Tune {
    #[command(flatten)]
    wanted: TrainingRequest,
    /// Time budget of the search: 90s, 30m, 2h or 1h30m; with --resume, of the whole search
    #[arg(long, value_name = "TIME", value_parser = budget::parse, required_unless_present = "resume")]
    budget: Option<Duration>,
    /// Trials at most [default: as many as the budget allows, up to 1000]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    trials: Option<u64>,
    #[command(flatten)]
    course: Course,
    #[arg(long, value_name = "PATH", value_parser = init::path(), hide = true)]
    test: Option<String>,
    /// Folder of the trials [default: the first runs/tune-NUMBER that does not exist]
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    run: Option<PathBuf>,
    /// Resume the search of this folder
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["config", "task", "from", "train", "dev", "set", "epochs", "seed"])]
    resume: Option<PathBuf>,
    #[command(flatten)]
    console: Console,
}

struct Search<'a> {
    folder: &'a Folder,
    config: Config,
    space: Space,
    state: State,
    console: Console,
    /// The seconds that earlier commands used for the search, and the start of this command.
    before: f64,
    begun: Instant,
}

impl Tune {
    pub(crate) fn run(self) -> Outcome<Ending> {
        let (config, space, path) = self.wanted()?;
        let state = match &self.resume {
            Some(_) => {
                let file = path.join(run::TRIALS);
                let text = std::fs::read_to_string(&file)?;
                let known = State::of(&text);
                let state = known.or_else(|got| {
                    bad(format!("{}: expected a state of `tune`, got {got}", file.display()))
                })?;
                let budget = self.budget.map_or(state.budget, |budget| budget.as_secs_f64());
                State { budget, most: self.trials.or(state.most), ..state }
            }
            None => {
                // The whole config is checked before the command writes a file.
                let (.., facts) = parts(prepare(&config).usage()?);
                check_new(&path, false)?;
                State {
                    seed: config.run.seed,
                    budget: self.budget.unwrap_or_default().as_secs_f64(),
                    most: self.trials,
                    used: 0.0,
                    metric: facts.metric.to_owned(),
                    unit: facts.unit,
                    higher: None,
                    rungs: rungs(config.training.epochs),
                    trials: Vec::new(),
                }
            }
        };
        let folder = Folder::take(path)?;
        if self.resume.is_none() {
            folder.write("config.toml", &format!("{}\n[space]\n{space}", config.commented()))?;
        }
        if !self.console.quiet {
            terminal::say(format!("folder of the trials: {}", text_of_path(folder.path())));
            let names: Vec<&str> = space.names().collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            terminal::say(format!("settings that vary: {names}"));
        }
        let (before, begun) = (state.used, Instant::now());
        let mut search =
            Search { folder: &folder, config, space, state, console: self.console, before, begun };
        search.save()?;
        loop {
            let drawn = search.drawn();
            let (at, rung) = match next(&search.state, drawn.is_some()) {
                Step::End => break,
                Step::Train(at, rung) => (at, rung),
                Step::Draw => {
                    search.state.trials.extend(drawn);
                    (search.state.trials.len() - 1, 1)
                }
            };
            let interrupted = search.train(at, rung)?;
            search.save()?;
            if interrupted {
                terminal::say(format!("tune --resume {} continues the search", word(folder.path())));
                return Ok(Ending::Interrupted);
            }
        }
        search.conclude()
    }

    /// Returns the config, the search space and the folder of the search.
    fn wanted(&self) -> Outcome<(Config, Space, PathBuf)> {
        let (config, space, path) = match &self.resume {
            Some(folder) => {
                let name = folder.display();
                if !folder.join(run::TRIALS).is_file() {
                    return bad(format!(
                        "--resume {name}: expected a folder of `tune` with a {}, got none",
                        run::TRIALS
                    ));
                }
                let known = file::resumed(folder)?;
                let space = Space::load(run::config(folder)).usage()?.unwrap_or_default();
                (self.wanted.over(known)?, space, folder.clone())
            }
            None => {
                let space = self.wanted.config.as_ref().map(Space::load).transpose().usage()?.flatten();
                let mut config = self.wanted.config()?;
                self.course.over(&mut config);
                config.check().usage()?;
                let space = match space {
                    Some(space) => {
                        if let Some(name) = space.names().find(|name| self.wanted.sets(name)) {
                            return bad(format!(
                                "--set {name}: expected a setting that does not vary, got a setting of `[space]`: remove it from the \
                                 flags, or from `[space]`"
                            ));
                        }
                        space
                    }
                    None => Space::of(&config).usage()?.without(|name| self.wanted.sets(name)),
                };
                let path = self.run.clone().unwrap_or_else(|| run::free("tune"));
                (config, space, path)
            }
        };
        if let Some(test) = self.test.as_ref().or(config.data.test.as_ref()) {
            return bad(format!(
                "test set: expected none while settings are searched, got `{test}`: the test set must not choose settings; \
                 `unpadded train {} --test {}` scores it at the end",
                word(path.join("best.toml")),
                word(path_of_text(test))
            ));
        }
        Ok((config, space, path))
    }
}

impl Search<'_> {
    /// Saves the state of the search, so that `tune --resume` can continue the search.
    fn save(&mut self) -> Outcome<()> {
        self.state.used = self.before + self.begun.elapsed().as_secs_f64();
        self.folder.write(run::TRIALS, &format!("{}\n", self.state.object()))
    }

    /// Returns the config of a trial: the unchanged config for trial 1, a config with drawn values for other trials.
    fn config(&self, trial: &Trial) -> unpadded::Result<Config> {
        match trial.draw {
            0 => Ok(self.config.clone()),
            draw => self.space.draw(&self.config, self.state.seed, draw),
        }
    }

    /// Draws the next trial; `None` if no draw gives a config that differs from all earlier trials.
    fn drawn(&self) -> Option<Trial> {
        let settings = |config: &Config| -> Vec<(String, Value)> {
            let value_of = |name: &str| Some((name.to_owned(), state::value(&config.get(name)?)));
            self.space.names().filter_map(value_of).collect()
        };
        let number = self.state.trials.len() as u64 + 1;
        let first = self.state.trials.last().map_or(0, |trial| trial.draw + 1);
        let known: BTreeSet<String> =
            self.state.trials.iter().map(|trial| format!("{:?}", trial.settings)).collect();
        (first..=first + DRAWS).find_map(|draw| {
            let trial = Trial { number, draw, ..Trial::default() };
            let settings = settings(&self.config(&trial).ok()?);
            (!known.contains(&format!("{settings:?}"))).then_some(Trial { settings, ..trial })
        })
    }

    /// Trains the trial at index `at` up to rung `rung`. Returns whether a signal interrupted the training of the trial.
    fn train(&mut self, at: usize, rung: usize) -> Outcome<bool> {
        let Some(trial) = self.state.trials.get_mut(at) else { return Ok(false) };
        trial.toward = rung;
        let trial = trial.clone();
        self.save()?;
        let begun = Instant::now();
        let outcome = self.fitted(&trial, rung);
        let seconds = begun.elapsed().as_secs_f64();
        let over = self.before + self.begun.elapsed().as_secs_f64() >= self.state.budget;
        let last = self.state.rungs.len();
        let (mut interrupted, mut trial) = (false, trial);
        trial.seconds += seconds;
        match outcome {
            Ok((report, better)) => {
                trial.epochs = report.epochs;
                trial.best = report.best.map(|best| (best.value, best.epoch));
                let higher = better.map(|better| better == Better::Higher);
                self.state.higher = self.state.higher.or(higher);
                let was_interrupted = report.ended == StopReason::Interrupted;
                interrupted = was_interrupted && !over;
                if !was_interrupted {
                    // Early stopping has ended the training of this trial, so the trial has reached the last rung.
                    trial.rungs = if report.ended == StopReason::Early { last } else { rung };
                    trial.toward = 0;
                }
                self.report(&trial, report.ended);
            }
            Err(e) => {
                let wrong = e.downcast_ref::<unpadded::Error>().filter(|e| e.kind() != ErrorKind::Io);
                let Some(why) = wrong.map(plain) else { return Err(e) };
                if !self.console.quiet {
                    terminal::say(format!("trial {} failed: {why}", trial.number));
                }
                (trial.failed, trial.toward) = (Some(why), 0);
            }
        }
        if let Some(known) = self.state.trials.get_mut(at) {
            *known = trial;
        }
        Ok(interrupted)
    }

    /// Trains a trial up to rung `rung`; after a complete training, also writes its report.
    fn fitted(&self, trial: &Trial, rung: usize) -> Outcome<(Report, Option<Better>)> {
        let config = self.config(trial)?;
        config.check()?;
        let path = self.folder.path().join(trial.name());
        let prepared = prepared(&config, &path)?;
        if trial.number == 1 && rung == 1 && !self.console.quiet {
            prepared.messages.iter().for_each(terminal::say);
        }
        let folder = Folder::take(path)?;
        let resumes = run::last(folder.path()).is_file();
        let left = (self.state.budget - self.before).max(0.0);
        let deadline = Duration::try_from_secs_f64(left).ok().and_then(|left| self.begun.checked_add(left));
        let training = Training { config: &config, folder: &folder, resumes, quiet: true, deadline };
        let epochs = rung.checked_sub(1).and_then(|at| self.state.rungs.get(at)).copied();
        let mut fitted = training.fit(prepared, epochs.unwrap_or(config.training.epochs), &mut None)?;
        let (ended, better) = (fitted.report.ended, fitted.report.best.and(fitted.facts.better));
        fitted.facts.test = None;
        let whole = ended == StopReason::Done && fitted.report.epochs >= config.training.epochs;
        let report = match whole || ended == StopReason::Early {
            true => training.finish(fitted)?.report,
            false => fitted.report,
        };
        Ok((report, better))
    }

    fn report(&self, trial: &Trial, ended: StopReason) {
        if self.console.quiet {
            return;
        }
        let state = &self.state;
        let value = trial.best.map_or("no epoch".to_owned(), |(value, _)| state.shown(value));
        let why = match ended {
            StopReason::Early => ", stopped early",
            StopReason::Interrupted => ", interrupted",
            _ => "",
        };
        let left = state.budget - self.before - self.begun.elapsed().as_secs_f64();
        let [left, budget] = [left, state.budget].map(budget::shown);
        let (Trial { number, epochs, .. }, all) = (trial, self.config.training.epochs);
        let metric = &state.metric;
        terminal::say(format!(
            "trial {number}: {epochs} of {all} epochs{why}, held-out {metric} {value}; {left} of {budget} left"
        ));
    }

    /// Writes the config of the best trial to best.toml, and prints the table of the trials.
    fn conclude(&self) -> Outcome<Ending> {
        let (state, console, at) = (&self.state, self.console, self.folder.path());
        let ranked = state.ranked();
        let Some((best, (value, epoch))) = ranked.first().and_then(|best| Some((*best, best.best?))) else {
            let failed = state.trials.iter().find_map(|trial| trial.failed.as_deref());
            let advice = match failed {
                Some(why) => format!("trials failed: {why}"),
                None => {
                    format!("`unpadded tune --resume {} --budget` with a longer time continues", word(at))
                }
            };
            return Err(format!(
                "trials of `{}`: expected a trial with a finished epoch within {}, got none; {advice}",
                at.display(),
                budget::shown(state.budget)
            )
            .into());
        };
        let config = self.config(best)?;
        let epochs = config.training.epochs;
        let (metric, shown, Trial { number, epochs: all, .. }) = (&state.metric, state.shown(value), best);
        let message = format!("trial {number}, held-out {metric} {shown} in epoch {epoch} of {all}");
        let toml = config.commented();
        self.folder.write(
            "best.toml",
            &format!("# The best of {} trials: {message}.\n{toml}", state.trials.len()),
        )?;
        self.table(&ranked)?.print(console)?;
        console.more("")?;
        console.result(format!("best: {message}"))?;
        let (toml, folder) = (word(at.join("best.toml")), at.join(best.name()));
        let trial = word(&folder);
        if best.epochs < epochs && best.rungs < state.rungs.len() {
            console.more(format!(
                "the best trial trained {} of {epochs} epochs: `unpadded train --resume {trial}` trains the remaining epochs",
                best.epochs
            ))?;
        }
        console.more(format!("train it: unpadded train {toml}\nask it:   unpadded predict {trial}"))?;
        let percent = factor(state.unit);
        console.object(|| {
            json!({
                "task": self.config.run.task.name(), "metric": state.metric, "value": percent * value,
                "epoch": epoch, "best": text_of_path(&folder),
                "config": text_of_path(at.join("best.toml")), "seconds": state.used,
                "trials": state.object()["trials"], "run": text_of_path(at),
            })
        })?;
        Ok(Ending::Done)
    }

    /// Returns a table of at most 20 trials, the best first, with the settings that vary.
    fn table(&self, ranked: &[&Trial]) -> Outcome<Table> {
        let state = &self.state;
        let held_out = format!("held-out {}", state.metric);
        let mut table = Table::new("", &["trial", "epochs", &held_out, "seconds"]);
        let names: Vec<&str> = self.space.names().collect();
        let short = |name: &&str| name.rsplit('.').next().unwrap_or_default().to_owned();
        table.head.extend(names.iter().map(short));
        for trial in ranked.iter().take(ROWS) {
            let value = trial.best.map_or_else(String::new, |(value, _)| state.shown(value));
            let number = if trial.draw == 0 { "1 (as it is)".to_owned() } else { trial.number.to_string() };
            let mut row = vec![number, trial.epochs.to_string(), value, format!("{:.0}", trial.seconds)];
            let setting_of = |name: &&str| trial.settings.iter().find(|(known, _)| known == name);
            let shown = |(_, value): &(String, Value)| match value {
                Value::String(text) => terminal::shown(text),
                other => other.to_string(),
            };
            row.extend(names.iter().map(|name| setting_of(name).map_or_else(|| "–".to_owned(), shown)));
            table.rows.push(row);
        }
        let failed = state.trials.iter().filter(|trial| trial.failed.is_some()).count();
        if ranked.len() > ROWS {
            table.notes.push(format!("{} more; {} has all", ranked.len() - ROWS, run::TRIALS));
        }
        if failed > 0 {
            table.notes.push(format!("failed trials: {failed} (reasons in {})", run::TRIALS));
        }
        Ok(table)
    }
}
