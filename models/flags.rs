//! What every program in `models/` shares: its flags, the line that `--json` ends in, and how it talks to standard
//! input and output.
#[path = "memory.rs"]
mod memory;

use std::fmt::Display;
use std::io::{self, BufRead, ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use unpadded::checkpoint::Checkpoint;
use unpadded::data::{Data, TextFile};
use unpadded::ops;
use unpadded::predict::Predictor;
use unpadded::train::{Ended, Report, Steps, Trainer, Until};

/// What goes wrong in a program: an error of the library, or a sentence.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Flags {
    /// Train on data of your own; without it, on the small set that comes with the program
    #[arg(long, value_name = "PATH")]
    pub(crate) train: Option<PathBuf>,
    /// Data to measure on after each epoch, which training never sees; the best epoch is kept
    #[arg(long, value_name = "PATH", requires = "train")]
    pub(crate) dev: Option<PathBuf>,
    /// Data to measure the best epoch on once more, at the end: nothing was chosen by it
    #[arg(long, value_name = "PATH", requires = "train")]
    pub(crate) test: Option<PathBuf>,
    /// Where the checkpoint goes, at each epoch's end and on Ctrl-C, SIGTERM and SIGHUP [default: the program's name
    /// with .ckpt, which a new training replaces]
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Save after every so many steps too
    #[arg(long, value_name = "STEPS", value_parser = positive::<u64>, allow_negative_numbers = true)]
    save_every: Option<u64>,
    /// Replace whatever checkpoint is there
    #[arg(long)]
    overwrite: bool,
    /// Go on from a checkpoint exactly where it stands; give the same data, and more epochs to train for longer
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    resume: Option<Option<PathBuf>>,
    /// With --resume: --dev is other data on purpose, and the best epoch so far is measured on it anew
    #[arg(long, requires = "resume")]
    remeasure_best: bool,
    /// Train nothing: answer each line of standard input out of a checkpoint
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with_all = ["train", "dev", "test", "save", "save_every", "overwrite", "resume", "epochs", "json"])]
    predict: Option<Option<PathBuf>>,
    /// Where random numbers start: equal seeds give equal results
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// Threads to run on, 0 for one a core, which is also the most; the results are the same on any number
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = whole::<usize>, allow_negative_numbers = true)]
    threads: usize,
    /// How often to go through the training data, from its very start on [default: the program's own]
    #[arg(long, value_name = "NUMBER", value_parser = positive::<u64>, allow_negative_numbers = true)]
    pub(crate) epochs: Option<u64>,
    /// End in one line of JSON with the figures, accuracies in percent
    #[arg(long)]
    pub(crate) json: bool,
}

/// A whole number from 0 on.
pub(crate) fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "expected a whole number from 0 to 2^64 - 1".to_owned())
}

/// A whole number from 1 on.
pub(crate) fn positive<T: FromStr + From<u8> + PartialOrd>(text: &str) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| *number >= T::from(1));
    number.ok_or_else(|| "expected a whole number from 1 to 2^64 - 1".to_owned())
}

impl Flags {
    /// Trains as the flags say, from a checkpoint on if they say so; `None` if that was interrupted.
    #[track_caller]
    pub(crate) fn fit(
        &self,
        model: &str,
        trainer: Trainer,
        (train, dev): (&dyn Data, &dyn Data),
        epochs: u64,
    ) -> Outcome<Option<(Trainer, Report)>> {
        let save = self.save(model);
        let resumed = self.resume.clone().map(|checkpoint| checkpoint.unwrap_or_else(|| save.clone()));
        let goes_on = resumed.as_ref().is_some_and(|resumed| same(resumed, &save));
        if !goes_on && !self.overwrite {
            self.replaceable(&save, model)?;
        }
        let mut trainer = trainer.note("model", model).threads(self.threads()).checkpoint(&save);
        if let Some(steps) = self.save_every {
            trainer = trainer.every(Steps(steps));
        }
        if self.remeasure_best {
            trainer = trainer.remeasure_best();
        }
        if let Some(checkpoint) = resumed {
            self.resumable(&checkpoint, model, train)?;
            trainer.resume(checkpoint)?;
        }
        let report = trainer.fit(train, dev, self.until(epochs))?;
        if report.ended == Ended::Interrupted {
            return Ok(None);
        }
        // One that was done before it was resumed has saved nothing; where it came from is nothing to save.
        if !goes_on && report.resumed.as_ref().is_some_and(|from| from.epoch == report.epochs) {
            trainer.save(&save)?;
        }
        Ok(Some((trainer, report)))
    }

