//! How fast does training run, end to end?
//!
//! `cargo bench --bench workloads -- [W1 W7 W3 W4 W5 W5hand W2 W2wide attention conv crf ctc custom cells long scaling build small norm W6 session beam queue batching] [--threads 2] [--steps N] [--precision f32|bf16|int8] [--bucketed] [--profile]`
//!
//! W1: an LSTM(256) classifies; W7: a GRU(256); W4: an LSTM over sentences of LSTMs over words; W2: a word language model
//! of two LSTM(512); W2wide: of two LSTM(1024), in smaller batches. With `--bucketed`, sentences of W2 and W2wide are sorted by
//! length before they are cut into batches, as peers sort them. W5: a decoder that attends to its source at every step;
//! W5hand: its attention spelt out operator by operator. `conv`: a convolution of width 5 and 256 channels, forward and
//! backward. W3: an embedding bag over 10⁵, 10⁶ and 10⁷ rows under several
//! rules, each in a process of its own. `custom`: W1 with the LSTM written by hand, beside the
//! built-in one. `cells`: W1 with each cell of `models/cells`. `long`: one sequence of 4,000 steps with sixty-three of 20,
//! beside the two run apart. `scaling`: W1's model over batch, hidden size, length and threads, a table and the plots
//! `target/scaling-*.svg`; `scaling-batch`, `scaling-hidden`, `scaling-hidden-alone` and `scaling-length` are its parts.
//! `build`: the seconds that programs of many operators take before they run. `small`: a prediction service's runs, few
//! short sequences, forward only. `trained-W1`, `-W2`, `-W3` and `-W4`: trainings by a `Trainer` in `--parts`;
//! `dealt-W3`: a table dealt to processes; both under `mpirun` too (`--features mpi`). `norm`: layer norm and root mean
//! square norm over 100 MB, beside a copy. `attention`: that operator alone. `W6`: a language model of two LSTM(512) writes, one
//! token after another; `session`: a step of an LSTM(256) beside its products; `beam`: W5's model searches with a beam of 8 for
//! 64 sources, beside the likeliest token alone; `queue`: 64 callers of an LSTM(256). `crf`, `ctc`: these losses alone, with the
//! gradients of their inputs. `batching`: batches by memory beside batches of a fixed number of sentences. The data: the peers' files from the folder `UNPADDED_BENCH_DATA`, or numbers of the same
//! distributions. After 3 steps to warm up each takes one epoch (or `--steps`), at least 20 steps, and prints one line of JSON. Its
//! quiet steps (`quiet.rs`) are those in which no other process slowed a thread: `quiet_share` and `tokens_per_s_quiet`.
//! With `--precision bf16`, the trainings W1 to W5 and W7, `attention` and `conv` compute matrix products in bf16, by other instructions where
//! the CPU has no unit for them; with `int8`, the models of `small`, W6, `session`, `beam` and `queue` have weights of 8-bit integers. With `--profile` all but `attention`, `conv`, `crf`, `ctc`, `custom`, `long`, `scaling`, `build`, `small`, `norm` and the
//! workloads of generation then repeat their steps under the profiler: a table of the time and the bound of each entry, and the
//! trace `target/profile-W1.json`.

mod attention;
mod batching;
mod build;
mod conv;
mod data;
mod generate;
#[path = "../memory.rs"]
mod memory;
mod models;
mod norm;
mod plot;
mod quiet;
mod scaling;
mod small;
mod structured;
mod trained;
mod wide;

use std::process::ExitCode;
use std::sync::OnceLock;

use data::Batch;
use models::{Attends, Cell, Model};
use quiet::{Probe, Step};
use unpadded::checkpoint::Checkpoint;
use unpadded::executor::{Executor, Run, Scope, Stage};
use unpadded::op::MatrixUnit;
use unpadded::optimizer::{Adam, Optimizer, Sgd};
use unpadded::predict::Predictor;
use unpadded::{Builder, Precision, ops};

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
const WORKLOADS: [&str; 24] = [
    "W1",
    "W7",
    "W3",
    "W4",
    "W5",
    "W5hand",
    "W2",
    "W2wide",
    "attention",
    "conv",
    "crf",
    "ctc",
    "custom",
    "cells",
    "long",
    "scaling",
    "build",
    "small",
    "norm",
    "W6",
    "session",
    "beam",
    "queue",
    "batching",
];

/// The precision that `--precision` chose.
static CHOSEN: OnceLock<Chosen> = OnceLock::new();

/// A precision of the workloads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Chosen {
    F32,
    Bf16(MatrixUnit),
    Int8,
}

