//! A linear classifier of bags of words, fed as csr and fed as the dense twin: accuracy, seconds and peak memory.

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use ndarray::Array2;
use unpadded::data::{Batch, Batches, Batching, Data, Field, Loader, Samples, Vocabulary};
use unpadded::layers::init;
use unpadded::metrics::Accuracy;
use unpadded::optimizer::Adagrad;
use unpadded::train::{Progress, Trainer, Until};
use unpadded::{Builder, DType, Variable};
use unpadded_text::{FirstIndex, LabelledRows, Target, TextFile};

use super::{Result, datasets, memory};

/// Names of the feeds.
const FEEDS: [&str; 2] = ["bags", "class"];
/// Set for the process that trains one of the two.
const TWIN: &str = "UNPADDED_BENCH_TWIN";

/// Trains each in a process of its own, as peak memory is a process's.
pub(super) fn compare() -> Result<()> {
    let Ok(twin) = std::env::var(TWIN) else {
        for twin in ["csr", "dense"] {
            let again = Command::new(std::env::current_exe()?).arg("train").env(TWIN, twin).status()?;
            if !again.success() {
                return Err(format!("the {twin} twin failed").into());
            }
        }
        return Ok(());
    };
    let path = datasets().join("20news-bow/20ng.zip");
    if !path.exists() {
        eprintln!("{} is not there: nothing to train on", path.display());
        return Ok(());
    }
    let read = |member: &str| -> Result<LabelledRows> {
        Ok(LabelledRows::of_files([&TextFile::open(&path)?.member(member)?], FirstIndex::One)?)
    };
    let (all, mut test) = (read("20ng/train.feat")?, read("20ng/test.feat")?);
    let (columns, classes) = (all.columns(), all.classes()?);
    test.drop_beyond(columns);
    let idf = rarity(&all, columns);
    let (part, dev) = all.clone().hold_out(10, 1);
    for seed in 1..=3 {
        let start = Instant::now();
        let (dev_accuracy, test_accuracy) = match twin.as_str() {
            "csr" => {
                let loader = |rows: &LabelledRows| -> Result<Loader> {
                    let loader = rows.loader(FEEDS, columns, Target::Class(&classes))?;
                    Ok(loader.batching(Batching::Sequences(64)))
                };
                let (a, b) = (loader(&part)?.shuffle(seed), loader(&dev)?);
                let (c, d) = (loader(&all)?.shuffle(seed), loader(&test)?);
                fit(|| model(&twin, &idf, &classes, seed), [&a, &b, &c, &d])?
            }
            _ => {
                let dense = |rows: &LabelledRows| Dense::new(rows, columns, &classes);
                let (a, b) = (dense(&part)?.shuffled(seed), dense(&dev)?);
                let (c, d) = (dense(&all)?.shuffled(seed), dense(&test)?);
                fit(|| model(&twin, &idf, &classes, seed), [&a, &b, &c, &d])?
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        let peak = memory::peak_rss_mb().map_or("null".to_owned(), |mb| format!("{mb:.0}"));
        println!(
            r#"{{"bench":"train 20news-bow","fed":"{twin}","seed":{seed},"dev_accuracy":{dev_accuracy:.4},"test_accuracy":{test_accuracy:.4},"seconds":{seconds:.2},"peak_rss_mb":{peak}}}"#
        );
    }
    Ok(())
}

/// Softmax regression on the square roots of counts, of words that few documents have more, each row of length 1.
fn model(twin: &str, idf: &[f32], classes: &Vocabulary, seed: u64) -> Result<Trainer> {
    let columns = idf.len();
    let net = Builder::new().seed(seed);
    let bags = match twin {
        "csr" => net.feed_csr(FEEDS[0], DType::F32, columns, 0),
        _ => net.feed(FEEDS[0], DType::F32, &[columns], 0),
    };
    let class = net.feed(FEEDS[1], DType::I64, &[], 0);
    let rare = net.parameter("idf", DType::F32, &[columns], init::constant(1.0));
    net.stop_gradient(rare);
    let roots = bags.sqrt() * rare;
    // A document without a word has no length.
    let length = (roots.square().sum_features() + 1e-12).sqrt();
    let weight = net.parameter("weight", DType::F32, &[columns, classes.len()], init::zeros());
    let bias = net.parameter("bias", DType::F32, &[classes.len()], init::zeros());
    let logits = (roots / length).product(weight, Some(bias));
    let loss = logits.cross_entropy(class).mean() + weight.square().sum() * 3e-5;
    let trainer = Trainer::new(net, loss, &Adagrad::new(0.25))?;
    let mut trainer = trainer.metric(Accuracy::new(logits, class)).select("accuracy").threads(2);
    trainer.set_parameter("idf", ndarray::Array1::from(idf.to_vec()))?;
    Ok(trainer.progress(Progress::Quiet))
}

/// Chooses the number of epochs on a held-out tenth of the documents, then trains on all documents for this number, and evaluates
/// on the test documents.
fn fit(make: impl Fn() -> Result<Trainer>, [part, dev, all, test]: [&dyn Data; 4]) -> Result<(f64, f64)> {
    let mut chosen = make()?.patience(4);
    let best = chosen.fit(part, dev, Until::Epochs(40))?.best.ok_or("no epoch was evaluated")?;
    let mut trainer = make()?;
    trainer.fit(all, dev, Until::Epochs(best.epoch + 1))?;
    Ok((best.value, trainer.evaluate(test)?.get("accuracy").unwrap_or(f64::NAN)))
}

/// ln((1 + n) / (1 + df)) + 1, of each column.
fn rarity(rows: &LabelledRows, columns: usize) -> Vec<f32> {
    let mut documents = vec![0u32; columns];
    rows.records().iter().flat_map(|row| &row.indices).for_each(|&column| documents[column as usize] += 1);
    let n = rows.records().len() as f32;
    documents.iter().map(|&df| ((1.0 + n) / (1.0 + df as f32)).ln() + 1.0).collect()
}

/// The same rows as one dense matrix; a batch takes some of its rows.
struct Dense {
    matrix: Arc<Array2<f32>>,
    numbers: Loader,
}

impl Dense {
    fn new(rows: &LabelledRows, columns: usize, classes: &Vocabulary) -> Result<Self> {
        let mut matrix = Array2::zeros((rows.records().len(), columns));
        let mut samples = Vec::new();
        for (i, row) in rows.records().iter().enumerate() {
            row.indices.iter().zip(&row.values).for_each(|(&column, &x)| matrix[[i, column as usize]] = x);
            samples.push(vec![Field::Int(i as i64), Field::Int(classes.lookup(&row.label.to_string())?)]);
        }
        let samples: Samples = samples.into_iter().collect();
        let numbers = Loader::new(samples, &FEEDS)?.batching(Batching::Sequences(64));
        Ok(Self { matrix: Arc::new(matrix), numbers })
    }

    fn shuffled(self, seed: u64) -> Self {
        Self { numbers: self.numbers.shuffle(seed), ..self }
    }
}

impl Data for Dense {
    fn batches(&self, epoch: Option<u64>, from: u64) -> unpadded::Result<Batches> {
        let matrix = Arc::clone(&self.matrix);
        let dense = move |batch: unpadded::Result<Batch>| {
            let mut batch = batch?;
            let numbers: Vec<usize> =
                batch.values[0].1.as_slice::<i64>()?.iter().map(|&i| i as usize).collect();
            batch.values[0].1 = Variable::from(matrix.select(ndarray::Axis(0), &numbers));
            Ok(batch)
        };
        Ok(Box::new(self.numbers.batches(epoch, from)?.map(dense)))
    }

    fn batch_count(&self) -> Option<u64> {
        self.numbers.batch_count()
    }

    fn fingerprint(&self) -> u64 {
        self.numbers.fingerprint()
    }
}
