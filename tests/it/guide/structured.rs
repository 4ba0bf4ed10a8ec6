//! The programs of the page `src/guide/structured.md`, whole: the page shows the lines that teach.

#[test]
fn tags_one_class_a_word() -> unpadded::Result<()> {
    use unpadded::data::{Field, Loader, Samples};
    // Words 3 to 5 are places, which go on with word 6.
    let texts = [([1i64, 3, 6, 2], [0i64, 1, 2, 0]), ([4, 6, 2, 2], [1, 2, 0, 0]), ([2, 1, 5, 1], [0, 0, 1, 0])];
    let samples: Samples = texts.map(|(words, tags)| vec![Field::from(words.to_vec()), tags.to_vec().into()]).into_iter().collect();
    let data = Loader::new(samples, &["words", "tags"])?;
    use unpadded::layers::{Embedding, Lstm, Stacked};
    use unpadded::metrics::Accuracy;
    use unpadded::ops;
    use unpadded::optimizer::Adam;
    use unpadded::predict::Predictor;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType, Variable};
    let net = Builder::new().seed(1);
    let words = net.feed("words", DType::I64, &[], 1);
    let tags = net.feed_like("tags", DType::I64, &[], words);
    let h = words.embedding(Embedding::new(7, 16)).stacked(Stacked::new(Lstm::new(16), 1).bidirectional());
    let scores = h.linear(3);
    let loss = scores.cross_entropy(tags).mean(); // over all words of the batch
    let found = scores.argmax(); // i64, a tag for each word

    let trainer = Trainer::new(net, loss, &Adam::new(0.03))?;
    let trainer = trainer.progress(unpadded::train::Progress::Quiet);
    let mut trainer = trainer.metric(Accuracy::new(scores, tags)).output("tags", found);
    trainer.fit(&data, &data, Until::Epochs(30))?;
    let predictor = Predictor::new(trainer.for_inference()?, &ops::catalogue())?;
    let text = Variable::from_sequence(vec![1i64, 3, 6, 2])?; // one of those in `data`
    assert_eq!(predictor.run_on(&[("words", &text)], &["tags"])?[0].as_slice::<i64>()?, [0, 1, 2, 0]);
    Ok(())
}

#[test]
fn tags_that_fit_each_other_crf() -> unpadded::Result<()> {
    use unpadded::data::{Field, Loader, Samples};
    use unpadded::data::{TagScheme, Vocabulary};
    use unpadded::layers::{Crf, Embedding};
    use unpadded::metrics::ChunkF1;
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType};
    let tags = Vocabulary::labels(["O", "B-place", "I-place"])?;
    let texts = [([1i64, 3, 6, 2], "O B-place I-place O"), ([4, 6, 2, 2], "B-place I-place O O"), ([2, 1, 5, 1], "O O B-place O")];
    let sample = |(words, wanted): ([i64; 4], &str)| Ok(vec![Field::from(words.to_vec()), tags.ids(wanted.split(' '))?.into()]);
    let samples = texts.into_iter().map(sample).collect::<unpadded::Result<Samples>>()?;
    let data = Loader::new(samples, &["words", "tags"])?;
    let net = Builder::new().seed(1);
    let words = net.feed("words", DType::I64, &[], 1);
    let wanted = net.feed_like("tags", DType::I64, &[], words);
    let scores = words.embedding(Embedding::new(7, 16)).lstm(16).linear(tags.len());
    let crf = net.layer(Crf::new().forbidding(&TagScheme::Iob2.transitions(&tags)?));
    let loss = crf.loss(scores, wanted).mean(); // −ln of the probability of a sentence's tags, the mean over sentences
    let found = crf.of(scores); // the likeliest tags: Viterbi
    let (best, their_scores) = crf.n_best(scores, 3); // the three likeliest
    let sure = crf.marginals(scores); // of each word and tag, all other tags unknown
    let metric = ChunkF1::new(found, wanted, TagScheme::Iob2, &tags)?; // as the CoNLL evaluation counts

    let mut trainer = Trainer::new(net, loss, &Adam::new(0.03))?.metric(metric);
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    trainer = trainer.output("best", best).output("scores", their_scores).output("sure", sure);
    let report = trainer.fit(&data, &data, Until::Epochs(30))?;
    assert_eq!(report.best.unwrap().value, 1.0); // every place is found, and no other
    let predictor = unpadded::predict::Predictor::new(trainer.for_inference()?, &unpadded::ops::catalogue())?;
    let text = unpadded::Variable::from_sequence(vec![4i64, 6, 2, 2])?;
    let found = predictor.run_on(&[("words", &text)], &["best", "scores", "sure"])?;
    assert_eq!(found[2].shape(), [4, 3]);
    Ok(())
}

