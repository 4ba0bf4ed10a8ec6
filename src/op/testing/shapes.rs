//! Checks of declared shapes and LoDs, of outputs declared as columns of an input, and of slots whose numbers are declared
//! unread.

use std::sync::Arc;

use super::case::{Case, each};
use super::values::{Outcome, all, bits_eq, ensure, filled, has_nan, numbers, same_bits};
use crate::lod::Lod;
use crate::operator::{Extent, LodEffect, Operand};
use crate::tensor::{DType, Variable};

impl Case<'_> {
    /// Checks that the computed shape, dtype, storage and LoD equal the declarations, and that a second run gives the same
    /// bits.
    pub(super) fn shapes(&self) -> Outcome {
        let ran = self.run_sample(DType::F32)?;
        let again = ran.direct.forward()?;
        let facts = self.op.facts();
        for (slot, declared) in self.op.signature().outputs.iter().enumerate() {
            let (vars, specs) = (&ran.outputs[slot], &ran.direct.output_specs()[slot]);
            let name = declared.name;
            ensure(vars.len() == specs.len(), || {
                format!("`{name}`: {} values, {} specs", vars.len(), specs.len())
            })?;
            let fits = declared.arity.takes(vars.len());
            ensure(fits, || format!("`{name}`: {} values for {}", vars.len(), declared.arity))?;
            for ((var, spec), second) in vars.iter().zip(specs).zip(&again[slot]) {
                let shape = var.shape().iter().zip(&spec.shape).all(|(&n, e)| match *e {
                    Extent::Known(known) => n == known,
                    Extent::Batch => n == self.batch(),
                    _ => var.lod().is_none_or(|lod| lod.rows() == n),
                });
                let same = shape && var.shape().len() == spec.shape.len();
                let same = same && var.dtype() == spec.dtype && var.storage().kind() == spec.storage;
                ensure(same, || format!("`{name}`: declared {spec}, got {} {:?}", var.dtype(), var.shape()))?;
                ensure(bits_eq(var.storage(), second.storage())?, || {
                    format!("`{name}`: other bits when run twice")
                })?;
                ensure(!has_nan(var.storage())?, || format!("`{name}`: NaN"))?;
                let from = |slot: usize| ran.direct.inputs()[slot].first().and_then(|v| v.lod());
                let expected = match facts.lod {
                    _ if !spec.batched() => None,
                    LodEffect::Keeps(slot) => {
                        let specs = |slot: usize| ran.direct.input_specs()[slot].first();
                        let batched = |slot: &usize| specs(*slot).is_some_and(|spec| spec.batched());
                        let kept = (slot..ran.direct.inputs().len()).find(batched);
                        // An output with one row per sequence of the input has one level less than the input.
                        let less = kept.and_then(specs).is_some_and(|kept| kept.lod.len() > spec.lod.len());
                        kept.and_then(from).and_then(|lod| if less { lod.upper() } else { Some(lod) })
                    }
                    LodEffect::DropsLevel(slot) => from(slot).and_then(|lod| lod.upper()),
                    LodEffect::Drops => None,
                    LodEffect::Replaces | LodEffect::FromData(_) => continue,
                };
                let same = match (expected, var.lod()) {
                    (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                    (a, b) => a.is_none() && b.is_none(),
                };
                ensure(same, || format!("`{name}`: {:?}, but its LoD is {}", facts.lod, show(var.lod())))?;
            }
        }
        Ok(())
    }

    /// Checks that each output that is declared as columns of the input equals these columns.
    pub(super) fn columns(&self) -> Outcome {
        let ran = self.run_sample(DType::F64)?;
        let Some(columns) = self.op.hints().columns else { return Ok(()) };
        let outputs = ran.outputs.first().map_or(&[][..], Vec::as_slice);
        ensure(outputs.len() == columns.len(), || format!("{} outputs, not {columns:?}", outputs.len()))?;
        let apart = columns.windows(2).all(|pair| pair[0].end <= pair[1].start);
        ensure(apart, || format!("{columns:?} overlap or are not in order"))?;
        let Some(whole) = ran.direct.inputs().first().and_then(|vars| vars.first()) else {
            return ensure(false, || "no input to have columns of".to_owned());
        };
        let (x, width) = (numbers(whole.storage())?, ran.direct.input_specs()[0][0].width());
        for (k, (columns, output)) in columns.into_iter().zip(outputs).enumerate() {
            let fits = columns.start <= columns.end && columns.end <= width;
            ensure(fits, || format!("columns {columns:?} of {width}"))?;
            let rows = x.chunks(width.max(1)).flat_map(|row| row.get(columns.clone()).unwrap_or(&[]));
            let part: Vec<f64> = rows.copied().collect();
            ensure(part == numbers(output.storage())?, || format!("output {k} is not columns {columns:?}"))?;
        }
        Ok(())
    }

    /// Checks that the numbers of a slot, even NaN, have no effect if the operator declares that it reads only the shape of the
    /// slot.
    pub(super) fn shape_only(&self) -> Outcome {
        let signature = self.op.signature();
        let operands = self.operands(DType::F32)?;
        for slot in signature.inputs.iter().filter(|slot| slot.shape_only) {
            for number in [None, Some(f64::NAN)] {
                let other = |o: &Operand| {
                    if o.slot != slot.name {
                        return Ok(o.clone());
                    }
                    let (shape, dtype) = (o.value.shape(), o.value.dtype());
                    let value = match number {
                        None => filled(shape, dtype, 77)?,
                        Some(number) => all(shape, dtype, number)?,
                    };
                    Ok(Operand { value: Variable::new(value, o.value.lod().cloned())?, ..o.clone() })
                };
                let others = operands.iter().map(other).collect::<crate::error::Result<Vec<_>>>()?;
                let (ran, changed) =
                    (self.run_sample(DType::F32)?, self.run(&others, &self.numbers(), None)?);
                let numbers = if number.is_some() { "NaN" } else { "other numbers" };
                for (a, b) in changed.outputs.iter().flatten().zip(ran.outputs.iter().flatten()) {
                    same_bits(a.storage(), b.storage(), format!("`{}` holds {numbers}: output", slot.name))?;
                }
                let slots = self.slots(&ran);
                if slots.is_empty() {
                    continue;
                }
                let (a, b) = (changed.gradients(&slots, None)?, ran.gradients(&slots, None)?);
                each(&a, &b, &slots, |wrt, k, a, b| {
                    let name = self.input_name(wrt);
                    same_bits(a, b, format!("`{}` holds {numbers}: gradient of `{name}`[{k}]", slot.name))
                })?;
            }
        }
        Ok(())
    }
}

fn show(lod: Option<&Arc<Lod>>) -> String {
    lod.map_or("none".to_owned(), <Arc<Lod> as ToString>::to_string)
}
