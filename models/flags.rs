//! What every program in `models/` shares: its flags, the line that `--json` ends in, and how it talks to standard
//! input and output.
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, ErrorKind, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use unpadded::data::{Data, TextFile};
use unpadded::train::{Ended, Predictor, Report, Trainer, Until};
use unpadded::wire::MAGIC;

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
    /// Where the checkpoint goes, at each epoch's end and on Ctrl-C [default: the program's name with .ckpt]
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Go on from a checkpoint exactly where it stands; give the same data, and more epochs to train for longer
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    resume: Option<Option<PathBuf>>,
    /// Train nothing: answer each line of standard input out of a checkpoint
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with_all = ["train", "dev", "test", "save", "resume", "epochs", "json"])]
    predict: Option<Option<PathBuf>>,
    /// Where random numbers start: equal seeds give equal results
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// Threads to run on, 0 for one a core; the results are the same on any number
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = threads, allow_negative_numbers = true)]
    pub(crate) threads: usize,
    /// How often to go through the training data, from its very start on [default: the program's own]
    #[arg(long, value_name = "NUMBER", value_parser = epochs, allow_negative_numbers = true)]
    pub(crate) epochs: Option<u64>,
    /// End in one line of JSON with the figures, accuracies in percent
    #[arg(long)]
    pub(crate) json: bool,
}

/// A whole number from 0 on.
pub(crate) fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "expected a whole number from 0 to 2^64 - 1".to_owned())
}

fn threads(text: &str) -> Result<usize, String> {
    let number = whole(text)?;
    if number > 1024 { Err("expected at most 1024".to_owned()) } else { Ok(number) }
}

fn epochs(text: &str) -> Result<u64, String> {
    let number = whole(text)?;
    if number == 0 { Err("expected at least 1".to_owned()) } else { Ok(number) }
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
        let mut trainer = trainer.note("model", model).threads(self.threads).checkpoint(&save);
        if let Some(checkpoint) = self.resume.clone() {
            let checkpoint = checkpoint.unwrap_or_else(|| save.clone());
            load(&checkpoint, model)?; // another program's is told by its name, not by what differs
            trainer.resume(checkpoint)?;
        }
        saveable(&save)?;
        let report = trainer.fit(train, dev, self.until(epochs))?;
        if report.ended == Ended::Interrupted {
            return Ok(None);
        }
        trainer.save(&save)?; // a training that was done before it was resumed has not been saved here
        Ok(Some((trainer, report)))
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
        Ok(Some(load(&path, model)?.threads(self.threads)))
    }
}

/// That a checkpoint can go there, and in the place of nothing but another one; known before the first epoch.
fn saveable(path: &Path) -> Outcome<()> {
    let wrong = |expected: &str, got: &str| {
        Err(format!("--save {}: expected {expected}, got {got}", path.display()).into())
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(missing) = folder.filter(|folder| !folder.is_dir()) {
        return wrong("a folder to save in", &format!("none at {}", missing.display()));
    }
    if path.is_dir() || path.to_string_lossy().ends_with(std::path::is_separator) {
        return wrong("the path of a file", "that of a folder");
    }
    if path.symlink_metadata().is_ok() && !path.is_file() {
        return wrong("the path of a file", "that of a device, of a pipe or of a link that leads nowhere");
    }
    // Only a try tells whether a file can be written there, beside the one that it then replaces.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let tried = real.with_file_name(format!(".unpadded-{}.tmp", std::process::id()));
    let written = File::create_new(&tried).and_then(|_| std::fs::remove_file(&tried));
    written.map_err(|e| format!("--save {}: a file cannot be written there: {e}", path.display()))?;
    let mut first = Vec::new();
    match File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened.and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut first)),
    }
    .map_err(|e| format!("--save {}: {e}", path.display()))?;
    match first.is_empty() || first == MAGIC {
        true => Ok(()),
        false => wrong("a new file or a checkpoint to replace", "a file that is none; it was left as it is"),
    }
}

fn default_path(model: &str) -> PathBuf {
    PathBuf::from(format!("{model}.ckpt"))
}

/// What a checkpoint that `model` has saved predicts with.
pub(crate) fn load(path: &Path, model: &str) -> Outcome<Predictor> {
    if !path.exists() {
        let name = path.display();
        let hint = format!("`{model}` without --predict and --resume trains, and saves one");
        return Err(format!("checkpoint `{name}`: expected a file, got none there ({hint})").into());
    }
    let predictor = Predictor::load(path)?;
    if predictor.note("model") != Some(model) {
        let got = predictor.note("model").unwrap_or("another program");
        let name = path.display();
        return Err(format!("checkpoint `{name}`: expected one of `{model}`, got one of `{got}`").into());
    }
    Ok(predictor)
}

/// What a program found.
pub(crate) struct Found<'a> {
    pub(crate) model: &'a str,
    pub(crate) dataset: &'a str,
    pub(crate) metric: &'a str,
    pub(crate) value: f64,
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
    let rss = peak_rss_mb().map_or("null".to_owned(), number);
    format!(
        r#"{{"model":{model},"dataset":{dataset},"metric":{metric},"value":{value},"train_seconds":{seconds},"tokens_per_s":{speed},"peak_rss_mb":{rss}}}"#
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

/// The most memory that this process had so far, in megabytes, where the operating system tells.
fn peak_rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<f64>().ok().map(|kb| kb * 1024.0 / 1e6)
}

/// Writes to standard output. That nobody reads it any more is no error.
pub(crate) fn print(text: impl Display) -> Outcome<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("standard output: {e}").into()),
        _ => Ok(()),
    }
}

/// Writes what `reply` returns for each line of standard input, as it comes, until either side ends.
pub(crate) fn answer(mut reply: impl FnMut(&str) -> unpadded::Result<String>) -> Outcome<()> {
    let (mut input, mut out) = (io::stdin().lock(), io::stdout().lock());
    if io::stdin().is_terminal() {
        eprintln!("one text a line; Ctrl-D ends");
    }
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let wrong = |e: &dyn Display| format!("standard input, line {number}: {e}");
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
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[test]
fn only_a_new_file_or_a_checkpoint_is_replaced() -> Outcome<()> {
    let folder = std::env::temp_dir().join(format!("unpadded-flags-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let refused =
        |name: &str| saveable(&folder.join(name)).map_err(|e| e.to_string()).err().unwrap_or_default();
    assert_eq!(refused("new.ckpt"), "");
    for name in ["", "new/"] {
        assert!(refused(name).ends_with("expected the path of a file, got that of a folder"), "{name}");
    }
    assert!(refused("none/x.ckpt").contains("expected a folder to save in, got none at "));
    std::fs::write(folder.join("text"), "text")?;
    assert!(refused("text").ends_with("got a file that is none; it was left as it is"));
    #[cfg(unix)]
    {
        let _listener = std::os::unix::net::UnixListener::bind(folder.join("socket"))?;
        std::os::unix::fs::symlink("nowhere", folder.join("link"))?;
        for name in ["socket", "link"] {
            assert!(refused(name).contains("got that of a device, of a pipe or of a link"), "{name}");
        }
    }
    let left = std::fs::read_dir(&folder)?.count();
    assert_eq!(left, if cfg!(unix) { 3 } else { 1 }); // what was tried is gone again
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
