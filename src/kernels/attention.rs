//! Softmax attention of the queries of one sequence over its keys, without a matrix of all scores. The scores are computed
//! tile by tile; the softmax of each query comes from a running maximum and a running sum.
//!
//! The forward pass follows Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018). The backward pass
//! recomputes the attention weights from the log-sum-exp of the scores of each query, as in Dao et al., "FlashAttention"
//! (2022).

mod room;
mod single;

use std::ops::Range;

pub use room::AttentionRoom;
use room::{KEYS, QUERIES};
use single::{Single, SingleResult};

use super::float::{Assign, Float};
use super::path::{Arithmetic, Sweep, sweep};
use super::product::{emptied, lengthen, product};
use super::products::Transpose;
use super::view::{View, ViewMut};

/// The number of independent partial sums, or partial maxima, per row: the number of elements in the longest vector
/// register.
const LANES: usize = 16;

/// The parameters of the scores: if query i attends to key j, the score is scale · (q_i · k_j) + bias, else there is no
/// score.
#[derive(Debug, Clone, Copy)]
pub struct AttentionScores<'a, T> {
    /// The factor by which the dot product of a query and a key is multiplied.
    pub scale: T,
    /// The first key that query i attends to is key i − `before`.
    pub before: usize,
    /// The last key that query i attends to is key i + `after`.
    pub after: usize,
    /// The biases of the scores: 2r + 1 numbers, one per distance j − i from −r to r between query i and key j; empty
    /// for no bias. At a larger distance, the first or the last number applies.
    pub bias: &'a [T],
}

impl<T> AttentionScores<'_, T> {
    /// Returns the part of the range `keys` that at least one of the `queries` attends to.
    fn seen(&self, queries: &Range<usize>, keys: &Range<usize>) -> Range<usize> {
        if queries.is_empty() {
            return keys.start..keys.start;
        }
        let first = queries.start.saturating_sub(self.before).clamp(keys.start, keys.end);
        let end = (queries.end - 1).saturating_add(self.after).saturating_add(1);
        first..end.clamp(first, keys.end)
    }

    /// Returns the index in the bias table for a query and a key.
    #[inline(always)]
    fn offset(&self, query: usize, key: usize) -> usize {
        let radius = self.bias.len() / 2;
        (key + radius).saturating_sub(query).min(2 * radius)
    }
}

/// The queries (n × d), the keys (m × d) and the values (m × e) of one sequence and one head.
#[derive(Clone, Copy)]
pub struct AttentionInputs<'a, T> {
    /// The queries, one row per query (n × d).
    pub q: View<'a, T>,
    /// The keys, one row per key (m × d).
    pub k: View<'a, T>,
    /// The values, one row per key (m × e).
    pub v: View<'a, T>,
}

/// Computes the attended values `out` = softmax(scores) · v, and `log_sums`: for each query, the log-sum-exp of its scores.
/// If a query attends to no key, the query's rows of `out` and `log_sums` are zero.
///
/// # Panics
/// If the inputs do not have matching shapes, if `out` is not n × e, or if `log_sums` is not n × 1.
pub fn attention<T: Float>(
    AttentionInputs { q, k, v }: AttentionInputs<'_, T>,
    scores: AttentionScores<'_, T>,
    mut out: ViewMut<'_, T>,
    mut log_sums: ViewMut<'_, T>,
    room: &mut AttentionRoom<T>,
) {
    let (n, m) = (q.rows(), k.rows());
    assert_eq!((out.rows(), out.width(), log_sums.rows()), (n, v.width(), n), "the shape of attention");
    if let Some(single) = single(AttentionInputs { q, k, v }, scores) {
        log_sums.row(0)[0] = single.attend(out.row(0), &mut room.scores);
        return;
    }
    out.fill(T::ZERO);
    emptied(&mut room.most, n).resize(n, T::NEG_INFINITY);
    emptied(&mut room.sums, n).resize(n, T::ZERO);
    for keys in tiles(m, KEYS) {
        if scores.seen(&(0..n), &keys).is_empty() {
            continue;
        }
        room.keys.pack(k.rows_range(keys.start, keys.end), Transpose::Yes, 1);
        room.values.pack(v.rows_range(keys.start, keys.end), Transpose::No, 1);
        for queries in tiles(n, QUERIES) {
            if scores.seen(&queries, &keys).is_empty() {
                continue;
            }
            let tile = grown(&mut room.tile, queries.len() * keys.len());
            let mut tile = ViewMut::new(tile, queries.len(), keys.len());
            product(
                q.rows_range(queries.start, queries.end),
                &room.keys,
                tile.reborrow(),
                Assign::Write,
                &mut room.rounded,
            );
            let mut out = rows(&mut out, &queries);
            sweep(OnlineSoftmax {
                tile: tile.reborrow(),
                queries: queries.clone(),
                keys: keys.clone(),
                scores,
                most: &mut room.most[queries.clone()],
                sums: &mut room.sums[queries.clone()],
                out: out.reborrow(),
            });
            product(tile.as_view(), &room.values, out, Assign::Add, &mut room.rounded);
        }
    }
    sweep(Finish { out, log_sums: log_sums.reborrow(), most: &room.most, sums: &room.sums });
}

