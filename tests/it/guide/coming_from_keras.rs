//! The programs of the page `src/guide/coming_from_keras.md`, whole: the page shows the lines that teach.

use super::Folder;

#[test]
fn a_classifier() -> unpadded::Result<()> {
    use unpadded::data::{Batching, Field, Loader, Samples};
    use unpadded::layers::{Embedding, Lstm};
    use unpadded::metrics::Accuracy;
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType};
    let (texts, labels) = (vec![vec![1i64, 2, 3], vec![4]], vec![0i64, 1]);
    let folder = Folder::new("keras")?;
    let path = &folder.file("model.ckpt");
    let dev = Loader::new([vec![Field::from(vec![1i64, 2]), 0i64.into()]].into_iter().collect::<Samples>(), &["words", "label"])?;

    let net = Builder::new().seed(1);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let x = words.embedding(Embedding::new(10_000, 64));
    let (_, [[forward, _], [backward, _]]) = x.bidirectional_states(Lstm::new(64)); // h, and c, of each direction
    let logits = net.concat(&[forward, backward]).dropout(0.5).linear(2);
    let loss = logits.cross_entropy(label).mean();
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-3).clip_global_norm(1.0))?
        .metric(Accuracy::new(logits, label))
        .patience(3) // a predictor has the best epoch
        .checkpoint(path); // such as "model.ckpt"
    let mut trainer = trainer.progress(unpadded::train::Progress::Quiet);

    let samples: Samples = texts.into_iter().zip(labels).map(|(ids, label)| vec![Field::from(ids), label.into()]).collect();
    let train = Loader::new(samples, &["words", "label"])?.batching(Batching::Sequences(32)).shuffle(1);
    trainer.fit(&train, &dev, Until::Epochs(20))?;
    Ok(())
}

#[test]
fn a_cell_of_your_own() -> unpadded::Result<()> {
    use unpadded::{Builder, DType, layers::{Linear, init}};
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[8], 1);
    let y = net.recurrent(x, |step, x_t| {
        let h_prev = step.memory(16);
        let recurrent = Linear::new(16).without_bias().weight_init(init::orthogonal());
        let h = (x_t.linear(Linear::new(16).without_bias()) + h_prev.linear(recurrent)).tanh();
        step.update(h_prev, h);
        h
    });
    let _ = y;
    net.finish()?;
    Ok(())
}

#[test]
fn words_in_sentences_in_documents() -> unpadded::Result<()> {
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    let net = Builder::new();
    let document = net.feed("document", DType::I64, &[], 2); // two levels, of any lengths
    let sentences = document.embedding(Embedding::new(1000, 16)).gru(32).sequence_pool(Pool::Last);
    let x = sentences.gru(32).sequence_pool(Pool::Last);
    let _ = x;
    net.finish()?;
    Ok(())
}
