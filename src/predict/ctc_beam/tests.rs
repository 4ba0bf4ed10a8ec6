//! Tests the search against an enumeration of all paths, and against a simple search with the same beam width.

use std::collections::BTreeMap;

use ndarray::{Array2, array};

use super::*;
use crate::kernels::random::uniform01;
use crate::lod::Lod;

/// Returns the random logits of one sequence, between -4 and 4.
fn random(seed: u64, frames: usize, classes: usize) -> Array2<f64> {
    Array2::from_shape_fn((frames, classes), |(i, j)| {
        8.0 * uniform01::<f64>(seed, [i as u32, j as u32, 0, 0]) - 4.0
    })
}

fn ragged(logits: Array2<f64>, lengths: &[usize]) -> Variable {
    Variable::sequences(logits, Lod::from_lengths1(lengths).unwrap()).unwrap()
}

fn decode_one(beam: &CtcBeam, logits: &Array2<f64>) -> Vec<CtcLabels> {
    let frames = logits.nrows();
    let mut all = beam.decode(&ragged(logits.clone(), &[frames])).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn labelling(path: &[usize], blank: usize) -> Vec<i64> {
    let mut path = path.to_vec();
    path.dedup();
    path.into_iter().filter(|class| *class != blank).map(|class| class as i64).collect()
}

/// Returns the probability of each possible labelling: the sum of the probabilities of its paths.
fn by_definition(logits: &Array2<f64>, blank: usize) -> BTreeMap<Vec<i64>, f64> {
    let (frames, classes) = logits.dim();
    let weights = logits.mapv(f64::exp);
    let mut found = BTreeMap::new();
    for number in 0..classes.pow(frames as u32) {
        let path: Vec<usize> = (0..frames as u32).map(|i| number / classes.pow(i) % classes).collect();
        let share = |(i, &class): (usize, &usize)| weights[[i, class]] / weights.row(i).sum();
        let p: f64 = path.iter().enumerate().map(share).product();
        if p > 0.0 {
            *found.entry(labelling(&path, blank)).or_insert(0.0) += p;
        }
    }
    found
}

/// A language model that depends on the prefix's length and last label, and forbids one pair.
fn model(prefix: &[i64], next: i64) -> f64 {
    match prefix.last() {
        Some(&last) if last == 1 && next == 2 => NEVER,
        last => {
            -0.3 * (next as f64 + 1.0) / (prefix.len() as f64 + 1.0) + 0.1 * last.copied().unwrap_or(7) as f64
        }
    }
}

fn language_score(labels: &[i64]) -> f64 {
    (0..labels.len()).map(|i| model(&labels[..i], labels[i])).sum()
}

/// Checks that the labellings and their order are the same, and that the scores are nearly the same.
fn same(found: &[CtcLabels], mut expected: Vec<(Vec<i64>, f64)>) {
    expected.sort_by(|a, b| b.1.total_cmp(&a.1));
    assert_eq!(found.len(), expected.len());
    for (found, (labels, score)) in found.iter().zip(&expected) {
        assert_eq!(found.labels, *labels);
        assert!((found.score - score).abs() < 1e-9, "{found:?}, not {score}");
    }
}

#[test]
fn all_labellings_by_the_definition() {
    for (seed, [frames, classes, blank]) in
        [[1, 1, 0], [3, 2, 0], [6, 2, 1], [4, 3, 0], [6, 3, 1], [5, 4, 3], [5, 4, 0], [3, 5, 2]]
            .iter()
            .enumerate()
    {
        let mut logits = random(seed as u64, *frames, *classes);
        if seed % 2 == 0 && *classes > 2 {
            logits[[1, 2]] = NEVER; // no path takes class 2, which is the blank in some cases
        }
        let defined = by_definition(&logits, *blank);
        let all = CtcBeam::new(usize::MAX).blank(*blank).n_best(usize::MAX);
        let found = decode_one(&all, &logits);
        same(&found, defined.iter().map(|(labels, p)| (labels.clone(), p.ln())).collect());
        let sum: f64 = found.iter().map(|one| one.score.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-9);
        // A beam as wide as the number of labellings is enough.
        let enough = CtcBeam { beams: defined.len(), ..all.clone() };
        assert_eq!(decode_one(&enough, &logits), found);

        let scored = defined.iter().map(|(labels, p)| {
            (labels.clone(), p.ln() + 0.7 * language_score(labels) + 0.2 * labels.len() as f64)
        });
        let scored: Vec<_> = scored.filter(|(_, score)| *score > NEVER).collect();
        same(&decode_one(&all.language_model(0.7, model).bonus(0.2), &logits), scored);
    }
}

#[test]
fn labels_that_repeat() {
    // The path 1 1 blank 1 has the labelling [1, 1]: only the blank separates two equal labels.
    let logits = array![[0.0, 9.0], [0.0, 9.0], [9.0, 0.0], [0.0, 9.0]];
    let found = decode_one(&CtcBeam::new(4).n_best(3), &logits);
    assert_eq!(found[0].labels, [1, 1]);
    same(
        &decode_one(&CtcBeam::new(9).n_best(9), &logits),
        by_definition(&logits, 0).into_iter().map(|(labels, p)| (labels, p.ln())).collect(),
    );
    // If no frame can be a blank, no label repeats.
    let logits = array![[NEVER, 0.0], [NEVER, 0.0], [NEVER, 0.0]];
    let found = decode_one(&CtcBeam::new(9).n_best(9), &logits);
    assert_eq!(found, [CtcLabels { labels: vec![1], score: 0.0 }]);
}

/// Runs the search of the paper with whole prefixes instead of a tree; keeps `beams` prefixes after each frame.
fn plain(logits: &Array2<f64>, beams: usize, weight: f64, bonus: f64) -> Vec<(Vec<i64>, f64)> {
    let extra = |labels: &[i64]| {
        bonus * labels.len() as f64 + if weight == 0.0 { 0.0 } else { weight * language_score(labels) }
    };
    let mut kept = BTreeMap::from([(vec![], [1.0, 0.0])]);
    for frame in logits.rows() {
        let sum: f64 = frame.mapv(f64::exp).sum();
        let mut next = BTreeMap::<Vec<i64>, [f64; 2]>::new();
        for (labels, [blank, label]) in &kept {
            for (class, logit) in frame.iter().enumerate() {
                let (p, class) = (logit.exp() / sum, class as i64);
                let longer = [&labels[..], &[class]].concat();
                if class == 0 {
                    next.entry(labels.clone()).or_default()[0] += p * (blank + label);
                } else if labels.last() == Some(&class) {
                    next.entry(labels.clone()).or_default()[1] += p * label;
                    next.entry(longer).or_default()[1] += p * blank;
                } else {
                    next.entry(longer).or_default()[1] += p * (blank + label);
                }
            }
        }
        let score = |(labels, [blank, label]): (&Vec<i64>, &[f64; 2])| (blank + label).ln() + extra(labels);
        let scored = next.iter().map(|one| (one.0.clone(), score(one))).filter(|(_, score)| *score > NEVER);
        let mut scored: Vec<(Vec<i64>, f64)> = scored.collect();
        scored.sort_by(|a, b| b.1.total_cmp(&a.1));
        scored.truncate(beams);
        kept = scored.into_iter().map(|(labels, _)| (labels.clone(), next[&labels])).collect();
    }
    let score = |(labels, [blank, label]): (Vec<i64>, [f64; 2])| {
        let score = (blank + label).ln() + extra(&labels);
        (labels, score)
    };
    kept.into_iter().map(score).collect()
}

/// Tests narrow beams: the search drops a prefix, keeps longer prefixes that begin with it, and later keeps it again.
#[test]
fn few_beams_keep_what_the_plain_search_keeps() {
    for seed in 0..40 {
        let (beams, classes) = (1 + seed as usize % 7, 2 + seed as usize % 4);
        let logits = random(100 + seed, 40, classes).mapv(|logit| logit / (1.0 + seed as f64 % 3.0));
        let beam = CtcBeam::new(beams).n_best(beams);
        same(&decode_one(&beam, &logits), plain(&logits, beams, 0.0, 0.0));
        let found = decode_one(&beam.language_model(0.4, model).bonus(-0.1), &logits);
        same(&found, plain(&logits, beams, 0.4, -0.1));
        // The best labelling comes first, and a smaller `n_best` returns the beginning of the list.
        assert!(found.windows(2).all(|pair| pair[0].score >= pair[1].score));
        let fewer = CtcBeam::new(beams).n_best(2).language_model(0.4, model).bonus(-0.1);
        assert_eq!(decode_one(&fewer, &logits), found[..beams.min(2)]);
    }
}

#[test]
fn one_path_that_dominates_is_the_greedy_one() {
    let mut logits = random(5, 60, 6);
    let path: Vec<usize> = (0..60).map(|i| (i * i / 7) % 6).collect();
    path.iter().enumerate().for_each(|(i, class)| logits[[i, *class]] += 30.0);
    for beams in [1, 2, 16] {
        assert_eq!(decode_one(&CtcBeam::new(beams), &logits)[0].labels, labelling(&path, 0));
    }
}

#[test]
fn of_equal_scores_the_smaller_labels_come_first() {
    let labels = |beams: usize, frames: usize| -> Vec<Vec<i64>> {
        let found = decode_one(&CtcBeam::new(beams).n_best(beams), &Array2::zeros((frames, 3)));
        found.into_iter().map(|one| one.labels).collect()
    };
    assert_eq!(labels(9, 1), [vec![], vec![1], vec![2]]);
    assert_eq!(labels(2, 1), [vec![], vec![1]]);
    // Three paths have the labelling [1], and three have [2]. One path each has [], [1, 2] and [2, 1].
    assert_eq!(labels(9, 2), [vec![1], vec![2], vec![], vec![1, 2], vec![2, 1]]);
    assert_eq!(labels(4, 2), [vec![1], vec![2], vec![], vec![1, 2]]);
}

#[test]
fn prefixes_are_in_order_and_freed() {
    let mut prefixes = Prefixes::new();
    let a = prefixes.child(ROOT, 1);
    let ab = prefixes.child(a, 2);
    let c = prefixes.child(ROOT, 2);
    assert_eq!(prefixes.child(a, 2), ab);
    let end = |node| prefixes.end(node, None);
    let in_order =
        [end(ROOT), end(a), Some((a, 1)), end(ab), Some((ab, 0)), Some((a, 3)), end(c), Some((c, 0))];
    for (i, x) in in_order.iter().enumerate() {
        for (j, y) in in_order.iter().enumerate() {
            assert_eq!(prefixes.order(*x, *y), i.cmp(&j), "{x:?} and {y:?}");
        }
    }
    prefixes.keep(a, 0);
    prefixes.keep(ab, 1);
    prefixes.keep(c, 2);
    prefixes.release(a); // `ab` still refers to it
    assert_eq!((prefixes.free.len(), prefixes.child(ROOT, 1)), (0, a));
    prefixes.release(ab);
    assert_eq!((prefixes.free.len(), prefixes.children.len()), (2, 1));
    assert!([a, ab].contains(&prefixes.child(c, 5)));
    assert_eq!(prefixes.nodes.len(), 4);
}

#[test]
fn the_last_of_two_levels_on_any_number_of_threads() {
    let lengths = [2, 0, 30, 7, 1, 12];
    let logits = random(9, lengths.iter().sum(), 7);
    let lod = Lod::from_lengths(&[vec![3, 0, 3], lengths.to_vec()]).unwrap();
    let nested = Variable::sequences(logits.clone(), lod).unwrap();
    let beam = CtcBeam::new(5).blank(2).n_best(4).language_model(0.5, model);
    let [one, three] = [1, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| beam.decode(&nested)).unwrap()
    });
    assert_eq!(one, three);
    assert_eq!(one, beam.decode(&ragged(logits.clone(), &lengths)).unwrap());
    assert_eq!(one[1], [CtcLabels { labels: vec![], score: 0.0 }]);
    // Each sequence alone has the same result. Logits in f32 have the same results as the same numbers in f64.
    let mut start = 0;
    for (length, found) in lengths.iter().zip(&one) {
        let alone = logits.slice(ndarray::s![start..start + length, ..]).to_owned();
        assert_eq!(decode_one(&beam, &alone), *found);
        start += length;
    }
    let single = logits.mapv(|logit| logit as f32);
    let double = ragged(single.mapv(f64::from), &lengths);
    let single = Variable::sequences(single, Lod::from_lengths1(&lengths).unwrap()).unwrap();
    assert_eq!(beam.decode(&single).unwrap(), beam.decode(&double).unwrap());
    assert!(beam.decode(&ragged(Array2::zeros((0, 7)), &[])).unwrap().is_empty());
}

