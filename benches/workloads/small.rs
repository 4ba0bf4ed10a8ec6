//! What does a prediction service wait for? Few and short sequences, forward only; and the fixed cost of every run, whatever
//! its operators compute: the time of the same model of width 1.

use std::time::Instant;

use unpadded::checkpoint::Checkpoint;
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::Embedding;
use unpadded::ops::Pool;
use unpadded::predict::Predictor;
use unpadded::program::VarId;
use unpadded::{Builder, DType, Registry};

use crate::{Chosen, Outcome, data};

/// How often each time is measured, over how many runs; the least counts: other load of the machine only adds time.
const ROUNDS: usize = 5;
const RUNS: usize = 30;

/// A classifier as it is served: embedding of 30000 words → LSTM → last step → linear 2.
struct Served {
    checkpoint: Checkpoint,
    registry: Registry,
    words: VarId,
    logits: VarId,
}

pub(crate) fn run() -> Outcome<()> {
    let mut lines = Vec::new();
    println!(
        "one run forward, least of {ROUNDS} medians, in microseconds; hidden 1 shows what every run costs\n"
    );
    println!("| hidden | batch | steps | threads | executor | predictor |\n|---|---|---|---|---|---|");
    for width in [1, 64, 256, 512] {
        let served = Served::new(width)?;
        for (batch, steps) in [(1, 5), (1, 50), (8, 5), (8, 50)] {
            for threads in [1, 2] {
                let [executor, predictor] = served.times(batch, steps, threads)?;
                println!("| {width} | {batch} | {steps} | {threads} | {executor:.1} | {predictor:.1} |");
                lines.push(format!(
                    r#"{{"hidden":{width},"batch":{batch},"steps":{steps},"threads":{threads},"executor_us":{executor:.1},"predictor_us":{predictor:.1}}}"#
                ));
            }
        }
    }
    println!(
        r#"{{"peer":"unpadded","workload":"small","precision":"{}","runs":[{}]}}"#,
        Chosen::get().name(),
        lines.join(",")
    );
    Ok(())
}

impl Served {
    /// Builds a classifier with an LSTM of the given width, and word vectors of the same width, at most 128.
    fn new(width: usize) -> Outcome<Self> {
        let net = Builder::new();
        let words = net.feed("words", DType::I64, &[], 1);
        let x = words.embedding(Embedding::new(30_000, width.min(128)));
        let logits = x.lstm(width).sequence_pool(Pool::Last).linear(2);
        let (registry, outputs) = (net.registry(), [("logits".to_owned(), net.name_of(logits))]);
        let mut checkpoint = Checkpoint::of(net.finish()?, outputs);
        let mut scope = Scope::of(&checkpoint.program)?;
        for name in scope.names().map(str::to_owned).collect::<Vec<_>>() {
            checkpoint.tensors.insert(name.clone(), scope.value(&name)?);
        }
        if Chosen::get() == Chosen::Int8 && width >= 16 {
            checkpoint = checkpoint.quantize(&registry)?;
        }
        Ok(Self { checkpoint, registry, words: words.id(), logits: logits.id() })
    }

    /// Returns the times of an executor and of a predictor, in microseconds.
    fn times(&self, batch: usize, steps: usize, threads: usize) -> Outcome<[f64; 2]> {
        let (values, _) = data::of_lengths(&vec![steps; batch])?;
        let feeds = [(self.words, &values[0])];
        let program = &self.checkpoint.program;
        let mut executor = Executor::new(program, &self.registry, &[self.logits], threads)?;
        let mut scope = Scope::new();
        self.checkpoint.clone().restore(&mut scope)?;
        let predictor = Predictor::new(self.checkpoint.clone(), &self.registry)?.threads(threads);
        let mut least = [f64::INFINITY; 2];
        for _ in 0..ROUNDS {
            let run = median(&mut || Ok(executor.run(&mut scope, &Run::infer(&feeds))?))?;
            let ask = || predictor.run(&[("words", &values[0])], &["logits"]);
            let asked = median(&mut || ask().map(drop).map_err(Into::into))?;
            least = [least[0].min(run), least[1].min(asked)];
        }
        Ok(least)
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
