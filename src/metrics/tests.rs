//! Tests every metric over batches of different sizes against its value over all rows at once, which is computed in
//! another way.

use ndarray::{Array1, Array2};

use super::*;
use crate::lod::Lod;
use crate::operator::Registry;
use crate::program::Builder;

/// Returns the logits and labels of 23 rows for 4 classes; label 3 never occurs, and one row has a NaN logit.
fn rows() -> (Array2<f32>, Vec<i64>) {
    let number = |i: usize| ((i * 7919 + 13) % 101) as f32 / 10.0;
    let mut logits = Array2::from_shape_fn((23, 4), |(r, c)| number(4 * r + c));
    logits[[5, 2]] = f32::NAN;
    (logits, (0..23).map(|r| (r * r % 5 % 3) as i64).collect())
}

fn vars() -> (Var, Var) {
    let net = Builder::with_registry(Registry::empty());
    let logits = net.feed("logits", DType::F32, &[4], 1);
    (logits, net.feed_like("labels", DType::I64, &[], logits))
}

/// Feeds the rows in batches of these sequence lengths.
fn stream(
    metric: &mut RunningMetric<impl Metric>,
    batches: &[&[usize]],
    value: &dyn Fn(usize, usize) -> Vec<Variable>,
) {
    let mut at = 0;
    for lengths in batches {
        let rows: usize = lengths.iter().sum();
        let lod = Lod::from_lengths1(lengths).unwrap();
        let values: Vec<Variable> = value(at, at + rows)
            .into_iter()
            .map(|v| if v.shape().is_empty() { v } else { v.with_lod(Some(lod.clone())).unwrap() })
            .collect();
        metric.update(&values, lengths.len()).unwrap();
        at += rows;
    }
}

/// Three divisions of 23 rows into batches: the lengths of the sequences in each batch. Some sequences are empty, and
/// one batch is empty.
const CUTS: [&[&[usize]]; 3] = [&[&[23]], &[&[1, 0, 4], &[], &[0], &[17, 1]], &[&[20], &[2, 1]]];

fn check(metric: impl Metric + Clone, value: &dyn Fn(usize, usize) -> Vec<Variable>, expected: f64) {
    let new = || running(metric.clone());
    assert_eq!(new().value(), 0.0, "without a batch");
    for bounds in CUTS {
        let mut whole = new();
        stream(&mut whole, bounds, value);
        let got = whole.value();
        assert!((got - expected).abs() < 1e-9, "{} of {bounds:?}: {got}, expected {expected}", metric.name());
    }
    // Sums over some of the batches are merged with the sums over the others.
    let (mut first, mut rest) = (new(), new());
    stream(&mut first, &CUTS[1][..2], value);
    stream(&mut rest, &CUTS[1][2..], &|from, to| value(from + 5, to + 5));
    first.merge(rest.sums()).unwrap();
    assert!((first.value() - expected).abs() < 1e-9, "{} merged", metric.name());
}

fn running<M: Metric>(metric: M) -> RunningMetric<M> {
    RunningMetric::new(metric).unwrap()
}

fn guesses(logits: &Array2<f32>) -> Vec<Option<i64>> {
    let guess = |row: ndarray::ArrayView1<'_, f32>| {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let index = row.iter().position(|&x| x == most).map(|c| c as i64);
        index.filter(|_| !row.iter().any(|x| x.is_nan()))
    };
    logits.rows().into_iter().map(guess).collect()
}

