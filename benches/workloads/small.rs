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

/// How often each time is taken, of how many runs; the least counts: what else the machine does only adds to it.
const ROUNDS: usize = 5;
const RUNS: usize = 30;

/// A classifier as it is served: embedding 30000×128 → LSTM → last step → linear 2.
struct Served {
    program: Program,
    registry: Registry,
    words: VarId,
    logits: VarId,
}

/// Times of a run in microseconds.
#[derive(Clone, Copy)]
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
        "one run forward, least of {ROUNDS} medians, in microseconds; `fixed` is what is in no operator's call and no packing\n"
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
        let predictor = self.predictor(&mut scope)?.threads(threads);
        let none = f64::INFINITY;
        let mut least = Times { run: none, calls: none, packing: none, predictor: none };
        for _ in 0..ROUNDS {
            let run = median(&mut || Ok(executor.run(&mut scope, &Run::infer(&feeds))?))?;
            least.run = least.run.min(run);
            executor.start_profile();
            for _ in 0..RUNS {
                executor.run(&mut scope, &Run::infer(&feeds))?;
            }
            let Some(profile) = executor.take_profile() else { return Err("no profile".into()) };
            let in_part = |part| profile.time_in(part).as_secs_f64() * 1e6 / profile.runs as f64;
            let calls = [Part::Outside, Part::Before, Part::Sequences, Part::Loop, Part::After].map(in_part);
            least.calls = least.calls.min(calls.iter().sum());
            least.packing = least.packing.min(in_part(Part::Prepare));
            let ask = || predictor.run(&[("words", &values[0])], &["logits"]);
            least.predictor = least.predictor.min(median(&mut || Ok(drop(ask()?)))?);
        }
        Ok(least)
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
    let mut times = Vec::new();
    for _ in 0..2 * RUNS {
        let clock = Instant::now();
        call()?;
        times.push(clock.elapsed().as_secs_f64() * 1e6);
    }
    let late = &mut times[RUNS..];
    late.sort_by(f64::total_cmp);
    Ok(late[late.len() / 2])
}
