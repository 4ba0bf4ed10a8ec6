//! Checks operators that make new sequences in a step: the values that decide the offsets of the sequences must not depend on a
//! memory.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::operator::extent::{BlockId, VarId};
use crate::operator::facts::LodEffect;
use crate::operator::registry::Registry;
use crate::program::description::program::{Append, Program, malformed};

/// The error that values which decide offsets depend on a memory.
#[track_caller]
pub(crate) fn decided_late(memory: &str) -> Error {
    malformed(
        "what decides sequences that are made in a step",
        "values that no memory reaches, since the rows of every step are counted before the first",
        format!("one that `{memory}` reaches"),
    )
}

impl Program {
    /// Checks an operator that is about to be appended to a step block: its inputs that decide offsets must not depend on a
    /// memory of the block. `carried` holds the previous values of the memories.
    ///
    /// # Errors
    /// If such an input depends on a memory; the error names the input.
    pub(in crate::program) fn decided_early(
        &self,
        registry: &Registry,
        block: BlockId,
        carried: &dyn Fn() -> Vec<VarId>,
        request: &Append<'_>,
    ) -> Result<()> {
        // If the operator's attributes are wrong, appending the operator returns the error.
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
        // Find the memory, which the message names.
        for memory in carried {
            let reached = reached_from(&[memory]);
            if let Some(&var) = vars().find(|var| reached.contains(var)) {
                return Err(decided_late(&self.var(memory).name).variable(&self.var(var).name));
            }
        }
        Ok(())
    }
}
