//! The progress of a running training: a progress bar on a terminal, plain lines elsewhere.

use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

use super::Bar;
use super::until::Until;
use crate::checkpoint::Position;
use crate::data::Batch;
use crate::metrics::Scores;
use crate::printable::Printable;

/// Where the progress of a training is written. All variants except [`Progress::To`] and [`Progress::Quiet`] write to the
/// standard error.
#[derive(Default)]
#[non_exhaustive]
pub enum Progress {
    /// A progress bar if the standard error is a terminal and the feature `terminal` is on, else plain lines.
    #[default]
    Auto,
    /// Plain lines: the first one after a second of training, then about one every five seconds, and one per epoch.
    Lines,
    /// Plain lines, written to this writer.
    To(Box<dyn Write + Send>),
    /// No output.
    Quiet,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Progress::Auto => "Auto",
            Progress::Lines => "Lines",
            Progress::To(_) => "To",
            Progress::Quiet => "Quiet",
        })
    }
}

/// The warning at the start of a training if the library was built without optimization; `build.rs` detects the optimization
/// level.
pub(super) const UNOPTIMISED: Option<&str> = match env!("UNPADDED_OPT_LEVEL").as_bytes() {
    b"0" => Some(
        "debug build: `unpadded` is not optimised, and trains many times slower than it can; use `cargo run --release`, or \
         put `[profile.dev.package.\"*\"]` and `opt-level = 3` into Cargo.toml",
    ),
    _ => None,
};

const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(5);
/// The shortest time between two updates of a progress bar.
const REDRAW: Duration = Duration::from_millis(100);

/// The counts of a step: its batches, its tokens, and the rows that its batches would have with padding.
#[derive(Default)]
pub(super) struct BatchCounts {
    pub(super) batches: u64,
    pub(super) tokens: u64,
    pub(super) padded: u64,
}

impl BatchCounts {
    pub(super) fn count(&mut self, batch: &Batch) {
        self.batches += 1;
        self.tokens = self.tokens.saturating_add(batch.tokens as u64);
        self.padded = self.padded.saturating_add(batch.padded as u64);
    }
}

/// The progress output of one run of [`Trainer::fit`](super::Trainer::fit).
pub(super) struct Console<'a> {
    to: ProgressOutput<'a>,
    until: Until,
    /// The number of batches of an epoch; `None` until it is known.
    batches: Option<u64>,
    first_step: u64,
    started: Instant,
    /// The time of training before the last [`Self::resume_clock`], without evaluation and saving.
    trained: Duration,
    since: Option<Instant>,
    next: Instant,
    /// The number of batches that this run has trained on.
    made: u64,
    pub(super) tokens: u64,
    pub(super) padded: u64,
}

enum ProgressOutput<'a> {
    Nothing,
    Bar(Bar),
    Lines(Box<dyn Write + 'a>),
}

impl<'a> Console<'a> {
    pub(super) fn new(
        progress: &'a mut Progress,
        until: Until,
        batches: Option<u64>,
        position: &Position,
    ) -> Self {
        let started = Instant::now();
        let to = match progress {
            Progress::Quiet => ProgressOutput::Nothing,
            Progress::To(to) => ProgressOutput::Lines(Box::new(to)),
            Progress::Lines => ProgressOutput::Lines(Box::new(std::io::stderr())),
            Progress::Auto => match Bar::new(batches.unwrap_or(0)) {
                Some(bar) => ProgressOutput::Bar(bar),
                None => ProgressOutput::Lines(Box::new(std::io::stderr())),
            },
        };
        // A bar without text is useless, so a bar shows its first text earlier than the plain lines.
        let first = if matches!(to, ProgressOutput::Bar(_)) { REDRAW } else { FIRST };
        Self {
            to,
            until,
            batches,
            first_step: position.step,
            started,
            trained: Duration::ZERO,
            since: None,
            next: started + first,
            made: 0,
            tokens: 0,
            padded: 0,
        }
    }

    /// Resumes the clock: the time from now on counts as training.
    pub(super) fn resume_clock(&mut self) {
        self.since = Some(Instant::now());
    }

    /// Pauses the clock while the trainer evaluates or saves a checkpoint.
    pub(super) fn pause_clock(&mut self) {
        self.trained = self.seconds();
        self.since = None;
    }