/// The inputs of [`attention_backward`] that the forward pass does not have: its results and their gradients.
#[derive(Clone, Copy)]
pub struct AttentionResult<'a, T> {
    /// The attended values that [`attention`] computed.
    pub out: View<'a, T>,
    /// The log-sum-exp of the scores of each query, as [`attention`] computed it.
    pub log_sums: View<'a, T>,
    /// The gradient of `out`; `None` if this gradient is zero.
    pub dout: Option<View<'a, T>>,
    /// The gradient of `log_sums`; `None` if this gradient is zero.
    pub dlog_sums: Option<View<'a, T>>,
}

/// The views that receive the gradients of attention, and whether each gradient is written or added; `None` if a gradient is
/// not requested.
pub struct AttentionGradients<'a, T> {
    /// The gradient of the queries.
    pub q: Option<(ViewMut<'a, T>, Assign)>,
    /// The gradient of the keys.
    pub k: Option<(ViewMut<'a, T>, Assign)>,
    /// The gradient of the values.
    pub v: Option<(ViewMut<'a, T>, Assign)>,
    /// The gradient of the bias; the kernel always adds to this view.
    pub bias: Option<&'a mut [T]>,
}

/// Computes the requested gradients of the inputs of [`attention`].
///
/// # Panics
/// If a gradient does not have the shape of its input.
pub fn attention_backward<T: Float>(
    AttentionInputs { q, k, v }: AttentionInputs<'_, T>,
    scores: AttentionScores<'_, T>,
    result: AttentionResult<'_, T>,
    mut gradients: AttentionGradients<'_, T>,
    room: &mut AttentionRoom<T>,
) {
    let (n, m, d, e) = (q.rows(), k.rows(), q.width(), v.width());
    if let Some(single) = single(AttentionInputs { q, k, v }, scores) {
        let AttentionGradients { q, k, v, .. } = gradients;
        let result = SingleResult {
            out: result.out.row(0),
            log_sum: result.log_sums.row(0)[0],
            dout: result.dout.map(|dout| dout.row(0)),
            dlog_sum: result.dlog_sums.map(|dlog_sums| dlog_sums.row(0)[0]),
        };
        single.descend(result, [q, k, v], &mut room.scores);
        return;
    }
    let AttentionResult { out, log_sums, dout, dlog_sums } = result;
    if let Some((dq, assign)) = &mut gradients.q {
        assign.put_nothing(dq.reborrow());
    }
    // For each query i, the number that is subtracted in the gradient of each of its scores: Σ_c dout_ic · out_ic
    // (equal to Σ_j p_ij · ∂loss/∂p_ij), minus the gradient of the query's log-sum-exp.
    emptied(&mut room.sums, n).resize(n, T::ZERO);
    if let Some(dout) = dout {
        sweep(Dots { x: dout, y: out, to: &mut room.sums });
    }
    if let Some(dlog_sums) = dlog_sums {
        room.sums.iter_mut().zip(dlog_sums.iter()).for_each(|(dot, dlog_sum)| *dot -= dlog_sum[0]);
    }
    let AttentionGradients { q: mut dq, k: mut dk, v: mut dv, mut bias } = gradients;
    let of_scores = dq.is_some() || dk.is_some() || bias.is_some();
    for keys in tiles(m, KEYS) {
        let len = keys.len();
        let (dk_tile, dv_tile) = (grown(&mut room.dk, d * len), grown(&mut room.dv, e * len));
        dk_tile.fill(T::ZERO);
        dv_tile.fill(T::ZERO);
        let part = k.rows_range(keys.start, keys.end);
        if !scores.seen(&(0..n), &keys).is_empty() {
            room.keys.pack(part, Transpose::Yes, 1);
            if of_scores {
                room.values.pack(v.rows_range(keys.start, keys.end), Transpose::Yes, 1);
            }
            if dq.is_some() {
                room.rows.pack(part, Transpose::No, 1);
            }
        }
        for queries in tiles(n, QUERIES) {
            if scores.seen(&queries, &keys).is_empty() {
                continue;
            }
            let count = queries.len();
            let q = q.rows_range(queries.start, queries.end);
            let dout = dout.map(|dout| dout.rows_range(queries.start, queries.end));
            let mut tile = ViewMut::new(grown(&mut room.tile, count * len), count, len);
            product(q, &room.keys, tile.reborrow(), Assign::Write, &mut room.rounded);
            let log_sums = log_sums.rows_range(queries.start, queries.end);
            sweep(Recomputation {
                tile: tile.reborrow(),
                queries: queries.clone(),
                keys: keys.clone(),
                scores,
                log_sums,
            });
            if let (true, Some(dout)) = (dv.is_some(), dout) {
                room.weights.pack(tile.as_view(), Transpose::No, 1);
                let turned = turn(dout, &mut room.turned);
                product(turned, &room.weights, ViewMut::new(dv_tile, e, len), Assign::Add, &mut room.rounded);
            }
            if !of_scores {
                continue;
            }
            let mut other = ViewMut::new(grown(&mut room.other, count * len), count, len);
            match dout {
                Some(dout) => product(dout, &room.values, other.reborrow(), Assign::Write, &mut room.rounded),
                None => other.fill(T::ZERO),
            }
            sweep(Descend {
                weights: tile.reborrow(),
                dweights: other.as_view(),
                dots: &room.sums[queries.clone()],
            });
            if let Some(bias) = &mut bias {
                for (query, row) in queries.clone().zip(tile.as_view().iter()) {
                    let seen = scores.seen(&(query..query + 1), &keys);
                    for key in seen {
                        bias[scores.offset(query, key)] += row[key - keys.start];
                    }
                }
            }
            sweep(Scale { x: tile.reborrow(), by: scores.scale });
            if dk.is_some() {
                room.weights.pack(tile.as_view(), Transpose::No, 1);
                let turned = turn(q, &mut room.turned);
                product(turned, &room.weights, ViewMut::new(dk_tile, d, len), Assign::Add, &mut room.rounded);
            }
            if let Some((dq, _)) = &mut dq {
                product(tile.as_view(), &room.rows, rows(dq, &queries), Assign::Add, &mut room.rounded);
            }
        }
        for (gradient, tile, width) in [(&mut dk, &*dk_tile, d), (&mut dv, &*dv_tile, e)] {
            if let Some((to, assign)) = gradient {
                assign.put_rows(rows(to, &keys), turn(View::new(tile, width, len), &mut room.back));
            }
        }
    }
}

/// Returns the inputs of the special kernel for a single query without a bias; `None` in other cases.
fn single<'a, T: Float>(
    attended: AttentionInputs<'a, T>,
    scores: AttentionScores<'_, T>,
) -> Option<Single<'a, T>> {
    let AttentionInputs { q, k, v } = attended;
    let seen = scores.seen(&(0..1), &(0..k.rows()));
    let alone = q.rows() == 1 && scores.bias.is_empty();
    alone.then(|| Single { query: q.row(0), keys: k, values: v, scale: scores.scale, seen })
}

