//! Backward loops: the block of gradient operators, split as the forward one, and how gradients of memories pass.

use std::collections::{HashMap, HashSet};

use super::{Site, outside};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::compile::Compiler;
use crate::executor::compile::loops::split::{Unit, When, split};
use crate::executor::compile::loops::through::{Through, resolve};
use crate::executor::plan::Pin;
use crate::executor::plan::{Access, Home, Loop, MemoryGradientPlan, Move, Ref};
use crate::executor::rewrite::classes::Class;
use crate::executor::rewrite::needs::{gradient_reads, needed_values, wanted_slots};
use crate::kernels::Store;
use crate::program::{OpDesc, RECURRENT, Reach, StepDesc, StepGradient, VarId, grad_name};

impl Compiler<'_> {
    pub(crate) fn backward_loop(
        &mut self,
        step: &StepDesc,
        gradient: &StepGradient,
        site: Site,
        instr: &mut Loop,
    ) -> Result<()> {
        let program = self.program;
        let block = step.block;
        if self.classes[block.0 as usize].is_none() {
            let got = "none before it";
            return Err(Error::of(
                ErrorKind::Program,
                "gradient of a recurrent",
                "its forward run first",
                got,
            ));
        }
        let ops = &program.block(gradient.block).ops;
        let passed: Vec<VarId> = gradient.memories.iter().filter_map(|m| m.previous).collect();
        let carried: Vec<VarId> =
            gradient.memories.iter().filter(|m| m.previous.is_some()).map(|m| m.next).collect();
        for m in gradient.memories.iter() {
            if let Some(previous) = m.previous {
                let access = Access::Passed { block, memory: m.memory as usize };
                self.access[previous.0 as usize] = Some(access);
            }
        }
        let through = self.passed_through(step, gradient)?;
        let viewed = self.view_gradients(step, gradient, &through)?;
        let passing: HashSet<VarId> = passed.iter().copied().collect();
        let mut units = Vec::new();
        for (number, op) in ops.iter().enumerate().filter(|(number, _)| !viewed.contains(number)) {
            self.gradient_units(step, number, op, (&passing, &through), &mut units)?;
        }
        let when = split(&mut units, &carried, &passed);

        // Where the gradients live.
        let over = self.overwrite(step, gradient, &through, &units)?;
        let mut kept: HashSet<VarId> = gradient.memories.iter().map(|m| m.next).collect();
        kept.extend(gradient.inputs.iter().chain(&gradient.outputs).map(|p| p.inner));
        let mut vars: Vec<VarId> = kept.iter().copied().collect();
        vars.extend(gradient.statics.iter().map(|p| p.inner));
        vars.extend(units.iter().flat_map(|u| &u.writes));
        vars.sort();
        vars.dedup();
        // The last first, so that the first stays where two are of one variable.
        let mut incoming: HashMap<VarId, VarId> = HashMap::new();
        incoming.extend(gradient.outputs.iter().rev().map(|p| (p.inner, p.outer)));
        let outside = outside(&units, &when);
        for var in vars {
            if program.var(var).block != gradient.block || passing.contains(&var) || over.contains(&var) {
                continue;
            }
            if let Some(&outer) = incoming.get(&var)
                && self.take_ranked(outer, var, step)?
            {
                self.written.insert(var);
                continue;
            }
            let home = match self.class(step, var) {
                Class::Constant => Home::Whole,
                Class::Sequence => Home::Sequence(block),
                Class::Step if !kept.contains(&var) && !outside.contains(&var) => Home::Sequence(block),
                Class::Step => Home::Stepped(block),
            };
            self.place(var, home)?;
            if self.class(step, var) == Class::Sequence {
                instr.zero.push(self.reference(var)?);
                self.written.insert(var);
            }
        }
        for &var in through.keys() {
            let of = resolve(&through, var);
            self.same.push((var, of));
            match self.views.get(&of) {
                Some(&view) => self.view(var, view),
                None => self.access[var.0 as usize] = self.access[of.0 as usize],
            }
        }
        for pair in gradient.outputs.iter() {
            if self.written.contains(&pair.inner) {
                continue;
            }
            let (outer, inner) = (self.reference(pair.outer)?, self.reference(pair.inner)?);
            instr.gather.push(Move { outer, inner, store: Store::Write });
            self.written.insert(pair.inner);
        }
        let read: HashSet<VarId> = match step.statics.is_empty() {
            true => HashSet::new(),
            false => ops.iter().flat_map(OpDesc::reads).collect(),
        };
        for pair in &step.statics {
            if self.saved.contains(&pair.inner) || read.contains(&pair.inner) {
                let (outer, inner) = (self.reference(pair.outer)?, self.reference(pair.inner)?);
                instr.statics.push(Move { outer, inner, store: Store::Write });
            }
        }
        self.memories_again(step, &units, &when)?;

        // A memory that passes nothing on has its gradient whole before the loop: what reads it may run there.
        self.memory_gradients(step, gradient, false, instr)?;
        self.gradient_calls(step, gradient, site, (&units, &when), When::Before, instr)?;
        self.memory_gradients(step, gradient, true, instr)?;
        instr.gradients.sort_by_key(|plan| plan.memory);
        self.gradient_calls(step, gradient, site, (&units, &when), When::Body, instr)?;
        self.gradient_calls(step, gradient, site, (&units, &when), When::After, instr)?;

        instr.memories = self.memories[block.0 as usize].clone();
        instr.spread = (0..instr.memories.len()).filter(|&m| instr.memories[m].all.is_some()).collect();
        for (plan, m) in instr.gradients.iter_mut().zip(&gradient.memories) {
            if let Some(initial) = m.initial {
                plan.initial = Some((self.reference(initial)?, self.store(initial, site)?));
            }
        }
        for pair in &gradient.inputs {
            let inner = self.reference(pair.inner)?;
            if self.leave_ranked(pair.outer, &inner, step, site)? {
                continue;
            }
            let outer = self.reference(pair.outer)?;
            instr.scatter.push(Move { outer, inner, store: self.store(pair.outer, site)? });
        }
        for pair in &gradient.statics {
            let (outer, inner) = (self.reference(pair.outer)?, self.reference(pair.inner)?);
            instr.scatter_statics.push(Move { outer, inner, store: self.store(pair.outer, site)? });
        }
        instr.zero.extend(self.zero_first(gradient.block));
        Ok(())
    }

    /// The plans of the memories that pass a gradient to the step before, or of those that do not.
    fn memory_gradients(
        &mut self,
        step: &StepDesc,
        gradient: &StepGradient,
        passing: bool,
        instr: &mut Loop,
    ) -> Result<()> {
        let (program, block) = (self.program, step.block);
        for m in gradient.memories.iter().filter(|m| m.previous.is_some() == passing) {
            let spec = program.spec(step.memories[m.memory as usize].previous)?;
            let start = self.add_slot(m.next, spec, Home::Sequence(block));
            let filled = self.written.contains(&m.next);
            let passes = m.previous.map(|_| if filled { Store::Add } else { Store::Write });
            self.written.insert(m.next);
            if let (Some(previous), Some(Store::Add)) = (m.previous, passes) {
                self.written.insert(previous);
            }
            instr.gradients.push(MemoryGradientPlan {
                memory: m.memory as usize,
                next: self.reference(m.next)?,
                start: Ref { access: Access::Slot(start), rows: spec.rows(), width: spec.width(), column: 0 },
                passes,
                filled,
                last: m.last.map(|v| self.reference(v)).transpose()?,
                initial: None,
            });
        }
        Ok(())
    }

    /// The previous values of memories, for the backward loop: at each step, and where instructions after the loop
    /// read them as one array.
    fn memories_again(&mut self, step: &StepDesc, units: &[Unit], when: &[When]) -> Result<()> {
        let block = step.block;
        let (mut in_loop, mut outside) = (HashSet::new(), HashSet::new());
        for (unit, time) in units.iter().zip(when) {
            let of = if *time == When::Body { &mut in_loop } else { &mut outside };
            of.extend(unit.reads.iter().copied());
        }
        for (i, m) in step.memories.iter().enumerate() {
            let spec = self.program.spec(m.previous)?;
            let apart = outside.contains(&m.previous);
            let all = apart.then(|| self.add_slot(m.next, spec, Home::Stepped(block)));
            let read = apart || in_loop.contains(&m.previous);
            let plan = &mut self.memories[block.0 as usize][i];
            plan.last = None;
            plan.read = read;
            plan.all = all.map(|s| Ref {
                access: Access::Slot(s),
                rows: spec.rows(),
                width: spec.width(),
                column: 0,
            });
            let initial = plan.initial;
            if read {
                self.touch(Access::Previous { block, memory: i });
                if let Some(initial) = initial {
                    self.touch(initial.access);
                }
            }
        }
        Ok(())
    }

    /// The parts of a backward operator: one for each gradient, so that those of weights can wait until after the
    /// loop.
    fn gradient_units(
        &mut self,
        step: &StepDesc,
        number: usize,
        op: &OpDesc,
        (passed, through): (&HashSet<VarId>, &Through),
        units: &mut Vec<Unit>,
    ) -> Result<()> {
        let mixed = |this: &Self, vars: &[VarId]| {
            let classes: Vec<Class> = vars.iter().map(|&v| this.class(step, v)).collect();
            classes.contains(&Class::Sequence) && classes.contains(&Class::Step)
        };
        let passes = |writes: &[VarId]| writes.iter().any(|v| passed.contains(v));
        if op.kind == RECURRENT {
            let reads: Vec<VarId> = op.reads().map(|v| self.whole_of(resolve(through, v))).collect();
            let writes: Vec<VarId> = op.writes().collect();
            let around: Vec<VarId> = reads.iter().chain(&writes).copied().collect();
            let foreign = around.iter().any(|&v| self.class(step, v) == Class::Step)
                && around.iter().any(|&v| self.foreign(v, step));
            let stepwise = op.step.as_ref().is_some_and(|inner| self.stepwise.contains(&inner.block));
            let pinned = [
                (mixed(self, &around), Pin::Mixed),
                (passes(&writes), Pin::Passes),
                (foreign, Pin::Foreign),
                (stepwise, Pin::Stepwise),
            ];
            units.push(Unit::new(number, Vec::new(), reads, writes, first(&pinned)));
            return Ok(());
        }
        let instance = self.parse(op)?;
        let signature = instance.signature();
        let grads = |slot: usize| op.output(&grad_name(signature.inputs[slot].name)).iter().copied();
        let (mut parts, mut rows): (Vec<Vec<usize>>, Option<usize>) = (Vec::new(), None);
        for slot in wanted_slots(&*instance, op) {
            if grads(slot).any(|v| through.contains_key(&v)) {
                continue;
            }
            // Gradients of rows that share work are one part: computed apart they would do it twice.
            let of_rows =
                grads(slot).filter(|&v| v != VarId::NONE).all(|v| self.class(step, v) == Class::Step);
            let shares = instance.facts().reach == Reach::Row && !instance.hints().apart && of_rows;
            match rows.and_then(|part: usize| parts.get_mut(part)).filter(|_| shares) {
                Some(part) => part.push(slot),
                None => {
                    if shares {
                        rows = Some(parts.len());
                    }
                    parts.push(vec![slot]);
                }
            }
        }
        for slots in parts {
            let needs = gradient_reads(&*instance, &slots, &self.program.input_specs(signature, op)?);
            let mut reads = needed_values(&*instance, op, needs);
            for out in signature.outputs {
                let grads = op.input(&grad_name(out.name)).iter().filter(|&&v| v != VarId::NONE);
                reads.extend(grads.map(|&v| resolve(through, v)));
            }
            reads.iter_mut().for_each(|v| *v = self.whole_of(*v));
            let present = slots.iter().flat_map(|&slot| grads(slot)).filter(|&v| v != VarId::NONE);
            let writes: Vec<VarId> = present.map(|v| self.whole_of(v)).collect();
            let around: Vec<VarId> = reads.iter().chain(&writes).copied().collect();
            let foreign = instance.facts().reach == Reach::Sequence
                && around.iter().any(|&v| self.class(step, v) == Class::Step)
                && op.reads().any(|v| self.foreign(v, step));
            let pinned =
                [(mixed(self, &around), Pin::Mixed), (passes(&writes), Pin::Passes), (foreign, Pin::Foreign)];
            units.push(Unit::new(number, slots, reads, writes, first(&pinned)));
        }
        Ok(())
    }

    /// Calls of one time; the parts of one operator that run at the same time are one call.
    fn gradient_calls(
        &mut self,
        step: &StepDesc,
        gradient: &StepGradient,
        site: Site,
        (units, when): (&[Unit], &[When]),
        time: When,
        instr: &mut Loop,
    ) -> Result<()> {
        let ops = &self.program.block(gradient.block).ops;
        let mut of_op: Vec<Vec<&Unit>> = vec![Vec::new(); ops.len()];
        for (unit, _) in units.iter().zip(when).filter(|(_, w)| **w == time) {
            of_op[unit.op].push(unit);
        }
        for (number, (op, parts)) in ops.iter().zip(of_op).enumerate() {
            if parts.is_empty() {
                continue;
            }
            let slots: Vec<usize> = parts.iter().flat_map(|u| &u.wrt).copied().collect();
            let around = parts.iter().flat_map(|u| u.reads.iter().chain(&u.writes));
            let classes: Vec<Class> = around.map(|&v| self.class(step, v)).collect();
            let class = if classes.contains(&Class::Step) || !classes.contains(&Class::Sequence) {
                Class::Step
            } else {
                Class::Sequence
            };
            let why = parts[0].why;
            let site = self.site(site, (gradient.block, number), time, class).because(why);
            let mut out = Vec::new();
            self.instruction(op, site, (!slots.is_empty()).then_some(&slots), &mut out)?;
            instr.at(time).extend(out);
        }
        Ok(())
    }
}

/// The first reason that holds.
fn first(reasons: &[(bool, Pin)]) -> Option<Pin> {
    reasons.iter().find(|(holds, _)| *holds).map(|(_, pin)| *pin)
}