#[test]
fn large_logits_and_models_that_forbid() {
    let logits = array![[1e300, f64::MIN, 1e300], [f64::MAX, f64::MIN, 0.0]];
    let found = decode_one(&CtcBeam::new(9).n_best(9), &logits);
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|one| (one.score - 0.5f64.ln()).abs() < 1e-12));
    assert_eq!((&found[0].labels[..], &found[1].labels[..]), (&[][..], &[2][..]));
    let none = CtcBeam::new(3).language_model(0.0, |_, _| NEVER);
    assert!(decode_one(&none, &logits)[0].labels.is_empty());
    assert!(decode_one(&none, &array![[NEVER, 0.0], [0.0, 0.0]]).is_empty());
}

#[test]
fn what_does_not_fit() {
    let text = |beam: CtcBeam, logits: &Variable| beam.decode(logits).unwrap_err().to_string();
    let beam = || CtcBeam::new(2);
    let fine = ragged(array![[0.0, 0.5], [1.0, 0.0]], &[1, 1]);
    let check = |message: String, expected: &str| assert!(message.starts_with(expected), "{message}");
    check(text(CtcBeam::new(0), &fine), "beams: expected at least 1, got 0");
    check(text(beam().n_best(0), &fine), "n_best: expected at least 1, got 0");
    check(text(beam().blank(2), &fine), "blank: expected a class below 2, got 2");
    check(text(beam().bonus(f64::NAN), &fine), "bonus for each label: expected a finite number, got NaN");
    let wrong = beam().language_model(f64::INFINITY, |_, _| 0.0);
    check(text(wrong, &fine), "weight of the language model: expected a finite number, got inf");
    let none = fine.clone().with_lod(None).unwrap();
    check(
        text(beam(), &none),
        "LoD of the logits of CTC: expected a LoD that says which frames form a sequence, got none",
    );
    let flat = Variable::from_sequences(&[vec![1.0f32]]).unwrap();
    check(text(beam(), &flat), "shape of the logits of CTC: expected [frames, classes], got [1]");
    let whole = Variable::from_sequences(&[vec![1i64]]).unwrap();
    check(text(beam(), &whole), "dtype of the logits of CTC: expected f32 or f64, got i64");
    check(text(beam(), &ragged(Array2::zeros((0, 0)), &[0])), "blank: expected a class below 0");
    let sparse = fine.storage().clone().convert(crate::tensor::StorageKind::Csr).unwrap();
    check(
        text(beam(), &Variable::new(sparse, fine.lod().cloned()).unwrap()),
        "storage: expected dense, got csr",
    );

    let with = |numbers: [f64; 2], last: f64| {
        ragged(array![[0.0, 0.0], [0.0, 0.0], numbers, [0.0, last]], &[2, 1, 1])
    };
    let row = "logits of CTC of row 2: expected numbers below infinity, got";
    check(text(beam(), &with([0.0, f64::NAN], f64::NAN)), &format!("{row} NaN for class 1"));
    check(text(beam(), &with([f64::INFINITY, 0.0], 0.0)), &format!("{row} inf for class 0"));
    let message = "logits of CTC of row 2: expected a class above negative infinity, got none";
    check(text(beam(), &with([NEVER, NEVER], 0.0)), message);
    let error = beam().decode(&with([f64::NAN, 0.0], 0.0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFinite);
    for wrong in [f64::NAN, f64::INFINITY] {
        let model = beam().language_model(1.0, move |prefix, _| if prefix.is_empty() { 0.0 } else { wrong });
        let message = format!("language model of row 1: expected a logarithm below infinity, got {wrong}");
        let two = ragged(array![[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]], &[2]);
        let found = text(model, &two);
        assert!(found.ends_with("behind a prefix of length 1"), "{found}");
        check(found, &message);
    }
}
