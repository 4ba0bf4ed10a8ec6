//! The hypotheses of one source: a tree of tokens, and a heap of the best continuations.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// The tokens of hypotheses, as a tree: hypotheses that begin with the same tokens share these tokens.
#[derive(Default)]
pub(super) struct Tokens(Vec<(Option<usize>, usize)>);

impl Tokens {
    /// Appends a token to hypothesis `before` (`None`: an empty hypothesis); returns the index of the new hypothesis.
    pub(super) fn push(&mut self, before: Option<usize>, token: usize) -> usize {
        self.0.push((before, token));
        self.0.len() - 1
    }

    /// Iterates over the tokens of a hypothesis, last first.
    pub(super) fn back(&self, last: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(last, |&at| self.0[at].0).map(|at| self.0[at].1)
    }

    pub(super) fn of(&self, last: Option<usize>) -> Vec<i64> {
        let mut tokens: Vec<i64> = self.back(last).map(|token| token as i64).collect();
        tokens.reverse();
        tokens
    }
}

/// A candidate: a running hypothesis and its next token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    /// The sum of the log-probabilities of all tokens of the candidate, including the next token.
    pub(super) sum: f64,
    /// The rank of the running hypothesis that the candidate continues.
    pub(super) parent: usize,
    pub(super) logit: f32,
    pub(super) token: usize,
}

/// The order of candidates: a better candidate is greater.
impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_parent = || other.parent.cmp(&self.parent);
        let by_token = || other.token.cmp(&self.token);
        // Zeros with different signs count as equal logits.
        let by_logit = || self.logit.partial_cmp(&other.logit).unwrap_or(Ordering::Equal);
        self.sum.total_cmp(&other.sum).then_with(by_parent).then_with(by_logit).then_with(by_token)
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// The best candidates that were pushed; at most `most` are kept.
pub(super) struct Best {
    most: usize,
    /// A heap with the worst of the kept candidates on top.
    heap: BinaryHeap<Reverse<Candidate>>,
}

impl Best {
    pub(super) fn new(most: usize) -> Self {
        Self { most, heap: BinaryHeap::new() }
    }

    pub(super) fn push(&mut self, candidate: Candidate) {
        if self.heap.len() < self.most {
            self.heap.push(Reverse(candidate));
        } else if let Some(mut worst) = self.heap.peek_mut()
            && candidate > worst.0
        {
            worst.0 = candidate;
        }
    }

    /// Returns a threshold for the logits of one hypothesis: a candidate with a smaller logit is not among the best. The sum of a
    /// candidate is its logit plus `sum - log_sum`. The threshold is slightly too low, to allow for rounding: a candidate with a
    /// logit above the threshold may still not be among the best.
    pub(super) fn least_logit(&self, sum: f64, log_sum: f64) -> f32 {
        match self.heap.peek() {
            Some(Reverse(worst)) if self.heap.len() >= self.most => {
                let least = worst.sum - sum + log_sum;
                let slack = 1e-6 * least.abs() + 1e-9 * (worst.sum.abs() + sum.abs() + log_sum.abs() + 1e-20);
                ((least - slack) as f32).max(f32::MIN)
            }
            _ => f32::MIN,
        }
    }

    /// Removes and returns all candidates, best first.
    pub(super) fn take(&mut self) -> Vec<Candidate> {
        let heap = std::mem::take(&mut self.heap);
        heap.into_sorted_vec().into_iter().map(|Reverse(candidate)| candidate).collect()
    }
}
