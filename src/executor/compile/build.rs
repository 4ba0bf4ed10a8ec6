//! Builds the instructions of a plan: a call has views of slots, and a loop has moves of rows into and out of its
//! block. This module only reads the results of the compiler's analyses.

use super::blocks::Blocks;
use super::chains;
use super::effort::effort;
use super::layouts::{Layouts, RankedLayout};
use super::loops::block::MemoryReads;
use super::schedule::{Item, LoopItem, Schedule, ScheduledCall};
use super::slots::{Copy, Slots, read_again};
use super::source::{ParsedOp, Source};
use super::writers::{HandedGradient, Writers};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::plan::{
    Access, Chains, Effort, InnerLevel, Instr, Loop, MemoryGradientPlan, MemoryPlan, Move, OpId, OpInstr, Ref,
};
use crate::executor::rewrite::classes::Class;
use crate::kernels::Assign;
use crate::operator::context::{OperandPosition, Wiring};
use crate::operator::{BlockId, Extent, LevelId, Pass, Reach, VarId};
use crate::program::{Program, Role, StepDesc, StepGradient, VarPair};
use crate::tensor::DType;

/// The results of all compiler analyses of one program, as the input of this module.
pub(crate) struct Analysis<'a> {
    pub(crate) source: &'a Source<'a>,
    pub(crate) blocks: &'a Blocks,
    pub(crate) layouts: &'a Layouts,
    pub(crate) writers: &'a Writers,
    pub(crate) slots: &'a Slots,
}

/// Returns the instructions of each operator of the root block; the last element has the instructions for fetched variables.
pub(crate) fn build(found: &Analysis<'_>, schedule: &Schedule) -> Result<Vec<Vec<Instr>>> {
    let mut code = Vec::new();
    for (at, items) in schedule.iter().enumerate() {
        let now = at + 1;
        let id = OpId { block: BlockId(0), number: found.source.live[at] };
        let mut instrs = Vec::new();
        for &var in found.writers.zeroed_before(id) {
            instrs.push(Instr::Zero(found.reference(var)?, 0));
        }
        found.copies(now, &mut instrs)?;
        for item in items {
            instrs.push(found.item(item, now)?);
        }
        code.push(instrs);
    }
    let mut copies = Vec::new();
    found.copies(schedule.len() + 1, &mut copies)?;
    code.push(copies);
    Ok(code)
}

