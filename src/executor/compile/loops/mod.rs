//! Step loops: which operators leave the loop, where each value lives, how memories and their gradients pass.

use std::collections::HashSet;

use crate::error::{Error, ErrorKind, Place as Where, Result};
use crate::executor::compile::Compiler;
use crate::executor::compile::chains;
use crate::executor::compile::loops::split::{Unit, When, split};
use crate::executor::plan::{Access, Chains, Home, InnerLevel, Instr, Loop, MemoryPlan, Move, Ref, Span};
use crate::executor::plan::{Pin, Why};
use crate::executor::rewrite::classes::{Class, Classes};
use crate::kernels::Store;
use crate::program::contract::context::Place;
use crate::program::{BlockId, Extent, OpDesc, RECURRENT, Role, StepDesc, VarId};

mod backward;
mod in_place;
mod pin;
pub(crate) mod split;
mod through;
mod views;

/// Where a call is compiled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    /// The block that holds the operator.
    pub(crate) block: BlockId,
    /// Its number there.
    pub(crate) number: usize,
    pub(crate) span: Span,
    /// It runs many times for one top-level instruction, so it adds to gradients of constants.
    pub(crate) repeated: bool,
    /// Why it is in that part of a step block.
    pub(crate) why: Option<Why>,
}

impl Site {
    pub(crate) fn because(self, why: Why) -> Self {
        Site { why: Some(why), ..self }
    }
}

