//! Carried states: states that pass from batch to batch, such as a language model's state over a long text. A carried state
//! consists of a feed (the state before a batch) and a variable (the state after the batch).
//!
//! In a program, an operator declares a carried state: its output has the role [`VarRole::Carried`], and its input slot `before`
//! holds the feed.

use std::collections::HashSet;

use super::language::CARRY;
use super::op_desc::{OpDesc, Role};
use super::program::{Program, malformed};
use super::var_desc::VarRole;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::extent::{Extent, Spec, VarId};
use crate::tensor::StorageKind;

/// A carried state, which passes from batch to batch and has one row per sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CarriedState {
    /// The feed that holds the state before a batch.
    pub before: VarId,
    /// The variable that holds the state after the batch.
    pub after: VarId,
    /// The source line of the user's code that declared the carried state.
    pub caller: String,
}

/// The name of the operator's input slot that holds the feed.
const BEFORE: &str = CARRY.inputs[1];

impl CarriedState {
    /// Returns the carried state that an operator of the root block declares; `None` if the operator declares no carried state.
    fn of(program: &Program, op: &OpDesc) -> Option<Self> {
        let is = |id: &VarId| program.vars.get(id.0 as usize).is_some_and(|v| v.role == VarRole::Carried);
        let (after, before) = (op.writes().find(is)?, op.input(BEFORE).first().copied()?);
        Some(Self { before, after, caller: op.caller.clone() })
    }
}

/// Returns the error that an operator does not declare a carried state correctly.
pub(in crate::program) fn wrong(expected: &str, got: &str) -> Error {
    Error::of(ErrorKind::Program, "carried state", expected, got)
}

impl Program {
    /// Iterates over the carried states of the program, in the order of their operators.
    pub fn carried_states(&self) -> impl Iterator<Item = CarriedState> + '_ {
        self.root().ops.iter().filter_map(|op| CarriedState::of(self, op))
    }

    /// Checks the carried states of the program. Each state is a feed with one row per sequence and a variable of the same spec,
    /// and no feed or variable belongs to two states.
    pub(super) fn check_carried(&self) -> Result<()> {
        let (mut feeds, mut afters) = (HashSet::new(), HashSet::new());
        for (number, block) in self.blocks.iter().enumerate() {
            for op in &block.ops {
                for after in op.writes().filter(|&id| id != VarId::NONE) {
                    let desc = self.has_var(after)?;
                    if desc.role == VarRole::Carried {
                        let fed = self.carried_by(op, number).map_err(|e| e.variable(&desc.name))?;
                        if !feeds.insert(fed) || !afters.insert(after) {
                            let error = wrong(
                                "a feed and an output that no other state has",
                                "a feed or an output of two states",
                            );
                            return Err(error.variable(&desc.name));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the feed of the carried state that an operator declares.
    fn carried_by(&self, op: &OpDesc, block: usize) -> Result<VarId> {
        if block != 0 || op.role != Role::Forward {
            return Err(wrong("a forward operator of the root block", "another operator"));
        }
        let (&[before], [after]) = (op.input(BEFORE), &*op.writes().collect::<Vec<_>>()) else {
            return Err(wrong(
                "one feed in the slot `before`, and one output",
                "another number of feeds or outputs",
            ));
        };
        let (fed, made) = (self.has_var(before)?, self.has_var(*after)?);
        let shown = |spec: Option<&Spec>| spec.map_or_else(|| "a literal".to_owned(), Spec::to_string);
        let row = |spec: &&Spec| {
            spec.lod.is_empty()
                && spec.shape.first() == Some(&Extent::Batch)
                && spec.storage == StorageKind::Dense
        };
        let Some(spec) = fed.spec().filter(row).filter(|_| fed.role == VarRole::Feed) else {
            let got = format!("`{}`, {}", fed.name, shown(fed.spec()));
            return Err(malformed("carried state", "a feed with one row per sequence", got));
        };
        if made.spec() != Some(spec) {
            let expected = format!("{spec}, as the feed `{}`", fed.name);
            return Err(malformed("carried state", expected, shown(made.spec())));
        }
        Ok(before)
    }
}
