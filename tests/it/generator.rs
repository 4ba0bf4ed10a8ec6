//! A trained program as a generator: its tokens agree with the scores of the whole program for every prefix.

use unpadded::layers::{Embedding, Gru};
use unpadded::ops::Pool;
use unpadded::predict::{Beam, Generation, Predictor, Sampling};
use unpadded::{Builder, DType, Var, Variable};

use crate::sessions::predictor;

const CLASSES: usize = 4;
const START: i64 = 0;
const STOP: i64 = 1;

/// A decoder that attends to the rows of its source: logits, and the weights of the attention.
fn model(net: &Builder) -> [Var; 2] {
    let source = net.feed("source", DType::I64, &[], 1);
    let words = net.feed("words", DType::I64, &[], 1);
    let x = source.embedding(Embedding::new(11, 6)) * 3.0;
    let states = net.concat(&[x.gru(5), x.gru(Gru::new(5).backwards())]) * 2.0;
    let start = states.sequence_pool(Pool::Mean).linear(8).tanh();
    let y = words.embedding(Embedding::new(CLASSES, 7)) * 3.0;
    let mut attended = None;
    let h = net.recurrent(y, |step, y| {
        let before = step.memory_from(start);
        let keys = states.linear(8);
        let wide = step.sequence_expand_as(before.linear(8), keys);
        let weights = ((keys + wide).tanh().linear(1) * 4.0).sequence_softmax();
        let context = (states * weights).sequence_pool(Pool::Sum);
        let h = (step.concat(&[y, context]).linear(8) + before.linear(8)).tanh();
        step.update(before, h);
        attended = Some(weights);
        h
    });
    [h.linear(CLASSES) * 4.0, attended.unwrap()]
}

fn trained() -> Predictor {
    let net = Builder::new().seed(11);
    let [logits, weights] = model(&net);
    let (registry, program) = (net.registry(), net.finish().unwrap());
    predictor(&program, &registry, &[logits.id(), weights.id()])
}

fn sources() -> Vec<Vec<i64>> {
    vec![vec![3, 1, 4, 1, 5], vec![9], vec![2, 6, 5], vec![], vec![8, 9, 7, 9, 3, 2, 3, 8]]
}

/// Returns the scores of the next token after a prefix, by the whole program.
fn after(model: &Predictor, source: &[i64], prefix: &[i64]) -> Vec<f32> {
    let words = Variable::from_sequence([&[START], prefix].concat()).unwrap();
    let source = Variable::from_sequence(source.to_vec()).unwrap();
    let out = model.run(&[("source", &source), ("words", &words)], &["0"]).unwrap();
    let all = out[0].as_slice::<f32>().unwrap();
    all[all.len() - CLASSES..].to_vec()
}

fn log_probabilities(logits: &[f32]) -> Vec<f64> {
    let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
    logits.iter().map(|&x| f64::from(x) - sum.ln()).collect()
}

#[test]
fn the_likeliest_is_that_of_the_whole_program() {
    let model = trained();
    let fed = Variable::from_sequences(&sources()).unwrap();
    let generator = model.generator("words", "0").unwrap();
    assert_eq!((generator.feeds(), generator.classes()), (vec!["source"], CLASSES));
    let mut limited = 0;
    for (most, (i, source)) in
        [1, 2, 7].into_iter().flat_map(|most| (0..).zip(sources()).map(move |one| (most, one)))
    {
        let options = Generation::new(START).stop(STOP).max_steps(most);
        let found = generator.greedy(&[("source", &fed)], &options).unwrap();
        let (mut tokens, mut score, mut stopped) = (Vec::new(), 0.0, false);
        while tokens.len() < most && !stopped {
            let scores = log_probabilities(&after(&model, &source, &tokens));
            let best = (0..CLASSES).rev().max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap();
            score += scores[best];
            stopped = best as i64 == STOP;
            if !stopped {
                tokens.push(best as i64);
            }
        }
        let got = found.hypotheses(i).unwrap();
        assert_eq!((got.len(), got[0].tokens, got[0].stopped), (1, &tokens[..], stopped), "source {i}");
        assert!((got[0].score - score).abs() < 1e-5, "{} for {score}", got[0].score);
        limited += usize::from(!stopped);
    }
    assert!(limited > 0 && limited < 15, "{limited} came to the limit");
}

/// A beam that holds every continuation finds the best of all sequences, as the whole program scores them.
#[test]
fn a_wide_beam_finds_the_best_of_all() {
    let model = trained();
    let most = 4;
    let options = Generation::new(START).stop(STOP).max_steps(most);
    let fed = Variable::from_sequences(&sources()).unwrap();
    let generator = model.generator("words", "0").unwrap().attention("1").unwrap();
    let search = Beam::new(CLASSES.pow(most as u32)).n_best(9).length(0.7);
    let found = generator.beam(&[("source", &fed)], &options, &search).unwrap();
    for (i, source) in sources().iter().enumerate() {
        let mut all: Vec<(f64, Vec<i64>)> = Vec::new();
        let mut open = vec![(0.0, Vec::new())];
        while let Some((sum, tokens)) = open.pop() {
            for (token, p) in log_probabilities(&after(&model, source, &tokens)).into_iter().enumerate() {
                let (sum, length) = (sum + p, tokens.len() + 1);
                let score = sum / ((5.0 + length as f64) / 6.0f64).powf(0.7);
                let longer = [&tokens[..], &[token as i64]].concat();
                if token as i64 == STOP {
                    all.push((score, tokens.clone()));
                } else if length == most {
                    all.push((score, longer));
                } else {
                    open.push((sum, longer));
                }
            }
        }
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        let got = found.hypotheses(i).unwrap();
        assert_eq!(got.len(), 9);
        for (got, (score, tokens)) in got.iter().zip(&all) {
            assert!((got.score - score).abs() < 1e-5, "source {i}: {} for {score}", got.score);
            assert_eq!(got.tokens, tokens, "source {i}");
        }
    }
}

