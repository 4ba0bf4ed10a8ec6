//! The programs of the page `crates/recipes/src/guide/how_do_i.md`, whole: the page shows the lines that teach. Its first half.

use super::{FirstModel, Folder, first_model, labelled};

#[test]
fn see_the_shape_of_a_variable() -> unpadded::Result<()> {
    use unpadded::{Builder, DType, Variable, layers::Embedding, ops::{self, Pool}, predict::Predictor};
    use unpadded::{optimizer::Adam, train::Trainer};
    let FirstModel { net, words, label, h, logits, loss } = first_model();
    assert_eq!(net.describe(logits).split(": ").nth(1), Some("f32[batch, 2]"));
    println!("{h:?}");
    println!("{}", net.program()?);

    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-3).lazy())?.output("logits", logits);
    println!("{}", trainer.listing()?);
    let predictor = Predictor::new(trainer.for_inference()?, &ops::catalogue())?;
    let texts = Variable::from_sequences(&[vec![3i64, 8], vec![5], vec![]])?;
    assert_eq!(predictor.run_on(&[("words", &texts)], &["logits"])?[0].shape(), [3, 2]);
    Ok(())
}

#[test]
fn start_from_pre_trained_word_vectors() -> unpadded::Result<()> {
    use unpadded::data::{Limits, Vocabulary};
    use unpadded_text::{TextFile, WordVectors};
    use unpadded::layers::Embedding;
    use unpadded::ndarray::Array2;
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType};
    let words = Vocabulary::of("the film drags".split(' '), &Limits::default())?;
    // `WordVectors::open("glove.6B.100d.txt", &words)?` reads a file.
    let vectors = WordVectors::of(&TextFile::embedded("vectors.txt", "film 0.3 -0.4\nthe 0.1 0.2\n"), &words)?;

    let net = Builder::new().seed(1);
    let ids = net.feed("words", DType::I64, &[], 1);
    let x = ids.embedding(Embedding::new(words.len(), vectors.width()).sparse().named("words"));
    let loss = x.linear(1).square().mean();
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-3).lazy())?;
    let drawn = trainer.scope().get("words.weight")?.as_slice::<f32>()?.to_vec(); // what words without a vector keep
    let mut table = Array2::from_shape_vec((words.len(), vectors.width()), drawn).expect("as many numbers as the table has");
    vectors.fill(&mut table)?;
    trainer.set_parameter("words.weight", table)?;
    assert_eq!(trainer.scope().get("words.weight")?.as_slice::<f32>()?[2 * words.lookup("film")? as usize], 0.3);
    let mut trainer = trainer.progress(unpadded::train::Progress::Quiet);
    let sample = |text: &str| Ok::<_, unpadded::Error>(vec![unpadded::data::Field::Ints(words.ids(text.split(' '))?)]);
    let samples = ["the film", "the film drags"].map(sample).into_iter().collect::<unpadded::Result<unpadded::data::Samples>>()?;
    let data = unpadded::data::Loader::new(samples, &["words"])?;
    let before = trainer.evaluate(&data)?.loss(); // `data` has the field `words`
    assert!(trainer.fit(&data, &data, Until::Epochs(3))?.last.loss() < before);
    Ok(())
}

#[test]
fn freeze_parameters() -> unpadded::Result<()> {
    use unpadded::data::{Field, Loader, Samples};
    let samples: Samples = [vec![4i64, 9], vec![7]].map(|words| vec![Field::from(words)]).into_iter().collect();
    let data = Loader::new(samples, &["words"])?;
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let table = net.layer(Embedding::new(100, 8).named("words"));
    let x = table.of(words);
    net.stop_gradient(table.weights().unwrap());
    let loss = x.lstm(8).sequence_pool(Pool::Last).linear(1).square().mean();
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-3))?; // updates all parameters but `words.weight`
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    let before = (trainer.scope().get("words.weight")?, trainer.scope().get("lstm_0.weight_ih")?);
    trainer.fit(&data, &data, Until::Epochs(1))?;
    assert_eq!(trainer.scope().get("words.weight")?, before.0);
    assert_ne!(trainer.scope().get("lstm_0.weight_ih")?, before.1);
    Ok(())
}

