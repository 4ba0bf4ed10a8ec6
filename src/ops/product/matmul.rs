//! `matmul`: the product of two matrices that are not batched.

use crate::kernels::{PackedMatrix, RoundedRows, Transpose, emptied, product};
use crate::ops::prelude::*;

operator! {
    /// Multiplies two matrices that are not batched; each matrix is transposed first if its attribute is set.
    ///
    /// out = A · B, where A is x or, with `transpose_x`, its transpose, and B is y or, with `transpose_y`, its transpose. Both
    /// matrices are constants of the program, such as parameters, so the output has no LoD and does not depend on the batch. To
    /// multiply the rows of a batch by a matrix, use `linear`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let attributes = Attributes::new().with("transpose_x", false).with("transpose_y", true);
    /// let op = ops::catalogue().parse("matmul", &attributes)?;
    /// let out = op.call(&[
    ///     Operand::constant("x", array![[1.0, 2.0], [3.0, 4.0]]),
    ///     Operand::constant("y", array![[10.0, 1.0]]),
    /// ])?;
    /// assert_eq!((out[0].as_slice::<f64>()?, out[0].shape()), ([12.0, 34.0].as_slice(), [2, 1].as_slice()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the variables are not constant matrices, or if their shapes or dtypes do not match.
    pub(in crate::ops) struct Matmul = matmul { transpose_x: bool, transpose_y: bool }
    inputs { X = x: one, Y = y: one }
    outputs { OUT = out: one }
    impl Builder, Var {
        fn matmul_with(&self, x: Var, transpose_x: Transpose, y: Var, transpose_y: Transpose) -> Var {
            let (transpose_x, transpose_y) = (transpose_x == Transpose::Yes, transpose_y == Transpose::Yes);
        }
    }
}

builder_methods! { Builder, Var;
    /// Multiplies two matrices that are not batched: out = x · y.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let no = Attributes::new().with("transpose_x", false).with("transpose_y", false);
    /// let out = ops::catalogue().parse("matmul", &no)?.call(&[
    ///     Operand::constant("x", array![[1.0, 2.0], [3.0, 4.0]]),
    ///     Operand::constant("y", array![[10.0], [1.0]]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [12.0, 34.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the variables are not constant matrices, or if their shapes or dtypes do not match.
    pub fn matmul(&self, x: Var, y: Var) -> Var {
        self.matmul_with(x, Transpose::No, y, Transpose::No)
    }
}

impl Op for Matmul {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.same_dtype(Self::X, Self::Y)?;
        let matrix = |slot: usize, transpose: bool| match *s.input(slot).shape.as_slice() {
            [Extent::Known(rows), Extent::Known(width)] if transpose => Ok((width, rows)),
            [Extent::Known(rows), Extent::Known(width)] => Ok((rows, width)),
            _ => Err(s.mismatch(slot, "a matrix that is not batched")),
        };
        let ((m, k), (rows, n)) = (matrix(Self::X, self.transpose_x)?, matrix(Self::Y, self.transpose_y)?);
        if k != rows {
            let side = if self.transpose_y { "columns" } else { "rows" };
            return Err(s.mismatch(Self::Y, &format!("{k} {side}, to fit `x`, {}", s.input(Self::X))));
        }
        s.set(Self::OUT, Spec::fixed(s.input(Self::X).dtype, &[m, n])?);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let (x, y, out) = (run.input::<T>(Self::X)?, run.input::<T>(Self::Y)?, run.output::<T>(Self::OUT)?);
            let facts = run.run();
            run.scratch().get::<Scratch<T>>().multiply((x, self.transpose_x), (y, self.transpose_y), (out, Assign::Write), facts);
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => backward::<T>(self, run))
    }

    fn hints(&self) -> Hints {
        Hints { multiplies: true, ..Hints::default() }
    }

    fn gradient(&self, wrt: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().input(if wrt == Self::X { Self::Y } else { Self::X })
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        with_float!(sizes.dtype(Self::X), T => Ok(self.memory_of::<T>(sizes))).unwrap_or_default()
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let ((rows, width), (m, n)) = (work.input(Self::X), work.output(Self::OUT));
        let product = 2 * if self.transpose_x { rows } else { width } * m * n;
        let products = match work.pass() {
            Pass::Forward => 1,
            Pass::Backward => u64::from(work.wants(Self::X)) + u64::from(work.wants(Self::Y)),
        };
        Cost { flops: products * product, ..work.touched() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for (transpose_x, transpose_y) in [(false, false), (false, true), (true, false), (true, true)] {
            for (m, k, n) in [(2, 3, 4), (1, 1, 1), (2, 0, 3), (0, 2, 3)] {
                let matrix = |rows, width, transpose, salt| {
                    if transpose { numbers(width, rows, salt) } else { numbers(rows, width, salt) }
                };
                let attributes = Matmul { transpose_x, transpose_y }.attributes();
                let name = format!("{m}x{k} by {k}x{n}, transposed {transpose_x} {transpose_y}");
                samples.push(
                    CheckCase::new(&name, attributes)
                        .constant("x", matrix(m, k, transpose_x, 0))
                        .constant("y", matrix(k, n, transpose_y, 1)),
                );
            }
        }
        Ok(samples)
    }
}

