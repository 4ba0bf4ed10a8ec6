//! The sums of a user's metric that refuses a batch; the sums of a loss metric.

use unpadded::metrics::RunningMetric;

use super::*;

/// A user's metric called `loss` stays, whether `weight` comes before or after it.
#[test]
fn a_weight_replaces_the_trainers_own_loss_alone() {
    let loss = |change: fn(Trainer, [Var; 2]) -> Trainer| {
        let net = Builder::new().seed(3);
        let words = net.feed("words", DType::I64, &[], 1);
        let _label = net.feed("label", DType::I64, &[], 0);
        let rows = words.embedding(Embedding::new(20, 6)).linear(20).cross_entropy(words);
        let (loss, count) = (rows.mean(), rows.fill_like(1.0).sum());
        let trainer = Trainer::new(net, loss, &Sgd::new(0.02)).unwrap().progress(Progress::Quiet);
        change(trainer, [rows, count]).evaluate(&dev()).unwrap().loss()
    };
    let mean = loss(|trainer, _| trainer);
    assert!((loss(|trainer, [_, count]| trainer.weight(count)) - mean).abs() < 1e-5);
    for perplexity in [
        loss(|trainer, [rows, count]| trainer.metric(Loss::perplexity(rows).named("loss")).weight(count)),
        loss(|trainer, [rows, count]| trainer.weight(count).metric(Loss::perplexity(rows).named("loss"))),
    ] {
        assert!((perplexity - mean.exp()).abs() < 1e-3 * perplexity, "{perplexity}, mean {mean}");
    }
}

/// Without the program, the scalar loss of several batches is unknown.
#[test]
fn a_scalar_loss_needs_its_builder() {
    let net = Builder::new();
    let rows = net.feed("rows", DType::F64, &[], 1);
    let loss = rows.mean() * 2.0;
    let build = |metric| RunningMetric::new(metric).unwrap();
    assert_eq!(build(Loss::perplexity(loss)).value(), 0.0);
    assert_eq!(Loss::new(loss).variables().len(), 2);
    let mut before = build(Loss::new(loss));
    net.finish().unwrap();
    let number = |x: f64| Variable::dense(ndarray::arr0(x));
    let rows = |rows: Vec<f64>| Variable::from_sequences(&[rows]).unwrap();
    before.update(&[number(3.0), rows(vec![1.0, 2.0])], 1).unwrap();
    before.update(&[number(9.0), rows(vec![4.5; 6])], 1).unwrap();
    assert_eq!(before.value(), 2.0 * 30.0 / 8.0);
    let mut after = build(Loss::new(loss));
    for value in [number(3.0), Variable::dense(ndarray::array![3.0])] {
        let error = after.update(&[value], 2).unwrap_err().to_string();
        for words in
            ["metric `loss`: expected one loss per row", "before `Builder::finish`", "`Loss::weighted`"]
        {
            assert!(error.contains(words), "{error}");
        }
    }
    after.update(&[rows(vec![1.0, 2.0])], 1).unwrap();
    assert_eq!(after.value(), 1.5);
}

/// Numbers that are neither one a row nor one a batch have no loss.
#[test]
fn several_numbers_of_a_batch_are_no_loss() {
    let net = Builder::new();
    let sums = net.feed("rows", DType::F64, &[3], 1).sum_rows();
    let mut metric = RunningMetric::new(Loss::new(sums)).unwrap();
    let error = metric.update(&[Variable::dense(ndarray::array![1.0, 2.0, 3.0])], 1).unwrap_err().to_string();
    assert!(error.contains("loss: expected one number, or one per row, got f64[3]"), "{error}");
}

/// A metric that refuses the batch of this number, from 0 on.
fn refusing(variable: Var, number: usize) -> impl Metric {
    own_metric("refusing", variable, 1, move |sums, _, _| {
        if sums[0] as usize == number {
            return Err(Error::new("a metric", "another batch", "this one"));
        }
        sums[0] += 1.0;
        Ok(())
    })
}

