//! `top_k`: the largest numbers of each row and their columns.

use crate::kernels::exceeds;
use crate::ops::prelude::*;

operator! {
    /// Returns the k largest numbers of each row in descending order, and the column index of each of these numbers.
    ///
    /// In row i, values_ij is the j-th largest number, and ids_ij (i64) is the index of the column that holds values_ij. Among
    /// equal numbers the lowest column comes first; NaN comes before all numbers. [`argmax`](Self::argmax) returns only the index
    /// of the column that holds the row's largest number. The operator computes each row alone; x may have any LoD; the
    /// outputs `values` and `ids`, each `[rows, k]`, keep this LoD. The gradient of `values` passes to the k selected
    /// numbers of each row of x; all other numbers get the gradient 0.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = array![[1.0, 3.0, 2.0], [5.0, 7.0, 7.0]];
    /// let x = Variable::sequences(x, Lod::from_lengths1(&[1, 0, 1])?)?;
    /// let op = ops::catalogue().parse("top_k", &Attributes::new().with("k", 2usize))?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [3.0, 2.0, 7.0, 7.0]);
    /// assert_eq!(out[1].as_slice::<i64>()?, [1, 2, 1, 2]);
    /// assert_eq!(out[1].lod().map(|lod| lod.to_string()), Some("[[1, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats, or k is not from 1 to the width of `x`.
    pub(in crate::ops) struct TopK = top_k { k: usize }
    inputs { X = x: one }
    outputs { VALUES = values: one, IDS = ids: one.without_gradient() }
    impl Builder, Var { fn top_k(&self, x: Var, k: usize) -> (Var, Var); }
}

impl Op for TopK {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        let x = s.input(Self::X);
        if x.width() == 0 {
            return Err(s.mismatch(Self::X, "at least one number in a row"));
        }
        if self.k == 0 || self.k > x.width() {
            let expected = format!("from 1 to {}, the width of `x`", x.width());
            return Err(Error::new("attribute `k`", expected, self.k.to_string()));
        }
        s.set(Self::VALUES, x.with_width(self.k));
        s.set(Self::IDS, x.with_dtype(DType::I64).with_width(self.k));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => self.largest::<T>(run))
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().output(Self::IDS)
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let Some((mut dx, assign)) = run.gradient::<T>(Self::X)? else { return Ok(()) };
            let (dout, ids) = (run.output_gradient::<T>(Self::VALUES)?, run.output::<i64>(Self::IDS)?);
            for (row, dx) in dx.iter_mut().enumerate() {
                if assign == Assign::Write {
                    dx.fill(T::ZERO);
                }
                let Some(dout) = dout else { continue };
                for (&g, &id) in dout.row(row).iter().zip(ids.row(row)) {
                    if let Some(dx) = usize::try_from(id).ok().and_then(|id| dx.get_mut(id)) {
                        *dx += g;
                    }
                }
            }
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let op = |k| TopK { k }.attributes();
        let mut samples = CheckCase::of_rows(&op(2), 5, |sample, _| Ok(sample))?;
        samples.extend(CheckCase::of_rows(&op(1), 1, |sample, _| Ok(sample))?);
        samples.extend(CheckCase::of_rows(&op(4), 4, |sample, _| Ok(sample))?);
        let ties = ndarray::array![[1.0, 2.0, 2.0, 1.0], [3.0, 3.0, 3.0, 3.0]];
        samples.push(CheckCase::new("ties", op(3)).batch("x", ties).without_gradient());
        Ok(samples)
    }
}

impl TopK {
    fn largest<T: RowValue + Plain>(&self, run: &mut Forward<'_>) -> Result<()> {
        let x = run.input::<T>(Self::X)?;
        let (mut values, mut ids) = (run.output::<T>(Self::VALUES)?, run.output::<i64>(Self::IDS)?);
        for (row, x) in x.iter().enumerate() {
            let (values, ids) = (values.row(row), ids.row(row));
            let mut found = 0;
            // Each number is first compared with the smallest of the k sorted numbers, since most numbers of a row are smaller
            // than all k.
            for (column, &x) in x.iter().enumerate() {
                if found == self.k && !exceeds(x, values[found - 1]) {
                    continue;
                }
                found = (found + 1).min(self.k);
                let mut at = found - 1;
                while at > 0 && exceeds(x, values[at - 1]) {
                    values[at] = values[at - 1];
                    ids[at] = ids[at - 1];
                    at -= 1;
                }
                values[at] = x;
                ids[at] = column as i64;
            }
        }
        Ok(())
    }
}
