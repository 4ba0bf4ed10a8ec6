//! Trainings by a `Trainer` or over a `WorldStore`, on one process or, with the feature `mpi`, on several:
//! `mpirun -n 2 … trained-W1 --threads 1`.

use std::time::Instant;

use unpadded::data::{self as loading, Batches, Data};
use unpadded::executor::Scope;
use unpadded::layers::{EmbeddingBag, init};
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::parallel::{self, Traffic, World};
use unpadded::store::{StoreTrainer, WorldStore, share};
use unpadded::train::{Progress, Trainer, Until};
use unpadded::{Builder, Variable};

use crate::models::{self, Cell, Model};
use crate::{Outcome, data, memory};

/// Batches that lie in memory.
struct Made(Vec<loading::Batch>);

impl Data for Made {
    fn batches(&self, _: Option<u64>, from: u64) -> unpadded::Result<Batches> {
        let rest = self.0.get(from as usize..).unwrap_or_default().to_vec();
        Ok(Box::new(rest.into_iter().map(Ok)))
    }

    fn batch_count(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    fn fingerprint(&self) -> u64 {
        self.0.len() as u64
    }
}

/// A workload's word: `trained-W1`, or `stored-W3-1000000` with the height of the table.
pub(crate) fn knows(word: &str) -> bool {
    ["trained-W1", "trained-W4", "trained-W2", "trained-W3"].contains(&word) || height(word).is_some()
}

fn height(word: &str) -> Option<usize> {
    word.strip_prefix("stored-W3-")?.parse().ok().filter(|&height| height > 0)
}

/// The model of W3: a bag of embeddings.
fn wide(net: &Builder, height: usize) -> Model {
    let words = net.feed("words", unpadded::DType::I64, &[], 1);
    let label = net.feed("label", unpadded::DType::I64, &[], 0);
    let bag = EmbeddingBag::new(height, 64).sparse().weight_init(init::uniform(-0.05, 0.05));
    Model { feeds: vec![words, label], loss: words.embedding_bag(bag).linear(2).cross_entropy(label).mean() }
}

/// Trains W3 with its table and the state of exact Adam dealt to the ranks.
fn stored(word: &str, height: usize, steps: Option<usize>) -> Outcome<()> {
    let net = Builder::new();
    let model = wide(&net, height);
    let (registry, mut program) = (net.registry(), net.finish()?);
    Adam::new(1e-3).minimize(&mut program, &registry, model.loss.id())?;
    let Some(world) = world()? else { return Err("expected a build with `--features mpi`".into()) };
    let (rank, ranks) = (world.rank(), world.size());
    let mut store = WorldStore::new(&registry, world.clone());
    share(&program, &mut Scope::new(), &mut store)?;
    let mut trainer = StoreTrainer::new(&program, &registry, model.loss, store)?;
    let batches = data::wide(height)?;
    let steps = steps.unwrap_or(batches.len()).max(1);
    let (mut tokens, mut clock, mut before) = (0, Instant::now(), world.traffic());
    for (step, (values, of_batch)) in batches.iter().cycle().take(3 + steps).enumerate() {
        if step == 3 {
            (tokens, clock, before) = (0, Instant::now(), world.traffic());
        }
        let sequences = values[0].batch_size();
        let own = rank * sequences / ranks..(rank + 1) * sequences / ranks;
        let own: Vec<Variable> =
            values.iter().map(|value| value.slice_sequences(own.clone())).collect::<Result<_, _>>()?;
        let feeds: Vec<_> = model.feeds.iter().map(|feed| feed.id()).zip(&own).collect();
        trainer.step(&feeds, &[])?;
        tokens += of_batch;
    }
    let seconds = clock.elapsed().as_secs_f64();
    line(word, 1, ranks, tokens as f64 / seconds, seconds, steps, &world, before);
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn line(
    word: &str,
    threads: usize,
    parts: usize,
    rate: f64,
    seconds: f64,
    steps: usize,
    world: &World,
    before: Traffic,
) {
    let after = world.traffic();
    if std::env::var_os("UNPADDED_EACH_RANK").is_some() || world.rank() == 0 {
        println!(
            concat!(
                r#"{{"peer":"unpadded","workload":"{}","rank":{},"ranks":{},"threads":{},"parts":{},"tokens_per_s_total":{:.0},"#,
                r#""step_ms":{:.2},"waited":{:.3},"sent_per_step":{},"peak_rss_mb":{:.0},"steps":{}}}"#
            ),
            word,
            world.rank(),
            world.size(),
            threads,
            parts,
            rate,
            seconds / steps as f64 * 1e3,
            (after.waited - before.waited).as_secs_f64() / seconds,
            (after.sent - before.sent) / steps as u64,
            memory::peak_rss_mb().unwrap_or_default(),
            steps,
        );
    }
}

/// Trains for some steps, dealt to `parts` parts, and prints the rate, this rank's waiting and what it sent a step.
pub(crate) fn run(word: &str, threads: usize, steps: Option<usize>, parts: Option<usize>) -> Outcome<()> {
    const HEIGHT: usize = 1_000_000;
    if let Some(height) = height(word) {
        return stored(word, height, steps);
    }
    let net = Builder::new();
    let (model, batches) = match word {
        "trained-W1" => (models::classify(&net, Cell::Lstm, 256), data::classify()?),
        "trained-W4" => (models::nested(&net), data::documents()?),
        "trained-W2" => (models::language(&net, 512), data::sentences(32, false)?),
        _ => (wide(&net, HEIGHT), data::wide(HEIGHT)?),
    };
    let names: Vec<String> = model.feeds.iter().map(|&feed| net.name_of(feed)).collect();
    let batch = |(values, tokens): data::Batch| {
        let numbers = (0..values[0].batch_size() as u64).collect();
        loading::Batch::of(names.iter().cloned().zip(values).collect(), numbers, tokens)
    };
    let batches = Made(batches.into_iter().map(batch).collect());
    let dev = Made(batches.0[..1].to_vec());
    let adam = if word == "trained-W3" { Adam::new(1e-3) } else { Adam::new(1e-3).lazy() };
    let mut trainer = Trainer::new(net, model.loss, &adam)?.threads(threads).progress(Progress::Quiet);
    if let Some(parts) = parts {
        trainer = trainer.parts(parts as u64);
    }
    let world = world()?.unwrap_or_else(|| World::new(parallel::threads(1).remove(0)));
    let mut trainer = trainer.distributed(world.clone());
    trainer.fit(&batches, &dev, Until::Steps(3))?;
    let before = world.traffic();
    let steps = steps.unwrap_or(batches.0.len().max(20));
    let report = trainer.fit(&batches, &dev, Until::Steps(3 + steps as u64))?;
    let parts = trainer.position().parts.max(1) as usize;
    line(word, threads, parts, report.tokens_per_s, report.seconds, steps, &world, before);
    Ok(())
}

/// The processes that `mpirun` started.
#[cfg(feature = "mpi")]
fn world() -> Outcome<Option<World>> {
    Ok(Some(World::mpi(std::time::Duration::from_secs(300))?))
}

#[cfg(not(feature = "mpi"))]
fn world() -> Outcome<Option<World>> {
    Ok(None)
}