    /// That no checkpoint is lost that somebody may want: a named file has none, the default one has this program's.
    fn replaceable(&self, save: &Path, model: &str) -> Outcome<()> {
        if !save.metadata().is_ok_and(|about| about.is_file() && about.len() > 0) {
            return Ok(()); // what else is wrong with it is said by the trainer
        }
        let file = save.display();
        let flag = if self.save.is_some() { "--save " } else { "" };
        let wrong = format!("{flag}{file}: expected a new file, got one that");
        let unread = |e| {
            format!(
                "{wrong} cannot be read as a checkpoint ({e:#}); --overwrite replaces a damaged one, another --save leaves it"
            )
        };
        let found = Checkpoint::load(save).map_err(unread)?;
        let of = found.notes.get("model").map_or("another program", |name| name);
        if self.save.is_none() && of == model {
            return Ok(());
        }
        let goes_on = if of == model { format!("--resume {file} goes on with it, ") } else { String::new() };
        let hint = format!("{goes_on}--overwrite replaces it, another --save leaves it");
        Err(format!("{wrong} holds a training of `{of}`, at {}; {hint}", found.position).into())
    }

    /// The threads to run on. More than cores would only wait for each other.
    fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
        if self.threads > cores {
            say(format!("--threads {}: running on {cores}, one a core", self.threads));
        }
        self.threads.min(cores)
    }

    /// That a checkpoint is of this program, seed and data: told by their names, not by what differs in the model.
    fn resumable(&self, path: &Path, model: &str, train: &dyn Data) -> Outcome<()> {
        let Checkpoint { program, position, .. } = checkpoint(path, model)?;
        let (name, seed) = (path.display(), program.seed);
        if seed != self.seed {
            return Err(
                format!("--seed: expected {seed}, as checkpoint `{name}` has, got {}", self.seed).into()
            );
        }
        if position.step > 0 && position.data != train.fingerprint() {
            let with = "give --train, and --dev and --test or not, as then";
            return Err(
                format!("--train: expected the data of checkpoint `{name}`, got other data; {with}").into()
            );
        }
        Ok(())
    }

    /// How long to train.
    pub(crate) fn until(&self, epochs: u64) -> Until {
        Until::Epochs(self.epochs.unwrap_or(epochs))
    }

    /// Where the checkpoint of `model` goes.
    pub(crate) fn save(&self, model: &str) -> PathBuf {
        let resumed = || self.resume.clone().flatten();
        self.save.clone().or_else(resumed).unwrap_or_else(|| default_path(model))
    }

    /// The checkpoint to answer out of, if that is asked for.
    pub(crate) fn predictor(&self, model: &str) -> Outcome<Option<Predictor>> {
        let Some(path) = self.predict.clone() else { return Ok(None) };
        let path = path.unwrap_or_else(|| default_path(model));
        Ok(Some(load(&path, model)?.threads(self.threads())))
    }
}

/// Whether both paths lead to one file that exists.
fn same(one: &Path, other: &Path) -> bool {
    one == other || one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

fn default_path(model: &str) -> PathBuf {
    PathBuf::from(format!("{model}.ckpt"))
}

/// What a checkpoint that `model` has saved predicts with.
pub(crate) fn load(path: &Path, model: &str) -> Outcome<Predictor> {
    Ok(Predictor::new(checkpoint(path, model)?, &ops::catalogue())?)
}

/// A checkpoint that `model` has saved.
fn checkpoint(path: &Path, model: &str) -> Outcome<Checkpoint> {
    if !path.exists() {
        let name = path.display();
        let hint = format!("`{model}` without --predict and --resume trains, and saves one");
        return Err(format!("checkpoint `{name}`: expected a file, got none there ({hint})").into());
    }
    let checkpoint = Checkpoint::load(path)?;
    let got = checkpoint.notes.get("model").map_or("another program", String::as_str);
    if got != model {
        let name = path.display();
        return Err(format!("checkpoint `{name}`: expected one of `{model}`, got one of `{got}`").into());
    }
    Ok(checkpoint)
}

/// What a program found.
pub(crate) struct Found<'a> {
    pub(crate) model: &'a str,
    pub(crate) dataset: &'a str,
    pub(crate) metric: &'a str,
    pub(crate) value: f64,
    /// More figures, by name.
    pub(crate) more: &'a [(&'a str, f64)],
}

