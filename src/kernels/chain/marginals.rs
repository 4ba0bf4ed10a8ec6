//! Sums over all paths of a chain: the log-sum-exp of the path scores, the probability of each tag in each row, and the
//! probability of each pair of successive tags.

use super::transitions::{LANES, Transitions};
use super::vanished::{SMALL, VanishedMass};
use crate::kernels::float::Float;
use crate::kernels::path::{Arithmetic, Sweep, sweep};
use crate::kernels::product::lengthen;
use crate::kernels::view::View;

/// Scratch of [`log_sum`] and [`marginals`], which the caller reuses for the next sequence.
#[derive(Debug, Default)]
pub struct ChainRoom {
    /// For each row and tag, e^score, divided by the largest e^score of the row. If the computation uses logarithms, each
    /// element is the score itself.
    rows: Vec<f64>,
    /// For each row and tag, two sums over partial paths. `alpha` sums the paths from the start to the tag, divided by the
    /// sum of the row. `beta` sums the paths from the tag to the end, divided by the largest number of the row. If the
    /// computation uses logarithms, `alpha` and `beta` hold the logarithms of the undivided sums.
    alpha: Vec<f64>,
    beta: Vec<f64>,
    /// For each row, the sum of `alpha` over the tags, before `alpha` is divided by this sum.
    sums: Vec<f64>,
    step: Vec<f64>,
}

impl ChainRoom {
    /// Returns the size in bytes of a room for `tags` tags and sequences of up to `longest` rows.
    pub fn bytes_of(longest: usize, tags: usize) -> usize {
        let stride = tags.next_multiple_of(LANES);
        longest.saturating_mul(3 * stride + 1).saturating_mul(size_of::<f64>())
            + 2 * stride * size_of::<f64>()
    }
}

/// For each pair of successive tags, the sum of the pair's probability over rows and sequences. The shape is `[tags + 2,
/// tags]`: the last two rows are for the first tag and for the last tag of a sequence. Each row is padded to a multiple of
/// the vector length.
#[derive(Debug, Clone, Default)]
pub struct PairSums {
    stride: usize,
    /// The sums that still lack the factor e^score of their pair of tags; [`Self::get`] multiplies by this factor.
    scaled: Vec<f64>,
    /// The sums that already have this factor; [`Self::get`] adds them to the multiplied sums.
    whole: Vec<f64>,
}

impl PairSums {
    /// Resets all sums to zero, for the number of tags in `transitions`.
    pub fn start(&mut self, transitions: &Transitions) {
        self.stride = transitions.stride;
        self.scaled.clear();
        self.scaled.resize(transitions.tags * self.stride, 0.0);
        self.whole.clear();
        self.whole.resize((transitions.tags + 2) * self.stride, 0.0);
    }

    /// Adds `more` to the sum in row `row` and column `tag`.
    pub fn add(&mut self, row: usize, tag: usize, more: f64) {
        self.whole[row * self.stride + tag] += more;
    }

    /// Sets all sums to NaN, except for forbidden pairs.
    fn spoil(&mut self, transitions: &Transitions) {
        for (sum, &score) in self.whole.iter_mut().zip(&transitions.scores) {
            if score != f64::NEG_INFINITY {
                *sum = f64::NAN;
            }
        }
    }

    /// Adds the sums that were computed for other sequences.
    pub fn join(&mut self, others: &Self) {
        for (own, others) in [(&mut self.scaled, &others.scaled), (&mut self.whole, &others.whole)] {
            own.iter_mut().zip(others).for_each(|(own, other)| *own += other);
        }
    }

    /// Returns the sum in row `row` and column `tag`.
    pub fn get(&self, transitions: &Transitions, row: usize, tag: usize) -> f64 {
        let index = row * self.stride + tag;
        let scaled = self.scaled.get(index).map_or(0.0, |sum| sum * transitions.forth[index]);
        scaled + self.whole[index]
    }
}

