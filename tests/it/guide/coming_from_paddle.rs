//! The programs of the page `src/guide/coming_from_paddle.md`, whole: the page shows the lines that teach.

#[test]
fn a_classifier() -> unpadded::Result<()> {
    use unpadded::layers::Embedding;
    use unpadded::ops::Pool;
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType};
    use unpadded::data::{Field, Loader, Samples};
    let samples: Samples = (0..8).map(|i| vec![Field::from(vec![i % 7, 3]), (i % 2).into()]).collect();
    let (train, dev) = (Loader::new(samples.clone(), &["words", "label"])?, Loader::new(samples, &["words", "label"])?);

    let net = Builder::new().seed(1);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let emb = words.embedding(Embedding::new(10_000, 128).sparse());
    let h = emb.lstm(128);
    let last = h.sequence_pool(Pool::Last);
    let logits = last.linear(2);
    let loss = logits.cross_entropy(label).mean();
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-3).lazy())?;
    let mut trainer = trainer.progress(unpadded::train::Progress::Quiet);
    trainer.fit(&train, &dev, Until::Epochs(1))?;
    Ok(())
}

#[test]
fn dynamicrnn() -> unpadded::Result<()> {
    use unpadded::{Builder, DType};
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[8], 1);
    let topics = net.feed("topics", DType::F32, &[4], 0);
    let start = net.feed("start", DType::F32, &[16], 0);
    let states = net.recurrent(x, |step, word| {
        let prev = step.memory_from(start);
        // What is used from outside is a static input without being called one.
        let hidden = (word.linear(16) + topics.linear(16) + prev.linear(16)).tanh();
        step.update(prev, hidden);
        hidden
    });
    let _ = states;
    net.finish()?;
    Ok(())
}

#[test]
fn lod_tensors() -> unpadded::Result<()> {
    use unpadded::ndarray::Array1;
    use unpadded::{Lod, Variable};
    let t = Variable::sequences(Array1::from_iter(0..6i64), Lod::from_lengths(&[vec![2, 1], vec![3, 1, 2]])?)?;
    let lod = t.lod().unwrap();
    assert_eq!(lod.to_string(), "[[2, 1], [3, 1, 2]]");
    assert_eq!(lod.to_levels(), [vec![0, 2, 3], vec![0, 3, 4, 6]]);
    Ok(())
}
