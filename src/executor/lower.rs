//! Step loops: which operators leave the loop, where each value lives, how memories and their gradients pass.

use std::collections::HashSet;

use super::compile::{Compiler, Site};
use super::needs::{needed_values, wanted_slots};
use super::pin::foreign_levels;
use super::plan::{Access, Home, InnerLevel, Instr, Loop, MemoryGradientPlan, MemoryPlan, Move, Ref, Span};
use super::split::{Class, Classes, Unit, When, split};
use super::through::{Through, resolve};
use crate::error::{Error, ErrorKind, Place as Where, Result};
use crate::kernels::Store;
use crate::program::context::Place;
use crate::program::{
    Extent, Needs, OpDesc, Program, RECURRENT, Reach, Role, StepDesc, StepGradient, VarId, grad_name,
};

impl Compiler<'_> {
    /// Compiles a `recurrent`, forward or backward.
    pub(super) fn step_loop(&mut self, op: &OpDesc, site: Site, place: Where) -> Result<Loop> {
        let Some(step) = op.step.as_deref() else {
            return Err(Error::of(ErrorKind::Program, RECURRENT, "a step block", "none"));
        };
        let mut instr = Loop {
            desc: step.clone(),
            place,
            backward: op.role == Role::Backward,
            span: site.span,
            gather: Vec::new(),
            statics: Vec::new(),
            memories: Vec::new(),
            gradients: Vec::new(),
            zero: Vec::new(),
            before: Vec::new(),
            body: Vec::new(),
            after: Vec::new(),
            spread: Vec::new(),
            scatter: Vec::new(),
            scatter_statics: Vec::new(),
            flush: Vec::new(),
            slots: Vec::new(),
            splits: false,
            levels: Vec::new(),
            inner: self.inner_levels(step)?,
            parent: self.program.block(step.block).parent.unwrap_or_default(),
            sequences: self.sequences(step)?,
            random: false,
        };
        match step.gradient.as_deref() {
            None => self.forward_loop(step, site, &mut instr)?,
            Some(gradient) => self.backward_loop(step, gradient, site, &mut instr)?,
        }
        for var in op.writes() {
            if self.passes_on(var, site) {
                instr.flush.push(self.reference(var)?);
            }
        }
        instr.levels = self.made[step.block.0 as usize].clone();
        let here = |home: Home| matches!(home, Home::Stepped(b) | Home::Sequence(b) if b == step.block);
        let now = self.now();
        instr.slots = (0..self.slots.len())
            .filter(|&s| {
                here(self.slots[s].home) && self.slots[s].life.0 <= now && self.slots[s].life.1 >= now
            })
            .collect();
        instr.random = [&instr.before, &instr.body, &instr.after].into_iter().flatten().any(is_random);
        instr.splits = instr.levels.is_empty() && instr.body.iter().all(|i| self.splits(i, step));
        Ok(instr)
    }

    /// The levels of step inputs and static inputs, those above first.
    fn inner_levels(&self, step: &StepDesc) -> Result<Vec<InnerLevel>> {
        let mut levels: Vec<InnerLevel> = Vec::new();
        let pairs = step.inputs.iter().map(|p| (p, false)).chain(step.statics.iter().map(|p| (p, true)));
        for (pair, statics) in pairs {
            let (outer, inner) = (self.program.spec(pair.outer)?, self.program.spec(pair.inner)?);
            let skipped = outer.lod.len().checked_sub(inner.lod.len()).ok_or_else(|| {
                Error::of(ErrorKind::Program, "levels in a step", "no more than outside", inner.to_string())
            })?;
            let mut above = None;
            for (&outer, &inner) in outer.lod[skipped..].iter().zip(&inner.lod) {
                let known = levels.iter().position(|l| l.inner == inner);
                above = Some(known.unwrap_or_else(|| {
                    levels.push(InnerLevel { outer, inner, above, statics });
                    levels.len() - 1
                }));
            }
        }
        Ok(levels)
    }

    /// What counts the sequences that a step block runs over.
    fn sequences(&self, step: &StepDesc) -> Result<Extent> {
        let first =
            step.inputs.first().ok_or_else(|| Error::of(ErrorKind::Program, "step inputs", "one", "none"))?;
        let lod = &self.program.spec(first.outer)?.lod;
        let at = lod.iter().position(|&l| l == step.level);
        let parent = self.program.block(step.block).parent.unwrap_or_default();
        match at {
            Some(0) => Ok(self.program.top(parent)),
            Some(at) => Ok(Extent::Rows(lod[at - 1])),
            None => Err(Error::of(
                ErrorKind::Program,
                "step level",
                "one of the step input's",
                format!("{:?}", step.level),
            )),
        }
    }

    /// Whether lanes can run an instruction of the body, each for its own sequences.
    fn splits(&self, instr: &Instr, step: &StepDesc) -> bool {
        let Instr::Op(op) = instr else { return false };
        let row = |r: &Ref| r.rows == Extent::Alive(step.block);
        let pools = |p: &Place| matches!(p, Place::Rows(_));
        op.reads.iter().all(|r| row(r) || r.rows.known().is_some())
            && op.writes.iter().all(row)
            && !op.wiring.input_gradients.iter().flatten().any(|(p, _)| pools(p))
            && !op.wiring.inputs.iter().chain(&op.wiring.outputs).flatten().any(pools)
    }

    fn forward_loop(&mut self, step: &StepDesc, site: Site, instr: &mut Loop) -> Result<()> {
        let program = self.program;
        let block = step.block;
        let ops = &program.block(block).ops;
        let mut classes = Classes::new(step.statics.iter().map(|p| p.inner));
        let mut gathered = Vec::new();
        for pair in &step.inputs {
            if !self.take_ranked(pair.outer, pair.inner, step)? {
                self.place(pair.inner, Home::Stepped(block))?;
                gathered.push(*pair);
            }
        }
        for pair in &step.statics {
            self.place(pair.inner, Home::Sequence(block))?;
        }
        for (memory, m) in step.memories.iter().enumerate() {
            self.access[m.previous.0 as usize] = Some(Access::Previous { block, memory });
        }

        let nexts: Vec<VarId> = step.memories.iter().map(|m| m.next).collect();
        let kept: HashSet<VarId> =
            nexts.iter().copied().chain(step.outputs.iter().map(|p| p.inner)).collect();
        let mut units = Vec::new();
        for (number, op) in ops.iter().enumerate() {
            let reads: Vec<VarId> = op.reads().map(|v| self.whole_of(v)).collect();
            let (class, mixed) = class_of(program, &classes, &reads);
            if class == Class::Step && self.view_outputs(step, op, &kept)? {
                op.writes().for_each(|v| classes.set(v, class));
                continue;
            }
            // A loop inside a loop runs many times: what it computes once a sequence would be lost for the backward
            // pass, so it is computed at every step. So is what leaves the step, which has a row for each entry, and
            // what is random, which differs from step to step.
            let leaves = op.writes().any(|v| kept.contains(&v));
            let again = class == Class::Sequence && (site.repeated || leaves || self.draws(op)?);
            let pinned = mixed || again || self.stays(program, op, step, class)?;
            let class = if pinned && class != Class::Constant { Class::Step } else { class };
            op.writes().for_each(|v| classes.set(v, class));
            units.push(Unit { op: number, wrt: None, reads, writes: op.writes().collect(), pinned });
        }
        let carried: Vec<VarId> = step.memories.iter().map(|m| m.previous).collect();
        let mut when = split(&units, &carried, &nexts);
        // A loop inside the loop runs for all steps at once or for each by itself, forward and backward alike: else
        // the backward pass would not find its values. The gradient of a memory that it reads needs each by itself.
        for (unit, time) in units.iter_mut().zip(&when) {
            unit.pinned |= ops[unit.op].step.is_some() && *time == When::After;
        }
        when = split(&units, &carried, &nexts);
        for (unit, time) in units.iter().zip(&when) {
            if let (Some(inner), When::Body) = (&ops[unit.op].step, time) {
                self.stepwise.insert(inner.block);
            }
        }
        for (unit, &time) in units.iter().zip(&when) {
            for &var in &unit.writes {
                let in_loop = time == When::Body && !kept.contains(&var) && !self.saved.contains(&var);
                let temporary = in_loop && readers(&units, &when, var).all(|w| w == When::Body);
                let home = match classes.get(program, var) {
                    Class::Constant => Home::Whole,
                    Class::Sequence => Home::Sequence(block),
                    Class::Step if temporary => Home::Sequence(block),
                    Class::Step => Home::Stepped(block),
                };
                self.place(var, home)?;
            }
        }
        let after: Vec<VarId> = units
            .iter()
            .zip(&when)
            .filter(|(_, w)| **w == When::After)
            .flat_map(|(u, _)| u.reads.clone())
            .collect();
        for m in &step.memories {
            let spec = program.spec(m.previous)?;
            let start = self.add_slot(m.next, spec, Home::Sequence(block));
            let all = after.contains(&m.previous).then(|| self.add_slot(m.next, spec, Home::Stepped(block)));
            let within = |slot: usize| Ref {
                access: Access::Slot(slot),
                rows: spec.rows(),
                width: spec.width(),
                column: 0,
            };
            let plan = MemoryPlan {
                next: self.reference(m.next)?,
                start: within(start),
                read: true,
                initial: m.initial.map(|v| self.reference(v)).transpose()?,
                last: m.last.map(|v| self.reference(v)).transpose()?,
                all: all.map(within),
            };
            self.memories[block.0 as usize].push(plan);
        }
        for pair in &gathered {
            let store = Store::Write;
            instr.gather.push(Move {
                outer: self.reference(pair.outer)?,
                inner: self.reference(pair.inner)?,
                store,
            });
        }
        for pair in &step.statics {
            let store = Store::Write;
            instr.statics.push(Move {
                outer: self.reference(pair.outer)?,
                inner: self.reference(pair.inner)?,
                store,
            });
        }
        self.classes[block.0 as usize] = Some(classes);
        for time in [When::Before, When::Body, When::After] {
            let numbers: Vec<usize> =
                units.iter().zip(&when).filter(|(_, w)| **w == time).map(|(u, _)| u.op).collect();
            for number in numbers {
                let op = &ops[number];
                let class = op.writes().next().map_or(Class::Step, |v| self.class(step, v));
                let site = self.site(site, block, number, time, class);
                let mut out = Vec::new();
                self.instruction(op, site, None, &mut out)?;
                instr.at(time).extend(out);
            }
        }
        instr.memories = self.memories[block.0 as usize].clone();
        instr.spread = (0..instr.memories.len()).filter(|&m| instr.memories[m].all.is_some()).collect();
        for pair in &step.outputs {
            let store = Store::Write;
            instr.scatter.push(Move {
                outer: self.reference(pair.outer)?,
                inner: self.reference(pair.inner)?,
                store,
            });
        }
        Ok(())
    }

    pub(super) fn class(&self, step: &StepDesc, var: VarId) -> Class {
        let of = self.program.var(var).gradient_of.unwrap_or(var);
        match &self.classes[step.block.0 as usize] {
            Some(classes) => classes.get(self.program, of),
            None => Class::Step,
        }
    }

    fn site(
        &self,
        around: Site,
        block: crate::program::BlockId,
        number: usize,
        time: When,
        class: Class,
    ) -> Site {
        Site {
            block,
            number,
            span: if class == Class::Sequence { Span::Sequences } else { Span::All },
            repeated: around.repeated || time == When::Body,
        }
    }

    fn backward_loop(
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
        let mut units = Vec::new();
        for (number, op) in ops.iter().enumerate().filter(|(number, _)| !viewed.contains(number)) {
            self.gradient_units(step, number, op, (&passed, &through), &mut units)?;
        }
        let when = split(&units, &carried, &passed);

        // Where the gradients live.
        let mut kept: HashSet<VarId> = gradient.memories.iter().map(|m| m.next).collect();
        kept.extend(gradient.inputs.iter().chain(&gradient.outputs).map(|p| p.inner));
        let mut vars: Vec<VarId> = kept.iter().copied().collect();
        vars.extend(gradient.statics.iter().map(|p| p.inner));
        vars.extend(units.iter().flat_map(|u| &u.writes));
        vars.sort();
        vars.dedup();
        for var in vars {
            if program.var(var).block != gradient.block || passed.contains(&var) {
                continue;
            }
            let incoming = gradient.outputs.iter().find(|p| p.inner == var);
            if let Some(pair) = incoming
                && self.take_ranked(pair.outer, var, step)?
            {
                self.written.insert(var);
                continue;
            }
            let writers = units.iter().zip(&when).filter(|(u, _)| u.writes.contains(&var)).map(|(_, w)| *w);
            let mut around = writers.chain(readers(&units, &when, var));
            let home = match self.class(step, var) {
                Class::Constant => Home::Whole,
                Class::Sequence => Home::Sequence(block),
                Class::Step if !kept.contains(&var) && around.all(|w| w == When::Body) => {
                    Home::Sequence(block)
                }
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
            match self.views.get(&of) {
                Some(&view) => drop(self.views.insert(var, view)),
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
        for pair in &step.statics {
            if self.saved.contains(&pair.inner) || ops.iter().any(|op| op.reads().any(|v| v == pair.inner)) {
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
        for (i, m) in step.memories.iter().enumerate() {
            let at = |times: &[When]| {
                units.iter().zip(when).any(|(u, w)| times.contains(w) && u.reads.contains(&m.previous))
            };
            let spec = self.program.spec(m.previous)?;
            let all =
                at(&[When::Before, When::After]).then(|| self.add_slot(m.next, spec, Home::Stepped(block)));
            let read = at(&[When::Before, When::Body, When::After]);
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
        (passed, through): (&[VarId], &Through),
        units: &mut Vec<Unit>,
    ) -> Result<()> {
        let program = self.program;
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
                && around
                    .iter()
                    .any(|&v| program.var(v).spec().is_some_and(|spec| foreign_levels(spec, step)));
            let stepwise = op.step.as_ref().is_some_and(|inner| self.stepwise.contains(&inner.block));
            let pinned = mixed(self, &around) || passes(&writes) || foreign || stepwise;
            units.push(Unit { op: number, wrt: None, reads, writes, pinned });
            return Ok(());
        }
        let instance = self.parse(op)?;
        let signature = instance.signature();
        for slot in wanted_slots(&*instance, op) {
            let mut reads = needed_values(&*instance, op, Needs::nothing().union(instance.needs(slot)));
            for out in signature.outputs {
                let grads = op.input(&grad_name(out.name)).iter().filter(|&&v| v != VarId::NONE);
                reads.extend(grads.map(|&v| resolve(through, v)));
            }
            reads.iter_mut().for_each(|v| *v = self.whole_of(*v));
            let grads = op.output(&grad_name(signature.inputs[slot].name));
            if grads.iter().any(|v| through.contains_key(v)) {
                continue;
            }
            let present = grads.iter().copied().filter(|&v| v != VarId::NONE);
            let writes: Vec<VarId> = present.map(|v| self.whole_of(v)).collect();
            let around: Vec<VarId> = reads.iter().chain(&writes).copied().collect();
            let foreign = instance.facts().reach == Reach::Sequence
                && around.iter().any(|&v| self.class(step, v) == Class::Step)
                && op.reads().any(|v| program.var(v).spec().is_some_and(|spec| foreign_levels(spec, step)));
            let pinned = mixed(self, &around) || passes(&writes) || foreign;
            units.push(Unit { op: number, wrt: Some(slot), reads, writes, pinned });
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
        for (number, op) in ops.iter().enumerate() {
            let parts: Vec<&Unit> = units
                .iter()
                .zip(when)
                .filter(|(u, w)| u.op == number && **w == time)
                .map(|(u, _)| u)
                .collect();
            if parts.is_empty() {
                continue;
            }
            let slots: Vec<usize> = parts.iter().filter_map(|u| u.wrt).collect();
            let around = parts.iter().flat_map(|u| u.reads.iter().chain(&u.writes));
            let classes: Vec<Class> = around.map(|&v| self.class(step, v)).collect();
            let class = if classes.contains(&Class::Step) || !classes.contains(&Class::Sequence) {
                Class::Step
            } else {
                Class::Sequence
            };
            let site = self.site(site, gradient.block, number, time, class);
            let mut out = Vec::new();
            self.instruction(op, site, (!slots.is_empty()).then_some(&slots), &mut out)?;
            instr.at(time).extend(out);
        }
        Ok(())
    }
}

impl Loop {
    fn at(&mut self, time: When) -> &mut Vec<Instr> {
        match time {
            When::Before => &mut self.before,
            When::Body => &mut self.body,
            When::After => &mut self.after,
        }
    }
}

/// The class of what is computed from `reads`, and whether they mix rows of sequences with rows of steps.
fn class_of(program: &Program, classes: &Classes, reads: &[VarId]) -> (Class, bool) {
    let of: Vec<Class> = reads.iter().map(|&v| classes.get(program, v)).collect();
    match (of.contains(&Class::Sequence), of.contains(&Class::Step)) {
        (true, true) => (Class::Step, true),
        (false, true) => (Class::Step, false),
        (true, false) => (Class::Sequence, false),
        (false, false) => (Class::Constant, false),
    }
}

fn is_random(instr: &Instr) -> bool {
    match instr {
        Instr::Op(op) => op.random,
        Instr::Loop(inner) => inner.random,
        Instr::Zero(_) | Instr::Reorder { .. } => false,
    }
}

fn readers<'a>(units: &'a [Unit], when: &'a [When], var: VarId) -> impl Iterator<Item = When> + 'a {
    units.iter().zip(when).filter(move |(u, _)| u.reads.contains(&var)).map(|(_, w)| *w)
}
