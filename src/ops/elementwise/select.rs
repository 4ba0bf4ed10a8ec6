//! `select`: chooses between the number of x and the number of y for each element, by a condition.

use crate::ops::prelude::*;

operator! {
    /// Selects the number of x where the condition is not 0, else the number of y, element by element: out = condition ? x : y.
    ///
    /// The condition holds numbers or bools, such as the output of a comparison: one for each number of x, or one for each row
    /// of x. The operator computes each row alone: the condition, x and y have the same number of rows and the same
    /// LoD, and the output keeps this LoD. The operator does not read the numbers that are not selected, so a NaN or an
    /// infinity among the numbers that are not selected has no effect. The gradient of x is the output's gradient where
    /// x is selected, else 0; the gradient of y is the output's gradient where y is selected, else 0. The condition
    /// gets no gradient.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[1, 0, 1])?;
    /// let rows = |array| Variable::sequences(array, lod.clone());
    /// let condition = Operand::batch("condition", Variable::sequences(array![[true], [false]], lod.clone())?);
    /// let x = Operand::batch("x", rows(array![[1.0, 2.0], [f64::NAN, 4.0]])?);
    /// let y = Operand::batch("y", rows(array![[-1.0, -2.0], [-3.0, -4.0]])?);
    /// let select = ops::catalogue().parse("select", &Attributes::new())?;
    /// assert_eq!(select.call(&[condition, x, y])?[0].as_slice::<f64>()?, [1.0, 2.0, -3.0, -4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if x and y are not floats of one dtype, or differ in the number of rows, the LoD or the width; if
    /// the condition does not have the number of rows and the LoD of x, or its width is neither 1 nor the width of x.
    #[doc(alias = "where")]
    pub(in crate::ops) struct Select = select {}
    inputs { CONDITION = condition: one.without_gradient(), X = x: one, Y = y: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn select(&self, condition: Var, x: Var, y: Var) -> Var; }
}

/// The dtypes that the condition of `select` may have.
pub(in crate::ops) const CONDITIONS: [DType; 5] =
    [DType::Bool, DType::I64, DType::I32, DType::F32, DType::F64];