/// Returns the logarithm of the sum of e^score over all paths of a sequence.
///
/// The result is 0 for a sequence without rows, minus infinity if every path is forbidden, and NaN if a score is NaN or
/// infinite.
pub fn log_sum<T: Float>(transitions: &Transitions, rows: View<'_, T>, room: &mut ChainRoom) -> f64 {
    sweep(LogSum { transitions, rows, room }).0
}

/// Computes the probability of each tag in each row, and passes the probabilities to `each`, row by row. Returns the
/// result of [`log_sum`]. If `pairs` is given, also adds the probability of each pair of successive tags, times the
/// given weight, to the sums.
///
/// All probabilities are 0 if every path is forbidden, and NaN if the sum over all paths is NaN. If the sum is NaN, the sums
/// in `pairs` also become NaN, except for forbidden pairs, so that the NaN is visible after summing over all sequences.
pub fn marginals<T: Float>(
    transitions: &Transitions,
    rows: View<'_, T>,
    room: &mut ChainRoom,
    pairs: Option<(&mut PairSums, f64)>,
    mut each: impl FnMut(usize, &[f64]),
) -> f64 {
    let (total, vanished) = sweep(LogSum { transitions, rows, room });
    let (count, stride) = (rows.rows(), transitions.stride);
    if !total.is_finite() {
        room.step.clear();
        room.step.resize(transitions.tags, if total.is_nan() { f64::NAN } else { 0.0 });
        (0..count).for_each(|row| each(row, &room.step));
        if let (Some((pairs, _)), true) = (pairs, total.is_nan()) {
            pairs.spoil(transitions);
        }
        return total;
    }
    let by_numbers =
        vanished.is_some_and(|vanished| sweep(BackwardSums { transitions, room, count, vanished }));
    if by_numbers {
        sweep(Multiplied { transitions, room, count, pairs });
    } else {
        if vanished.is_some() {
            log_sums(transitions, rows, room);
        }
        by_logarithms(transitions, (room, total), count, pairs);
    }
    for (row, numbers) in room.alpha.chunks_exact(stride.max(1)).take(count).enumerate() {
        each(row, &numbers[..transitions.tags]);
    }
    total
}

/// Computes the vector-matrix product out = x · table; each row of `table` has `stride` numbers.
#[inline(always)]
fn product<A: Arithmetic>(x: &[f64], table: &[f64], stride: usize, out: &mut [f64]) {
    let mut at = 0;
    // The loop takes two chunks at a time: the CPU adds to the sums of one chunk while it waits for the sums of the other
    // chunk.
    while at + 2 * LANES <= stride {
        columns::<A, { 2 * LANES }>(x, table, (stride, at), out);
        at += 2 * LANES;
    }
    if at < stride {
        columns::<A, LANES>(x, table, (stride, at), out);
    }
}

#[inline(always)]
fn columns<A: Arithmetic, const N: usize>(
    x: &[f64],
    table: &[f64],
    (stride, at): (usize, usize),
    out: &mut [f64],
) {
    let mut sums = [0.0; N];
    for (row, &x) in table.chunks_exact(stride).zip(x) {
        let Some(row) = row[at..].first_chunk::<N>() else { continue };
        for (sum, &y) in sums.iter_mut().zip(row) {
            *sum = A::mul_add(x, y, *sum);
        }
    }
    out[at..at + N].copy_from_slice(&sums);
}

/// Returns the smallest number above 0 in a slice; infinity if no number is above 0.
#[inline(always)]
fn least(x: &[f64]) -> f64 {
    let mut least = [f64::INFINITY; LANES];
    for chunk in x.as_chunks::<LANES>().0 {
        for (least, &x) in least.iter_mut().zip(chunk) {
            *least = if x > 0.0 && x < *least { x } else { *least };
        }
    }
    least.into_iter().fold(f64::INFINITY, f64::min)
}

