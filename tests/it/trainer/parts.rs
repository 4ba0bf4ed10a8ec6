//! The loss of several batches equals the loss of one joined batch: in an accumulated step, on development data, and among
//! workers.

use unpadded::layers::init;
use unpadded::ops::CrossEntropy;
use unpadded::predict::Predictor;
use unpadded::tensor::StorageKind;

use super::*;
use crate::step_blocks::generator::Dice;
use crate::thorough::times;

const HEIGHT: usize = 20;
pub(super) const SEQUENCES: usize = 14;

/// The terms of losses.
pub(super) struct Rows {
    net: Builder,
    /// Losses by word, and by sentence.
    words: Var,
    sentences: Var,
    /// The loss of each word, with some words ignored; and the weight of each word.
    some: [Var; 2],
    /// Losses with class weights.
    weighted: [Var; 2],
    /// A parameter that words are multiplied by, and the table that they are looked up in.
    weight: Var,
    table: Var,
    /// A parameter of shape `[1]`.
    scale: Var,
}

fn rows(dtype: DType, sparse: bool) -> Rows {
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let table = net.parameter("table", dtype, &[HEIGHT, 6], init::embedding(0.5, None));
    let x = net.lookup(words, table, None, sparse);
    let weight = net.parameter("w", dtype, &[6], init::uniform(-1.5, 1.5));
    let logits = (x * weight).linear(HEIGHT);
    let weights = net.parameter("class_weights", dtype, &[HEIGHT], init::uniform(0.5, 1.5));
    net.stop_gradient(weights);
    let ignored = CrossEntropy::default().ignore_index(3);
    let classes = CrossEntropy::default().class_weights(weights.square());
    let some = logits.cross_entropy_with(words, ignored);
    let weighted = logits.cross_entropy_with(words, classes);
    let sentences = x.sequence_pool(Pool::Mean).linear(2).cross_entropy(label);
    let words = logits.cross_entropy(words);
    let scale = net.parameter("scale", dtype, &[1], init::uniform(0.5, 1.5));
    Rows { words, sentences, some: some.into(), weighted: weighted.into(), weight, table, scale, net }
}

