//! Attention compared with loops that hold every score.

use super::*;
use crate::kernels::checks::{near, numbers};

/// The sizes of an attention, and the range of keys that a query attends to.
#[derive(Clone, Copy)]
struct Case {
    n: usize,
    m: usize,
    d: usize,
    e: usize,
    before: usize,
    after: usize,
    radius: Option<usize>,
}

const FAR: usize = usize::MAX;

fn cases() -> Vec<Case> {
    let all = Case { n: 1, m: 1, d: 3, e: 2, before: FAR, after: FAR, radius: None };
    vec![
        all,
        Case { n: 1, m: 70, d: 33, e: 40, ..all },
        Case { n: 1, m: 9, after: 2, ..all },
        Case { n: 1, m: 0, ..all },
        Case { n: 0, m: 3, ..all },
        Case { n: 3, m: 0, ..all },
        Case { n: 70, m: 300, d: 17, e: 33, ..all },
        Case { n: 130, m: 130, d: 8, e: 8, after: 0, ..all },
        Case { n: 300, m: 300, d: 5, e: 4, before: 20, after: 3, ..all },
        Case { n: 140, m: 260, d: 16, e: 16, radius: Some(4), ..all },
        Case { n: 150, m: 150, d: 6, e: 7, after: 0, radius: Some(200), ..all },
        // A query after the last key attends to no key.
        Case { n: 20, m: 3, before: 1, after: 0, radius: Some(0), ..all },
    ]
}

/// The results and the gradients, computed with all weights in memory.
struct Plain {
    out: Vec<f64>,
    log_sums: Vec<f64>,
    dq: Vec<f64>,
    dk: Vec<f64>,
    dv: Vec<f64>,
    dbias: Vec<f64>,
}

fn plain(
    c: Case,
    q: &[f64],
    k: &[f64],
    v: &[f64],
    bias: &[f64],
    scale: f64,
    (dout, dlog): (&[f64], &[f64]),
) -> Plain {
    let Case { n, m, d, e, .. } = c;
    let mut made = Plain {
        out: vec![0.0; n * e],
        log_sums: vec![0.0; n],
        dq: vec![0.0; n * d],
        dk: vec![0.0; m * d],
        dv: vec![0.0; m * e],
        dbias: vec![0.0; bias.len()],
    };
    let offset = |i: usize, j: usize| {
        let radius = bias.len() as i64 / 2;
        ((j as i64 - i as i64).clamp(-radius, radius) + radius) as usize
    };
    for i in 0..n {
        let sees = |j: &usize| *j >= i.saturating_sub(c.before) && *j <= i.saturating_add(c.after);
        let seen: Vec<usize> = (0..m).filter(sees).collect();
        let score = |&j: &usize| {
            let dot: f64 = (0..d).map(|x| q[i * d + x] * k[j * d + x]).sum();
            scale * dot + if bias.is_empty() { 0.0 } else { bias[offset(i, j)] }
        };
        let sum: f64 = seen.iter().map(|j| score(j).exp()).sum();
        if seen.is_empty() {
            continue;
        }
        made.log_sums[i] = sum.ln();
        let weights: Vec<f64> = seen.iter().map(|j| score(j).exp() / sum).collect();
        let gradient = |&j: &usize| (0..e).map(|x| dout[i * e + x] * v[j * e + x]).sum::<f64>();
        let mean: f64 = seen.iter().zip(&weights).map(|(j, w)| w * gradient(j)).sum();
        for (j, w) in seen.iter().zip(&weights) {
            for x in 0..e {
                made.out[i * e + x] += w * v[j * e + x];
                made.dv[j * e + x] += w * dout[i * e + x];
            }
            let ds = w * (gradient(j) - mean + dlog[i]);
            if !bias.is_empty() {
                made.dbias[offset(i, *j)] += ds;
            }
            for x in 0..d {
                made.dq[i * d + x] += scale * ds * k[j * d + x];
                made.dk[j * d + x] += scale * ds * q[i * d + x];
            }
        }
    }
    made
}

