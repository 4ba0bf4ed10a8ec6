//! `unpadded train`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use unpadded::parallel::World;
use unpadded::train::{Progress, Report, StopReason, Until};
use unpadded_recipes::{Answer, ByteSize, Case, Config, Preparation, Truth, prepare_within};
use unpadded_text::{Fold, text_of_path};

use super::findings::{ScoredTraining, TrainingFacts};
use super::outcome::{Ending, Outcome, UsageError, bad, message, word};
use super::repeated::{Kind, RepeatedTraining};
use super::request::{Course, TrainingRequest};
use super::run::{self, Folder};
use super::terminal::{self, Console};
use super::training::{Training, check_new, computed_in};
use super::{file, init, ranks, scores as show};

#[derive(Args)]
#[command(after_help = "\
Examples:
  unpadded train                                    on the reviews that come with it
  unpadded train reviews.toml                       as a config says (`unpadded init` writes one)
  unpadded train --train reviews.tsv --epochs 5     lines of text<TAB>label; a tenth is held out
  unpadded train --task tag --train train.conll --dev dev.conll
  unpadded train --from runs/classify-1 --train new.tsv   fine-tuning: starts from a trained model
  unpadded train --task classify --from runs/lm-1 --train reviews.tsv   over a language model
  unpadded train --train reviews.tsv --seeds 5      five trainings: mean and standard deviation
  unpadded train --train reviews.tsv --folds 5      cross-validation: each fold is held out once
  unpadded train --resume runs/classify-1           continues an interrupted training
--json writes `value` (in percent if it is a share), `held_out_scores`, `test_scores`, and `run`, the run folder.
--seeds and --folds write one run folder per training inside one folder (seed-1, fold-1 …). With --json, `value` and
`test` are means, `deviation` and `test_deviation` are standard deviations (n − 1), and `runs` has the figures of each run.
Without --dev, each seed also holds out other texts. A fold's figure is of the best epoch, which is chosen on the same fold.")]
pub(crate) struct Train {
    #[command(flatten)]
    wanted: TrainingRequest,
    #[command(flatten)]
    course: Course,
    /// Test data, scored once at the end, with the model of the best epoch
    #[arg(long, value_name = "PATH", value_parser = init::path())]
    test: Option<String>,
    /// Run folder for checkpoints, metrics and report [default: the first runs/TASK-NUMBER that does not exist]
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    run: Option<PathBuf>,
    /// Resume the interrupted training of this run folder, to bit-identical results
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["config", "task", "from", "train", "dev", "test"])]
    resume: Option<PathBuf>,
    /// Seeds: train this many times, with --seed and the seeds after it; prints the mean and the standard deviation
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(2..=1_000), conflicts_with_all = ["folds", "resume"])]
    seeds: Option<u64>,
    /// Cross-validation: divide the texts into this many folds, and hold out each fold once; equal texts are in one fold, and
    /// labels are spread equally
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(2..=Fold::MOST), conflicts_with_all = ["dev", "resume"])]
    folds: Option<u64>,
    /// Overwrite the run in the folder
    #[arg(long, requires = "run", conflicts_with_all = ["resume", "seeds", "folds"])]
    overwrite: bool,
    /// Deadline in seconds: how long a process waits for another process before all end with an error; it must exceed the time in
    /// which rank 0 saves a checkpoint
    #[cfg(feature = "mpi")]
    #[arg(long, allow_negative_numbers = true, value_name = "SECONDS", default_value = "300", value_parser = super::request::whole::<u64>)]
    deadline: u64,
    #[command(flatten)]
    console: Console,
}

impl Train {
    /// Returns the requested config: a config file or the defaults of the task, changed by the flags.
    fn config(&self) -> Outcome<Config> {
        let mut config = match &self.resume {
            Some(folder) if !run::several(folder) && !run::last(folder).is_file() => {
                run::check_file(&run::last(folder))?;
                let name = word(folder);
                let got = match run::is_run(folder) {
                    true => format!("none: nothing was saved yet; --run {name} --overwrite begins anew"),
                    false => "none".to_owned(),
                };
                return bad(format!("--resume {name}: expected a run folder with a last.ckpt, got {got}"));
            }
            Some(folder) => self.wanted.over(file::resumed(folder)?)?,
            None => self.wanted.config()?,
        };
        self.course.over(&mut config);
        if self.test.is_some() {
            config.data.test.clone_from(&self.test);
        }
        config.check().usage()?;
        Ok(config)
    }