impl Matmul {
    fn memory_of<T: RowValue>(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let ((rows, width), (m, n)) = (sizes.input(Self::X), sizes.output(Self::OUT));
        let (k, unit) = (if self.transpose_x { rows } else { width }, sizes.unit());
        // The bytes of a product of an m × k matrix and a k × n matrix: of the packed right factor and, if `transposed`
        // is set, of the transposed left factor, and of the rounded left factor.
        let product = |wanted: bool, transposed: bool, (m, k, n): (usize, usize, usize)| {
            let packed = if wanted { PackedMatrix::<T>::bytes_of(unit, k, n) } else { 0 };
            let turned = if wanted && transposed { m * k * size_of::<T>() } else { 0 };
            (packed, turned, if wanted { RoundedRows::<T>::bytes_of(unit, m, k) } else { 0 })
        };
        let backward = |slot| sizes.pass() == Pass::Backward && sizes.wants(slot);
        let of_x = match self.transpose_x {
            false => product(backward(Self::X), false, (m, n, k)),
            true => product(backward(Self::X), self.transpose_y, (k, n, m)),
        };
        let of_y = match self.transpose_y {
            false => product(backward(Self::Y), !self.transpose_x, (k, m, n)),
            true => product(backward(Self::Y), true, (n, m, k)),
        };
        let out = product(sizes.pass() == Pass::Forward, self.transpose_x, (m, k, n));
        CallMemory::default()
            .scratch::<Scratch<T>>(out.0.max(of_x.0).max(of_y.0))
            .scratch::<Scratch<T>>(out.1.max(of_x.1).max(of_y.1))
            .scratch::<Scratch<T>>(out.2.max(of_x.2).max(of_y.2))
    }
}

fn backward<T: RowValue>(op: &Matmul, run: &mut Backward<'_>) -> Result<()> {
    let dout = run.dout::<T>(Matmul::OUT)?;
    let facts = run.run();
    // dA = dout · Bᵀ and dB = Aᵀ · dout; if x or y is transposed, its gradient is the transpose of dA or dB.
    if let Some((dx, assign)) = run.gradient::<T>(Matmul::X)? {
        let y = run.input::<T>(Matmul::Y)?;
        let room = run.scratch().get::<Scratch<T>>();
        match op.transpose_x {
            false => room.multiply((dout, false), (y, !op.transpose_y), (dx, assign), facts),
            true => room.multiply((y, op.transpose_y), (dout, true), (dx, assign), facts),
        }
    }
    if let Some((dy, assign)) = run.gradient::<T>(Matmul::Y)? {
        let x = run.input::<T>(Matmul::X)?;
        let room = run.scratch().get::<Scratch<T>>();
        match op.transpose_y {
            false => room.multiply((x, !op.transpose_x), (dout, false), (dy, assign), facts),
            true => room.multiply((dout, true), (x, op.transpose_x), (dy, assign), facts),
        }
    }
    Ok(())
}

/// Scratch memory of a product: the packed right factor, and the transposed and the rounded left factor.
#[derive(Default)]
struct Scratch<T: Float> {
    packed: PackedMatrix<T>,
    transposed: Vec<T>,
    rounded: RoundedRows<T>,
}

impl<T: Float> Scratch<T> {
    /// Computes the product of a and b, where each factor is transposed first if its flag is set.
    fn multiply(
        &mut self,
        a: (View<'_, T>, bool),
        b: (View<'_, T>, bool),
        (out, assign): (ViewMut<'_, T>, Assign),
        RunFacts { unit, threads, .. }: RunFacts,
    ) {
        self.packed.set_unit(unit);
        self.packed.pack(b.0, if b.1 { Transpose::Yes } else { Transpose::No }, threads);
        if !a.1 {
            return product(a.0, &self.packed, out, assign, &mut self.rounded);
        }
        emptied(&mut self.transposed, a.0.rows() * a.0.width());
        for j in 0..a.0.width() {
            self.transposed.extend(a.0.iter().map(|row| row[j]));
        }
        let a = View::new(&self.transposed, a.0.width(), a.0.rows());
        product(a, &self.packed, out, assign, &mut self.rounded);
    }
}