pub(super) type Loss = (&'static str, fn(&Rows) -> Var);

/// Losses of each kind: one total, several totals, factors that follow from the numbers of rows or from values, penalties.
pub(super) const LOSSES: [Loss; 23] = [
    ("mean", |r| r.words.mean()),
    ("a scaled mean", |r| r.words.mean() * 2.0),
    ("sum", |r| r.words.sum()),
    ("mean of sentences", |r| r.sentences.mean()),
    ("sum over those that count", |r| r.some[0].sum() / r.some[1].sum()),
    ("the same, guarded", |r| r.some[0].sum().div_no_nan(r.some[1].sum())),
    ("class weights", |r| r.weighted[0].sum() / r.weighted[1].sum()),
    ("two means", |r| r.words.mean() + r.sentences.mean() * 0.3),
    ("a difference", |r| r.words.mean() - r.sentences.sum() * 0.01),
    ("a penalty", |r| r.words.mean() + r.weight.square().sum() * 0.01),
    ("a penalty that is a mean", |r| r.sentences.mean() + r.weight.square().mean().sqrt()),
    ("a penalty on a table", |r| r.words.mean() + r.table.square().sum() * 0.01),
    ("over a norm", |r| r.words.mean() / (r.weight.square().sum() + 1.0)),
    ("perplexity", |r| (r.words.mean() * 0.5).exp()),
    ("a root beside a mean", |r| r.words.sum().sqrt() + r.sentences.mean()),
    ("a product", |r| r.words.mean() * r.sentences.mean()),
    ("two quotients", |r| r.some[0].sum() / r.some[1].sum() + r.weighted[0].sum() / r.weighted[1].sum()),
    ("a penalty alone", |r| r.weight.square().sum() * 0.1),
    ("a learned scale", |r| r.scale * r.words.mean()),
    ("a learned variance", |r| (-r.scale).exp() * r.words.mean() + r.scale * 0.1),
    ("a penalty over those that count", |r| {
        r.words.mean() + r.sentences.mean() * 0.3 + r.weight.square().sum() / r.some[1].sum()
    }),
    ("a random penalty", |r| r.words.mean() + r.weight.dropout(0.5).square().sum() * 0.01),
    ("a feed without rows in rows", |r| {
        let fixed =
            r.net.feed_stored("fixed", r.net.spec(r.words).unwrap().dtype, &[Some(3)], StorageKind::Dense);
        (r.words * fixed.sum()).mean() + r.sentences.mean() * 0.3
    }),
];

/// Draws a random loss: sums, differences, products, quotients and functions of totals and of terms of parameters alone. No
/// divisor and no argument of a root comes near zero.
fn drawn(dice: &mut Dice, rows: &Rows, depth: usize) -> Var {
    if depth == 0 || dice.chance(15) {
        return match dice.below(9) {
            0 => rows.words.mean(),
            1 => rows.words.sum() * 0.1,
            2 => rows.sentences.mean(),
            3 => rows.sentences.sum() * 0.1,
            4 => rows.some[0].sum() / rows.some[1].sum(),
            5 => rows.weighted[0].sum().div_no_nan(rows.weighted[1].sum()),
            6 => (rows.words * rows.words).mean(),
            7 => rows.weight.square().sum() * 0.1,
            _ => rows.table.square().mean(),
        };
    }
    let x = drawn(dice, rows, depth - 1);
    match dice.below(9) {
        0 => x * (0.5 + dice.number() / 4.0),
        1 => x.square().sqrt() + 0.1,
        2 => (x * 0.2).tanh(),
        3 => (x.square() + 0.5).log(),
        4 => x + drawn(dice, rows, depth - 1),
        5 => x - drawn(dice, rows, depth - 1) * 0.7,
        6 => x * drawn(dice, rows, depth - 1).tanh(),
        7 => x / (drawn(dice, rows, depth - 1).square() + 1.0),
        _ => x.square() * 0.1,
    }
}

#[test]
fn a_step_of_parts_is_that_of_one_batch_for_losses_at_random() {
    let mut worst = [0.0f64; 2];
    for seed in 0..times(300) as u64 {
        let loss = |rows: &Rows| {
            let loss = drawn(&mut Dice::new(seed), rows, 1 + seed as usize % 3);
            // Without words there would be nothing to train.
            loss + rows.words.mean() * 0.1
        };
        let (sequences, n) = [(5, 3), (1, 14), (7, 2), (3, 5)][seed as usize % 4];
        for (at, (dtype, tolerance)) in [(DType::F64, 1e-10), (DType::F32, 1e-5)].into_iter().enumerate() {
            let sparse = seed % 2 == 0;
            let (mut joined, mut parts) =
                (trainer_of(&loss, dtype, sparse), trainer_of(&loss, dtype, sparse));
            joined.fit(&data(SEQUENCES), &data(SEQUENCES), Until::Steps(2)).unwrap();
            parts = parts.accumulate(n);
            parts.fit(&data(sequences), &data(sequences), Until::Steps(2)).unwrap();
            let expected = joined.evaluate(&data(SEQUENCES)).unwrap().loss();
            for sequences in [1, 2, 7, SEQUENCES] {
                let got = parts.evaluate(&data(sequences)).unwrap().loss();
                let far = (got - expected).abs() / expected.abs().max(1.0);
                assert!(far < tolerance, "seed {seed}, {sequences}: {got} of {expected}");
            }
            for ((a, b), name) in parameters(&mut joined).iter().zip(parameters(&mut parts)).zip(PARAMETERS) {
                let far = apart(a, &b);
                assert!(far < tolerance, "seed {seed}, {n} of {sequences}: {name} {far:e}");
                worst[at] = worst[at].max(far);
            }
        }
    }
    println!("largest difference: f64 {:e}, f32 {:e}", worst[0], worst[1]);
}

/// Returns the value of the feed without rows.
fn fixed(dtype: DType) -> Variable {
    let numbers = Dense::from(ndarray::array![0.25f64, 1.0, -0.5]).cast(dtype);
    Variable::new(numbers, None).unwrap()
}

/// The sentences, and `fixed` with each batch.
fn with_fixed(sequences: usize, dtype: DType) -> impl Data {
    changed(data(sequences), move |_, batch| {
        batch.map(|mut batch| {
            batch.values.insert(0, ("fixed".to_owned(), fixed(dtype)));
            batch
        })
    })
}

/// The sentences in batches, as a trainer's program is fed.
pub(super) fn data_for(trainer: &Trainer, sequences: usize) -> Box<dyn Data> {
    match trainer.program().find("fixed") {
        Some(fixed) => Box::new(with_fixed(sequences, trainer.program().spec(fixed).unwrap().dtype)),
        None => Box::new(data(sequences)),
    }
}

fn data(sequences: usize) -> Loader {
    // The second and the last sentence have no words; only one word of the third counts.
    let sample = |i: usize| {
        let random = |k: usize| (i * 31 + k * 17 + i * k * 7 + (i * i) % 13) % HEIGHT;
        let words: Vec<i64> = match i % 13 {
            1 => Vec::new(),
            2 => vec![3, 3, 5, 3],
            _ => (0..1 + i % 5 * 2).map(|k| random(k) as i64).collect(),
        };
        vec![Field::Ints(words), Field::Int((i % 2) as i64)]
    };
    let samples: Samples = (0..SEQUENCES).map(sample).collect();
    Loader::new(samples, &["words", "label"]).unwrap().batching(Batching::Sequences(sequences))
}

pub(super) fn trainer_of(loss: &dyn Fn(&Rows) -> Var, dtype: DType, sparse: bool) -> Trainer {
    let rows = rows(dtype, sparse);
    let loss = loss(&rows);
    let trainer = Trainer::new(rows.net, loss, &Sgd::new(0.1).momentum(0.9)).unwrap();
    trainer.threads(1).progress(Progress::Quiet)
}

pub(super) const PARAMETERS: [&str; 7] =
    ["scale", "table", "w", "linear_0.weight", "linear_0.bias", "linear_1.weight", "linear_1.bias"];

/// Returns the largest difference of two arrays, relative to their largest number.
pub(super) fn apart(a: &[f64], b: &[f64]) -> f64 {
    let largest = a.iter().map(|x| x.abs()).fold(f64::MIN_POSITIVE, f64::max);
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / largest
}

pub(super) fn parameters(trainer: &mut Trainer) -> Vec<Vec<f64>> {
    PARAMETERS
        .iter()
        .filter_map(|name| {
            Some(trainer.scope().get(name).ok()?.cast(DType::F64).as_slice::<f64>().unwrap().to_vec())
        })
        .collect()
}

#[test]
fn a_step_of_parts_is_that_of_one_batch() {
    for (dtype, tolerance) in [(DType::F64, 1e-10), (DType::F32, 1e-5)] {
        for (loss, sparse) in LOSSES.into_iter().flat_map(|loss| [(loss, false), (loss, true)]) {
            let mut joined = trainer_of(&loss.1, dtype, sparse);
            let all = data_for(&joined, SEQUENCES);
            let before = joined.evaluate(&*all).unwrap().loss();
            let expected = joined.fit(&*all, &*all, Until::Steps(3)).unwrap();
            // The reported loss of the first step is the loss before its update.
            let of_train = expected.history[0].train("loss").unwrap();
            assert!(
                loss.0 == "a random penalty" || (of_train - before).abs() < tolerance * before.abs(),
                "{}: {of_train} of {before}",
                loss.0
            );
            let expected_values = parameters(&mut joined);
            for (sequences, n, dealt) in
                [(5, 3, 1), (1, 14, 1), (7, 2, 1), (14, 1, 2), (14, 1, 16), (5, 3, 4)]
            {
                let mut parts = trainer_of(&loss.1, dtype, sparse).accumulate(n).parts(dealt);
                let batches = data_for(&parts, sequences);
                let got = parts.fit(&*batches, &*all, Until::Steps(3)).unwrap();
                let far = (expected.last.loss() - got.last.loss()).abs() / expected.last.loss().abs();
                assert!(far < tolerance, "{}, {sequences} in {dealt}: dev loss {far:e}", loss.0);
                for ((a, b), name) in expected_values.iter().zip(parameters(&mut parts)).zip(PARAMETERS) {
                    let far = apart(a, &b);
                    assert!(
                        far < tolerance,
                        "{}, sparse {sparse}, {n} of {sequences} in {dealt}: {name} {far:e}",
                        loss.0
                    );
                }
            }
        }
    }
}

#[test]
fn a_loss_on_other_data_is_that_of_one_batch() {
    for loss in LOSSES {
        let mut trainer = trainer_of(&loss.1, DType::F64, true);
        let all = data_for(&trainer, SEQUENCES);
        let expected = trainer.evaluate(&*all).unwrap().loss();
        for sequences in [1, 2, 7] {
            let batches = data_for(&trainer, sequences);
            let got = trainer.evaluate(&*batches).unwrap().loss();
            assert!(
                ((got - expected) / expected).abs() < 1e-12,
                "{}, {sequences}: {got} of {expected}",
                loss.0
            );
        }
    }
}

/// Sums of several batches are in a checkpoint, and a model that was saved is measured by the same ones.
#[test]
fn a_loss_of_several_sums_is_saved_and_measured() {
    let losses = LOSSES
        .into_iter()
        .filter(|(name, _)| ["two means", "class weights", "a penalty", "a learned variance"].contains(name));
    let weighted = |rows: &Rows| rows.words.fill_like(1.0).sum();
    for (loss, weight) in losses.flat_map(|loss| [(loss, false), (loss, true)]) {
        let made = || {
            let rows = rows(DType::F64, true);
            let (loss, weight_of) = (loss.1(&rows), weighted(&rows));
            let trainer = Trainer::new(rows.net, loss, &Sgd::new(0.1).momentum(0.9)).unwrap();
            let trainer = trainer.output("losses", rows.words);
            let trainer = if weight { trainer.weight(weight_of) } else { trainer };
            trainer.accumulate(2).threads(1).progress(Progress::Quiet)
        };
        // 7 batches an epoch, so 4 steps.
        let mut whole = made();
        let expected = whole.fit(&data(2), &data(3), Until::Steps(11)).unwrap();
        let file = path("formula");
        let mut first = made();
        first.fit(&data(2), &data(3), Until::Steps(6)).unwrap();
        first.save(&file).unwrap();
        let mut second = made();
        second.resume(&file).unwrap();
        let report = second.fit(&data(2), &data(3), Until::Steps(11)).unwrap();
        assert_eq!(report.history[1].train("loss"), expected.history[1].train("loss"), "{}", loss.0);
        assert!(bytes(&mut second) == bytes(&mut whole), "{}, weight {weight}", loss.0);
        // A trainer without epochs: a predictor has the parameters of the best one.
        let mut untrained = made();
        untrained.save(&file).unwrap();
        let predictor = Predictor::load(&file).unwrap();
        for sequences in [3, SEQUENCES] {
            let measured = predictor.evaluate(&data(sequences)).unwrap().loss();
            let expected = untrained.evaluate(&data(sequences)).unwrap().loss();
            assert!((measured - expected).abs() < 1e-12, "{}, weight {weight}: {measured}", loss.0);
        }
        std::fs::remove_file(file).unwrap();
    }
}

/// A feed without rows beside sums and means may differ from batch to batch.
#[test]
fn a_feed_without_rows_is_refused_beside_totals() {
    let annealed = |rows: &Rows| {
        let beta = rows.net.feed_stored("fixed", DType::F64, &[Some(3)], StorageKind::Dense);
        rows.words.mean() + rows.sentences.mean() * beta.sum().square()
    };
    let mut trainer = trainer_of(&annealed, DType::F64, true);
    let all = data_for(&trainer, SEQUENCES);
    let error = trainer.evaluate(&*all).unwrap_err().to_string();
    for words in [
        "loss: expected sums and means over rows",
        "got `fixed`, a feed without rows",
        "a feed of one number per sequence, multiplied with the losses",
        "`Trainer::weight` sets the weight of each batch",
    ] {
        assert!(error.contains(words), "{error}");
    }
    // With a weight, and as a feed with rows.
    let weighted = || {
        let rows = rows(DType::F64, true);
        let (loss, weight) = (annealed(&rows), rows.words.fill_like(1.0).sum());
        let trainer = Trainer::new(rows.net, loss, &Sgd::new(0.1)).unwrap().weight(weight);
        trainer.threads(1).progress(Progress::Quiet)
    };
    let expected = weighted().evaluate(&with_fixed(7, DType::F64)).unwrap().loss();
    let report = weighted().accumulate(2).fit(&with_fixed(7, DType::F64), &*all, Until::Steps(1)).unwrap();
    assert!((report.history[0].train("loss").unwrap() - expected).abs() < 1e-12);
    let each: Loss = ("a number per sequence", |rows| {
        let beta = rows.sentences.fill_like(0.75 * 0.75);
        rows.words.mean() + (rows.sentences * beta).mean()
    });
    assert!(
        (trainer_of(&each.1, DType::F64, true).evaluate(&data(SEQUENCES)).unwrap().loss()
            - weighted().evaluate(&*all).unwrap().loss())
        .abs()
            < 1e-12
    );
}

/// A batch in which no row counts has a loss of 0, and moves nothing.
#[test]
fn a_batch_in_which_nothing_counts_moves_nothing() {
    let guarded = |rows: &Rows| rows.some[0].sum().div_no_nan(rows.some[1].sum());
    let samples = |words: &[&[i64]]| -> Loader {
        let samples: Samples = words.iter().map(|w| vec![Field::Ints(w.to_vec()), Field::Int(0)]).collect();
        Loader::new(samples, &["words", "label"]).unwrap().batching(Batching::Sequences(2))
    };
    for nothing in [&[&[3i64, 3][..], &[3]][..], &[&[], &[]]] {
        let mut trainer = trainer_of(&guarded, DType::F64, true);
        let before = parameters(&mut trainer);
        let data = samples(nothing);
        let report = trainer.fit(&data, &data, Until::Epochs(2)).unwrap();
        assert_eq!((report.last.loss(), report.steps), (0.0, 2));
        assert_eq!(parameters(&mut trainer), before);
    }
    // Beside one that counts, in a step and on development data.
    let some: &[&[i64]] = &[&[3, 3], &[], &[4, 3, 5], &[6]];
    let mut joined = trainer_of(&guarded, DType::F64, true);
    let one_batch = samples(some).batching(Batching::Sequences(4));
    joined.fit(&one_batch, &one_batch, Until::Steps(1)).unwrap();
    let mut parts = trainer_of(&guarded, DType::F64, true).accumulate(2);
    parts.fit(&samples(some), &samples(some), Until::Steps(1)).unwrap();
    for (a, b) in parameters(&mut joined).iter().zip(parameters(&mut parts)) {
        assert!(apart(a, &b) < 1e-12);
    }
    // Without the guard the training says where it ends.
    let mut bare = trainer_of(&|rows| rows.some[0].sum() / rows.some[1].sum(), DType::F64, true);
    let error = bare.fit(&samples(&[&[3]]), &one_batch, Until::Epochs(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFinite, "{error}");
    assert!(error.to_string().contains("variable `div`: result: expected finite numbers"), "{error}");
}

/// One number a sample, or a row of one.
#[test]
fn numbers_fill_feeds_of_either_shape() {
    let after = |dims: &[usize], levels: usize| {
        let net = Builder::new().seed(2);
        let (x, y) = (net.feed("x", DType::F32, dims, levels), net.feed("y", DType::F32, dims, 0));
        let x = if levels == 0 { x } else { x.sequence_pool(Pool::Sum) };
        let loss = net.concat(&[x, y]).linear(1).square().mean();
        let field = |i: usize| match levels {
            0 => Field::Float(i as f32),
            _ => Field::Floats(vec![i as f32; i % 3]),
        };
        let samples: Samples = (0..6).map(|i| vec![field(i), Field::Float(0.5)]).collect();
        let data = Loader::new(samples, &["x", "y"]).unwrap().batching(Batching::Sequences(4));
        let mut trainer = Trainer::new(net, loss, &Sgd::new(0.01)).unwrap().progress(Progress::Quiet);
        trainer.fit(&data, &data, Until::Epochs(1)).unwrap();
        trainer.scope().get("linear_0.weight").unwrap().as_slice::<f32>().unwrap().to_vec()
    };
    for levels in [0, 1] {
        assert_eq!(after(&[], levels), after(&[1], levels));
    }
}
