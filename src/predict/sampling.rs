//! Sampling the next token from a model's distribution.

use super::logits::{block_sums, first_largest, largest, weigh};
use crate::error::{Error, Result};
use crate::kernels::philox;

/// Options for drawing a class from logits: temperature, top-k, top-p (nucleus) and typical sampling.
///
/// The logits are divided by the temperature. Then `top_k`, `top_p` and `typical` exclude classes, in this order; each of the
/// three options uses the probabilities among the classes that are left.
///
/// ```
/// use unpadded::predict::Sampling;
/// let logits = [1.0f32, 3.0, 2.0];
/// let likeliest = Sampling::default().temperature(0.0);
/// assert_eq!(likeliest.sampler(1)?.draw(&logits)?, 1);
/// let mut one_of_two = Sampling::default().top_k(2).sampler(1)?;
/// let drawn = (0..100).map(|_| one_of_two.draw(&logits)).collect::<unpadded::Result<Vec<_>>>()?;
/// assert!(drawn.contains(&1) && drawn.contains(&2) && !drawn.contains(&0));
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    pub(crate) temperature: f64,
    pub(crate) top_k: Option<usize>,
    pub(crate) top_p: f64,
    pub(crate) typical: f64,
}

impl Default for Sampling {
    /// The default options: draws from the distribution of the model, without changes.
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: 1.0, typical: 1.0 }
    }
}

impl Sampling {
    /// Temperature: the divisor of the logits (default: 1). A temperature below 1 makes likely tokens likelier; at 0, the
    /// likeliest token is always drawn.
    #[must_use]
    pub fn temperature(self, temperature: f64) -> Self {
        Self { temperature, ..self }
    }

    /// Top-k: only the `top_k` likeliest tokens can be drawn (default: `None`, for all tokens).
    #[must_use]
    pub fn top_k(self, top_k: impl Into<Option<usize>>) -> Self {
        Self { top_k: top_k.into(), ..self }
    }

    /// Top-p: keeps the likeliest tokens until their probabilities sum to at least `top_p`. Only kept tokens can be
    /// drawn (default: 1, which keeps all tokens).
    #[must_use]
    pub fn top_p(self, top_p: f64) -> Self {
        Self { top_p, ..self }
    }

    /// Typical sampling: keeps the most typical tokens until their probabilities sum to at least `typical`. Only kept
    /// tokens can be drawn (default: 1, which keeps all tokens). A token with a smaller `|-ln p - H|` is more typical,
    /// where p is the probability of the token and `H` is the entropy of the distribution. The likeliest token may
    /// therefore be excluded. (C. Meister, T. Pimentel, G. Wiher, R. Cotterell, Locally typical sampling, 2022.)
    #[must_use]
    pub fn typical(self, typical: f64) -> Self {
        Self { typical, ..self }
    }

    /// Makes a sampler; its draws depend only on the seed and the logits.
    ///
    /// # Errors
    /// If the temperature is negative or not finite; if `top_k` is 0; or if `top_p` or `typical` is not above 0 and at most 1.
    #[track_caller]
    pub fn sampler(self, seed: u64) -> Result<Sampler> {
        let Self { temperature, top_k, top_p, typical } = self;
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return Err(Error::new("temperature", "a finite number from 0 on", temperature.to_string()));
        }
        if top_k == Some(0) {
            return Err(Error::new("top_k", "at least 1", "0"));
        }
        for (what, share) in [("top_p", top_p), ("typical", typical)] {
            if !(share > 0.0 && share <= 1.0) {
                return Err(Error::new(what, "a number above 0 and at most 1", share.to_string()));
            }
        }
        Ok(Sampler { sampling: self, seed, drawn: 0, room: Scratch::default() })
    }
}

/// A sampler: draws classes by the options of a [`Sampling`].
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    seed: u64,
    drawn: u64,
    room: Scratch,
}

/// Two samplers are equal if their settings, seeds and numbers of draws so far are equal; equal samplers draw the same
/// classes from the same logits.
impl PartialEq for Sampler {
    fn eq(&self, other: &Self) -> bool {
        let state = |one: &Self| (one.sampling, one.seed, one.drawn);
        state(self) == state(other)
    }
}

