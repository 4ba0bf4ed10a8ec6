//! The scores of pairs of successive tags (transitions) in a linear chain.

use super::vanished::SMALL;
use crate::kernels::float::Float;
use crate::kernels::view::View;

/// The number of columns of each score table is rounded up to a multiple of this number, so that vector loops have no
/// remainder.
pub(super) const LANES: usize = 16;

/// The scores of pairs of successive tags, prepared once for any number of sequences.
#[derive(Debug, Default)]
pub struct Transitions {
    pub(super) tags: usize,
    /// The number of columns of a score table: the number of tags, rounded up to a multiple of [`LANES`].
    pub(super) stride: usize,
    /// The score table: one row per preceding tag, then a row with the scores of the first tag and a row with the scores of
    /// the last tag. Minus infinity marks a forbidden pair, and fills the padding columns.
    pub(super) scores: Vec<f64>,
    /// The factors e^score, each divided by the largest factor of its table. `forth` has one row per preceding tag, and
    /// `back` is the transpose of `forth`. `first` and `last` have the factors of the first and of the last tag.
    pub(super) forth: Vec<f64>,
    pub(super) back: Vec<f64>,
    pub(super) first: Vec<f64>,
    pub(super) last: Vec<f64>,
    /// Three maxima: the largest score of a pair, the largest score of a first tag, and the largest score of a last tag.
    pub(super) most: [f64; 3],
    /// The logarithms of the largest factors by which a forward step and a backward step can grow a sum: the largest
    /// row sum of `forth`, and the largest row sum of `back`.
    pub(super) growth: [f64; 2],
    /// The smallest number above 0 in `forth`, `first` and `last`; the smallest normal f64 if a factor in these tables may
    /// underflow.
    pub(super) least: f64,
}

impl Transitions {
    /// Returns the size in bytes of the transitions between `tags` tags.
    pub fn bytes_of(tags: usize) -> usize {
        // The scores, the factors of pairs in both orders (`forth` and `back`), and the factors of the first and the
        // last tag.
        (3 * tags + 4).saturating_mul(tags.next_multiple_of(LANES)).saturating_mul(size_of::<f64>())
    }

    /// Prepares a score table of shape `[tags + 2, tags]`: one row per preceding tag, then the scores of the first tag and
    /// of the last tag. The score of each pair in `forbidden` becomes minus infinity.
    pub fn prepare<T: Float>(&mut self, scores: View<'_, T>, forbidden: &[i64]) {
        let tags = scores.width();
        let stride = tags.next_multiple_of(LANES);
        (self.tags, self.stride) = (tags, stride);
        self.scores.clear();
        self.scores.resize((tags + 2) * stride, f64::NEG_INFINITY);
        for (row, scores) in scores.iter().enumerate() {
            for (to, &score) in scores.iter().enumerate() {
                self.scores[row * stride + to] = score.to_f64();
            }
        }
        for index in forbidden.iter().filter_map(|&index| usize::try_from(index).ok()) {
            if let Some(score) = self.scores.get_mut(index / tags.max(1) * stride + index % tags.max(1)) {
                *score = f64::NEG_INFINITY;
            }
        }
        let largest = |scores: &[f64]| {
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if most == f64::NEG_INFINITY { 0.0 } else { most }
        };
        let (pairs, ends) = self.scores.split_at(tags * stride);
        let (first, last) = ends.split_at(stride);
        self.most = [largest(pairs), largest(first), largest(last)];
        for (to, scores, most) in [
            (&mut self.forth, pairs, self.most[0]),
            (&mut self.first, first, self.most[1]),
            (&mut self.last, last, self.most[2]),
        ] {
            to.clear();
            to.extend(scores.iter().map(|score| (score - most).exp()));
        }
        self.back.clear();
        self.back.resize(tags * stride, 0.0);
        for from in 0..tags {
            for to in 0..tags {
                self.back[to * stride + from] = self.forth[from * stride + to];
            }
        }
        let growth = |table: &[f64]| {
            table.chunks(stride.max(1)).map(|row| row.iter().sum::<f64>()).fold(0.0, f64::max).ln()
        };
        self.growth = [growth(&self.forth), growth(&self.back)];
        let all = self.forth.iter().chain(&self.first).chain(&self.last);
        self.least = all.copied().filter(|&x| x > 0.0).fold(1.0, f64::min);
        // The factor e^score of an allowed pair of tags may underflow, even to 0.
        for (scores, most) in [(pairs, self.most[0]), (first, self.most[1]), (last, self.most[2])] {
            if scores.iter().any(|&score| score > f64::NEG_INFINITY && (score - most).exp() < SMALL) {
                self.least = f64::MIN_POSITIVE;
            }
        }
    }

    /// Returns the score of tag `to` after tag `from`.
    pub fn pair(&self, from: usize, to: usize) -> f64 {
        self.scores[from * self.stride + to]
    }

    /// Returns the score of a tag as the first tag of a sequence, and its score as the last tag.
    pub fn end(&self, tag: usize) -> [f64; 2] {
        [self.pair(self.tags, tag), self.pair(self.tags + 1, tag)]
    }

    /// Returns the total score of a path.
    pub fn score<T: Float>(&self, rows: View<'_, T>, path: impl Iterator<Item = usize>) -> f64 {
        let (mut score, mut before) = (0.0, None);
        for (row, tag) in rows.iter().zip(path) {
            score += before.map_or_else(|| self.end(tag)[0], |before| self.pair(before, tag));
            score += row[tag].to_f64();
            before = Some(tag);
        }
        score + before.map_or(0.0, |tag| self.end(tag)[1])
    }
}