impl Chosen {
    fn of(word: &str) -> Outcome<Self> {
        match word {
            "f32" => Ok(Self::F32),
            "bf16" => Ok(Self::Bf16(MatrixUnit::of_cpu(Precision::Bf16).unwrap_or(MatrixUnit::Bf16Pairs))),
            "int8" => Ok(Self::Int8),
            _ => Err(format!("--precision: expected f32, bf16 or int8, got `{word}`").into()),
        }
    }

    pub(crate) fn get() -> Self {
        *CHOSEN.get_or_init(|| Self::F32)
    }

    /// Whether a workload has this precision.
    fn fits(self, workload: &str) -> bool {
        let predicts = ["small", "W6", "session", "beam", "queue"].contains(&workload);
        match self {
            Self::F32 => true,
            Self::Bf16(_) => workload.starts_with('W') || ["attention", "conv"].contains(&workload),
            Self::Int8 => predicts,
        }
    }

    /// The name of the precision in the lines of JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16(unit) => unit.instructions(),
            Self::Int8 => "int8",
        }
    }

    /// The unit that multiplies matrices in trainings.
    pub(crate) fn unit(self) -> MatrixUnit {
        match self {
            Self::Bf16(unit) => unit,
            Self::F32 | Self::Int8 => MatrixUnit::F32,
        }
    }

    /// The predictor of a model in this precision.
    pub(crate) fn predictor(self, checkpoint: Checkpoint) -> Outcome<Predictor> {
        let predictor = |checkpoint| Predictor::new(checkpoint, &ops::catalogue());
        Ok(match self {
            Self::F32 => predictor(checkpoint)?,
            Self::Bf16(_) => predictor(checkpoint)?.precision(Precision::Bf16),
            Self::Int8 => predictor(checkpoint.quantize(&ops::catalogue())?)?,
        })
    }
}

/// A compiled model and its parameters.
pub(crate) struct Bench {
    executor: Executor,
    scope: Scope,
    model: Model,
    step: u64,
    probe: Probe,
}

/// The steps that were timed.
pub(crate) struct Timed(Vec<Step>);

impl Bench {
    pub(crate) fn new(
        build: impl FnOnce(&Builder) -> Model,
        optimizer: &dyn Optimizer,
        threads: usize,
    ) -> Outcome<Self> {
        let net = Builder::new();
        let model = build(&net);
        let registry = net.registry();
        let mut program = net.finish()?;
        program.unit = Chosen::get().unit();
        optimizer.minimize(&mut program, &registry, model.loss.id())?;
        let executor = Executor::new(&program, &registry, &[model.loss.id()], threads)?;
        Ok(Self { executor, scope: Scope::of(&program)?, model, step: 0, probe: Probe::new(threads) })
    }

    pub(crate) fn run(&mut self, (values, tokens): &Batch, stage: Stage) -> Outcome<Step> {
        let feeds: Vec<_> = self.model.feeds.iter().map(|v| v.id()).zip(values).collect();
        let run = Run::train(&feeds, self.step).until(stage);
        let run = || Ok(self.executor.run(&mut self.scope, &run)?);
        let mut step = Step::time(&mut self.probe, *tokens, run)?;
        self.step += 1;
        step.loss = self.executor.scalar(self.model.loss)?;
        Ok(step)
    }

    /// Three steps to warm up (the first is on the largest batch, so that no buffer grows later), then `steps`.
    pub(crate) fn measure(&mut self, batches: &[Batch], steps: usize, stage: Stage) -> Outcome<Timed> {
        let largest = batches.iter().max_by_key(|b| b.1);
        for batch in largest.into_iter().chain(batches.iter().cycle().take(2)) {
            self.run(batch, stage)?;
        }
        let timed: Outcome<Vec<_>> = batches.iter().cycle().take(steps).map(|b| self.run(b, stage)).collect();
        let timed = timed?;
        if timed.is_empty() { Err("expected batches, got none".into()) } else { Ok(Timed(timed)) }
    }
}