#[test]
fn classification_is_that_of_all_rows_at_once() {
    let ((logits, labels), (x, y)) = (rows(), vars());
    let part = |from: usize, to: usize| {
        let piece = logits.slice(ndarray::s![from..to, ..]).to_owned();
        vec![Variable::dense(piece), Variable::dense(Array1::from(labels[from..to].to_vec()))]
    };
    let pairs: Vec<(i64, Option<i64>)> = labels.iter().copied().zip(guesses(&logits)).collect();
    assert!(pairs.iter().any(|p| p.1.is_none()) && pairs.iter().any(|p| p.1 == Some(3)));
    let share = |pairs: &[(i64, Option<i64>)]| {
        pairs.iter().filter(|p| Some(p.0) == p.1).count() as f64 / pairs.len() as f64
    };
    check(Accuracy::new(x, y), &part, share(&pairs));
    let counted: Vec<_> = pairs.iter().copied().filter(|p| p.0 != 1).collect();
    check(Accuracy::new(x, y).ignoring(1), &part, share(&counted));

    // Computes F1 from precision and recall, by the textbook definition.
    let f1 = |pairs: &[(i64, Option<i64>)], class: i64| {
        let hits = pairs.iter().filter(|p| p.0 == class && p.1 == Some(class)).count() as f64;
        let (update, as_) = (
            pairs.iter().filter(|p| p.0 == class).count() as f64,
            pairs.iter().filter(|p| p.1 == Some(class)).count() as f64,
        );
        let (recall, precision) = (hits / update.max(1.0), hits / as_.max(1.0));
        if hits > 0.0 { 2.0 * precision * recall / (precision + recall) } else { 0.0 }
    };
    for class in 0..4 {
        check(F1::new(x, y, 4, Average::Class(class)), &part, f1(&pairs, class as i64));
    }
    check(F1::new(x, y, 4, Average::Class(2)).ignoring(1), &part, f1(&counted, 2));
    check(F1::new(x, y, 4, Average::Macro), &part, (0..4).map(|c| f1(&pairs, c)).sum::<f64>() / 4.0);
    let (hits, guessed) = (share(&pairs) * 23.0, pairs.iter().filter(|p| p.1.is_some()).count() as f64);
    check(F1::new(x, y, 4, Average::Micro), &part, 2.0 * hits / (23.0 + guessed));
    // A class that neither occurs nor is guessed does not count in the mean.
    let mut f1 = running(F1::new(x, y, 4, Average::Macro));
    let ones = Variable::dense(Array2::from_shape_fn((2, 4), |(_, c)| if c == 1 { 1.0f32 } else { 0.0 }));
    f1.update(&[ones, Variable::dense(ndarray::array![1i64, 1])], 2).unwrap();
    assert_eq!(f1.value(), 1.0);
}

fn probabilities(logits: ndarray::ArrayView1<'_, f32>) -> Vec<f64> {
    let exps: Vec<f64> = logits.iter().map(|&x| f64::from(x).exp()).collect();
    exps.iter().map(|x| x / exps.iter().sum::<f64>()).collect()
}

#[test]
fn ranks_and_probabilities_are_those_of_all_rows_at_once() {
    let ((mut logits, labels), (x, y)) = (rows(), vars());
    logits[[5, 2]] = 1.25;
    logits[[7, 1]] = logits[[7, 0]]; // two equal logits
    let part = |from: usize, to: usize| {
        let piece = logits.slice(ndarray::s![from..to, ..]).to_owned();
        vec![Variable::dense(piece), Variable::dense(Array1::from(labels[from..to].to_vec()))]
    };
    for k in 0..5 {
        // Finds the hits by sorting; a stable sort keeps the earlier of two equal scores first.
        let hit = |row: usize| {
            let mut order: Vec<usize> = (0..4).collect();
            order.sort_by(|&a, &b| logits[[row, b]].total_cmp(&logits[[row, a]]));
            order[..k].contains(&(labels[row] as usize))
        };
        let hits = (0..23).filter(|&row| hit(row)).count() as f64;
        check(TopK::new(x, y, k), &part, hits / 23.0);
    }
    let calibration = CalibrationError::new(x, y).bins(5);
    let mut bins = [(0.0, 0.0, 0.0); 5];
    for (row, guess) in guesses(&logits).into_iter().enumerate() {
        let sure = probabilities(logits.row(row)).into_iter().fold(0.0, f64::max);
        let bin = &mut bins[((sure * 5.0) as usize).min(4)];
        *bin = (bin.0 + 1.0, bin.1 + sure, bin.2 + f64::from(u8::from(guess == Some(labels[row]))));
    }
    let off = |bin: &(f64, f64, f64)| {
        if bin.0 > 0.0 { bin.0 / 23.0 * (bin.2 / bin.0 - bin.1 / bin.0).abs() } else { 0.0 }
    };
    check(calibration.clone(), &part, bins.iter().map(off).sum());
    let mut calibration = running(calibration);
    calibration.update(&part(0, 23), 3).unwrap();
    let found = calibration.reliability();
    assert_eq!(found.iter().map(|bin| bin.rows).sum::<u64>(), 23);
    assert!(found.windows(2).all(|two| two[0].confidence < two[1].confidence));
    assert!(
        bins.iter()
            .filter(|bin| bin.0 > 0.0)
            .zip(&found)
            .all(|(bin, f)| (bin.2 / bin.0 - f.accuracy).abs() < 1e-12)
    );

    let matrix = ConfusionMatrix::of(x, y, ["a", "b", "c", "d"].map(str::to_owned).to_vec());
    check(matrix.clone(), &part, value_over(TopK::new(x, y, 1), &part(0, 23)));
    let mut matrix = running(matrix);
    matrix.update(&part(0, 23), 3).unwrap();
    let guesses = guesses(&logits);
    for (label, guess) in (0..4).flat_map(|label| (0..4).map(move |guess| (label, guess))) {
        let both = |row: &usize| labels[*row] == label as i64 && guesses[*row] == Some(guess as i64);
        assert_eq!(matrix.count(label, guess), (0..23).filter(both).count() as u64, "{label} as {guess}");
    }
    assert_eq!((matrix.count(4, 0), matrix.count(0, 4)), (0, 0));
    let line = |value: f64| format!("{:.2}", 100.0 * value);
    let table = matrix.table().unwrap();
    let of_b: Vec<&str> = table.lines().nth(2).unwrap().split_whitespace().collect();
    let [precision, recall, f1] = [
        line(value_over(Precision::new(x, y, 4, Average::Class(1)), &part(0, 23))),
        line(value_over(Recall::new(x, y, 4, Average::Class(1)), &part(0, 23))),
        line(value_over(F1::new(x, y, 4, Average::Class(1)), &part(0, 23))),
    ];
    assert_eq!((of_b[0], &of_b[5..]), ("b", &[&*precision, &recall, &f1][..]), "{table}");
}

