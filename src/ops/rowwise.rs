//! What the row-wise families share: loops over rows in one store mode, and common samples.

use std::sync::Arc;

use ndarray::Array2;

use crate::error::Result;
use crate::kernels::{Float, Store, View, ViewMut};
use crate::lod::Lod;
use crate::program::{Attributes, Sample};
use crate::tensor::Variable;

/// Writes or adds one element.
#[inline(always)]
pub(super) fn put<T: Float>(to: &mut T, value: T, store: Store) {
    match store {
        Store::Write => *to = value,
        Store::Add => *to += value,
    }
}

/// Writes or adds a row.
pub(super) fn put_row<T: Float>(to: &mut [T], values: &[T], store: Store) {
    match store {
        Store::Write => to.copy_from_slice(values),
        Store::Add => to.iter_mut().zip(values).for_each(|(to, &value)| *to += value),
    }
}

/// Writes or adds all rows.
pub(super) fn put_rows<T: Float>(mut to: ViewMut<'_, T>, values: View<'_, T>, store: Store) {
    to.iter_mut().zip(values.iter()).for_each(|(to, values)| put_row(to, values, store));
}

/// Writes zeros where a gradient is to be written; adding nothing leaves it as it is.
pub(super) fn put_nothing<T: Float>(mut to: ViewMut<'_, T>, store: Store) {
    if store == Store::Write {
        to.fill(T::ZERO);
    }
}

/// Sequences of the lengths, `width` numbers a row, without a pattern or a tie; `salt` makes others.
pub(super) fn ragged(lengths: &[usize], width: usize, salt: usize) -> Result<Variable> {
    Variable::sequences(numbers(lengths.iter().sum(), width, salt), Lod::from_lengths1(lengths)?)
}

/// A matrix of such numbers, between -1.5 and 1.5.
pub(super) fn numbers(rows: usize, width: usize, salt: usize) -> Array2<f64> {
    Array2::from_shape_fn((rows, width), |(i, j)| {
        1.5 * ((i * width + j + 1) as f64 * 2.4 + salt as f64 * 0.9).sin()
    })
}

/// Two levels over five rows, with an empty sequence in each level.
pub(super) fn nested(width: usize, salt: usize) -> Result<Variable> {
    let lod = Lod::from_lengths(&[vec![2, 0, 1], vec![3, 0, 2]])?;
    Variable::sequences(numbers(5, width, salt), lod)
}

/// The shapes that every row-wise operator is tried on: sequences with an empty one, two levels, only empty
/// sequences, none, rows without LoD, and a constant. `add` binds further operands beside `x`.
pub(super) fn row_samples(
    attributes: &Attributes,
    width: usize,
    add: impl Fn(Sample, &Variable) -> Result<Sample>,
) -> Vec<Sample> {
    let flat = |rows| Ok(Variable::from(numbers(rows, width, 0)));
    let cases: [(&str, Result<Variable>, bool); 6] = [
        ("sequences, one empty", ragged(&[2, 0, 1], width, 0), true),
        ("two levels", nested(width, 0), true),
        ("all empty", ragged(&[0, 0], width, 0), true),
        ("no sequence", ragged(&[], width, 0), true),
        ("one row a sequence", flat(3), true),
        ("a constant", flat(2), false),
    ];
    let bind = |(name, x, batched): (&str, Result<Variable>, bool)| {
        let (x, sample) = (x?, Sample::new(name, attributes.clone()));
        let sample = if batched { sample.batch("x", x.clone()) } else { sample.constant("x", x.clone()) };
        add(sample, &x)
    };
    cases.into_iter().filter_map(|case| bind(case).ok()).collect()
}

/// The sequences that every sequence-wise operator is tried on: with an empty one, of two levels, only empty ones,
/// none. `bind` binds the operands.
pub(super) fn sequence_samples(
    attributes: &Attributes,
    bind: impl Fn(Sample, Arc<Lod>) -> Result<Sample>,
) -> Vec<Sample> {
    let cases = [
        ("sequences with an empty one", vec![vec![3, 0, 1]]),
        ("two levels", vec![vec![2, 0, 1], vec![2, 0, 4]]),
        ("all empty", vec![vec![0, 0]]),
        ("none", vec![vec![]]),
    ];
    let sample = |(name, lengths): (&str, Vec<Vec<usize>>)| {
        bind(Sample::new(name, attributes.clone()), Lod::from_lengths(&lengths)?)
    };
    cases.into_iter().filter_map(|case| sample(case).ok()).collect()
}