impl Sampler {
    /// Draws a class and returns its index. If two logits are equal, the class with the smaller index is treated as likelier.
    ///
    /// # Errors
    /// If no logit is above negative infinity, or if a logit is NaN or positive infinity.
    #[track_caller]
    pub fn draw(&mut self, logits: &[f32]) -> Result<i64> {
        let drawn = self.draw_at(0, self.drawn, logits)?;
        // At temperature 0, a draw uses no random number, so it is not counted.
        self.drawn += u64::from(self.sampling.temperature != 0.0);
        Ok(drawn)
    }

    /// Returns draw number `step` of the random sequence `sequence`, independently of all earlier draws. The draw
    /// depends only on the seed, `sequence`, `step` and the logits; several sequences can therefore be drawn in any
    /// order and on any thread. [`Self::draw`] makes the draws of sequence 0, step by step.
    ///
    /// ```
    /// use unpadded::predict::Sampling;
    /// let logits = [0.0f32; 1000];
    /// let mut sampler = Sampling::default().sampler(1)?;
    /// let (first, second) = (sampler.draw(&logits)?, sampler.draw(&logits)?);
    /// assert_eq!((sampler.draw_at(0, 1, &logits)?, sampler.draw_at(0, 0, &logits)?), (second, first));
    /// assert_ne!(sampler.draw_at(1, 0, &logits)?, first);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::draw`].
    #[track_caller]
    pub fn draw_at(&mut self, sequence: u64, step: u64, logits: &[f32]) -> Result<i64> {
        let most = match largest(logits) {
            Ok(most) => most,
            Err(wrong) => return Err(Error::new("logits to draw from", "finite logits", wrong.to_string())),
        };
        let Some(first) = first_largest(logits, most) else {
            return Err(Error::new("logits to draw from", "at least one above negative infinity", "none"));
        };
        if self.sampling.temperature == 0.0 {
            return Ok(first as i64);
        }
        let low = |number: u64| number as u32;
        let high = |number: u64| (number >> 32) as u32;
        let counter = [low(step), high(step), low(sequence), high(sequence)];
        let [a, b, ..] = philox(counter, [low(self.seed), high(self.seed)]);
        let share = (u64::from(a) << 32 | u64::from(b)) as f64 / 2f64.powi(64);
        Ok(self.room.pick(self.sampling, logits, most, share).unwrap_or(first) as i64)
    }
}

/// The maximum number of buckets into which classes are divided by rank; only the classes of one bucket are then sorted.
const GROUPS: usize = 2048;
/// The maximum number of sort keys that are sorted; a longer list of keys is first halved repeatedly until it has at
/// most this length.
const FEW: usize = 32;

/// The buffers of a draw, kept from draw to draw.
#[derive(Debug, Clone, Default)]
struct Scratch {
    /// The weight of each class; the weight of an excluded class is 0.
    weights: Vec<f32>,
    /// The rank of each class, where a larger rank is better; a class that cannot be drawn has rank 0.
    ranks: Vec<u32>,
    /// For each bucket of ranks, the number of its classes (for top-k) or the sum of their weights.
    sums: Vec<f64>,
    /// The sort keys of the classes in one bucket; see [`key`].
    keys: Vec<u64>,
}

/// Makes a sort key: a larger rank gives a larger key. If two ranks are equal, the smaller index gives the larger key.
fn key(rank: u32, index: usize) -> u64 {
    u64::from(rank) << 32 | u64::from(!(index as u32))
}

fn index(key: u64) -> usize {
    !(key as u32) as usize
}

/// Maps a float to an integer that sorts in the same order.
fn rank(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits(); // no negative zero
    bits ^ ((bits as i32 >> 31) as u32 | 1 << 31)
}

impl Scratch {
    /// Returns the class at which the cumulative sum of the weights reaches the fraction `share` (0 to 1) of the total.
    /// `most` is the finite maximum of the logits.
    fn pick(&mut self, sampling: Sampling, logits: &[f32], most: f32, share: f64) -> Option<usize> {
        let Sampling { temperature, top_k, top_p, typical } = sampling;
        let scale = (1.0 / temperature).min(f64::MAX);
        weigh(logits, most, scale, &mut self.weights);
        if let Some(k) = top_k.filter(|&k| k < logits.len()) {
            self.rank_all(logits, 0.0, rank);
            self.keep_best(k as f64, |_| 1.0);
        }
        if top_p < 1.0 {
            let total = self.total();
            // Classes with weights far below the average are not ranked: together, they weigh less than the share that may be
            // excluded, so none of them is needed.
            let few = ((1.0 - top_p) * total / logits.len() as f64) as f32 * 0.999;
            self.rank_all(logits, few, rank);
            self.keep_best(top_p * total, f64::from);
        }
        if typical < 1.0 {
            let total = self.total();
            let power = |x: f32| (f64::from(x) - f64::from(most)) * scale;
            let each = self.weights.iter().zip(logits).filter(|(weight, _)| **weight > 0.0);
            let mean = each.map(|(&weight, &x)| f64::from(weight) * power(x)).sum::<f64>() / total;
            // For a class of probability p: -ln p = ln(total) - power; the entropy H is the mean of -ln p.
            self.rank_all(logits, 0.0, |x| !(((mean - power(x)).abs()) as f32).to_bits());
            self.keep_best(typical * total, f64::from);
        }
        self.at(share)
    }