fn value_over(metric: impl Metric, values: &[Variable]) -> f64 {
    let mut metric = running(metric);
    metric.update(values, 1).unwrap();
    metric.value()
}

#[test]
fn the_area_under_the_curve_is_the_share_of_pairs_in_order() {
    let (x, y) = vars();
    // The scores of two classes that overlap, from -6 to 6.5; many scores are equal.
    let rows: Vec<(f32, i64)> = (0..400)
        .map(|i| {
            ((i * 37 % 97) as f32 / 8.0 - 6.0 + (i % 3) as f32 / 4.0, i64::from(i * 37 % 97 + i % 50 > 70))
        })
        .collect();
    let mut pairs = (0.0, 0.0);
    for (a, _) in rows.iter().filter(|row| row.1 == 1) {
        for (b, _) in rows.iter().filter(|row| row.1 == 0) {
            pairs = (
                pairs.0
                    + if a > b {
                        1.0
                    } else if a == b {
                        0.5
                    } else {
                        0.0
                    },
                pairs.1 + 1.0,
            );
        }
    }
    let logits = Array2::from_shape_fn((400, 2), |(row, class)| if class == 1 { rows[row].0 } else { 0.0 });
    let values = |from: usize, to: usize| {
        let labels: Array1<i64> = rows[from..to].iter().map(|row| row.1).collect();
        [Variable::dense(logits.slice(ndarray::s![from..to, ..]).to_owned()), Variable::dense(labels)]
    };
    let all = value_over(RocAuc::new(x, y, 1), &values(0, 400));
    assert!((all - pairs.0 / pairs.1).abs() < 1e-3, "{all} of {pairs:?}");
    assert!((0.6..0.99).contains(&all));
    // By symmetry, the other class has the same AUC. Merging the sums over two parts of the rows gives the AUC of all
    // rows.
    assert!((value_over(RocAuc::new(x, y, 0), &values(0, 400)) - all).abs() < 1e-3);
    let [mut auc, mut other] = [(); 2].map(|()| running(RocAuc::new(x, y, 1)));
    other.update(&values(150, 400), 1).unwrap();
    auc.update(&values(0, 150), 1).unwrap();
    auc.merge(other.sums()).unwrap();
    assert_eq!(auc.value(), all);
    assert_eq!(value_over(RocAuc::new(x, y, 1), &values(0, 0)), 0.5);
    // Infinite scores are the largest; NaN scores are refused, and nothing is counted.
    let sure = |score: f32, label: i64| {
        [Variable::dense(ndarray::array![[0.0, score]]), Variable::dense(ndarray::array![label])]
    };
    let mut auc = running(RocAuc::new(x, y, 1));
    auc.update(&sure(f32::INFINITY, 1), 1).unwrap();
    auc.update(&sure(f32::NEG_INFINITY, 0), 1).unwrap();
    assert_eq!(auc.value(), 1.0);
    let error = auc.update(&sure(f32::NAN, 1), 1).unwrap_err().to_string();
    assert!(error.contains("scores that are numbers") && auc.sums().iter().sum::<f64>() == 2.0, "{error}");
    // With several classes, the score is infinite if the class or another class is certain, or if all other classes are
    // impossible.
    let value_of = |scores: [f32; 3]| {
        [Variable::dense(ndarray::arr2(&[scores])), Variable::dense(ndarray::array![1i64])]
    };
    let (low, high) = (f32::NEG_INFINITY, f32::INFINITY);
    for (scores, bin) in [
        ([low, 0.0, low], RocAuc::BINS - 1),
        ([low, high, low], RocAuc::BINS - 1),
        ([0.0, high, low], RocAuc::BINS - 1),
        ([high, 0.0, 1.0], 0),
        ([high, 0.0, high], 0),
        ([high, low, low], 0),
        ([0.0, low, low], 0),
        ([0.0, 0.0, low], RocAuc::BINS / 2),
    ] {
        let mut auc = running(RocAuc::new(x, y, 1));
        auc.update(&value_of(scores), 1).unwrap();
        assert_eq!(auc.sums().iter().position(|&rows| rows > 0.0), Some(bin), "{scores:?}");
    }
    for scores in [[low; 3], [high; 3], [high, high, 0.0], [high, 0.0, f32::NAN], [low, f32::NAN, low]] {
        let error = running(RocAuc::new(x, y, 1)).update(&value_of(scores), 1).unwrap_err().to_string();
        assert!(error.contains("scores that are numbers"), "{error}");
    }
    let error = running(RocAuc::new(x, y, 2)).update(&sure(1.0, 1), 1).unwrap_err().to_string();
    assert!(error.contains("one class of two or more, got class 2 of 2"), "{error}");
}