impl Flags {
    /// The last lines of a program: how fast, what padding would have cost, where the checkpoint is; and `--json`.
    pub(crate) fn conclude(&self, found: &Found<'_>, report: &Report) -> Outcome<()> {
        let Report { tokens, padded, seconds, tokens_per_s, .. } = report;
        if *tokens == 0 {
            let done = report.epochs;
            print(format!(
                "nothing was left to train: the checkpoint has {done} epochs; give --epochs more"
            ))?;
        } else {
            let more = 100.0 * (*padded as f64 / *tokens as f64 - 1.0);
            print(format!("trained on {tokens} tokens in {seconds:.1} s, {tokens_per_s:.0} tokens/s"))?;
            print(format!("padded batches would have had {padded}, {more:.0} % more"))?;
        }
        print(format!("checkpoint: {}", self.save(found.model).display()))?;
        if self.json { print(json(found, report)) } else { Ok(()) }
    }
}

fn json(found: &Found<'_>, report: &Report) -> String {
    let number = |x: f64| if x.is_finite() { format!("{x:.4}") } else { "null".to_owned() };
    let [model, dataset, metric] = [found.model, found.dataset, found.metric].map(quoted);
    let [value, seconds, speed] = [found.value, report.seconds, report.tokens_per_s].map(number);
    let rss = memory::peak_rss_mb().map_or("null".to_owned(), number);
    let more: String =
        found.more.iter().map(|(name, x)| format!(",{}:{}", quoted(name), number(*x))).collect();
    format!(
        r#"{{"model":{model},"dataset":{dataset},"metric":{metric},"value":{value}{more},"train_seconds":{seconds},"tokens_per_s":{speed},"peak_rss_mb":{rss}}}"#
    )
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c < ' ' => format!("\\u{:04x}", c as u32),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// Writes to standard output. That nobody reads it any more is no error.
pub(crate) fn print(text: impl Display) -> Outcome<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("standard output: {e}").into()),
        _ => Ok(()),
    }
}

/// Writes to the standard error, if that is still there: a terminal may be gone.
pub(crate) fn say(text: impl Display) {
    drop(writeln!(io::stderr(), "{text}"));
}

/// Writes what `reply` returns for each line of standard input, as it comes, until either side ends.
pub(crate) fn answer(mut reply: impl FnMut(&str) -> unpadded::Result<String>) -> Outcome<()> {
    let (mut input, mut out) = (io::stdin().lock(), io::stdout().lock());
    if io::stdin().is_terminal() {
        say("one text a line; Ctrl-D ends");
    }
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let wrong = |e: &dyn Display| format!("standard input, line {number}: {e:#}");
        let mut most = input.by_ref().take(TextFile::MAX_LINE as u64 + 1);
        if most.read_until(b'\n', &mut line).map_err(|e| wrong(&e))? == 0 {
            break;
        }
        if line.len() > TextFile::MAX_LINE {
            return Err(wrong(&format!("expected at most {} bytes, got more", TextFile::MAX_LINE)).into());
        }
        let text = std::str::from_utf8(&line).map_err(|_| wrong(&"expected UTF-8, got other bytes"))?;
        let text = if number == 1 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
        let text = text.strip_suffix('\n').unwrap_or(text);
        let said = reply(text.strip_suffix('\r').unwrap_or(text)).map_err(|e| wrong(&e))?;
        match writeln!(out, "{said}").and_then(|()| out.flush()) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => break,
            written => written.map_err(|e| format!("standard output: {e}"))?,
        }
    }
    Ok(())
}

/// The end of a program: what went wrong is said.
pub(crate) fn exit(outcome: Outcome<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            match error.downcast::<unpadded::Error>() {
                Ok(error) => say(format!("error: {error:#}")),
                Err(error) => say(format!("error: {error}")),
            }
            ExitCode::FAILURE
        }
    }
}