    fn total(&self) -> f64 {
        block_sums(&self.weights).map(|(_, sum)| sum).sum()
    }

    /// Computes the rank of each class from its logit; a class with a weight of at most `above` gets rank 0.
    fn rank_all(&mut self, logits: &[f32], above: f32, rank: impl Fn(f32) -> u32) {
        let each = self.weights.iter().zip(logits);
        self.ranks.clear();
        self.ranks.extend(each.map(|(&weight, &x)| if weight > above { rank(x) } else { 0 }));
    }

    /// Keeps the best-ranked classes until their contributions sum to at least `enough`. The weights of all other
    /// classes become 0. `adds` returns the contribution of a class from its weight.
    fn keep_best(&mut self, enough: f64, adds: impl Fn(f32) -> f64) {
        let Self { weights, ranks, sums, keys } = self;
        let looked_at = |rank: &&u32| **rank > 0;
        let lowest = ranks.iter().filter(looked_at).fold(u32::MAX, |a, &b| a.min(b));
        let highest = ranks.iter().fold(0, |a, &b| a.max(b));
        let bits = u32::BITS - highest.saturating_sub(lowest).leading_zeros();
        let shift = bits.saturating_sub(GROUPS.ilog2());
        let group = |rank: u32| ((rank - lowest) >> shift) as usize;
        sums.clear();
        sums.resize(GROUPS, 0.0);
        for (&rank, &weight) in ranks.iter().zip(&*weights).filter(|(rank, _)| **rank > 0) {
            sums[group(rank)] += adds(weight);
        }
        // Visits the buckets, the best ranks first, until the contributions reach `enough`; of the last bucket, only some
        // classes are kept.
        let (mut have, mut last) = (0.0, 0);
        for (i, &sum) in sums.iter().enumerate().rev().filter(|(_, sum)| **sum > 0.0) {
            last = i;
            if have + sum >= enough {
                break;
            }
            have += sum;
        }
        let ranked = ranks.iter().enumerate().filter(|(_, rank)| **rank > 0 && group(**rank) == last);
        keys.clear();
        keys.extend(ranked.map(|(i, &rank)| key(rank, i)));
        let least = least(keys, |key| adds(weights[index(key)]), enough - have);
        let (least_rank, last_index) = ((least >> 32) as u32, index(least));
        for (i, (weight, &rank)) in weights.iter_mut().zip(&*ranks).enumerate() {
            let kept = rank > least_rank || (rank == least_rank && i <= last_index);
            *weight = if kept { *weight } else { 0.0 };
        }
    }

    /// Returns the first class at which the cumulative sum of the weights exceeds `share` times the total.
    fn at(&self, share: f64) -> Option<usize> {
        let (sought, mut upto, mut start) = (share * self.total(), 0.0, 0);
        for (block, sum) in block_sums(&self.weights) {
            if upto + sum > sought {
                let mut inside = upto;
                let reaches = |&weight: &f32| {
                    inside += f64::from(weight);
                    weight > 0.0 && inside > sought
                };
                if let Some(found) = block.iter().position(reaches) {
                    return Some(start + found);
                }
            }
            upto += sum;
            start += block.len();
        }
        // This line is reached only if rounding has made `sought` at least the sum of all weights.
        self.weights.iter().rposition(|&weight| weight > 0.0)
    }
}

