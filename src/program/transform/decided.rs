//! Checks operators that make new sequences in a step block. An input that decides the offsets of the new sequences must not
//! depend on a memory.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::operator::extent::{BlockId, VarId};
use crate::operator::facts::LodEffect;
use crate::operator::registry::Registry;
use crate::program::description::program::{Append, Program, malformed};

/// Returns the error for an input that decides offsets but depends on the memory `memory`.
#[track_caller]
pub(crate) fn decided_late(memory: &str) -> Error {
    malformed(
        "value that decides the sequences made in a step",
        "a value that depends on no memory, because the rows of all steps are counted before the first step",
        format!("a value that depends on `{memory}`"),
    )
}

impl Program {
    /// Checks an operator before it is appended to a step block: an input that decides offsets must not depend on a memory of the
    /// step block. `carried` returns the variables that hold the previous values of the memories.
    ///
    /// # Errors
    /// Fails if an input that decides offsets depends on a memory; the error names the input and the memory.
    pub(in crate::program) fn decided_early(
        &self,
        registry: &Registry,
        block: BlockId,
        carried: &dyn Fn() -> Vec<VarId>,
        request: &Append<'_>,
    ) -> Result<()> {
        // This check ignores wrong attributes: `append` reports wrong attributes.
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
        // The loop finds the memory that the input depends on, for the error message.
        for memory in carried {
            let reached = reached_from(&[memory]);
            if let Some(&var) = vars().find(|var| reached.contains(var)) {
                return Err(decided_late(&self.var(memory).name).variable(&self.var(var).name));
            }
        }
        Ok(())
    }
}