/// Returns successive ranges of length `size` that cover `0..len`; the last range may be shorter.
fn tiles(len: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(size).map(move |start| start..len.min(start + size))
}

fn rows<'v, T>(view: &'v mut ViewMut<'_, T>, range: &Range<usize>) -> ViewMut<'v, T> {
    view.reborrow().split_rows(range.end).0.split_rows(range.start).1
}

fn grown<T: Float>(room: &mut Vec<T>, len: usize) -> &mut [T] {
    lengthen(room, len);
    &mut room[..len]
}

/// Returns the transpose of `x`, stored in `room`.
fn turn<'r, T: Float>(x: View<'_, T>, room: &'r mut Vec<T>) -> View<'r, T> {
    const BLOCK: usize = 16;
    let (height, width) = (x.rows(), x.width());
    let to = grown(room, height * width);
    for first in (0..width).step_by(BLOCK) {
        let columns = first..width.min(first + BLOCK);
        for (i, row) in x.iter().enumerate() {
            for j in columns.clone() {
                to[j * height + i] = row[j];
            }
        }
    }
    View::new(to, width, height)
}

/// Returns the largest number of a slice; −∞ for an empty slice.
#[inline(always)]
fn largest<T: Float>(x: &[T]) -> T {
    let mut lanes = [T::NEG_INFINITY; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        for lane in 0..LANES {
            lanes[lane] = if x[lane] > lanes[lane] { x[lane] } else { lanes[lane] };
        }
    }
    for (most, &x) in lanes.iter_mut().zip(rest) {
        *most = if x > *most { x } else { *most };
    }
    lanes.iter().fold(T::NEG_INFINITY, |most, &x| if x > most { x } else { most })
}

