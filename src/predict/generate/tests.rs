//! Tests generation against exhaustive search, and against a slow search that sorts all continuations.

mod reference;

use reference::{FunctionModel, Plain, exhaustive, numbers, slow};

use super::search::deal;
use super::*;
use crate::error::Error;
use crate::executor::Threads;
use crate::predict::Sampling;

fn one_thread() -> Threads {
    Threads::new(1).unwrap()
}

fn plain(generated: &Hypotheses) -> Plain {
    let hypotheses = |source| generated.hypotheses(source).unwrap();
    let one = |one: Hypothesis<'_>| (one.tokens.to_vec(), one.score, one.stopped);
    (0..generated.sources()).map(|source| hypotheses(source).into_iter().map(one).collect()).collect()
}

fn searched(model: &mut FunctionModel, sources: usize, options: &Generation, one: &Beam) -> Plain {
    model.steps = 0;
    plain(&beam(model, sources, options, one, &one_thread()).unwrap())
}

/// Returns options to test with a model of 4 tokens.
fn many_options() -> Vec<Generation> {
    let plain = Generation::new(9).stop(0).max_steps(5);
    vec![
        plain.clone(),
        Generation::new(9).max_steps(4),
        plain.clone().min_steps(3),
        plain.clone().prefix([2, 1]),
        plain.clone().prefixes([vec![3], vec![], vec![1, 1, 1]]),
        plain.clone().banned([2]),
        plain.clone().required([3]),
        plain.clone().required([3, 1, 3]).banned([2]),
        plain.clone().required([1, 2, 3]).prefix([3, 3]),
        plain.clone().required([1, 2]).min_steps(5),
        plain.clone().repetition(2.5),
        plain.repetition(0.6).required([2]).banned([1]).min_steps(2).prefix([3]),
    ]
}

fn beams(width: usize, n_best: usize) -> [Beam; 5] {
    let beam = Beam::new(width).n_best(n_best);
    [beam, beam.length(0.7), beam.length(2.0), beam.coverage(0.4), beam.length(1.0).coverage(1.5)]
}

fn attentive(seed: u64, kinds: u32) -> FunctionModel {
    let rows = |source: usize, history: &[i64]| {
        let weights: Vec<f32> =
            numbers(source, 77, source, history, 50).into_iter().map(|x| (2.0 * x).exp()).collect();
        let total: f32 = weights.iter().sum();
        weights.into_iter().map(|w| w / total).collect::<Vec<f32>>()
    };
    // Source i has i rows of attention, so the first source is empty.
    FunctionModel::random(4, seed, kinds).attending(rows)
}

#[test]
fn a_beam_of_all_sequences_is_exhaustive_search() {
    for (case, options) in many_options().iter().enumerate() {
        for (kinds, seed) in [(1000, 3), (3, 5), (1, 1)] {
            let mut model = attentive(seed + case as u64, kinds);
            for beam in beams(2000, 40) {
                let found = searched(&mut model, 3, options, &beam);
                assert_eq!(
                    found,
                    exhaustive(&model, 3, options, &beam),
                    "case {case}, {kinds} kinds, {beam:?}"
                );
                assert!(found.iter().all(|hypotheses| !hypotheses.is_empty()));
            }
        }
    }
}

