//! Normalisation of rows to mean 0 and variance 1 (layer norm) or to mean square 1 (root mean square norm), and the gradients.
//!
//! A row is read from memory once, and stays in the nearest cache for all passes over the row. A sum over a row has a
//! fixed number of partial sums, and a sum over rows is computed in blocks of [`SUM_ROWS`] rows. The order of summation thus
//! depends only on the shapes.

use super::column_sums::SUM_ROWS;
use super::float::{Assign, Float};
use super::fork::join;
use super::path::{Arithmetic, Sweep, sweep};
use super::prefetch;
use super::product::emptied;
use super::view::{View, ViewMut};

/// The number of independent partial sums. They fill enough vectors that an addition need not wait for the previous
/// one.
const LANES: usize = 32;
/// The distance in bytes from the row that is summed to the row that is prefetched. If a row is longer, the next row is
/// prefetched.
const AHEAD: usize = 8192;
/// Below this number of elements, a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 16;

/// The number that is subtracted from a row before the row is scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Centre {
    /// The mean of the row is subtracted: layer norm.
    Mean,
    /// Nothing is subtracted: root mean square norm.
    Zero,
}

/// The parameters of the normalisation of rows, without the bias.
#[derive(Debug, Clone, Copy)]
pub struct RowNorm<'a, T> {
    /// Whether the mean of the row is subtracted.
    pub centre: Centre,
    /// The small number that is added to the variance (layer norm) or to the mean square (root mean square norm).
    pub epsilon: T,
    /// The factor by which each column is multiplied after normalisation; `None` if all factors are 1.
    pub gain: Option<&'a [T]>,
}