    /// Returns the repeated training that the flags or the resumed folder request; `None` for a single training.
    fn repeated(&self) -> Outcome<Option<RepeatedTraining>> {
        let count = self.seeds.map(|count| (Kind::SEEDS, count));
        let count = count.or(self.folds.map(|count| (Kind::FOLDS, count)));
        let repeated = match (&self.resume, count) {
            (Some(folder), _) if run::several(folder) => {
                RepeatedTraining::resumed(folder, self.config()?, self.console)
            }
            (None, Some((kind, count))) => {
                RepeatedTraining::new(kind, count, self.config()?, self.run.clone(), self.console)
            }
            _ => return Ok(None),
        };
        repeated.map(Some)
    }

    pub(crate) fn run(&self) -> Outcome<Ending> {
        if let Some(repeated) = self.repeated()? {
            ranks::alone()?;
            return repeated.run();
        }
        #[cfg(feature = "mpi")]
        let mut world = ranks::world(self.deadline)?;
        #[cfg(not(feature = "mpi"))]
        let mut world = ranks::world()?;
        let outcome = self.train(&mut world);
        // The other processes wait for this process, so the error is sent to all of them.
        if let (Err(error), Some(world)) = (&outcome, &world) {
            world.leave(&message(&**error));
        }
        outcome
    }

    /// Trains a model, alone or as one process of a distributed training, whose world it leaves at the end.
    fn train(&self, world: &mut Option<World>) -> Outcome<Ending> {
        let first = world.as_ref().is_none_or(|world| world.rank() == 0);
        let mut config = match world {
            None => self.config()?,
            Some(world) => {
                // Only the host of rank 0 has the run folder, so the others get a resumed config from rank 0.
                let own = if first || self.resume.is_none() { Some(self.config()?) } else { None };
                ranks::agreed(world, own, self.resume.is_some())?
            }
        };
        // The whole request is checked before the command writes a file.
        let last = self.resume.as_deref().map(run::last);
        let memory = ranks::memory(world.as_ref(), &config, last.as_deref())?;
        if let Some(set) = config.run.memory.filter(|set| last.is_some() && set.bytes() != memory) {
            let known = ByteSize::of_bytes(memory);
            if first && !self.console.quiet {
                terminal::say(format!("memory limit: {known}, as in the training so far; {set} is ignored"));
            }
            config.run.memory = Some(known);
        }
        let prepared = prepare_within(&config, last.as_deref(), memory);
        let prepared = match &self.resume {
            Some(_) => prepared.usage()?,
            None => prepared.map_err(|e| self.wanted.of_task(&config, e)).usage()?,
        };
        if let (false, Some(world)) = (first, &*world) {
            let trainer = ranks::distributed(prepared.trainer, world)?;
            let until = Until::Epochs(config.training.epochs);
            trainer.progress(Progress::Quiet).fit(&*prepared.train, &*prepared.dev, until)?;
            // Only rank 0 reports an interrupt: a nonzero exit code of another rank would make `mpirun` end rank 0.
            return Ok(Ending::Done);
        }
        let path = self.resume.clone().or_else(|| self.run.clone());
        let path = path.unwrap_or_else(|| run::free(config.run.task.name()));
        if self.resume.is_none() {
            check_new(&path, self.overwrite)?;
        }
        let folder = Folder::take(path)?;
        if self.resume.is_none() {
            // Another process may have written a run to the folder before this process locked it.
            check_new(folder.path(), self.overwrite)?;
        }
        if !self.console.quiet {
            prepared.messages.iter().for_each(terminal::say);
            terminal::say(format!("run folder: {}", text_of_path(folder.path())));
        }
        self.fit(&config, prepared, &folder, world)
    }

    fn fit(
        &self,
        config: &Config,
        prepared: Preparation,
        folder: &Folder,
        world: &mut Option<World>,
    ) -> Outcome<Ending> {
        let (resumes, quiet) = (self.resume.is_some(), self.console.quiet);
        let training = Training { config, folder, resumes, quiet, deadline: None };
        let fitted = training.fit(prepared, config.training.epochs, world)?;
        if fitted.report.ended == StopReason::Interrupted {
            terminal::say(format!("--resume {} continues the training", word(folder.path())));
            training.interrupted(fitted)?;
            return Ok(Ending::Interrupted);
        }
        let finished = training.finish(fitted)?;
        self.conclude(config, folder.path(), &finished)?;
        match finished.untested {
            Some(e) => Err(e.into()),
            None => Ok(Ending::Done),
        }
    }

