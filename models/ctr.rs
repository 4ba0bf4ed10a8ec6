//! Classifies sparse rows, for example whether somebody clicks: a wide part weighs each feature, a deep part sums vectors of the
//! features, and their logits are added (Cheng et al., "Wide & deep learning for recommender systems", 2016).
//!
//! `cargo run --release --example ctr` trains on made-up clicks; who knows how they were drawn is right in 83.4 % of the test
//! rows. Two paths, of LIBSVM lines `label feature:value …`, train on other rows and test on them. A tenth of the training rows
//! is held out to choose the epoch by.
mod paths;

use unpadded::data::{Batching, Loader};
use unpadded::layers::{Linear, init};
use unpadded::metrics::Accuracy;
use unpadded::optimizer::Adam;
use unpadded::train::{Trainer, Until};
use unpadded::{Builder, DType, Result};
use unpadded_text::{LabelledRows, Target};

/// A weight for each feature and class, and vectors → hidden layer → classes, added up.
fn network(columns: usize, classes: usize) -> Result<Trainer> {
    let net = Builder::new().seed(1);
    let features = net.feed_csr("features", DType::F32, columns, 0); // what is not 0 of each row
    let class = net.feed("class", DType::I64, &[], 0);
    let wide = features.linear(Linear::new(classes).weight_init(init::zeros()).named("wide"));
    // A sparse row times a table is an embedding bag: the sum of the vectors of its features, times their values.
    let table = Linear::new(192).without_bias().weight_init(init::normal(0.1)).named("vectors");
    let logits = wide + features.linear(table).dropout(0.85).linear(64).relu().linear(classes);
    let trainer = Trainer::new(net, logits.cross_entropy(class).mean(), &Adam::new(1e-3).lazy())?;
    // On few rows the loss tells better than the accuracy which of two epochs is better.
    Ok(trainer.metric(Accuracy::new(logits, class)).select("loss").patience(5))
}

/// Trains for some epochs. Returns the accuracy on the test rows, from 0 to 1, in the epoch with the least loss on held-out rows.
fn train(rows: LabelledRows, mut test: LabelledRows, epochs: u64) -> Result<f64> {
    let (columns, classes) = (rows.columns(), rows.classes()?);
    let (rows, dev) = rows.hold_out(10, 1); // by the row alone, so that equal ones are on one side
    let dropped = test.drop_beyond(columns);
    println!("{}: {dropped} values of features that no training row has are left out", test.name());
    let batches = |rows: &LabelledRows| -> Result<Loader> {
        let loader = rows.loader(["features", "class"], columns, Target::Class(&classes))?;
        Ok(loader.batching(Batching::Sequences(64)))
    };
    let mut trainer = network(columns, classes.len())?;
    trainer.fit(&batches(&rows)?.shuffle(1).prefetch(4), &batches(&dev)?, Until::Epochs(epochs))?;
    trainer.use_best()?;
    let scores = trainer.evaluate(&batches(&test)?)?;
    println!("test: {scores}");
    Ok(scores.get("accuracy").unwrap_or(f64::NAN))
}

fn main() -> Result<()> {
    let [path, test] = paths::paths(["clicks/train.libsvm", "clicks/test.libsvm"])?;
    train(LabelledRows::open(path)?, LabelledRows::open(test)?, 40)?;
    Ok(())
}

#[test]
fn it_learns_what_no_sum_of_weights_says() -> Result<()> {
    use unpadded_text::{FirstIndex, TextFile};
    // The class is the exclusive or of two features; the third tells rows apart, so that some are held out.
    let lines = (0..400).map(|i| {
        let (a, b) = (i % 2, i / 2 % 2);
        format!("{} {}:1 {}:1 5:0.{:03}\n", a ^ b, a + 1, b + 3, i)
    });
    let path = std::env::temp_dir().join(format!("unpadded-ctr-{}.libsvm", std::process::id()));
    std::fs::write(&path, lines.collect::<String>())?;
    let rows = LabelledRows::of_files([&TextFile::open(&path)?], FirstIndex::One);
    std::fs::remove_file(path)?;
    let rows = rows?;
    assert!(train(rows.clone(), rows, 60)? > 0.95);
    Ok(())
}