#[test]
fn give_some_parameters_another_rate_or_decay() -> unpadded::Result<()> {
    let data = labelled()?;
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    let net = Builder::new().seed(1);
    let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    let h = words.embedding(Embedding::new(9, 8)).lstm(8);
    let logits = h.sequence_pool(Pool::Last).linear(2);
    let loss = logits.cross_entropy(label).mean();
    use unpadded::optimizer::{AdamW, Group};
    use unpadded::train::{Trainer, Until};
    let adam = AdamW::new(1e-3)
        .weight_decay(0.05)
        .group(Group::matching(|name| name.ends_with(".bias")).weight_decay(0.0))
        .group(Group::matching(|name| name.starts_with("embedding")).rate(0.1)); // a tenth of the rate
    let mut trainer = Trainer::new(net, loss, &adam)?;
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    let longest_move = |before: unpadded::tensor::Dense, after: unpadded::tensor::Dense| -> unpadded::Result<f32> {
        let pairs = before.as_slice::<f32>()?.iter().zip(after.as_slice::<f32>()?);
        Ok(pairs.map(|(before, after)| (after - before).abs()).fold(0.0, f32::max))
    };
    let (table, linear) = (trainer.scope().get("embedding_0.weight")?, trainer.scope().get("linear_0.weight")?);
    trainer.fit(&data, &data, Until::Steps(1))?;
    let of_table = longest_move(table, trainer.scope().get("embedding_0.weight")?)?; // of a single number in it
    let of_linear = longest_move(linear, trainer.scope().get("linear_0.weight")?)?;
    assert!(0.0 < of_table && of_table < 0.2 * of_linear);
    Ok(())
}

#[test]
fn clip_gradients() -> unpadded::Result<()> {
    let data = labelled()?;
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    let FirstModel { net, words, label, h, logits, loss } = first_model();
    use unpadded::optimizer::Sgd;
    use unpadded::train::{Trainer, Until};
    let optimizers = [Sgd::new(1.0).clip_norm(0.01), Sgd::new(1.0).clip_value(0.01)];
    let sgd = Sgd::new(1.0).clip_global_norm(0.01);
    let mut trainer = Trainer::new(net, loss, &sgd)?;
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    let all_parameters = |trainer: &mut Trainer| -> unpadded::Result<Vec<f32>> {
        let names: Vec<String> = trainer.program().parameters().map(|id| trainer.program().var(id).name.clone()).collect();
        let values = names.iter().map(|name| Ok(trainer.scope().get(name)?.as_slice::<f32>()?.to_vec()));
        Ok(values.collect::<unpadded::Result<Vec<_>>>()?.concat())
    };
    let distance = |a: Vec<f32>, b: Vec<f32>| a.iter().zip(&b).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt();
    let before = all_parameters(&mut trainer)?;
    trainer.fit(&data, &data, Until::Steps(1))?;
    let moved = distance(before, all_parameters(&mut trainer)?);
    assert!((moved - 0.01).abs() < 1e-5); // the rate times the norm of the clipped gradients
    Ok(())
}

#[test]
fn train_in_bf16_mixed_precision() -> unpadded::Result<()> {
    let data = labelled()?;
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    let FirstModel { net, words, label, h, logits, loss } = first_model();
    use unpadded::Precision;
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-3))?.precision(Precision::Bf16).allow_slow();
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    trainer.fit(&data, &data, Until::Steps(1))?;
    Ok(())
}

#[test]
fn change_the_learning_rate_over_time() -> unpadded::Result<()> {
    let data = labelled()?;
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    let FirstModel { net, words, label, h, logits, loss } = first_model();
    use unpadded::optimizer::{Adam, Schedule};
    use unpadded::train::{Plateau, Trainer, Until};
    let adam = Adam::new(1e-3).lazy().schedule(Schedule::cosine(10_000).warm_up(500));
    let mut trainer = Trainer::new(net, loss, &adam)?
        .plateau(Plateau::new(0.5).patience(3)) // halved after three epochs without a better one
        .rate_by(|position| 0.95f64.powi(position.epoch as i32));
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    trainer.fit(&data, &data, Until::Epochs(2))?;
    let rate = trainer.rate().unwrap(); // of the last step, the fourth
    assert!((rate - 0.95 * 1e-3 * 4.0 / 500.0).abs() < 1e-12);
    Ok(())
}