#[test]
fn narrow_beams_are_those_of_a_slow_search() {
    for (case, options) in many_options().iter().enumerate() {
        for (kinds, seed) in [(1000, 13), (3, 15), (1, 1)] {
            let mut model = attentive(seed + case as u64, kinds);
            for (width, n_best) in [(1, 1), (2, 1), (3, 3), (5, 2), (30, 30)] {
                for beam in beams(width, n_best).into_iter().chain([Beam::new(width).n_best(n_best).early()])
                {
                    let found = searched(&mut model, 3, options, &beam);
                    assert_eq!(
                        found,
                        slow(&model, 3, options, &beam),
                        "case {case}, {kinds} kinds, {beam:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn required_tokens_are_found_by_narrow_beams() {
    // Token 4 is always unlikely, and token 3 is possible only after token 4.
    let mut model = FunctionModel::new(5, |_, history| {
        let after = history.last() == Some(&4);
        vec![2.0, 3.0, 2.5, if after { -3.0 } else { f32::NEG_INFINITY }, -8.0]
    });
    for width in [2, 3, 8] {
        let options = Generation::new(1).stop(0).max_steps(12).required([3, 4]);
        let found = searched(&mut model, 1, &options, &Beam::new(width));
        assert!(found[0][0].0.contains(&3) && found[0][0].0.contains(&4), "{found:?}");
    }
    assert_eq!(deal(7, &[9, 9, 9]), [2, 2, 3]);
    assert_eq!(deal(7, &[9, 1, 2]), [4, 1, 2]);
    assert_eq!(deal(2, &[9, 9, 9]), [0, 1, 1]);
    assert_eq!(deal(usize::MAX, &[3, 0]), [3, 0]);
}

#[test]
fn greedy_is_the_narrowest_beam() {
    let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
    for (case, options) in many_options().iter().enumerate() {
        // A beam takes required tokens early, and sampling takes them late, so options with required tokens are left
        // out.
        if options.required.is_empty() {
            for kinds in [1000, 3] {
                let mut model = FunctionModel::random(4, case as u64, kinds);
                let numbers = [0, 1, 2];
                let drawn = sample(&mut model, 3, &numbers, options, greedy, 1, &one_thread()).unwrap();
                assert_eq!(plain(&drawn), searched(&mut model, 3, options, &Beam::new(1)), "case {case}");
            }
        }
    }
}

#[test]
fn what_is_drawn_obeys_the_options() {
    for (case, options) in many_options().iter().enumerate() {
        let mut model = FunctionModel::random(4, case as u64, 1000);
        let mut all = exhaustive(&model, 3, options, &Beam::new(9999).n_best(9999));
        for seed in 0..40 {
            model.steps = 0;
            let drawn =
                sample(&mut model, 3, &[5, 6, 7], options, Sampling::default(), seed, &one_thread()).unwrap();
            for (drawn, all) in plain(&drawn).into_iter().zip(&mut all) {
                assert!(drawn.len() == 1 && all.contains(&drawn[0]), "case {case}: {drawn:?}");
            }
        }
    }
}

#[test]
fn draws_are_as_frequent_as_said() {
    let model = || FunctionModel::new(4, |_, _| [0.1f32, 0.2, 0.3, 0.4].map(f32::ln).to_vec());
    let counts = |sampling, options: &Generation| {
        let sources: Vec<u64> = (0..2000).collect();
        let drawn = sample(&mut model(), 2000, &sources, options, sampling, 3, &one_thread()).unwrap();
        let mut counts = [0.0; 4];
        drawn.tokens().as_slice::<i64>().unwrap().iter().for_each(|&token| counts[token as usize] += 1.0);
        let total: f64 = counts.iter().sum();
        counts.map(|count| count / total)
    };
    let close = |shares: [f64; 4], expected: [f64; 4]| {
        assert!(shares.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.02), "{shares:?}");
        assert!(shares.iter().zip(expected).all(|(a, b)| b > 0.0 || *a == 0.0), "{shares:?}");
    };
    let options = Generation::new(0).max_steps(2);
    close(counts(Sampling::default(), &options), [0.1, 0.2, 0.3, 0.4]);
    let typical = Sampling { typical: 0.45, ..Sampling::default() };
    close(counts(typical, &options), [0.0, 0.4, 0.6, 0.0]);
    close(counts(Sampling::default(), &options.clone().banned([3])), [1.0 / 6.0, 2.0 / 6.0, 0.5, 0.0]);
    // Banned tokens still count in the softmax.
    let drawn =
        sample(&mut model(), 1, &[0], &options.banned([0, 1, 3]), Sampling::default(), 1, &one_thread());
    assert!((drawn.unwrap().scores()[0] - 2.0 * 0.3f64.ln()).abs() < 1e-6);
}

#[test]
fn sources_do_not_depend_on_each_other() {
    let options = Generation::new(9).stop(0).max_steps(6).repetition(1.3);
    let beam_of = Beam::new(4).n_best(3).length(0.8).coverage(0.3);
    let run = |sources: &[usize], numbers: &[u64]| {
        let made = || attentive(21, 1000).of(sources);
        let found = plain(&beam(&mut made(), sources.len(), &options, &beam_of, &one_thread()).unwrap());
        let hot = Sampling { temperature: 1.5, top_p: 0.9, ..Sampling::default() };
        let drawn = sample(&mut made(), sources.len(), numbers, &options, hot, 8, &one_thread()).unwrap();
        found.into_iter().zip(plain(&drawn)).collect::<Vec<_>>()
    };
    let together = run(&[0, 1, 2, 3, 4], &[10, 11, 12, 13, 14]);
    let backwards = run(&[4, 3, 2, 1, 0], &[14, 13, 12, 11, 10]);
    assert!(together.iter().eq(backwards.iter().rev()));
    for (i, expected) in together.iter().enumerate() {
        assert_eq!(&run(&[i], &[10 + i as u64])[0], expected);
    }
    assert_ne!(run(&[1, 1], &[5, 6])[0].1, run(&[1, 1], &[5, 6])[1].1);
}

#[test]
fn threads_change_nothing() {
    // There are enough logits to divide the work among threads.
    let options = Generation::new(9).stop(0).max_steps(3).min_steps(1).banned([4, 7]).required([11]);
    let sources = 70;
    let numbers: Vec<u64> = (0..sources as u64).collect();
    let run = |threads: usize| {
        let threads = Threads::new(threads).unwrap();
        let made = || FunctionModel::random(1500, 4, 100_000);
        let found = beam(&mut made(), sources, &options, &Beam::new(3).n_best(3), &threads).unwrap();
        let warm = Sampling { top_k: Some(50), top_p: 0.8, typical: 0.9, ..Sampling::default() };
        let drawn = sample(&mut made(), sources, &numbers, &options, warm, 1, &threads).unwrap();
        (plain(&found), plain(&drawn))
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(3));
    assert!(one.0.iter().flatten().all(|(tokens, ..)| tokens.contains(&11)));
}

#[test]
fn limits_dead_ends_and_empty_batches_are_defined() {
    let options = Generation::new(2).stop(0).max_steps(3);
    let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
    // The first source never ends, the second ends at once, the third reaches a dead end.
    const NEVER: f32 = f32::NEG_INFINITY;
    let rule = |source: usize, history: &[i64]| match (source, history.len()) {
        (0, _) => vec![NEVER, 1.0, 0.0],
        (1, _) => vec![2.0, 1.0, NEVER],
        (2, 1) => vec![NEVER, 1.0, NEVER],
        _ => vec![NEVER; 3],
    };
    let mut model = FunctionModel::new(3, rule);
    let drawn = sample(&mut model, 3, &[0; 3], &options, greedy, 0, &one_thread()).unwrap();
    assert_eq!(drawn.stopped(), [false, true]);
    assert_eq!(drawn.tokens().lod().unwrap().to_levels(), [vec![0, 1, 2, 2], vec![0, 3, 3]]);
    assert_eq!(drawn.tokens().as_slice::<i64>().unwrap(), [1, 1, 1]);
    let best = drawn.best().unwrap();
    assert!(best[1].unwrap().tokens.is_empty() && best[2].is_none());
    assert!(drawn.hypotheses(3).unwrap_err().to_string().contains("an index below 3"));
    for width in [1, 3, 100] {
        let found = searched(&mut model, 3, &options, &Beam::new(width).n_best(width));
        assert!(
            found[0].iter().all(|one| !one.2 && one.0.len() == 3) && found[1][0].2 && found[2].is_empty()
        );
        assert_eq!((found[0].len(), found[0][0].0.as_slice()), (width.min(8), &[1, 1, 1][..]));
    }
    // One hypothesis is finished, and the other reaches a dead end: the result has the finished hypothesis.
    let mut model = FunctionModel::new(3, |_, history| match history {
        [_] => vec![0.0, 1.0, NEVER],
        _ => vec![NEVER; 3],
    });
    let found = searched(&mut model, 1, &options, &Beam::new(2).n_best(2));
    assert!(found[0].len() == 1 && found[0][0].0.is_empty() && found[0][0].2);
    // The model excludes the prefix, so there is no hypothesis.
    let found = searched(&mut model, 1, &options.clone().prefix([2]), &Beam::new(2));
    assert!(found[0].is_empty());
    // The options leave no token, so there is no hypothesis.
    let drawn =
        sample(&mut model, 1, &[0], &options.clone().banned([1, 2]).min_steps(1), greedy, 0, &one_thread());
    model.steps = 0;
    assert!(drawn.unwrap().best().unwrap()[0].is_none());
    // Without sources, the result is empty.
    let nothing = beam(&mut model, 0, &options, &Beam::new(2), &one_thread()).unwrap();
    assert_eq!((nothing.sources(), nothing.scores().len(), nothing.tokens().rows()), (0, 0, 0));
    let nothing = sample(&mut model, 0, &[], &options, greedy, 0, &one_thread()).unwrap();
    assert!(nothing.best().unwrap().is_empty() && nothing.tokens().lod().unwrap().levels() == 2);
}

#[test]
fn a_beam_ends_as_soon_as_nothing_better_can_come() {
    let mut model = FunctionModel::new(3, |_, _| vec![5.0, 0.0, 0.0]);
    let options = Generation::new(1).stop(0).max_steps(50);
    searched(&mut model, 1, &options, &Beam::new(3));
    assert_eq!(model.steps, 1);
    searched(&mut model, 1, &options, &Beam::new(3).n_best(3));
    assert_eq!(model.steps, 2);
    // With this length penalty, the longest hypothesis may be the best.
    let found = searched(&mut model, 1, &options, &Beam::new(3).length(3.0));
    // The hypothesis that stops at once has the score -0.0134. After two tokens, a running hypothesis can still get a
    // better score, -10 / (55/6)^3 = -0.0130; after three tokens, it cannot.
    assert_eq!((model.steps, found[0][0].2), (3, true));
    searched(&mut model, 1, &options, &Beam::new(3).length(3.0).early());
    assert_eq!(model.steps, 2);
}

#[test]
fn what_is_no_number_names_the_source_and_the_step() {
    for wrong in [f32::NAN, f32::INFINITY] {
        let rule = move |source: usize, history: &[i64]| {
            let bad = source == 1 && history.len() == 3;
            vec![0.0, 1.0, if bad { wrong } else { 0.5 }]
        };
        let options = Generation::new(1).max_steps(5);
        let one = beam(&mut FunctionModel::new(3, rule), 2, &options, &Beam::new(2), &one_thread());
        let other = sample(
            &mut FunctionModel::new(3, rule),
            2,
            &[0, 1],
            &options,
            Sampling::default(),
            1,
            &one_thread(),
        );
        for error in [one.unwrap_err(), other.unwrap_err()] {
            let text = error.to_string();
            assert!(text.starts_with("logits of source 1 at step 2: expected numbers or"), "{text}");
        }
    }
}

#[test]
fn options_that_make_no_sense_are_refused_before_the_first_step() {
    let searched = |sources: usize, options: &Generation, one: Beam| -> Error {
        let mut model = FunctionModel::new(5, |_, _| panic!("asked"));
        beam(&mut model, sources, options, &one, &one_thread()).unwrap_err()
    };
    let plain = || Generation::new(1).stop(0).max_steps(4);
    let beams = [
        (Beam::new(0), "width of a beam: expected at least 1, got 0"),
        (Beam::new(2).n_best(0), "n_best: expected at least 1"),
        (Beam::new(2).n_best(3), "n_best: expected at most the width of the beam, 2, got 3"),
        (Beam::new(2).length(f64::NAN), "length penalty: expected a finite number from 0 on, got NaN"),
        (Beam::new(2).length(-0.1), "length penalty"),
        (Beam::new(2).coverage(f64::INFINITY), "coverage penalty: expected a finite"),
    ];
    for (beam, text) in beams {
        assert!(searched(1, &plain(), beam).to_string().starts_with(text), "{text}");
    }
    let options = [
        (Generation::new(-1), "start token: expected a number from 0 on, got -1"),
        (plain().stop(5), "stop token: expected a number from 0 on, below 5, got 5"),
        (plain().max_steps(0), "max_steps: expected at least 1, got 0"),
        (plain().min_steps(5), "min_steps: expected at most max_steps, 4, got 5"),
        (plain().prefix([1, 5]), "token of a prefix: expected a number from 0 on, below 5"),
        (plain().prefix([1, 0]), "token of a prefix: expected a token other than the stop token"),
        (plain().prefix([1, 2]).banned([2]), "token of a prefix: expected a token that is not banned, got 2"),
        (plain().prefix([1; 5]), "max_steps: expected at least 5"),
        (plain().prefixes([vec![], vec![]]), "prefixes: expected one for each of 1 sources, got 2"),
        (plain().banned([-3]), "banned token: expected a number from 0 on, below 5"),
        (plain().banned([0]), "banned token: expected a token other than the stop token"),
        (plain().required([9]), "required token: expected a number from 0 on, below 5"),
        (plain().required([0]), "required token: expected a token other than the stop token"),
        (plain().required([1]).banned([1]), "required token: expected a token that is not banned, got 1"),
        (plain().required([1, 2, 3]).prefix([1, 1, 1]), "max_steps: expected at least 5, for a prefix"),
        (plain().repetition(0.0), "repetition penalty: expected a finite number above 0"),
        (plain().repetition(f64::NAN), "repetition penalty"),
    ];
    for (options, text) in options {
        let got = searched(1, &options, Beam::new(2)).to_string();
        assert!(got.starts_with(text), "{text}: {got}");
        let mut model = FunctionModel::new(5, |_, _| panic!("asked"));
        let got = sample(&mut model, 1, &[0], &options, Sampling::default(), 0, &one_thread()).unwrap_err();
        assert!(got.to_string().starts_with(text), "{text}: {got}");
    }
    let mut model = FunctionModel::random(100, 1, 10);
    let many = plain().max_steps(90).required((1..66).collect::<Vec<i64>>());
    let got = beam(&mut model, 1, &many, &Beam::new(2), &one_thread()).unwrap_err().to_string();
    assert!(got.starts_with("required tokens: expected at most 64, got 65"), "{got}");
    let got =
        beam(&mut model, 1, &plain(), &Beam::new(2).coverage(1.0), &one_thread()).unwrap_err().to_string();
    assert!(got.starts_with("coverage penalty: expected a model with an attention output"), "{got}");
    let got =
        sample(&mut model, 2, &[0], &plain(), Sampling::default(), 1, &one_thread()).unwrap_err().to_string();
    assert!(got.starts_with("numbers of sources: expected one for each of 2"), "{got}");
}

#[test]
fn what_a_model_says_of_its_attention_has_to_fit() {
    // The attention has one more row at each step.
    let mut model = FunctionModel::random(3, 1, 9).attending(|_, history| vec![0.1; history.len()]);
    let options = Generation::new(1).max_steps(3);
    let got =
        beam(&mut model, 2, &options, &Beam::new(2).coverage(1.0), &one_thread()).unwrap_err().to_string();
    assert!(got.starts_with("attention of source 0 at step 1: expected the same number of weights"), "{got}");
}

#[test]
fn a_beam_that_no_memory_holds_is_an_error() {
    // The first step has one hypothesis, and the second step has one hypothesis per token.
    let mut model = FunctionModel::random(1 << 15, 1, 1);
    let options = Generation::new(9).max_steps(3);
    let error = beam(&mut model, 1, &options, &Beam::new(1 << 15), &one_thread()).unwrap_err().to_string();
    assert!(
        error.starts_with("hypotheses at step 1: expected at most 8192 with 32768 logits each"),
        "{error}"
    );
}