#[test]
fn numbers_say_their_range() {
    for text in ["-1", "0", "x", "1.5", "18446744073709551616", ""] {
        assert_eq!(
            positive::<u64>(text),
            Err("expected a whole number from 1 to 2^64 - 1".to_owned()),
            "{text}"
        );
    }
    assert_eq!((positive::<u64>("1"), whole::<u64>("0")), (Ok(1), Ok(0)));
}

#[cfg(test)]
fn parsed(words: &[&str]) -> clap::error::Result<Flags> {
    use clap::Parser;
    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }
    Cli::try_parse_from(words).map(|cli| cli.flags)
}

#[test]
fn what_differs_from_a_checkpoint_is_told_by_its_flag() -> Outcome<()> {
    use unpadded::checkpoint::Position;
    use unpadded::data::Continuous;

    let path = std::env::temp_dir().join(format!("unpadded-flags-{}.ckpt", std::process::id()));
    let data = |last| Continuous::new([1, 2, last], 1, 1, ["x", "y"]);
    let position = Position { step: 1, data: data(3)?.fingerprint(), ..Position::default() };
    let program = unpadded::Builder::new().seed(7).finish()?;
    let notes = [("model".to_owned(), "this".to_owned())].into();
    Checkpoint { program, notes, position, ..Checkpoint::default() }.save(&path)?;
    let refused = |seed: &str, model: &str, last| -> Outcome<String> {
        let flags = parsed(&["this", "--seed", seed])?;
        let outcome = flags.resumable(&path, model, &data(last)?);
        Ok(outcome
            .map_err(|e| e.to_string().replace(&path.display().to_string(), "FILE"))
            .err()
            .unwrap_or_default())
    };
    assert_eq!(refused("7", "this", 3)?, "");
    assert_eq!(refused("1", "this", 3)?, "--seed: expected 7, as checkpoint `FILE` has, got 1");
    let other = "--train: expected the data of checkpoint `FILE`, got other data; give --train, and --dev and --test or not, as then";
    assert_eq!(refused("7", "this", 4)?, other);
    assert_eq!(refused("7", "that", 3)?, "checkpoint `FILE`: expected one of `that`, got one of `this`");
    Ok(std::fs::remove_file(path)?)
}

#[test]
fn only_what_nobody_wants_is_replaced() -> Outcome<()> {
    let folder = std::env::temp_dir().join(format!("unpadded-flags-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = |name: &str| folder.join(name);
    let of = |model: &str| Checkpoint {
        notes: [("model".to_owned(), model.to_owned())].into(),
        ..Checkpoint::default()
    };
    for model in ["ours", "theirs"] {
        of(model).save(path(model))?;
    }
    std::fs::write(path("empty"), "")?;
    std::fs::write(path("text"), "text")?;
    let named = parsed(&["ours", "--save", "x"])?;
    let default = parsed(&["ours"])?;
    let refused = |flags: &Flags, name: &str| {
        flags.replaceable(&path(name), "ours").map_err(|e| e.to_string()).err().unwrap_or_default()
    };
    for flags in [&named, &default] {
        assert_eq!([refused(flags, "new"), refused(flags, "empty"), refused(flags, "none/x")], ["", "", ""]);
        let text = refused(flags, "text");
        assert!(
            text.contains("expected a new file, got one that cannot be read as a checkpoint ("),
            "{text}"
        );
        let theirs = refused(flags, "theirs");
        assert!(
            theirs
                .contains("holds a training of `theirs`, at epoch 1, batch 1 (step 0); --overwrite replaces"),
            "{theirs}"
        );
    }
    assert_eq!(refused(&default, "ours"), "");
    let ours = refused(&named, "ours");
    assert!(ours.contains("ours goes on with it, --overwrite replaces it"), "{ours}");
    assert!(same(&path("ours"), &folder.join(".").join("ours")) && !same(&path("ours"), &path("text")));

    let cores = std::thread::available_parallelism()?.get();
    assert_eq!(parsed(&["ours", "--threads", "100000"])?.threads(), cores);
    assert_eq!((default.threads(), parsed(&["ours", "--threads", "1"])?.threads()), (0, 1));
    assert!(parsed(&["ours", "--save-every", "0"]).is_err());
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
