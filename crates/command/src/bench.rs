//! `unpadded bench`: measures training, prediction and the peak rates of the machine, and writes no file.

use std::io::Error;
use std::io::ErrorKind::Interrupted;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use unpadded::executor::{Entry, Rates};
use unpadded::train::{Progress, Report, StopReason, Trainer, Until};
use unpadded_recipes::{Model, Preparation, prepare};

use super::memory;
use super::outcome::{Ending, Outcome, UsageError};
use super::request::TrainingRequest;
use super::scores::Table;
use super::terminal::{self, Console};

/// The number of repetitions of each measurement; the command prints the median.
const ROUNDS: usize = 5;
/// The number of warm-up steps before the measurements.
const WARM: u64 = 5;
/// The maximum numbers of held-out texts that are predicted in one call (`ASKED`), and one by one (`ALONE`).
const ASKED: usize = 1_000;
const ALONE: usize = 200;
/// The maximum number of operators in the printed table.
const NAMED: usize = 8;

#[derive(Args)]
#[command(after_help = "\
Examples:
  unpadded bench                                     the reviews that come with it
  unpadded bench reviews.toml --seconds 30
  unpadded bench --train reviews.tsv --set model.hidden=512 --threads 1 --json | jq .train")]
pub(crate) struct Bench {
    #[command(flatten)]
    wanted: TrainingRequest,
    /// Seconds of training, roughly
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER", default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    #[command(flatten)]
    console: Console,
}

fn seconds(text: &str) -> Result<f64, String> {
    let got = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds < 1e6);
    got.ok_or_else(|| "expected a number of seconds above 0".into())
}

/// The median, the lowest and the highest result of several measurements.
struct Measured([f64; 3]);

impl Measured {
    fn of(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        let at = |i: usize| all.get(i).copied().unwrap_or(f64::NAN);
        Self([at(all.len() / 2), at(0), at(all.len().max(1) - 1)])
    }

    fn json(&self) -> Value {
        let [middle, lowest, highest] = self.0;
        json!({"median": middle, "lowest": lowest, "highest": highest})
    }
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [middle, lowest, highest] = self.0;
        write!(f, "{middle:.0} ({lowest:.0} to {highest:.0})")
    }
}

impl Bench {
    pub(crate) fn run(self) -> Outcome<Ending> {
        match self.measured() {
            Err(e) if e.downcast_ref().is_some_and(|e: &Error| e.kind() == Interrupted) => {
                Ok(Ending::Interrupted)
            }
            other => other,
        }
    }

