//! How fast are the packed products, beside matrixmultiply in the same run?
//!
//! `cargo bench --bench products` prints GFLOP/s, the best of many calls, on one thread: first `x·W` with weights that are
//! packed once, as a step loop packs them; then the gradient of W, `xᵀ·dy`, over the rows of a batch, which is packed at
//! every call. matrixmultiply, behind ndarray's `dot`, packs at every call.

use std::hint::black_box;
use std::time::Instant;

use ndarray::Array2;
use ndarray::linalg::general_mat_mul;
use unpadded::kernels::{
    GradientRoom, MatrixUnit, PackedMatrix, RoundedRows, Transpose, View, ViewMut, affine_gradient, product,
};
use unpadded::op::Assign;

/// Seconds of the fastest of the calls that fit into 0.2 s.
fn fastest(mut call: impl FnMut()) -> f64 {
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    while start.elapsed().as_secs_f64() < 0.2 {
        let one = Instant::now();
        call();
        best = best.min(one.elapsed().as_secs_f64());
    }
    best
}

fn main() {
    println!("{:>6} {:>6} {:>6} {:>10} {:>16} {:>7}", "rows", "K", "N", "packed", "matrixmultiply", "ratio");
    for (k, n) in [(256, 1024), (512, 2048), (1024, 256), (64, 40)] {
        let b = Array2::from_shape_fn((k, n), |(i, j)| ((i * 31 + j * 7) % 17) as f32 * 0.1 - 0.8);
        let (mut packed, mut rounded) = (PackedMatrix::new(), RoundedRows::default());
        let Some(slice) = b.as_slice() else { return };
        packed.pack(View::new(slice, k, n), Transpose::No, 1);
        for rows in [1, 2, 4, 6, 8, 32, 64, 512] {
            let a = Array2::from_shape_fn((rows, k), |(i, j)| ((i * 13 + j * 3) % 11) as f32 * 0.1 - 0.5);
            let mut c = Array2::<f32>::zeros((rows, n));
            let theirs = fastest(|| general_mat_mul(1.0, &a, &b, 0.0, black_box(&mut c)));
            let mut out = vec![0.0f32; rows * n];
            let Some(a) = a.as_slice() else { return };
            let ours = fastest(|| {
                product(
                    View::new(a, rows, k),
                    &packed,
                    ViewMut::new(black_box(&mut out), rows, n),
                    Assign::Write,
                    &mut rounded,
                );
            });
            let flop = 2e-9 * (rows * k * n) as f64;
            let (ours, theirs) = (flop / ours, flop / theirs);
            println!("{rows:>6} {k:>6} {n:>6} {ours:>10.1} {theirs:>16.1} {:>7.2}", ours / theirs);
        }
    }
    println!(
        "\n{:>6} {:>6} {:>6} {:>10} {:>16} {:>7}",
        "rows", "K", "N", "gradient", "matrixmultiply", "ratio"
    );
    let mut room = GradientRoom::default();
    for (k, n) in [(128, 1024), (256, 1024), (512, 2048), (256, 2)] {
        for rows in [64, 1000, 8000] {
            let x = Array2::from_shape_fn((rows, k), |(i, j)| ((i * 13 + j * 3) % 11) as f32 * 0.1 - 0.5);
            let dy = Array2::from_shape_fn((rows, n), |(i, j)| ((i * 31 + j * 7) % 17) as f32 * 0.1 - 0.8);
            let mut dw = Array2::<f32>::zeros((k, n));
            let theirs = fastest(|| general_mat_mul(1.0, &x.t(), &dy, 0.0, black_box(&mut dw)));
            let mut out = vec![0.0f32; k * n];
            let (Some(x), Some(dy)) = (x.as_slice(), dy.as_slice()) else { return };
            let ours = fastest(|| {
                let (x, dy) = (View::new(x, rows, k), View::new(dy, rows, n));
                let dw = ViewMut::new(black_box(&mut out), k, n);
                affine_gradient(
                    dy.into(),
                    Some((x.into(), (dw, Assign::Write, Transpose::No))),
                    None,
                    MatrixUnit::F32,
                    &mut room,
                    1,
                );
            });
            let flop = 2e-9 * (rows * k * n) as f64;
            let (ours, theirs) = (flop / ours, flop / theirs);
            println!("{rows:>6} {k:>6} {n:>6} {ours:>10.1} {theirs:>16.1} {:>7.2}", ours / theirs);
        }
    }
}