/// The numbers of the condition, in any of the allowed dtypes.
#[derive(Clone, Copy)]
pub(in crate::ops) enum Condition<'a> {
    Bool(View<'a, bool>),
    I64(View<'a, i64>),
    I32(View<'a, i32>),
    F32(View<'a, f32>),
    F64(View<'a, f64>),
}

impl<'a> Condition<'a> {
    #[track_caller]
    pub(in crate::ops) fn of(run: &CallInputs<'a>, slot: usize) -> Result<Self> {
        match run.dtype(slot) {
            DType::Bool => run.input(slot).map(Condition::Bool),
            DType::I64 => run.input(slot).map(Condition::I64),
            DType::I32 => run.input(slot).map(Condition::I32),
            DType::F32 => run.input(slot).map(Condition::F32),
            _ => run.input(slot).map(Condition::F64),
        }
    }

    /// Returns whether the first column of row `row` is `true` (for bools) or not 0 (for numbers).
    pub(in crate::ops) fn holds(self, row: usize) -> bool {
        match self {
            Condition::Bool(view) => view.row(row)[0],
            Condition::I64(view) => view.row(row)[0] != 0,
            Condition::I32(view) => view.row(row)[0] != 0,
            Condition::F32(view) => view.row(row)[0] != 0.0,
            Condition::F64(view) => view.row(row)[0] != 0.0,
        }
    }

    /// Writes one bool per column of the condition to `holds`: whether the condition is true in this column of
    /// row `row`.
    fn row(self, row: usize, holds: &mut Vec<bool>) {
        holds.clear();
        match self {
            Condition::Bool(view) => holds.extend(view.row(row)),
            Condition::I64(view) => holds.extend(view.row(row).iter().map(|&x| x != 0)),
            Condition::I32(view) => holds.extend(view.row(row).iter().map(|&x| x != 0)),
            Condition::F32(view) => holds.extend(view.row(row).iter().map(|&x| x != 0.0)),
            Condition::F64(view) => holds.extend(view.row(row).iter().map(|&x| x != 0.0)),
        }
    }
}

/// Returns the bool of `holds` for column `column`; if `holds` has a single bool, returns this bool for every column.
fn at(holds: &[bool], column: usize) -> bool {
    if let [one] = holds { *one } else { holds[column] }
}

impl Op for Select {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.same_dtype(Self::X, Self::Y)?;
        s.same_rows(Self::X, Self::Y)?;
        s.dtype_in(Self::CONDITION, &CONDITIONS)?;
        s.same_rows(Self::X, Self::CONDITION)?;
        let x = s.input(Self::X);
        if s.input(Self::Y).width() != x.width() {
            return Err(s.mismatch(Self::Y, &format!("rows of {} numbers, as `x` has", x.width())));
        }
        if ![1, x.width()].contains(&s.input(Self::CONDITION).width()) {
            let expected = format!("rows of {} numbers, as `x` has, or of one number", x.width());
            return Err(s.mismatch(Self::CONDITION, &expected));
        }
        s.set(Self::OUT, x.clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let (x, y, mut out) = (run.input::<T>(Self::X)?, run.input::<T>(Self::Y)?, run.output::<T>(Self::OUT)?);
            let condition = Condition::of(run, Self::CONDITION)?;
            let holds = &mut run.scratch().get::<ConditionRows>().0;
            for (row, out) in out.iter_mut().enumerate() {
                condition.row(row, holds);
                for (j, (out, (&x, &y))) in out.iter_mut().zip(x.row(row).iter().zip(y.row(row))).enumerate() {
                    *out = if at(holds, j) { x } else { y };
                }
            }
            Ok(())
        })
    }

    gradient_reads!(Self::CONDITION);

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => gradients::<T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let none = Attributes::new();
        let bind = |sample: CheckCase, x: &Variable, width: usize, salt: usize| -> Result<CheckCase> {
            let y = Variable::from(numbers(x.rows(), 3, 1)).with_lod(x.lod().cloned())?;
            let condition = numbers(x.rows(), width, salt).mapv(|v| v > 0.0);
            let condition = Variable::from(condition).with_lod(x.lod().cloned())?;
            let batched = sample.operands[0].batched;
            Ok(match batched {
                true => sample.batch("y", y).batch("condition", condition),
                false => sample.constant("y", y).constant("condition", condition),
            })
        };
        let mut samples = CheckCase::of_rows(&none, 3, |sample, x| bind(sample, x, 3, 2))?;
        samples.extend(CheckCase::of_rows(&none, 3, |sample, x| bind(sample, x, 1, 3))?);
        samples.extend(CheckCase::of_rows(&none, 3, |sample, x| {
            let mut sample = bind(sample, x, 1, 4)?;
            let whole = numbers(x.rows(), 1, 5).mapv(|v| i64::from(v > 0.0));
            if let Some(condition) = sample.operands.last_mut() {
                condition.value = Variable::from(whole).with_lod(x.lod().cloned())?;
            }
            Ok(sample)
        })?);
        Ok(samples)
    }
}

fn gradients<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let Some(dout) = run.output_gradient::<T>(Select::OUT)? else { return Ok(()) };
    let condition = Condition::of(run, Select::CONDITION)?;
    let (dx, dy) = (run.gradient::<T>(Select::X)?, run.gradient::<T>(Select::Y)?);
    let holds = &mut run.scratch().get::<ConditionRows>().0;
    for (side, taken) in [(dx, true), (dy, false)] {
        let Some((mut side, assign)) = side else { continue };
        for (row, to) in side.iter_mut().enumerate() {
            condition.row(row, holds);
            for (j, (to, &g)) in to.iter_mut().zip(dout.row(row)).enumerate() {
                let g = if at(holds, j) == taken { g } else { T::ZERO };
                match assign {
                    Assign::Write => *to = g,
                    Assign::Add => *to += g,
                }
            }
        }
    }
    Ok(())
}

/// Scratch memory of a call: for one row, whether the condition is true in each column.
#[derive(Default)]
struct ConditionRows(Vec<bool>);
