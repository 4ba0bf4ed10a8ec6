//! Additive attention of one query per sequence over the keys of the sequence. A perceptron with one hidden layer computes
//! the score of each key for the query. The softmax of the scores gives the weights, and the result is the weighted sum of
//! the values. The forward pass is one fused kernel, and the backward pass is another. The backward pass recomputes the
//! hyperbolic tangents of the hidden layer, since storing them would take as much memory as the keys of all steps.

use std::ops::Range;

use super::chunk::{CHUNK, part, put, total};
use super::float::{Assign, Float};
use super::path::{Arithmetic, Sweep, sweep};
use super::view::{View, ViewMut};

/// The inputs of additive attention, for n sequences whose keys have m rows in total.
#[derive(Clone, Copy)]
pub struct Additive<'a, T> {
    /// The queries: one row of width a per sequence (n × a).
    pub query: View<'a, T>,
    /// The weight of each hidden unit in the scores: one row of width a per sequence (n × a).
    pub columns: View<'a, T>,
    /// The keys: one row of width a per key (m × a).
    pub keys: View<'a, T>,
    /// The values: one row of width e per key (m × e).
    pub values: View<'a, T>,
    /// The index of the first key of each sequence, then the index after the last key; the first offset need not be 0.
    pub offsets: &'a [usize],
}

impl<T> Additive<'_, T> {
    fn check(&self) {
        let (n, a) = (self.query.rows(), self.query.width());
        let m = self.keys.rows();
        let bounds = self.offsets.first().zip(self.offsets.last());
        assert_eq!((self.columns.rows(), self.columns.width()), (n, a), "the shape of the columns' weights");
        assert_eq!((self.keys.width(), self.values.rows()), (a, m), "the shape of keys and values");
        assert_eq!(self.offsets.len(), n + 1, "offsets of {n} sequences");
        assert_eq!(bounds.map(|(first, last)| last - first), Some(m), "keys of all sequences");
    }

    fn rows(&self, sequence: usize) -> Range<usize> {
        let base = self.offsets[0];
        self.offsets[sequence] - base..self.offsets[sequence + 1] - base
    }
}

/// Computes the attention `weights` (m × 1): for each sequence, the softmax over its keys of Σ_c columns_c ·
/// tanh(query_c + key_c). Also computes `out` (n × e): for each sequence, the sum of its values, weighted by `weights`.
/// The row of a sequence without keys is zero.
///
/// # Panics
/// If two arguments do not have matching shapes.
pub fn additive_attention<T: Float>(inputs: Additive<'_, T>, weights: ViewMut<'_, T>, out: ViewMut<'_, T>) {
    inputs.check();
    assert_eq!((weights.rows(), weights.width()), (inputs.keys.rows(), 1), "the shape of the weights");
    let shape = (inputs.query.rows(), inputs.values.width());
    assert_eq!((out.rows(), out.width()), shape, "the shape of attended values");
    sweep(Attend { inputs, weights, out });
}

/// The inputs of [`additive_attention_backward`] that the forward pass does not have: its results and their gradients.
#[derive(Clone, Copy)]
pub struct AdditiveResult<'a, T> {
    /// The weights that [`additive_attention`] computed.
    pub weights: View<'a, T>,
    /// The gradient of the attended values; `None` if this gradient is zero.
    pub dout: Option<View<'a, T>>,
    /// The gradient of the attention weights; `None` if this gradient is zero.
    pub dweights: Option<View<'a, T>>,
}

/// The view that receives a gradient, and whether the gradient is written or added; `None` if the gradient is not requested.
type GradientTarget<'a, T> = Option<(ViewMut<'a, T>, Assign)>;

/// The requested gradients of additive attention; each gradient has the shape of its input.
pub struct AdditiveGradients<'a, T> {
    /// The gradient of the queries.
    pub query: GradientTarget<'a, T>,
    /// The gradient of `columns`, the weights of the hidden units.
    pub columns: GradientTarget<'a, T>,
    /// The gradient of the keys.
    pub keys: GradientTarget<'a, T>,
    /// The gradient of the values.
    pub values: GradientTarget<'a, T>,
}