fn check<T: Float>(bound: f64) {
    let mut room = AttentionRoom::<T>::default();
    for (at, c) in cases().into_iter().enumerate() {
        let Case { n, m, d, e, .. } = c;
        let seeded = |len, salt| numbers::<f64>(len, 10 * at as u64 + salt);
        let (q, k, v, dout) = (seeded(n * d, 1), seeded(m * d, 2), seeded(m * e, 3), seeded(n * e, 4));
        let bias = c.radius.map_or(vec![], |radius| seeded(2 * radius + 1, 5));
        let dlog_sums = seeded(n, 6);
        let expected = plain(c, &q, &k, &v, &bias, 0.7, (&dout, &dlog_sums));
        let cast = |x: &[f64]| x.iter().map(|&x| T::from_f64(x)).collect::<Vec<T>>();
        let (q, k, v, dout, bias) = (cast(&q), cast(&k), cast(&v), cast(&dout), cast(&bias));
        let dlog_sums = cast(&dlog_sums);
        let scores =
            AttentionScores { scale: T::from_f64(0.7), before: c.before, after: c.after, bias: &bias };
        let attended =
            AttentionInputs { q: View::new(&q, n, d), k: View::new(&k, m, d), v: View::new(&v, m, e) };
        let nan = T::from_f64(f64::NAN);
        let (mut out, mut log_sums) = (vec![nan; n * e], vec![nan; n]);
        let views = (ViewMut::new(&mut out, n, e), ViewMut::new(&mut log_sums, n, 1));
        attention(attended, scores, views.0, views.1, &mut room);
        near(&out, &expected.out, bound, &format!("case {at}: out"));
        near(&log_sums, &expected.log_sums, bound, &format!("case {at}: log_sums"));
        for assign in [Assign::Write, Assign::Add] {
            let start = if assign == Assign::Write { nan } else { T::ZERO };
            let (mut dq, mut dk, mut dv) = (vec![start; n * d], vec![start; m * d], vec![start; m * e]);
            let mut dbias = vec![T::ZERO; bias.len()];
            let gradients = AttentionGradients {
                q: Some((ViewMut::new(&mut dq, n, d), assign)),
                k: Some((ViewMut::new(&mut dk, m, d), assign)),
                v: Some((ViewMut::new(&mut dv, m, e), assign)),
                bias: c.radius.map(|_| &mut *dbias),
            };
            let result = AttentionResult {
                out: View::new(&out, n, e),
                log_sums: View::new(&log_sums, n, 1),
                dout: Some(View::new(&dout, n, e)),
                dlog_sums: Some(View::new(&dlog_sums, n, 1)),
            };
            attention_backward(attended, scores, result, gradients, &mut room);
            near(&dq, &expected.dq, bound, &format!("case {at}: dq"));
            near(&dk, &expected.dk, bound, &format!("case {at}: dk"));
            near(&dv, &expected.dv, bound, &format!("case {at}: dv"));
            near(&dbias, &expected.dbias, bound, &format!("case {at}: dbias"));
        }
    }
}

#[test]
fn tiles_are_the_whole_in_f64() {
    check::<f64>(1e-12);
}

#[test]
fn tiles_are_the_whole_in_f32() {
    check::<f32>(2e-4);
}

/// The scores are far from zero, and the largest score of one tile is far below the largest score of the previous tile.
#[test]
fn large_scores_overflow_nothing() {
    let (n, m) = (2, 2 * KEYS);
    let q = vec![1.0f32; n];
    let k: Vec<f32> = (0..m).map(|j| if j == 3 { 1e4 } else { -1e4 * j as f32 }).collect();
    let v: Vec<f32> = (0..m).map(|j| j as f32).collect();
    let (mut out, mut log_sums) = (vec![0.0; n], vec![0.0; n]);
    let attended = AttentionInputs { q: View::new(&q, n, 1), k: View::new(&k, m, 1), v: View::new(&v, m, 1) };
    let scores = AttentionScores { scale: 1.0, before: FAR, after: FAR, bias: &[] };
    let views = (ViewMut::new(&mut out, n, 1), ViewMut::new(&mut log_sums, n, 1));
    attention(attended, scores, views.0, views.1, &mut AttentionRoom::default());
    assert_eq!((out, log_sums), (vec![3.0; n], vec![1e4; n]));
}
