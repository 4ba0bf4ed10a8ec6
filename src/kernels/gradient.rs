//! Sums over the rows of a batch: the gradients of a weight and of a bias.
//!
//! Their order of summation depends on the shapes alone, never on the number of threads.

use gemm::Parallelism;

use super::float::{Float, Store};
use super::path::{Arithmetic, Sweep, sweep};
use super::view::{View, ViewMut};

/// Below this many multiply-adds, or numbers to add, a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 20;

/// `dw = xᵀ·dy`, or `dw += xᵀ·dy`, on up to `threads` threads of rayon's pool, with the same bits for any number
/// of them.
///
/// # Panics
/// Unless `x` is R × K, `dy` R × N and `dw` K × N.
pub fn weight_gradient<T: Float>(
    x: View<'_, T>,
    dy: View<'_, T>,
    mut dw: ViewMut<'_, T>,
    store: Store,
    threads: usize,
) {
    let (rows, k, n) = (x.rows(), x.width(), dy.width());
    assert_eq!(dy.rows(), rows, "the rows of a weight gradient");
    assert_eq!((dw.rows(), dw.width()), (k, n), "the shape of a weight gradient");
    if rows == 0 || k == 0 || n == 0 {
        if store == Store::Write {
            dw.fill(T::ZERO);
        }
        return;
    }
    let parallel = threads > 1 && rows * k * n >= WORTH_A_THREAD;
    // SAFETY: the views vouch for every element that these shapes and strides reach.
    unsafe {
        gemm::gemm(
            k,
            n,
            rows,
            dw.as_mut_ptr(),
            1,
            dw.stride() as isize,
            store == Store::Add,
            x.as_ptr(),
            x.stride() as isize,
            1,
            dy.as_ptr(),
            1,
            dy.stride() as isize,
            T::ONE,
            T::ONE,
            false,
            false,
            false,
            if parallel { Parallelism::Rayon(threads) } else { Parallelism::None },
        );
    }
}

/// `db[j] = Σ dy[i][j]`, or `db += …`, in blocks of 128 rows, for accuracy as much as for speed; on up to `threads`
/// threads of rayon's pool, which share the columns.
///
/// # Panics
/// If `db` is not as long as a row of `dy`.
pub fn bias_gradient<T: Float>(dy: View<'_, T>, db: &mut [T], store: Store, threads: usize) {
    let width = dy.width();
    assert_eq!(db.len(), width, "the length of a bias gradient");
    if threads < 2 || width < 2 || dy.rows() * width < WORTH_A_THREAD {
        return sweep(ColumnSums { dy, db, store });
    }
    let left = threads / 2;
    let middle = width * left / threads;
    let (a, b) = db.split_at_mut(middle);
    rayon::join(
        || bias_gradient(dy.columns(0, middle), a, store, left),
        || bias_gradient(dy.columns(middle, width), b, store, threads - left),
    );
}

struct ColumnSums<'a, T> {
    dy: View<'a, T>,
    db: &'a mut [T],
    store: Store,
}

