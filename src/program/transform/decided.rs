//! Checks sequences that are made in a step: no memory may reach the values that decide their offsets.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::operator::extent::{BlockId, VarId};
use crate::operator::facts::LodEffect;
use crate::operator::registry::Registry;
use crate::program::description::program::{Append, Program, malformed};

/// The error that a memory reaches values that decide offsets.
#[track_caller]
pub(crate) fn decided_late(memory: &str) -> Error {
    malformed(
        "what decides sequences that are made in a step",
        "values that no memory reaches, since the rows of every step are counted before the first",
        format!("one that `{memory}` reaches"),
    )
}

impl Program {
    /// Checks that no memory of a block reaches the inputs that decide the offsets of the operator that `request` is to
    /// append to the block. `carried` are the memories' previous values.
    ///
    /// # Errors
    /// If a memory does; the error names the input.
    pub(in crate::program) fn decided_early(
        &self,
        registry: &Registry,
        block: BlockId,
        carried: &dyn Fn() -> Vec<VarId>,
        request: &Append<'_>,
    ) -> Result<()> {
        // If the operator itself is wrong, appending it returns that error.
        let Ok(op) = registry.parse(request.kind, &request.attributes) else { return Ok(()) };
        let LodEffect::FromData(slots) = op.facts().lod else { return Ok(()) };
        let reached_from = |memories: &[VarId]| {
            let mut reached: HashSet<VarId> = memories.iter().copied().collect();
            for op in &self.block(block).ops {
                if op.reads().any(|var| reached.contains(&var)) {
                    reached.extend(op.writes());
                }
            }
            reached
        };
        let decides = |name: &str| op.signature().inputs.iter().position(|slot| slot.name == name);
        let decides = |name: &str| decides(name).is_some_and(|slot| slots.contains(&slot));
        let vars = || request.inputs.iter().filter(|(name, _)| decides(name)).flat_map(|(_, vars)| vars);
        let carried = carried();
        let reached = reached_from(&carried);
        if !vars().any(|var| reached.contains(var)) {
            return Ok(());
        }
        // Find the memory, for the message.
        for memory in carried {
            let reached = reached_from(&[memory]);
            if let Some(&var) = vars().find(|var| reached.contains(var)) {
                return Err(decided_late(&self.var(memory).name).variable(&self.var(var).name));
            }
        }
        Ok(())
    }
}
