//! Chains compared with an enumeration of all paths.

use ndarray::Array2;

use super::*;
use crate::kernels::checks::numbers;
use crate::kernels::view::View;

/// Returns every path over the rows, with its score, in f64.
fn paths(transitions: &Transitions, rows: View<'_, f64>) -> Vec<(Vec<usize>, f64)> {
    let tags = transitions.tags;
    let mut all = vec![vec![]];
    for _ in 0..rows.rows() {
        all = all
            .into_iter()
            .flat_map(|path| (0..tags).map(move |tag| [path.clone(), vec![tag]].concat()))
            .collect();
    }
    all.into_iter().map(|path| (path.clone(), transitions.score(rows, path.into_iter()))).collect()
}

fn of(scores: &[f64], tags: usize, forbidden: &[i64]) -> Transitions {
    let mut transitions = Transitions::default();
    transitions.prepare(View::new(scores, tags + 2, tags), forbidden);
    transitions
}

/// Returns cases of tags, rows, the scale of the row scores, the scale of the pair scores, and the forbidden pairs. At
/// small scales, the scores are near each other; at large scales, they are so far apart that numbers underflow.
fn cases() -> Vec<(usize, usize, f64, f64, Vec<i64>)> {
    let mut cases = Vec::new();
    for (tags, rows) in [(1, 3), (2, 5), (3, 4), (4, 1), (17, 2), (5, 0)] {
        for scale in [0.5, 8.0, 150.0, 900.0] {
            for forbidden in [vec![], vec![1, tags as i64], vec![0, 2 * tags as i64 - 1]] {
                cases.push((tags, rows, scale, scale / 2.0, forbidden));
            }
        }
    }
    cases
}

#[test]
fn sums_and_marginals_are_those_over_all_paths() {
    let mut room = ChainRoom::default();
    for (tags, count, scale, pair_scale, forbidden) in cases() {
        let scores: Vec<f64> = numbers::<f64>(count * tags, 3).iter().map(|x| scale * x).collect();
        let pairs: Vec<f64> = numbers::<f64>((tags + 2) * tags, 8).iter().map(|x| pair_scale * x).collect();
        let (transitions, rows) = (of(&pairs, tags, &forbidden), View::new(&scores, count, tags));
        let case = format!("{count} rows of {tags} tags at {scale} without {forbidden:?}");
        let all = paths(&transitions, rows);
        let most = all.iter().map(|path| path.1).fold(f64::NEG_INFINITY, f64::max);
        let expected = match most == f64::NEG_INFINITY {
            true => most,
            false => most + all.iter().map(|path| (path.1 - most).exp()).sum::<f64>().ln(),
        };
        let near = |a: f64, b: f64| a == b || (a - b).abs() <= 1e-11 * b.abs().max(1.0);
        assert!(near(log_sum(&transitions, rows, &mut room), expected), "{case}");

        let mut sums = PairSums::default();
        sums.start(&transitions);
        let mut found = Array2::zeros((count, tags));
        let total = marginals(&transitions, rows, &mut room, Some((&mut sums, 0.5)), |row, likely| {
            likely.iter().enumerate().for_each(|(tag, &x)| found[[row, tag]] = x);
        });
        assert!(near(total, expected), "{case}");
        let share = |score: f64| if expected == f64::NEG_INFINITY { 0.0 } else { (score - expected).exp() };
        let mut likely = Array2::zeros((count, tags));
        let mut both = Array2::zeros((tags + 2, tags));
        for (path, score) in &all {
            path.iter().enumerate().for_each(|(row, &tag)| likely[[row, tag]] += share(*score));
            path.windows(2).for_each(|pair| both[[pair[0], pair[1]]] += 0.5 * share(*score));
            if let (Some(&first), Some(&last)) = (path.first(), path.last()) {
                both[[tags, first]] += 0.5 * share(*score);
                both[[tags + 1, last]] += 0.5 * share(*score);
            }
        }
        let same = |a: f64, b: f64| (a - b).abs() <= 1e-10;
        assert!(found.iter().zip(&likely).all(|(&a, &b)| same(a, b)), "{case}: {found} for {likely}");
        for ((row, tag), &expected) in both.indexed_iter() {
            let got = sums.get(&transitions, row, tag);
            assert!(same(got, expected), "{case}, pair {row}, {tag}: {got} for {expected}");
        }
    }
}