/// Returns the largest key for which the contributions of this key and of all larger keys sum to at least `enough`. If
/// even the sum over all keys is smaller, returns the least key. Each round of the search halves the number of keys
/// that are left.
fn least(keys: &mut [u64], adds: impl Fn(u64) -> f64, enough: f64) -> u64 {
    let (mut open, mut have) = (keys, 0.0);
    while open.len() > FEW {
        let middle = open.len() / 2;
        open.select_nth_unstable(middle);
        let (worse, better) = open.split_at_mut(middle);
        let sum = have + better.iter().map(|&key| adds(key)).sum::<f64>();
        if sum >= enough {
            open = better;
        } else {
            (open, have) = (worse, sum);
        }
    }
    open.sort_unstable_by(|a, b| b.cmp(a));
    let found = open.iter().find(|key| {
        have += adds(**key);
        have >= enough
    });
    found.or(open.last()).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts how often each of four classes is drawn in 4000 draws.
    fn counts(sampling: Sampling, logits: &[f32; 4]) -> [i32; 4] {
        let (mut sampler, mut counts) = (sampling.sampler(7).unwrap(), [0; 4]);
        (0..4000).for_each(|_| counts[sampler.draw(logits).unwrap() as usize] += 1);
        counts
    }

    fn close(counts: [i32; 4], shares: [f64; 4]) {
        let far = counts.iter().zip(shares).any(|(&n, share)| (f64::from(n) / 4000.0 - share).abs() > 0.03);
        assert!(!far, "{counts:?} for {shares:?}");
    }

    #[test]
    fn as_often_as_said() {
        let logits = [0.1f32, 0.2, 0.3, 0.4].map(f32::ln);
        let all = Sampling::default();
        close(counts(all, &logits), [0.1, 0.2, 0.3, 0.4]);
        close(counts(Sampling { temperature: 0.5, ..all }, &logits), [1.0, 4.0, 9.0, 16.0].map(|w| w / 30.0));
        let two = counts(Sampling { top_k: Some(2), ..all }, &logits);
        close(two, [0.0, 0.0, 3.0 / 7.0, 4.0 / 7.0]);
        assert_eq!(two[..2], [0, 0]);
        let most = counts(Sampling { top_p: 0.75, ..all }, &logits); // 0.4 + 0.3 is not enough
        close(most, [0.0, 2.0 / 9.0, 3.0 / 9.0, 4.0 / 9.0]);
        assert_eq!(most[0], 0);
        assert_eq!(counts(Sampling { top_p: 1e-9, ..all }, &logits), [0, 0, 0, 4000]);
        assert_eq!(counts(Sampling { temperature: 1e-300, ..all }, &logits), [0, 0, 0, 4000]);
        // The entropy of the distribution is 1.28; -ln 0.3 = 1.2, -ln 0.2 = 1.61, and -ln 0.4 = 0.92.
        let typical = counts(Sampling { typical: 0.45, ..all }, &logits);
        close(typical, [0.0, 2.0 / 5.0, 3.0 / 5.0, 0.0]);
        assert_eq!((typical[0], typical[3]), (0, 0));
        close(counts(Sampling { typical: 0.25, ..all }, &logits), [0.0, 0.0, 1.0, 0.0]);
        // Among the two likeliest classes (3/7 and 4/7), the entropy is 0.683. For the first class, -ln p differs from
        // the entropy by 0.164; for the second class, by 0.123.
        let both = Sampling { top_k: Some(2), typical: 0.5, ..all };
        close(counts(both, &logits), [0.0, 0.0, 0.0, 1.0]);
        assert_eq!(counts(all, &[f32::NEG_INFINITY, f32::MAX, f32::NEG_INFINITY, f32::MIN]), [0, 4000, 0, 0]);
    }

    #[test]
    fn the_same_by_the_same_seed() {
        let draws = |seed| {
            let mut sampler = Sampling::default().sampler(seed).unwrap();
            (0..50).map(|_| sampler.draw(&[0.0; 9]).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
        assert_ne!(draws(1), draws(1 << 32 | 1));
    }

    /// Computes the set of classes that can be drawn, by a slow reference algorithm.
    fn possible(sampling: Sampling, logits: &[f32]) -> Vec<usize> {
        let mut left: Vec<usize> = (0..logits.len()).filter(|&i| logits[i] > f32::NEG_INFINITY).collect();
        let share = |left: &[usize]| {
            let w: Vec<f64> =
                left.iter().map(|&i| (f64::from(logits[i]) / sampling.temperature).exp()).collect();
            let total: f64 = w.iter().sum();
            w.into_iter().map(|w| w / total).collect::<Vec<f64>>()
        };
        left.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        left.truncate(sampling.top_k.unwrap_or(usize::MAX));
        let retain = |left: &mut Vec<usize>, p: &[f64], enough: f64| {
            let mut sum = 0.0;
            let at = p.iter().position(|p| {
                sum += p;
                sum >= enough
            });
            left.truncate(at.map_or(left.len(), |at| at + 1));
        };
        if sampling.top_p < 1.0 {
            let p = share(&left);
            retain(&mut left, &p, sampling.top_p);
        }
        if sampling.typical < 1.0 {
            let p = share(&left);
            let entropy: f64 = -p.iter().map(|p| p * p.ln()).sum::<f64>();
            let mut by: Vec<(f64, usize, f64)> =
                p.iter().zip(&left).map(|(&p, &i)| ((-p.ln() - entropy).abs(), i, p)).collect();
            by.sort_by(|a, b| a.0.total_cmp(&b.0));
            left = by.iter().map(|one| one.1).collect();
            let p: Vec<f64> = by.iter().map(|one| one.2).collect();
            retain(&mut left, &p, sampling.typical);
        }
        left.sort_unstable();
        left
    }

    #[test]
    fn what_may_be_drawn_is_found_without_sorting() {
        let mut room = Scratch::default();
        for case in 0..60u64 {
            let len = [3, 33, 500][case as usize % 3];
            let number = |i: u64| f64::from(philox([i as u32, case as u32, 0, 0], [5, 6])[0]) / 2f64.powi(32);
            let mut logits: Vec<f32> = (0..len).map(|i| (number(i) * 12.0 - 3.0) as f32).collect();
            if case % 2 == 0 {
                logits[1] = f32::NEG_INFINITY;
            }
            let all = Sampling { temperature: 0.5 + number(1000), ..Sampling::default() };
            let options = [
                all,
                Sampling { top_k: Some(1 + case as usize), ..all },
                Sampling { top_p: number(1001), ..all },
                Sampling { typical: number(1002), ..all },
                Sampling { top_k: Some(40), top_p: 0.9, typical: 0.8, ..all },
            ];
            for sampling in options {
                let most = largest(&logits).unwrap();
                room.pick(sampling, &logits, most, 0.5);
                let left: Vec<usize> = (0..logits.len()).filter(|&i| room.weights[i] > 0.0).collect();
                assert_eq!(left, possible(sampling, &logits), "case {case}, {sampling:?}");
                let (first, last) =
                    (room.pick(sampling, &logits, most, 0.0), room.pick(sampling, &logits, most, 1.0));
                assert_eq!((first, last), (left.first().copied(), left.last().copied()));
            }
        }
    }

    #[test]
    fn equal_ones_are_left_by_their_places() {
        let (mut room, logits) = (Scratch::default(), [1.0f32; 100]);
        let all = Sampling::default();
        let options = [
            (Sampling { top_k: Some(7), ..all }, 7),
            (Sampling { top_p: 0.1, ..all }, 10),
            (Sampling { typical: 0.5, ..all }, 50),
        ];
        for (sampling, count) in options {
            room.pick(sampling, &logits, 1.0, 0.5);
            assert!(room.weights.iter().enumerate().all(|(i, w)| (i < count) == (*w > 0.0)), "{sampling:?}");
        }
        assert!(
            rank(-0.0) == rank(0.0) && rank(-1.0) < rank(0.0) && rank(f32::NEG_INFINITY) < rank(f32::MIN)
        );
    }

    #[test]
    fn what_does_not_make_sense() {
        let wrong = |sampling: Sampling| sampling.sampler(1).unwrap_err().to_string();
        let all = Sampling::default();
        assert!(
            wrong(Sampling { temperature: -1.0, ..all })
                .contains("temperature: expected a finite number from 0 on")
        );
        assert!(wrong(Sampling { temperature: f64::NAN, ..all }).contains("got NaN"));
        assert!(wrong(Sampling { top_k: Some(0), ..all }).contains("top_k: expected at least 1"));
        assert!(wrong(Sampling { top_p: 0.0, ..all }).contains("above 0"));
        assert!(wrong(Sampling { typical: 1.5, ..all }).contains("typical: expected a number above 0"));
        let mut sampler = all.sampler(1).unwrap();
        assert!(sampler.draw(&[]).is_err() && sampler.draw(&[f32::NEG_INFINITY]).is_err());
        assert!(sampler.draw(&[1.0, f32::NAN]).unwrap_err().to_string().contains("got NaN"));
        assert!(sampler.draw(&[f32::INFINITY]).is_err());
    }
}
