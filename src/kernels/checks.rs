//! The harness of the kernels' tests: operands without a pattern, references in f64, and comparisons on every path and any number
//! of threads.

use super::float::{Assign, Float};
use super::path::Path;
use super::products::{LeftMatrix, PackedMatrix, RoundedRows, Transpose};
use super::view::{View, ViewMut};

/// Returns numbers without a pattern, between -1 and 1.
pub(super) fn numbers<T: Float>(len: usize, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            T::from_f64((state >> 33) as f64 / (1u64 << 30) as f64 - 1.0)
        })
        .collect()
}

pub(super) fn wide<T: Float>(numbers: &[T]) -> Vec<f64> {
    numbers.iter().map(|x| x.to_f64()).collect()
}

/// Returns the transposed matrix, row by row.
pub(super) fn turned<T: Copy>(x: View<'_, T>) -> Vec<T> {
    (0..x.width()).flat_map(|j| (0..x.rows()).map(move |i| x.row(i)[j])).collect()
}

/// Returns the sums of products of a rows × inner matrix and an inner × columns matrix, and the sums of their magnitudes, which
/// bound the rounding errors. `term` is a product, by its row, its place in the sum and its column.
pub(super) fn plain_sums(
    [rows, inner, columns]: [usize; 3],
    term: impl Fn(usize, usize, usize) -> f64,
) -> [Vec<f64>; 2] {
    let mut out = [vec![0.0; rows * columns], vec![0.0; rows * columns]];
    for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
        for k in 0..inner {
            let term = term(i, k, j);
            out[0][i * columns + j] += term;
            out[1][i * columns + j] += term.abs();
        }
    }
    out
}

/// Checks that each number differs from the expected one by at most `bound`, which is relative for large numbers.
#[track_caller]
pub(super) fn near<T: Float>(got: &[T], expected: &[f64], bound: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (at, (got, expected)) in got.iter().zip(expected).enumerate() {
        let apart = (got.to_f64() - expected).abs();
        assert!(apart <= bound * (1.0 + expected.abs()), "{what} at {at}: {got} for {expected}");
    }
}

/// Checks that each sum differs from the expected sum by at most `roundings` of the magnitude of its terms.
#[track_caller]
pub(super) fn within_roundings<T: Float>(got: &[T], sums: &[Vec<f64>; 2], roundings: f64, what: &str) {
    let [expected, magnitudes] = sums;
    assert_eq!(got.len(), expected.len(), "{what}");
    for (at, got) in got.iter().enumerate() {
        let off = (got.to_f64() - expected[at]).abs();
        assert!(off <= roundings * magnitudes[at], "{what} at {at}: {got} for {}", expected[at]);
    }
}

pub(super) fn packed<T: Float>(path: Path, b: View<'_, T>, transpose: Transpose) -> PackedMatrix<T> {
    let mut packed = PackedMatrix::on(path);
    packed.pack(b, transpose, 1);
    packed
}

/// Returns a product, row by row.
pub(super) fn multiplied<'a, T: Float>(
    a: impl Into<LeftMatrix<'a, T>>,
    b: &PackedMatrix<T>,
    threads: usize,
) -> Vec<T> {
    let a = a.into();
    let mut c = vec![T::from_f64(f64::NAN); a.rows() * b.n()];
    let to = ViewMut::new(&mut c, a.rows(), b.n());
    super::affine(a, b, None, to.into(), Assign::Write, &mut RoundedRows::default(), threads);
    c
}

/// Checks that the numbers of every path of this CPU differ from the best path's by at most a few roundings.
pub(super) fn paths_agree(run: impl Fn(Path) -> Vec<f32>) {
    let best = run(Path::best());
    for path in Path::available() {
        assert!(run(path).iter().zip(&best).all(|(x, y)| (x - y).abs() < 1e-6), "{path:?}");
    }
}

/// Checks a gradient by central differences of the loss.
pub(super) fn matches_differences(x: &[f64], gradient: &[f64], loss: impl Fn(&[f64]) -> f64) {
    let mut moved = x.to_vec();
    for (i, gradient) in gradient.iter().enumerate() {
        let [up, down] = [1e-5, -1e-5].map(|step| {
            moved[i] = x[i] + step;
            loss(&moved)
        });
        moved[i] = x[i];
        let difference = (up - down) / 2e-5;
        assert!((difference - gradient).abs() < 1e-7, "{i}: {difference} {gradient}");
    }
}