#[test]
fn errors_of_numbers_are_those_of_all_rows_at_once() {
    let (x, y) = vars();
    let found: Vec<f32> = (0..46).map(|i| (i * 7 % 11) as f32 / 4.0).collect();
    let wanted: Vec<f32> = (0..46).map(|i| (i * 5 % 13) as f32 / 4.0).collect();
    let part = |from: usize, to: usize| {
        let error_of =
            |all: &[f32]| Array2::from_shape_vec((to - from, 2), all[2 * from..2 * to].to_vec()).unwrap();
        vec![Variable::dense(error_of(&found)), Variable::dense(error_of(&wanted))]
    };
    let mean = |error_of: fn(f64) -> f64| {
        found.iter().zip(&wanted).map(|(a, b)| error_of(f64::from(a - b))).sum::<f64>() / 46.0
    };
    check(MeanError::absolute(x, y), &part, mean(f64::abs));
    check(MeanError::squared(x, y), &part, mean(|d| d * d));
    check(MeanError::root_squared(x, y), &part, mean(|d| d * d).sqrt());
    let mut error = running(MeanError::absolute(x, y));
    let one = |rows: usize| Variable::dense(Array1::<f32>::zeros(rows));
    let text = error.update(&[one(2), one(3)], 1).unwrap_err().to_string();
    assert!(text.contains("numbers of the same shape, got shapes [2] and [3]"), "{text}");
    let text = error.update(&[one(2), Variable::dense(Array1::<i64>::zeros(2))], 1).unwrap_err().to_string();
    assert!(text.contains("floats, got i64") && error.sums() == [0.0, 0.0], "{text}");
}

#[test]
fn metrics_of_another_kind_are_not_merged() {
    let (x, y) = vars();
    let mut accuracy = running(Accuracy::new(x, y));
    accuracy.merge(&[1.0, 2.0]).unwrap();
    let error = accuracy.merge(running(F1::new(x, y, 4, Average::Micro)).sums()).unwrap_err().to_string();
    assert!(error.contains("metric `accuracy`, merged: expected 2 sums, got 12"), "{error}");
    assert_eq!(accuracy.value(), 0.5);
}