/// The tokens, the bits of the score, and whether it stopped, of each hypothesis.
type Found = Vec<(Vec<i64>, u64, bool)>;

/// The output for a source does not depend on other sources, on their order or on threads, to the bit.
#[test]
fn a_source_gets_what_it_gets_alone() {
    let model = trained();
    let all = sources();
    let options = Generation::new(START).stop(STOP).max_steps(9);
    let search = Beam::new(3).n_best(2).length(0.6).coverage(0.3);
    let warm = Sampling::default().temperature(1.3);
    let run = |sources: &[Vec<i64>], first: u64, threads: usize| {
        let fed = Variable::from_sequences(sources).unwrap();
        let model = model.clone().threads(threads);
        let generator = model.generator("words", "0").unwrap().attention("1").unwrap();
        let beams = generator.beam(&[("source", &fed)], &options, &search).unwrap();
        let drawn = generator.sample(&[("source", &fed)], &options.clone().first(first), warm, 5).unwrap();
        (0..sources.len())
            .map(|i| {
                let hypotheses = |found: &unpadded::predict::Hypotheses| {
                    let found = found.hypotheses(i).unwrap();
                    found
                        .iter()
                        .map(|h| (h.tokens.to_vec(), h.score.to_bits(), h.stopped))
                        .collect::<Vec<_>>()
                };
                [hypotheses(&beams), hypotheses(&drawn)]
            })
            .collect::<Vec<_>>()
    };
    let together = run(&all, 0, 1);
    assert_eq!(run(&all, 0, 2), together);
    for (i, source) in all.iter().enumerate() {
        assert_eq!(run(std::slice::from_ref(source), i as u64, 1 + i % 2)[0], together[i], "source {i}");
    }
    let back: Vec<Vec<i64>> = all.iter().rev().cloned().collect();
    let beams = |found: Vec<[Found; 2]>| found.into_iter().map(|[beams, _]| beams).collect::<Vec<_>>();
    let mut reversed = beams(run(&back, 0, 2));
    reversed.reverse();
    assert_eq!(reversed, beams(together));
    assert!(run(&[], 0, 1).is_empty());
}

#[test]
fn a_model_without_sources_goes_on_from_prefixes() {
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    let logits = words.embedding(Embedding::new(6, 8)).gru(8).linear(6) * 5.0;
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let model = predictor(&program, &registry, &[logits.id()]);
    let generator = model.generator("words", "0").unwrap();
    let options = Generation::new(0).max_steps(6).prefixes([vec![2, 3], vec![], vec![5]]);
    let found = generator.greedy(&[], &options).unwrap();
    assert_eq!(found.sources(), 3);
    let best = found.best().unwrap();
    assert!(best[0].unwrap().tokens.starts_with(&[2, 3]) && best[2].unwrap().tokens.starts_with(&[5]));
    assert!(best.iter().all(|one| one.unwrap().tokens.len() == 6 && !one.unwrap().stopped));
    assert_eq!(
        generator.greedy(&[], &Generation::new(0)).unwrap().best().unwrap()[0].unwrap().tokens.len(),
        256
    );
}

#[test]
fn what_does_not_fit_is_said() {
    let model = trained();
    let text = |error: Option<unpadded::Error>| error.unwrap().to_string();
    let refusal = |tokens: &str, logits: &str| text(model.generator(tokens, logits).err());
    assert!(
        refusal("source", "0").contains("feed of the tokens: expected `words`, got `source`"),
        "{}",
        refusal("source", "0")
    );
    assert!(refusal("words", "2").contains("(`0`, `1`), got `2`"), "{}", refusal("words", "2"));
    assert!(
        refusal("words", "1").contains("expected an output of the root block with the rows of a feed"),
        "{}",
        refusal("words", "1")
    );
    let generator = model.generator("words", "0").unwrap();
    let fed = Variable::from_sequences(&sources()).unwrap();
    let feeds = [("source", &fed)];
    let options = Generation::new(START).stop(STOP).max_steps(5);
    let beam = |options: &Generation, beam: Beam| text(generator.beam(&feeds, options, &beam).err());
    assert!(beam(&options, Beam::new(0)).contains("width of a beam: expected at least 1"));
    assert!(beam(&options, Beam::new(2).n_best(3)).contains("at most the width of the beam, 2, got 3"));
    assert!(beam(&options, Beam::new(2).coverage(0.1)).contains("a model with an attention output"));
    assert!(beam(&options.clone().banned([77]), Beam::new(2)).contains("77"));
    let started = text(generator.greedy(&feeds, &Generation::new(44).stop(STOP)).err());
    assert!(started.contains("below 4, the height, got 44"), "{started}");
    assert!(text(generator.greedy(&[], &options).err()).contains("expected `source` among them, got none"));
    let unknown = Variable::from_sequence(vec![99i64]).unwrap();
    assert!(
        text(generator.greedy(&[("source", &unknown)], &options).err())
            .contains("below 11, the height, got 99")
    );
    // A beam wider than the vocabulary.
    assert_eq!(generator.beam(&feeds, &options, &Beam::new(50).n_best(50)).unwrap().sources(), 5);
    // After errors it works on.
    assert_eq!(generator.greedy(&feeds, &options).unwrap().sources(), 5);
}