#[test]
fn what_only_seems_to_vanish_is_found() {
    // Each tag is followed only by itself, and the last tag must be 1. The only path has tag 1 in every row, and its
    // numbers are the smallest.
    let no = f64::NEG_INFINITY;
    let transitions = of(&[0.0, no, no, 0.0, 0.0, 0.0, no, 0.0], 2, &[]);
    for (count, score) in [(3usize, -200.0), (9, -100.0), (400, -50.0)] {
        let scores: Vec<f64> = (0..2 * count).map(|i| if i % 2 == 0 { 0.0 } else { score }).collect();
        let mut room = ChainRoom::default();
        let total = log_sum(&transitions, View::new(&scores, count, 2), &mut room);
        assert!((total - count as f64 * score).abs() < 1e-9 * count as f64 * -score, "{total} of {count}");
        let narrow: Vec<f32> = scores.iter().map(|&x| x as f32).collect();
        let likely = |row: usize, likely: &[f64]| {
            assert!(likely[0] < 1e-12 && (likely[1] - 1.0).abs() < 1e-9, "{row}: {likely:?}");
        };
        let total = marginals(&transitions, View::new(&narrow, count, 2), &mut room, None, likely);
        assert!(
            (total - count as f64 * score).abs() < 1e-6 * count as f64 * -score,
            "{total} of {count} in f32"
        );
    }
}

#[test]
fn numbers_that_are_none_stay_so() {
    let transitions = of(&[0.0; 8], 2, &[]);
    let mut room = ChainRoom::default();
    for bad in [f64::NAN, f64::INFINITY] {
        let scores = [0.0, 1.0, bad, 0.0, 0.0, 0.0];
        assert!(log_sum(&transitions, View::new(&scores, 3, 2), &mut room).is_nan());
        marginals(&transitions, View::new(&scores, 3, 2), &mut room, None, |_, likely| {
            assert!(likely.iter().all(|x| x.is_nan()));
        });
        // The sums of pairs over several sequences are NaN, too; forbidden pairs have a sum of zero.
        let (one_less, mut sums) = (of(&[0.0; 8], 2, &[1]), PairSums::default());
        sums.start(&one_less);
        for scores in [[0.0; 6], scores, [0.0; 6]] {
            marginals(&one_less, View::new(&scores, 3, 2), &mut room, Some((&mut sums, 0.5)), |_, _| {});
        }
        for (row, tag) in (0..4).flat_map(|row| [(row, 0), (row, 1)]) {
            let sum = sums.get(&one_less, row, tag);
            assert!(if (row, tag) == (0, 1) { sum == 0.0 } else { sum.is_nan() }, "{row}, {tag}: {sum}");
        }
    }
    // The first sequence has no allowed tag; the second sequence allows only tag 0.
    let none = [f64::NEG_INFINITY; 4];
    assert_eq!(log_sum(&transitions, View::new(&none, 2, 2), &mut room), f64::NEG_INFINITY);
    let one = [0.0, f64::NEG_INFINITY, 0.5, f64::NEG_INFINITY];
    assert!((log_sum(&transitions, View::new(&one, 2, 2), &mut room) - 0.5).abs() < 1e-12);
}