/// The views that receive the gradients of [`norm_rows`], and whether each gradient is written or added; `None` if a
/// gradient is not requested.
pub struct RowNormGradients<'a, T> {
    /// The gradient of the input rows.
    pub dx: Option<(ViewMut<'a, T>, Assign)>,
    /// The gradient of the gain, summed over the rows.
    pub dgain: Option<(&'a mut [T], Assign)>,
    /// The gradient of the bias, summed over the rows.
    pub dbias: Option<(&'a mut [T], Assign)>,
}

/// Computes `out = (x − m) / √(v + epsilon) · gain + bias`, row by row, where m is the mean of the row or 0, and v is the
/// mean of (x − m)².
///
/// # Panics
/// If two arguments do not have matching shapes.
pub fn norm_rows<T: Float>(x: View<'_, T>, norm: RowNorm<'_, T>, bias: Option<&[T]>, out: ViewMut<'_, T>) {
    let width = x.width();
    assert_eq!((out.rows(), out.width()), (x.rows(), width), "the shape of normalised rows");
    let fits = |side: Option<&[T]>| side.is_none_or(|side| side.len() == width);
    assert!(fits(norm.gain) && fits(bias), "a gain and a bias of {width} numbers");
    sweep(Normalised { x, norm, bias, out });
}

/// Returns the length of the scratch of [`norm_rows_gradient`]. The scratch holds a gain. Set `summed` if the gradient
/// of the gain or of the bias is requested; the scratch then also holds two sums per column for each block of rows.
pub fn norm_gradient_numbers(rows: usize, width: usize, summed: bool) -> usize {
    width + if summed { rows.div_ceil(SUM_ROWS) * 2 * width } else { 0 }
}

/// Computes the gradients of [`norm_rows`], on up to `threads` threads of rayon's pool; the bits do not depend on the number
/// of threads. `room` is scratch, which the caller keeps between calls.
///
/// # Panics
/// If two arguments do not have matching shapes.
pub fn norm_rows_gradient<T: Float>(
    x: View<'_, T>,
    dout: View<'_, T>,
    norm: RowNorm<'_, T>,
    to: RowNormGradients<'_, T>,
    room: &mut Vec<T>,
    threads: usize,
) {
    let (rows, width) = (x.rows(), x.width());
    let RowNormGradients { dx, dgain, dbias } = to;
    let same = |rows_there: usize, width_there: usize| (rows_there, width_there) == (rows, width);
    assert!(same(dout.rows(), dout.width()), "the shape of a gradient");
    assert!(dx.as_ref().is_none_or(|(dx, _)| same(dx.rows(), dx.width())), "the shape of a gradient");
    let fits = |side: &Option<(&mut [T], Assign)>| side.as_ref().is_none_or(|(side, _)| side.len() == width);
    assert!(
        norm.gain.is_none_or(|gain| gain.len() == width) && fits(&dgain) && fits(&dbias),
        "the lengths of gains and biases"
    );
    let summed = dgain.is_some() || dbias.is_some();
    let numbers = norm_gradient_numbers(rows, width, summed);
    // If `norm` has no gain, these ones take its place.
    emptied(room, numbers).resize(width, T::ONE);
    room.resize(numbers, T::ZERO);
    let (ones, sums) = room.split_at_mut(width);
    let threads = super::helpers(rows * width, WORTH_A_THREAD, threads);
    let RowNorm { centre, epsilon, gain } = norm;
    let gain = gain.unwrap_or(ones);
    share(Gradients { x, dout, centre, epsilon, gain, dx, sums: &mut *sums }, threads);
    for (side, first) in [(dgain, 0), (dbias, width)] {
        let Some((side, assign)) = side else { continue };
        if assign == Assign::Write {
            side.fill(T::ZERO);
        }
        // The sums of all blocks are added up first, and then the total is added to the gradient.
        let mut blocks = sums.chunks_exact_mut((2 * width).max(1));
        let Some(all) = blocks.next() else { continue };
        for block in blocks {
            all[first..first + width].iter_mut().zip(&block[first..]).for_each(|(all, &sum)| *all += sum);
        }
        side.iter_mut().zip(&all[first..]).for_each(|(to, &sum)| *to += sum);
    }
}

/// Divides the rows among threads: splits the rows in half recursively, at the end of a block of rows.
fn share<T: Float>(mut all: Gradients<'_, T>, threads: usize) {
    let blocks = all.x.rows().div_ceil(SUM_ROWS);
    if threads < 2 || blocks < 2 {
        return sweep(all);
    }
    let left = threads / 2;
    let middle = (blocks * left / threads).max(1);
    let (row, rows) = (middle * SUM_ROWS, all.x.rows());
    let (dx, dx_after) = match all.dx.take() {
        Some((dx, assign)) => {
            let (dx, after) = dx.split_rows(row);
            (Some((dx, assign)), Some((after, assign)))
        }
        None => (None, None),
    };
    let size = if all.sums.is_empty() { 0 } else { middle * 2 * all.x.width() };
    let (sums, sums_after) = all.sums.split_at_mut(size);
    let part = |from, to| (all.x.rows_range(from, to), all.dout.rows_range(from, to));
    let ((x, dout), (x_after, dout_after)) = (part(0, row), part(row, rows));
    let Gradients { centre, epsilon, gain, .. } = all;
    let after =
        Gradients { x: x_after, dout: dout_after, centre, epsilon, gain, dx: dx_after, sums: sums_after };
    join(
        || share(Gradients { x, dout, centre, epsilon, gain, dx, sums }, left),
        || share(after, threads - left),
    );
}

/// Prefetches the row that is [`AHEAD`] bytes after the given row, so that the row has arrived from memory when it is
/// summed. The passes over a row wait for additions, so the memory would otherwise be idle. Nothing after the last row is
/// prefetched, since another thread may be writing the memory after it.
#[inline(always)]
fn ahead<T: Float>(rows: View<'_, T>, row: usize) {
    let next = row + (AHEAD / (rows.width() * size_of::<T>()).max(1)).max(1);
    if next < rows.rows() {
        let row = rows.row(next);
        for at in (0..row.len()).step_by(64 / size_of::<T>()) {
            prefetch::to_read_later(&raw const row[at]);
        }
    }
}

/// Returns the sum of all lanes: adds the second half of the lanes to the first half until one lane is left.
#[inline(always)]
fn whole<T: Float>(lanes: [T; LANES]) -> T {
    let [a, b] = half::<T, 4, 2>(half::<T, 8, 4>(half::<T, 16, 8>(half::<T, LANES, 16>(lanes))));
    a + b
}

/// Adds the second half of the lanes to the first half. The lengths are constants, so that the lanes stay in registers.
#[inline(always)]
fn half<T: Float, const FROM: usize, const TO: usize>(lanes: [T; FROM]) -> [T; TO] {
    let mut sums = [T::ZERO; TO];
    for i in 0..TO {
        sums[i] = lanes[i] + lanes[i + TO];
    }
    sums
}

/// Returns [`LANES`] columns of a row; columns beyond the end of the row have the value `with`.
#[inline(always)]
fn filled<T: Float>(row: &[T], with: T) -> [T; LANES] {
    let mut out = [with; LANES];
    out[..row.len()].copy_from_slice(row);
    out
}

/// Independent partial sums of numbers or of squares, one per lane. The additions are methods, since a closure would not be
/// compiled for the CPU's vectors.
#[derive(Clone, Copy)]
struct Sums<T>([T; LANES]);

#[expect(clippy::needless_range_loop, reason = "zipped lanes depend on inlining between codegen units")]
impl<T: Float> Sums<T> {
    #[inline(always)]
    fn add(&mut self, x: &[T; LANES]) {
        for lane in 0..LANES {
            self.0[lane] += x[lane];
        }
    }

    #[inline(always)]
    fn add_squares<A: Arithmetic>(&mut self, x: &[T; LANES], mean: T) {
        for lane in 0..LANES {
            self.0[lane] = A::mul_add(x[lane] - mean, x[lane] - mean, self.0[lane]);
        }
    }
}

#[inline(always)]
fn sum<T: Float>(x: &[T]) -> T {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut sums = Sums([T::ZERO; LANES]);
    for chunk in chunks {
        sums.add(chunk);
    }
    if !rest.is_empty() {
        sums.add(&filled(rest, T::ZERO));
    }
    whole(sums.0)
}

#[inline(always)]
fn sum_of_squares<T: Float, A: Arithmetic>(x: &[T], mean: T) -> T {
    let (chunks, rest) = x.as_chunks::<LANES>();
    let mut sums = Sums([T::ZERO; LANES]);
    for chunk in chunks {
        sums.add_squares::<A>(chunk, mean);
    }
    if !rest.is_empty() {
        sums.add_squares::<A>(&filled(rest, mean), mean);
    }
    whole(sums.0)
}

/// Returns 1 / `count`, the weight of each number in a mean of `count` numbers.
#[inline(always)]
fn share_of<T: Float>(count: usize) -> T {
    T::from_f64(1.0 / count.max(1) as f64)
}

/// Returns the mean (or 0) of a row and the scale 1 / √(v + epsilon).
#[inline(always)]
fn moments<T: Float, A: Arithmetic>(x: &[T], centre: Centre, epsilon: T) -> (T, T) {
    let share = share_of(x.len());
    let mean = match centre {
        Centre::Mean => sum(x) * share,
        Centre::Zero => T::ZERO,
    };
    let variance = sum_of_squares::<T, A>(x, mean) * share;
    (mean, T::ONE / (variance + epsilon).sqrt())
}

struct Normalised<'a, T> {
    x: View<'a, T>,
    norm: RowNorm<'a, T>,
    bias: Option<&'a [T]>,
    out: ViewMut<'a, T>,
}

impl<T: Float> Sweep for Normalised<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let RowNorm { centre, epsilon, gain } = self.norm;
        let rows = self.x;
        for (row, (out, x)) in self.out.iter_mut().zip(rows.iter()).enumerate() {
            ahead(rows, row);
            let (mean, scale) = moments::<T, A>(x, centre, epsilon);
            match (gain, self.bias) {
                (Some(gain), Some(bias)) => {
                    for ((out, &x), (&gain, &bias)) in out.iter_mut().zip(x).zip(gain.iter().zip(bias)) {
                        *out = A::mul_add((x - mean) * scale, gain, bias);
                    }
                }
                (Some(gain), None) => {
                    for ((out, &x), &gain) in out.iter_mut().zip(x).zip(gain) {
                        *out = (x - mean) * scale * gain;
                    }
                }
                (None, Some(bias)) => {
                    for ((out, &x), &bias) in out.iter_mut().zip(x).zip(bias) {
                        *out = A::mul_add(x - mean, scale, bias);
                    }
                }
                (None, None) => {
                    for (out, &x) in out.iter_mut().zip(x) {
                        *out = (x - mean) * scale;
                    }
                }
            }
        }
    }
}