    /// Prints the results of the training and the paths of its files.
    fn conclude(&self, config: &Config, folder: &Path, finished: &ScoredTraining) -> Outcome<()> {
        let ScoredTraining {
            facts: TrainingFacts { name, metric, unit, held_out, .. }, report, model, ..
        } = finished;
        let (metric, percent, value) = (*metric, show::factor(*unit), finished.value);
        let (held, tested) = (finished.held.as_ref(), finished.tested.as_ref());
        let (console, unit) = (self.console, show::sign(*unit));
        let epoch = report.best.map_or(0, |best| best.epoch);
        console.more("")?;
        let (value, precision) = (percent * value, computed_in(config.training.precision));
        let epochs = format!("{epoch} of {}", report.epochs);
        console.result(format!("held-out {metric}: {value:.2}{unit}, best epoch {epochs}{precision}"))?;
        if let (Some((scored, _)), false) = (held, console.quiet) {
            show::print(scored, console)?;
        }
        if let Some((scored, _)) = tested {
            console.more("")?;
            if let Some(value) = scored.get(metric) {
                console.result(format!("test {metric}: {:.2}{unit}", percent * value))?;
            }
            match console.quiet {
                true => show::say(scored, console),
                // The labels that training never saw were named before the training.
                false => scored.messages.iter().for_each(terminal::say),
            }
            show::print(scored, console)?;
        }
        let shown: Vec<&Case> = held_out.cases.iter().take(3).collect();
        let texts: Vec<&str> = shown.iter().map(|case| case.text.as_str()).collect();
        if !shown.is_empty() {
            let count = shown.len();
            console.more(format!("\nthe first {count} held-out texts, each with its answer below it:"))?;
        }
        for (case, answer) in shown.iter().zip(model.predict(&texts)?) {
            let truth = match (&case.truth, &answer) {
                (Truth::Label(label), _) => Some(label.clone()),
                (Truth::Texts(texts), _) => Some(texts.join(" | ")),
                (Truth::Labels(labels), Answer::Labels { separator, .. }) => Some(labels.join(separator)),
                (Truth::Labels(labels), _) => Some(labels.join(",")),
                (Truth::Number(number), _) => Some(number.to_string()),
                (Truth::Tags(..) | Truth::Open, _) => None,
            };
            let truth =
                truth.map_or_else(String::new, |text| format!("  (truth: {})", terminal::shown(&text)));
            let answer = terminal::columns(&answer).join("  ");
            console.more(format!("  {}\n    {answer}{truth}", terminal::shown(&case.text)))?;
        }
        // If the last epoch is the best epoch, the model was still improving, so more epochs may help.
        if !console.quiet && report.epochs > 1 && report.best.is_some_and(|best| best.epoch == report.epochs)
        {
            terminal::say(format!(
                "warning: the best epoch is the last one; more epochs may be better: --epochs {}",
                2 * report.epochs
            ));
        }
        let Report { tokens, padded, seconds, tokens_per_s, .. } = report;
        if *tokens > 0 {
            let more = 100.0 * (*padded as f64 / *tokens as f64 - 1.0);
            console.more(format!(
                "\n{tokens} tokens in {seconds:.1} s, {tokens_per_s:.0} tokens/s; padded batches would have had {more:.0} % more"
            ))?;
        }
        ranks::shares(report).map_or(Ok(()), |shares| console.more(shares))?;
        let at = word(folder);
        let ask = if model.task().continues_texts() { "generate" } else { "predict" };
        let page = text_of_path(folder.join("report.html"));
        console.more(format!("report:  {page}\nask it:  unpadded {ask} {at}"))?;
        console.object(|| {
            let test = tested.and_then(|(scored, _)| scored.get(metric));
            json!({
                "task": model.task().name(), "dataset": name, "metric": metric, "value": value,
                "held_out_scores": held.map(|(_, object)| object), "test": test.map(|x| percent * x),
                "test_scores": tested.map(|(_, object)| object), "run": text_of_path(folder),
                "epochs": report.epochs, "train_seconds": seconds, "tokens_per_s": tokens_per_s,
            })
        })
    }
}
