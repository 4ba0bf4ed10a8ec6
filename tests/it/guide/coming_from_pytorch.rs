//! The programs of the page `src/guide/coming_from_pytorch.md`, whole: the page shows the lines that teach.

#[test]
fn a_classifier() -> unpadded::Result<()> {
    use unpadded::layers::Embedding;
    use unpadded::ops::Pool;
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType};
    use unpadded::data::{Field, Loader, Samples};
    let samples: Samples = (0..8).map(|i| vec![Field::from(vec![i % 7, 3]), (i % 2).into()]).collect();
    let train = Loader::new(samples.clone(), &["ids", "label"])?;
    let dev = Loader::new(samples, &["ids", "label"])?;
    let vocabulary = 10; // of 10,000, the test would take longer

    let net = Builder::new().seed(1);
    let ids = net.feed("ids", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let h = ids.embedding(Embedding::new(vocabulary, 128)).lstm(128);
    let logits = h.sequence_pool(Pool::Last).linear(2);
    let loss = logits.cross_entropy(label).mean();
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-3).clip_global_norm(1.0))?;
    let mut trainer = trainer.progress(unpadded::train::Progress::Quiet);
    trainer.fit(&train, &dev, Until::Epochs(5))?;
    Ok(())
}

#[test]
fn mean_over_the_words_of_a_sentence() -> unpadded::Result<()> {
    use unpadded::{Builder, DType, ops::Pool};
    let net = Builder::new();
    let h = net.feed("h", DType::F32, &[8], 1);
    let mean = h.sequence_pool(Pool::Mean); // of an empty sentence 0
    let _ = mean;
    net.finish()?;
    Ok(())
}

#[test]
fn a_loop_over_time() -> unpadded::Result<()> {
    use unpadded::{Builder, DType};
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[8], 1);
    let h = net.recurrent(x, |step, x_t| {
        let h_prev = step.memory(16);
        let h = (x_t.linear(16) + h_prev.linear(16)).tanh();
        step.update(h_prev, h);
        h
    });
    let _ = h;
    net.finish()?;
    Ok(())
}

#[test]
fn the_same_weights_twice() -> unpadded::Result<()> {
    use unpadded::{Builder, DType, layers::Gru};
    let net = Builder::new();
    let [question, answer] = ["question", "answer"].map(|name| net.feed(name, DType::F32, &[8], 1));
    let encoder = net.layer(Gru::new(16)); // a method like `x.gru(16)` would make weights at each call
    let (_, [a]) = encoder.states(question);
    let (_, [b]) = encoder.states(answer);
    let _ = (a, b);
    assert_eq!(net.finish()?.parameters().count(), 4);
    Ok(())
}
