//! The beam search of one source.

use std::cmp::Reverse;

use super::generated::FinishedHypothesis;
use super::hypotheses::{Best, Candidate, Tokens};
use super::options::Beam;
use super::rules::{Choice, Rules};
use super::steps::wrong_logit;
use crate::error::{Error, Result};
use crate::predict::logits::{from_threshold, largest, log_sum_exp};
use crate::reserve;

/// The least value of a sum of attention in the coverage penalty: a smaller sum counts as this number.
const LEAST_COVERED: f64 = 1e-6;

pub(super) struct Search<'a> {
    pub(super) source: usize,
    /// The position of the source's first running hypothesis in the list of all sources' running hypotheses.
    pub(super) first: usize,
    /// The running hypotheses, best first.
    pub(super) running: Vec<Running>,
    /// The error of the last step; `None` if the step succeeded.
    pub(super) failed: Option<Error>,
    rules: &'a Rules,
    beam: Beam,
    tokens: Tokens,
    /// The best continuations by tokens other than the stop token: group i has the continuations that contain i required tokens.
    groups: Vec<Best>,
    /// The continuations of running hypotheses by the stop token.
    stops: Vec<Candidate>,
    /// The attention sums of the coverage penalty: for each running hypothesis, the attention that each row of the source
    /// received so far. Empty without a coverage penalty.
    covered: Vec<f64>,
    /// The best finished hypotheses, best first, at most `n_best`.
    finished: Vec<HypothesisEnd>,
    /// The number of all hypotheses that were finished so far, including hypotheses that `finished` no longer has.
    finishes: usize,
}

/// A hypothesis that the search continues.
pub(super) struct Running {
    /// The rank of the hypothesis that this hypothesis continues, among the source's running hypotheses of the previous
    /// step.
    pub(super) parent: usize,
    pub(super) token: usize,
    last: Option<usize>,
    sum: f64,
    /// The required tokens that the hypothesis already has, as a set of bits.
    met: u64,
}

/// A hypothesis that ended with the stop token or at the maximal number of steps.
struct HypothesisEnd {
    last: Option<usize>,
    score: f64,
    stopped: bool,
}

/// The buffers of a thread; the sources that the thread works on use the buffers one after another.
#[derive(Default)]
pub(super) struct Scratch {
    logits: Vec<f32>,
    excluded: Vec<usize>,
}

/// The model's output at one step, for the running hypotheses of all sources.
#[derive(Clone, Copy)]
pub(super) struct StepOutput<'a> {
    pub(super) step: usize,
    pub(super) classes: usize,
    pub(super) logits: &'a [f32],
    /// The attention weights of all hypotheses, and the offsets at which the weights of each hypothesis begin and end; `None`
    /// without a coverage penalty.
    pub(super) attention: Option<(&'a [f32], &'a [usize])>,
}

impl<'a> Search<'a> {
    pub(super) fn new(rules: &'a Rules, beam: Beam, source: usize) -> Self {
        Self {
            source,
            first: source,
            running: vec![Running { parent: source, token: 0, last: None, sum: 0.0, met: 0 }],
            failed: None,
            rules,
            beam,
            tokens: Tokens::default(),
            groups: (0..=rules.required()).map(|_| Best::new(beam.width)).collect(),
            stops: Vec::new(),
            covered: Vec::new(),
            finished: Vec::new(),
            finishes: 0,
        }
    }

    /// Advances the search by one step: scores the continuations of the running hypotheses and selects the best.
    pub(super) fn step(&mut self, output: StepOutput<'_>, room: &mut Scratch) -> Result<()> {
        let StepOutput { step, classes, logits, attention } = output;
        if let Some((values, offsets)) = attention {
            self.attend(step, values, offsets)?;
        }
        let rows = logits[self.first * classes..].chunks_exact(classes);
        for (parent, row) in rows.enumerate().take(self.running.len()) {
            self.continuations(step, parent, row, room)?;
        }
        self.select(step);
        Ok(())
    }

