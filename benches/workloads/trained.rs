//! Trainings by a `Trainer`, on one process or, with the feature `mpi`, on several: `mpirun -n 2 … trained-W1 --threads 1`.

use unpadded::Builder;
use unpadded::data::{self as loading, Batches, Data};
use unpadded::layers::{EmbeddingBag, init};
use unpadded::optimizer::Adam;
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
    let mut rank = 0;
    #[cfg(feature = "mpi")]
    let world = unpadded::parallel::World::mpi()?;
    #[cfg(feature = "mpi")]
    {
        rank = world.rank();
        trainer = trainer.distributed(world.clone());
    }
    trainer.fit(&batches, &dev, Until::Steps(3))?;
    #[cfg(feature = "mpi")]
    let before = world.traffic();
    let steps = steps.unwrap_or(batches.0.len().max(20)) as u64;
    let report = trainer.fit(&batches, &dev, Until::Steps(3 + steps))?;
    let mut more = String::new();
    #[cfg(feature = "mpi")]
    {
        let after = world.traffic();
        let waited = (after.waited - before.waited).as_secs_f64();
        let sent = (after.sent - before.sent) / steps;
        more = format!(
            r#","ranks":{},"waited":{:.3},"sent_per_step":{sent}"#,
            world.size(),
            waited / report.seconds
        );
    }
    let rss = memory::peak_rss_mb().unwrap_or_default();
    if std::env::var_os("UNPADDED_EACH_RANK").is_some() || rank == 0 {
        println!(
            r#"{{"peer":"unpadded","workload":"{word}","rank":{rank},"threads":{threads},"parts":{},"tokens_per_s_total":{:.0},"step_ms":{:.2},"peak_rss_mb":{rss:.0},"steps":{steps}{more}}}"#,
            parts.unwrap_or(0),
            report.tokens_per_s,
            report.seconds / steps as f64 * 1e3,
        );
        more.clear();
    }
    Ok(())
}
