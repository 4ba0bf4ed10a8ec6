//! The programs of the page `crates/recipes/src/guide/first_model.md`, whole: the page shows the lines that teach.

#[test]
fn the_data() -> unpadded::Result<()> {
    use unpadded_text::{LabelledText, LabelledTexts};
    use unpadded::data::{Limits, Tokenizer};

    let mut texts = Vec::new();
    for thing in ["film", "book", "play", "song", "plot", "end"] {
        for word in ["fine", "clever", "lovely"] {
            for (text, label) in [
                (format!("The {thing} is {word}."), "good"),
                (format!("The {thing} is not {word}."), "bad"),
                (format!("Not bad, the {thing}: {word}!"), "good"),
            ] {
                texts.push(LabelledText::new(text, label));
            }
        }
    }
    let (train, dev) = LabelledTexts::new("opinions", texts).hold_out(5, 1);

    // Words become ids. Words that occur only in held-out texts become `<unk>`.
    let tokenizer = Tokenizer::words().lowercase();
    let words = train.vocabulary(&tokenizer, &Limits::default())?;
    let labels = train.labels()?;
    assert_eq!(labels.tokens().collect::<Vec<_>>(), ["bad", "good"]);
    assert_eq!(tokenizer.tokens("Not bad!").collect::<Vec<_>>(), ["not", "bad", "!"]);
    assert!(train.records().len() + dev.records().len() == 54 && dev.records().len() > 3 && words.len() > 10);
    Ok(())
}

#[test]
fn the_model() -> unpadded::Result<()> {
    use unpadded::layers::Embedding;
    use unpadded::ops::Pool;
    use unpadded::{Builder, DType};

    let net = Builder::new().seed(1); // the seed decides how parameters start, and what dropout leaves out
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let x = words.embedding(Embedding::new(30, 16).sparse()); // 30 words, 16 numbers for each
    let h = x.lstm(16); // the state after each word
    let last = h.sequence_pool(Pool::Last); // of each sentence, that after its last word
    let logits = last.linear(2); // a number for each label
    let loss = logits.cross_entropy(label).mean();

    // What each variable holds can be asked at any time.
    assert_eq!(net.describe(h), "`lstm_cell.h.steps`: f32[rows0, 16] lod(0)"); // a row for each word
    assert_eq!(net.describe(logits), "`linear_3`: f32[batch, 2]"); // a row for each sentence
    let _ = loss;
    net.finish()?;
    Ok(())
}

#[test]
fn training_and_predictions() -> unpadded::Result<()> {
    use unpadded::data::{Batching, Limits, Tokenizer};
    use unpadded_text::{LabelledText, LabelledTexts};
    use unpadded::layers::Embedding;
    use unpadded::metrics::Accuracy;
    use unpadded::ops::{self, Pool};
    use unpadded::optimizer::Adam;
    use unpadded::predict::Predictor;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType, Variable};

    let mut texts = Vec::new();
    for thing in ["film", "book", "play", "song", "plot", "end"] {
        for word in ["fine", "clever", "lovely"] {
            for (text, label) in [
                (format!("The {thing} is {word}."), "good"),
                (format!("The {thing} is not {word}."), "bad"),
                (format!("Not bad, the {thing}: {word}!"), "good"),
            ] {
                texts.push(LabelledText::new(text, label));
            }
        }
    }
    // `texts` as above.
    let (train, dev) = LabelledTexts::new("opinions", texts).hold_out(5, 1);
    let tokenizer = Tokenizer::words().lowercase();
    let (words, labels) = (train.vocabulary(&tokenizer, &Limits::default())?, train.labels()?);
    let batches = |texts: &LabelledTexts| texts.loader(["words", "label"], &tokenizer, (&words, &labels));
    let train = batches(&train)?.batching(Batching::Sequences(8)).shuffle(1);
    let dev = batches(&dev)?;

    let net = Builder::new().seed(1);
    let ids = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let h = ids.embedding(Embedding::new(words.len(), 16).sparse()).lstm(16);
    let logits = h.sequence_pool(Pool::Last).linear(labels.len());
    let loss = logits.cross_entropy(label).mean();
    let probabilities = logits.softmax();

    let mut trainer = Trainer::new(net, loss, &Adam::new(0.02).lazy())? // appends the backward and update operators
        .metric(Accuracy::new(logits, label)) // decides which epoch is the best
        .output("probabilities", probabilities) // what can be asked later
        .vocabulary("words", words)
        .vocabulary("labels", labels);
    let mut trainer = trainer.progress(unpadded::train::Progress::Quiet);
    let report = trainer.fit(&train, &dev, Until::Epochs(20))?;
    assert_eq!(report.best.unwrap().value, 1.0); // all held-out texts are right

    // What is needed to answer, without the optimizer's state. `.save("opinions.model")` and `Predictor::load` go through a file.
    let predictor = Predictor::new(trainer.for_inference()?, &ops::catalogue())?;
    let ids = predictor.vocabulary("words")?.ids(tokenizer.tokens("The film is not lovely."))?;
    let found = predictor.likeliest(&[("words", &Variable::from_sequence(ids)?)], "probabilities", "labels")?;
    assert_eq!(found[0].0, "bad");
    Ok(())
}

#[test]
fn mistakes() {
    use unpadded::{Builder, DType};

    fn main() {
        let net = Builder::new();
        let x = net.feed("x", DType::F32, &[8], 1); // rows of 8 numbers, in sequences
        let label = net.feed("label", DType::I64, &[], 0); // one a sequence
        let h = x + x.lstm(16);
        let gate = x.slice(4..12).sigmoid();
        let _ = (gate * h).linear(2); // unknown, and no fourth mistake
        let _ = x.linear(2).cross_entropy(label).mean();
        if let Err(error) = net.finish() {
            println!("{error}");
        }
    }
    main();
}
