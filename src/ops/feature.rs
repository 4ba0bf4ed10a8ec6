//! Features side by side and apart: `concat`, `split`, `slice`.
//!
//! `concat` puts the rows of several variables next to each other: out_i = [x⁰_i, x¹_i, …]. `split` is its inverse:
//! `sizes` are the widths of the outputs. `slice` takes the columns `from..to`. Row-wise: all inputs have the same LoD,
//! which the outputs keep; gradients are copied, and are 0 where nothing was taken.
//!
//! ```
//! use ndarray::array;
//! use unpadded::program::{Attributes, Operand};
//! use unpadded::{Lod, Variable, ops};
//! let lod = Lod::from_lengths1(&[2, 0, 1])?;
//! let a = Variable::sequences(array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], lod.clone())?;
//! let b = Variable::sequences(array![[-1.0], [-2.0], [-3.0]], lod)?;
//! let concat = ops::catalogue().parse("concat", &Attributes::new())?;
//! let out = concat.call(&[Operand::batch("x", a), Operand::batch("x", b)])?;
//! assert_eq!(out[0].as_slice::<f64>()?, [1.0, 2.0, -1.0, 3.0, 4.0, -2.0, 5.0, 6.0, -3.0]);
//! assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
//!
//! let split = ops::catalogue().parse("split", &Attributes::new().with("sizes", vec![1usize, 2]))?;
//! let parts = split.call(&[Operand::batch("x", out[0].clone())])?;
//! assert_eq!(parts[0].as_slice::<f64>()?, [1.0, 3.0, 5.0]);
//! assert_eq!(parts[1].as_slice::<f64>()?, [2.0, -1.0, 4.0, -2.0, 6.0, -3.0]);
//! # Ok::<(), unpadded::Error>(())
//! ```

use std::ops::Range;

use crate::error::{Error, Result};
use crate::kernels::Store;
use crate::program::{
    Attributes, Backward, Builder, Facts, Forward, InferShape, Needs, Op, RowValue, Sample, Signature, Slot,
    Var,
};
use crate::tensor::Variable;
use crate::with_float;

use super::rowwise::{numbers, put_nothing, put_rows, row_samples};

const X: usize = 0;
const OUT: usize = 0;

impl Builder {
    /// The rows of several variables next to each other.
    ///
    /// # Errors
    /// If there is none, or their rows or dtypes differ.
    #[track_caller]
    pub fn concat(&self, x: &[Var]) -> Result<Var> {
        self.append1("concat", &[("x", x)], Attributes::new())
    }

    /// Columns of `x`, as many in each part as `sizes` says.
    ///
    /// # Errors
    /// If the sizes do not add up to the width of `x`, or it holds no floats.
    #[track_caller]
    pub fn split(&self, x: Var, sizes: &[usize]) -> Result<Vec<Var>> {
        self.append("split", &[("x", &[x])], Attributes::new().with("sizes", sizes.to_vec()))
    }

    /// The columns of `x` in a range.
    ///
    /// # Errors
    /// If the range is not within the width of `x`, or it holds no floats.
    #[track_caller]
    pub fn slice(&self, x: Var, columns: Range<usize>) -> Result<Var> {
        let attributes = Attributes::new().with("from", columns.start).with("to", columns.end);
        self.append1("slice", &[("x", &[x])], attributes)
    }
}

/// The rows of several variables next to each other.
pub(super) struct Concat;

impl Op for Concat {
    fn kind() -> &'static str {
        "concat"
    }

    fn parse(_: &Attributes) -> Result<Self> {
        Ok(Self)
    }

    fn signature(&self) -> Signature {
        const { Signature { inputs: &[Slot::many("x")], outputs: &[Slot::one("out")] } }
    }

    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        let Some(first) = s.optional(X) else {
            return Err(s.mismatch(X, "at least one variable"));
        };
        for (k, x) in s.many(X).iter().enumerate() {
            if x.lod != first.lod || x.rows() != first.rows() || x.dtype != first.dtype {
                let expected = format!("the dtype, rows and LoD of the first, {first}");
                return Err(Error::new(format!("input `x`[{k}]"), expected, x.to_string()));
            }
        }
        s.set(OUT, first.with_width(s.many(X).iter().map(|x| x.width()).sum()));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let (mut out, mut from) = (run.output::<T>(OUT)?, 0);
            for k in 0..run.count(X) {
                let x = run.input_at::<T>(X, k)?;
                let to = from + x.width();
                put_rows(out.reborrow().columns(from, to), x, Store::Write);
                from = to;
            }
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let Some(dout) = run.output_gradient::<T>(OUT)? else { return Ok(()) };
            let mut from = 0;
            for k in 0..run.count(X) {
                let to = from + run.input_spec_at(X, k).width();
                if let Some((dx, store)) = run.gradient_at::<T>(X, k)? {
                    put_rows(dx, dout.columns(from, to), store);
                }
                from = to;
            }
            Ok(())
        })
    }

    fn needs(&self, _: usize) -> Needs {
        Needs::nothing()
    }

    fn samples() -> Vec<Sample> {
        let none = Attributes::new();
        let mut samples = row_samples(&none, 2, |sample, x| {
            let more = |salt, width| {
                let numbers = Variable::from(numbers(x.rows(), width, salt));
                numbers.with_lod(x.lod().cloned())
            };
            let batched = sample.operands[0].batched;
            let add = |s: Sample, y| if batched { s.batch("x", y) } else { s.constant("x", y) };
            Ok(add(add(sample, more(1, 1)?), more(2, 3)?))
        });
        samples.extend(row_samples(&none, 2, |sample, _| Ok(sample)).into_iter().take(1));
        samples
    }
}