/// Replaces each number x by exp(x − less), and returns the sum of the new numbers.
#[inline(always)]
fn exponentials<T: Float, A: Arithmetic>(x: &mut [T], less: T) -> T {
    let mut lanes = [T::ZERO; LANES];
    let (whole, rest) = x.as_chunks_mut::<LANES>();
    for x in whole {
        for lane in 0..LANES {
            x[lane] = (x[lane] - less).exp_with::<A>();
            lanes[lane] += x[lane];
        }
    }
    for (sum, x) in lanes.iter_mut().zip(rest) {
        *x = (*x - less).exp_with::<A>();
        *sum += *x;
    }
    lanes.iter().fold(T::ZERO, |sum, &x| sum + x)
}

impl<T: Float> AttentionScores<'_, T> {
    /// Converts the dot products of a query and successive keys into scores; the first dot product is with key `first`.
    #[inline(always)]
    fn of<A: Arithmetic>(&self, products: &mut [T], query: usize, first: usize) {
        if self.bias.is_empty() {
            products.iter_mut().for_each(|x| *x *= self.scale);
        } else {
            for (at, x) in products.iter_mut().enumerate() {
                *x = A::mul_add(*x, self.scale, self.bias[self.offset(query, first + at)]);
            }
        }
    }
}

/// Converts a tile of dot products into exponentials of scores, not yet divided by their sum; the sums and the weighted
/// values accumulate over the tiles.
struct OnlineSoftmax<'a, T> {
    tile: ViewMut<'a, T>,
    queries: Range<usize>,
    keys: Range<usize>,
    scores: AttentionScores<'a, T>,
    most: &'a mut [T],
    sums: &'a mut [T],
    out: ViewMut<'a, T>,
}