/// Returns the sum of a slice, computed in an order that depends only on the length.
#[inline(always)]
fn sum(x: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    for chunk in x.as_chunks::<LANES>().0 {
        sums.iter_mut().zip(chunk).for_each(|(sum, &x)| *sum += x);
    }
    sums.into_iter().sum()
}

struct LogSum<'a, T> {
    transitions: &'a Transitions,
    rows: View<'a, T>,
    room: &'a mut ChainRoom,
}

impl<T: Float> Sweep for LogSum<'_, T> {
    /// The log-sum-exp of the path scores, and the bound on underflow; the bound is `None` if the scratch holds logarithms.
    type Output = (f64, Option<VanishedMass>);
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) -> Self::Output {
        let Self { transitions, rows, room } = self;
        let &Transitions {
            tags,
            stride,
            ref forth,
            ref first,
            ref last,
            most,
            growth,
            least: least_pair,
            ..
        } = transitions;
        let mut vanished = VanishedMass::new();
        let count = rows.rows();
        if count == 0 {
            return (0.0, Some(vanished));
        }
        lengthen(&mut room.rows, count * stride);
        lengthen(&mut room.alpha, count * stride);
        lengthen(&mut room.sums, count);
        let (smallest, small) =
            if size_of::<T>() == 4 { (f64::from(f32::MIN_POSITIVE), 1.2e-38) } else { (SMALL, SMALL) };
        let mut total = most[1] + most[2];
        for (row, scores) in rows.iter().enumerate() {
            let e = &mut room.rows[row * stride..(row + 1) * stride];
            let largest = scores.iter().fold(T::NEG_INFINITY, |most, &x| if x > most { x } else { most });
            let shift = if largest > T::NEG_INFINITY { largest } else { T::ZERO };
            for (e, &x) in e.iter_mut().zip(scores) {
                *e = (x - shift).exp_with::<A>().to_f64();
            }
            e[tags..].fill(0.0);
            let mut least_score = f64::INFINITY;
            let mut tiny = false;
            for (&e, &x) in e.iter().zip(scores) {
                least_score = if e > 0.0 && e < least_score { e } else { least_score };
                tiny |= e < smallest && x > T::NEG_INFINITY;
            }
            let (before, alpha) = room.alpha.split_at_mut(row * stride);
            let alpha = &mut alpha[..stride];
            let most_grown = match row {
                0 => {
                    alpha.copy_from_slice(first);
                    if least(first) * least_score < SMALL {
                        vanished.some(SMALL * tags as f64);
                    }
                    0.0
                }
                _ => {
                    let before = &before[(row - 1) * stride..];
                    if least(before) * least_pair * least_score < SMALL {
                        vanished.some(SMALL * tags as f64);
                    }
                    product::<A>(&before[..tags], forth, stride, alpha);
                    total += most[0];
                    growth[0]
                }
            };
            for (alpha, &e) in alpha.iter_mut().zip(&*e) {
                *alpha *= e;
            }
            let of_row = sum(alpha);
            room.sums[row] = of_row;
            if of_row.is_nan() {
                return (f64::NAN, Some(vanished));
            }
            if tiny {
                vanished.some(small * tags as f64);
            }
            if of_row < SMALL {
                // A row sum this small means that the sum underflowed or that all paths are forbidden.
                return log_sums(transitions, rows, room);
            }
            let scale = 1.0 / of_row;
            alpha.iter_mut().for_each(|x| *x *= scale);
            let grown = of_row.ln();
            vanished.step(most_grown, grown);
            total += grown + shift.to_f64();
        }
        let alpha = &room.alpha[(count - 1) * stride..count * stride];
        let ends: f64 = alpha.iter().zip(last).map(|(alpha, last)| alpha * last).sum();
        match vanished.is_unseen(ends) && ends > SMALL {
            true => (total + ends.ln(), Some(vanished)),
            false => log_sums(transitions, rows, room),
        }
    }
}