struct Gradients<'a, T> {
    x: View<'a, T>,
    dout: View<'a, T>,
    centre: Centre,
    epsilon: T,
    gain: &'a [T],
    dx: Option<(ViewMut<'a, T>, Assign)>,
    /// The gradient of the gain, then the gradient of the bias, for each block of rows; empty if neither gradient is
    /// requested.
    sums: &'a mut [T],
}

impl<T: Float> Sweep for Gradients<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let Gradients { centre, epsilon, gain, .. } = self;
        let width = self.x.width();
        let share = share_of::<T>(width);
        for (row, (x, dout)) in self.x.iter().zip(self.dout.iter()).enumerate() {
            ahead(self.x, row);
            ahead(self.dout, row);
            let (mean, scale) = moments::<T, A>(x, centre, epsilon);
            let sums = RowSums { mean, scale, all: [T::ZERO; LANES], along: [T::ZERO; LANES] };
            let (all, along) = if self.sums.is_empty() {
                sums.row::<A>(x, dout, gain)
            } else {
                let block = &mut self.sums[row / SUM_ROWS * 2 * width..][..2 * width];
                let (dgain, dbias) = block.split_at_mut(width);
                sums.row_with::<A>((x, dout, gain), dgain, dbias)
            };
            let Some((dx, assign)) = &mut self.dx else { continue };
            ahead(dx.as_view(), row);
            // The two terms that are subtracted from g · gain: the mean of g · gain, and the projection of g · gain on
            // the normalised row.
            let all = if centre == Centre::Mean { all * share } else { T::ZERO };
            let along = along * scale * scale * share;
            Moved { mean, scale, all, along }.put::<A>(x, dout, gain, dx.row(row), *assign);
        }
    }
}