#[test]
fn weigh_rare_classes_class_weights() -> unpadded::Result<()> {
    let data = labelled()?;
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    let FirstModel { net, words, label, h, logits, loss } = first_model();
    use unpadded::layers::init;
    use unpadded::ndarray::array;
    use unpadded::ops::CrossEntropy;
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    let weights = net.parameter("class_weights", DType::F32, &[2], init::constant(1.0));
    net.stop_gradient(weights); // they are not learned
    let options = CrossEntropy::default().class_weights(weights);
    let (losses, shares) = logits.cross_entropy_with(label, options);
    let loss = losses.sum().div_no_nan(shares.sum()); // 0 for a batch in which no row counts
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-2).lazy())?;
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    trainer.set_parameter("class_weights", array![1.0f32, 10.0])?;
    trainer.fit(&data, &data, Until::Epochs(1))?;
    assert_eq!(trainer.scope().get("class_weights")?.as_slice::<f32>()?, [1.0, 10.0]);
    Ok(())
}

#[test]
fn stop_early_early_stopping_and_keep_the_best_epoch() -> unpadded::Result<()> {
    let data = labelled()?;
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    let FirstModel { net, words, label, h, logits, loss } = first_model();
    use unpadded::metrics::Accuracy;
    use unpadded::optimizer::Adam;
    use unpadded::train::{StopReason, Trainer, Until};
    let mut trainer = Trainer::new(net, loss, &Adam::new(0.05).lazy())?
        .metric(Accuracy::new(logits, label))
        .patience(3); // ends after three epochs that are not better
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    let report = trainer.fit(&data, &data, Until::Epochs(100))?;
    assert_eq!(report.ended, StopReason::Early);
    println!("{:?}", report.best); // which epoch, and how good
    trainer.use_best()?; // if you go on with the parameters yourself
    Ok(())
}

#[test]
fn resume_after_a_stop() -> unpadded::Result<()> {
    let data = labelled()?;
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    let fit = |epochs: u64| -> unpadded::Result<()> {
    let FirstModel { net, words, label, h, logits, loss } = first_model();
    use unpadded::optimizer::Adam;
    use unpadded::train::{Steps, Trainer, Until};
    let path = "model.ckpt";
    let path = &std::env::temp_dir().join(format!("unpadded-guide-resume-{}.ckpt", std::process::id()));
    let mut trainer = Trainer::new(net, loss, &Adam::new(1e-3).lazy())?.checkpoint(path).every(Steps(500));
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    if trainer.resume_if(path)? {
        println!("continues at {:?}", trainer.position());
    }
    let report = trainer.fit(&data, &data, Until::Epochs(epochs))?; // 2 in the first run, 4 in the second
    assert_eq!(report.resumed.map_or(0, |position| position.epoch), epochs - 2);
    if epochs == 4 {
        std::fs::remove_file(path)?;
    }
    Ok(())
    };
    fit(2)?;
    fit(4)?;
    Ok(())
}

