//! Normalisation of columns to mean 0 and variance 1 over all rows, as in batch normalisation, and the gradients.
//!
//! Sums over rows are computed in blocks of [`SUM_ROWS`] rows, so that the order of summation depends only on the shapes.
//! Threads divide the columns when they compute sums, and the rows when they compute results row by row.

use super::column_sums::SUM_ROWS;
use super::float::{Assign, Float};
use super::fork::join;
use super::path::{Arithmetic, Sweep, sweep};
use super::view::{View, ViewMut};

/// The number of columns that are summed at the same time.
const COLUMNS: usize = 128;
/// Below this number of elements, a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 16;

/// The mean and the scale with which each column is normalised.
#[derive(Debug, Clone, Copy)]
pub struct ColumnNorm<'a, T> {
    /// The mean of each column, which is subtracted from the column.
    pub mean: &'a [T],
    /// The factor by which each column is multiplied after its mean is subtracted.
    pub scale: &'a [T],
}

/// Computes the mean and the variance, Σ (x − mean)² / n, of each column; both are 0 if there are no rows. Up to `threads`
/// threads of rayon's pool divide the work; the bits do not depend on the number of threads.
///
/// # Panics
/// If `mean` or `variance` does not have one number per column.
pub fn column_moments<T: Float>(x: View<'_, T>, mean: &mut [T], variance: &mut [T], threads: usize) {
    let width = x.width();
    assert!(mean.len() == width && variance.len() == width, "moments of {width} columns");
    let threads = super::helpers(x.rows() * width, WORTH_A_THREAD, threads);
    if threads < 2 || width < 2 {
        return sweep(Moments { x, mean, variance });
    }
    let left = threads / 2;
    let middle = (width * left / threads).max(1);
    let (mean, mean_after) = mean.split_at_mut(middle);
    let (variance, variance_after) = variance.split_at_mut(middle);
    join(
        || column_moments(x.columns(0, middle), mean, variance, left),
        || column_moments(x.columns(middle, width), mean_after, variance_after, threads - left),
    );
}

/// Computes `out = (x − mean) · scale · gain + bias`, column by column; a `gain` of `None` means 1, and a `bias` of `None`
/// means 0.
///
/// # Panics
/// If two arguments do not have matching shapes.
pub fn norm_columns<T: Float>(
    x: View<'_, T>,
    norm: ColumnNorm<'_, T>,
    (gain, bias): (Option<&[T]>, Option<&[T]>),
    out: ViewMut<'_, T>,
    threads: usize,
) {
    let (rows, width) = (x.rows(), x.width());
    assert_eq!((out.rows(), out.width()), (rows, width), "the shape of normalised columns");
    let fits = |side: Option<&[T]>| side.is_none_or(|side| side.len() == width);
    assert!(fits(gain) && fits(bias) && fits(Some(norm.mean)) && fits(Some(norm.scale)), "{width} columns");
    let threads = super::helpers(rows * width, WORTH_A_THREAD, threads);
    if threads < 2 || rows < 2 {
        return sweep(Normalised { x, norm, gain, bias, out });
    }
    let left = threads / 2;
    let middle = (rows * left / threads).max(1);
    let (out, after) = out.split_rows(middle);
    join(
        || norm_columns(x.rows_range(0, middle), norm, (gain, bias), out, left),
        || norm_columns(x.rows_range(middle, rows), norm, (gain, bias), after, threads - left),
    );
}

/// Computes the gradients of gain and bias: `along[j] = Σ dout · (x − mean) · scale` and `all[j] = Σ dout`. Up to `threads`
/// threads of rayon's pool divide the work; the bits do not depend on the number of threads.
///
/// # Panics
/// If two arguments do not have matching shapes.
pub fn norm_columns_sums<T: Float>(
    x: View<'_, T>,
    dout: View<'_, T>,
    norm: ColumnNorm<'_, T>,
    (along, all): (&mut [T], &mut [T]),
    threads: usize,
) {
    let width = x.width();
    assert_eq!((dout.rows(), dout.width()), (x.rows(), width), "the shape of a gradient");
    assert!([along.len(), all.len(), norm.mean.len(), norm.scale.len()] == [width; 4], "{width} columns");
    let threads = super::helpers(x.rows() * width, WORTH_A_THREAD, threads);
    if threads < 2 || width < 2 {
        return sweep(Sums { x, dout, norm, along, all });
    }
    let left = threads / 2;
    let middle = (width * left / threads).max(1);
    let (along, along_after) = along.split_at_mut(middle);
    let (all, all_after) = all.split_at_mut(middle);
    let (mean, mean_after) = norm.mean.split_at(middle);
    let (scale, scale_after) = norm.scale.split_at(middle);
    let parts =
        [(0, middle), (middle, width)].map(|(from, to)| (x.columns(from, to), dout.columns(from, to)));
    let [(x, dout), (x_after, dout_after)] = parts;
    join(
        || norm_columns_sums(x, dout, ColumnNorm { mean, scale }, (along, all), left),
        || {
            let norm = ColumnNorm { mean: mean_after, scale: scale_after };
            norm_columns_sums(x_after, dout_after, norm, (along_after, all_after), threads - left);
        },
    );
}

