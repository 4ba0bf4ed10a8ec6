//! Vectorized passes over a row of logits: the maximum, the log-sum-exp, and the search for logits above a threshold.

use crate::kernels::{Arithmetic, Float, Sweep, sweep};

/// The number of logits that one iteration of a pass compares. A sum uses `SUMS` lanes, half of this number. The number
/// of lanes and the order in which the lanes are added are fixed, so the results are the same on every CPU.
const BLOCK: usize = 32;
const SUMS: usize = BLOCK / 2;

/// Returns the largest logit, or negative infinity if there are no logits.
///
/// # Errors
/// As an error, returns the first logit that is NaN or positive infinity.
pub(super) fn largest(row: &[f32]) -> Result<f32, f32> {
    struct Largest<'a>(&'a [f32]);
    impl Sweep for Largest<'_> {
        type Output = (f32, bool);
        const PORTABLE: bool = false;

        #[inline(always)]
        fn run<A: Arithmetic>(self) -> (f32, bool) {
            let (blocks, rest) = self.0.as_chunks::<BLOCK>();
            let (mut most, mut wrong) = ([f32::NEG_INFINITY; BLOCK], [0u32; BLOCK]);
            for block in blocks {
                for ((most, wrong), &x) in most.iter_mut().zip(&mut wrong).zip(block) {
                    *most = if x > *most { x } else { *most };
                    *wrong |= u32::from(is_wrong(x));
                }
            }
            let most = most.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a });
            let wrong = wrong.iter().any(|&wrong| wrong != 0) || rest.iter().any(|&x| is_wrong(x));
            (most, wrong)
        }
    }
    match sweep(Largest(row)) {
        (most, false) => Ok(most),
        (most, true) => Err(row.iter().copied().find(|&x| is_wrong(x)).unwrap_or(most)),
    }
}

#[inline(always)]
fn is_wrong(x: f32) -> bool {
    x.is_nan() || x == f32::INFINITY
}

/// Returns the index of the first logit that equals `largest`, the maximum of the row; `None` if all logits are
/// negative infinity.
pub(super) fn first_largest(row: &[f32], largest: f32) -> Option<usize> {
    let possible = largest > f32::NEG_INFINITY;
    possible.then(|| row.iter().position(|&x| x == largest)).flatten()
}

/// Computes `ln Σ e^x` over a row of logits x; `largest` is the maximum of the row and must be finite. The result is at
/// least `largest`. A logit minus the result is therefore at most 0, as the logarithm of a probability must be.
pub(super) fn log_sum_exp(row: &[f32], largest: f32) -> f64 {
    struct Sum<'a>(&'a [f32], f32);
    impl Sweep for Sum<'_> {
        type Output = f64;
        const PORTABLE: bool = false;

        #[inline(always)]
        fn run<A: Arithmetic>(self) -> f64 {
            let Self(row, largest) = self;
            let (blocks, rest) = row.as_chunks::<SUMS>();
            let mut sums = [0.0f64; SUMS];
            for block in blocks {
                for (sum, &x) in sums.iter_mut().zip(block) {
                    *sum += f64::from((x - largest).exp_with::<A>());
                }
            }
            for (sum, &x) in sums.iter_mut().zip(rest) {
                *sum += f64::from((x - largest).exp_with::<A>());
            }
            sums.iter().sum()
        }
    }
    f64::from(largest) + sweep(Sum(row, largest)).ln()
}

/// Calls `found` for each logit that is at least the threshold, from index `from` on. The arguments of `found` are the
/// index, in ascending order, and the logit. Each call returns the threshold for the logits that follow.
pub(super) fn from_threshold(row: &[f32], from: usize, threshold: f32, found: impl FnMut(usize, f32) -> f32) {
    struct Scan<'a, F>(&'a [f32], usize, f32, F);
    impl<F: FnMut(usize, f32) -> f32> Sweep for Scan<'_, F> {
        type Output = ();
        const PORTABLE: bool = false;

        #[inline(always)]
        fn run<A: Arithmetic>(self) {
            let Self(row, from, mut threshold, mut found) = self;
            for (i, block) in row.chunks(BLOCK).enumerate() {
                let any = block.iter().fold(0u32, |any, &x| any | u32::from(x >= threshold));
                if any == 0 {
                    continue;
                }
                for (j, &x) in block.iter().enumerate() {
                    if x >= threshold {
                        threshold = found(from + i * BLOCK + j, x);
                    }
                }
            }
        }
    }
    sweep(Scan(&row[from..], from, threshold, found));
}

/// Computes `e^(scale · (x - largest))` for each number x; `scale` is positive and finite, and `largest` is the finite maximum.
pub(super) fn weigh(row: &[f32], largest: f32, scale: f64, weights: &mut Vec<f32>) {
    struct Weigh<'a>(&'a [f32], f32, f64, &'a mut [f32]);
    impl Sweep for Weigh<'_> {
        type Output = ();
        const PORTABLE: bool = false;

        #[inline(always)]
        fn run<A: Arithmetic>(self) {
            let Self(row, largest, scale, weights) = self;
            for (weight, &x) in weights.iter_mut().zip(row) {
                // The computation is in f64, so that neither a difference of large numbers nor the scale for a tiny temperature
                // overflows.
                let power = (f64::from(x) - f64::from(largest)) * scale;
                *weight = (power as f32).exp_with::<A>();
            }
        }
    }
    weights.resize(row.len(), 0.0);
    sweep(Weigh(row, largest, scale, weights));
}

/// Iterates over the blocks of weights, in order, with the sum of each block; the last block may have fewer weights.
pub(super) fn block_sums(weights: &[f32]) -> impl Iterator<Item = (&[f32], f64)> {
    weights.chunks(BLOCK).map(|block| (block, block.iter().map(|&w| f64::from(w)).sum()))
}

#[cfg(test)]
mod tests;
