//! A made-up model, exhaustive search over its sequences, and a slow beam search.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::super::search::deal;
use super::super::*;
use crate::error::Result;
use crate::kernels::philox;
use crate::predict::logits::{largest, log_sum_exp};

/// The logits of a made-up model for a source and the tokens so far, including the start token.
type Rule = dyn Fn(usize, &[i64]) -> Vec<f32>;

/// A model that is a function of the source and the tokens so far.
pub(super) struct FunctionModel {
    classes: usize,
    logits: Box<Rule>,
    attention: Option<Box<Rule>>,
    /// The source and the tokens of each hypothesis after the last step.
    histories: Vec<(usize, Vec<i64>)>,
    output: Vec<f32>,
    attended: (Vec<f32>, Vec<usize>),
    pub(super) steps: usize,
    /// The identity of each source, if it differs from the source's number.
    sources: Option<Vec<usize>>,
}

impl FunctionModel {
    pub(super) fn new(classes: usize, logits: impl Fn(usize, &[i64]) -> Vec<f32> + 'static) -> Self {
        let (histories, output, attended) = (vec![], vec![], (vec![], vec![0]));
        Self {
            classes,
            logits: Box::new(logits),
            attention: None,
            histories,
            output,
            attended,
            steps: 0,
            sources: None,
        }
    }

    pub(super) fn of(self, sources: &[usize]) -> Self {
        Self { sources: Some(sources.to_vec()), ..self }
    }

    pub(super) fn attending(self, attention: impl Fn(usize, &[i64]) -> Vec<f32> + 'static) -> Self {
        Self { attention: Some(Box::new(attention)), ..self }
    }

    /// Makes a model with pseudo-random logits; many logits are equal if `kinds` is small.
    pub(super) fn random(classes: usize, seed: u64, kinds: u32) -> Self {
        Self::new(classes, move |source, history| numbers(classes, seed, source, history, kinds))
    }
}

pub(super) fn numbers(count: usize, seed: u64, source: usize, history: &[i64], kinds: u32) -> Vec<f32> {
    let mut key = [seed as u32, source as u32 + 1];
    for &token in history {
        let words = philox([token as u32, history.len() as u32, 0, 0], key);
        key = [words[0], words[1]];
    }
    let number = |i: usize| (philox([i as u32, 7, 7, 7], key)[0] >> 8) % kinds;
    (0..count).map(|i| number(i) as f32 / kinds as f32 * 4.0 - 2.0).collect()
}

impl Steps for FunctionModel {
    fn classes(&self) -> usize {
        self.classes
    }

    fn advance(&mut self, parents: &[usize], tokens: &[i64]) -> Result<()> {
        assert!(!parents.is_empty() && parents.len() == tokens.len());
        let source = |i: usize| self.sources.as_ref().map_or(i, |sources| sources[i]);
        let grown = |(&parent, &token): (&usize, &i64)| {
            let (source, mut history) =
                if self.steps == 0 { (source(parent), vec![]) } else { self.histories[parent].clone() };
            history.push(token);
            (source, history)
        };
        self.histories = parents.iter().zip(tokens).map(grown).collect();
        self.output =
            self.histories.iter().flat_map(|(source, history)| (self.logits)(*source, history)).collect();
        self.attended = (vec![], vec![0]);
        if let Some(attention) = &self.attention {
            for (source, history) in &self.histories {
                self.attended.0.extend(attention(*source, history));
                self.attended.1.push(self.attended.0.len());
            }
        }
        self.steps += 1;
        Ok(())
    }

    fn logits(&self) -> Result<&[f32]> {
        Ok(&self.output)
    }

    fn attention(&self) -> Result<Option<(&[f32], &[usize])>> {
        Ok(self.attention.is_some().then_some((&self.attended.0[..], &self.attended.1[..])))
    }
}

/// For each source, its hypotheses: the tokens, the score, and whether the hypothesis stopped.
pub(super) type Plain = Vec<Vec<(Vec<i64>, f64, bool)>>;

/// A sequence of the exhaustive search and of the slow search.
#[derive(Clone)]
struct Path {
    tokens: Vec<usize>,
    /// The sum of the log-probabilities after each token.
    sums: Vec<f64>,
    logits: Vec<f32>,
    covered: Vec<f64>,
    stopped: bool,
}

impl Path {
    /// Compares the ranks of the first `length` tokens of two sequences.
    fn rank(&self, other: &Self, length: usize) -> Ordering {
        let Some(last) = length.checked_sub(1) else { return Ordering::Equal };
        let by_sum = other.sums[last].total_cmp(&self.sums[last]);
        let by_logit = || other.logits[last].total_cmp(&self.logits[last]);
        let by_token = || self.tokens[last].cmp(&other.tokens[last]);
        by_sum.then_with(|| self.rank(other, last)).then_with(by_logit).then_with(by_token)
    }

    fn score(&self, beam: &Beam) -> f64 {
        let sum = self.sums.last().unwrap() / ((5.0 + self.tokens.len() as f64) / 6.0).powf(beam.length);
        let covered: f64 = self.covered.iter().map(|sum| sum.clamp(1e-6, 1.0).ln()).sum();
        sum + beam.coverage * covered
    }

    fn has(&self, options: &Generation) -> usize {
        required(options).iter().filter(|token| self.tokens.contains(token)).count()
    }
}

/// Returns the required tokens without duplicates.
fn required(options: &Generation) -> BTreeSet<usize> {
    options.required.iter().map(|&token| token as usize).collect()
}