#[test]
fn means_of_losses_are_those_of_all_rows_at_once() {
    let (x, y) = vars();
    let losses: Vec<f32> = (0..23).map(|r| (r % 7) as f32 / 8.0).collect();
    let shares: Vec<f32> = (0..23).map(|r| (r % 3) as f32).collect();
    let dense = |from: usize, to: usize| Variable::dense(Array1::from(losses[from..to].to_vec()));
    let both = |from: usize, to: usize| {
        vec![dense(from, to), Variable::dense(Array1::from(shares[from..to].to_vec()))]
    };
    let mean = f64::from(losses.iter().sum::<f32>()) / 23.0;
    check(Loss::new(x), &|from, to| vec![dense(from, to)], mean);
    check(Loss::bits_per_character(x), &|from, to| vec![dense(from, to)], mean / std::f64::consts::LN_2);
    check(Loss::perplexity(x), &|from, to| vec![dense(from, to)], mean.exp());
    let weighted = f64::from(losses.iter().sum::<f32>()) / f64::from(shares.iter().sum::<f32>());
    check(Loss::new(x).weighted(y), &both, weighted);
}

#[test]
fn a_scalar_loss_counts_by_a_scalar_share() {
    let (x, y) = vars();
    let mut loss = running(Loss::new(x).weighted(y).named("other"));
    let scalars = |x: f32, y: f32| [x, y].map(|x| Variable::dense(ndarray::arr0(x)));
    loss.update(&scalars(1.0, 3.0), 3).unwrap();
    loss.update(&scalars(f32::NAN, 0.0), 1).unwrap();
    loss.update(&scalars(2.0, 1.0), 5).unwrap();
    assert_eq!((loss.value(), loss.metric.name()), (1.25, "other"));
    let error = loss.update(&scalars(2.0, -1.0), 5).unwrap_err().to_string();
    assert!(error.contains("weight of a batch: expected a finite number of at least 0, got -1"), "{error}");
    assert_eq!(loss.value(), 1.25);
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_the_sums() {
    let (x, y) = vars();
    let refuse = |metric: &dyn Metric, values: &[Variable], expected: &str| {
        let mut sums = vec![1.0; metric.sums()];
        let error = metric.update(&mut sums, values, 1).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(sums, vec![1.0; metric.sums()]);
    };
    let logits = || Variable::dense(Array2::<f32>::zeros((2, 4)));
    let labels = |a: i64, b: i64| Variable::dense(ndarray::array![a, b]);
    let accuracy = Accuracy::new(x, y);
    refuse(&accuracy, &[logits()], "metric `accuracy`: expected logits and labels, got 1 values");
    let three = Variable::dense(ndarray::array![0i64, 0, 0]);
    refuse(&accuracy, &[logits(), three], "logits [3, classes], as many rows as labels, got [2, 4]");
    let floats = Variable::dense(ndarray::array![0.0f32, 1.0]);
    refuse(&accuracy, &[logits(), floats], "labels of whole numbers, got f32");
    refuse(&F1::new(x, y, 5, Average::Micro), &[logits(), labels(0, 1)], "logits of 5 classes, got 4");
    let f1 = F1::new(x, y, 4, Average::Class(4));
    refuse(&f1, &[logits(), labels(0, 1)], "a class below 4, got 4");
    refuse(
        &mut F1::new(x, y, 4, Average::Macro),
        &[logits(), labels(0, -1)],
        "labels of 0 to below 4, got -1",
    );
    refuse(&Loss::new(x), &[logits()], "one value for each row, got shape [2, 4]");
    let whole = Variable::dense(Array2::<i64>::zeros((2, 4)));
    refuse(
        &accuracy,
        &[whole.clone(), labels(0, 1)],
        "metric `accuracy`: expected logits that are floats, got i64",
    );
    let scalar = Variable::dense(ndarray::arr0(1i64));
    refuse(&Loss::new(x), &[scalar], "metric `loss`: expected floats, got i64");
    refuse(
        &mut ExactMatch::new(x, y),
        &[whole.clone(), whole],
        "metric `exact match`: expected one value for each row",
    );
    // Each metric that reads labels refuses a label below and a label above the range of classes.
    type Of = fn(Var, Var) -> Box<dyn Metric>;
    let kinds: [Of; 5] = [
        |x, y| Box::new(Accuracy::new(x, y)),
        |x, y| Box::new(TopK::new(x, y, 2)),
        |x, y| Box::new(CalibrationError::new(x, y)),
        |x, y| Box::new(RocAuc::new(x, y, 1)),
        |x, y| Box::new(Recall::new(x, y, 4, Average::Macro)),
    ];
    for (label, kind_of) in
        kinds.iter().flat_map(|kind_of| [(-1, kind_of), (4, kind_of), (i64::MIN, kind_of)])
    {
        let expected = format!("of row 1: expected labels of 0 to below 4, got {label}");
        let metric = kind_of(x, y);
        refuse(&*metric, &[logits(), labels(0, label)], &expected);
        refuse(&*metric, &[logits(), labels(0, label)], metric.name());
    }
    let mut left_out = running(Accuracy::new(x, y).ignoring(-1));
    left_out.update(&[logits(), labels(0, -1)], 1).unwrap();
    assert_eq!(left_out.sums(), [1.0, 1.0]);
    let two = Variable::dense(ndarray::array![1.0f32, 2.0]);
    let one = Variable::dense(ndarray::array![1.0f32]);
    refuse(&Loss::new(x).weighted(y), &[two, one], "one share for each loss, got [[2], [1]]");
}

#[test]
fn rows_of_other_sequences_are_refused_by_all_that_compare_rows() {
    let (x, y) = vars();
    let lod = |lengths: &[usize]| Lod::from_lengths1(lengths).unwrap();
    let with = |value: Variable, lengths: &[usize]| value.with_lod(Some(lod(lengths))).unwrap();
    let logits = || Variable::dense(Array2::<f32>::zeros((3, 2)));
    let labels = || Variable::dense(ndarray::array![0i64, 1, 0]);
    let floats = || Variable::dense(ndarray::array![0.0f32, 1.0, 0.5]);
    let names = || ["a", "b"].map(str::to_owned).to_vec();
    let classified: [Box<dyn Metric>; 8] = [
        Box::new(Accuracy::new(x, y)),
        Box::new(TopK::new(x, y, 1)),
        Box::new(Precision::new(x, y, 2, Average::Macro)),
        Box::new(Recall::new(x, y, 2, Average::Macro)),
        Box::new(F1::new(x, y, 2, Average::Macro)),
        Box::new(ConfusionMatrix::of(x, y, names())),
        Box::new(RocAuc::new(x, y, 1)),
        Box::new(CalibrationError::new(x, y)),
    ];
    let of_numbers: [Box<dyn Metric>; 2] =
        [Box::new(MeanError::absolute(x, y)), Box::new(Loss::new(x).weighted(y))];
    let all = classified.into_iter().map(|metric| (metric, [logits(), labels()]));
    for (metric, [a, b]) in all.chain(of_numbers.map(|metric| (metric, [floats(), floats()]))) {
        let other = [with(a.clone(), &[1, 2]), with(b.clone(), &[2, 1])];
        let mut sums = vec![0.0; metric.sums()];
        let error = metric.update(&mut sums, &other, 2).unwrap_err().to_string();
        let expected = format!(
            "metric `{}`: expected values in the same sequences, got LoD [[1, 2]] and [[2, 1]]",
            metric.name()
        );
        assert!(error.contains(&expected), "{error}");
        assert!(sums.iter().all(|&sum| sum == 0.0), "{}", metric.name());
        // Rows without a LoD are compared with any sequences.
        let same = [with(a.clone(), &[1, 2]), with(b.clone(), &[1, 2])];
        for values in [same, [with(a.clone(), &[1, 2]), b.clone()], [a, with(b, &[1, 2])]] {
            metric.update(&mut sums, &values, 2).unwrap();
        }
    }
}

#[test]
fn logits_without_a_softmax_have_no_calibration() {
    let (x, y) = vars();
    let score = |scores: [f32; 2]| {
        [Variable::dense(ndarray::arr2(&[[0.0, 0.0], scores])), Variable::dense(ndarray::array![0i64, 1])]
    };
    let (low, high) = (f32::NEG_INFINITY, f32::INFINITY);
    let mut error = running(CalibrationError::new(x, y));
    for scores in [[high, 0.0], [high, high], [low, low], [0.0, f32::NAN]] {
        let refused = error.update(&score(scores), 1).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("logits that are numbers, the largest of them finite"), "{text}");
        assert!(text.contains("row 1") && error.sums().iter().all(|&sum| sum == 0.0), "{text}");
    }
    // If a class is impossible, the softmax is computed over the other classes.
    error.update(&score([low, 0.0]), 1).unwrap();
    assert_eq!(error.sums().iter().sum::<f64>(), 2.0 + 1.5 + 2.0);
}

