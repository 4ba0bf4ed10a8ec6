//! Sparse rows in a step block: an operator that reads sparse rows runs before the loop.
//!
//! A step block holds no sparse rows: every row that a step reads is dense. If a user calls an operator on sparse rows in a step
//! block, the builder appends the operator to the block around the step block. The operator then reads the outer variables, and
//! its result becomes another input of the step block. As a consequence, an operator on sparse rows runs once, over the rows of
//! all steps.

use std::panic::Location;

use super::open_step::OpenStep;
use super::state::{State, finished};
use crate::error::{Error, ErrorKind, Result};
use crate::operator::attributes::Attributes;
use crate::operator::extent::{BlockId, Spec, VarId};
use crate::operator::facts::Reach;
use crate::program::description::op_desc::VarPair;
use crate::program::description::program::Program;
use crate::tensor::StorageKind;

/// The variables bound to each input slot of an operator, by the slot's name.
type Operands<'s> = Vec<(&'s str, Vec<VarId>)>;

/// How a step block reads an outer variable: as a step input or as a static input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OuterUse {
    /// A step input: each step reads one entry of every sequence.
    Input,
    /// A static input: all steps of a sequence read the same row, or the same sub-sequence.
    Static,
}

/// Returns whether a variable is batched and its storage is not dense.
fn is_sparse(program: &Program, var: VarId) -> bool {
    let sparse = |spec: &Spec| spec.batched() && spec.storage != StorageKind::Dense;
    program.var(var).spec().is_some_and(sparse)
}

impl State {
    pub(super) fn has_sparse_rows(&self, inputs: &[(&str, Vec<VarId>)]) -> bool {
        inputs.iter().flat_map(|(_, vars)| vars).any(|&var| is_sparse(&self.program, var))
    }

    /// Appends an operator that reads sparse rows to the block around the step block. Returns the step block's views of the
    /// operator's outputs.
    pub(super) fn before_loop(
        &mut self,
        block: BlockId,
        kind: &str,
        attributes: &Attributes,
        inputs: &[(&str, Vec<VarId>)],
        caller: &'static Location<'static>,
    ) -> Result<Vec<VarId>> {
        let place = self.program.next_place(block, kind, caller.to_string());
        let (outer, seen) = self.around(block, kind, attributes, inputs).map_err(|e| e.at(place.clone()))?;
        let parent = self.step(block).ok_or_else(|| finished().at(place.clone()))?.parent;
        let made = self.append_known(parent, kind, attributes, outer, caller)?;
        let State { program, open, .. } = self;
        let step = open.iter_mut().find(|step| step.block == block).ok_or_else(finished)?;
        let inner = |var: VarId| match seen {
            OuterUse::Input => step.add_input(program, var),
            OuterUse::Static => step.capture(program, var)?.ok_or_else(finished),
        };
        made.into_iter().map(inner).collect::<Result<_>>().map_err(|e| e.at(place))
    }

    fn step(&self, block: BlockId) -> Option<&OpenStep> {
        self.open.iter().find(|step| step.block == block)
    }

    /// Replaces each operand that is a view in a step block by the outer variable of the view.
    fn around<'s>(
        &self,
        block: BlockId,
        kind: &str,
        attributes: &Attributes,
        inputs: &[(&'s str, Vec<VarId>)],
    ) -> Result<(Operands<'s>, OuterUse)> {
        let State { program, registry, .. } = self;
        let step = self.step(block).ok_or_else(finished)?;
        let all = || inputs.iter().flat_map(|(_, vars)| vars).copied();
        let sparse = all().find(|&var| is_sparse(program, var));
        let refuse = |expected: &str, got: String| {
            let what = "sparse rows in a step, which are computed and read before its loop";
            let error = Error::of(ErrorKind::Program, what, expected, got);
            Err(match sparse {
                Some(var) => error.variable(&program.var(var).name),
                None => error,
            })
        };
        let outer = |pairs: &[VarPair], var: VarId| pairs.iter().find(|p| p.inner == var).map(|p| p.outer);
        let mut seen = None;
        let mut found = Vec::new();
        for (slot, vars) in inputs {
            let mut outside = Vec::new();
            for &var in vars {
                let desc = program.var(var);
                let (name, batched) = (&desc.name, desc.spec().is_some_and(Spec::batched));
                let (outer_var, how) = if !batched && desc.block != block {
                    outside.push(var);
                    continue;
                } else if let Some(outer_var) = outer(&step.desc.inputs, var) {
                    (outer_var, OuterUse::Input)
                } else if let Some(outer_var) = outer(&step.desc.statics, var) {
                    (outer_var, OuterUse::Static)
                } else {
                    let expected = "operators on step inputs and on variables from outside the step";
                    let got = format!("`{kind}` that reads `{name}`, which the step computes");
                    return refuse(expected, got);
                };
                if seen.is_some_and(|seen| seen != how) {
                    let expected = "operators on step inputs only, or on static inputs only";
                    return refuse(expected, format!("`{kind}` that reads both kinds, among them `{name}`"));
                }
                seen = Some(how);
                outside.push(outer_var);
            }
            found.push((*slot, outside));
        }
        let op = registry.parse(kind, attributes)?;
        let ragged = all().any(|var| program.var(var).spec().is_some_and(|spec| !spec.lod.is_empty()));
        match op.facts().reach {
            Reach::Row => {}
            Reach::Sequence if ragged => {}
            _ => return refuse("row-wise operators", format!("`{kind}`")),
        }
        Ok((found, seen.unwrap_or(OuterUse::Input)))
    }
}

impl OpenStep {
    /// Adds a step input for an outer variable; returns its view in the step block.
    fn add_input(&mut self, program: &mut Program, var: VarId) -> Result<VarId> {
        let spec = program.spec(var)?.clone();
        let inner = self.view(program, var, &spec, &spec.lod[self.above.len() + 1..]);
        self.desc.inputs.push(VarPair { outer: var, inner });
        Ok(inner)
    }

    /// Removes the sparse step inputs and the sparse static inputs: the operators that read these inputs run before the loop.
    /// Fails if no step input is left.
    pub(super) fn drop_sparse(&mut self, program: &Program) -> Result<()> {
        let first = self.desc.inputs.first().map(|pair| pair.outer);
        self.desc.inputs.retain(|pair| !is_sparse(program, pair.inner));
        self.desc.statics.retain(|pair| !is_sparse(program, pair.inner));
        match (first, self.desc.inputs.is_empty()) {
            (Some(var), true) => {
                let expected = "a dense step input, or an input computed from a sparse step input";
                let got = program.spec(var)?.to_string();
                Err(Error::of(ErrorKind::Program, "step inputs", expected, got)
                    .variable(&program.var(var).name))
            }
            _ => Ok(()),
        }
    }
}
