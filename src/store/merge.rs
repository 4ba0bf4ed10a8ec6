//! Merges the gradients of a round into one gradient; the result does not depend on the order in which workers push.

use crate::error::{Error, Result};
use crate::kernels::{RowMerge, View, ViewMut, all_finite};
use crate::operator::RowValue;
use crate::tensor::{Dense, Element, SelectedRows, Storage};
use crate::with_float;

/// A gradient and the factor of this gradient in a sum.
pub(crate) struct WeighedGradient {
    pub(crate) gradient: Storage,
    pub(crate) factor: f64,
}

/// How the gradients of a round are merged: by their weighted mean, or by their negated sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Merging {
    /// The weighted mean of the gradients, Σ weight · gradient / Σ weight. If the loss is a mean over samples, and each weight
    /// is a number of samples, the weighted mean is the gradient of the loss over all samples.
    Mean,
    /// The negated sum −Σ weight · gradient, so that gradient descent with the rate 1 adds Σ weight · gradient to the value.
    Descended,
}

/// Returns the gradients, each with the factor that follows from its weight.
pub(super) fn parts(merging: Merging, pushed: Vec<(Storage, f64)>) -> Vec<WeighedGradient> {
    let all: f64 = pushed.iter().map(|(_, weight)| weight).sum();
    let largest = pushed.iter().map(|(_, weight)| *weight).fold(0.0, f64::max);
    let factor = |weight: f64| match merging {
        Merging::Descended => -weight,
        // If all weights are 0, there are no samples, and all factors are 0.
        Merging::Mean if all == 0.0 => 0.0,
        // If the sum of the weights overflows, the weights are divided by the largest weight first.
        Merging::Mean if all.is_infinite() => {
            weight / largest / pushed.iter().map(|(_, weight)| weight / largest).sum::<f64>()
        }
        Merging::Mean => weight / all,
    };
    let factors: Vec<f64> = pushed.iter().map(|(_, weight)| factor(*weight)).collect();
    pushed
        .into_iter()
        .zip(factors)
        .map(|((gradient, _), factor)| WeighedGradient { gradient, factor })
        .collect()
}

/// Computes Σ factor · gradient, in the order of the gradients. If all gradients are selected rows, the sum is selected rows
/// with ascending, distinct row numbers; else the sum is dense.
///
/// # Errors
/// Returns an error if the sum has a number that is not finite, or if memory is exhausted.
pub(crate) fn merge(mut parts: Vec<WeighedGradient>) -> Result<Storage> {
    let merged = |gradient: &Storage| gradient.as_selected_rows().map_or(true, |rows| rows.is_merged());
    if parts.len() == 1
        && let Some(part) = parts.pop_if(|part| part.factor == 1.0 && merged(&part.gradient))
    {
        return Ok(part.gradient);
    }
    let Some(dtype) = parts.first().map(|part| part.gradient.dtype()) else {
        return Err(Error::new("gradients to merge", "at least one", "none"));
    };
    let sum = with_float!(dtype, T => match parts.iter().all(|part| part.gradient.as_selected_rows().is_ok()) {
        true => rows::<T>(&parts),
        false => dense::<T>(&parts),
    })?;
    checked_finite(&sum, "sum of gradients")?;
    Ok(sum)
}

fn dense<T: RowValue + Element>(parts: &[WeighedGradient]) -> Result<Storage> {
    let mut sum = Dense::zeros(T::ROW_DTYPE, parts.first().map_or(&[], |part| part.gradient.shape()))?;
    let width = sum.width();
    let out = sum.as_mut_slice::<T>()?;
    let add = |to: &mut [T], from: &[T], factor: T| {
        to.iter_mut().zip(from).for_each(|(to, &x)| *to += factor * x);
    };
    for WeighedGradient { gradient, factor } in parts {
        let (factor, numbers) = (T::from_f64(*factor), gradient.numbers().as_slice::<T>()?);
        match gradient {
            Storage::SelectedRows(rows) => {
                for (&id, row) in rows.row_ids().iter().zip(numbers.chunks_exact(width.max(1))) {
                    let start = id as usize * width;
                    add(&mut out[start..start + width], row, factor);
                }
            }
            _ => add(out, numbers, factor),
        }
    }
    Ok(sum.into())
}

fn rows<T: RowValue + Element>(parts: &[WeighedGradient]) -> Result<Storage> {
    let (mut ids, mut numbers) = (Vec::new(), Vec::new());
    let mut shape = Vec::new();
    for WeighedGradient { gradient, factor } in parts {
        let rows = gradient.as_selected_rows()?;
        shape = rows.shape().to_vec();
        ids.extend_from_slice(rows.row_ids());
        let factor = T::from_f64(*factor);
        numbers.extend(rows.value().as_slice::<T>()?.iter().map(|&x| factor * x));
    }
    if u32::try_from(ids.len()).is_err() {
        return Err(Error::new("rows of gradients", format!("at most {}", u32::MAX), ids.len().to_string()));
    }
    let (height, width) = (shape.first().copied().unwrap_or(0), shape.iter().skip(1).product());
    let mut plan = RowMerge::new();
    plan.prepare(&ids);
    let count = plan.ids().len();
    if count < ids.len() || !ids.is_sorted() {
        let mut merged = vec![T::ZERO; count * width];
        plan.merge(View::new(&numbers, ids.len(), width), ViewMut::new(&mut merged, count, width));
        (ids, numbers) = (plan.ids().to_vec(), merged);
    }
    if let Some(rows) = shape.first_mut() {
        *rows = ids.len();
    }
    Ok(SelectedRows::new(height, ids, Dense::from_vec(&shape, numbers)?)?.into())
}

/// Checks that all numbers of a value are finite; the error names the position of the first number that is not finite.
pub(super) fn checked_finite(value: &Storage, what: &str) -> Result<()> {
    fn finite<T: RowValue + Element>(numbers: &[T]) -> bool {
        all_finite(View::new(numbers, 1, numbers.len()))
    }
    let numbers = value.numbers();
    let finite = with_float!(numbers.dtype(), T => numbers.as_slice::<T>().map(finite))?;
    // This second pass over the numbers finds the position for the error.
    if finite { Ok(()) } else { value.check_finite(what) }
}
