//! Connectionist temporal classification (CTC): the total probability of all alignments of labels to frames, with blanks between
//! the labels (Graves et al., "Connectionist temporal classification: labelling unsegmented sequence data with recurrent neural
//! networks", 2006).
//!
//! The states of a sequence are its labels, with a blank before the first label, between labels and after the last label.
//! The sums over alignments are computed from probabilities; in each frame, the sums of all states are divided by their total.
//! If underflow could change the result, the sequence is computed again with logarithms. All arithmetic is in f64.

use super::chain::{SMALL, VanishedMass, log_sum_exp};
use super::float::Float;
use super::path::{Arithmetic, Sweep, sweep};
use super::product::{emptied, lengthen};
use super::view::View;

/// Scratch of [`ctc`] and [`ctc_gradient`], which the caller reuses for the next sequence.
#[derive(Debug, Default)]
pub struct CtcRoom {
    /// The probability of each class in each frame.
    classes: Vec<f64>,
    /// The logarithm of Σ e^logit over the classes, for each frame.
    totals: Vec<f64>,
    /// The class of each state: a label or the blank.
    states: Vec<usize>,
    /// For each state `s`, 1 if state `s` may directly follow state `s − 2`, else 0. As in all arrays that are indexed by
    /// state, two entries of padding precede the entry of state 0.
    skips: Vec<f64>,
    /// The probability of each state's class in the current frame.
    own: Vec<f64>,
    /// For each frame and state, two sums over partial alignments: from the first frame to the state (`alpha`), and from the
    /// state to the last frame (`beta`).
    alpha: Vec<f64>,
    beta: Vec<f64>,
}

/// The number of padding entries before the states of a frame. A state may follow each of the two states before it. For
/// states 0 and 1, padding entries with probability 0 replace the missing states.
const BEFORE: usize = 2;

impl CtcRoom {
    /// Returns the size in bytes of a room for `classes` classes, and for sequences of up to `frames` frames and
    /// `labels` labels.
    pub fn bytes_of(frames: usize, classes: usize, labels: usize) -> usize {
        let states = 2 * labels + 1;
        let width = states + BEFORE;
        let of_frame = classes.saturating_add(1).saturating_add(2 * width);
        let numbers = frames.saturating_mul(of_frame).saturating_add(2 * width);
        numbers.saturating_mul(size_of::<f64>()).saturating_add(states * size_of::<usize>())
    }

    fn start<T: Float>(
        &mut self,
        logits: View<'_, T>,
        labels: impl ExactSizeIterator<Item = usize>,
        blank: usize,
    ) {
        emptied(&mut self.states, 2 * labels.len() + 1).push(blank);
        for label in labels {
            self.states.extend([label, blank]);
        }
        emptied(&mut self.skips, self.states.len() + BEFORE).resize(BEFORE, 0.0);
        for (state, &class) in self.states.iter().enumerate() {
            let skips = class != blank && state >= 2 && self.states[state - 2] != class;
            self.skips.push(f64::from(u8::from(skips)));
        }
        let (frames, width) = (logits.rows(), self.width());
        // The padding entries before the states stay 0.
        for sums in [&mut self.alpha, &mut self.beta] {
            emptied(sums, frames * width).resize(frames * width, 0.0);
        }
        emptied(&mut self.own, width).resize(width, 0.0);
        lengthen(&mut self.classes, frames * logits.width());
        lengthen(&mut self.totals, frames);
    }

    /// Returns the number of array entries per frame: the states and the padding before them.
    fn width(&self) -> usize {
        self.states.len() + BEFORE
    }
}

/// Returns the CTC loss: −ln of the total probability of all alignments of the labels to the frames of a sequence. The loss
/// is infinite if no alignment exists, and NaN if a logit is NaN.
pub fn ctc<T: Float>(
    logits: View<'_, T>,
    labels: impl ExactSizeIterator<Item = usize>,
    blank: usize,
    room: &mut CtcRoom,
) -> f64 {
    room.start(logits, labels, blank);
    -sweep(CtcForward { logits, room }).0
}