/// Returns the possible continuations of a sequence. `hopeless` includes continuations that can no longer get all
/// required tokens.
fn continuations(
    model: &FunctionModel,
    source: usize,
    path: &Path,
    options: &Generation,
    hopeless: bool,
) -> Vec<Path> {
    let mut history = vec![options.start];
    history.extend(path.tokens.iter().map(|&token| token as i64));
    let mut row = (model.logits)(source, &history);
    for (token, logit) in row.iter_mut().enumerate() {
        if path.tokens.contains(&token) && options.repetition != 1.0 {
            let x = f64::from(*logit);
            *logit = if x > 0.0 { x / options.repetition } else { x * options.repetition } as f32;
        }
    }
    let most = largest(&row).unwrap();
    if most == f32::NEG_INFINITY {
        return vec![];
    }
    let log_sum = log_sum_exp(&row, most);
    let mut covered = path.covered.clone();
    if let Some(attention) = &model.attention {
        let attended = attention(source, &history);
        covered.resize(attended.len(), 0.0);
        covered.iter_mut().zip(attended).for_each(|(sum, x)| *sum += f64::from(x));
    }
    let step = path.tokens.len();
    let prefix = match &options.prefixes {
        options::Prefixes::All(prefix) => prefix,
        options::Prefixes::Each(prefixes) => &prefixes[source],
    };
    let mut found = vec![];
    for (token, &logit) in row.iter().enumerate().filter(|(_, logit)| **logit > f32::NEG_INFINITY) {
        let stopped = options.stop == Some(token as i64);
        let refused = prefix.get(step).is_some_and(|&forced| forced != token as i64)
            || options.banned.contains(&(token as i64))
            || stopped && (step < options.min_steps || path.has(options) < required(options).len());
        if refused {
            continue;
        }
        let mut next = Path { covered: covered.clone(), stopped, ..path.clone() };
        next.tokens.push(token);
        next.sums.push(path.sums.last().unwrap_or(&0.0) + (f64::from(logit) - log_sum));
        next.logits.push(logit);
        let lacks = required(options).len() - next.has(options);
        if hopeless || lacks <= options.max_steps - next.tokens.len() {
            found.push(next);
        }
    }
    found
}

fn nothing() -> Path {
    Path { tokens: vec![], sums: vec![], logits: vec![], covered: vec![], stopped: false }
}

fn best_of(mut finished: Vec<Path>, beam: &Beam) -> Vec<(Vec<i64>, f64, bool)> {
    finished.sort_by(|a, b| {
        let by_length = || a.tokens.len().cmp(&b.tokens.len());
        b.score(beam).total_cmp(&a.score(beam)).then_with(by_length).then_with(|| a.rank(b, a.tokens.len()))
    });
    finished.truncate(beam.n_best);
    let plain = |path: Path| {
        let mut tokens: Vec<i64> = path.tokens.iter().map(|&token| token as i64).collect();
        if path.stopped {
            tokens.pop();
        }
        (tokens, path.score(beam), path.stopped)
    };
    finished.into_iter().map(plain).collect()
}

/// Returns the best of all possible sequences, for each source.
pub(super) fn exhaustive(model: &FunctionModel, sources: usize, options: &Generation, beam: &Beam) -> Plain {
    let search = |source| {
        let (mut open, mut finished) = (vec![nothing()], vec![]);
        while let Some(path) = open.pop() {
            for next in continuations(model, source, &path, options, true) {
                if next.stopped || next.tokens.len() == options.max_steps {
                    finished.push(next);
                } else {
                    open.push(next);
                }
            }
        }
        finished.retain(|path: &Path| path.has(options) == required(options).len());
        best_of(finished, beam)
    };
    (0..sources).map(search).collect()
}

/// Runs the documented beam search, but sorts all continuations.
pub(super) fn slow(model: &FunctionModel, sources: usize, options: &Generation, beam: &Beam) -> Plain {
    let search = |source| {
        let (mut running, mut finished) = (vec![nothing()], Vec::<Path>::new());
        for step in 1..=options.max_steps {
            let mut all: Vec<Path> =
                running.iter().flat_map(|path| continuations(model, source, path, options, false)).collect();
            all.sort_by(|a, b| a.rank(b, step));
            let take = |from: &[Path]| {
                let group = |n| from.iter().filter(move |path| path.has(options) == n);
                let sizes: Vec<usize> = (0..=required(options).len()).map(|n| group(n).count()).collect();
                let shares = deal(beam.width, &sizes);
                let mut taken: Vec<Path> =
                    shares.iter().enumerate().flat_map(|(n, &share)| group(n).take(share).cloned()).collect();
                taken.sort_by(|a, b| a.rank(b, step));
                taken
            };
            finished.extend(take(&all).into_iter().filter(|path| path.stopped));
            all.retain(|path| !path.stopped);
            running = take(&all);
            if step == options.max_steps {
                finished.append(&mut running);
            }
            let most = ((5.0 + options.max_steps as f64) / 6.0).powf(beam.length);
            let best = best_of(finished.clone(), beam);
            let bound = running.first().map(|path| path.sums[step - 1] / most);
            let worst = best.get(beam.n_best - 1).map(|one| one.1);
            if bound.zip(worst).is_some_and(|(bound, worst)| worst >= bound)
                || beam.early && finished.len() >= beam.width
            {
                break;
            }
        }
        best_of(finished, beam)
    };
    (0..sources).map(search).collect()
}