/// The coefficients of one row in the formula of the input's gradient.
struct Moved<T> {
    mean: T,
    scale: T,
    all: T,
    along: T,
}

impl<T: Float> Moved<T> {
    #[inline(always)]
    fn put<A: Arithmetic>(&self, x: &[T], g: &[T], gain: &[T], to: &mut [T], assign: Assign) {
        let ((xs, x), (gs, g)) = (x.as_chunks::<LANES>(), g.as_chunks::<LANES>());
        let ((gains, gain), (tos, to)) = (gain.as_chunks::<LANES>(), to.as_chunks_mut::<LANES>());
        let count = xs.len();
        let (gs, gains) = (&gs[..count], &gains[..count]);
        for (at, to) in tos[..count].iter_mut().enumerate() {
            let slopes = self.slopes::<A>(&xs[at], &gs[at], &gains[at]);
            match assign {
                Assign::Write => *to = slopes,
                Assign::Add => {
                    for i in 0..LANES {
                        to[i] += slopes[i];
                    }
                }
            }
        }
        if !x.is_empty() {
            let slopes = self.slopes::<A>(&filled(x, T::ZERO), &filled(g, T::ZERO), &filled(gain, T::ZERO));
            assign.put_row(to, &slopes[..x.len()]);
        }
    }

    #[inline(always)]
    fn slopes<A: Arithmetic>(&self, x: &[T; LANES], g: &[T; LANES], gain: &[T; LANES]) -> [T; LANES] {
        let mut out = [T::ZERO; LANES];
        for i in 0..LANES {
            out[i] = (g[i] * gain[i] - A::mul_add(x[i] - self.mean, self.along, self.all)) * self.scale;
        }
        out
    }
}

/// Computes two sums over the columns of a row: Σ g · gain, and Σ g · gain · (x − mean).
struct RowSums<T> {
    mean: T,
    scale: T,
    all: [T; LANES],
    along: [T; LANES],
}

impl<T: Float> RowSums<T> {
    #[inline(always)]
    fn add<A: Arithmetic>(&mut self, x: &[T; LANES], g: &[T; LANES], gain: &[T; LANES]) {
        for i in 0..LANES {
            self.all[i] = A::mul_add(g[i], gain[i], self.all[i]);
            self.along[i] = A::mul_add((x[i] - self.mean) * g[i], gain[i], self.along[i]);
        }
    }

    /// Adds some columns of a row to the two sums, and to the gradients of gain and bias.
    #[inline(always)]
    fn add_with<A: Arithmetic>(
        &mut self,
        (x, g, gain): (&[T; LANES], &[T; LANES], &[T; LANES]),
        dgain: &mut [T; LANES],
        dbias: &mut [T; LANES],
    ) {
        self.add::<A>(x, g, gain);
        for i in 0..LANES {
            dgain[i] = A::mul_add((x[i] - self.mean) * g[i], self.scale, dgain[i]);
            dbias[i] += g[i];
        }
    }

    #[inline(always)]
    fn row<A: Arithmetic>(mut self, x: &[T], g: &[T], gain: &[T]) -> (T, T) {
        let ((xs, x), (gs, g), (gains, gain)) =
            (x.as_chunks::<LANES>(), g.as_chunks::<LANES>(), gain.as_chunks::<LANES>());
        let (gs, gains) = (&gs[..xs.len()], &gains[..xs.len()]);
        for (at, x) in xs.iter().enumerate() {
            self.add::<A>(x, &gs[at], &gains[at]);
        }
        if !x.is_empty() {
            self.add::<A>(&filled(x, T::ZERO), &filled(g, T::ZERO), &filled(gain, T::ZERO));
        }
        (whole(self.all), whole(self.along))
    }