#[test]
fn write_a_metric_of_my_own_with_its_interval() -> unpadded::Result<()> {
    use unpadded_recipes::{Config, Task};
    let folder = Folder::new("own-metric")?;
    let file = folder.file("reviews.tsv").display().to_string();
    let line =
        |i: usize| format!("it was {} {i}\t{}\n", ["fine", "dull"][i % 2], ["good", "bad"][i % 2]);
    std::fs::write(&file, (0..60).map(line).collect::<String>())?;
    let mut config = Config::new(Task::Classify);
    (config.data.train, config.data.test) = (Some(file.clone()), Some(file));
    (config.model.embedding, config.model.hidden, config.training.rate) = (8, 8, 0.03);
    use unpadded::metrics::{Better, Metric, Unit};
    use unpadded::train::Until;
    use unpadded::{Result, Var, Variable};
    use unpadded_recipes::{Model, prepare, scores_with};

    /// The share of texts whose label has a probability of at least 90 %.
    struct Sure(Var, Var);

    impl Metric for Sure {
        fn name(&self) -> &str {
            "sure"
        }
        fn variables(&self) -> Vec<Var> {
            vec![self.0, self.1]
        }
        fn better(&self) -> Better {
            Better::Higher
        }
        fn unit(&self) -> Unit {
            Unit::Share
        }
        fn sums(&self) -> usize {
            2 // sure texts and all texts
        }
        fn update(&self, sums: &mut [f64], values: &[Variable], _: usize) -> Result<()> {
            let (probabilities, labels) = (values[0].as_slice::<f32>()?, values[1].as_slice::<i64>()?);
            for (row, label) in probabilities.chunks(values[0].shape()[1]).zip(labels) {
                sums[0] += if row[*label as usize] >= 0.9 { 1.0 } else { 0.0 };
                sums[1] += 1.0;
            }
            Ok(())
        }
        fn value(&self, sums: &[f64]) -> f64 {
            sums[0] / sums[1].max(1.0)
        }
    }

    let prepared = prepare(&config)?;
    let var = |name| prepared.trainer.variable(name); // an output or a feed
    let sure = Sure(var("probabilities")?, var("label")?);
    let mut trainer = prepared.trainer.metric(sure).select("sure");
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    trainer.fit(&*prepared.train, &*prepared.dev, Until::Epochs(3))?;

    let model = Model::new(trainer.for_inference()?)?;
    let var = |name| model.predictor().variable(name);
    let sure = Sure(var("probabilities")?, var("label")?);
    let scored = scores_with(&config, &model, &[&sure])?; // of the texts in `data.test`
    let figure = scored.figures.last().expect("the figure of the metric");
    println!("{} {:.2}, 95 % interval {:?}", figure.name, figure.value, figure.interval);
    assert!(figure.interval.is_some_and(|[low, high]| low - 1e-9 <= figure.value && figure.value <= high + 1e-9));
    assert_eq!(scored.figures.len(), 5); // loss, accuracy, macro F1, weighted F1 and the metric
    Ok(())
}

#[test]
fn look_at_every_epoch_or_decide_there_to_stop() -> unpadded::Result<()> {
    let data = labelled()?;
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    let FirstModel { net, words, label, h, logits, loss } = first_model();
    use std::ops::ControlFlow;
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    let mut trainer = Trainer::new(net, loss, &Adam::new(0.05).lazy())?.on_epoch(|epoch| {
        println!("epoch {}: {:?} held out", epoch.epoch, epoch.dev("loss"));
        if epoch.dev("loss") < Some(0.01) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    let report = trainer.fit(&data, &data, Until::Epochs(50))?;
    assert!(report.epochs < 50 && report.last.loss() < 0.01);
    Ok(())
}

#[test]
fn use_several_inputs() -> unpadded::Result<()> {
    use unpadded::data::{Field, Loader, Samples};
    use unpadded::layers::Embedding;
    use unpadded::ops::Pool;
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType};
    let net = Builder::new();
    let title = net.feed("title", DType::I64, &[], 1);
    let text = net.feed("text", DType::I64, &[], 1); // sequences of their own
    let price = net.feed("price", DType::F32, &[1], 0);
    let table = net.layer(Embedding::new(100, 8)); // one table for both
    let [title, text] = [title, text].map(|words| table.of(words).gru(8).sequence_pool(Pool::Last));
    let all = net.concat(&[title, text, price]);
    assert_eq!(net.describe(all).split(": ").nth(1), Some("f32[batch, 17]"));
    let samples: Samples = [vec![Field::from(vec![5i64, 9]), vec![1i64, 2, 3].into(), Field::Float(9.99)]].into_iter().collect();
    let data = Loader::new(samples, &["title", "text", "price"])?;
    let mut trainer = Trainer::new(net, all.linear(1).square().mean(), &Adam::new(1e-3))?;
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    let before = trainer.evaluate(&data)?.loss();
    assert!(trainer.fit(&data, &data, Until::Epochs(1))?.last.loss() < before);
    Ok(())
}

#[test]
fn train_by_several_losses() -> unpadded::Result<()> {
    use unpadded::data::{Field, Loader, Samples};
    let sample = |i: i64| vec![Field::from(vec![i % 7, 3]), (i % 2).into(), vec![i % 5, 1].into()];
    let data = Loader::new((0..20).map(sample).collect::<Samples>(), &["words", "label", "tags"])?;
    use unpadded::metrics::Loss;
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType, layers::Embedding, ops::Pool};
    let FirstModel { net, words, label, h, logits, loss } = first_model();
    let tags = net.feed_like("tags", DType::I64, &[], words);
    let of_tags = h.linear(5).cross_entropy(tags).mean();
    let both = loss + 0.3 * of_tags;
    let trainer = Trainer::new(net, both, &Adam::new(1e-2).lazy())?;
    let mut trainer = trainer.metric(Loss::new(loss).named("label")).metric(Loss::new(of_tags).named("tags")); // each by itself too
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    let scores = trainer.fit(&data, &data, Until::Epochs(1))?.last;
    let [both, label, tags] = ["loss", "label", "tags"].map(|name| scores.get(name).unwrap());
    assert!((both - (label + 0.3 * tags)).abs() < 1e-6);
    Ok(())
}

