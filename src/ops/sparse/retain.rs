//! `retain`: keeps only the rows of a sparse table whose row numbers are in a list of ids.

use super::among::values;
use crate::ops::lookup::ids::{self, Ids};
use crate::ops::prelude::*;
use crate::tensor::SelectedRows;

operator! {
    /// Keeps the rows of `x` whose indices are in `ids`; all other rows become zero and are not stored. The height of the table
    /// does not change.
    ///
    /// `x` is selected rows, or a csr constant with a height that is fixed in the program. `ids` holds one whole number per row
    /// of the batch, in any order; an id may be repeated. The gradient of x is 0 in the rows that are not retained.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::tensor::{SelectedRows, Storage};
    /// use unpadded::{Variable, ops};
    /// let x = SelectedRows::new(9, vec![2, 5, 7], array![[1.0], [2.0], [3.0]])?;
    /// let op = ops::catalogue().parse("retain", &Attributes::new())?;
    /// let out = op.call(&[
    ///     Operand::constant("x", Variable::new(x, None)?),
    ///     Operand::batch("ids", array![7i64, 1, 2, 7]),
    /// ])?;
    /// assert_eq!(out[0].storage(), &Storage::from(SelectedRows::new(9, vec![2, 7], array![[1.0], [3.0]])?));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` holds no floats or is not a constant, or `ids` does not hold one whole number per row.
    pub(in crate::ops) struct Retain = retain {}
    inputs { X = x: one, IDS = ids: one.without_gradient() }
    kernels { [ROWS, DENSE], [CSR, DENSE] }
    outputs { OUT = out: one }
    impl Builder, Var { fn retain(&self, x: Var, ids: Var) -> Var; }
}

impl Op for Retain {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        ids::check(s, Self::IDS)?;
        let x = s.input(Self::X);
        if x.batched() {
            return Err(s.mismatch(Self::X, "a table of known height"));
        }
        s.set(Self::OUT, x.clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let mut wanted = std::mem::take(run.scratch().get::<IdSet>());
        wanted.find(run)?;
        with_float!(run.dtype(Self::X), T => forward::<T>(run, &wanted.0))?;
        *run.scratch().get::<IdSet>() = wanted;
        Ok(())
    }

    gradient_reads!(Self::X);

    fn stored(&self, _: usize) -> StorageBound {
        StorageBound::Together(&[Self::X])
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => backward::<T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let none = Attributes::new();
        let csr = Variable::new(sparse_numbers(5, 4, 2)?, None)?;
        let rows = Variable::new(SelectedRows::new(5, vec![3, 0, 2], numbers(3, 3, 2))?, None)?;
        let mut samples = Vec::new();
        for (name, x) in [("csr", csr), ("selected rows", rows)] {
            let sample = |what: &str| {
                CheckCase::new(&format!("{name}, {what}"), none.clone()).constant("x", x.clone())
            };
            let words = Variable::from_sequences(&[vec![2i64, 1], vec![], vec![3, 3, 1]])?;
            samples.push(sample("repeated ids").batch("ids", words));
            samples.push(sample("empty").batch("ids", Variable::from_sequences::<i64>(&[vec![], vec![]])?));
            samples.push(sample("none").batch("ids", Variable::from_sequences::<i64>(&[])?));
            samples.push(sample("i32, a column").batch("ids", array![[4i32], [0]]));
        }
        Ok(samples)
    }
}

/// Scratch memory: the distinct ids in ascending order.
#[derive(Default)]
struct IdSet(Vec<i64>);

impl IdSet {
    fn find(&mut self, run: &Forward<'_>) -> Result<()> {
        let (ids, spec) = (Ids::of(run, Retain::IDS)?, run.input_spec(Retain::X));
        let height = spec.shape.first().and_then(|height: &Extent| height.known()).unwrap_or(0);
        self.0.clear();
        for row in 0..ids.len() {
            self.0.push(ids.index(row, height, "x")? as i64);
        }
        self.0.sort_unstable();
        self.0.dedup();
        Ok(())
    }
}

fn forward<T: RowValue>(run: &mut Forward<'_>, wanted: &[i64]) -> Result<()> {
    if run.rows(Retain::X).is_some() {
        return run.fill_rows(Retain::OUT, |run, out| {
            let Some(x) = run.rows(Retain::X) else { return Ok(()) };
            out.reset::<T>(x.height(), x.width());
            for (&id, row) in x.ids().iter().zip(values::<T>(x, x.width())?.iter()) {
                if wanted.binary_search(&id).is_ok() {
                    out.push(id, row);
                }
            }
            out.set_merged();
            Ok(())
        });
    }
    run.fill_csr(Retain::OUT, |run, out| {
        let x = super::among::given(run.csr(Retain::X))?.view::<T>()?;
        let out = out.fill::<T>(x.columns());
        out.indptr.push(0);
        for &id in wanted {
            out.indptr.resize(id as usize + 1, out.indices.len() as i64);
            let (columns, values) = x.row(id as usize);
            out.indices.extend_from_slice(columns);
            out.values.extend_from_slice(values);
        }
        out.indptr.resize(x.rows() + 1, out.indices.len() as i64);
        Ok(())
    })
}

fn backward<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    run.fill_gradient::<T>(Retain::X, 0, |run, dx, assign| {
        if assign == Assign::Write {
            dx.fill(T::ZERO);
        }
        if let (Some(x), Some(dout)) = (run.csr(Retain::X), run.output_gradient_csr(Retain::OUT)) {
            let dout = dout.view::<T>()?;
            for (row, &from) in x.indptr().iter().take(x.rows()).enumerate() {
                let (_, dout) = dout.row(row);
                dx[from as usize..].iter_mut().zip(dout).for_each(|(dx, &g)| *dx += g);
            }
        }
        if let (Some(x), Some(dout)) = (run.rows(Retain::X), run.output_gradient_rows(Retain::OUT)) {
            let width = x.width();
            for (id, dout) in dout.ids().iter().zip(values::<T>(dout, width)?.iter()) {
                if let Ok(at) = x.ids().binary_search(id) {
                    dx[at * width..].iter_mut().zip(dout).for_each(|(dx, &g)| *dx += g);
                }
            }
        }
        Ok(())
    })?;
    Ok(())
}