/// Returns the loss as [`ctc`] does, and passes the gradient of the logits to `each`, frame by frame, one number per class.
/// The gradient is zero if the loss is infinite, and NaN if the loss is NaN.
pub fn ctc_gradient<T: Float>(
    logits: View<'_, T>,
    labels: impl ExactSizeIterator<Item = usize>,
    blank: usize,
    room: &mut CtcRoom,
    mut each: impl FnMut(usize, &[f64]),
) -> f64 {
    room.start(logits, labels, blank);
    let (total, vanished) = sweep(CtcForward { logits, room });
    let (frames, classes) = (logits.rows(), logits.width());
    if total.is_finite() {
        let by_numbers =
            vanished.is_some_and(|vanished| sweep(CtcBackward { room, classes, frames, vanished }));
        if !by_numbers {
            if vanished.is_some() {
                log_forth(logits, room);
            }
            log_back(logits, room, total);
        }
    } else {
        room.classes.fill(if total.is_nan() { f64::NAN } else { 0.0 });
    }
    for (frame, numbers) in room.classes.chunks_exact(classes.max(1)).take(frames).enumerate() {
        each(frame, numbers);
    }
    -total
}

/// Writes the probability of each state's class to `own`.
#[inline(always)]
fn gather(own: &mut [f64], states: &[usize], classes: &[f64]) {
    own.iter_mut().zip(states).for_each(|(own, &class)| *own = classes[class]);
}

/// Returns the smallest number above 0 (infinity if there is none) and the largest number of a slice.
#[inline(always)]
fn bounds(x: &[f64]) -> (f64, f64) {
    x.iter().fold((f64::INFINITY, 0.0), |(least, most), &x| {
        (if x > 0.0 && x < least { x } else { least }, if x > most { x } else { most })
    })
}

/// Divides the numbers of a slice by their sum, and returns the sum.
#[inline(always)]
fn normalise(x: &mut [f64]) -> f64 {
    const LANES: usize = 8;
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for chunk in chunks {
        (0..LANES).for_each(|i| sums[i] += chunk[i]);
    }
    let sum = sums.into_iter().sum::<f64>() + rest.iter().sum::<f64>();
    let scale = 1.0 / sum;
    x.iter_mut().for_each(|x| *x *= scale);
    sum
}

struct CtcForward<'a, T> {
    logits: View<'a, T>,
    room: &'a mut CtcRoom,
}

impl<T: Float> Sweep for CtcForward<'_, T> {
    /// The logarithm of the total probability, and the bound on underflow; the bound is `None` if the scratch holds
    /// logarithms.
    type Output = (f64, Option<VanishedMass>);
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) -> Self::Output {
        let Self { logits, room } = self;
        let (frames, classes, width) = (logits.rows(), logits.width(), room.width());
        let count = width - BEFORE;
        let mut vanished = VanishedMass::new();
        if frames == 0 {
            return (if count == 1 { 0.0 } else { f64::NEG_INFINITY }, Some(vanished));
        }
        if count / 2 > frames {
            return (f64::NEG_INFINITY, Some(vanished));
        }
        let narrow = size_of::<T>() == 4;
        let smallest = if narrow { f64::from(f32::MIN_POSITIVE) } else { SMALL };
        let mut total = 0.0;
        for (frame, scores) in logits.iter().enumerate() {
            let likely = &mut room.classes[frame * classes..(frame + 1) * classes];
            let most = scores.iter().fold(T::NEG_INFINITY, |most, &x| if x > most { x } else { most });
            let shift = if most > T::NEG_INFINITY { most } else { T::ZERO };
            for (e, &x) in likely.iter_mut().zip(scores) {
                *e = (x - shift).exp_with::<A>().to_f64();
            }
            let tiny = likely.iter().zip(scores).any(|(&e, &x)| e < smallest && x > T::NEG_INFINITY);
            let sum = normalise(likely);
            if sum.is_nan() {
                return (f64::NAN, Some(vanished));
            }
            if sum == 0.0 {
                return (f64::NEG_INFINITY, Some(vanished));
            }
            room.totals[frame] = sum.ln() + shift.to_f64();
            let own = &mut room.own[BEFORE..];
            gather(own, &room.states, likely);
            let (least_own, most_own) = bounds(own);
            let (before, alpha) = room.alpha.split_at_mut(frame * width);
            let alpha = &mut alpha[..width];
            if frame == 0 {
                let starts = count.min(2);
                alpha[BEFORE..BEFORE + starts].copy_from_slice(&own[..starts]);
            } else {
                let before = &before[(frame - 1) * width..];
                if bounds(before).0 * least_own < SMALL {
                    vanished.some(SMALL * count as f64);
                }
                let (one, two) = (&before[1..], &before[..count]);
                let alpha = &mut alpha[BEFORE..];
                for state in 0..count {
                    let sum = A::mul_add(
                        room.skips[BEFORE + state],
                        two[state],
                        before[BEFORE + state] + one[state],
                    );
                    alpha[state] = sum * own[state];
                }
            }
            if tiny {
                vanished.some(smallest * count as f64);
            }
            let grown = normalise(&mut alpha[BEFORE..]);
            if grown.is_nan() {
                return (f64::NAN, Some(vanished));
            }
            if grown < SMALL {
                return log_forth(logits, room);
            }
            // The factor by which a sum grows is at most the total probability of the three states that may follow a
            // state. Their classes differ, so this total is at most 1.
            let most_grown = (3.0 * most_own).min(1.0).ln();
            let grown = grown.ln();
            vanished.step(most_grown, grown);
            total += grown;
        }
        let last = &room.alpha[frames * width - count.min(2)..frames * width];
        let ends: f64 = last.iter().sum();
        match ends > SMALL && vanished.is_unseen(ends) {
            true => (total + ends.ln(), Some(vanished)),
            false => log_forth(logits, room),
        }
    }
}