    /// Adds the attention of this step to the attention sums of the running hypotheses.
    fn attend(&mut self, step: usize, values: &[f32], offsets: &[usize]) -> Result<()> {
        let running = self.running.len();
        let ends = offsets.get(self.first..=self.first + running);
        let weights = |ends: &[usize]| values.get(ends[0]..ends[1]);
        let rows = ends.and_then(|ends| ends.windows(2).map(weights).collect::<Option<Vec<&[f32]>>>());
        let positions = rows.as_ref().and_then(|rows| rows.first()).map_or(0, |row| row.len());
        if step == 0 {
            let what = "attention of a beam search";
            reserve::items(&mut self.covered, running.saturating_mul(positions), what)?;
            self.covered.resize(running * positions, 0.0);
        }
        let Some(rows) = rows.filter(|rows| {
            self.covered.len() == running * positions && rows.iter().all(|row| row.len() == positions)
        }) else {
            let what = format!("attention of source {} at step {step}", self.source);
            let expected = "the same number of weights for each hypothesis at each step";
            return Err(Error::new(what, expected, "different numbers of weights"));
        };
        for (sum, &value) in self.covered.iter_mut().zip(rows.into_iter().flatten()) {
            *sum += f64::from(value);
        }
        Ok(())
    }

    /// Adds the allowed continuations of running hypothesis `parent` to `groups` and `stops`.
    fn continuations(&mut self, step: usize, parent: usize, row: &[f32], room: &mut Scratch) -> Result<()> {
        let Self { rules, tokens, groups, stops, .. } = self;
        let Running { last, sum, met, .. } = self.running[parent];
        let Scratch { logits, excluded } = room;
        let most = largest(row).map_err(|wrong| wrong_logit(wrong, self.source, step))?;
        let (row, most) = rules.penalised(row, most, tokens.back(last), logits);
        if most == f32::NEG_INFINITY {
            return Ok(()); // a dead end: no token is possible
        }
        let log_sum = log_sum_exp(row, most);
        let with = |token: usize, logit: f32| {
            let sum = sum + (f64::from(logit) - log_sum);
            Candidate { sum, parent, logit, token }
        };
        let one = |groups: &mut [Best], token: usize| {
            if row[token] > f32::NEG_INFINITY {
                groups[rules.meet(met, token).count_ones() as usize].push(with(token, row[token]));
            }
        };
        let stop = match rules.choice(self.source, step, met) {
            Choice::Only(token) => {
                one(groups, token);
                return Ok(());
            }
            Choice::Missing => {
                rules.missing(met).for_each(|token| one(groups, token));
                return Ok(());
            }
            Choice::Any { stop } => stop,
        };
        rules.missing(met).for_each(|token| one(groups, token));
        excluded.clear();
        excluded.extend(rules.banned().iter().copied().chain(rules.missing(met)).chain(rules.stop()));
        excluded.sort_unstable();
        stops.extend(rules.stop().filter(|_| stop).map(|token| with(token, row[token])));
        stops.pop_if(|stop| stop.logit == f32::NEG_INFINITY);
        // No other token adds a required token to the hypothesis, so the continuations by these tokens stay in the
        // group of the hypothesis.
        let best = &mut groups[met.count_ones() as usize];
        let mut from = 0;
        for end in excluded.iter().copied().chain([row.len()]) {
            if from < end {
                let least = best.least_logit(sum, log_sum);
                from_threshold(&row[..end], from, least, |token, logit| {
                    best.push(with(token, logit));
                    best.least_logit(sum, log_sum)
                });
            }
            from = end + 1;
        }
        Ok(())
    }