    /// Returns the time of training so far in seconds, without evaluation and saving.
    pub(super) fn seconds(&self) -> Duration {
        self.trained + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub(super) fn tokens_per_s(&self) -> f64 {
        let seconds = self.seconds().as_secs_f64();
        if seconds > 0.0 { self.tokens as f64 / seconds } else { 0.0 }
    }

    /// Prints a line of text above the bar or between the plain lines.
    pub(super) fn say(&mut self, line: &str) {
        let line = Printable(line);
        match &mut self.to {
            ProgressOutput::Nothing => {}
            // A closed output or terminal must not end a training, so write errors are ignored.
            ProgressOutput::Bar(bar) => bar.say(&line),
            ProgressOutput::Lines(to) => drop(writeln!(to, "{line}").and_then(|()| to.flush())),
        }
    }

    /// Adds the counts of a step to the counts of the run.
    pub(super) fn made(&mut self, made: &BatchCounts) {
        self.made += made.batches;
        self.tokens = self.tokens.saturating_add(made.tokens);
        self.padded = self.padded.saturating_add(made.padded);
    }

    /// Shows a step if enough time has passed since the last output; only then calls `scores`.
    pub(super) fn step(&mut self, position: &Position, rate: Option<f64>, scores: impl FnOnce() -> Scores) {
        let now = Instant::now();
        if now < self.next || matches!(self.to, ProgressOutput::Nothing) {
            return;
        }
        let epoch = self.epoch_of(position);
        let mut text = format!("{}{}, {:.0} tokens/s", scores(), at(rate), self.tokens_per_s());
        if let Some(left) = self.left(position) {
            text.push_str(&format!(", {} left", duration(left)));
        }
        match &mut self.to {
            ProgressOutput::Bar(bar) => {
                self.next = now + REDRAW;
                bar.show([position.batch, self.batches.unwrap_or(position.batch)], epoch, text);
            }
            _ => {
                self.next = now + EVERY;
                let total = self.batches.map_or_else(String::new, |n| format!("/{n}"));
                self.say(&format!("{epoch}, batch {}{total}: {text}", position.batch));
            }
        }
    }

    /// Shows an epoch that was finished and evaluated; `position` still has the number of this epoch.
    pub(super) fn epoch(
        &mut self,
        position: &Position,
        [train, dev]: [&Scores; 2],
        rate: Option<f64>,
        best: bool,
    ) {
        self.batches = Some(position.batch);
        let line = format!(
            "{}: {train}{}; dev {dev}{}; {:.0} tokens/s, {}",
            self.epoch_of(position),
            at(rate),
            if best { " (best so far)" } else { "" },
            self.tokens_per_s(),
            duration(self.started.elapsed()),
        );
        self.say(&line);
    }

    fn epoch_of(&self, position: &Position) -> String {
        match self.until {
            Until::Epochs(n) => format!("epoch {}/{n}", position.epoch + 1),
            Until::Steps(_) => format!("epoch {}", position.epoch + 1),
        }
    }

    /// Returns an estimate of the remaining time, from the speed so far.
    fn left(&self, position: &Position) -> Option<Duration> {
        let (left, made) = match self.until {
            Until::Steps(n) => {
                (n.saturating_sub(position.step), position.step.saturating_sub(self.first_step))
            }
            Until::Epochs(n) => {
                let epochs = n.saturating_sub(position.epoch);
                (self.batches?.saturating_mul(epochs).saturating_sub(position.batch), self.made)
            }
        };
        let seconds = self.started.elapsed().as_secs_f64() * left as f64 / made.max(1) as f64;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

/// Formats a learning rate as `, rate 0.01`.
fn at(rate: Option<f64>) -> String {
    rate.map_or_else(String::new, |rate| format!(", rate {}", shown(rate)))
}

/// Formats a duration as `41 s`, `3 min` or `2 h 5 min`.
fn duration(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", (s + 30) / 60),
        s => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

/// Formats a learning rate with few digits, as `0.0125` or `3e-6`.
pub(super) fn shown(rate: f64) -> String {
    let short = format!("{rate:.3e}");
    let Ok(rounded) = short.parse::<f64>() else { return short };
    if rounded == 0.0 || (1e-4..1e4).contains(&rounded) {
        rounded.to_string()
    } else {
        format!("{rounded:e}")
    }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn rates_are_shown_in_few_digits() {
        let rates = [0.5f32, 0.001, 0.012_345_6, 0.000_012_3, 123.456, 0.0, 1.0];
        let shown = rates.map(|rate| shown(f64::from(rate)));
        assert_eq!(shown, ["0.5", "0.001", "0.01235", "1.23e-5", "123.5", "0", "1"]);
    }
}