/// Computes `alpha` as logarithms: for each frame and state, the log of the sum over partial alignments from the first frame to
/// this state.
#[inline(never)]
fn log_forth<T: Float>(logits: View<'_, T>, room: &mut CtcRoom) -> (f64, Option<VanishedMass>) {
    let width = room.width();
    let count = width - BEFORE;
    for (frame, scores) in logits.iter().enumerate() {
        room.totals[frame] = log_sum_exp(scores.iter().map(|x| x.to_f64()));
        if room.totals[frame] == f64::NEG_INFINITY {
            return (f64::NEG_INFINITY, None);
        }
        for state in 0..count {
            let at = frame * width + BEFORE + state;
            let lead = match frame {
                0 if state < 2 => 0.0,
                0 => f64::NEG_INFINITY,
                _ => {
                    log_sum_exp(from(room, state, false).map(|other| room.alpha[at - width - state + other]))
                }
            };
            room.alpha[at] = lead + scores[room.states[state]].to_f64() - room.totals[frame];
        }
    }
    let end = logits.rows() * width;
    let total = log_sum_exp(room.alpha[end - count.min(2)..end].iter().copied());
    (total, None)
}

/// Returns the states that may precede a state; if `on` is set, the states that may follow it.
fn from(room: &CtcRoom, state: usize, on: bool) -> impl Iterator<Item = usize> + Clone {
    let count = room.states.len();
    let at = move |step: usize| if on { Some(state + step) } else { state.checked_sub(step) };
    let skips = |state: usize| room.skips.get(BEFORE + state).is_some_and(|&skips| skips > 0.0);
    let far = if on { skips(state + 2) } else { skips(state) };
    [at(0), at(1), at(2).filter(|_| far)].into_iter().flatten().filter(move |&other| other < count)
}

/// Computes the gradients from probabilities, and returns whether underflow certainly did not change the gradients. If
/// underflow may have changed the gradients, the caller computes them again with logarithms.
struct CtcBackward<'a> {
    room: &'a mut CtcRoom,
    classes: usize,
    frames: usize,
    vanished: VanishedMass,
}