/// After an error, the parameters are the parameters after the last whole step, and the metrics have seen the same batches.
#[test]
fn a_batch_that_a_metric_refuses_moves_nothing() {
    for accumulated in [1, 2] {
        let made = |refused: usize| {
            let net = Builder::new().seed(3);
            let words = net.feed("words", DType::I64, &[], 1);
            let label = net.feed("label", DType::I64, &[], 0);
            let logits = words.embedding(Embedding::new(20, 6)).sequence_pool(Pool::Sum).linear(2);
            let loss = logits.cross_entropy(label).mean();
            let trainer = Trainer::new(net, loss, &Adam::new(0.02)).unwrap().progress(Progress::Quiet);
            let trainer = trainer.metric(Accuracy::new(logits, label)).metric(refusing(label, refused));
            trainer.accumulate(accumulated)
        };
        let mut trainer = made(4);
        let error = trainer.fit(&train(), &dev(), Until::Epochs(1)).unwrap_err().to_string();
        assert!(error.contains("a metric: expected another batch, got this one"), "{error}");
        assert_eq!((trainer.position().step, trainer.position().batch), (4 / accumulated, 4));
        let mut whole = made(usize::MAX);
        whole.fit(&train(), &dev(), Until::Steps(4 / accumulated)).unwrap();
        assert!(super::bytes(&mut trainer) == super::bytes(&mut whole));
    }
    // A weight that is none is found before its batch moves anything.
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    net.feed("label", DType::I64, &[], 0);
    let rows = words.embedding(Embedding::new(20, 6)).square();
    let (loss, weight) = (rows.mean(), -rows.fill_like(1.0).sum());
    let mut trainer =
        Trainer::new(net, loss, &Sgd::new(0.5)).unwrap().weight(weight).progress(Progress::Quiet);
    let before = super::values(&mut trainer);
    let error = trainer.fit(&train(), &dev(), Until::Epochs(1)).unwrap_err().to_string();
    assert!(error.contains("weight of a batch"), "{error}");
    assert_eq!(super::values(&mut trainer), before);
}

/// A number that is not finite is named by its operator, also where a metric refuses it.
#[test]
fn a_number_that_is_not_finite_comes_before_a_refusal() {
    for refused in [0, usize::MAX] {
        let net = Builder::new().seed(3);
        let words = net.feed("words", DType::I64, &[], 1);
        net.feed("label", DType::I64, &[], 0);
        let scores = words.embedding(Embedding::new(20, 6)) * 1e30;
        let loss = scores.exp().mean();
        let trainer = Trainer::new(net, loss, &Sgd::new(0.5)).unwrap().progress(Progress::Quiet);
        let mut trainer = trainer.metric(refusing(words, refused));
        let before = super::values(&mut trainer);
        let error = trainer.fit(&train(), &dev(), Until::Epochs(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFinite, "{error}");
        assert!(
            error.place().operator.as_ref().is_some_and(|operator| operator.starts_with("exp")),
            "{error}"
        );
        assert_eq!(super::values(&mut trainer), before);
    }
}

/// The loss of batches without rows equals the loss of one batch without rows.
#[test]
fn a_function_of_a_mean_without_rows_is_computed() {
    let evaluated = |lengths: &[usize], sequences| {
        let net = Builder::new().seed(1);
        let words = net.feed("words", DType::I64, &[], 1);
        let loss = words.embedding(Embedding::new(9, 4)).linear(1).square().mean().exp() + 0.5;
        let mut trainer = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap().progress(Progress::Quiet);
        let samples: Samples = lengths.iter().map(|&n| vec![Field::Ints(vec![1; n])]).collect();
        let data = Loader::new(samples, &["words"]).unwrap().batching(Batching::Sequences(sequences));
        trainer.evaluate(&data).unwrap().loss()
    };
    for sequences in [1, 3] {
        assert_eq!(evaluated(&[0, 0, 0], sequences), 1.5);
    }
    assert_eq!(evaluated(&[0, 0, 2], 1), evaluated(&[0, 0, 2], 3));
    assert!(evaluated(&[0, 0, 2], 3) > 1.5);
}

/// A metric of a scalar loss that another thread makes is refused, and the error names the other thread's loss.
#[test]
fn a_scalar_loss_needs_the_thread_of_its_builder() {
    for shape_of_one in [false, true] {
        let net = Builder::new().seed(3);
        let words = net.feed("words", DType::I64, &[], 1);
        net.feed("label", DType::I64, &[], 0);
        let rows = words.embedding(Embedding::new(20, 6)).linear(1).square();
        let loss = rows.mean() * 2.0;
        let (shown, weight) = match shape_of_one {
            true => (rows.sum_rows(), rows.fill_like(1.0).sum_rows()),
            false => (loss, rows.fill_like(1.0).sum()),
        };
        let elsewhere = |weighted: bool| {
            let made = move || match weighted {
                true => Loss::new(shown).weighted(weight).named("shown"),
                false => Loss::new(shown).named("shown"),
            };
            std::thread::spawn(made).join().unwrap()
        };
        let here = Loss::new(shown).weighted(weight).named("here");
        let trainer = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap().progress(Progress::Quiet);
        let mut trainer = trainer.metric(elsewhere(true)).metric(here);
        let scores = trainer.evaluate(&dev()).unwrap();
        assert_eq!(scores.get("shown"), scores.get("here"));
        let mut trainer = trainer.metric(elsewhere(false).named("other"));
        let error = trainer.evaluate(&dev()).unwrap_err().to_string();
        for words in
            ["metric `other`: expected one loss per row", "belonged to another thread", "`Loss::weighted`"]
        {
            assert!(error.contains(words), "{error}");
        }
    }
}
