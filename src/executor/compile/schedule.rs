//! The schedule: all calls in the order of the run, with the variables that each call reads and writes. A recurrent loop has
//! three lists of calls: before, in and after the loop. The module `slots` assigns slots to the variables of the schedule.

use std::collections::{BTreeMap, HashMap};

use super::blocks::Blocks;
use super::loops::block::{Backward, Forward, Visits};
use super::loops::views::counts;
use super::loops::when::{Timing, Unit, UnitWork};
use super::source::{ParsedOp, Source};
use crate::error::Result;
use crate::executor::plan::{LoopRows, OpId, TimingReason};
use crate::executor::rewrite::classes::Class;
use crate::executor::rewrite::needs::gradient_reads;
use crate::operator::{BlockId, Pass, VarId};
use crate::program::{Program, Role, grad_name};

/// The variables in each slot of an operator; [`VarId::NONE`] replaces a variable that the call does not use.
pub(crate) type Slots = Vec<Vec<VarId>>;

#[derive(Debug)]
pub(crate) struct ScheduledCall {
    /// The number of this call; all calls of a plan are numbered together.
    pub(crate) number: usize,
    pub(crate) id: OpId,
    pub(crate) site: Site,
    pub(crate) pass: Pass,
    /// For a backward call, the input slots whose gradients it computes.
    pub(crate) wanted: Vec<usize>,
    /// The variables that the call reads as inputs of the forward operator. A forward call writes the variables in `outputs`; a
    /// backward call reads them.
    pub(crate) inputs: Slots,
    pub(crate) outputs: Slots,
    pub(crate) output_gradients: Slots,
    /// The gradients that a backward call writes.
    pub(crate) input_gradients: Slots,
    pub(crate) results: Slots,
    /// The input slots whose gradient overwrites the input's value in the same memory.
    pub(crate) in_place: Vec<usize>,
    /// Whether the call adds its output to the existing contents of the buffer.
    pub(crate) adds: bool,
}

/// When and how often a call or a loop runs, with the reason.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    pub(crate) span: LoopRows,
    /// Whether the item runs once or many times in a run; an item that runs many times must add to the gradients of constants.
    pub(crate) visits: Visits,
    /// The reason why the item runs before, in or after the loop of its step block; `None` in the root block.
    pub(crate) why: Option<TimingReason>,
}

/// A recurrent loop in the schedule, forward or backward.
#[derive(Debug)]
pub(crate) struct LoopItem {
    pub(crate) id: OpId,
    pub(crate) site: Site,
    pub(crate) before: Vec<Item>,
    pub(crate) body: Vec<Item>,
    pub(crate) after: Vec<Item>,
}

/// An item of the schedule: a call, or a loop with its own items.
#[derive(Debug)]
pub(crate) enum Item {
    Call(ScheduledCall),
    /// A call that computes the offsets of the levels that an operator makes.
    Levels(ScheduledCall),
    Loop(LoopItem),
}

/// For each operator of the root block that runs: its calls and loops, in the order of the run.
pub(crate) type Schedule = Vec<Vec<Item>>;

impl ScheduledCall {
    pub(crate) fn reads(&self) -> impl Iterator<Item = VarId> {
        let outputs = if self.pass == Pass::Backward { &self.outputs[..] } else { &[] };
        let all = self.inputs.iter().chain(outputs).chain(&self.output_gradients);
        all.flatten().copied().filter(|&var| var != VarId::NONE)
    }

    pub(crate) fn writes(&self) -> impl Iterator<Item = VarId> {
        let outputs = if self.pass == Pass::Forward { &self.outputs[..] } else { &[] };
        let all = outputs.iter().chain(&self.input_gradients).chain(&self.results);
        all.flatten().copied().filter(|&var| var != VarId::NONE)
    }
}

impl LoopItem {
    /// Returns the items before the loop, then the items in the loop, then the items after the loop.
    pub(crate) fn items(&self) -> impl Iterator<Item = &Item> {
        self.before.iter().chain(&self.body).chain(&self.after)
    }
}

/// Makes the schedule of the whole program.
pub(crate) fn schedule(source: &Source<'_>, blocks: &Blocks) -> Result<Schedule> {
    let mut maker = Maker { source, blocks, calls: 0 };
    let site = Site { span: LoopRows::All, visits: Visits::Once, why: None };
    let root = source.live.iter().map(|&number| {
        let id = OpId { block: BlockId(0), number };
        let mut items = Vec::new();
        items.extend(maker.levels_call(id, site).map(Item::Levels));
        maker.operator(id, site, None, &mut items)?;
        Ok(items)
    });
    root.collect()
}

/// Makes the items of the schedule. `calls` is the number of calls made so far, which is the number of the next call.
struct Maker<'a> {
    source: &'a Source<'a>,
    blocks: &'a Blocks,
    calls: usize,
}