impl Sweep for CtcBackward<'_> {
    type Output = bool;
    const PORTABLE: bool = false;

    #[inline(always)]
    fn run<A: Arithmetic>(self) -> bool {
        let Self { room, classes, frames, vanished: forth } = self;
        let width = room.width();
        let count = width - BEFORE;
        let CtcRoom { classes: likely, states, skips, own, alpha, beta, .. } = room;
        let (mut vanished, mut least_part) = (VanishedMass::new(), f64::INFINITY);
        // The loop runs backward in time and mirrors the loop of the forward sums.
        for frame in (0..frames).rev() {
            let at = frame * width;
            if frame + 1 == frames {
                for state in count.saturating_sub(2)..count {
                    beta[at + state] = 1.0;
                }
            } else {
                let (mine, behind) = beta.split_at_mut(at + width);
                let (mine, behind) = (&mut mine[at..], &mut behind[..width]);
                gather(own, states, &likely[(frame + 1) * classes..(frame + 2) * classes]);
                own[count..].fill(0.0);
                let (least_own, most_own) = bounds(&own[..count]);
                if bounds(behind).0 * least_own < SMALL {
                    vanished.some(SMALL * count as f64);
                }
                if forth.once() > 0.0 {
                    vanished.some(forth.once());
                }
                own.iter_mut().zip(&*behind).for_each(|(own, behind)| *own *= behind);
                for state in 0..count {
                    let skip = skips.get(state + 2 * BEFORE).copied().unwrap_or(0.0);
                    let far = own[state + 2];
                    mine[state] = A::mul_add(skip, far, own[state] + own[state + 1]);
                }
                let most = bounds(&mine[..count]).1;
                if most < SMALL {
                    return false;
                }
                let scale = 1.0 / most;
                mine.iter_mut().for_each(|x| *x *= scale);
                if vanished.anything() {
                    vanished.step((3.0 * most_own).min(1.0).ln(), most.ln());
                }
            }
            let part: f64 = alpha[at + BEFORE..at + width].iter().zip(&beta[at..]).map(|(a, b)| a * b).sum();
            if part < SMALL {
                return false;
            }
            least_part = least_part.min(part);
        }
        if !(forth.is_unseen(least_part) && vanished.is_unseen(least_part)) {
            return false;
        }
        for frame in 0..frames {
            let at = frame * width;
            let own = &mut own[..count];
            for ((own, a), b) in own.iter_mut().zip(&alpha[at + BEFORE..]).zip(&beta[at..]) {
                *own = a * b;
            }
            normalise(own);
            let likely = &mut likely[frame * classes..(frame + 1) * classes];
            for (&class, &part) in states.iter().zip(&*own) {
                likely[class] -= part;
            }
        }
        true
    }
}