/// Returns ln Σ e^x over the given numbers; minus infinity if there are no numbers.
pub(in crate::kernels) fn log_sum_exp(numbers: impl Iterator<Item = f64> + Clone) -> f64 {
    let most =
        numbers.clone().fold(f64::NEG_INFINITY, |most, x| if x > most || x.is_nan() { x } else { most });
    if most == f64::NEG_INFINITY { most } else { most + numbers.map(|x| (x - most).exp()).sum::<f64>().ln() }
}

/// Computes `alpha`, the sums over the paths from the start to each tag, with logarithms.
#[inline(never)]
fn log_sums<T: Float>(
    transitions: &Transitions,
    rows: View<'_, T>,
    room: &mut ChainRoom,
) -> (f64, Option<VanishedMass>) {
    let &Transitions { tags, stride, .. } = transitions;
    for (row, scores) in rows.iter().enumerate() {
        for (tag, &score) in scores.iter().enumerate() {
            let score = score.to_f64();
            room.rows[row * stride + tag] = score;
            let before = match row {
                0 => transitions.end(tag)[0],
                _ => {
                    let before = &room.alpha[(row - 1) * stride..];
                    log_sum_exp((0..tags).map(|from| before[from] + transitions.pair(from, tag)))
                }
            };
            room.alpha[row * stride + tag] = before + score;
        }
    }
    let last = &room.alpha[(rows.rows() - 1) * stride..];
    (log_sum_exp((0..tags).map(|tag| last[tag] + transitions.end(tag)[1])), None)
}

/// Computes `beta`, the sums over the paths from each tag to the end. Returns whether underflow certainly did not change the
/// sums.
struct BackwardSums<'a> {
    transitions: &'a Transitions,
    room: &'a mut ChainRoom,
    count: usize,
    vanished: VanishedMass,
}

impl Sweep for BackwardSums<'_> {
    type Output = bool;
    const PORTABLE: bool = false;

    #[inline(always)]
    fn run<A: Arithmetic>(self) -> bool {
        let Self { transitions, room, count, vanished: forth } = self;
        let &Transitions { tags, stride, ref back, ref last, growth, least: least_pair, .. } = transitions;
        let ChainRoom { rows, alpha, beta, step, sums } = room;
        lengthen(beta, count * stride);
        step.resize(stride.max(step.len()), 0.0);
        let (mut vanished, mut least_part) = (VanishedMass::new(), f64::INFINITY);
        for row in (0..count).rev() {
            let at = row * stride;
            if row + 1 == count {
                beta[at..at + stride].copy_from_slice(last);
            } else {
                let (own, behind) = beta.split_at_mut(at + stride);
                let (own, behind, e) =
                    (&mut own[at..], &behind[..stride], &rows[at + stride..at + 2 * stride]);
                for ((step, &b), &e) in step.iter_mut().zip(behind).zip(e) {
                    *step = b * e;
                }
                if least(behind) * least_pair * least(e) < SMALL {
                    vanished.some(SMALL * tags as f64);
                }
                product::<A>(&step[..tags], back, stride, own);
                let most = own.iter().copied().fold(0.0, f64::max);
                if most < SMALL {
                    return false;
                }
                let scale = 1.0 / most;
                own.iter_mut().for_each(|x| *x *= scale);
                if forth.once() > 0.0 {
                    vanished.some(forth.once());
                }
                if vanished.anything() {
                    vanished.step(growth[1], most.ln());
                }
            }
            // The bound on underflow is relative to Σ alpha · beta of this row. This sum is small if the tags with a
            // large `alpha` have a small `beta`.
            let part: f64 =
                alpha[at..at + stride].iter().zip(&beta[at..at + stride]).map(|(a, b)| a * b).sum();
            if part.min(part * sums[row]) < SMALL {
                return false;
            }
            least_part = least_part.min(part);
        }
        forth.is_unseen(least_part) && vanished.is_unseen(least_part)
    }
}