/// Computes the gradients of [`additive_attention`]; `room` is scratch for one number per key of the longest sequence.
///
/// # Panics
/// If two arguments do not have matching shapes.
pub fn additive_attention_backward<T: Float>(
    inputs: Additive<'_, T>,
    result: AdditiveResult<'_, T>,
    gradients: AdditiveGradients<'_, T>,
    room: &mut Vec<T>,
) {
    inputs.check();
    assert_eq!(result.weights.rows(), inputs.keys.rows(), "the rows of the weights");
    sweep(Descend { inputs, result, gradients, room });
}

struct Attend<'a, T> {
    inputs: Additive<'a, T>,
    weights: ViewMut<'a, T>,
    out: ViewMut<'a, T>,
}

impl<T: Float> Sweep for Attend<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let Additive { query, columns, keys, values, .. } = self.inputs;
        for sequence in 0..query.rows() {
            let rows = self.inputs.rows(sequence);
            let (query, columns) = (query.row(sequence), columns.row(sequence));
            let mut most = T::NEG_INFINITY;
            for row in rows.clone() {
                let key = keys.row(row);
                let mut sums = [T::ZERO; CHUNK];
                for from in (0..query.len()).step_by(CHUNK) {
                    let (mut x, k, v) = (part(query, from), part(key, from), part(columns, from));
                    for j in 0..CHUNK {
                        x[j] = (x[j] + k[j]).tanh_with::<A>();
                    }
                    for j in 0..CHUNK {
                        sums[j] = A::mul_add(v[j], x[j], sums[j]);
                    }
                }
                let score = total(&sums);
                self.weights.row(row)[0] = score;
                most = if score > most { score } else { most };
            }
            let mut sum = T::ZERO;
            for row in rows.clone() {
                let weight = &mut self.weights.row(row)[0];
                *weight = (*weight - most).exp_with::<A>();
                sum += *weight;
            }
            for row in rows.clone() {
                self.weights.row(row)[0] /= sum;
            }
            let out = self.out.row(sequence);
            for from in (0..out.len()).step_by(CHUNK) {
                let mut sums = [T::ZERO; CHUNK];
                for row in rows.clone() {
                    let (weight, value) = (self.weights.row(row)[0], part(values.row(row), from));
                    for j in 0..CHUNK {
                        sums[j] = A::mul_add(weight, value[j], sums[j]);
                    }
                }
                put(out, from, &sums, Assign::Write);
            }
        }
    }
}

struct Descend<'a, 'r, T> {
    inputs: Additive<'a, T>,
    result: AdditiveResult<'a, T>,
    gradients: AdditiveGradients<'a, T>,
    room: &'r mut Vec<T>,
}

impl<T: Float> Sweep for Descend<'_, '_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for sequence in 0..self.inputs.query.rows() {
            let rows = self.inputs.rows(sequence);
            self.weights::<A>(sequence, rows.clone());
            self.scores::<A>(sequence, rows);
        }
    }
}

impl<T: Float> Descend<'_, '_, T> {
    /// Computes the gradients of the values, and stores the gradients of the scores, w · (dw − Σ w · dw), in the scratch.
    #[inline(always)]
    fn weights<A: Arithmetic>(&mut self, sequence: usize, rows: Range<usize>) {
        let AdditiveResult { weights, dout, dweights } = self.result;
        self.room.clear();
        self.room.resize(rows.len(), T::ZERO);
        let mut mean = T::ZERO;
        for (dscore, row) in self.room.iter_mut().zip(rows.clone()) {
            let weight = weights.row(row)[0];
            if let Some(dout) = dout {
                let (dout, value) = (dout.row(sequence), self.inputs.values.row(row));
                let mut sums = [T::ZERO; CHUNK];
                for from in (0..dout.len()).step_by(CHUNK) {
                    let (mut d, x) = (part(dout, from), part(value, from));
                    for j in 0..CHUNK {
                        sums[j] = A::mul_add(d[j], x[j], sums[j]);
                    }
                    if let Some((dvalues, assign)) = &mut self.gradients.values {
                        d.iter_mut().for_each(|d| *d *= weight);
                        put(dvalues.row(row), from, &d, *assign);
                    }
                }
                *dscore = total(&sums);
            } else if let Some((dvalues, assign)) = &mut self.gradients.values
                && *assign == Assign::Write
            {
                dvalues.row(row).fill(T::ZERO);
            }
            if let Some(dweights) = dweights {
                *dscore += dweights.row(row)[0];
            }
            mean = A::mul_add(weight, *dscore, mean);
        }
        for (dscore, row) in self.room.iter_mut().zip(rows) {
            *dscore = weights.row(row)[0] * (*dscore - mean);
        }
    }