impl Analysis<'_> {
    fn reference(&self, var: VarId) -> Result<Ref> {
        self.slots.reference(self.source, var)
    }

    /// Adds the copies that operator `now` of the root block needs. A copy moves rows from step-major order into the
    /// batch's order.
    fn copies(&self, now: usize, out: &mut Vec<Instr>) -> Result<()> {
        for &Copy { var, from, ranked, .. } in self.slots.copies.iter().filter(|copy| copy.before == now) {
            let to = self.reference(var)?;
            out.push(Instr::Reorder {
                from: Ref { access: Access::Slot(from), ..to },
                to,
                block: ranked.block,
                rows: ranked.rows,
                role: if self.source.is_gradient(var) { Role::Backward } else { Role::Forward },
                index: 0,
            });
        }
        Ok(())
    }

    fn item(&self, item: &Item, now: usize) -> Result<Instr> {
        match item {
            Item::Call(call) => {
                let instr = self.call(call, now).map_err(|e| e.at(self.source.place(call.id)))?;
                Ok(Instr::Op(Box::new(instr)))
            }
            Item::Levels(call) => {
                let instr = self.levels_call(call).map_err(|e| e.at(self.source.place(call.id)))?;
                Ok(Instr::Levels(Box::new(instr)))
            }
            Item::Loop(inner) => {
                let instr = self.step_loop(inner, now).map_err(|e| e.at(self.source.place(inner.id)))?;
                Ok(Instr::Loop(Box::new(instr)))
            }
        }
    }

    /// Builds the instruction of a call, without the views of its operands.
    fn call_of(&self, call: &ScheduledCall, parsed: &ParsedOp) -> OpInstr {
        let desc = self.source.desc(call.id);
        let inputs = Program::slots_of(parsed.signature.inputs, &desc.inputs, "");
        OpInstr {
            op: parsed.op.clone(),
            place: self.source.place(call.id),
            named: self.source.named(call.id),
            names: self.names(call.id, parsed),
            pass: call.pass,
            role: desc.role,
            reach: parsed.facts.reach,
            wiring: Wiring::default(),
            reads: Vec::new(),
            writes: Vec::new(),
            inputs: parsed.inputs.clone(),
            literals: self.source.program.literals(&inputs),
            outputs: parsed.outputs.clone(),
            made: Vec::new(),
            top: self.source.program.top(self.source.forward_block(call.id.block)),
            stream: 0,
            random: false,
            prepared: None,
            constants: Vec::new(),
            divides_columns: parsed.hints.divides_columns,
            wanted: Vec::new(),
            flush: Vec::new(),
            effort: Effort { rows: Extent::Known(0), row: 0, packed: 0 },
            span: call.site.span,
            order: None,
            desc: call.id,
            why: call.site.why,
            stands_for: None,
            index: 0,
        }
    }

    /// Returns, for each input slot with exactly one variable, the name of the variable.
    fn names(&self, id: OpId, parsed: &ParsedOp) -> Vec<(&'static str, String)> {
        let desc = self.source.desc(id);
        let named = |slot: &crate::operator::Slot| match *desc.input(slot.name) {
            [var] if var != VarId::NONE => Some((slot.name, self.source.program.var(var).name.clone())),
            _ => None,
        };
        parsed.signature.inputs.iter().filter_map(named).collect()
    }

    fn parsed(&self, id: OpId) -> Result<&ParsedOp> {
        self.source.parsed(id).ok_or_else(|| {
            Error::of(
                ErrorKind::Program,
                "operator",
                "an operator that runs",
                self.source.desc(id).kind.clone(),
            )
        })
    }

    /// Builds the call that computes the offsets of the levels that an operator makes.
    fn levels_call(&self, call: &ScheduledCall) -> Result<OpInstr> {
        let parsed = self.parsed(call.id)?;
        let mut views = Views { found: self, order: None, refs: Vec::new() };
        let inputs = views.slots(&call.inputs)?;
        Ok(OpInstr {
            reads: views.refs,
            wiring: Wiring { inputs, ..Wiring::default() },
            made: parsed.made.clone(),
            ..self.call_of(call, parsed)
        })
    }

    fn call(&self, call: &ScheduledCall, now: usize) -> Result<OpInstr> {
        let parsed = self.parsed(call.id)?;
        let order = self.layouts.order_of(call);
        let mut wiring = Wiring { in_place: call.in_place.clone(), adds: call.adds, ..Wiring::default() };
        let mut reads = Views { found: self, order, refs: Vec::new() };
        let mut constants = Vec::new();
        for vars in &call.inputs {
            let first = reads.refs.len();
            wiring.inputs.push(reads.places(vars)?);
            let known = |&var: &VarId| var == VarId::NONE || self.slots.known_before(self.source, var, now);
            constants.push(first..if vars.iter().all(known) { reads.refs.len() } else { first });
        }
        let mut writes = Views { found: self, order, refs: Vec::new() };
        if call.pass == Pass::Backward {
            wiring.outputs = reads.slots(&call.outputs)?;
            wiring.output_gradients = reads.slots(&call.output_gradients)?;
            for vars in &call.input_gradients {
                let places = writes.places(vars)?;
                let writers = vars.iter().map(|&var| self.writers.of_call(call, var));
                wiring.input_gradients.push(places.into_iter().zip(writers).collect());
            }
            wiring.results = writes.slots(&call.results)?;
        } else {
            wiring.outputs = writes.slots(&call.outputs)?;
        }
        // Forward and backward call both use the number of the forward operator, so both draw the same random numbers.
        let desc = self.source.desc(call.id);
        let of_forward = if call.pass == Pass::Backward { &desc.inputs } else { &desc.outputs };
        let outputs = Program::slots_of(parsed.signature.outputs, of_forward, "");
        let first = outputs.iter().flatten().next();
        let stream = first.map_or(0, |&var| u64::from(self.source.given(var).0));
        let flushed = self.flushed(call, parsed)?;
        let mut instr = OpInstr {
            wiring,
            reads: reads.refs,
            flush: (0..writes.refs.len()).filter(|&i| flushed.contains(&writes.refs[i])).collect(),
            writes: writes.refs,
            stream,
            random: parsed.facts.random,
            prepared: parsed.hints.prepares.then_some(0),
            constants,
            wanted: (0..parsed.signature.inputs.len()).map(|slot| call.wanted.contains(&slot)).collect(),
            order: order.map(|RankedLayout { block, rows, .. }| (block, rows)),
            stands_for: self.source.note(call.id),
            ..self.call_of(call, parsed)
        };
        instr.effort = effort(&instr, parsed.hints.heavy, self.packed(&instr));
        Ok(instr)
    }

    /// Returns the views of a call's results that the next step of the loop reads. Very small numbers in these results
    /// are set to zero.
    fn flushed(&self, call: &ScheduledCall, parsed: &ParsedOp) -> Result<Vec<Ref>> {
        let mut flushed = Vec::new();
        if call.pass == Pass::Backward {
            let written = call.input_gradients.iter().flatten().filter(|&&var| var != VarId::NONE);
            for &var in written.filter(|_| call.id.block != BlockId(0)) {
                let view = self.reference(var)?;
                if matches!(view.access, Access::Passed { .. }) {
                    flushed.push(view);
                }
            }
            return Ok(flushed);
        }
        let slots = parsed.signature.outputs.iter().zip(&call.outputs).filter(|(slot, _)| !slot.updated);
        for (_, vars) in slots {
            for &var in vars.iter().filter(|&&var| self.source.is_next(var)) {
                flushed.push(self.reference(var)?);
            }
        }
        Ok(flushed)
    }

    fn step_loop(&self, inner: &LoopItem, now: usize) -> Result<Loop> {
        let (step, gradient) = self.source.step(inner.id)?;
        let levels = &self.blocks.forward(step.block)?.levels;
        let code = |items: &[Item]| -> Result<Vec<Instr>> {
            items.iter().map(|item| self.item(item, now)).collect()
        };
        let all = &self.slots.slots;
        let (before, chains_before) = chains::outside(code(&inner.before)?, all);
        let (after, chains_after) = chains::outside(code(&inner.after)?, all);
        let body = code(&inner.body)?;
        let chains = Chains { before: chains_before, body: chains::inside(&body, all), after: chains_after };
        let mut instr = Loop {
            desc: step.clone(),
            place: self.source.place(inner.id),
            why: inner.site.why,
            index: 0,
            backward: gradient.is_some(),
            span: inner.site.span,
            gather: Vec::new(),
            statics: Vec::new(),
            memories: Vec::new(),
            gradients: Vec::new(),
            zero: Vec::new(),
            chains,
            spread: Vec::new(),
            scatter: Vec::new(),
            scatter_statics: Vec::new(),
            flush: Vec::new(),
            slots: Vec::new(),
            in_steps: Vec::new(),
            in_lanes: body.iter().all(|instr| lanes_can_run(instr, step, &levels.inner)),
            weights: body.iter().filter_map(packed).fold(0, usize::saturating_add),
            levels: levels.made.clone(),
            inner: levels.inner.clone(),
            parent: self.source.program.block(step.block).parent.unwrap_or_default(),
            sequences: self.sequences(step)?,
            random: before.iter().chain(&body).chain(&after).any(is_random),
            before,
            body,
            after,
        };
        match gradient {
            None => self.forward_moves(step, &mut instr)?,
            Some(gradient) => self.backward_moves(step, gradient, inner.id, &mut instr)?,
        }
        instr.spread = (0..instr.memories.len()).filter(|&m| instr.memories[m].all.is_some()).collect();
        for var in self.source.desc(inner.id).writes().filter(|_| inner.id.block != BlockId(0)) {
            let passed = |view: &Ref| matches!(view.access, Access::Passed { .. });
            let view = self.reference(var)?;
            if passed(&view) || self.source.is_next(var) {
                instr.flush.push(view);
            }
        }
        Ok(instr)
    }

    fn moves(&self, pair: VarPair, assign: Assign) -> Result<Move> {
        Ok(Move { outer: self.reference(pair.outer)?, inner: self.reference(pair.inner)?, assign })
    }

    fn forward_moves(&self, step: &StepDesc, instr: &mut Loop) -> Result<()> {
        let taken = |pair: &&VarPair| self.layouts.taken.contains_key(&pair.inner);
        for pair in step.inputs.iter().filter(|pair| !taken(pair)) {
            instr.gather.push(self.moves(*pair, Assign::Write)?);
        }
        for pair in &step.statics {
            instr.statics.push(self.moves(*pair, Assign::Write)?);
        }
        for memory in 0..step.memories.len() {
            instr.memories.push(self.memory(step, memory, step.block)?);
        }
        for pair in &step.outputs {
            instr.scatter.push(self.moves(*pair, Assign::Write)?);
        }
        Ok(())
    }

    /// Builds the plan of one memory, for the loop of a step block or of a gradient block.
    fn memory(&self, step: &StepDesc, memory: usize, run: BlockId) -> Result<MemoryPlan> {
        let m = &step.memories[memory];
        let spec = self.source.program.spec(m.previous)?;
        Ok(MemoryPlan {
            next: self.reference(m.next)?,
            start: self.slots.start(step.block, memory, spec)?,
            read: true,
            initial: m.initial.map(|var| self.reference(var)).transpose()?,
            last: m.last.map(|var| self.reference(var)).transpose()?,
            all: self.slots.spread(run, memory, spec),
        })
    }

    fn backward_moves(
        &self,
        step: &StepDesc,
        gradient: &StepGradient,
        id: OpId,
        instr: &mut Loop,
    ) -> Result<()> {
        let forward = self.blocks.forward(step.block)?;
        let found = self.blocks.backward(gradient.block)?;
        for &(var, home) in &found.homes {
            let own = matches!(home, super::loops::block::GradientHome::Own(_));
            let sequences = forward.class(self.source, var) == Class::Sequence;
            if own && sequences && !self.layouts.taken.contains_key(&var) {
                instr.zero.push(self.reference(var)?);
            }
        }
        for pair in self.writers.gathered(id) {
            instr.gather.push(self.moves(*pair, Assign::Write)?);
        }
        for pair in read_again(self.source, forward, step, gradient) {
            instr.statics.push(self.moves(*pair, Assign::Write)?);
        }
        for (memory, reads) in found.memories.iter().enumerate() {
            let plan = self.memory(step, memory, gradient.block)?;
            instr.memories.push(MemoryPlan { read: *reads != MemoryReads::Not, last: None, ..plan });
        }
        for (i, m) in gradient.memories.iter().enumerate() {
            let memory = m.memory as usize;
            let spec = self.source.program.spec(step.memories[memory].previous)?;
            let assign = self.writers.of_memory(gradient.block, m.memory);
            let initial = m.initial.map(|var| {
                Ok::<_, Error>((self.reference(var)?, self.writers.of_loop(id, HandedGradient::Initial(i))))
            });
            instr.gradients.push(MemoryGradientPlan {
                memory,
                next: self.reference(m.next)?,
                start: self.slots.start(gradient.block, memory, spec)?,
                passes: assign.passes,
                filled: assign.filled,
                last: m.last.map(|var| self.reference(var)).transpose()?,
                initial: initial.transpose()?,
            });
        }
        instr.gradients.sort_by_key(|plan| plan.memory);
        for (i, pair) in gradient.inputs.iter().enumerate() {
            if !self.layouts.left.contains_key(&pair.outer) {
                instr.scatter.push(self.moves(*pair, self.writers.of_loop(id, HandedGradient::Input(i)))?);
            }
        }
        for (i, pair) in gradient.statics.iter().enumerate() {
            instr
                .scatter_statics
                .push(self.moves(*pair, self.writers.of_loop(id, HandedGradient::Static(i)))?);
        }
        for &var in self.writers.zeroed_in(id) {
            instr.zero.push(self.reference(var)?);
        }
        Ok(())
    }

    /// Returns the extent that counts the sequences over which a step block runs.
    fn sequences(&self, step: &StepDesc) -> Result<Extent> {
        let program = self.source.program;
        let none = || Error::of(ErrorKind::Program, "step inputs", "at least one", "none");
        let lod = &program.spec(step.inputs.first().ok_or_else(none)?.outer)?.lod;
        let parent = program.block(step.block).parent.unwrap_or_default();
        match lod.iter().position(|&l| l == step.level) {
            Some(0) => Ok(program.top(parent)),
            Some(at) => Ok(Extent::Rows(lod[at - 1])),
            None => {
                let (expected, got) = ("a level of the step input", format!("level {}", step.level.0));
                Err(Error::of(ErrorKind::Program, "step level", expected, got))
            }
        }
    }

    /// Returns the size in bytes of the constants (such as weights) that a call packs in its preparation.
    fn packed(&self, op: &OpInstr) -> usize {
        let reads = op.constants.iter().filter(|_| op.prepared.is_some()).cloned().flatten();
        let halves = op.computes_in(self.source.program.unit) == Some(DType::BF16);
        let size = |r: &Ref| match r.access {
            Access::Slot(slot) => self.slots.slots[slot].dtype.size_of() / if halves { 2 } else { 1 },
            _ => 0,
        };
        // The sum saturates: a program that was read from a file may declare any size.
        let bytes = |r: &Ref| r.rows.known().unwrap_or(0).saturating_mul(r.width).saturating_mul(size(r));
        reads.map(|read| bytes(&op.reads[read])).fold(0, usize::saturating_add)
    }
}

