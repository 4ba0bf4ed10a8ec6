//! Softmax attention of one query, as the state of a decoder is: to cut it into tiles and to pack its keys would cost more than the
//! products.

use std::ops::Range;

use super::{Attended, AttentionGradients, AttentionResult, Scores};
use crate::kernels::chunk::{CHUNK, part, put, total};
use crate::kernels::float::{Float, Store};
use crate::kernels::path::{Arithmetic, Sweep, sweep};

/// One query and the keys that it sees.
pub(super) struct Single<'a, T> {
    attended: Attended<'a, T>,
    scale: T,
    seen: Range<usize>,
}

impl<'a, T: Float> Single<'a, T> {
    /// A single query without a bias; `None` if there are others, or a bias.
    pub(super) fn of(attended: Attended<'a, T>, scores: Scores<'_, T>) -> Option<Self> {
        let seen = scores.seen(&(0..1), &(0..attended.k.rows()));
        (attended.q.rows() == 1 && scores.bias.is_empty()).then_some(Self {
            attended,
            scale: scores.scale,
            seen,
        })
    }

    /// Writes the attended values, and returns the logarithm of the sum of the exponentials of the scores.
    pub(super) fn attend(self, out: &mut [T], room: &mut Vec<T>) -> T {
        sweep(Attend { single: self, out, room })
    }

    /// The gradients that are asked for; keys that the query does not see have none.
    pub(super) fn descend(
        self,
        result: AttentionResult<'_, T>,
        gradients: AttentionGradients<'_, T>,
        room: &mut Vec<T>,
    ) {
        sweep(Descend { single: self, result, gradients, room });
    }

    /// The scores of the keys that are seen.
    #[inline(always)]
    fn scores<A: Arithmetic>(&self, room: &mut Vec<T>) {
        let query = self.attended.q.row(0);
        room.clear();
        room.resize(self.seen.len(), T::ZERO);
        for (score, row) in room.iter_mut().zip(self.seen.clone()) {
            *score = dot::<T, A>(query, self.attended.k.row(row)) * self.scale;
        }
    }
}

/// Σ x · y.
#[inline(always)]
fn dot<T: Float, A: Arithmetic>(x: &[T], y: &[T]) -> T {
    let mut sums = [T::ZERO; CHUNK];
    for from in (0..x.len()).step_by(CHUNK) {
        let (x, y) = (part(x, from), part(y, from));
        for j in 0..CHUNK {
            sums[j] = A::mul_add(x[j], y[j], sums[j]);
        }
    }
    total(&sums)
}

struct Attend<'a, 'b, T> {
    single: Single<'a, T>,
    out: &'b mut [T],
    room: &'b mut Vec<T>,
}

impl<T: Float> Sweep for Attend<'_, '_, T> {
    type Output = T;

    #[inline(always)]
    fn run<A: Arithmetic>(self) -> T {
        let Self { single, out, room } = self;
        single.scores::<A>(room);
        let most = room.iter().fold(T::NEG_INFINITY, |most, &x| if x > most { x } else { most });
        // Where all scores are −∞.
        let less = if most == T::NEG_INFINITY { T::ZERO } else { most };
        let mut sum = T::ZERO;
        for weight in room.iter_mut() {
            *weight = (*weight - less).exp_with::<A>();
            sum += *weight;
        }
        // No key was seen.
        if sum == T::ZERO {
            out.fill(T::ZERO);
            return T::ZERO;
        }
        for from in (0..out.len()).step_by(CHUNK) {
            let mut sums = [T::ZERO; CHUNK];
            for (&weight, row) in room.iter().zip(single.seen.clone()) {
                let value = part(single.attended.v.row(row), from);
                for j in 0..CHUNK {
                    sums[j] = A::mul_add(weight, value[j], sums[j]);
                }
            }
            sums.iter_mut().for_each(|x| *x /= sum);
            put(out, from, &sums, Store::Write);
        }
        less + sum.ln()
    }
}

struct Descend<'a, 'r, 'g, T> {
    single: Single<'a, T>,
    result: AttentionResult<'r, T>,
    gradients: AttentionGradients<'g, T>,
    room: &'r mut Vec<T>,
}

impl<T: Float> Sweep for Descend<'_, '_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Self { single, result, gradients, room } = self;
        let AttentionGradients { q: dq, k: mut dk, v: mut dv, .. } = gradients;
        let (Attended { q, k, v }, seen) = (single.attended, single.seen.clone());
        let (query, log_sum) = (q.row(0), result.log_sums.row(0)[0]);
        let dout = result.dout.map(|dout| dout.row(0));
        // What reaches all scores alike: of the attended values, less what comes by the logarithm of the sum.
        let mut reaches = dout.map_or(T::ZERO, |dout| dot::<T, A>(dout, result.out.row(0)));
        if let Some(dlog_sums) = result.dlog_sums {
            reaches -= dlog_sums.row(0)[0];
        }
        single.scores::<A>(room);
        for gradient in [&mut dk, &mut dv] {
            if let Some((to, Store::Write)) = gradient {
                let unseen = (0..seen.start).chain(seen.end..to.rows());
                unseen.for_each(|row| to.row(row).fill(T::ZERO));
            }
        }
        for (score, row) in room.iter_mut().zip(seen.clone()) {
            let weight = (*score - log_sum).exp_with::<A>();
            let dweight = dout.map_or(T::ZERO, |dout| dot::<T, A>(dout, v.row(row)));
            *score = weight * (dweight - reaches) * single.scale;
            if let Some((dv, store)) = &mut dv {
                let dv = dv.row(row);
                for from in (0..dv.len()).step_by(CHUNK) {
                    let mut d = dout.map_or([T::ZERO; CHUNK], |dout| part(dout, from));
                    d.iter_mut().for_each(|d| *d *= weight);
                    put(dv, from, &d, *store);
                }
            }
            if let Some((dk, store)) = &mut dk {
                let dk = dk.row(row);
                for from in (0..dk.len()).step_by(CHUNK) {
                    let mut d = part(query, from);
                    d.iter_mut().for_each(|d| *d *= *score);
                    put(dk, from, &d, *store);
                }
            }
        }
        if let Some((mut dq, store)) = dq {
            let dq = dq.row(0);
            for from in (0..dq.len()).step_by(CHUNK) {
                let mut sums = [T::ZERO; CHUNK];
                for (&dscore, row) in room.iter().zip(seen.clone()) {
                    let key = part(k.row(row), from);
                    for j in 0..CHUNK {
                        sums[j] = A::mul_add(dscore, key[j], sums[j]);
                    }
                }
                put(dq, from, &sums, store);
            }
        }
    }
}
