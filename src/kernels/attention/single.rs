//! Softmax attention of a single query, such as the state of a decoder. For one query, tiles and packed keys would cost more
//! than the dot products themselves.

use crate::kernels::product::emptied;
use std::ops::Range;

use crate::kernels::chunk::{CHUNK, part, put, total};
use crate::kernels::float::{Assign, Float};
use crate::kernels::path::{Arithmetic, Sweep, sweep};
use crate::kernels::view::{View, ViewMut};

/// One query, the keys and values of its sequence, and the range of keys that the query attends to.
pub(super) struct Single<'a, T> {
    pub(super) query: &'a [T],
    pub(super) keys: View<'a, T>,
    pub(super) values: View<'a, T>,
    pub(super) scale: T,
    pub(super) seen: Range<usize>,
}

/// The results of [`Single::attend`], and the gradients of the results; a gradient is `None` if it is zero.
pub(super) struct SingleResult<'a, T> {
    pub(super) out: &'a [T],
    pub(super) log_sum: T,
    pub(super) dout: Option<&'a [T]>,
    pub(super) dlog_sum: Option<T>,
}

/// The view that receives a gradient, and whether the gradient is written or added; `None` if the gradient is not requested.
type AttentionTarget<'a, T> = Option<(ViewMut<'a, T>, Assign)>;

impl<T: Float> Single<'_, T> {
    /// Writes the attended values of the query, and returns the log-sum-exp of its scores.
    pub(super) fn attend(self, out: &mut [T], room: &mut Vec<T>) -> T {
        sweep(Attend { single: self, out, room })
    }

    /// Computes the requested gradients of the query, the keys and the values. The gradient is zero for keys that the query
    /// does not attend to.
    pub(super) fn descend(
        self,
        result: SingleResult<'_, T>,
        gradients: [AttentionTarget<'_, T>; 3],
        room: &mut Vec<T>,
    ) {
        sweep(Descend { single: self, result, gradients, room });
    }

    /// Computes the scores of the keys that the query attends to.
    #[inline(always)]
    fn scores<A: Arithmetic>(&self, room: &mut Vec<T>) {
        emptied(room, self.seen.len()).resize(self.seen.len(), T::ZERO);
        for (score, row) in room.iter_mut().zip(self.seen.clone()) {
            *score = dot::<T, A>(self.query, self.keys.row(row)) * self.scale;
        }
    }
}

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
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) -> T {
        let Self { single, out, room } = self;
        single.scores::<A>(room);
        let most = room.iter().fold(T::NEG_INFINITY, |most, &x| if x > most { x } else { most });
        // If the maximum is −∞, all scores are −∞, and subtracting the maximum would give NaN.
        let less = if most == T::NEG_INFINITY { T::ZERO } else { most };
        let mut sum = T::ZERO;
        for weight in room.iter_mut() {
            *weight = (*weight - less).exp_with::<A>();
            sum += *weight;
        }
        // A sum of zero means that the query attended to no key.
        if sum == T::ZERO {
            out.fill(T::ZERO);
            return T::ZERO;
        }
        for from in (0..out.len()).step_by(CHUNK) {
            let mut sums = [T::ZERO; CHUNK];
            for (&weight, row) in room.iter().zip(single.seen.clone()) {
                let value = part(single.values.row(row), from);
                for j in 0..CHUNK {
                    sums[j] = A::mul_add(weight, value[j], sums[j]);
                }
            }
            sums.iter_mut().for_each(|x| *x /= sum);
            put(out, from, &sums, Assign::Write);
        }
        less + sum.ln()
    }
}

struct Descend<'a, 'r, 'g, T> {
    single: Single<'a, T>,
    result: SingleResult<'r, T>,
    gradients: [AttentionTarget<'g, T>; 3],
    room: &'r mut Vec<T>,
}

impl<T: Float> Sweep for Descend<'_, '_, '_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Self { single, result, gradients, room } = self;
        let [dq, mut dk, mut dv] = gradients;
        let (k, v, seen) = (single.keys, single.values, single.seen.clone());
        let SingleResult { out, log_sum, dout, dlog_sum } = result;
        // The number that is subtracted in the gradient of each score: Σ dout · out, minus the gradient of the
        // log-sum-exp.
        let reaches = dout.map_or(T::ZERO, |dout| dot::<T, A>(dout, out)) - dlog_sum.unwrap_or(T::ZERO);
        single.scores::<A>(room);
        for gradient in [&mut dk, &mut dv] {
            if let Some((to, Assign::Write)) = gradient {
                let unseen = (0..seen.start).chain(seen.end..to.rows());
                unseen.for_each(|row| to.row(row).fill(T::ZERO));
            }
        }
        for (score, row) in room.iter_mut().zip(seen.clone()) {
            let weight = (*score - log_sum).exp_with::<A>();
            let dweight = dout.map_or(T::ZERO, |dout| dot::<T, A>(dout, v.row(row)));
            *score = weight * (dweight - reaches) * single.scale;
            if let Some((dv, assign)) = &mut dv {
                let dv = dv.row(row);
                for from in (0..dv.len()).step_by(CHUNK) {
                    let mut d = dout.map_or([T::ZERO; CHUNK], |dout| part(dout, from));
                    d.iter_mut().for_each(|d| *d *= weight);
                    put(dv, from, &d, *assign);
                }
            }
            if let Some((dk, assign)) = &mut dk {
                let dk = dk.row(row);
                for from in (0..dk.len()).step_by(CHUNK) {
                    let mut d = part(single.query, from);
                    d.iter_mut().for_each(|d| *d *= *score);
                    put(dk, from, &d, *assign);
                }
            }
        }
        if let Some((mut dq, assign)) = dq {
            let dq = dq.row(0);
            for from in (0..dq.len()).step_by(CHUNK) {
                let mut sums = [T::ZERO; CHUNK];
                for (&dscore, row) in room.iter().zip(seen.clone()) {
                    let key = part(k.row(row), from);
                    for j in 0..CHUNK {
                        sums[j] = A::mul_add(dscore, key[j], sums[j]);
                    }
                }
                put(dq, from, &sums, assign);
            }
        }
    }
}