    fn measured(self) -> Outcome<Ending> {
        let mut config = self.wanted.config()?;
        // Early stopping is switched off, since it would end the measurement.
        config.training.patience = 0;
        config.check().usage()?;
        let Preparation { trainer, train, dev, held_out, messages, name, .. } = prepare(&config).usage()?;
        let console = self.console;
        if !console.quiet {
            messages.iter().for_each(terminal::say);
        }
        let trainer = if config.run.memory.is_none() { memory::limited(trainer) } else { trainer };
        let mut trainer = trainer.progress(Progress::Quiet);
        let fit = |trainer: &mut Trainer, more: u64| -> Outcome<Report> {
            let until = Until::Steps(trainer.position().step + more);
            let report = trainer.fit(&*train, &*dev, until)?;
            match report.ended {
                StopReason::Interrupted => Err(Box::new(Error::from(Interrupted))),
                _ => Ok(report),
            }
        };
        fit(&mut trainer, WARM)?;
        // The time of a step includes evaluations at the ends of epochs, which are frequent if there is little data.
        let begun = Instant::now();
        fit(&mut trainer, WARM)?;
        let step = begun.elapsed().as_secs_f64() / WARM as f64;
        let steps = ((self.seconds / ROUNDS as f64 / step) as u64).clamp(1, 1_000_000);
        let rounds = (0..ROUNDS).map(|_| fit(&mut trainer, steps)).collect::<Outcome<Vec<_>>>()?;
        trainer.start_profile()?;
        fit(&mut trainer, steps.min(100))?;
        let profile = trainer.take_profile();
        let tokens_per_s = Measured::of(rounds.iter().map(|round| round.tokens_per_s).collect());
        let [tokens, padded] = [|r: &Report| r.tokens, |r: &Report| r.padded]
            .map(|total| rounds.iter().map(total).sum::<u64>() as f64);
        let more = 100.0 * (padded / tokens.max(1.0) - 1.0);

        let last = rounds.iter().max_by_key(|round| round.memory.total());
        let unit = last.map(|round| round.unit).unwrap_or_default();
        let largest = last.map(|round| round.memory).unwrap_or_default();
        let remembered = last.map(memory::described).unwrap_or_default();

        let model = Model::new(trainer.for_inference()?)?;
        let texts: Vec<&str> = held_out.cases.iter().take(ASKED).map(|case| case.text.as_str()).collect();
        // The prediction speed of a language model is not measured.
        let texts = if model.task().continues_texts() { Vec::new() } else { texts };
        let (together, alone) = answer_speed(&model, &texts)?;

        let threads = profile.as_ref().map_or(1, |profile| profile.threads);
        let rates = Rates::of(threads);
        let entries = profile.map(|profile| profile.entries).unwrap_or_default();
        let whole: Duration = entries.iter().map(|entry| entry.time).sum();
        let total = |entry: &Entry| {
            let share = entry.time.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE);
            let bound = entry.bound(&rates).map_or_else(String::new, |bound| bound.to_string());
            (entry.operator.clone(), share, bound)
        };
        let operators: Vec<(String, f64, String)> = entries.iter().take(NAMED).map(total).collect();
        console.object(|| {
            let named = |(name, share, bound): &(String, f64, String)| {
                json!({"operator": name, "share": share, "bound": bound})
            };
            let measured = |total: &Option<Measured>| total.as_ref().map(Measured::json);
            json!({
                "task": config.run.task.name(), "dataset": name, "threads": threads,
                "products": unit.to_string(), "instructions": unit.instructions(),
                "train": tokens_per_s.json(), "padding_percent": more,
                "step_bytes": memory::of_step(&largest), "model_bytes": largest.parameters + largest.state,
                "peak_bytes": memory::peak(), "predict": measured(&together), "alone_ms": measured(&alone),
                "operators": operators.iter().map(named).collect::<Value>(),
            })
        })?;
        let plural = if threads == 1 { "" } else { "s" };
        console.result(format!("machine: {threads} thread{plural}; {rates}"))?;
        console.result(format!(
            "train:   {tokens_per_s} tokens/s, products in {unit} ({}), median of {ROUNDS} times {steps} steps; padded batches would have {more:.0} % more rows",
            unit.instructions()
        ))?;
        console.result(format!("memory:  {remembered}"))?;
        if let (Some(together), Some(alone)) = (together, alone) {
            let Measured([middle, lowest, highest]) = alone;
            console.result(format!("predict: {together} texts/s, {} together", texts.len()))?;
            let took = format!("{middle:.2} ms ({lowest:.2} to {highest:.2})");
            console.result(format!("         one text alone takes {took}"))?;
        }
        if !console.quiet {
            let mut table = Table::new("training time by operator:", &["operator", "share", "bound by"]);
            let row = |(name, share, bound)| vec![name, format!("{:.1} %", 100.0 * share), bound];
            table.rows = operators.into_iter().map(row).collect();
            table.print(console)?;
        }
        Ok(Ending::Done)
    }
}

/// Measures the texts per second in one call, and the milliseconds for one text alone; `None` without texts.
fn answer_speed(model: &Model, texts: &[&str]) -> Outcome<(Option<Measured>, Option<Measured>)> {
    if texts.is_empty() {
        return Ok((None, None));
    }
    let took = |texts: &[&str]| -> Outcome<f64> {
        let start = Instant::now();
        model.predict(texts)?;
        Ok(start.elapsed().as_secs_f64())
    };
    took(texts)?;
    let together = (0..ROUNDS).map(|_| Ok(texts.len() as f64 / took(texts)?)).collect::<Outcome<_>>()?;
    let alone = texts.iter().take(ALONE).map(|text| Ok(1e3 * took(&[text])?)).collect::<Outcome<_>>()?;
    Ok((Some(Measured::of(together)), Some(Measured::of(alone))))
}