impl<T: Float> Sweep for OnlineSoftmax<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for (at, query) in self.queries.clone().enumerate() {
            let seen = self.scores.seen(&(query..query + 1), &self.keys);
            let (from, to) = (seen.start - self.keys.start, seen.end - self.keys.start);
            let row = self.tile.row(at);
            row[..from].fill(T::ZERO);
            row[to..].fill(T::ZERO);
            let row = &mut row[from..to];
            if row.is_empty() {
                continue;
            }
            self.scores.of::<A>(row, query, seen.start);
            let before = self.most[at];
            let found = largest(row);
            let most = if found > before { found } else { before };
            // If the maximum is still −∞, all scores so far are −∞, and subtracting the maximum would give NaN.
            let less = if most == T::NEG_INFINITY { T::ZERO } else { most };
            let sum = exponentials::<T, A>(row, less);
            if before == most || before == T::NEG_INFINITY {
                self.sums[at] += sum;
            } else {
                let kept = (before - most).exp_with::<A>();
                self.sums[at] = A::mul_add(self.sums[at], kept, sum);
                self.out.row(at).iter_mut().for_each(|x| *x *= kept);
            }
            self.most[at] = most;
        }
    }
}

struct Finish<'a, T> {
    out: ViewMut<'a, T>,
    log_sums: ViewMut<'a, T>,
    most: &'a [T],
    sums: &'a [T],
}

impl<T: Float> Sweep for Finish<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for (at, (&most, &sum)) in self.most.iter().zip(self.sums).enumerate() {
            // A sum of zero means that the query attended to no key.
            if sum == T::ZERO {
                self.log_sums.row(at)[0] = T::ZERO;
                continue;
            }
            self.log_sums.row(at)[0] = most + sum.ln();
            let by = T::ONE / sum;
            self.out.row(at).iter_mut().for_each(|x| *x *= by);
        }
    }
}

/// Recomputes the attention weights of the forward pass from the dot products of queries and keys.
struct Recomputation<'a, T> {
    tile: ViewMut<'a, T>,
    queries: Range<usize>,
    keys: Range<usize>,
    scores: AttentionScores<'a, T>,
    log_sums: View<'a, T>,
}

impl<T: Float> Sweep for Recomputation<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for (at, query) in self.queries.clone().enumerate() {
            let seen = self.scores.seen(&(query..query + 1), &self.keys);
            let (from, to) = (seen.start - self.keys.start, seen.end - self.keys.start);
            let (row, less) = (self.tile.row(at), self.log_sums.row(at)[0]);
            row[..from].fill(T::ZERO);
            row[to..].fill(T::ZERO);
            let row = &mut row[from..to];
            self.scores.of::<A>(row, query, seen.start);
            row.iter_mut().for_each(|x| *x = (*x - less).exp_with::<A>());
        }
    }
}

/// Computes, for each row index, the dot product Σ x · y of the row of `x` and the row of `y`.
struct Dots<'a, T> {
    x: View<'a, T>,
    y: View<'a, T>,
    to: &'a mut [T],
}

impl<T: Float> Sweep for Dots<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        for ((x, y), to) in self.x.iter().zip(self.y.iter()).zip(self.to) {
            let mut lanes = [T::ZERO; LANES];
            let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
            for (x, y) in x.iter().zip(y) {
                for lane in 0..LANES {
                    lanes[lane] = A::mul_add(x[lane], y[lane], lanes[lane]);
                }
            }
            for (lane, (&x, &y)) in lanes.iter_mut().zip(x_rest.iter().zip(y_rest)) {
                *lane = A::mul_add(x, y, *lane);
            }
            *to = lanes.iter().fold(T::ZERO, |sum, &x| sum + x);
        }
    }
}

/// Converts attention weights p and their gradients dp into the gradients of the scores, p · (dp − Σ p · dp).
struct Descend<'a, T> {
    weights: ViewMut<'a, T>,
    dweights: View<'a, T>,
    dots: &'a [T],
}

impl<T: Float> Sweep for Descend<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for ((weights, dweights), &dot) in self.weights.iter_mut().zip(self.dweights.iter()).zip(self.dots) {
            for (weight, &dweight) in weights.iter_mut().zip(dweights) {
                *weight *= dweight - dot;
            }
        }
    }
}

struct Scale<'a, T> {
    x: ViewMut<'a, T>,
    by: T,
}

impl<T: Float> Sweep for Scale<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        self.x.iter_mut().flatten().for_each(|x| *x *= self.by);
    }
}

#[cfg(test)]
mod tests;