#[test]
fn metrics_of_more_sums_than_there_can_be_are_refused() {
    let (x, y) = vars();
    let names = (0..20_000).map(|class| class.to_string()).collect();
    let refused: [(Box<dyn Metric>, &str); 4] = [
        (Box::new(CalibrationError::new(x, y).bins(1 << 40)), "`calibration error`"),
        (Box::new(CalibrationError::new(x, y).bins(usize::MAX)), "`calibration error`"),
        (Box::new(Precision::new(x, y, usize::MAX, Average::Macro)), "`macro precision`"),
        (Box::new(ConfusionMatrix::of(x, y, names)), "`accuracy by class`"),
    ];
    for (metric, name) in refused {
        let error = zeros(&*metric).unwrap_err().to_string();
        let expected = format!("metric {name}: expected at most 268435456 sums, got {}", metric.sums());
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn only_finite_values_are_better() {
    assert!(Better::Lower.than(1.0, 2.0) && Better::Higher.than(2.0, 1.0));
    assert!(!Better::Lower.than(1.0, 1.0) && !Better::Higher.than(1.0, 1.0));
    assert!(!Better::Lower.than(f64::NAN, 2.0) && !Better::Higher.than(f64::INFINITY, 1.0));
}

#[test]
fn an_error_rate_without_reference_tokens_is_undefined() {
    let net = Builder::with_registry(Registry::empty());
    let [found, reference] = ["found", "reference"].map(|name| net.feed(name, DType::I64, &[], 1));
    let mut rate = running(ErrorRate::new(found, reference));
    let sequences = |ids: [Vec<i64>; 2]| Variable::from_sequences(&ids).unwrap();
    rate.update(&[sequences([vec![1, 2], vec![3]]), sequences([vec![], vec![]])], 2).unwrap();
    assert!(rate.value().is_nan());
    assert_eq!(rate.table().as_deref(), Some("3 insertions, 0 tokens in the references\n"));
    rate.update(&[sequences([vec![], vec![4]]), sequences([vec![], vec![4, 5]])], 2).unwrap();
    assert_eq!((rate.value(), rate.table()), (2.0, None));
}

#[test]
fn thresholds_of_labels_give_the_value() {
    let (p, y) = vars();
    let probabilities: Array2<f32> =
        ndarray::array![[0.9, 0.4, 0.1, 0.2], [0.3, 0.2, 0.6, 0.1], [0.2, 0.1, 0.7, f32::NAN]];
    let targets: Array2<f32> =
        ndarray::array![[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]];
    let values = [Variable::dense(probabilities.clone()), Variable::dense(targets.clone())];
    for (rule, count) in [("one", 1), ("per-label", 4), ("0.35", 1)] {
        let mut metric = running(LabelSetF1::of_probabilities(p, y, 4, rule.parse().unwrap()));
        let chosen = if rule == "0.35" { 0.35 } else { 0.5 };
        assert_eq!((metric.value(), metric.thresholds()), (0.0, vec![chosen; count]));
        metric.update(&values, 3).unwrap();
        let thresholds = metric.thresholds();
        assert_eq!(thresholds.len(), count, "{rule}");
        let score =
            |((_, label), p): &((usize, usize), &f32)| **p >= thresholds[label.min(&(count - 1)).to_owned()];
        let guesses: Vec<_> = probabilities.indexed_iter().filter(score).map(|(at, _)| targets[at]).collect();
        let hits = guesses.iter().sum::<f32>();
        assert_eq!(metric.value(), f64::from(2.0 * hits) / (5.0 + guesses.len() as f64), "{rule}");
    }
    // Without a true label whose probability is a number, every threshold has F1 0, and 0.5 is chosen.
    let mut metric = running(LabelSetF1::of_probabilities(p, y, 4, LabelThreshold::PerLabel));
    metric.update(&values, 3).unwrap();
    assert_eq!(metric.thresholds()[3], 0.5);
    assert!(
        ["0", "1", "1e-60", "0.99999999999", "nan", "many"]
            .iter()
            .all(|x| x.parse::<LabelThreshold>().is_err())
    );
    let narrow = Variable::dense(Array2::<f32>::zeros((3, 2)));
    let error = metric.update(&[narrow.clone(), narrow], 3).unwrap_err().to_string();
    assert!(error.contains("expected probabilities of 4 labels, got 2"), "{error}");
}