impl<T: Float> Sweep for ColumnSums<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        const ROWS: usize = 128;
        const COLUMNS: usize = 128;
        for (chunk, db) in self.db.chunks_mut(COLUMNS).enumerate() {
            let from = chunk * COLUMNS;
            let columns = self.dy.columns(from, from + db.len());
            let mut total = [T::ZERO; COLUMNS];
            let mut row = 0;
            while row < columns.rows() {
                let mut block = [T::ZERO; COLUMNS];
                let end = columns.rows().min(row + ROWS);
                for dy in columns.rows_range(row, end).iter() {
                    for (sum, &dy) in block.iter_mut().zip(dy) {
                        *sum += dy;
                    }
                }
                for (total, &sum) in total.iter_mut().zip(&block) {
                    *total += sum;
                }
                row = end;
            }
            for (db, &total) in db.iter_mut().zip(&total) {
                *db = if self.store == Store::Add { *db + total } else { total };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::numbers;
    use crate::kernels::view::Extent2;

    fn naive<T: Float>(x: View<'_, T>, dy: View<'_, T>) -> Vec<f64> {
        let n = dy.width();
        let mut dw = vec![0.0; x.width() * n];
        for (x, dy) in x.iter().zip(dy.iter()) {
            for (i, &x) in x.iter().enumerate() {
                for (j, &dy) in dy.iter().enumerate() {
                    dw[i * n + j] += x.to_f64() * dy.to_f64();
                }
            }
        }
        dw
    }

    fn check<T: Float>(rows: usize, k: usize, n: usize, tolerance: f64) {
        let x = numbers::<T>((rows + 1) * (k + 1), 1);
        let dy = numbers::<T>((rows + 1) * (n + 2), 2);
        let x = View::strided(&x, Extent2 { rows, width: k, stride: k + 1 });
        let dy = View::strided(&dy, Extent2 { rows, width: n, stride: n + 2 });
        let extent = Extent2 { rows: k, width: n, stride: n + 3 };
        let mut dw = vec![T::from_f64(f64::NAN); k * (n + 3)];
        weight_gradient(x, dy, ViewMut::strided(&mut dw, extent), Store::Write, 1);
        let once = dw.clone();
        weight_gradient(x, dy, ViewMut::strided(&mut dw, extent), Store::Add, 2);
        let expected = naive(x, dy);
        for i in 0..k {
            for j in 0..n {
                let (a, b, y) =
                    (once[i * (n + 3) + j].to_f64(), dw[i * (n + 3) + j].to_f64(), expected[i * n + j]);
                let bound = tolerance * (1.0 + rows as f64).sqrt();
                assert!(
                    (a - y).abs() <= bound && (b - 2.0 * y).abs() <= 2.0 * bound,
                    "{rows}x{k}x{n}: {a} {b} {y}"
                );
            }
        }
    }

    #[test]
    fn weight_gradients_match_the_naive_sum() {
        for (rows, k, n) in
            [(0, 3, 4), (1, 1, 1), (1, 7, 33), (3, 64, 5), (200, 17, 31), (500, 40, 130), (5, 0, 3)]
        {
            check::<f32>(rows, k, n, 2e-6);
            check::<f64>(rows, k, n, 1e-14);
        }
    }

    #[test]
    fn weight_gradients_have_the_same_bits_on_any_number_of_threads() {
        let shapes = [
            (16000, 128, 1024),
            (16000, 256, 1024),
            (1, 128, 1024),
            (7, 256, 1024),
            (63, 300, 777),
            (1000, 33, 2000),
            (3000, 512, 65),
            (20000, 300, 1),
            (20000, 1, 300),
            (40, 2000, 300),
        ];
        for (rows, k, n) in shapes {
            let (x, dy) = (numbers::<f32>(rows * k, 1), numbers::<f32>(rows * n, 2));
            let run = |threads| {
                let mut dw = vec![0.5; k * n];
                weight_gradient(
                    View::new(&x, rows, k),
                    View::new(&dy, rows, n),
                    ViewMut::new(&mut dw, k, n),
                    Store::Add,
                    threads,
                );
                dw
            };
            let one = run(1);
            for threads in [2, 3] {
                assert!(run(threads) == one, "{rows}x{k}x{n} on {threads} threads");
            }
        }
    }

    #[test]
    fn bias_gradients_have_the_same_bits_on_any_number_of_threads() {
        for (rows, n) in [(9000, 130), (1050, 1001), (600_000, 2), (2_000_000, 1)] {
            let dy = numbers::<f32>(rows * n, 1);
            let run = |threads| {
                let mut db = vec![0.5; n];
                bias_gradient(View::new(&dy, rows, n), &mut db, Store::Add, threads);
                db
            };
            let one = run(1);
            for threads in [2, 3] {
                assert!(run(threads) == one, "{rows}x{n} on {threads} threads");
            }
        }
    }

    #[test]
    fn bias_gradients_match_the_naive_sum() {
        for (rows, n) in [(0, 3), (1, 1), (5, 0), (300, 129), (1000, 256), (128, 500)] {
            let dy = numbers::<f32>((rows + 1) * (n + 2), 1);
            let dy = View::strided(&dy, Extent2 { rows, width: n, stride: n + 2 });
            let mut db = vec![f32::NAN; n];
            bias_gradient(dy, &mut db, Store::Write, 1);
            let once = db.clone();
            bias_gradient(dy, &mut db, Store::Add, 1);
            for j in 0..n {
                let expected: f64 = dy.iter().map(|row| f64::from(row[j])).sum();
                assert!((f64::from(once[j]) - expected).abs() < 1e-4, "{} {expected}", once[j]);
                assert_eq!(db[j], once[j] + once[j]);
            }
        }
    }
}