impl Maker<'_> {
    /// Adds the calls of an operator, or the loop of a `recurrent`; for a backward operator, `only` lists the gradients to
    /// compute.
    fn operator(&mut self, id: OpId, site: Site, only: Option<&[usize]>, out: &mut Vec<Item>) -> Result<()> {
        let Some(parsed) = self.source.parsed(id) else {
            out.push(Item::Loop(self.step_loop(id, site).map_err(|e| e.at(self.source.place(id)))?));
            return Ok(());
        };
        let desc = self.source.desc(id);
        if desc.role != Role::Backward {
            let mut call = self.call(id, parsed, site);
            let found = if id.block == BlockId(0) { None } else { self.blocks.forward(id.block).ok() };
            call.adds = found.is_some_and(|found| found.adds.contains(&id.number));
            out.push(Item::Call(call));
            return Ok(());
        }
        // `mul(x, x)` computes two contributions to the gradient of x. No call may write one buffer twice, so each use of a
        // variable gets a call of its own.
        let uses = counts(desc.writes()).into_values().max().unwrap_or(1);
        for wanted in self.separate(id, parsed, only.unwrap_or(&parsed.wanted)) {
            for nth in 0..uses {
                let call = self.backward_call(id, parsed, site, (&wanted, nth));
                let call = call.map_err(|e| e.at(self.source.place(id)))?;
                out.push(Item::Call(call));
            }
        }
        Ok(())
    }

    /// Divides the gradients of a backward operator into groups, one call per group. If the gradients share no work, row
    /// gradients (which threads can divide by rows) and gradients of constants (sums over all rows) are in separate calls.
    fn separate(&self, id: OpId, parsed: &ParsedOp, wanted: &[usize]) -> Vec<Vec<usize>> {
        if !parsed.hints.separate_gradients {
            return vec![wanted.to_vec()];
        }
        let desc = self.source.desc(id);
        let constant = |&slot: &usize| {
            let vars = desc.output(&grad_name(parsed.signature.inputs[slot].name)).iter();
            let mut vars = vars.filter(|&&v| v != VarId::NONE);
            vars.all(|&v| self.source.program.var(v).spec().is_some_and(|spec| !spec.batched()))
        };
        let (constants, rows): (Vec<usize>, Vec<usize>) = wanted.iter().copied().partition(constant);
        [rows, constants].into_iter().filter(|group| !group.is_empty()).collect()
    }

    fn next(&mut self) -> usize {
        self.calls += 1;
        self.calls - 1
    }

    /// Replaces the variables of slots that hold no tensors by [`VarId::NONE`].
    fn tensors(&self, slots: Slots) -> Slots {
        let tensor = |var: VarId| var != VarId::NONE && self.source.program.var(var).spec().is_some();
        let tensors_of =
            |vars: Vec<VarId>| vars.into_iter().map(|v| if tensor(v) { v } else { VarId::NONE }).collect();
        slots.into_iter().map(tensors_of).collect()
    }

    /// Makes the call of a forward operator, or of an update operator.
    fn call(&mut self, id: OpId, parsed: &ParsedOp, site: Site) -> ScheduledCall {
        let desc = self.source.desc(id);
        ScheduledCall {
            number: self.next(),
            id,
            site,
            pass: Pass::Forward,
            wanted: Vec::new(),
            inputs: self.tensors(Program::slots_of(parsed.signature.inputs, &desc.inputs, "")),
            outputs: Program::slots_of(parsed.signature.outputs, &desc.outputs, ""),
            output_gradients: Slots::new(),
            input_gradients: Slots::new(),
            results: Slots::new(),
            in_place: Vec::new(),
            adds: false,
        }
    }

    /// Makes the call that computes the offsets of an operator's levels; `None` if the operator makes no levels.
    fn levels_call(&mut self, id: OpId, site: Site) -> Option<ScheduledCall> {
        let parsed = self.source.parsed(id).filter(|parsed| !parsed.made.is_empty())?;
        let decides = parsed.facts.lod.deciding().unwrap_or(&[]);
        let mut call = self.call(id, parsed, site);
        call.outputs.clear();
        for (slot, vars) in call.inputs.iter_mut().enumerate() {
            if !decides.contains(&slot) {
                vars.fill(VarId::NONE);
            }
        }
        Some(call)
    }

    /// Makes a backward call for the gradients of some input slots. If a gradient variable occurs several times in these slots,
    /// the call computes only occurrence `nth`, counted from 0.
    fn backward_call(
        &mut self,
        id: OpId,
        parsed: &ParsedOp,
        site: Site,
        (wanted, nth): (&[usize], usize),
    ) -> Result<ScheduledCall> {
        let desc = self.source.desc(id);
        let signature = parsed.signature;
        let needs = gradient_reads(&*parsed.op, wanted, &parsed.inputs);
        let found = if id.block == BlockId(0) { None } else { Some(self.blocks.backward(id.block)?) };
        let over = |slot: &usize| found.is_some_and(|found| found.overwrites.contains(&(id.number, *slot)));
        let in_place: Vec<usize> = (0..signature.inputs.len()).filter(over).collect();
        let bound = |slots: Slots, bound: &dyn Fn(usize) -> bool| -> Slots {
            let slot_vars = |(slot, vars): (usize, Vec<VarId>)| match bound(slot) {
                true => vars,
                false => vec![VarId::NONE; vars.len()],
            };
            slots.into_iter().enumerate().map(slot_vars).collect()
        };
        let inputs = self.tensors(Program::slots_of(signature.inputs, &desc.inputs, ""));
        let outputs = Program::slots_of(signature.outputs, &desc.inputs, "");
        let mut seen: HashMap<VarId, usize> = HashMap::new();
        let mut once = |slot: usize, var: VarId| {
            let count = seen.entry(var).or_default();
            let before = std::mem::replace(count, *count + 1);
            if wanted.contains(&slot) && before == nth { var } else { VarId::NONE }
        };
        let gradients = Program::slots_of(signature.inputs, &desc.outputs, &grad_name(""));
        let input_gradients = gradients.into_iter().enumerate();
        let input_gradients =
            input_gradients.map(|(slot, vars)| vars.into_iter().map(|var| once(slot, var)).collect());
        Ok(ScheduledCall {
            pass: Pass::Backward,
            wanted: wanted.to_vec(),
            inputs: bound(inputs, &|slot| !in_place.contains(&slot) && needs.has_input(slot)),
            outputs: bound(outputs, &|slot| needs.has_output(slot)),
            output_gradients: Program::slots_of(signature.outputs, &desc.inputs, &grad_name("")),
            input_gradients: input_gradients.collect(),
            results: Program::slots_of(signature.outputs, &desc.outputs, ""),
            number: self.next(),
            id,
            site,
            in_place,
            adds: false,
        })
    }

    fn step_loop(&mut self, id: OpId, site: Site) -> Result<LoopItem> {
        let blocks = self.blocks;
        let (step, gradient) = self.source.step(id)?;
        let mut times = [Timing::Before, Timing::Body, Timing::After].map(|time| (time, Vec::new()));
        for (time, items) in &mut times {
            match gradient {
                None => self.forward_items(step.block, blocks.forward(step.block)?, *time, site, items)?,
                Some(gradient) => {
                    let block_parts = (blocks.forward(step.block)?, blocks.backward(gradient.block)?);
                    self.backward_items(gradient.block, block_parts, *time, site, items)?;
                }
            }
        }
        let [before, body, after] = times.map(|(_, items)| items);
        Ok(LoopItem { id, site, before, body, after })
    }

    /// Adds the items of a step block that run at `time` (before, in or after the loop).
    fn forward_items(
        &mut self,
        block: BlockId,
        found: &Forward,
        time: Timing,
        around: Site,
        out: &mut Vec<Item>,
    ) -> Result<()> {
        for unit in found.units.iter().filter(|unit| unit.when == time) {
            let id = OpId { block, number: unit.op };
            let first = self.source.desc(id).writes().next();
            let class = first.map_or(Class::Step, |var| found.class(self.source, var));
            let site = site(around, unit, class);
            match unit.does {
                UnitWork::MakesLevels => {
                    let call = self.levels_call(id, Site { span: LoopRows::Steps, ..site });
                    out.extend(call.map(Item::Levels));
                }
                UnitWork::Computes if unit.steps => {
                    let site = Site { span: LoopRows::Steps, visits: Visits::Many, ..site };
                    self.operator(id, site, None, out)?;
                }
                UnitWork::Computes => self.operator(id, site, None, out)?,
            }
        }
        Ok(())
    }

    /// Adds the items of a gradient block that run at `time`; one call computes all gradients of an operator at that time.
    fn backward_items(
        &mut self,
        block: BlockId,
        (forward, found): (&Forward, &Backward),
        time: Timing,
        around: Site,
        out: &mut Vec<Item>,
    ) -> Result<()> {
        let mut of_op: BTreeMap<usize, Vec<&Unit>> = BTreeMap::new();
        for unit in found.units.iter().filter(|unit| unit.when == time) {
            of_op.entry(unit.op).or_default().push(unit);
        }
        for (number, units) in of_op {
            let (id, first) = (OpId { block, number }, units[0]);
            let touched = units.iter().flat_map(|unit| unit.touches());
            let classes: Vec<Class> = touched.map(|var| forward.class(self.source, var)).collect();
            let sequences = classes.contains(&Class::Sequence) && !classes.contains(&Class::Step);
            let class = if sequences { Class::Sequence } else { Class::Step };
            let slots: Vec<usize> = units.iter().flat_map(|unit| &unit.wrt).copied().collect();
            let only = (!slots.is_empty()).then_some(&slots[..]);
            self.operator(id, site(around, first, class), only, out)?;
        }
        Ok(())
    }
}

/// Returns when and how often a scheduling unit runs, given the site `around` of the loop that contains the unit.
fn site(around: Site, unit: &Unit, class: Class) -> Site {
    let again = around.visits == Visits::Many || unit.when == Timing::Body;
    Site {
        span: if class == Class::Sequence { LoopRows::Sequences } else { LoopRows::All },
        visits: if again { Visits::Many } else { Visits::Once },
        why: Some(unit.why),
    }
}