    #[inline(always)]
    fn row_with<A: Arithmetic>(
        mut self,
        (x, g, gain): (&[T], &[T], &[T]),
        dgain: &mut [T],
        dbias: &mut [T],
    ) -> (T, T) {
        let ((xs, x), (gs, g), (gains, gain)) =
            (x.as_chunks::<LANES>(), g.as_chunks::<LANES>(), gain.as_chunks::<LANES>());
        let ((dgains, dgain), (dbiases, dbias)) =
            (dgain.as_chunks_mut::<LANES>(), dbias.as_chunks_mut::<LANES>());
        let count = xs.len();
        let (gs, gains, dgains, dbiases) =
            (&gs[..count], &gains[..count], &mut dgains[..count], &mut dbiases[..count]);
        for (at, x) in xs.iter().enumerate() {
            self.add_with::<A>((x, &gs[at], &gains[at]), &mut dgains[at], &mut dbiases[at]);
        }
        if !x.is_empty() {
            let (mut of_gain, mut of_bias) = (filled(dgain, T::ZERO), filled(dbias, T::ZERO));
            let cells = (&filled(x, T::ZERO), &filled(g, T::ZERO), &filled(gain, T::ZERO));
            self.add_with::<A>(cells, &mut of_gain, &mut of_bias);
            dgain.copy_from_slice(&of_gain[..x.len()]);
            dbias.copy_from_slice(&of_bias[..x.len()]);
        }
        (whole(self.all), whole(self.along))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::checks::numbers;

    /// Computes the formulas of the normalisation directly, in f64.
    fn plain(x: &[f64], g: &[f64], gain: &[f64], centre: Centre) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let n = x.len() as f64;
        let mean = if centre == Centre::Mean { x.iter().sum::<f64>() / n } else { 0.0 };
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let scale = 1.0 / (variance + 1e-5).sqrt();
        let hat: Vec<f64> = x.iter().map(|x| (x - mean) * scale).collect();
        let slopes: Vec<f64> = g.iter().zip(gain).map(|(g, gain)| g * gain).collect();
        let all = if centre == Centre::Mean { slopes.iter().sum::<f64>() / n } else { 0.0 };
        let along = slopes.iter().zip(&hat).map(|(s, h)| s * h).sum::<f64>() / n;
        let dx = slopes.iter().zip(&hat).map(|(s, h)| scale * (s - all - h * along)).collect();
        (hat.iter().zip(gain).map(|(h, gain)| h * gain + 0.5).collect(), dx, hat)
    }

    #[test]
    fn rows_and_gradients_are_those_of_the_formulas_with_the_same_bits_on_any_number_of_threads() {
        for (rows, width) in [(0, 3), (1, 1), (3, 5), (700, 67), (1100, 130)] {
            let (x, g) = (numbers::<f64>(rows * width, 1), numbers::<f64>(rows * width, 2));
            let (gain, bias) = (numbers::<f64>(width, 3), vec![0.5; width]);
            let [vx, vg] = [&x, &g].map(|numbers| View::new(numbers, rows, width));
            for centre in [Centre::Mean, Centre::Zero] {
                let norm = RowNorm { centre, epsilon: 1e-5, gain: Some(&gain) };
                let mut out = vec![f64::NAN; rows * width];
                norm_rows(vx, norm, Some(&bias), ViewMut::new(&mut out, rows, width));
                let run = |threads| {
                    let (mut dx, mut dgain, mut dbias) =
                        (vec![f64::NAN; rows * width], vec![f64::NAN; width], vec![1.0; width]);
                    let to = RowNormGradients {
                        dx: Some((ViewMut::new(&mut dx, rows, width), Assign::Write)),
                        dgain: Some((&mut dgain, Assign::Write)),
                        dbias: Some((&mut dbias, Assign::Add)),
                    };
                    norm_rows_gradient(vx, vg, norm, to, &mut Vec::new(), threads);
                    (dx, dgain, dbias)
                };
                let alone = run(1);
                assert_eq!(alone, run(3));
                let (dx, dgain, dbias) = alone;
                let (mut sums, mut plain_sums) = (vec![0.0; width], vec![1.0; width]);
                for row in 0..rows {
                    let at = row * width..(row + 1) * width;
                    let (expected, slopes, hat) = plain(&x[at.clone()], &g[at.clone()], &gain, centre);
                    let close = |a: &[f64], b: &[f64]| {
                        a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9 * (1.0 + b.abs()))
                    };
                    assert!(
                        close(&out[at.clone()], &expected) && close(&dx[at.clone()], &slopes),
                        "{rows} {width}"
                    );
                    for j in 0..width {
                        sums[j] += g[at.start + j] * hat[j];
                        plain_sums[j] += g[at.start + j];
                    }
                }
                let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
                assert!(close(&dgain, &sums) && close(&dbias, &plain_sums), "{rows} rows of {width}");
            }
        }
    }
}