/// Returns the size in bytes of the constants that an instruction packs; `None` if the instruction is no call.
fn packed(instr: &Instr) -> Option<usize> {
    if let Instr::Op(op) = instr { Some(op.effort.packed) } else { None }
}

/// Collects the views of the variables in input or output slots of a call.
struct Views<'a> {
    found: &'a Analysis<'a>,
    order: Option<RankedLayout>,
    refs: Vec<Ref>,
}

impl Views<'_> {
    fn slots(&mut self, slots: &[Vec<VarId>]) -> Result<Vec<Vec<OperandPosition>>> {
        slots.iter().map(|vars| self.places(vars)).collect()
    }

    fn places(&mut self, vars: &[VarId]) -> Result<Vec<OperandPosition>> {
        vars.iter().map(|&var| self.position(var)).collect()
    }

    fn position(&mut self, var: VarId) -> Result<OperandPosition> {
        let Analysis { source, slots, .. } = *self.found;
        if var == VarId::NONE {
            return Ok(OperandPosition::Absent);
        }
        let view = match self.order {
            Some(_) => slots.ranked_reference(source, var)?,
            None => slots.reference(source, var)?,
        };
        if let Access::Slot(slot) = view.access
            && let Some(pool) = slots.slots[slot].pool
        {
            return Ok(OperandPosition::Pooled(pool));
        }
        self.refs.push(view);
        Ok(OperandPosition::Dense(self.refs.len() - 1))
    }
}