impl Timed {
    fn sorted(&self, value: fn(&Step) -> f64) -> Vec<f64> {
        let mut values: Vec<f64> = self.0.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// All tokens over all time.
    pub(crate) fn total(&self) -> f64 {
        self.0.iter().map(|s| s.tokens).sum::<f64>() / self.seconds()
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.0.iter().map(|s| s.seconds).sum()
    }

    /// The median time of a step.
    pub(crate) fn median(&self) -> f64 {
        self.sorted(|s| s.seconds)[self.0.len() / 2]
    }

    /// Returns the line of the workloads' page; `more` are fields at its end.
    fn json(&self, workload: &str, threads: usize, more: &str) -> String {
        self.json_of(workload, "unpadded", threads, more)
    }

    /// Returns the line of the workloads' page for a mode.
    pub(crate) fn json_of(&self, workload: &str, mode: &str, threads: usize, more: &str) -> String {
        let (version, middle) = (env!("CARGO_PKG_VERSION"), self.0.len() / 2);
        let (times, rates) = (self.sorted(|s| s.seconds * 1e3), self.sorted(Step::rate));
        let loss = self.0[self.0.len() - 1].loss;
        let rss = memory::peak_rss_mb().map_or("null".to_owned(), |mb| format!("{mb:.0}"));
        format!(
            concat!(
                r#"{{"peer":"unpadded","version":"{}","workload":"{}","mode":"{}","precision":"{}","threads":{},"#,
                r#""tokens_per_s":{:.0},"tokens_per_s_total":{:.0},"step_ms_median":{:.2},"step_ms_min":{:.2},"#,
                r#""peak_rss_mb":{},"padding_ratio":1.0,"final_loss":{:.4},"steps":{}{}{}}}"#
            ),
            version,
            workload,
            mode,
            Chosen::get().name(),
            threads,
            rates[middle],
            self.total(),
            times[middle],
            times[0],
            rss,
            loss,
            self.0.len(),
            quiet::fields(&self.0),
            more
        )
    }
}

fn adam() -> Adam {
    Adam::new(1e-3).lazy()
}

/// Times two benches in turns, so that other load of the machine affects both alike. The first round warms up.
fn in_turns(
    a: (&mut Bench, &[Batch]),
    b: (&mut Bench, &[Batch]),
    rounds: usize,
    stage: Stage,
) -> Outcome<[Timed; 2]> {
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        for ((bench, batches), timed) in [((&mut *a.0, a.1), &mut of_a), ((&mut *b.0, b.1), &mut of_b)] {
            for batch in batches {
                let step = bench.run(batch, stage)?;
                if round > 0 {
                    timed.push(step);
                }
            }
        }
    }
    Ok([Timed(of_a), Timed(of_b)])
}