#[test]
fn labels_without_positions_ctc() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::layers::{Lstm, Stacked};
    use unpadded::metrics::ErrorRate;
    use unpadded::ndarray::Array2;
    use unpadded::{Builder, DType, Lod, Variable};
    let (classes, blank) = (21, 0);
    let net = Builder::new();
    let frames = net.feed("frames", DType::F32, &[16], 1);
    let labels = net.feed("labels", DType::I64, &[], 1); // sequences of their own
    let logits = frames.stacked(Stacked::new(Lstm::new(32), 1).bidirectional()).linear(classes);
    let loss = logits.ctc_loss(labels, blank, true).mean(); // true: too few frames cost nothing instead of infinity
    let heard = logits.ctc_greedy(blank); // the likeliest path, without repeats and blanks
    let metric = ErrorRate::new(heard, labels);
    let _ = (heard, metric);

    // Two frames and one label. With a weight of zeros all 21 classes are as likely, and three of the 441 paths give the label.
    let (registry, program) = (net.registry(), net.finish()?);
    let mut scope = Scope::of(&program)?;
    scope.set("linear_0.weight", Array2::<f32>::zeros((64, classes)))?;
    let sound = Variable::sequences(Array2::<f32>::ones((2, 16)), Lod::from_lengths1(&[2])?)?;
    let spoken = Variable::from_sequence(vec![5i64])?;
    let values = interpret(&program, &registry, &mut scope, &Run::infer(&[(frames.id(), &sound), (labels.id(), &spoken)]))?;
    assert!((values[&loss.id()].as_slice::<f32>()?[0] - (441.0f32 / 3.0).ln()).abs() < 1e-4);
    Ok(())
}

#[test]
fn labels_without_positions_ctc_2() -> unpadded::Result<()> {
    use unpadded::ndarray::array;
    use unpadded::predict::CtcBeam;
    use unpadded::{Lod, Variable};
    // Two frames; class 0 is the blank. Two blanks are the likeliest path (0.36), but three paths give the label 1 (0.64 together).
    let logits = Variable::sequences(array![[0.6f64, 0.4], [0.6, 0.4]].mapv(f64::ln), Lod::from_lengths1(&[2])?)?;
    let best = CtcBeam::new(8).decode(&logits)?;
    assert_eq!(best[0][0].labels, [1]);
    assert!((best[0][0].score.exp() - 0.64).abs() < 1e-9);
    Ok(())
}

#[test]
fn attention_in_the_step() -> unpadded::Result<()> {
    use unpadded::data::{Field, Loader, Samples};
    let texts = [[5i64, 6, 7], [8, 5, 9], [7, 7, 6]];
    let sample = |words: [i64; 3]| vec![Field::from(words.to_vec()), [&[0], &words[..]].concat().into(), [&words[..], &[1]].concat().into()];
    let data = Loader::new(texts.map(sample).into_iter().collect::<Samples>(), &["source", "given", "next"])?;
    use unpadded::layers::{Embedding, Gru, Linear, init};
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType};
    let net = Builder::new().seed(1);
    let source = net.feed("source", DType::I64, &[], 1);
    let given = net.feed("given", DType::I64, &[], 1); // the target, with a start token in front
    let next = net.feed_like("next", DType::I64, &[], given); // the target, with a stop token behind

    let read = net.gru_states(source.embedding(Embedding::new(10, 16)), Gru::new(32));
    let (states, last) = read; // of each source word, and of each source
    let keys = states.linear(Linear::new(32).without_bias());
    let v = net.parameter("attention.v", DType::F32, &[32], init::uniform(-0.1, 0.1));

    let words = given.embedding(Embedding::new(10, 16));
    let decoded = net.recurrent(words, |step, word| {
        let h_prev = step.memory_from(last);
        let (context, weights) = h_prev.linear(32).additive_attention_with(keys, states, v);
        let h = (step.concat(&[word, context]).linear(32) + h_prev.linear(32)).tanh();
        step.update(h_prev, h);
        let _ = weights; // one number for each source word, to be shown
        h
    });
    let loss = decoded.linear(10).cross_entropy(next).mean();

    let mut trainer = Trainer::new(net, loss, &Adam::new(0.02))?;
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    let before = trainer.evaluate(&data)?.loss(); // `data`: three texts to copy
    assert!(trainer.fit(&data, &data, Until::Epochs(20))?.last.loss() < 0.5 * before);
    Ok(())
}

#[test]
fn attention_without_a_loop() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::layers::{Attention, Embedding, TransformerBlock};
    use unpadded::ndarray::Axis;
    use unpadded::{Builder, DType, Variable};
    let net = Builder::new().seed(1);
    let words = net.feed("words", DType::I64, &[], 1);
    let x = words.embedding(Embedding::new(1000, 32));
    let block = x.transformer_block(TransformerBlock::new(Attention::new(4).causal().rotary()));
    assert_eq!(net.describe(block).split(": ").nth(1), Some("f32[rows0, 32] lod(0)"));

    let (registry, program) = (net.registry(), net.finish()?);
    let run = |texts: &[Vec<i64>]| {
        let texts = Variable::from_sequences(texts)?;
        let mut values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&[(words.id(), &texts)]))?;
        values.remove(&block.id()).unwrap().into_array::<f32>()
    };
    let (short, long) = (run(&[vec![4, 9]])?, run(&[vec![4, 9, 7], vec![2]])?);
    assert_eq!(short, long.slice_axis(Axis(0), (..2).into())); // neither the third word nor the other text changes a bit
    Ok(())
}