    /// Selects the best continuations: continuations by the stop token finish hypotheses, and continuations by other tokens
    /// become the running hypotheses.
    fn select(&mut self, step: usize) {
        let width = self.beam.width;
        let mut groups: Vec<Vec<Candidate>> = self.groups.iter_mut().map(Best::take).collect();
        let mut sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
        let shares = deal(width, &sizes);
        // A hypothesis stops only after all required tokens, so continuations by the stop token compete in the last group.
        let mut ends = std::mem::take(&mut self.stops);
        ends.sort_unstable_by_key(|&end| Reverse(end));
        if let (Some(size), Some(complete)) = (sizes.last_mut(), groups.last()) {
            *size += ends.len();
            let share = deal(width, &sizes).last().copied().unwrap_or(0);
            let rank = |(i, end): (usize, &Candidate)| i + complete.partition_point(|other| other > end);
            let among = ends.iter().enumerate().take_while(|&one| rank(one) < share).count();
            ends.truncate(among);
        }
        groups.iter_mut().zip(shares).for_each(|(group, share)| group.truncate(share));
        let mut next = groups.concat();
        let stopping = ends.len();
        if step + 1 == self.rules.max_steps {
            ends.append(&mut next);
        }
        let mut ends: Vec<(Candidate, bool)> =
            ends.into_iter().enumerate().map(|(i, end)| (end, i < stopping)).collect();
        ends.sort_unstable_by_key(|end| Reverse(end.0));
        for (end, stopped) in ends {
            self.finish(step, end, stopped);
        }
        next.sort_unstable_by_key(|&one| Reverse(one));
        self.go_on(&next);
    }

    /// Finishes the hypothesis of the candidate `end`. The candidate's token is the stop token (`stopped`) or, at the maximal
    /// number of steps, any other token.
    fn finish(&mut self, step: usize, end: Candidate, stopped: bool) {
        let Beam { n_best, coverage, .. } = self.beam;
        let positions = self.covered.len() / self.running.len();
        let covered = &self.covered[end.parent * positions..][..positions];
        let uncovered: f64 = covered.iter().map(|sum| sum.clamp(LEAST_COVERED, 1.0).ln()).sum();
        let score = end.sum / self.length_penalty(step + 1) + coverage * uncovered;
        self.finishes += 1;
        let rank = self.finished.partition_point(|one| one.score >= score);
        if rank < n_best {
            let before = self.running[end.parent].last;
            let last = if stopped { before } else { Some(self.tokens.push(before, end.token)) };
            self.finished.insert(rank, HypothesisEnd { last, score, stopped });
            self.finished.truncate(n_best);
        }
    }

    fn length_penalty(&self, length: usize) -> f64 {
        ((5.0 + length as f64) / 6.0).powf(self.beam.length)
    }

    /// Makes the candidates `next` the running hypotheses, unless the search of the source ends.
    fn go_on(&mut self, next: &[Candidate]) {
        let Beam { width, n_best, early, .. } = self.beam;
        // An upper bound of the score of every candidate: the score of the best candidate if all further tokens had probability
        // 1 and all rows were covered.
        let bound = next.first().map(|first| first.sum / self.length_penalty(self.rules.max_steps));
        let worst = self.finished.get(n_best - 1).map(|one| one.score);
        let hopeless = bound.zip(worst).is_some_and(|(bound, worst)| worst >= bound);
        let before = std::mem::take(&mut self.running);
        if hopeless || (early && self.finishes >= width) {
            return;
        }
        let positions = self.covered.len() / before.len();
        if positions > 0 {
            let rows = next.iter().map(|one| &self.covered[one.parent * positions..][..positions]);
            self.covered = rows.collect::<Vec<_>>().concat();
        }
        let (rules, tokens) = (self.rules, &mut self.tokens);
        let running = |one: &Candidate| {
            let parent = &before[one.parent];
            let last = Some(tokens.push(parent.last, one.token));
            let met = rules.meet(parent.met, one.token);
            Running { parent: one.parent, token: one.token, last, sum: one.sum, met }
        };
        self.running = next.iter().map(running).collect();
    }

    /// Returns the finished hypotheses, best first.
    pub(super) fn found(self) -> Vec<FinishedHypothesis> {
        let Self { tokens, finished, .. } = self;
        let found = |HypothesisEnd { last, score, stopped }| FinishedHypothesis {
            tokens: tokens.of(last),
            score,
            stopped,
        };
        finished.into_iter().map(found).collect()
    }
}

/// Divides `places` among groups of these sizes: the groups take turns to get a place, and the last group begins.
pub(super) fn deal(places: usize, sizes: &[usize]) -> Vec<usize> {
    let mut shares = vec![0; sizes.len()];
    let mut left = places.min(sizes.iter().sum());
    while left > 0 {
        for (share, size) in shares.iter_mut().zip(sizes).rev() {
            if left > 0 && *share < *size {
                *share += 1;
                left -= 1;
            }
        }
    }
    shares
}
