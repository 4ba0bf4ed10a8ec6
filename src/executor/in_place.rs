//! Values of a step block that are made where another one lies: `x·W + h·U` is one array, to which the second product
//! is added step by step, and the gradient of a cell's inputs may take the place of those inputs.
//!
//! Both names then stand for one array, as do the parts of a split and the whole (the module `views`). The
//! bits are those of two arrays: a sum that is added to a value is that value plus the finished sum.

use std::collections::HashSet;

use super::compile::Compiler;
use super::plan::{Access, Home};
use super::split::{Class, Classes, Unit, When};
use super::through::Through;
use crate::error::Result;
use crate::program::{BlockId, OpDesc, RECURRENT, StepDesc, StepGradient, VarId, grad_name};

impl Compiler<'_> {
    /// Lets operators whose result is only added to another value add it there, and takes the additions out of `units`.
    /// When the others run stays as it was decided: what reads a value before something is added to it must not move
    /// behind that, as it would if the decision were made anew for the one array.
    pub(super) fn add_in_place(
        &mut self,
        step: &StepDesc,
        classes: &Classes,
        kept: &HashSet<VarId>,
        units: &mut Vec<Unit>,
        when: &mut Vec<When>,
    ) -> Result<()> {
        let program = self.program;
        let ops = &program.block(step.block).ops;
        let mut done: HashSet<usize> = HashSet::new();
        for addition in 0..units.len() {
            let op = &ops[units[addition].op];
            let Some((x, y, out)) = self.sum(op)? else { continue };
            let alone = |var: VarId| {
                classes.get(program, var) == Class::Step
                    && !kept.contains(&var)
                    && !self.in_a_loop(step.block, var)
            };
            if ![x, y, out, self.whole_of(x), self.whole_of(y)].into_iter().all(alone) {
                continue;
            }
            let others: Vec<usize> =
                (0..units.len()).filter(|i| *i != addition && !done.contains(i)).collect();
            for (term, to) in [(y, x), (x, y)] {
                let whole = self.whole_of(to);
                let writers = |var: VarId| -> Vec<usize> {
                    others.iter().copied().filter(|&i| units[i].writes.contains(&var)).collect()
                };
                let [adder] = writers(term)[..] else { continue };
                let before = |i: usize| (when[i], units[i].op) < (when[adder], units[adder].op);
                let uses = |&&i: &&usize| units[i].writes.contains(&whole) || units[i].reads.contains(&whole);
                let fits = self.whole_of(term) == term
                    && term != whole
                    && program.spec(whole)? == program.spec(term)?
                    && !self.saved.contains(&term)
                    && !self.saved.contains(&whole)
                    && self.accumulates(&ops[units[adder].op])?
                    && !self.views.values().any(|(of, _)| *of == term)
                    && !others.iter().any(|&i| units[i].reads.contains(&term))
                    && !writers(whole).is_empty()
                    && others.iter().filter(uses).all(|&i| before(i));
                if !fits {
                    continue;
                }
                // Columns of the sum are columns of the whole.
                self.views.values_mut().filter(|(of, _)| *of == out).for_each(|(of, _)| *of = whole);
                for var in [term, out] {
                    self.views.insert(var, (whole, 0));
                }
                if self.saved.contains(&out) {
                    self.saved.insert(whole);
                }
                self.adds.insert((step.block, units[adder].op));
                units[adder].reads.push(whole);
                done.insert(addition);
                for unit in units.iter_mut() {
                    unit.reads.iter_mut().chain(&mut unit.writes).for_each(|v| *v = self.whole_of(*v));
                }
                break;
            }
        }
        let mut number = 0..;
        units.retain(|_| !number.next().is_some_and(|i| done.contains(&i)));
        let mut number = 0..;
        when.retain(|_| !number.next().is_some_and(|i| done.contains(&i)));
        Ok(())
    }

    /// The two terms and the sum, if that is what an operator computes.
    fn sum(&self, op: &OpDesc) -> Result<Option<(VarId, VarId, VarId)>> {
        if op.kind == RECURRENT {
            return Ok(None);
        }
        let instance = self.parse(op)?;
        let (inputs, outputs): (Vec<VarId>, Vec<VarId>) = (op.reads().collect(), op.writes().collect());
        let (&[x, y], &[out]) = (&inputs[..], &outputs[..]) else { return Ok(None) };
        let same = self.program.spec(x)? == self.program.spec(y)?;
        Ok((instance.hints().sums && same && x != y).then_some((x, y, out)))
    }

    /// Lets backward operators write a gradient over the value that they alone read. Returns the gradients that have a
    /// place by that.
    pub(super) fn overwrite(
        &mut self,
        step: &StepDesc,
        gradient: &StepGradient,
        through: &Through,
        units: &[Unit],
    ) -> Result<HashSet<VarId>> {
        let program = self.program;
        let ops = &program.block(gradient.block).ops;
        let pairs = step.inputs.iter().chain(&step.outputs).chain(&step.statics);
        let pairs = pairs.chain(&gradient.inputs).chain(&gradient.outputs).chain(&gradient.statics);
        let mut shared: HashSet<VarId> = pairs.map(|p| p.inner).collect();
        shared.extend(step.memories.iter().flat_map(|m| [m.next, m.previous]));
        shared.extend(gradient.memories.iter().flat_map(|m| [Some(m.next), m.previous]).flatten());
        let mut placed = HashSet::new();
        for (number, unit) in units.iter().enumerate().filter(|(_, u)| !u.wrt.is_empty()) {
            let op = &ops[unit.op];
            let instance = self.parse(op)?;
            let specs = program.input_specs(instance.signature(), op)?;
            for &slot in unit.wrt.iter().filter(|&&slot| instance.gradient(slot, &specs).overwrites) {
                let name = instance.signature().inputs[slot].name;
                let (&[value], &[result]) = (op.input(name), op.output(&grad_name(name))) else { continue };
                let whole = self.whole_of(value);
                let own = |var: VarId, block: BlockId| {
                    program.var(var).block == block
                        && self.class(step, var) == Class::Step
                        && !shared.contains(&var)
                        && !self.in_a_loop(block, var)
                };
                let others = || units.iter().enumerate().filter(|(i, _)| *i != number).map(|(_, u)| u);
                let fits = own(value, step.block)
                    && own(whole, step.block)
                    && own(result, gradient.block)
                    && program.spec(whole)?.width() == program.spec(value)?.width()
                    && self.whole_of(result) == result
                    && !through.contains_key(&result)
                    && op.reads().filter(|&v| self.whole_of(v) == whole).count() == 1
                    && !others().any(|u| u.reads.contains(&whole) || u.writes.contains(&result));
                let access = self.access[whole.0 as usize];
                let stepped = |slot: usize| self.slots[slot].home == Home::Stepped(step.block);
                if fits && matches!(access, Some(Access::Slot(slot)) if stepped(slot)) {
                    self.access[result.0 as usize] = access;
                    self.overwrites.insert((gradient.block, unit.op, slot));
                    placed.insert(result);
                }
            }
        }
        Ok(placed)
    }

    fn accumulates(&self, op: &OpDesc) -> Result<bool> {
        if op.kind == RECURRENT || op.writes().count() != 1 {
            return Ok(false);
        }
        Ok(self.parse(op)?.hints().accumulates)
    }
}
