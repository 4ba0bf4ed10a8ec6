//! Trainings by a `Trainer`, on one process or, with the feature `mpi`, on several: `mpirun -n 2 … trained-W1 --threads 1`.

use unpadded::Builder;
use unpadded::data::{self as loading, Batches, Data};
use unpadded::layers::{EmbeddingBag, init};
use unpadded::optimizer::Adam;
use unpadded::parallel::World;
use unpadded::train::{Progress, Trainer, Until};

use crate::models::{self, Cell, Model};
use crate::{Outcome, data, memory};

/// Batches that are there.
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

/// A workload's word: `trained-W1`.
pub(crate) fn knows(word: &str) -> bool {
    ["trained-W1", "trained-W4", "trained-W2", "trained-W3"].contains(&word)
}

/// Trains for some steps, dealt to `parts` parts, and prints the rate, this rank's waiting and what it sent a step.
pub(crate) fn run(word: &str, threads: usize, steps: Option<usize>, parts: Option<usize>) -> Outcome<()> {
    const HEIGHT: usize = 1_000_000;
    let net = Builder::new();
    let (model, batches) = match word {
        "trained-W1" => (models::classify(&net, Cell::Lstm, 256), data::classify()?),
        "trained-W4" => (models::nested(&net), data::documents()?),
        "trained-W2" => (models::language(&net, 512), data::sentences(32)?),
        _ => {
            let words = net.feed("words", unpadded::DType::I64, &[], 1);
            let label = net.feed("label", unpadded::DType::I64, &[], 0);
            let bag = EmbeddingBag::new(HEIGHT, 64).sparse().weight_init(init::uniform(-0.05, 0.05));
            let loss = words.embedding_bag(bag).linear(2).cross_entropy(label).mean();
            (Model { feeds: vec![words, label], loss }, data::wide(HEIGHT)?)
        }
    };
    let names: Vec<String> = model.feeds.iter().map(|&feed| net.name_of(feed)).collect();
    let batch = |(values, tokens): data::Batch| {
        let numbers = (0..values[0].batch_size() as u64).collect();
        loading::Batch {
            values: names.iter().cloned().zip(values).collect(),
            numbers,
            tokens,
            padded: tokens,
        }
    };
    let batches = Made(batches.into_iter().map(batch).collect());
    let dev = Made(batches.0[..1].to_vec());
    let adam = if word == "trained-W3" { Adam::new(1e-3) } else { Adam::new(1e-3).lazy() };
    let mut trainer = Trainer::new(net, model.loss, &adam)?.threads(threads).progress(Progress::Quiet);
    if let Some(parts) = parts {
        trainer = trainer.parts(parts as u64);
    }
    let world = world()?;
    if let Some(world) = &world {
        trainer = trainer.distributed(world.clone());
    }
    trainer.fit(&batches, &dev, Until::Steps(3))?;
    let before = world.as_ref().map(World::traffic).unwrap_or_default();
    let steps = steps.unwrap_or(batches.0.len().max(20)) as u64;
    let report = trainer.fit(&batches, &dev, Until::Steps(3 + steps))?;
    let after = world.as_ref().map(World::traffic).unwrap_or_default();
    let (rank, ranks) = world.as_ref().map_or((0, 1), |world| (world.rank(), world.size()));
    if std::env::var_os("UNPADDED_EACH_RANK").is_some() || rank == 0 {
        println!(
            concat!(
                r#"{{"peer":"unpadded","workload":"{}","rank":{},"ranks":{},"threads":{},"parts":{},"tokens_per_s_total":{:.0},"#,
                r#""step_ms":{:.2},"waited":{:.3},"sent_per_step":{},"peak_rss_mb":{:.0},"steps":{}}}"#
            ),
            word,
            rank,
            ranks,
            threads,
            trainer.position().parts.max(1),
            report.tokens_per_s,
            report.seconds / steps as f64 * 1e3,
            (after.waited - before.waited).as_secs_f64() / report.seconds,
            (after.sent - before.sent) / steps,
            memory::peak_rss_mb().unwrap_or_default(),
            steps,
        );
    }
    Ok(())
}

/// The processes that `mpirun` started.
#[cfg(feature = "mpi")]
fn world() -> Outcome<Option<World>> {
    Ok(Some(World::mpi()?))
}

#[cfg(not(feature = "mpi"))]
fn world() -> Outcome<Option<World>> {
    Ok(None)
}
