//! Gradient accumulation: several batches per step equal one step of the joined batch, whatever interrupts the step.

use unpadded::layers::init;
use unpadded::optimizer::{Adagrad, AdamW, Optimizer};

use super::*;

const HEIGHT: usize = 20;

/// Says each word again, in f64, so that batches have different rows; some have none.
fn words(optimizer: &dyn Optimizer, sparse: bool) -> Trainer {
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    let _label = net.feed("label", DType::I64, &[], 0);
    let table = net.parameter("table", DType::F64, &[HEIGHT, 6], init::embedding(0.5, Some(3)));
    let x = net.dropout(net.lookup(words, table, Some(3), sparse), 0.3);
    let loss = net.mean(net.cross_entropy(net.linear(x, HEIGHT), words));
    Trainer::new(net, loss, optimizer).unwrap().threads(1).progress(Progress::Quiet)
}

fn batches_of(sequences: usize) -> Loader {
    Loader::new(samples(0..77), &["words", "label"]).unwrap().batching(Batching::Sequences(sequences))
}

#[test]
fn some_batches_are_as_all_of_them_in_one() {
    let rules: [(&str, Box<dyn Optimizer>, &[bool]); 7] = [
        ("sgd", Box::new(Sgd::new(0.3)), &[false, true]),
        ("sgd, clipped", Box::new(Sgd::new(0.3).clip_value(0.01).clip_global_norm(0.02)), &[false, true]),
        ("momentum with decay", Box::new(Sgd::new(0.1).momentum(0.9).weight_decay(0.01)), &[false, true]),
        ("adam", Box::new(Adam::new(0.01).epsilon(1e-4)), &[false, true]),
        ("adam, clipped", Box::new(AdamW::new(0.01).epsilon(1e-4).clip_norm(0.01)), &[false, true]),
        ("adam, lazy", Box::new(Adam::new(0.01).epsilon(1e-4).lazy()), &[true]),
        ("adagrad", Box::new(Adagrad::new(0.05).epsilon(1e-4)), &[false, true]),
    ];
    for (name, rule, storages) in rules {
        for &sparse in storages {
            let mut joined = words(&*rule, sparse);
            let expected = joined.fit(&batches_of(8), &batches_of(8), Until::Epochs(3)).unwrap();
            assert_eq!(expected.steps, 30);
            for (sequences, n) in [(4, 2), (1, 8), (8, 1)] {
                let mut parts = words(&*rule, sparse).accumulate(n);
                let report = parts.fit(&batches_of(sequences), &batches_of(8), Until::Epochs(3)).unwrap();
                assert_eq!(report.steps, expected.steps);
                assert!((report.last.loss() - expected.last.loss()).abs() < 1e-12, "{name}, {sparse}");
                let mut most = 0.0f64;
                for name in ["table", "linear_0.weight", "linear_0.bias"] {
                    let [a, b] = [&mut joined, &mut parts].map(|t| t.scope().get(name).unwrap());
                    let (a, b) = (a.as_slice::<f64>().unwrap(), b.as_slice::<f64>().unwrap());
                    most = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(most, f64::max);
                }
                assert!(most < 1e-12, "{name}, sparse {sparse}, {n} of {sequences}: {most:e}");
                assert!(n > 1 || most == 0.0, "{name}");
            }
        }
    }
}

/// A loss that a batch's own mean is part of, over batches of unlike sizes.
fn centred(weight: Option<fn(Var) -> Var>) -> Trainer {
    let net = Builder::new().seed(1);
    let words = net.feed("words", DType::I64, &[], 1);
    let table = Embedding::new(9, 2).dtype(DType::F64);
    let y = words.embedding(table).sequence_pool(Pool::Mean).linear(1);
    let loss = (y - y.mean()).square().mean();
    let weight = weight.map(|weight_of| weight_of(y.fill_like(1.0).sum()));
    let trainer = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap().progress(Progress::Quiet);
    weight.into_iter().fold(trainer, Trainer::weight)
}

fn points(part: std::ops::Range<usize>, sequences: usize) -> Loader {
    let samples: Samples = part.map(|i| vec![Field::Ints(vec![i as i64, (i * i % 5) as i64])]).collect();
    Loader::new(samples, &["words"]).unwrap().batching(Batching::Sequences(sequences))
}

