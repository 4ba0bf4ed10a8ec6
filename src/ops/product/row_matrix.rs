//! Operators on rows that hold vectors or matrices: `outer` computes a matrix from two vectors, `matvec` multiplies a matrix by
//! a vector.

use crate::ops::prelude::*;

/// The slots of both operators.
const X: usize = 0;
const Y: usize = 1;
const OUT: usize = 0;

operator! {
    /// Computes the outer product of two vectors in each row; each row of the output is a matrix.
    ///
    /// out_i = x_i · y_iᵀ, so out\[i, a, b\] = x\[i, a\] · y\[i, b\], with x `[rows, m]`, y `[rows, n]` and out `[rows, m, n]`.
    /// The operator computes each row alone: x and y have the same number of rows and the same LoD, which the output
    /// keeps. Together with `matvec`, it implements a matrix memory (Schmidhuber, "Learning to control fast-weight
    /// memories", 1992): `outer` writes C_t = f_t · C_{t−1} + v_t · k_tᵀ, and `matvec` reads C_t · q_t.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[1, 0, 1])?;
    /// let x = Variable::sequences(array![[1.0, 2.0], [3.0, 4.0]], lod.clone())?;
    /// let y = Variable::sequences(array![[10.0, 0.0, -1.0], [1.0, 2.0, 3.0]], lod)?;
    /// let outer = ops::catalogue().parse("outer", &Attributes::new())?;
    /// let out = outer.call(&[Operand::batch("x", x), Operand::batch("y", y)])?;
    /// assert_eq!(out[0].shape(), [2, 2, 3]);
    /// assert_eq!(out[0].as_slice::<f64>()?[..6], [10.0, 0.0, -1.0, 20.0, 0.0, -2.0]);
    /// assert_eq!(out[0].as_slice::<f64>()?[6..], [3.0, 6.0, 9.0, 4.0, 8.0, 12.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the rows of x and y are not vectors of floats of one dtype, or if x and y differ in LoD or in their
    /// number of rows.
    pub(in crate::ops) struct Outer = outer {}
    inputs { X = x: one, Y = y: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn outer(&self, x: Var, y: Var) -> Var; }
}

operator! {
    /// Multiplies the matrix in each row of x by the vector in the same row of y.
    ///
    /// out_i = x_i · y_i, so out\[i, a\] = Σ_b x\[i, a, b\] · y\[i, b\], with x `[rows, m, n]`, y `[rows, n]` and out
    /// `[rows, m]`. The operator computes each row alone: x and y have the same number of rows and the same LoD, which
    /// the output keeps. The input x may also be `[rows, m · n]`, with the lines of each matrix one after the other. To
    /// multiply all rows by one matrix, use `product`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[0, 1])?;
    /// let x = Variable::sequences(array![[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]], lod.clone())?;
    /// let y = Variable::sequences(array![[10.0, 1.0]], lod)?;
    /// let matvec = ops::catalogue().parse("matvec", &Attributes::new())?;
    /// let out = matvec.call(&[Operand::batch("x", x), Operand::batch("y", y)])?;
    /// assert_eq!((out[0].as_slice::<f64>()?, out[0].shape()), ([12.0, 34.0, 56.0].as_slice(), [1, 3].as_slice()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the rows of x are not matrices of floats, or the rows of y are not vectors of floats; if the
    /// dtypes of x and y differ; or if the numbers of rows, the LoDs or the widths do not match.
    pub(in crate::ops) struct Matvec = matvec {}
    inputs { X = x: one, Y = y: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn matvec(&self, x: Var, y: Var) -> Var; }
}

/// Checks that each row of the input in a slot is a vector.
fn vectors(s: &InferShape<'_>, slot: usize) -> Result<()> {
    let spec = s.input(slot);
    if spec.shape.len() == 2 || spec.batched() && spec.shape.len() == 1 {
        return Ok(());
    }
    Err(s.mismatch(slot, "a vector in each row, shape [rows, width]"))
}

impl Op for Outer {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.same_dtype(X, Y)?;
        vectors(s, X)?;
        vectors(s, Y)?;
        s.same_rows(X, Y)?;
        let mut out = s.input(X).with_width(s.input(X).width());
        out.shape.push(Extent::Known(s.input(Y).width()));
        s.set(OUT, out);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let (x, y, out) = (run.input::<T>(X)?, run.input::<T>(Y)?, run.output::<T>(OUT)?);
            sweep(Outers { x, y, to: out, assign: Assign::Write });
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let Some(dout) = run.output_gradient::<T>(OUT)? else { return Ok(()) };
            if let Some((dx, assign)) = run.gradient::<T>(X)? {
                sweep(Dots { matrix: dout, vector: run.input::<T>(Y)?, to: dx, assign });
            }
            if let Some((dy, assign)) = run.gradient::<T>(Y)? {
                sweep(Combined { matrix: dout, vector: run.input::<T>(X)?, to: dy, assign });
            }
            Ok(())
        })
    }

    fn gradient(&self, wrt: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().input(if wrt == X { Y } else { X })
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let (rows, width) = work.output(OUT);
        Cost { flops: products(work) * rows * width, ..work.touched() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        CheckCase::of_rows(&Attributes::new(), 3, |sample, x| beside(sample, x, 2))
    }
}