#[test]
fn tie_weights() -> unpadded::Result<()> {
    use unpadded::data::{Field, Loader, Samples};
    let pairs = [([1i64, 4, 2], [4i64, 2, 3]), ([1, 5, 6], [5, 6, 3])];
    let samples: Samples = pairs.map(|(words, next)| vec![words.to_vec().into(), Field::from(next.to_vec())]).into_iter().collect();
    let data = Loader::new(samples, &["words", "next"])?;
    use unpadded::layers::{Embedding, Linear};
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType};
    let net = Builder::new().seed(1);
    let words = net.feed("words", DType::I64, &[], 1);
    let next = net.feed_like("next", DType::I64, &[], words);
    let table = net.layer(Embedding::new(10, 16));
    let logits = table.of(words).lstm(16).linear(Linear::tied(&table)); // one table, at both ends
    let loss = logits.cross_entropy(next).mean();
    let mut trainer = Trainer::new(net, loss, &Adam::new(0.02))?;
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    assert_eq!(trainer.program().parameters().count(), 5); // the table, three of the LSTM, the last bias
    let before = trainer.evaluate(&data)?.loss();
    assert!(trainer.fit(&data, &data, Until::Epochs(20))?.last.loss() < 0.5 * before);
    Ok(())
}

#[test]
fn read_in_both_directions() -> unpadded::Result<()> {
    use unpadded::executor::{Run, Scope, interpret};
    use unpadded::layers::{Gru, Lstm, Stacked};
    use unpadded::{Builder, DType, Lod, Variable, ndarray::Array2};
    let net = Builder::new().seed(1);
    let x = net.feed("x", DType::F32, &[8], 1);
    let h = x.stacked(Stacked::new(Lstm::new(16), 2).bidirectional().dropout(0.3)); // two layers, 32 numbers
    assert_eq!(net.describe(h).split(": ").nth(1), Some("f32[rows0, 32] lod(0)"));

    // For a class of the whole: the last state of each direction. The backward one ends at the first word.
    let (_, [[forward], [backward]]) = x.bidirectional_states(Gru::new(16));
    let both = net.concat(&[forward, backward]);
    assert_eq!(net.describe(both).split(": ").nth(1), Some("f32[batch, 32]"));

    let (registry, program) = (net.registry(), net.finish()?);
    let rows = Array2::from_shape_fn((5, 8), |(row, column)| (row + column) as f32 / 10.0);
    let rows = Variable::sequences(rows, Lod::from_lengths1(&[3, 2])?)?;
    let fed = [(x.id(), &rows)];
    let values = interpret(&program, &registry, &mut Scope::of(&program)?, &Run::infer(&fed))?;
    assert_eq!((values[&h.id()].shape(), values[&both.id()].shape()), (&[5, 32][..], &[2, 32][..]));
    Ok(())
}

