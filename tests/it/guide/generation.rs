//! The programs of the page `src/guide/generation.md`, whole: the page shows the lines that teach.

use super::{FirstModel, Folder, first_model};
use unpadded::layers::{Embedding, Gru};
use unpadded::optimizer::Adam;
use unpadded::train::Trainer;
use unpadded::{Builder, DType, Result};

#[test]
fn generation() -> unpadded::Result<()> {
    use unpadded::data::{Field, Loader, Samples};
    use unpadded::layers::Embedding;
    use unpadded::ndarray::array;
    use unpadded::ops;
    use unpadded::optimizer::Adam;
    use unpadded::predict::{Beam, Generation, Predictor, Sampling};
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType, Variable};

    let net = Builder::new().seed(1);
    let given = net.feed("given", DType::I64, &[], 1); // what is there so far, with a start token in front
    let next = net.feed_like("next", DType::I64, &[], given); // for each, what comes next
    let logits = given.embedding(Embedding::new(5, 8)).gru(16).linear(5);
    let loss = logits.cross_entropy(next).mean();

    let texts = [vec![1i64, 2], vec![3, 3], vec![1, 2, 1, 2]];
    let sample = |text: &Vec<i64>| vec![Field::from([&[0], &text[..]].concat()), [&text[..], &[4]].concat().into()];
    let data = Loader::new(texts.iter().cycle().take(60).map(sample).collect::<Samples>(), &["given", "next"])?;
    let mut trainer = Trainer::new(net, loss, &Adam::new(0.03))?.output("logits", logits);
    let mut trainer = trainer.progress(unpadded::train::Progress::Quiet);
    trainer.fit(&data, &data, Until::Epochs(40))?;
    let predictor = Predictor::new(trainer.for_inference()?, &ops::catalogue())?;

    // A generator names the feed that takes the tokens so far, and the output that scores the next one.
    let generator = predictor.generator("given", "logits")?;
    let options = Generation::new(0).stop(4).max_steps(10);

    // Greedy: always the likeliest token. A prefix is what the text begins with.
    let greedy = generator.greedy(&[], &options.clone().prefix([3]))?;
    let best = greedy.best()?[0].unwrap();
    assert_eq!((best.tokens, best.stopped), (&[3, 3][..], true));

    // Drawn: the same seed draws the same text.
    let warm = Sampling::default().temperature(0.8).top_k(3);
    let drawn = |seed| generator.sample(&[], &options, warm, seed);
    assert_eq!(drawn(7)?.tokens(), drawn(7)?.tokens());

    // Beam search: the likeliest whole texts, best first.
    let searched = generator.beam(&[], &options, &Beam::new(4).n_best(3))?;
    let found: Vec<&[i64]> = searched.hypotheses(0)?.iter().map(|hypothesis| hypothesis.tokens).collect();
    assert_eq!(found.len(), 3);
    assert!(found.contains(&&[3, 3][..]) && found.contains(&&[1, 2][..]));

    // Step by step, as text comes in: a session holds the state of one text, or of several side by side.
    let mut session = predictor.session(&["logits"])?;
    for token in [0i64, 1] {
        session.step(&[("given", &Variable::dense(array![token]))])?;
    }
    let scores = session.output("logits")?.as_slice::<f32>()?;
    assert!(scores[2] > scores[1] && scores[2] > scores[3]); // behind 1 comes 2
    Ok(())
}

#[test]
fn generation_from_a_source() -> unpadded::Result<()> {
    use unpadded::Variable;
    use unpadded::predict::{Beam, Generation, Predictor};
    let folder = Folder::new("translator")?;
    let path = &folder.file("translate.ckpt");
    translator()?.for_inference()?.save(path)?;
    let predictor = Predictor::load(path)?; // a translator, such as "translate.ckpt"
    let generator = predictor.generator("given", "logits")?;
    let sources = Variable::from_sequences(&[vec![5i64, 9, 2], vec![7]])?;
    let options = Generation::new(0).stop(1).max_steps(40);
    let found = generator.beam(&[("source", &sources)], &options, &Beam::new(8).n_best(3).length(0.6))?;
    for source in 0..found.sources() {
        for hypothesis in found.hypotheses(source)? {
            println!("{:.2} {:?}", hypothesis.score, hypothesis.tokens);
        }
    }
    Ok(())
}

#[test]
fn sessions() -> unpadded::Result<()> {
    use unpadded::predict::Predictor;
    use unpadded::Variable;
    let predictor = Predictor::new(language_model()?.for_inference()?, &unpadded::ops::catalogue())?;
    let mut session = predictor.session(&["logits"])?;
    session.step(&[("x", &Variable::dense(unpadded::ndarray::array![12i64]))])?;
    let bytes = session.save()?;
    let mut later = predictor.session(&["logits"])?;
    later.restore(&bytes)?;
    for session in [&mut session, &mut later] {
        session.step(&[("x", &Variable::dense(unpadded::ndarray::array![3i64]))])?;
    }
    assert_eq!(session.output("logits")?, later.output("logits")?);
    Ok(())
}

#[test]
fn many_callers_at_once() -> unpadded::Result<()> {
    use unpadded::predict::Predictor;
    use unpadded::Variable;
    let folder = Folder::new("queue")?;
    let path = &folder.file("model.ckpt");
    let FirstModel { net, logits, loss, .. } = first_model();
    let adam = unpadded::optimizer::Adam::new(1e-3);
    let mut trainer = unpadded::train::Trainer::new(net, loss, &adam)?.output("logits", logits);
    trainer.for_inference()?.save(path)?;
    let queue = Predictor::load(path)?.queue(); // such as "model.ckpt"
    let requests = [vec![3i64, 1], vec![4, 1, 5, 9, 2]];
    let answers = std::thread::scope(|threads| {
        let ask = |request: Vec<i64>| {
            let words = Variable::from_sequence(request)?;
            queue.run(&[("words", &words)], &["logits"])
        };
        requests.map(|request| threads.spawn(move || ask(request))).map(|thread| thread.join().unwrap())
    });
    for logits in answers {
        println!("{:?}", logits?[0].as_slice::<f32>()?);
    }
    Ok(())
}

/// Models of which programs of this page generate.
mod models {
    use super::*;

    /// The next token, given a source and the tokens before it.
    pub(super) fn translator() -> Result<Trainer> {
        let net = Builder::new().seed(1);
        let source = net.feed("source", DType::I64, &[], 1);
        let given = net.feed("given", DType::I64, &[], 1);
        let next = net.feed_like("next", DType::I64, &[], given);
        let read = source.embedding(Embedding::new(10, 8)).gru(8).sequence_pool(unpadded::ops::Pool::Last);
        let states = net.layer(Gru::new(8).initial(read)).of(given.embedding(Embedding::new(10, 8)));
        let logits = states.linear(10);
        let loss = logits.cross_entropy(next).mean();
        Ok(Trainer::new(net, loss, &Adam::new(1e-3))?.output("logits", logits))
    }

    /// The next token, given the tokens before it.
    pub(super) fn language_model() -> Result<Trainer> {
        let net = Builder::new().seed(1);
        let x = net.feed("x", DType::I64, &[], 1);
        let next = net.feed_like("next", DType::I64, &[], x);
        let logits = x.embedding(Embedding::new(20, 8)).gru(8).linear(20);
        let loss = logits.cross_entropy(next).mean();
        Ok(Trainer::new(net, loss, &Adam::new(1e-3))?.output("logits", logits))
    }
}
use models::{language_model, translator};
