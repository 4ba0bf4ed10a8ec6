//! What does a prediction service wait for? Few and short sequences, forward only: the time of a run, and what of it is no
//! operator's.

use std::time::Instant;

use unpadded::checkpoint::Checkpoint;
use unpadded::executor::{Executor, Part, Run, Scope};
use unpadded::layers::Embedding;
use unpadded::ops::{self, Pool};
use unpadded::predict::Predictor;
use unpadded::program::VarId;
use unpadded::{Builder, DType, Program, Registry};

use crate::{Outcome, data};

/// How long each time is taken, in seconds, and the fewest runs.
const SECONDS: f64 = 0.1;
const LEAST_RUNS: usize = 30;

/// A classifier as it is served: embedding 30000×128 → LSTM → last step → linear 2.
struct Served {
    program: Program,
    registry: Registry,
    words: VarId,
    logits: VarId,
}

/// The median times of a run in microseconds.
struct Times {
    /// Of an executor.
    run: f64,
    /// Of these in calls of operators, and in packing weights for them, by a profile.
    calls: f64,
    packing: f64,
    /// Of a predictor.
    predictor: f64,
}

pub(crate) fn run() -> Outcome<()> {
    println!(
        "one run forward, median, in microseconds; `fixed` is what is in no operator's call and no packing\n"
    );
    println!("| hidden | batch | steps | threads | run | calls | packing | fixed | predictor |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for hidden in [64, 256, 512] {
        let served = Served::new(hidden)?;
        for (batch, steps) in [(1, 5), (1, 50), (8, 5), (8, 50)] {
            for threads in [1, 2] {
                let Times { run, calls, packing, predictor } = served.times(batch, steps, threads)?;
                let fixed = run - calls - packing;
                println!(
                    "| {hidden} | {batch} | {steps} | {threads} | {run:.1} | {calls:.1} | {packing:.1} | {fixed:.1} | \
                     {predictor:.1} |"
                );
            }
        }
    }
    Ok(())
}

impl Served {
    fn new(hidden: usize) -> Outcome<Self> {
        let net = Builder::new();
        let words = net.feed("words", DType::I64, &[], 1);
        let logits =
            words.embedding(Embedding::new(30_000, 128)).lstm(hidden).sequence_pool(Pool::Last).linear(2);
        let (registry, words, logits) = (net.registry(), words.id(), logits.id());
        Ok(Self { program: net.finish()?, registry, words, logits })
    }

    fn times(&self, batch: usize, steps: usize, threads: usize) -> Outcome<Times> {
        let (values, _) = data::of_lengths(&vec![steps; batch])?;
        let feeds = [(self.words, &values[0])];
        let mut executor = Executor::new(&self.program, &self.registry, &[self.logits], threads)?;
        let mut scope = Scope::of(&self.program)?;
        let mut ran = || Ok(executor.run(&mut scope, &Run::infer(&feeds))?);
        let run = median(&mut ran)?;
        executor.start_profile();
        for _ in 0..LEAST_RUNS {
            executor.run(&mut scope, &Run::infer(&feeds))?;
        }
        let Some(profile) = executor.take_profile() else { return Err("no profile".into()) };
        let in_part = |part| profile.time_in(part).as_secs_f64() * 1e6 / profile.runs as f64;
        let calls = [Part::Outside, Part::Before, Part::Sequences, Part::Loop, Part::After].map(in_part);
        let predictor = self.predictor(&mut scope)?.threads(threads);
        let predictor = median(&mut || Ok(drop(predictor.run(&[("words", &values[0])], &["logits"])?)))?;
        Ok(Times { run, calls: calls.iter().sum(), packing: in_part(Part::Prepare), predictor })
    }

    fn predictor(&self, scope: &mut Scope) -> Outcome<Predictor> {
        let mut checkpoint = Checkpoint {
            outputs: [("logits".to_owned(), self.program.var(self.logits).name.clone())].into(),
            program: self.program.clone(),
            ..Checkpoint::default()
        };
        for (_, parameter) in self.program.vars().filter(|(_, var)| var.persistable) {
            checkpoint.tensors.insert(parameter.name.clone(), scope.get(&parameter.name)?);
        }
        Ok(Predictor::new(checkpoint, &ops::catalogue())?)
    }
}

/// The median time of a call in microseconds; the first calls, in which buffers grow, are left out.
fn median(call: &mut dyn FnMut() -> Outcome<()>) -> Outcome<f64> {
    for _ in 0..LEAST_RUNS {
        call()?;
    }
    let (begin, mut times) = (Instant::now(), Vec::new());
    while times.len() < LEAST_RUNS || begin.elapsed().as_secs_f64() < SECONDS {
        let clock = Instant::now();
        call()?;
        times.push(clock.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