/// Computes the gradient of the input, `dx = (dout − all − (x − mean) · scale · along) · scale · gain`. `along` is the
/// gradient of the gain, divided by the number of rows; `all` is the gradient of the bias, divided by the number of
/// rows. Both are 0 if mean and scale are constants.
///
/// # Panics
/// If two arguments do not have matching shapes.
pub fn norm_columns_gradient<T: Float>(
    x: View<'_, T>,
    dout: View<'_, T>,
    norm: ColumnNorm<'_, T>,
    (gain, along, all): (Option<&[T]>, &[T], &[T]),
    (dx, assign): (ViewMut<'_, T>, Assign),
    threads: usize,
) {
    let (rows, width) = (x.rows(), x.width());
    let same = |there: (usize, usize)| there == (rows, width);
    assert!(same((dout.rows(), dout.width())) && same((dx.rows(), dx.width())), "the shape of a gradient");
    let sides = [along.len(), all.len(), norm.mean.len(), norm.scale.len()];
    assert!(sides == [width; 4] && gain.is_none_or(|gain| gain.len() == width), "{width} columns");
    let threads = super::helpers(rows * width, WORTH_A_THREAD, threads);
    if threads < 2 || rows < 2 {
        return sweep(Gradient { x, dout, norm, gain, along, all, dx, assign });
    }
    let left = threads / 2;
    let middle = (rows * left / threads).max(1);
    let (dx, after) = dx.split_rows(middle);
    let part = |from, to| (x.rows_range(from, to), dout.rows_range(from, to));
    let ((x, dout), (x_after, dout_after)) = (part(0, middle), part(middle, rows));
    let means = (gain, along, all);
    join(
        || norm_columns_gradient(x, dout, norm, means, (dx, assign), left),
        || norm_columns_gradient(x_after, dout_after, norm, means, (after, assign), threads - left),
    );
}

struct Moments<'a, T> {
    x: View<'a, T>,
    mean: &'a mut [T],
    variance: &'a mut [T],
}

impl<T: Float> Sweep for Moments<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let rows = self.x.rows();
        let share = T::from_f64(1.0 / rows.max(1) as f64);
        let sides = self.mean.chunks_mut(COLUMNS).zip(self.variance.chunks_mut(COLUMNS));
        for (chunk, (mean, variance)) in sides.enumerate() {
            let from = chunk * COLUMNS;
            let x = self.x.columns(from, from + mean.len());
            mean.fill(T::ZERO);
            variance.fill(T::ZERO);
            for row in (0..rows).step_by(SUM_ROWS) {
                let mut block = [T::ZERO; COLUMNS];
                for x in x.rows_range(row, rows.min(row + SUM_ROWS)).iter() {
                    for (sum, &x) in block.iter_mut().zip(x) {
                        *sum += x;
                    }
                }
                for (mean, sum) in mean.iter_mut().zip(block) {
                    *mean += sum;
                }
            }
            for mean in mean.iter_mut() {
                *mean *= share;
            }
            for row in (0..rows).step_by(SUM_ROWS) {
                let mut block = [T::ZERO; COLUMNS];
                for x in x.rows_range(row, rows.min(row + SUM_ROWS)).iter() {
                    for ((sum, &x), &mean) in block.iter_mut().zip(x).zip(&*mean) {
                        *sum = A::mul_add(x - mean, x - mean, *sum);
                    }
                }
                for (variance, sum) in variance.iter_mut().zip(block) {
                    *variance += sum;
                }
            }
            for variance in variance.iter_mut() {
                *variance *= share;
            }
        }
    }
}

struct Normalised<'a, T> {
    x: View<'a, T>,
    norm: ColumnNorm<'a, T>,
    gain: Option<&'a [T]>,
    bias: Option<&'a [T]>,
    out: ViewMut<'a, T>,
}

impl<T: Float> Sweep for Normalised<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let ColumnNorm { mean, scale } = self.norm;
        for (out, x) in self.out.iter_mut().zip(self.x.iter()) {
            for (((out, &x), &mean), &scale) in out.iter_mut().zip(x).zip(mean).zip(scale) {
                *out = (x - mean) * scale;
            }
            if let Some(gain) = self.gain {
                out.iter_mut().zip(gain).for_each(|(out, &gain)| *out *= gain);
            }
            if let Some(bias) = self.bias {
                out.iter_mut().zip(bias).for_each(|(out, &bias)| *out += bias);
            }
        }
    }
}