#[test]
fn what_parts_do_not_tell_is_refused_unless_it_is_told() {
    let data = points(0..7, 4);
    let mut untold = centred(None);
    let error = untold.fit(&data, &data, Until::Epochs(1)).unwrap_err();
    let text = error.to_string();
    for words in [
        "variable `mean_2`: loss: expected sums and means over rows",
        "got rows that are computed from `mean`, a number of the whole batch",
        "`Trainer::weight` sets the weight of each batch",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert!(error.place().caller.as_ref().is_some_and(|c| c.contains("accumulate.rs")), "{text}");
    // With a weight, the loss is the weighted mean of the batches: in the report, and in a step.
    let weighted = || centred(Some(|rows| rows));
    let loss_of = |data: &Loader| weighted().evaluate(data).unwrap().loss();
    let expected = (4.0 * loss_of(&points(0..4, 4)) + 3.0 * loss_of(&points(4..7, 4))) / 7.0;
    assert!((loss_of(&data) - expected).abs() < 1e-12);
    let weight_after = |mut trainer: Trainer, data: &Loader| {
        trainer.fit(data, data, Until::Steps(1)).unwrap();
        trainer.scope().get("linear_0.weight").unwrap().as_slice::<f64>().unwrap().to_vec()
    };
    let before = weighted().scope().get("linear_0.weight").unwrap().as_slice::<f64>().unwrap().to_vec();
    let [first, second] = [0..4, 4..7].map(|part| weight_after(weighted(), &points(part, 4)));
    let both = weight_after(weighted().accumulate(2), &data);
    for i in 0..2 {
        let expected = (4.0 * (first[i] - before[i]) + 3.0 * (second[i] - before[i])) / 7.0;
        assert!((both[i] - before[i] - expected).abs() < 1e-12, "{first:?}, {second:?}, {both:?}");
    }
    // Wrong weights.
    for (weighted, words) in [
        (centred(Some(|rows| -rows)).accumulate(2), "got -4"),
        (centred(Some(|rows| -rows)), "got -4"),
        (centred(Some(|rows| (-rows).log())).accumulate(2), "got NaN"),
    ] {
        let mut weighted = weighted;
        let error = weighted.fit(&data, &data, Until::Epochs(1)).unwrap_err().to_string();
        assert!(
            error.contains("weight of a batch: expected a finite number of at least 0")
                && error.contains(words),
            "{error}"
        );
        assert_eq!(weighted.position().step, 0);
    }
}

#[test]
fn an_operator_that_looks_at_a_whole_batch_is_warned_of() {
    for weighted in [false, true] {
        let net = Builder::new().seed(1);
        let x = net.feed("words", DType::I64, &[], 1).embedding(Embedding::new(9, 2));
        let (line, y) = (line!(), net.layer(unpadded::layers::Norm::batch()).of(x));
        let loss = y.linear(1).square().mean();
        let weight = y.fill_like(1.0).sum();
        let written = Written::default();
        let trainer = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap();
        let trainer = if weighted { trainer.weight(weight) } else { trainer };
        let mut trainer = trainer.accumulate(2).progress(Progress::To(Box::new(written.clone())));
        trainer.fit(&points(0..7, 4), &points(0..7, 4), Until::Epochs(1)).unwrap();
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let words = format!("`batch_norm`, called at tests/it/trainer/accumulate.rs:{line}:");
        assert!(
            text.contains(&words) && text.contains("each of the 2 batches of a step by itself"),
            "{text}"
        );
    }
}

/// Metrics that see each batch of development data by itself cause a warning; a batch norm evaluates by its averages.
#[test]
fn a_whole_batch_is_warned_of_on_development_data_of_several_batches() {
    type Rows = fn(&Builder, Var, Var) -> Var;
    let operators: [(&str, Rows, bool); 2] = [
        ("gather_rows", |_, rows, label| rows - rows.gather_rows(label), true),
        ("batch_norm", |net, rows, _| net.layer(unpadded::layers::Norm::batch()).of(rows), false),
    ];
    for (operator, rows, warned) in operators {
        let message = |dev: usize| {
            let net = Builder::new().seed(1);
            let words = net.feed("words", DType::I64, &[], 1);
            let label = net.feed("label", DType::I64, &[], 0);
            let h = words.embedding(Embedding::new(20, 2)).sequence_pool(Pool::Sum);
            let loss = rows(&net, h, label).square().mean();
            let written = Written::default();
            let trainer = Trainer::new(net, loss, &Sgd::new(0.0)).unwrap();
            let mut trainer = trainer.progress(Progress::To(Box::new(written.clone())));
            for epochs in 1..3 {
                trainer.fit(&batches_of(8), &batches_of(dev), Until::Epochs(epochs)).unwrap();
            }
            String::from_utf8(written.0.lock().unwrap().clone()).unwrap()
        };
        let warnings = |text: &str| text.lines().filter(|line| line.contains("reads a whole batch")).count();
        let (one, several) = (message(77), message(40));
        assert_eq!((warnings(&one), warnings(&several)), (0, usize::from(warned)), "{operator}: {several}");
        let words = format!("warning: `{operator}`, called at tests/it/trainer/accumulate.rs:");
        let whole = "and sees 2 batches of development data by themselves";
        assert!(!warned || several.contains(&words) && several.contains(whole), "{several}");
    }
}

/// The batches of other data without the numbers of their samples.
fn unnumbered(data: Loader) -> impl Data {
    changed(data, |_, batch| Ok(with!(batch?, numbers: Vec::new())))
}

/// The feeds determine the number of sequences of a batch: for both terms of a loss, for metrics and for carried states.
#[test]
fn batches_without_numbers_are_counted_by_their_feeds() {
    let made = || {
        let net = Builder::new().seed(1);
        let words = net.feed("words", DType::I64, &[], 1);
        let label = net.feed("label", DType::I64, &[], 0);
        let x = words.embedding(Embedding::new(20, 4).dtype(DType::F64));
        let logits = x.sequence_pool(Pool::Sum).linear(2);
        let loss = x.linear(1).square().mean() + logits.cross_entropy(label).mean();
        Trainer::new(net, loss, &Sgd::new(0.5)).unwrap().threads(1).progress(Progress::Quiet)
    };
    let after = |sequences: usize, n: u64, numbered: bool| {
        let data = batches_of(sequences);
        let data: Box<dyn Data> = if numbered { Box::new(data) } else { Box::new(unnumbered(data)) };
        let mut trainer = made().accumulate(n);
        trainer.fit(&*data, &*data, Until::Steps(1)).unwrap();
        let mut state = |name: &str| trainer.scope().get(name).unwrap().as_slice::<f64>().unwrap().to_vec();
        [state("linear_0.weight"), state("linear_1.weight")].concat()
    };
    let expected = after(77, 1, true);
    let apart = |found: Vec<f64>| found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    for numbered in [true, false] {
        assert!(apart(after(30, 3, numbered)) < 1e-12, "numbered: {numbered}");
    }
    // A state for each sequence.
    let net = Builder::new().seed(1);
    let words = net.feed("words", DType::I64, &[], 1);
    net.feed("label", DType::I64, &[], 0);
    let before = net.carried_state(4);
    let x = words.embedding(Embedding::new(20, 3));
    let (h, last) = net.gru_states(x, unpadded::layers::Gru::new(4).initial(before));
    net.carry(before, last);
    let mut trainer = Trainer::new(net, h.square().mean(), &Sgd::new(0.1)).unwrap().progress(Progress::Quiet);
    let expected = trainer.evaluate(&batches_of(11)).unwrap().loss();
    assert_eq!(trainer.evaluate(&unnumbered(batches_of(11))).unwrap().loss(), expected);
}

/// A loss of shape `[1]` is one number, whose weight may have that shape too.
#[test]
fn a_loss_of_one_number_in_any_shape_takes_a_weight() {
    let made = |weight: bool| {
        let net = Builder::new().seed(1);
        let words = net.feed("words", DType::I64, &[], 1);
        let y = words.embedding(Embedding::new(9, 2).dtype(DType::F64)).linear(1).square();
        let (loss, rows) = (y.sum_rows(), y.fill_like(1.0).sum_rows());
        let trainer = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap().progress(Progress::Quiet);
        if weight { trainer.weight(rows) } else { trainer }
    };
    let error = made(false).evaluate(&points(0..7, 4)).unwrap_err().to_string();
    assert!(error.contains("got `sum_rows`, which `sum_rows` computes from rows"), "{error}");
    assert!(error.contains("`Trainer::weight` sets"), "{error}");
    let loss_of = |part, sequences| made(true).evaluate(&points(part, sequences)).unwrap().loss();
    let expected = (4.0 * loss_of(0..4, 4) + 3.0 * loss_of(4..7, 4)) / 7.0;
    assert!((loss_of(0..7, 4) - expected).abs() < 1e-12);
}

#[test]
fn a_weight_of_many_numbers_is_refused_at_its_line() {
    for batches in [1, 2] {
        let net = Builder::new().seed(1);
        let y = net.feed("words", DType::I64, &[], 1).embedding(Embedding::new(9, 2)).linear(1);
        let (loss, rows) = (y.square().mean(), y.fill_like(1.0));
        let trainer = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap().progress(Progress::Quiet);
        let (line, trainer) = (line!(), trainer.weight(rows));
        let error = trainer.accumulate(batches).evaluate(&points(0..7, 4)).unwrap_err();
        assert!(error.to_string().contains("weight of a batch: expected one float, got f32"), "{error}");
        assert!(error.place().caller.as_ref().is_some_and(|c| c.contains(&format!("rs:{line}:"))), "{error}");
    }
}

#[test]
fn it_goes_on_bit_by_bit_from_any_step() {
    let three = || trainer().accumulate(3);
    let mut whole = three();
    // 10 batches an epoch: steps of 3, 3, 3 and 1.
    assert_eq!(fit(&mut whole, Until::Epochs(3)).steps, 12);
    let expected = bytes(&mut whole);
    for k in [1, 3, 4, 6, 11] {
        let file = path("accumulate");
        let mut first = three();
        fit(&mut first, Until::Steps(k));
        assert_eq!(
            first.position().batch + 10 * first.position().epoch,
            [3, 6, 9, 10][(k as usize - 1) % 4] + (k - 1) / 4 * 10
        );
        first.save(&file).unwrap();
        let mut second = three();
        second.resume(&file).unwrap();
        fit(&mut second, Until::Epochs(3));
        assert!(bytes(&mut second) == expected, "after {k} steps");
        let mut other = trainer();
        other.resume(&file).unwrap();
        let error = other.fit(&train(), &dev(), Until::Epochs(3)).unwrap_err().to_string();
        assert!(error.contains("batches that make a step: expected 3, as in the training so far"), "{error}");
        std::fs::remove_file(file).unwrap();
    }

    // An interrupt in the second batch of a step.
    let file = path("accumulate-interrupt");
    let mut first = three().checkpoint(&file);
    let flag = first.stop_flag();
    let report = first.fit(&flagging(train(), 5, flag), &dev(), Until::Epochs(3)).unwrap();
    assert_eq!((report.ended, report.steps, first.position().batch), (StopReason::Interrupted, 2, 6));
    drop(first);
    let mut second = three();
    second.resume(&file).unwrap();
    fit(&mut second, Until::Epochs(3));
    assert!(bytes(&mut second) == expected);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_step_that_fails_leaves_nothing_behind() {
    let mut training = trainer().accumulate(4);
    training.fit(&failing(train()), &dev(), Until::Epochs(2)).unwrap_err();
    assert_eq!((training.position().step, training.position().batch), (1, 4));
    let mut whole = trainer().accumulate(4);
    for trainer in [&mut whole, &mut training] {
        fit(trainer, Until::Epochs(2));
    }
    assert!(bytes(&mut training) == bytes(&mut whole));
}

#[test]
fn a_batch_that_is_not_finite_is_named_before_anything_is_updated() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[], 1);
    let one = Initializer::new("constant", Attributes::new().with("value", 1.0));
    let w = net.parameter("w", DType::F32, &[1], one);
    let loss = net.mean(net.exp(net.mul(x, w)));
    let numbers = [vec![1.0, 2.0], vec![], vec![0.5, 89.0], vec![1.0]];
    let samples: Samples = numbers.into_iter().map(|x| vec![Field::Floats(x)]).collect();
    let data = Loader::new(samples, &["x"]).unwrap().batching(Batching::Sequences(1));
    let trainer = Trainer::new(net, loss, &Adam::new(0.1)).unwrap().progress(Progress::Quiet);
    let mut trainer = trainer.accumulate(4);
    let before = values(&mut trainer);
    let error = trainer.fit(&data, &data, Until::Epochs(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFinite, "{error}");
    assert_eq!(error.place().operator.as_deref(), Some("exp #1"), "{error}");
    assert!(error.to_string().contains("got infinity in row 1, position 1 of sequence 2"), "{error}");
    assert_eq!((trainer.position().step, trainer.position().batch), (0, 0));
    assert_eq!(values(&mut trainer), before);
}

#[test]
fn no_batch_makes_no_step() {
    let (mut trainer, line) = (trainer().accumulate(0), line!());
    let error = trainer.fit(&train(), &dev(), Until::Epochs(1)).unwrap_err();
    assert!(error.to_string().starts_with("batches that make a step: expected at least 1, got 0"), "{error}");
    assert!(error.place().caller.as_ref().is_some_and(|c| c.contains(&format!("accumulate.rs:{line}:"))));
}