#[test]
fn the_best_paths_are_the_best_of_all() {
    let mut room = BestPaths::default();
    for (tags, count, scale, pair_scale, forbidden) in cases() {
        // The scores have few different values, so that several paths have equal scores.
        let scores: Vec<f64> =
            numbers::<f64>(count * tags, 3).iter().map(|x| scale * (2.0 * x).round()).collect();
        let pairs: Vec<f64> =
            numbers::<f64>((tags + 2) * tags, 9).iter().map(|x| pair_scale * (2.0 * x).round()).collect();
        let (transitions, rows) = (of(&pairs, tags, &forbidden), View::new(&scores, count, tags));
        let mut all = paths(&transitions, rows);
        all.retain(|path| path.1 > f64::NEG_INFINITY);
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.iter().rev().cmp(b.0.iter().rev())));
        for most in [1, 2, 3, 40] {
            let mut found = Vec::new();
            best_paths(&transitions, rows, most, &mut room, |rank, score, path| {
                assert_eq!(rank, found.len());
                found.push((path.to_vec(), score));
            })
            .unwrap();
            let case = format!("{most} of {count} rows of {tags} tags at {scale} without {forbidden:?}");
            let expected = &all[..most.min(all.len())];
            assert_eq!(found.len(), expected.len().max(1), "{case}");
            for ((path, score), (best, highest)) in found.iter().zip(expected) {
                assert!(
                    (score - highest).abs() < 1e-9 * highest.abs().max(1.0),
                    "{case}: {score} for {highest}"
                );
                // The order of equal paths is specified; sums in another order may differ in the last bit.
                let own = transitions.score(rows, path.iter().copied());
                assert!((own - score).abs() < 1e-9 * score.abs().max(1.0), "{case}: {path:?} for {best:?}");
            }
            let mut different: Vec<_> = found.iter().map(|path| &path.0).collect();
            different.sort();
            different.dedup();
            assert_eq!(different.len(), found.len(), "{case}: a path twice");
            if expected.is_empty() {
                assert_eq!(found, [(vec![0; count], f64::NEG_INFINITY)], "{case}");
            }
        }
    }
}

#[test]
fn thousands_of_paths_are_found_in_time_and_too_many_are_refused() {
    // An algorithm that is quadratic in the number of paths would take minutes.
    let (tags, count, most) = (60, 12, 4096);
    let (scores, pairs) = (numbers::<f64>(count * tags, 3), numbers::<f64>((tags + 2) * tags, 9));
    let (transitions, mut room) = (of(&pairs, tags, &[]), BestPaths::default());
    let (mut found, rows) = (Vec::new(), View::new(&scores, count, tags));
    best_paths(&transitions, rows, most, &mut room, |_, score, _| found.push(score)).unwrap();
    assert!(found.len() == most && found.is_sorted_by(|a, b| a >= b), "{}", found.len());
    let error =
        best_paths(&transitions, rows, 1 << 56, &mut room, |_, _, _| unreachable!()).unwrap_err().to_string();
    assert!(error.contains("rows · tags · paths") && error.contains("12 rows of"), "{error}");
}

/// Checks that scores count even if e^score underflows. In the first case, e^score of an allowed pair underflows. In
/// the second case, the numbers of the only allowed path underflow.
#[test]
fn scores_far_below_others_still_count() {
    let no = f64::NEG_INFINITY;
    let far = of(&[0.0, -800.0, 0.0, 0.0, 0.0, no, 0.0, 0.0], 2, &[]);
    let scores: Vec<f32> = (0..40).map(|i| if i % 2 == 0 && i > 0 { -80.0 } else { 0.0 }).collect();
    let mut room = ChainRoom::default();
    let total = log_sum(&far, View::new(&scores, 20, 2), &mut room);
    assert!((total + 800.0).abs() < 1e-6, "{total}");

    // Each tag follows only itself; neither the tag with the best start nor the tag with the best end has a whole path.
    let own = of(&[0.0, no, no, no, 0.0, no, no, no, 0.0, 0.0, 0.0, no, 0.0, 0.0, 0.0], 3, &[]);
    let rows = [0.0, -276.0, 0.0, 0.0, -276.0, 0.0, no, -92.0, 0.0, no, -276.0, 0.0];
    let total = marginals(&own, View::new(&rows, 4, 3), &mut room, None, |row, likely| {
        assert!(likely[0] == 0.0 && (likely[1] - 1.0).abs() < 1e-9 && likely[2] == 0.0, "{row}: {likely:?}");
    });
    assert!((total + 920.0).abs() < 1e-9, "{total}");
}
