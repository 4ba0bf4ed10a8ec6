//! Operators that concatenate or slice columns: `concat`, `split`, `slice`.

use half::bf16;

use crate::ops::prelude::*;

const X: usize = 0;
const OUT: usize = 0;

operator! {
    /// Concatenates the columns of several variables, row by row: `out_i = [x⁰_i, x¹_i, …]`. All variables have the same LoD,
    /// which the output keeps. The gradient of each variable is the part of the output's gradient in the columns of this
    /// variable.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[2, 0, 1])?;
    /// let a = Variable::sequences(array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], lod.clone())?;
    /// let b = Variable::sequences(array![[-1.0], [-2.0], [-3.0]], lod)?;
    /// let concat = ops::catalogue().parse("concat", &Attributes::new())?;
    /// let out = concat.call(&[Operand::batch("x", a), Operand::batch("x", b)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 2.0, -1.0, 3.0, 4.0, -2.0, 5.0, 6.0, -3.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if there are no variables, or if the variables differ in dtype, LoD or number of rows.
    pub(in crate::ops) struct Concat = concat {}
    inputs { X = x: many }
    outputs { OUT = out: one }
    impl Builder { fn concat(&self, x: &[Var]) -> Var; }
}

impl Op for Concat {
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
        let width = s.many(X).iter().map(|x| x.width()).fold(0, usize::saturating_add);
        s.set(OUT, first.with_width(width));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        if run.holds_bf16(X) {
            return put_beside::<bf16>(run);
        }
        with_float!(run.dtype(X), T => put_beside::<T>(run))
    }

    fn hints(&self) -> Hints {
        Hints { copies: true, ..Hints::default() }
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let Some(dout) = run.output_gradient::<T>(OUT)? else { return Ok(()) };
            let mut from = 0;
            for k in 0..run.count(X) {
                let to = from + run.input_spec_at(X, k).width();
                if let Some((dx, assign)) = run.gradient_at::<T>(X, k)? {
                    assign.put_rows(dx, dout.columns(from, to));
                }
                from = to;
            }
            Ok(())
        })
    }

    gradient_reads!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let none = Attributes::new();
        let mut samples = CheckCase::of_rows(&none, 2, |sample, x| {
            let more = |salt, width| {
                let numbers = Variable::from(numbers(x.rows(), width, salt));
                numbers.with_lod(x.lod().cloned())
            };
            let batched = sample.operands[0].batched;
            let add = |s: CheckCase, y| if batched { s.batch("x", y) } else { s.constant("x", y) };
            Ok(add(add(sample, more(1, 1)?), more(2, 3)?))
        })?;
        samples.extend(CheckCase::of_rows(&none, 2, |sample, _| Ok(sample))?.into_iter().take(1));
        Ok(samples)
    }
}

/// Copies the inputs to the columns of the output, one beside the other.
fn put_beside<T: Plain>(run: &mut Forward<'_>) -> Result<()> {
    let (mut out, mut from) = (run.output::<T>(OUT)?, 0);
    for k in 0..run.count(X) {
        let x = run.input_at::<T>(X, k)?;
        let to = from + x.width();
        let mut columns = out.reborrow().columns(from, to);
        columns.iter_mut().zip(x.iter()).for_each(|(out, x)| out.copy_from_slice(x));
        from = to;
    }
    Ok(())
}

/// Copies ranges of columns of the input; each range becomes one output.
fn forward<T: RowValue>(run: &mut Forward<'_>, parts: impl Iterator<Item = Range<usize>>) -> Result<()> {
    let x = run.input::<T>(X)?;
    for (k, part) in parts.enumerate() {
        Assign::Write.put_rows(run.output_at::<T>(OUT, k)?, x.columns(part.start, part.end));
    }
    Ok(())
}

/// Writes or adds the gradient of each range of columns; for columns outside of all ranges, the gradient is 0.
fn backward<T: RowValue>(run: &mut Backward<'_>, parts: impl Iterator<Item = Range<usize>>) -> Result<()> {
    let Some((mut dx, assign)) = run.gradient::<T>(X)? else { return Ok(()) };
    let mut done = 0;
    for (k, part) in parts.enumerate() {
        assign.put_nothing(dx.reborrow().columns(done, part.start));
        let to = dx.reborrow().columns(part.start, part.end);
        match run.output_gradient_at::<T>(OUT, k)? {
            Some(dout) => assign.put_rows(to, dout),
            None => assign.put_nothing(to),
        }
        done = part.end;
    }
    let width = dx.width();
    assign.put_nothing(dx.columns(done, width));
    Ok(())
}

operator! {
    /// Splits the columns of `x` into parts with the given `sizes`: `[out⁰_i, out¹_i, …] = x_i`, the inverse of `concat`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 2.0, -1.0], [3.0, 4.0, -2.0]], Lod::from_lengths1(&[1, 0, 1])?)?;
    /// let split = ops::catalogue().parse("split", &Attributes::new().with("sizes", vec![1usize, 2]))?;
    /// let parts = split.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(parts[0].as_slice::<f64>()?, [1.0, 3.0]);
    /// assert_eq!(parts[1].as_slice::<f64>()?, [2.0, -1.0, 4.0, -2.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the sizes do not add up to the width of `x`, or `x` holds no floats.
    pub(in crate::ops) struct Split = split { sizes: Vec<usize> }
    inputs { X = x: one }
    outputs { OUT = out: many }
    impl Builder, Var { fn split[const N: usize](&self, x: Var, sizes: [usize; N]) -> [Var; N]; }
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

    fn hints(&self) -> Hints {
        Hints { columns: Some(self.parts().collect()), ..Hints::default() }
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => backward::<T>(run, self.parts()))
    }

    gradient_reads!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let sizes = |sizes: &[usize]| Split { sizes: sizes.to_vec() }.attributes();
        let mut samples = CheckCase::of_rows(&sizes(&[2, 0, 1]), 3, |sample, _| Ok(sample))?;
        samples.extend(CheckCase::of_rows(&sizes(&[3]), 3, |sample, _| Ok(sample))?.into_iter().take(1));
        Ok(samples)
    }
}

operator! {
    /// Slices a range of columns from `x`: out_ij = x_i,from+j. The gradient of x is 0 in all columns outside of the range.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], Lod::from_lengths1(&[1, 0, 1])?)?;
    /// let op = ops::catalogue().parse("slice", &Attributes::new().with("from", 1usize).with("to", 3usize))?;
    /// let out = op.call(&[Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [2.0, 3.0, 5.0, 6.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the range is not within the width of `x`, or `x` holds no floats.
    pub(in crate::ops) struct Slice = slice { from: usize, to: usize }
    inputs { X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var {
        fn slice(&self, x: Var, columns: Range<usize>) -> Var {
            let Range { start: from, end: to } = columns;
        }
    }
}

impl Op for Slice {
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

    fn hints(&self) -> Hints {
        Hints { columns: Some(std::iter::once(self.from..self.to).collect()), ..Hints::default() }
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => backward::<T>(run, std::iter::once(self.from..self.to)))
    }

    gradient_reads!();

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let range = |from, to| Slice { from, to }.attributes();
        let mut samples = CheckCase::of_rows(&range(1, 3), 4, |sample, _| Ok(sample))?;
        samples.extend(CheckCase::of_rows(&range(2, 2), 4, |sample, _| Ok(sample))?.into_iter().take(1));
        Ok(samples)
    }
}