struct Sums<'a, T> {
    x: View<'a, T>,
    dout: View<'a, T>,
    norm: ColumnNorm<'a, T>,
    along: &'a mut [T],
    all: &'a mut [T],
}

impl<T: Float> Sweep for Sums<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let rows = self.x.rows();
        let sides = self.along.chunks_mut(COLUMNS).zip(self.all.chunks_mut(COLUMNS));
        for (chunk, (along, all)) in sides.enumerate() {
            let (from, to) = (chunk * COLUMNS, chunk * COLUMNS + all.len());
            let (x, dout) = (self.x.columns(from, to), self.dout.columns(from, to));
            let (mean, scale) = (&self.norm.mean[from..to], &self.norm.scale[from..to]);
            along.fill(T::ZERO);
            all.fill(T::ZERO);
            for row in (0..rows).step_by(SUM_ROWS) {
                let end = rows.min(row + SUM_ROWS);
                let (mut terms, mut sums) = ([T::ZERO; COLUMNS], [T::ZERO; COLUMNS]);
                for (x, g) in x.rows_range(row, end).iter().zip(dout.rows_range(row, end).iter()) {
                    for ((term, &x), (&g, &mean)) in terms.iter_mut().zip(x).zip(g.iter().zip(mean)) {
                        *term = A::mul_add(x - mean, g, *term);
                    }
                    for (sum, &g) in sums.iter_mut().zip(g) {
                        *sum += g;
                    }
                }
                for ((along, term), &scale) in along.iter_mut().zip(terms).zip(scale) {
                    *along = A::mul_add(term, scale, *along);
                }
                for (all, sum) in all.iter_mut().zip(sums) {
                    *all += sum;
                }
            }
        }
    }
}

struct Gradient<'a, T> {
    x: View<'a, T>,
    dout: View<'a, T>,
    norm: ColumnNorm<'a, T>,
    gain: Option<&'a [T]>,
    along: &'a [T],
    all: &'a [T],
    dx: ViewMut<'a, T>,
    assign: Assign,
}

impl<T: Float> Sweep for Gradient<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let ColumnNorm { mean, scale } = self.norm;
        for (dx, (x, g)) in self.dx.iter_mut().zip(self.x.iter().zip(self.dout.iter())) {
            for (j, dx) in dx.iter_mut().enumerate() {
                let hat = (x[j] - mean[j]) * scale[j];
                let gain = self.gain.map_or(T::ONE, |gain| gain[j]);
                self.assign.put(dx, (g[j] - self.all[j] - hat * self.along[j]) * scale[j] * gain);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::checks::numbers;

    #[test]
    fn moments_and_sums_are_those_of_the_formulas_with_the_same_bits_on_any_number_of_threads() {
        for (rows, width) in [(0, 3), (1, 2), (5, 1), (700, 131), (1030, 260)] {
            let (x, g) = (numbers::<f64>(rows * width, 1), numbers::<f64>(rows * width, 2));
            let [vx, vg] = [&x, &g].map(|numbers| View::new(numbers, rows, width));
            let run = |threads| {
                let mut to = vec![vec![f64::NAN; width]; 4];
                let [mean, variance, along, all] = to.as_mut_slice() else { unreachable!("there are four") };
                column_moments(vx, mean, variance, threads);
                let scale = vec![2.0; width];
                let norm = ColumnNorm { mean, scale: &scale };
                norm_columns_sums(vx, vg, norm, (along, all), threads);
                let (mut out, mut dx) = (vec![f64::NAN; rows * width], vec![f64::NAN; rows * width]);
                let bias = vec![0.25; width];
                norm_columns(vx, norm, (None, Some(&bias)), ViewMut::new(&mut out, rows, width), threads);
                let to_rows = (ViewMut::new(&mut dx, rows, width), Assign::Write);
                norm_columns_gradient(vx, vg, norm, (Some(&scale), along, all), to_rows, threads);
                to.extend([out, dx]);
                to
            };
            let found = run(1);
            assert_eq!(found, run(3));
            let n = rows.max(1) as f64;
            let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{a} {b}");
            for j in 0..width {
                let column = |numbers: &[f64]| (0..rows).map(|i| numbers[i * width + j]).collect::<Vec<_>>();
                let (x, g) = (column(&x), column(&g));
                let mean = x.iter().sum::<f64>() / n;
                close(found[0][j], mean);
                close(found[1][j], x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n);
                let (along, all) =
                    (x.iter().zip(&g).map(|(x, g)| (x - mean) * 2.0 * g).sum(), g.iter().sum());
                close(found[2][j], along);
                close(found[3][j], all);
                for i in 0..rows {
                    let hat = (x[i] - mean) * 2.0;
                    close(found[4][i * width + j], hat + 0.25);
                    close(found[5][i * width + j], (g[i] - all - hat * along) * 4.0);
                }
            }
        }
    }
}