/// Multiplies `alpha` and `beta`, which gives the probability of each tag in each row.
struct Multiplied<'a, 'b> {
    transitions: &'a Transitions,
    room: &'a mut ChainRoom,
    count: usize,
    pairs: Option<(&'b mut PairSums, f64)>,
}

impl Sweep for Multiplied<'_, '_> {
    type Output = ();
    const PORTABLE: bool = false;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let Self { transitions: &Transitions { tags, stride, .. }, room, count, .. } = self;
        let ChainRoom { rows, alpha, beta, sums, step } = room;
        for row in (0..count).rev() {
            let at = row * stride;
            let (before, own) = alpha.split_at_mut(at);
            let (own, beta, e) = (&mut own[..stride], &beta[at..at + stride], &rows[at..at + stride]);
            let mut part = [0.0; LANES];
            for (own, beta) in own.as_chunks::<LANES>().0.iter().zip(beta.as_chunks::<LANES>().0) {
                (0..LANES).for_each(|i| part[i] += own[i] * beta[i]);
            }
            let part: f64 = part.into_iter().sum();
            let scale = 1.0 / part;
            own.iter_mut().zip(beta).for_each(|(own, beta)| *own *= beta * scale);
            let Some((pairs, weight)) = &mut self.pairs else { continue };
            let weight = *weight;
            if row + 1 == count {
                (0..tags).for_each(|tag| pairs.add(tags + 1, tag, weight * own[tag]));
            }
            if row == 0 {
                (0..tags).for_each(|tag| pairs.add(tags, tag, weight * own[tag]));
                continue;
            }
            let scale = weight / (sums[row] * part);
            for ((step, &b), &e) in step.iter_mut().zip(beta).zip(e) {
                *step = b * e * scale;
            }
            let before = &before[at - stride..][..tags];
            for (sums, &before) in pairs.scaled.chunks_exact_mut(stride).zip(before) {
                for (sum, &step) in sums.iter_mut().zip(&step[..stride]) {
                    *sum = A::mul_add(before, step, *sum);
                }
            }
        }
    }
}

/// Computes the probabilities of tags and pairs from the logarithms in `alpha` and the row scores in `rows`.
#[inline(never)]
fn by_logarithms(
    transitions: &Transitions,
    (room, total): (&mut ChainRoom, f64),
    count: usize,
    mut pairs: Option<(&mut PairSums, f64)>,
) {
    let &Transitions { tags, stride, .. } = transitions;
    let ChainRoom { rows, alpha, beta, .. } = room;
    lengthen(beta, count * stride);
    for row in (0..count).rev() {
        let (own, behind) = beta.split_at_mut((row + 1) * stride);
        for (from, own) in own[row * stride..][..tags].iter_mut().enumerate() {
            *own = match row + 1 == count {
                true => transitions.end(from)[1],
                false => {
                    let e = &rows[(row + 1) * stride..];
                    log_sum_exp((0..tags).map(|to| transitions.pair(from, to) + e[to] + behind[to]))
                }
            };
        }
    }
    for row in (0..count).rev() {
        let at = row * stride;
        if let (Some((pairs, weight)), true) = (&mut pairs, row > 0) {
            for (from, to) in (0..tags).flat_map(|from| (0..tags).map(move |to| (from, to))) {
                let path =
                    alpha[at - stride + from] + transitions.pair(from, to) + rows[at + to] + beta[at + to];
                pairs.add(from, to, *weight * (path - total).exp());
            }
        }
        for tag in 0..tags {
            let likely = (alpha[at + tag] + beta[at + tag] - total).exp();
            alpha[at + tag] = likely;
            let Some((pairs, weight)) = &mut pairs else { continue };
            for (is_end, end) in [(row == 0, tags), (row + 1 == count, tags + 1)] {
                if is_end {
                    pairs.add(end, tag, *weight * likely);
                }
            }
        }
    }
}