impl Compiler<'_> {
    /// Compiles a `recurrent`, forward or backward.
    pub(crate) fn step_loop(&mut self, op: &OpDesc, site: Site, place: Where) -> Result<Loop> {
        let Some(step) = op.step.as_deref() else {
            return Err(Error::of(ErrorKind::Program, RECURRENT, "a step block", "none"));
        };
        let mut instr = Loop {
            desc: step.clone(),
            place,
            why: site.why,
            index: 0,
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
            chains: Chains::default(),
            spread: Vec::new(),
            scatter: Vec::new(),
            scatter_statics: Vec::new(),
            flush: Vec::new(),
            slots: Vec::new(),
            splits: false,
            weights: 0,
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
        (instr.before, instr.chains.before) = chains::outside(std::mem::take(&mut instr.before), &self.slots);
        (instr.after, instr.chains.after) = chains::outside(std::mem::take(&mut instr.after), &self.slots);
        instr.chains.body = chains::inside(&instr.body, &self.slots);
        instr.levels = self.made[step.block.0 as usize].clone();
        let now = self.now();
        let lives = |s: &usize| self.slots[*s].life.0 <= now && self.slots[*s].life.1 >= now;
        instr.slots = self.of_block[step.block.0 as usize].iter().copied().filter(lives).collect();
        instr.random = [&instr.before, &instr.body, &instr.after].into_iter().flatten().any(is_random);
        instr.weights = instr.body.iter().map(|i| self.weights(i)).fold(0, usize::saturating_add);
        instr.splits = instr.body.iter().all(|i| self.splits(i, step));
        Ok(instr)
    }

    /// The levels of step inputs and static inputs, those above first.
    pub(crate) fn inner_levels(&self, step: &StepDesc) -> Result<Vec<InnerLevel>> {
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
                format!("level {}", step.level.0),
            )),
        }
    }

    /// Bytes of the constants that a call prepares.
    fn weights(&self, instr: &Instr) -> usize {
        let Instr::Op(op) = instr else { return 0 };
        let reads = op.constants.iter().filter(|_| op.prepared.is_some()).cloned().flatten();
        let size = |r: &Ref| match r.access {
            Access::Slot(slot) => self.slots[slot].dtype.size_of(),
            _ => 0,
        };
        // Saturating: a program that was read from a file may say anything.
        let bytes = |r: &Ref| r.rows.known().unwrap_or(0).saturating_mul(r.width).saturating_mul(size(r));
        reads.map(|read| bytes(&op.reads[read])).fold(0, usize::saturating_add)
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
            let (class, mixed) = classes.of(program, &reads);
            if class == Class::Step && self.view_outputs(step, op, &kept)? {
                op.writes().for_each(|v| classes.set(v, class));
                continue;
            }
            // A loop inside a loop runs many times: what it computes once a sequence would be lost for the backward
            // pass, so it is computed at every step. So is what leaves the step, which has a row for each entry, and
            // what is random, which differs from step to step.
            let leaves = op.writes().any(|v| kept.contains(&v));
            let again = match class == Class::Sequence {
                true if site.repeated => Some(Pin::Repeated),
                true if leaves => Some(Pin::Leaves),
                true if self.draws(op)? => Some(Pin::Random),
                _ => None,
            };
            if let Some(decides) = self.makes_in_step(op, step, class)? {
                units.push(Unit::of_levels(number, decides));
            }
            let stays = self.stays(op, step, class)?;
            let pinned = mixed.then_some(Pin::Mixed).or(again).or(stays);
            let class = if pinned.is_some() && class != Class::Constant { Class::Step } else { class };
            op.writes().for_each(|v| classes.set(v, class));
            units.push(Unit::new(number, Vec::new(), reads, op.writes().collect(), pinned));
        }
        let carried: Vec<VarId> = step.memories.iter().map(|m| m.previous).collect();
        let mut when = split(&mut units, &carried, &nexts);
        // A loop inside the loop runs for all steps at once or for each by itself, forward and backward alike: else
        // the backward pass would not find its values. The gradient of a memory that it reads needs each by itself.
        for (unit, time) in units.iter_mut().zip(&when) {
            if ops[unit.op].step.is_some() && *time == When::After {
                unit.pinned = unit.pinned.or(Some(Pin::Stepwise));
            }
        }
        when = split(&mut units, &carried, &nexts);
        let place = |number: usize| self.place_of(&ops[number], (block, number));
        self.decide_early(step, &mut units, &mut when, &place)?;
        self.add_in_place(step, &classes, &kept, &mut units, &mut when)?;
        for (unit, time) in units.iter().zip(&when) {
            if let Some(inner) = &ops[unit.op].step
                && (*time == When::Body || unit.steps)
            {
                self.stepwise.insert(inner.block);
            }
        }
        let outside = outside(&units, &when);
        let mut placed = HashSet::new();
        for unit in &units {
            for &var in unit.writes.iter().filter(|&&v| placed.insert(v)) {
                let temporary = !kept.contains(&var) && !self.saved.contains(&var) && !outside.contains(&var);
                let home = match classes.get(program, var) {
                    Class::Constant => Home::Whole,
                    Class::Sequence => Home::Sequence(block),
                    Class::Step if temporary => Home::Sequence(block),
                    Class::Step => Home::Stepped(block),
                };
                self.place(var, home)?;
            }
        }
        let after = units.iter().zip(&when).filter(|(_, w)| **w == When::After);
        let after: HashSet<VarId> = after.flat_map(|(u, _)| u.reads.iter().copied()).collect();
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
            self.nexts.insert(plan.next.access);
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
            for (unit, _) in units.iter().zip(&when).filter(|(_, w)| **w == time) {
                let (number, op) = (unit.op, &ops[unit.op]);
                let class = op.writes().next().map_or(Class::Step, |v| self.class(step, v));
                let site = self.site(site, (block, number), time, class).because(unit.why);
                let mut out = Vec::new();
                if unit.levels {
                    let place = self.place_of(op, (block, number));
                    let site = Site { span: Span::Steps, ..site };
                    let call = self.levels_call(op, site, place.clone()).map_err(|e| e.at(place))?;
                    out.extend(call.map(|call| Instr::Levels(Box::new(call))));
                } else {
                    let site =
                        if unit.steps { Site { span: Span::Steps, repeated: true, ..site } } else { site };
                    self.instruction(op, site, None, &mut out)?;
                }
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

    pub(crate) fn class(&self, step: &StepDesc, var: VarId) -> Class {
        let of = self.program.var(var).gradient_of.unwrap_or(var);
        match &self.classes[step.block.0 as usize] {
            Some(classes) => classes.get(self.program, of),
            None => Class::Step,
        }
    }

    fn site(&self, around: Site, (block, number): (BlockId, usize), time: When, class: Class) -> Site {
        Site {
            block,
            number,
            span: if class == Class::Sequence { Span::Sequences } else { Span::All },
            repeated: around.repeated || time == When::Body,
            why: None,
        }
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

fn is_random(instr: &Instr) -> bool {
    match instr {
        Instr::Op(op) => op.random,
        Instr::Loop(inner) => inner.random,
        Instr::Levels(_) | Instr::Zero(..) | Instr::Reorder { .. } => false,
    }
}

/// The variables that something outside the loop reads or writes.
fn outside(units: &[Unit], when: &[When]) -> HashSet<VarId> {
    let apart = units.iter().zip(when).filter(|(_, w)| **w != When::Body);
    apart.flat_map(|(u, _)| u.reads.iter().chain(&u.writes)).copied().collect()
}