/// Computes the gradients with logarithms; `alpha` holds logarithms, too.
#[inline(never)]
fn log_back<T: Float>(logits: View<'_, T>, room: &mut CtcRoom, total: f64) {
    let (classes, width) = (logits.width(), room.width());
    let count = width - BEFORE;
    for frame in (0..logits.rows()).rev() {
        let scores = logits.row(frame);
        let at = frame * width;
        for state in 0..count {
            room.beta[at + state] = match frame + 1 == logits.rows() {
                true if state + 2 >= count => 0.0,
                true => f64::NEG_INFINITY,
                false => {
                    let behind = logits.row(frame + 1);
                    log_sum_exp(from(room, state, true).map(|other| {
                        let own = behind[room.states[other]].to_f64() - room.totals[frame + 1];
                        room.beta[at + width + other] + own
                    }))
                }
            };
        }
        let likely = &mut room.classes[frame * classes..(frame + 1) * classes];
        for (likely, &x) in likely.iter_mut().zip(scores) {
            *likely = (x.to_f64() - room.totals[frame]).exp();
        }
        for (state, &class) in room.states.iter().enumerate() {
            likely[class] -= (room.alpha[at + BEFORE + state] + room.beta[at + state] - total).exp();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::checks::numbers;

    /// Enumerates all alignments of labels to frames. Returns ln of the sum of their probabilities, and, for each frame
    /// and class, the share of this sum that comes from alignments with the class in the frame.
    fn all_ways(likely: &[Vec<f64>], labels: &[usize], blank: usize) -> (f64, Vec<Vec<f64>>) {
        let (frames, classes) = (likely.len(), likely.first().map_or(1, Vec::len));
        let mut ways = Vec::new();
        for way in 0..classes.pow(frames as u32) {
            let way: Vec<usize> =
                (0..frames).map(|frame| way / classes.pow(frame as u32) % classes).collect();
            let mut collapsed = way.clone();
            collapsed.dedup();
            collapsed.retain(|&class| class != blank);
            if collapsed == labels {
                let p: f64 = way.iter().zip(likely).map(|(&class, likely)| likely[class]).sum();
                ways.push((way, p));
            }
        }
        let total = log_sum_exp(ways.iter().map(|way| way.1));
        let mut parts = vec![vec![0.0; classes]; frames];
        for (way, p) in ways {
            way.iter().zip(&mut parts).for_each(|(&class, parts)| parts[class] += (p - total).exp());
        }
        (total, parts)
    }

    #[test]
    fn losses_and_gradients_are_those_over_all_ways() {
        let mut room = CtcRoom::default();
        for (frames, classes, blank) in [(1, 2, 0), (4, 3, 0), (5, 3, 2), (6, 2, 1), (0, 3, 0), (3, 1, 0)] {
            for scale in [1.0, 30.0, 300.0] {
                for labels in [vec![], vec![1], vec![1, 1], vec![0, 1], vec![1, 0, 1], vec![1, 1, 1, 1]] {
                    let labels: Vec<usize> = labels.iter().map(|&l| (l + 1 + blank) % classes).collect();
                    if labels.contains(&blank) {
                        continue;
                    }
                    let logits: Vec<f64> =
                        numbers::<f64>(frames * classes, 4).iter().map(|x| scale * x).collect();
                    let view = View::new(&logits, frames, classes);
                    let likely: Vec<Vec<f64>> = view
                        .iter()
                        .map(|row| {
                            let total = log_sum_exp(row.iter().copied());
                            row.iter().map(|x| x - total).collect()
                        })
                        .collect();
                    let (total, parts) = all_ways(&likely, &labels, blank);
                    let case = format!("{labels:?} of {classes} in {frames} frames at {scale}");
                    let near = |a: f64, b: f64| a == b || (a - b).abs() < 1e-10 * b.abs().max(1.0);
                    let loss = ctc(view, labels.iter().copied(), blank, &mut room);
                    assert!(near(loss, -total), "{case}: {loss} for {}", -total);
                    let again =
                        ctc_gradient(view, labels.iter().copied(), blank, &mut room, |frame, slopes| {
                            for (class, &slope) in slopes.iter().enumerate() {
                                let expected = match total.is_finite() {
                                    true => likely[frame][class].exp() - parts[frame][class],
                                    false => 0.0,
                                };
                                assert!((slope - expected).abs() < 1e-10, "{case}: {slope} for {expected}");
                            }
                        });
                    assert_eq!(again.to_bits(), loss.to_bits(), "{case}");
                }
            }
        }
    }

    /// Each case is computed with probabilities and with logarithms.
    #[test]
    fn long_sequences_have_the_same_numbers_both_ways() {
        for (frames, labels, scale) in [(300, 40, 1.0), (300, 40, 12.0), (120, 110, 40.0), (50, 3, 100.0)] {
            let classes = 9;
            let logits: Vec<f64> = numbers::<f64>(frames * classes, 7).iter().map(|x| scale * x).collect();
            let narrow: Vec<f32> = logits.iter().map(|&x| x as f32).collect();
            let logits: Vec<f64> = narrow.iter().map(|&x| x.into()).collect();
            let labels: Vec<usize> = (0..labels).map(|i| 1 + i * 5 % 8).collect();
            let (view, narrow) = (View::new(&logits, frames, classes), View::new(&narrow, frames, classes));
            let (mut room, mut logs) = (CtcRoom::default(), CtcRoom::default());
            let mut found = Vec::new();
            let keep = |_: usize, slopes: &[f64]| found.extend_from_slice(slopes);
            let loss = ctc_gradient(view, labels.iter().copied(), 0, &mut room, keep);
            logs.start(view, labels.iter().copied(), 0);
            let (total, _) = log_forth(view, &mut logs);
            log_back(view, &mut logs, total);
            assert!((loss + total).abs() < 1e-9 * total.abs(), "{frames} frames at {scale}: {loss} {total}");
            let farthest = |found: &[f64]| {
                found.iter().zip(&logs.classes).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
            };
            assert!(farthest(&found) < 1e-9, "{frames} frames at {scale}: {}", farthest(&found));
            let mut found = Vec::new();
            let keep = |_: usize, slopes: &[f64]| found.extend_from_slice(slopes);
            let loss = ctc_gradient(narrow, labels.iter().copied(), 0, &mut room, keep);
            assert!((loss + total).abs() < 1e-6 * total.abs(), "{frames} frames at {scale} in f32");
            assert!(farthest(&found) < 1e-4, "{frames} frames at {scale} in f32: {}", farthest(&found));
        }
    }
}