/// Ranges of the columns, one output for each.
fn forward<T: RowValue>(run: &mut Forward<'_>, parts: impl Iterator<Item = Range<usize>>) -> Result<()> {
    let x = run.input::<T>(X)?;
    for (k, part) in parts.enumerate() {
        put_rows(run.output_at::<T>(OUT, k)?, x.columns(part.start, part.end), Store::Write);
    }
    Ok(())
}

/// The gradients of the parts, side by side; the columns of no part get none.
fn backward<T: RowValue>(run: &mut Backward<'_>, parts: impl Iterator<Item = Range<usize>>) -> Result<()> {
    let Some((mut dx, store)) = run.gradient::<T>(X)? else { return Ok(()) };
    let mut done = 0;
    for (k, part) in parts.enumerate() {
        put_nothing(dx.reborrow().columns(done, part.start), store);
        let to = dx.reborrow().columns(part.start, part.end);
        match run.output_gradient_at::<T>(OUT, k)? {
            Some(dout) => put_rows(to, dout, store),
            None => put_nothing(to, store),
        }
        done = part.end;
    }
    let width = dx.width();
    put_nothing(dx.columns(done, width), store);
    Ok(())
}

/// Columns cut into parts.
pub(super) struct Split {
    sizes: Vec<usize>,
}

impl Split {
    fn parts(&self) -> impl Iterator<Item = Range<usize>> + use<'_> {
        self.sizes.iter().scan(0, |from, &size| {
            let part = *from..*from + size;
            *from = part.end;
            Some(part)
        })
    }
}

impl Op for Split {
    fn kind() -> &'static str {
        "split"
    }

    fn parse(attributes: &Attributes) -> Result<Self> {
        Ok(Self { sizes: attributes.sizes("sizes")? })
    }

    fn signature(&self) -> Signature {
        const { Signature { inputs: &[Slot::one("x")], outputs: &[Slot::many("out")] } }
    }

    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        let x = s.input(X);
        let width = self.sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
        if width != Some(x.width()) || self.sizes.is_empty() {
            return Err(
                s.mismatch(X, &format!("rows of as many numbers as the sizes {:?} add up to", self.sizes))
            );
        }
        s.set_many(OUT, self.sizes.iter().map(|&size| x.with_width(size)).collect());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => forward::<T>(run, self.parts()))
    }

    fn columns(&self) -> Option<Vec<Range<usize>>> {
        Some(self.parts().collect())
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => backward::<T>(run, self.parts()))
    }

    fn needs(&self, _: usize) -> Needs {
        Needs::nothing()
    }

    fn samples() -> Vec<Sample> {
        let sizes = |sizes: &[usize]| Attributes::new().with("sizes", sizes.to_vec());
        let mut samples = row_samples(&sizes(&[2, 0, 1]), 3, |sample, _| Ok(sample));
        samples.extend(row_samples(&sizes(&[3]), 3, |sample, _| Ok(sample)).into_iter().take(1));
        samples
    }
}

/// A range of the columns.
pub(super) struct Slice {
    from: usize,
    to: usize,
}

impl Op for Slice {
    fn kind() -> &'static str {
        "slice"
    }

    fn parse(attributes: &Attributes) -> Result<Self> {
        Ok(Self { from: attributes.size("from")?, to: attributes.size("to")? })
    }

    fn signature(&self) -> Signature {
        const { Signature { inputs: &[Slot::one("x")], outputs: &[Slot::one("out")] } }
    }

    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        let (x, Slice { from, to }) = (s.input(X), self);
        if from > to || *to > x.width() {
            return Err(s.mismatch(X, &format!("rows that have the columns {from}..{to}")));
        }
        s.set(OUT, x.with_width(to - from));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => forward::<T>(run, std::iter::once(self.from..self.to)))
    }

    fn columns(&self) -> Option<Vec<Range<usize>>> {
        Some(std::iter::once(self.from..self.to).collect())
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => backward::<T>(run, std::iter::once(self.from..self.to)))
    }

    fn needs(&self, _: usize) -> Needs {
        Needs::nothing()
    }

    fn samples() -> Vec<Sample> {
        let range = |from: usize, to: usize| Attributes::new().with("from", from).with("to", to);
        let mut samples = row_samples(&range(1, 3), 4, |sample, _| Ok(sample));
        samples.extend(row_samples(&range(2, 2), 4, |sample, _| Ok(sample)).into_iter().take(1));
        samples
    }
}