    /// Computes the gradients of the queries, of the keys and of the weights of the hidden units.
    #[inline(always)]
    fn scores<A: Arithmetic>(&mut self, sequence: usize, rows: Range<usize>) {
        let Additive { query, columns, keys, .. } = self.inputs;
        let (query, columns) = (query.row(sequence), columns.row(sequence));
        let AdditiveGradients { query: dquery, columns: dcolumns, keys: dkeys, .. } = &mut self.gradients;
        if dquery.is_none() && dcolumns.is_none() && dkeys.is_none() {
            return;
        }
        for from in (0..query.len()).step_by(CHUNK) {
            let (q, v) = (part(query, from), part(columns, from));
            let (mut of_query, mut of_columns) = ([T::ZERO; CHUNK], [T::ZERO; CHUNK]);
            for (&dscore, row) in self.room.iter().zip(rows.clone()) {
                let mut x = part(keys.row(row), from);
                for j in 0..CHUNK {
                    x[j] = (q[j] + x[j]).tanh_with::<A>();
                }
                for j in 0..CHUNK {
                    of_columns[j] = A::mul_add(dscore, x[j], of_columns[j]);
                }
                for j in 0..CHUNK {
                    // The derivative of the hyperbolic tangent, 1 − tanh², times the gradient of the tangent.
                    x[j] = A::mul_add(-x[j], x[j], T::ONE) * (dscore * v[j]);
                }
                for j in 0..CHUNK {
                    of_query[j] += x[j];
                }
                if let Some((dkeys, assign)) = dkeys {
                    put(dkeys.row(row), from, &x, *assign);
                }
            }
            for (to, numbers) in [(&mut *dquery, &of_query), (&mut *dcolumns, &of_columns)] {
                if let Some((to, assign)) = to {
                    put(to.row(sequence), from, numbers, *assign);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the results with the formula, for one sequence of two keys and for one sequence without keys.
    #[test]
    fn weights_and_values_are_those_of_the_formula() {
        let (query, columns) = ([0.5, -1.0, 3.0, 3.0], [2.0, 1.0, 1.0, 1.0]);
        let (keys, values) = ([0.0, 1.0, -0.5, 0.25], [10.0, 20.0]);
        let score = |k: [f64; 2]| 2.0 * (0.5 + k[0]).tanh() + (-1.0 + k[1]).tanh();
        let scores = [score([0.0, 1.0]), score([-0.5, 0.25])];
        let first = 1.0 / (1.0 + (scores[1] - scores[0]).exp());
        let inputs = Additive {
            query: View::new(&query, 2, 2),
            columns: View::new(&columns, 2, 2),
            keys: View::new(&keys, 2, 2),
            values: View::new(&values, 2, 1),
            offsets: &[7, 9, 9],
        };
        let (mut weights, mut out) = ([0.0; 2], [9.0; 2]);
        additive_attention(inputs, ViewMut::new(&mut weights, 2, 1), ViewMut::new(&mut out, 2, 1));
        assert!((weights[0] - first).abs() < 1e-14 && (weights[0] + weights[1] - 1.0).abs() < 1e-14);
        assert!((out[0] - (10.0 * first + 20.0 * (1.0 - first))).abs() < 1e-12);
        assert_eq!(out[1], 0.0);
    }
}
