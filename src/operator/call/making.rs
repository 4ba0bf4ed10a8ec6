//! The output shapes of a direct call, and the LoD levels that the operator makes.

use super::{Direct, lend_reads};
use crate::error::Result;
use crate::kernels::arena::{OperandRoom, Operands};
use crate::operator::context::{NewLevels, Wiring};
use crate::operator::extent::Extent;
use crate::operator::facts::LodEffect;
use crate::operator::infer::infer;
use crate::operator::levels::{bind_made, made_levels};
use crate::operator::shapes::{InputSlots, Phase};

impl Direct {
    /// Runs the shape rule, and computes the offsets of the LoD levels that the operator makes. The operands must be bound before
    /// the call of `made`.
    pub(crate) fn made(mut self) -> Result<Self> {
        let phase = Phase::Build { next: &mut self.bound.clone() };
        self.output_specs = infer(
            &*self.op,
            InputSlots { specs: &self.input_specs, literals: &self.literals },
            Extent::Batch,
            phase,
        )?;
        let made = made_levels(&self.input_specs, &self.output_specs);
        if let LodEffect::FromData(slots) = self.op.facts().lod {
            let offsets = self.offsets(slots)?;
            let top = self.extent(Extent::Batch);
            bind_made(&mut self.levels, &made, &offsets, top)?;
        } else if !made.is_empty() {
            let phase = Phase::Run { made: &made, table: &mut self.levels };
            infer(
                &*self.op,
                InputSlots { specs: &self.input_specs, literals: &self.literals },
                Extent::Batch,
                phase,
            )?;
        }
        Ok(self)
    }

    /// Computes the offsets of the new LoD levels from the values in the input slots `slots`.
    fn offsets(&self, slots: &[usize]) -> Result<Vec<Vec<usize>>> {
        let mut wiring = Wiring::default();
        let (mut room, mut pool, mut offsets) = (OperandRoom::default(), Vec::new(), Vec::new());
        let mut lender = Operands::lent(&mut room);
        let mut reads = 0;
        for (slot, (vars, specs)) in self.inputs.iter().zip(&self.input_specs).enumerate() {
            // Only values that the operator declares to read are bound, so that an operator with a wrong declaration fails.
            let values = vars.iter().map(|v| slots.contains(&slot).then(|| v.storage()));
            let repeated = self.repeated();
            wiring.inputs.push(lend_reads(values, specs, &mut lender, &mut reads, &mut pool, repeated)?);
        }
        let operands = lender.finish();
        let call = self.call(&wiring);
        let mut run = NewLevels::new(call, operands, &mut offsets);
        let outcome = self.op.levels(&mut run);
        let outcome = wiring.missing.checked(self.op.signature(), outcome);
        outcome.map_err(|e| e.of_sample(|row| self.sample(row)))?;
        Ok(offsets)
    }
}
