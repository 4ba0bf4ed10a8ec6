//! Checks that wrong operands are an error when an operator is appended, not when the operator runs.

use super::case::{Case, STREAM};
use super::values::{Broken, Outcome, ensure, has_nan};
use crate::error::Result;
use crate::lod::Lod;
use crate::operator::Operand;
use crate::operator::call::Direct;
use crate::tensor::{DType, Dense, Storage, Variable};

impl Case<'_> {
    /// Checks that `forward` accepts all operands that the shape rule accepts (also with other dtypes or other rows), and
    /// writes each output completely.
    pub(super) fn operands_that_fit(&self) -> Outcome {
        // This check skips update rules: an output that is changed in place has the spec of the updated variable, which the
        // program checks.
        if self.updates() {
            return Ok(());
        }
        let operands = self.operands(DType::F64)?;
        for (index, operand) in operands.iter().enumerate() {
            let Storage::Dense(dense) = operand.value.storage() else { continue };
            if operand.literal.is_some() {
                continue;
            }
            let with = |value: Variable| {
                let mut changed = operands.clone();
                changed[index].value = value;
                changed
            };
            let name = &operand.slot;
            for dtype in [DType::F32, DType::I64] {
                let cast = Variable::new(dense.cast(dtype), operand.value.lod().cloned())?;
                self.taken(&with(cast), &format!("`{name}` as {dtype}"), true)?;
            }
            if let Some(longer) = longer(operand)? {
                self.taken(&with(longer), &format!("`{name}` with other rows than the others"), false)?;
            }
        }
        Ok(())
    }

    /// Checks that a call succeeds if the shape rule accepts its operands. If `same` is true, the operands hold the
    /// data of the check case, and an error of `forward` breaks the rule.
    fn taken(&self, operands: &[Operand], what: &str, same: bool) -> Outcome {
        let Ok(direct) = Direct::new(self.op.clone(), operands) else { return Ok(()) };
        let outputs = match direct.run_as(self.run_facts(), &self.numbers()).keyed(STREAM, None).forward() {
            Ok(outputs) => outputs,
            Err(_) if !same => return Ok(()),
            Err(error) => {
                return Err(Broken(format!("infer_shape accepts {what}, and forward does not: {error}")));
            }
        };
        for (slot, vars) in outputs.iter().enumerate() {
            for var in vars {
                ensure(!has_nan(var.storage())?, || {
                    format!(
                        "infer_shape accepts {what}; then `{}` is not written whole",
                        self.output_name(slot)
                    )
                })?;
            }
        }
        Ok(())
    }
}

/// Returns a variable of ones like the operand, with one more row in the first sequence. Returns `None` if the operand
/// is not batched, or has no LoD or no rows.
fn longer(operand: &Operand) -> Result<Option<Variable>> {
    let (value, Some(lod)) = (&operand.value, operand.value.lod()) else { return Ok(None) };
    if !operand.batched || value.rows() == 0 {
        return Ok(None);
    }
    let mut lengths: Vec<Vec<usize>> =
        (0..lod.levels()).map(|level| Ok(lod.lengths(level)?.collect())).collect::<Result<_>>()?;
    let Some(first) = lengths.last_mut().and_then(|last| last.first_mut()) else { return Ok(None) };
    *first += 1;
    let mut shape = value.shape().to_vec();
    shape[0] += 1;
    // All numbers are 1, which is a valid label, id and argument for most operators.
    let ones = Dense::from_vec(&shape, vec![1i64; shape.iter().product()])?;
    Ok(Some(Variable::new(ones.cast(value.dtype()), Some(Lod::from_lengths(&lengths)?))?))
}
