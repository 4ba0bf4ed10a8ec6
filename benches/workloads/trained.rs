//! Trainings by a `Trainer`, on one process or, with the feature `mpi`, on several:
//! `mpirun -n 2 … trained-W1 --threads 1`.

use unpadded::Builder;
use unpadded::data::{self as loading, Batches, Data};
use unpadded::layers::{EmbeddingBag, init};
use unpadded::optimizer::Adam;
use unpadded::parallel::{self, Traffic, World};
use unpadded::train::{Progress, Trainer, Until};

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

/// A workload's word: `trained-W1`, or `dealt-W3` with its table dealt to the ranks.
pub(crate) fn knows(word: &str) -> bool {
    ["trained-W1", "trained-W4", "trained-W2", "trained-W3", "dealt-W3"].contains(&word)
}

/// The model of W3: a bag of embeddings.
fn wide(net: &Builder, height: usize, row_sparse: bool) -> Model {
    let words = net.feed("words", unpadded::DType::I64, &[], 1);
    let label = net.feed("label", unpadded::DType::I64, &[], 0);
    let bag = EmbeddingBag::new(height, 64).weight_init(init::uniform(-0.05, 0.05));
    let bag = if row_sparse { bag.row_sparse() } else { bag.sparse() };
    Model { feeds: vec![words, label], loss: words.embedding_bag(bag).linear(2).cross_entropy(label).mean() }
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
    let net = Builder::new();
    let (model, batches) = match word {
        "trained-W1" => (models::classify(&net, Cell::Lstm, 256), data::classify()?),
        "trained-W4" => (models::nested(&net), data::documents()?),
        "trained-W2" => (models::language(&net, 512), data::sentences(32, false)?),
        _ => (wide(&net, HEIGHT, word == "dealt-W3"), data::wide(HEIGHT)?),
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
    let trainer = if word == "dealt-W3" { trainer.deal_tables() } else { trainer };
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
