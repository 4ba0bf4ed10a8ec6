//! Variables of a step block that are columns of another one: the parts of a split. They are not copied; a part is
//! read where the whole lies, and the gradient of a part is written into its columns of the whole's gradient.

use std::collections::HashSet;

use crate::error::Result;
use crate::executor::compile::loops::through::Through;
use crate::executor::compile::{Compiler, counts};
use crate::executor::plan::Access;
use crate::executor::rewrite::classes::Class;
use crate::program::{BlockId, OpDesc, Program, RECURRENT, Role, StepDesc, StepGradient, VarId, grad_name};

impl Compiler<'_> {
    /// The variable whose memory holds `var`.
    pub(crate) fn whole_of(&self, var: VarId) -> VarId {
        self.views.get(&var).map_or(var, |&(whole, _)| whole)
    }

    /// Lets a variable be columns of another one, from the given one on.
    pub(crate) fn view(&mut self, part: VarId, (whole, column): (VarId, usize)) {
        self.views.insert(part, (whole, column));
        self.parts.entry(whole).or_default().push(part);
    }

    /// Makes the outputs of an operator of a step block views, if they are columns of its input; then the operator has
    /// no call. What leaves the step (`kept`), or enters a loop inside it, has rows of its own.
    pub(crate) fn view_outputs(
        &mut self,
        step: &StepDesc,
        op: &OpDesc,
        kept: &HashSet<VarId>,
    ) -> Result<bool> {
        if op.kind == RECURRENT || op.role != Role::Forward {
            return Ok(false);
        }
        let instance = self.parse(op)?;
        let signature = instance.signature();
        let vars = Program::slots_of(signature.inputs, &op.inputs, "");
        let Some(columns) = instance.hints().columns else { return Ok(false) };
        let (Some(&[x]), parts) = (vars.first().map(Vec::as_slice), op.output(signature.outputs[0].name))
        else {
            return Ok(false);
        };
        let (whole, first) = self.views.get(&x).copied().unwrap_or((x, 0));
        let previous = matches!(self.access[whole.0 as usize], Some(Access::Previous { .. }));
        let inside = |var: &VarId| !kept.contains(var) && !self.in_a_loop(step.block, *var);
        if previous || parts.len() != columns.len() || !parts.iter().all(inside) {
            return Ok(false);
        }
        for (&part, columns) in parts.iter().zip(columns) {
            self.view(part, (whole, first + columns.start));
            if self.saved.contains(&part) {
                self.saved.insert(whole);
            }
        }
        Ok(true)
    }

    /// Makes the gradients of such parts views of the gradient of the whole, where nothing else writes that and all its
    /// columns are written. Returns the operators that have no call for it.
    pub(crate) fn view_gradients(
        &mut self,
        step: &StepDesc,
        gradient: &StepGradient,
        through: &Through,
    ) -> Result<HashSet<usize>> {
        let program = self.program;
        let ops = &program.block(gradient.block).ops;
        let pairs = gradient.inputs.iter().chain(&gradient.outputs).chain(&gradient.statics);
        let mut leaves: HashSet<VarId> = pairs.map(|p| p.inner).collect();
        leaves.extend(gradient.memories.iter().flat_map(|m| [Some(m.next), m.previous]).flatten());
        let written = counts(ops.iter().flat_map(OpDesc::writes));
        let writers = |var: VarId| written.get(&var).copied().unwrap_or(0);
        let mut viewed = HashSet::new();
        // The last split first, so that a part that is split again finds its whole.
        for (number, op) in ops.iter().enumerate().rev() {
            if op.role != Role::Backward || op.kind == RECURRENT {
                continue;
            }
            let instance = self.parse(op)?;
            let signature = instance.signature();
            let Some(columns) = instance.hints().columns else { continue };
            let parts = op.input(&grad_name(signature.outputs[0].name));
            let &[x] = op.output(&grad_name(signature.inputs[0].name)) else { continue };
            let free = |var: VarId| {
                program.var(var).block == gradient.block
                    && !leaves.contains(&var)
                    && !through.contains_key(&var)
                    && !self.views.contains_key(&var)
                    && !self.in_a_loop(gradient.block, var)
                    && self.class(step, var) == Class::Step
            };
            let width = program.spec(x)?.width();
            let ends = columns.iter().try_fold(0, |end, c| (c.start == end).then_some(c.end));
            let distinct: HashSet<VarId> = parts.iter().copied().collect();
            let fits = ends == Some(width)
                && parts.len() == columns.len()
                && distinct.len() == parts.len()
                && parts.iter().all(|&part| part != VarId::NONE && free(part) && writers(part) > 0);
            let (whole, first) = self.views.get(&x).copied().unwrap_or((x, 0));
            let alone = self.views.contains_key(&x) || free(x);
            if !fits || !alone || writers(x) != 1 {
                continue;
            }
            for (&part, columns) in parts.iter().zip(columns) {
                self.view(part, (whole, first + columns.start));
            }
            viewed.insert(number);
        }
        Ok(viewed)
    }

    /// Whether a loop inside a block reads or writes a variable: it moves whole rows.
    pub(crate) fn in_a_loop(&self, block: BlockId, var: VarId) -> bool {
        self.looped.contains(&(block, var))
    }
}
