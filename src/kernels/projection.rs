//! Random projection of sparse rows: products with a matrix of random signs; the matrix is never stored.
//!
//! The result is out_j = 1/√k · Σ_e v_e · s(c_e, j). The sum is over the entries e of a row, with column c_e and value v_e,
//! and the sign s is 1 or −1 with equal probability. The method is from D. Achlioptas, "Database-friendly random
//! projections: Johnson-Lindenstrauss with binary coins", Journal of Computer and System Sciences 66, 2003. Each sign is one
//! bit of a counter-based random number, so the sign depends only on seed, column and j. A column index may therefore be any
//! integer, and the number of columns need not be known.

use super::float::Float;
use super::path::{Arithmetic, Sweep, sweep};
use super::random::philox;

/// The number of signs that one call of [`signs`] returns.
const SIGNS: usize = 128;
/// The number of signs in one word of random bits.
const WORD: usize = 32;

/// Projects a sparse row: `out[j]` = 1/√k · Σ_e `values[e]` · s(`indices[e]`, j), where k = `out.len()` and the terms are
/// added in the order of the entries. A row without entries is projected to zeros. A column may occur several times in the
/// row.
///
/// ```
/// use unpadded::kernels::projection::project_csr_row;
/// let (mut one, mut both) = ([0.0f64; 4], [0.0f64; 4]);
/// project_csr_row(&[1_000_000_007], &[3.0], 7, &mut one);
/// assert!(one.iter().all(|x| x.abs() == 1.5)); // 3 / √4
/// project_csr_row(&[1_000_000_007, 1_000_000_007], &[3.0, -3.0], 7, &mut both);
/// assert_eq!(both, [0.0; 4]);
/// ```
///
/// # Panics
/// If `values` does not have one number for each index.
pub fn project_csr_row<T: Float>(indices: &[i64], values: &[T], seed: u64, out: &mut [T]) {
    assert_eq!(indices.len(), values.len(), "one value for each index");
    sweep(Project { indices, values, seed, out });
}

/// Computes the gradient of the values: `dvalues[e]` = 1/√k · Σ_j s(`indices[e]`, j) · `dout[j]`, summed in an order that
/// depends only on k.
///
/// # Panics
/// If `dvalues` does not have one number for each index.
pub fn project_gradient<T: Float>(indices: &[i64], seed: u64, dout: &[T], dvalues: &mut [T]) {
    assert_eq!(indices.len(), dvalues.len(), "one value for each index");
    sweep(Gradient { indices, seed, dout, dvalues });
}

/// Returns [`SIGNS`] signs of a column, beginning with sign number `part` · [`SIGNS`]. Each sign is one bit, set for −1.
#[inline(always)]
fn signs(seed: u64, column: i64, part: usize) -> [u32; SIGNS / WORD] {
    let (column, part) = (column as u64, part as u64);
    let counter = [column as u32, (column >> 32) as u32, part as u32, (part >> 32) as u32];
    philox(counter, [seed as u32, (seed >> 32) as u32])
}

/// Converts each bit of a word to a sign: 1 for a bit of 0, −1 for a bit of 1.
#[inline(always)]
fn spread<T: Float>(word: u32) -> [T; WORD] {
    // The bit mask of each element is a constant, so that the compiler generates vector code.
    std::array::from_fn(|bit| if word & (1 << bit) == 0 { T::ONE } else { -T::ONE })
}

#[inline(always)]
fn scale<T: Float>(count: usize) -> T {
    T::from_f64(1.0 / (count as f64).sqrt())
}

struct Project<'a, T> {
    indices: &'a [i64],
    values: &'a [T],
    seed: u64,
    out: &'a mut [T],
}

impl<T: Float> Sweep for Project<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let scale = scale::<T>(self.out.len());
        for (part, out) in self.out.chunks_mut(SIGNS).enumerate() {
            let mut sums = [[T::ZERO; WORD]; SIGNS / WORD];
            for (&column, &value) in self.indices.iter().zip(self.values) {
                for (sums, word) in sums.iter_mut().zip(signs(self.seed, column, part)) {
                    for (sum, sign) in sums.iter_mut().zip(spread::<T>(word)) {
                        *sum = A::mul_add(value, sign, *sum);
                    }
                }
            }
            for (out, &sum) in out.iter_mut().zip(sums.as_flattened()) {
                *out = scale * sum;
            }
        }
    }
}

struct Gradient<'a, T> {
    indices: &'a [i64],
    seed: u64,
    dout: &'a [T],
    dvalues: &'a mut [T],
}

