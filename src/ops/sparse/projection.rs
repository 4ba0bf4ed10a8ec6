//! `random_projection`: the product of a sparse matrix and a matrix of random signs; the signs are computed, not stored.

use super::among::given;
use crate::kernels::projection::{project_csr_row, project_gradient};
use crate::kernels::sparse::CsrView;
use crate::kernels::{helpers, join};
use crate::ops::prelude::*;

/// With fewer signs than this, a second thread costs more time than it saves.
const WORTH_A_THREAD: usize = 1 << 17;

operator! {
    /// Random projection: maps each row of a csr `x` to `width` numbers by random signs. The output is out_ij =
    /// 1/√width · Σ_c x_ic · s(c, j). Each sign s(c, j) is 1 or −1. A counter-based random number generator computes
    /// the sign from `seed`, c and j. The distance between two projected rows is about the distance between the two
    /// rows of `x` (Achlioptas, "Database-friendly random projections: Johnson-Lindenstrauss with binary coins", 2003).
    ///
    /// The signs are not stored and not learned, so `x` may have up to 2^60 columns. `x` has a gradient
    /// at its entries only.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let bags = net.feed_csr("bags", DType::F32, 1_000_000_000, 0);
    /// assert_eq!(net.describe(bags.random_projection(64, 7)), "`random_projection`: f32[batch, 64]");
    /// ```
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::Csr;
    /// use unpadded::{Variable, ops};
    /// let x = Csr::new([2, 9], vec![0, 1, 1], vec![5], array![3.0])?;
    /// let op = ops::catalogue().parse("random_projection", &Attributes::new().with("width", 4usize).with("seed", 7i64))?;
    /// let out = op.call(&[Operand::batch("x", Variable::new(x, None)?)])?;
    /// let lengths: Vec<f64> = out[0].as_slice::<f64>()?.iter().map(|x| x.abs()).collect();
    /// assert_eq!(lengths, [1.5, 1.5, 1.5, 1.5, 0.0, 0.0, 0.0, 0.0]); // 3 / √4
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` is not csr, or the width is 0.
    #[doc(alias = "hashing")]
    pub(in crate::ops) struct RandomProjection = random_projection { width: usize, seed: i64 }
    inputs { X = x: one }
    kernels { [CSR] }
    outputs { OUT = out: one }
    impl Builder, Var { fn random_projection(&self, x: Var, width: usize, seed: i64) -> Var; }
}

impl Op for RandomProjection {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        if self.width == 0 {
            return Err(Error::new("attribute `width`", "at least 1", "0"));
        }
        s.set(Self::OUT, s.input(Self::X).with_width(self.width).stored(StorageKind::Dense));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let to = run.output::<T>(Self::OUT)?;
            let x = given(run.csr(Self::X))?.view::<T>()?;
            Project { x, to, seed: self.seed as u64 }.share(self.threads(x, run.run().threads));
            Ok(())
        })
    }

    gradient_reads!(Self::X);

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => self.at_entries::<T>(run))
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let products = match work.pass() {
            Pass::Forward => 1,
            Pass::Backward => u64::from(work.wants(Self::X)),
        };
        Cost { flops: products * 2 * work.stored(Self::X) * self.width as u64, ..work.touched() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let attributes = |width, seed| {
            CheckCase::of_csr(&RandomProjection { width, seed }.attributes(), 5, |sample, _| Ok(sample))
        };
        let mut samples = attributes(3, 7)?;
        samples.extend(attributes(200, -1)?.into_iter().take(1));
        Ok(samples)
    }
}

impl RandomProjection {
    fn threads<T: Float>(&self, x: CsrView<'_, T>, threads: usize) -> usize {
        helpers(x.entries().saturating_mul(self.width), WORTH_A_THREAD, threads)
    }

    fn at_entries<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let Some(dout) = run.output_gradient::<T>(Self::OUT)? else { return Ok(()) };
        let mut room = std::mem::take(run.scratch().get::<Vec<T>>());
        run.fill_gradient::<T>(Self::X, 0, |run, dx, assign| {
            let x = given(run.csr(Self::X))?.view::<T>()?;
            room.resize(x.entries(), T::ZERO);
            let to = if assign == Assign::Write { &mut *dx } else { &mut room[..] };
            Slopes { x, dout, to, seed: self.seed as u64 }.share(self.threads(x, run.run().threads));
            if assign == Assign::Add {
                dx.iter_mut().zip(&room).for_each(|(dx, &g)| *dx += g);
            }
            Ok(())
        })?;
        *run.scratch().get::<Vec<T>>() = room;
        Ok(())
    }
}

/// The operands for the projection of a range of rows on one thread.
struct Project<'a, T> {
    x: CsrView<'a, T>,
    to: ViewMut<'a, T>,
    seed: u64,
}

impl<T: Float> Project<'_, T> {
    fn share(mut self, threads: usize) {
        let rows = self.x.rows();
        if threads < 2 || rows < 2 {
            for (row, to) in self.to.iter_mut().enumerate() {
                let (columns, values) = self.x.row(row);
                project_csr_row(columns, values, self.seed, to);
            }
            return;
        }
        let middle = rows / 2;
        let (to, to_after) = self.to.split_rows(middle);
        let before = Project { x: self.x.rows_range(0, middle), to, ..self };
        let after = Project { x: self.x.rows_range(middle, rows), to: to_after, ..self };
        join(|| before.share(threads / 2), || after.share(threads - threads / 2));
    }
}

/// The operands for the gradient of x at the entries of a range of rows, on one thread.
struct Slopes<'a, T> {
    x: CsrView<'a, T>,
    dout: View<'a, T>,
    to: &'a mut [T],
    seed: u64,
}

impl<T: Float> Slopes<'_, T> {
    fn share(self, threads: usize) {
        let rows = self.x.rows();
        if threads < 2 || rows < 2 {
            let mut left = self.to;
            for (row, dout) in self.dout.iter().enumerate() {
                let (columns, _) = self.x.row(row);
                let (to, others) = left.split_at_mut(columns.len());
                project_gradient(columns, self.seed, dout, to);
                left = others;
            }
            return;
        }
        let middle = rows / 2;
        let (x, x_after) = (self.x.rows_range(0, middle), self.x.rows_range(middle, rows));
        let (to, to_after) = self.to.split_at_mut(x.entries());
        let before = Slopes { x, dout: self.dout.rows_range(0, middle), to, ..self };
        let after = Slopes { x: x_after, dout: self.dout.rows_range(middle, rows), to: to_after, ..self };
        join(|| before.share(threads / 2), || after.share(threads - threads / 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_change_no_bit() {
        let (rows, width) = (90, 70);
        let indptr: Vec<i64> = (0..=rows as i64).map(|row| row * 3).collect();
        let indices: Vec<i64> = (0..3 * rows as i64).map(|e| e * 7919 % 1000).collect();
        let values: Vec<f32> = (0..3 * rows).map(|e| (e as f32).sin()).collect();
        let x = CsrView::new(1000, &indptr, &indices, &values);
        let run = |threads| {
            let (mut out, mut slopes) = (vec![f32::NAN; rows * width], vec![f32::NAN; x.entries()]);
            Project { x, to: ViewMut::new(&mut out, rows, width), seed: 7 }.share(threads);
            Slopes { x, dout: View::new(&out, rows, width), to: &mut slopes, seed: 7 }.share(threads);
            (out, slopes)
        };
        let expected = run(1);
        assert!(expected.0.iter().chain(&expected.1).all(|x| x.is_finite()));
        assert!([2, 3, 7].iter().all(|&threads| run(threads) == expected));
    }
}