#[test]
fn attend_with_coverage() -> unpadded::Result<()> {
    use unpadded::data::{Field, Loader, Samples};
    use unpadded::layers::{Embedding, Gru, Linear, init};
    use unpadded::{Builder, DType, ops::Pool, optimizer::Adam, train::{Progress, Trainer, Until}};
    const LONGEST: usize = 12; // a run with a longer source is an error
    const WIDTH: usize = 16;
    let net = Builder::new();
    let source = net.feed("source", DType::I64, &[], 1);
    let given = net.feed("given", DType::I64, &[], 1); // the target, with a start token in front
    let next = net.feed_like("next", DType::I64, &[], given); // the target, with a stop token behind
    let (states, last) = net.gru_states(source.embedding(Embedding::new(20, WIDTH)), Gru::new(WIDTH));
    let keys = states.linear(Linear::new(WIDTH).without_bias());
    let v = net.parameter("attention.v", DType::F32, &[WIDTH], init::uniform(-0.1, 0.1));
    let query = net.layer(Linear::new(WIDTH));
    let covered = net.layer(Linear::new(WIDTH).without_bias());

    let nothing = keys.slice(0..1).fill_like(0.0);
    let (padded, lengths) = net.concat(&[keys, states, nothing]).sequence_pad(LONGEST, 0.0);
    let words = given.embedding(Embedding::new(20, WIDTH));
    let (decoded, repeated) = net.recurrent(words, |step, word| {
        let (h_prev, rows) = (step.memory_from(last), step.memory_from(padded));
        let [keys, states, coverage] = rows.sequence_unpad(lengths).split([WIDTH, WIDTH, 1]);
        let (context, weights) =
            query.of(h_prev).additive_attention_with(keys + covered.of(coverage), states, v);
        let h = (step.concat(&[word, context]).linear(WIDTH) + h_prev.linear(WIDTH)).tanh();
        step.update(h_prev, h);
        step.update(rows, step.concat(&[keys, states, coverage + weights]).sequence_pad(LONGEST, 0.0).0);
        (h, coverage.minimum(weights).sequence_pool(Pool::Sum)) // the coverage loss of the step
    });
    let loss = decoded.linear(20).cross_entropy(next).mean() + repeated.mean();

    let samples: Samples = (0..20)
        .map(|i| {
            let words: Vec<i64> = (0..1 + i % 5).map(|k| 2 + (i + k) % 18).collect();
            let (given, next) = ([&[0i64][..], &words].concat(), [&words[..], &[1]].concat());
            Vec::from([words, given, next].map(Field::from))
        })
        .collect();
    let data = Loader::new(samples, &["source", "given", "next"])?;
    let mut trainer = Trainer::new(net, loss, &Adam::new(0.01))?.progress(Progress::Quiet);
    let before = trainer.evaluate(&data)?.loss();
    assert!(trainer.fit(&data, &data, Until::Epochs(3))?.last.loss() < before);
    Ok(())
}

#[test]
fn carry_the_state_from_batch_to_batch() -> unpadded::Result<()> {
    use unpadded::data::{Continuous, Data};
    use unpadded::layers::{Embedding, Lstm};
    use unpadded::optimizer::Adam;
    use unpadded::train::{Trainer, Until};
    use unpadded::{Builder, DType};
    let net = Builder::new().seed(1);
    let x = net.feed("x", DType::I64, &[], 1);
    let y = net.feed_like("y", DType::I64, &[], x);
    let [h, c] = [16, 16].map(|width| net.carried_state(width));
    let (states, last_h, last_c) = net.lstm_states(x.embedding(Embedding::new(50, 16)), Lstm::new(16).initial(h, c));
    net.carry(h, last_h);
    net.carry(c, last_c);
    let loss = states.linear(50).cross_entropy(y).mean();
    let text = Continuous::new((0..1000).map(|i| i % 50), 4, 32, ["x", "y"])?; // 4 streams, in windows of 32
    assert_eq!(text.batch_count(), Some(8));
    let mut trainer = Trainer::new(net, loss, &Adam::new(0.01))?;
    trainer = trainer.progress(unpadded::train::Progress::Quiet);
    let before = trainer.evaluate(&text)?.loss();
    assert!(trainer.fit(&text, &text, Until::Epochs(1))?.last.loss() < before);
    Ok(())
}

#[test]
fn make_batches_by_tokens() -> unpadded::Result<()> {
    let data = labelled()?;
    use unpadded::data::Batching;
    let data = data.batching(Batching::Tokens(4096)).shuffle(1).prefetch(4); // as many sequences as fit into 4096 rows
    use unpadded::data::Data;
    assert_eq!(data.batches(Some(0), 0)?.count(), 1); // 40 sequences of 3 rows
    Ok(())
}