impl<T: Float> Sweep for Gradient<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let scale = scale::<T>(self.dout.len());
        for (&column, dvalue) in self.indices.iter().zip(&mut *self.dvalues) {
            let mut sums = [T::ZERO; WORD];
            for (part, dout) in self.dout.chunks(SIGNS).enumerate() {
                for (dout, word) in dout.chunks(WORD).zip(signs(self.seed, column, part)) {
                    for ((sum, sign), &d) in sums.iter_mut().zip(spread::<T>(word)).zip(dout) {
                        *sum = A::mul_add(d, sign, *sum);
                    }
                }
            }
            let mut half = WORD / 2;
            while half > 0 {
                for i in 0..half {
                    sums[i] += sums[i + half];
                }
                half /= 2;
            }
            // For k = 0 the scale 1/√k is undefined.
            *dvalue = if self.dout.is_empty() { T::ZERO } else { scale * sums[0] };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::checks::numbers;

    /// Returns the sign s(column, j) of the formula.
    fn sign(seed: u64, column: i64, j: usize) -> f64 {
        let column = column as u64;
        let counter = [column as u32, (column >> 32) as u32, (j / 128) as u32, 0];
        let word = philox(counter, [seed as u32, (seed >> 32) as u32])[j % 128 / 32];
        if word >> (j % 32) & 1 == 0 { 1.0 } else { -1.0 }
    }

    #[test]
    fn rows_are_projected_as_the_formula_says() {
        let columns = [3, i64::MAX, 0, 3, -1, 1 << 40];
        for k in [0, 1, 31, 32, 33, 127, 128, 129, 300] {
            for entries in [0, 1, columns.len()] {
                let (columns, values) = (&columns[..entries], numbers::<f64>(entries, 1));
                let (mut out, mut single) = (vec![f64::NAN; k], vec![f32::NAN; k]);
                project_csr_row(columns, &values, 9, &mut out);
                let rounded: Vec<f32> = values.iter().map(|&v| v as f32).collect();
                project_csr_row(columns, &rounded, 9, &mut single);
                for j in 0..k {
                    let sum: f64 = columns.iter().zip(&values).map(|(&c, v)| v * sign(9, c, j)).sum();
                    let expected = sum / (k as f64).sqrt();
                    assert!((out[j] - expected).abs() < 1e-14, "k {k}, j {j}: {} for {expected}", out[j]);
                    assert!((f64::from(single[j]) - expected).abs() < 1e-6);
                }
                let (dout, mut dvalues) = (numbers::<f64>(k, 2), vec![f64::NAN; entries]);
                project_gradient(columns, 9, &dout, &mut dvalues);
                for (&column, dvalue) in columns.iter().zip(dvalues) {
                    let sum: f64 = dout.iter().enumerate().map(|(j, d)| d * sign(9, column, j)).sum();
                    let expected = if k == 0 { 0.0 } else { sum / (k as f64).sqrt() };
                    assert!((dvalue - expected).abs() < 1e-13, "k {k}: {dvalue} for {expected}");
                }
            }
        }
    }

    #[test]
    fn a_shorter_projection_is_the_start_of_a_longer_one_but_for_its_scale() {
        let (mut short, mut long) = ([0.0f64; 64], [0.0f64; 256]);
        project_csr_row(&[5, 8], &[1.0, 0.5], 1, &mut short);
        project_csr_row(&[5, 8], &[1.0, 0.5], 1, &mut long);
        assert!(short.iter().zip(&long).all(|(s, l)| *s == 2.0 * l));
    }

    /// The mean of n signs has a standard deviation of 1/√n; the mean product of the signs of two columns, of two seeds
    /// or of two neighbouring positions has this standard deviation, too. The test allows four standard deviations.
    #[test]
    fn signs_are_fair_and_do_not_depend_on_each_other() {
        const K: usize = 1000;
        const COLUMNS: usize = 400;
        let row = |seed, column| {
            let mut out = vec![0.0f64; K];
            project_csr_row(&[column], &[(K as f64).sqrt()], seed, &mut out);
            assert!(out.iter().all(|x| (x.abs() - 1.0).abs() < 1e-12));
            out.into_iter().map(f64::signum).collect::<Vec<_>>()
        };
        let rows: Vec<_> = (0..COLUMNS as i64).map(|column| row(1, column)).collect();
        let count = (K * COLUMNS) as f64;
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let sums = [
            rows.iter().flatten().sum::<f64>(),
            rows.windows(2).map(|pair| product(&pair[0], &pair[1])).sum(),
            rows.iter().map(|row| product(&row[1..], row)).sum(),
            rows.iter().enumerate().map(|(c, first)| product(first, &row(2, c as i64))).sum(),
        ];
        for (i, sum) in sums.iter().enumerate() {
            assert!((sum / count).abs() < 4.0 / count.sqrt(), "{i}: {}", sum / count);
        }
    }

    /// If k ≥ (4 + 2β) ln n / (ε²/2 − ε³/3), all squared distances of n points change at most by the factors 1 ± ε, with a
    /// probability of at least 1 − n^−β. This is theorem 1.1 of Achlioptas, here with β = 1.
    #[test]
    fn distances_are_kept_within_the_bound_of_johnson_and_lindenstrauss() {
        const POINTS: usize = 20;
        const WIDTH: usize = 2000;
        let epsilon = 0.4f64;
        let k =
            (6.0 * (POINTS as f64).ln() / (epsilon.powi(2) / 2.0 - epsilon.powi(3) / 3.0)).ceil() as usize;
        let columns: Vec<i64> = (0..WIDTH as i64).map(|i| i * 1_000_003).collect();
        // The points have few entries that are not zero, like bags of words.
        let point = |i: usize| -> Vec<f64> {
            let sparse = |(j, x): (usize, f64)| if (i + j).is_multiple_of(13) { x } else { 0.0 };
            numbers::<f64>(WIDTH, 100 + i as u64).into_iter().enumerate().map(sparse).collect()
        };
        let points: Vec<_> = (0..POINTS).map(point).collect();
        let square = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
        let mut ratios = Vec::new();
        for i in 0..POINTS {
            for j in 0..i {
                let apart: Vec<f64> = points[i].iter().zip(&points[j]).map(|(a, b)| a - b).collect();
                let mut out = vec![0.0; k];
                project_csr_row(&columns, &apart, 3, &mut out);
                ratios.push(square(&out) / square(&apart));
            }
        }
        let kept = ratios.iter().all(|r| (1.0 - epsilon..=1.0 + epsilon).contains(r));
        assert!(kept, "k {k}: {ratios:?}");
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        assert!((mean - 1.0).abs() < 0.05, "{mean}");
    }
}