impl Op for Matvec {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.same_dtype(X, Y)?;
        vectors(s, Y)?;
        let wanted = s.input(Y).width();
        let (height, width) = match *s.input(X).shape.as_slice() {
            [_, Extent::Known(height), Extent::Known(width)] => (height, width),
            [_, Extent::Known(numbers)] if wanted > 0 && numbers % wanted == 0 => (numbers / wanted, wanted),
            _ => {
                let expected =
                    "a matrix in each row, shape [rows, height, width], or its lines one after another";
                return Err(s.mismatch(X, expected));
            }
        };
        s.same_rows(X, Y)?;
        if s.input(Y).width() != width {
            let expected = format!("rows of {width} numbers, since the width of the matrices `x` is {width}");
            return Err(s.mismatch(Y, &expected));
        }
        s.set(OUT, s.input(X).with_width(height));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let (x, y, out) = (run.input::<T>(X)?, run.input::<T>(Y)?, run.output::<T>(OUT)?);
            sweep(Dots { matrix: x, vector: y, to: out, assign: Assign::Write });
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let Some(dout) = run.output_gradient::<T>(OUT)? else { return Ok(()) };
            if let Some((dx, assign)) = run.gradient::<T>(X)? {
                sweep(Outers { x: dout, y: run.input::<T>(Y)?, to: dx, assign });
            }
            if let Some((dy, assign)) = run.gradient::<T>(Y)? {
                sweep(Combined { matrix: run.input::<T>(X)?, vector: dout, to: dy, assign });
            }
            Ok(())
        })
    }

    fn gradient(&self, wrt: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().input(if wrt == X { Y } else { X })
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let (rows, width) = work.input(X);
        Cost { flops: products(work) * 2 * rows * width, ..work.touched() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let matrices = |mut sample: CheckCase, x: &Variable| -> Result<CheckCase> {
            let dense = numbers(x.rows(), 6, 0)
                .into_shape_with_order((x.rows(), 3, 2))
                .map_err(|e| Error::new("matrices of a sample", "their numbers in order", e.to_string()))?;
            let zeros = x.as_slice::<f64>()?.iter().all(|&x| x == 0.0);
            let dense = if zeros { dense * 0.0 } else { dense };
            sample.operands[0].value = Variable::from(dense).with_lod(x.lod().cloned())?;
            beside(sample, x, 2)
        };
        let mut samples = CheckCase::of_rows(&Attributes::new(), 6, matrices)?;
        samples.extend(CheckCase::of_rows(&Attributes::new(), 6, |sample, x| beside(sample, x, 2))?);
        Ok(samples)
    }
}

/// Returns how many products a call computes: one in the forward pass, one per requested gradient in the backward pass.
fn products(work: &Work<'_>) -> u64 {
    match work.pass() {
        Pass::Forward => 1,
        Pass::Backward => u64::from(work.wants(X)) + u64::from(work.wants(Y)),
    }
}

/// Adds the operand `y` to a check case: one vector for each row of x.
fn beside(sample: CheckCase, x: &Variable, width: usize) -> Result<CheckCase> {
    let y = Variable::from(numbers(x.rows(), width, 1)).with_lod(x.lod().cloned())?;
    Ok(if sample.operands[0].batched { sample.batch("y", y) } else { sample.constant("y", y) })
}

/// A loop over rows that computes x_a · y_b for all a and b.
struct Outers<'a, T> {
    x: View<'a, T>,
    y: View<'a, T>,
    to: ViewMut<'a, T>,
    assign: Assign,
}

impl<T: Float> Sweep for Outers<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let (width, assign) = (self.y.width(), self.assign);
        for ((x, y), to) in self.x.iter().zip(self.y.iter()).zip(self.to.iter_mut()) {
            for (&x, to) in x.iter().zip(to.chunks_exact_mut(width.max(1))) {
                to.iter_mut().zip(y).for_each(|(to, &y)| assign.put(to, x * y));
            }
        }
    }
}

/// A loop over rows that computes the dot product of each line of the row's matrix with the row's vector.
struct Dots<'a, T> {
    matrix: View<'a, T>,
    vector: View<'a, T>,
    to: ViewMut<'a, T>,
    assign: Assign,
}

impl<T: Float> Sweep for Dots<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let (width, assign) = (self.vector.width(), self.assign);
        for ((matrix, vector), to) in self.matrix.iter().zip(self.vector.iter()).zip(self.to.iter_mut()) {
            for (k, to) in to.iter_mut().enumerate() {
                assign.put(to, dot(&matrix[k * width..(k + 1) * width], vector));
            }
        }
    }
}

/// Computes a dot product with a fixed number of lanes, so that the order of the additions depends only on the length of the
/// vectors.
#[inline(always)]
fn dot<T: Float>(a: &[T], b: &[T]) -> T {
    const LANES: usize = 16;
    let mut sums = [T::ZERO; LANES];
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        for (sum, (&a, &b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.into_iter().sum()
}

/// A loop over rows that multiplies each line of the row's matrix by one number of the vector, and adds up the products, first to
/// last.
struct Combined<'a, T> {
    matrix: View<'a, T>,
    vector: View<'a, T>,
    to: ViewMut<'a, T>,
    assign: Assign,
}

impl<T: Float> Sweep for Combined<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        const COLUMNS: usize = 64;
        let width = self.to.width();
        for ((matrix, vector), to) in self.matrix.iter().zip(self.vector.iter()).zip(self.to.iter_mut()) {
            for (block, to) in to.chunks_mut(COLUMNS).enumerate() {
                let mut sums = [T::ZERO; COLUMNS];
                let sums = &mut sums[..to.len()];
                for (k, &factor) in vector.iter().enumerate() {
                    let line = &matrix[k * width + block * COLUMNS..][..to.len()];
                    sums.iter_mut().zip(line).for_each(|(sum, &x)| *sum += factor * x);
                }
                self.assign.put_row(to, sums);
            }
        }
    }
}
