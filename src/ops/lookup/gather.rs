//! `gather_rows` copies the rows that ids name, `scatter_rows` adds rows to the rows that ids name, and `one_hot` encodes ids.

use super::ids::{self, Ids};
use crate::ops::prelude::*;
use crate::ops::row_map::{MapCall, Movement, RowList, RowMap, RowSink, SourceUse};

operator! {
    /// Gathers the row of `x` for each id in `ids`: out_i = x\[ids_i\]; an id may occur several times. The output has
    /// one row per id, and the LoD of `ids`.
    ///
    /// `x` is a constant table `[height, width]` or a batched variable; the row index of a batched variable counts from 0 through
    /// all sequences. If `x` is a table, `gather_rows` computes a dense gradient; [`lookup`](Self::lookup) can compute the
    /// gradient as selected rows. The gradient of a row of `x` is the sum of the output's gradients over all occurrences of the
    /// row's index in `ids`, added first to last.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 2.0], [3.0, 4.0]], Lod::from_lengths1(&[1, 1])?)?;
    /// let ids = Variable::from_sequences(&[vec![1i64, 0, 1], vec![]])?;
    /// let op = ops::catalogue().parse("gather_rows", &Attributes::new().with("of_batch", true))?;
    /// let out = op.call(&[Operand::batch("ids", ids), Operand::batch("x", x)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[3, 0]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `ids` are not whole numbers, one per row, or if `x` does not hold rows of floats; at a run, it is an
    /// error if an id is negative or not below the number of rows of `x`.
    pub(in crate::ops) struct GatherRows = gather_rows { of_batch: bool = false }
    inputs { IDS = ids: one.without_gradient(), X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var {
        fn gather_rows(&self, x: Var, ids: Var) -> Var {
            let of_batch = self.spec(x).is_some_and(|x| x.batched());
        }
    }
}

operator! {
    /// Adds row i of `x` to row ids_i of a matrix of zeros: out\[ids_i\] += x_i.
    ///
    /// `x` has one row per id, and the LoD of `ids`, which may be any LoD. The output is a constant `[height, width]`
    /// without a LoD. Rows of `x` with equal ids are added up first to last, so that the result does not depend on the
    /// number of threads. The gradient of row i of `x` is row ids_i of the output's gradient: dx_i = dout\[ids_i\].
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0], [2.0], [4.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let ids = Variable::from_sequences(&[vec![2i64, 0], vec![], vec![2]])?;
    /// let op = ops::catalogue().parse("scatter_rows", &Attributes::new().with("height", 4usize))?;
    /// let out = op.call(&[Operand::batch("ids", ids), Operand::batch("x", x)])?;
    /// assert_eq!((out[0].as_slice::<f64>()?, out[0].lod()), ([2.0, 0.0, 5.0, 0.0].as_slice(), None));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `ids` are not whole numbers, one per row, or if `x` holds no floats or does not have one row
    /// per id and the LoD of `ids`; at a run, it is an error if an id is negative or not below the height.
    pub(in crate::ops) struct ScatterRows = scatter_rows { height: usize }
    inputs { IDS = ids: one.without_gradient(), X = x: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn scatter_rows(&self, x: Var, ids: Var, height: usize) -> Var; }
}

operator! {
    /// Encodes each id as a one-hot row of `classes` numbers: 1 in the column that the id names, and 0 in all other columns.
    ///
    /// The operator computes each row alone; the ids may have any LoD, which the output `[rows, classes]` keeps. The output
    /// holds f32, or the float dtype in the attribute `dtype`; no gradient passes. To multiply one-hot rows by a matrix, use
    /// [`lookup`](Self::lookup): it returns the same product, and reads only the rows of the matrix that the ids name.
    ///
    /// ```
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let ids = Variable::from_sequences(&[vec![2i64, 0], vec![]])?;
    /// let op = ops::catalogue().parse("one_hot", &Attributes::new().with("classes", 3usize).with("dtype", "f64"))?;
    /// let out = op.call(&[Operand::batch("ids", ids)])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `ids` are not whole numbers, one per row, if `classes` is 0, or if the dtype is no float; at a run, it
    /// is an error if an id is negative or not below the number of classes.
    pub(in crate::ops) struct OneHot = one_hot { classes: usize, dtype: DType }
    inputs { IDS = ids: one.without_gradient() }
    outputs { OUT = out: one.without_gradient() }
    impl Builder, Var {
        fn one_hot(&self, ids: Var, classes: usize) -> Var {
            let dtype = DType::F32;
        }
    }
}

/// Makes ids from 0 to `height` − 1 for a check case, in sequences of the given lengths.
fn some_ids(lengths: &[&[usize]], height: usize) -> Result<Variable> {
    let lengths: Vec<Vec<usize>> = lengths.iter().map(|l| l.to_vec()).collect();
    let lod = Lod::from_lengths(&lengths)?;
    let ids: Vec<i64> = (0..lod.rows()).map(|row| (row * 7 % height.max(1)) as i64).collect();
    Variable::sequences(ndarray::Array1::from(ids), lod)
}

/// The check cases of `gather_rows` and `scatter_rows`: the name of each case, and the lengths of its sequences.
const CASES: [(&str, &[&[usize]]); 4] = [
    ("repeated ids", &[&[2, 0, 4]]),
    ("two levels", &[&[2, 0, 1], &[3, 0, 4]]),
    ("all empty", &[&[0, 0]]),
    ("none", &[&[]]),
];

impl Op for GatherRows {
    fn facts(&self) -> Facts {
        match self.of_batch {
            // An id is a row number of the whole batch, so the output for a sequence depends on the other sequences of the
            // batch.
            true => Facts { batch_dependent: true, ..Facts::batch_wide(LodEffect::Keeps(Self::IDS)) },
            false => Facts::row_wise(),
        }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        ids::check(s, Self::IDS)?;
        s.is_float(Self::X)?;
        let x = s.input(Self::X);
        let known = matches!(x.rows(), Extent::Known(_)) && x.shape.len() > 1;
        if x.batched() != self.of_batch || !(x.batched() || known) {
            let height = if self.of_batch { "the rows of the batch" } else { "a known number of rows" };
            return Err(s.mismatch(Self::X, &format!("a variable of {height}")));
        }
        s.set(Self::OUT, s.input(Self::IDS).with_dtype(x.dtype).with_width(x.width()));
        Ok(())
    }

    row_map_passes!(Self::IDS);

    fn cost(&self, work: &Work<'_>) -> Cost {
        let touched = work.touched();
        Cost { flops: 0, read: touched.written.min(touched.read), ..touched }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for (name, lengths) in CASES {
            let sample = CheckCase::new(
                &format!("of a constant, {name}"),
                GatherRows { of_batch: false }.attributes(),
            );
            samples.push(sample.batch("ids", some_ids(lengths, 5)?).constant("x", numbers(5, 3, 1)));
            let ids = some_ids(lengths, lengths.last().map_or(0, |l| l.iter().sum()))?;
            let x = Variable::from(numbers(ids.rows(), 3, 2)).with_lod(ids.lod().cloned())?;
            let sample =
                CheckCase::new(&format!("of the batch, {name}"), GatherRows { of_batch: true }.attributes());
            samples.push(sample.batch("ids", ids).batch("x", x));
        }
        let column = Variable::dense(array![[2i32], [0], [2]]);
        let sample = CheckCase::new("i32, a column", GatherRows { of_batch: false }.attributes());
        samples.push(sample.batch("ids", column).constant("x", numbers(3, 2, 0)));
        Ok(samples)
    }
}

impl RowMap for GatherRows {
    fn movement(&self) -> Movement {
        Movement::gather(Self::X, SourceUse::Often)
    }

    fn map(&self, MapCall { run, height, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        let (ids, mut rows) = (Ids::of(run, Self::IDS)?, RowList::new(moved));
        for row in 0..ids.len() {
            rows.push(ids.index(row, height, "x")?);
        }
        rows.finish();
        Ok(())
    }
}

impl Op for ScatterRows {
    fn facts(&self) -> Facts {
        Facts { batch_dependent: true, ..Facts::batch_wide(LodEffect::Drops) }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        ids::check(s, Self::IDS)?;
        s.is_float(Self::X)?;
        s.same_rows(Self::IDS, Self::X)?;
        let x = s.input(Self::X);
        s.set(Self::OUT, Spec::fixed(x.dtype, &[self.height, x.width()])?);
        Ok(())
    }

    row_map_passes!(Self::IDS);

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let sample = |(name, lengths): (&str, &[&[usize]])| -> Result<CheckCase> {
            let ids = some_ids(lengths, 4)?;
            let x = Variable::from(numbers(ids.rows(), 2, 2)).with_lod(ids.lod().cloned())?;
            let sample = CheckCase::new(name, ScatterRows { height: 4 }.attributes());
            Ok(sample.batch("ids", ids).batch("x", x))
        };
        CASES.into_iter().map(sample).collect()
    }
}

impl RowMap for ScatterRows {
    fn movement(&self) -> Movement {
        Movement::scatter(Self::X, SourceUse::Often, 0.0)
    }

    fn map(&self, MapCall { run, .. }: MapCall<'_, '_>, moved: RowSink<'_>) -> Result<()> {
        let (ids, mut rows) = (Ids::of(run, Self::IDS)?, RowList::new(moved));
        for row in 0..ids.len() {
            rows.push(ids.index(row, self.height, "out")?);
        }
        rows.finish();
        Ok(())
    }
}

impl Op for OneHot {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        ids::check(s, Self::IDS)?;
        if self.classes == 0 {
            return Err(Error::new("attribute `classes`", "at least 1", "0"));
        }
        if !self.dtype.is_float() {
            return Err(Error::new("attribute `dtype`", "f32 or f64", self.dtype.to_string()));
        }
        s.set(Self::OUT, s.input(Self::IDS).with_dtype(self.dtype).with_width(self.classes));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(self.dtype, T => {
            let mut out = run.output::<T>(Self::OUT)?;
            let ids = Ids::of(run, Self::IDS)?;
            for (row, out) in out.iter_mut().enumerate() {
                out.fill(T::ZERO);
                if let Some(class) = ids.class(row, self.classes, None)? {
                    out[class] = T::ONE;
                }
            }
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for (name, lengths) in CASES {
            for dtype in [DType::F32, DType::F64] {
                let sample =
                    CheckCase::new(&format!("{name}, {dtype}"), OneHot { classes: 3, dtype }.attributes());
                samples.push(sample.batch("ids", some_ids(lengths, 3)?));
            }
        }
        Ok(samples)
    }
}