/// The hand-written LSTM's time over the built-in one's, in training and forward alone.
fn custom(threads: usize, rounds: usize) -> Outcome<String> {
    let bench = |cell| Bench::new(|net| models::classify(net, cell, 256), &adam(), threads);
    let batches = data::classify()?;
    let ratio = |cell, stage| -> Outcome<(Timed, f64)> {
        let (mut by_hand, mut built_in) = (bench(cell)?, bench(Cell::Lstm)?);
        let [a, b] = in_turns((&mut by_hand, &batches), (&mut built_in, &batches), rounds, stage)?;
        let ratio = a.seconds() / b.seconds();
        Ok((a, ratio))
    };
    let (_, forward) = ratio(Cell::ByHand, Stage::Forward)?;
    let (timed, training) = ratio(Cell::ByHand, Stage::Updates)?;
    let (_, apart) = ratio(Cell::ByHandApart, Stage::Updates)?;
    let more =
        format!(r#","ratio":{training:.3},"ratio_forward":{forward:.3},"ratio_eight_products":{apart:.3}"#);
    Ok(timed.json("custom", threads, &more))
}

/// One sequence of 4,000 steps with sixty-three of 20, against the two run apart.
fn long(threads: usize, rounds: usize) -> Outcome<String> {
    let short = vec![20; 63];
    let both = data::of_lengths(&[vec![4000], short.clone()].concat())?;
    let apart = [data::of_lengths(&[4000])?, data::of_lengths(&short)?];
    let bench = || Bench::new(|net| models::classify(net, Cell::Lstm, 256), &adam(), threads);
    let (mut together, mut alone) = (bench()?, bench()?);
    let both = std::slice::from_ref(&both);
    let [a, b] = in_turns((&mut together, both), (&mut alone, &apart), rounds, Stage::Updates)?;
    let more = format!(r#","ratio":{:.3}"#, a.seconds() / b.seconds());
    Ok(a.json("long", threads, &more))
}

fn run() -> Outcome<()> {
    let (mut chosen, mut threads, mut steps, mut parts) = (Vec::new(), 2, None, None);
    let (mut profiled, mut bucketed) = (false, false);
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let mut number = || -> Outcome<usize> {
            let value = words.next().unwrap_or_default();
            value.parse().map_err(|_| format!("{word}: expected a number, got `{value}`").into())
        };
        match word.as_str() {
            "--threads" => threads = number()?.max(1),
            "--profile" => profiled = true,
            "--bucketed" => bucketed = true,
            "--precision" => {
                CHOSEN.set(Chosen::of(&words.next().unwrap_or_default())?).map_err(|_| "one --precision")?;
            }
            "--steps" => steps = Some(number()?.max(1)),
            "--parts" => parts = Some(number()?.max(1)),
            known
                if WORKLOADS.contains(&known)
                    || scaling::knows(known)
                    || wide::knows(known)
                    || trained::knows(known) =>
            {
                chosen.push(word)
            }
            _ => {
                let known = WORKLOADS.join(", ");
                return Err(format!(
                    "expected {known}, --threads, --steps, --precision, --bucketed or --profile, got `{word}`"
                )
                .into());
            }
        }
    }
    if chosen.is_empty() {
        println!(
            "usage: cargo bench --bench workloads -- [{}] [--threads N] [--steps N] [--precision f32|bf16|int8] [--bucketed] [--profile]",
            WORKLOADS.join(" ")
        );
    }
    let words = chosen.iter().flat_map(|word| match word.as_str() {
        "cells" => models::CELLS.map(|(name, _)| name).to_vec(),
        word => vec![word],
    });
    for workload in words.collect::<Vec<_>>() {
        if !Chosen::get().fits(workload) {
            return Err(format!("{workload}: expected f32 or a workload with this `--precision`").into());
        }
        if bucketed && !["W2", "W2wide"].contains(&workload) {
            return Err(format!("{workload}: expected W2 or W2wide, or no `--bucketed`").into());
        }
        let (mut bench, batches) = match workload {
            "W7" => (
                Bench::new(|net| models::classify(net, Cell::Gru, 256), &adam(), threads)?,
                data::classify()?,
            ),
            "W4" => (Bench::new(models::nested, &adam(), threads)?, data::documents()?),
            "W5" | "W5hand" => {
                let attends = if workload == "W5" { Attends::AsOne } else { Attends::ByHand };
                (Bench::new(|net| models::translate(net, attends), &adam(), threads)?, data::pairs()?)
            }
            "W2" | "W2wide" => {
                let (hidden, batch) = if workload == "W2" { (512, 32) } else { (1024, 16) };
                let sgd = Sgd::new(1.0).clip_global_norm(5.0);
                let bench = Bench::new(|net| models::language(net, hidden), &sgd, threads)?;
                (bench, data::sentences(batch, bucketed)?)
            }
            "custom" => {
                println!("{}", custom(threads, steps.unwrap_or(1))?);
                continue;
            }
            "long" => {
                println!("{}", long(threads, steps.unwrap_or(10))?);
                continue;
            }
            axis if scaling::knows(axis) => {
                scaling::run(axis)?;
                continue;
            }
            training if trained::knows(training) => {
                trained::run(training, threads, steps, parts)?;
                continue;
            }
            table if wide::knows(table) => {
                wide::run(table, threads, steps)?;
                continue;
            }
            "conv" => {
                conv::run(threads, steps)?;
                continue;
            }
            "build" => {
                build::run()?;
                continue;
            }
            "attention" => {
                attention::run(threads, steps.unwrap_or(20))?;
                continue;
            }
            "crf" => {
                structured::crf(threads, steps.unwrap_or(50))?;
                continue;
            }
            "ctc" => {
                structured::ctc(threads, steps.unwrap_or(50))?;
                continue;
            }
            "W6" => {
                generate::w6(threads)?;
                continue;
            }
            "session" => {
                generate::session()?;
                continue;
            }
            "batching" => {
                batching::run(threads)?;
                continue;
            }
            "beam" => {
                generate::beam(threads, steps.unwrap_or(9))?;
                continue;
            }
            "queue" => {
                generate::queue(threads, steps.unwrap_or(15))?;
                continue;
            }
            "small" => {
                small::run()?;
                continue;
            }
            "norm" => {
                norm::run(threads, steps.unwrap_or(9))?;
                continue;
            }
            // W1, or with another cell.
            _ => {
                let cell = models::CELLS.iter().find(|(name, _)| *name == workload);
                let cell = cell.map_or(Cell::Lstm, |&(_, cell)| cell);
                (Bench::new(|net| models::classify(net, cell, 256), &adam(), threads)?, data::classify()?)
            }
        };
        let steps = steps.unwrap_or(batches.len().max(20));
        let mode = if bucketed { "bucketed" } else { "unpadded" };
        println!("{}", bench.measure(&batches, steps, Stage::Updates)?.json_of(workload, mode, threads, ""));
        if profiled {
            let plain = bench.measure(&batches, steps, Stage::Updates)?.seconds();
            bench.executor.start_profile();
            let timed = bench.measure(&batches, steps, Stage::Updates)?.seconds();
            let Some(profile) = bench.executor.take_profile() else { return Err("no profile".into()) };
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/target");
            std::fs::create_dir_all(file)?;
            let file = format!("{file}/profile-{workload}.json");
            std::fs::write(&file, profile.chrome_trace())?;
            println!("{profile}profiled in {:.3} of the time without; trace: {file}", timed / plain);
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let done = run().inspect_err(|error| eprintln!("error: {error}"));
    done.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}