/// Returns whether lanes (threads that each run some of the sequences) can run an instruction of a loop. Every row must belong
/// to one lane, and no gradient may be summed across lanes.
fn lanes_can_run(instr: &Instr, step: &StepDesc, levels: &[InnerLevel]) -> bool {
    let Instr::Op(op) = instr else { return false };
    let statics = |id: LevelId| levels.iter().any(|level| level.statics && level.inner == id);
    let row = |r: &Ref| match r.rows {
        Extent::Rows(level) => statics(level),
        rows => rows == Extent::Alive(step.block),
    };
    let pools = |p: &OperandPosition| matches!(p, OperandPosition::Pooled(_));
    op.reads.iter().all(|r| row(r) || r.rows.known().is_some())
        && op.writes.iter().all(row)
        && lanes_can_split(op)
        && !op.wiring.input_gradients.iter().flatten().any(|(p, _)| pools(p))
        && !op.wiring.inputs.iter().chain(&op.wiring.outputs).flatten().any(pools)
}

/// Returns whether a lane can run, on only its own sequences, a call that reads static sub-sequences. All operands must
/// have the same number of sequences.
fn lanes_can_split(op: &OpInstr) -> bool {
    let views = || op.reads.iter().chain(&op.writes).filter(|r| r.rows.known().is_none());
    if op.reach == Reach::Row || !views().any(|r| matches!(r.rows, Extent::Rows(_))) {
        return true;
    }
    let Some((_, upper)) = op.sequences() else { return false };
    let above = upper.last().map_or(op.top, |&level| Extent::Rows(level));
    let lods = || op.inputs.iter().flatten().filter_map(|spec| spec.lod.split_last());
    let below = |rows: Extent| lods().any(|(&last, own)| own == upper && rows == Extent::Rows(last));
    op.reach == Reach::Sequence && views().all(|r| r.rows == above || below(r.rows))
}

fn is_random(instr: &Instr) -> bool {
    match instr {
        Instr::Op(op) => op.random,
        Instr::Loop(inner) => inner.random,
        Instr::Levels(_) | Instr::Zero(..) | Instr::Reorder { .. } => false,
    }
}
