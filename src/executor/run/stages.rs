//! The stages of a run: which instructions run in each stage, and the check that every gradient is finite before the first
//! update.

use crate::error::{Error, ErrorKind, Result};
use crate::executor::plan::{Access, Growth, Home, Instr, OpInstr, Plan, Ref, Slot, parts};
use crate::executor::run::counts::CountSource;
use crate::executor::run::request::Stage;
use crate::executor::run::state::RunState;
use crate::executor::run::worker::Tools;
use crate::kernels::all_finite;
use crate::kernels::arena::{Arena, Lane, OperandRoom};
use crate::operator::context::OperandPosition;
use crate::operator::rows::RowBuffer;
use crate::operator::{BlockId, Extent};
use crate::program::Role;
use crate::tensor::DType;

/// The stages that a call of the machine runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stages {
    /// All stages up to and including this stage.
    Until(Stage),
    /// Only the updates, after a run that stopped at its gradients.
    Updates,
}

impl Stages {
    /// Returns whether operators of `stage`, or of a later stage, run in these stages.
    pub(super) fn end_behind(self, stage: Stage) -> bool {
        match self {
            Stages::Until(last) => stage <= last,
            Stages::Updates => true,
        }
    }

    fn have(self, instr: &Instr) -> bool {
        let stage = Stage::of(role_of(instr));
        match self {
            Stages::Until(last) => stage <= last,
            Stages::Updates => stage == Stage::Updates,
        }
    }

    /// Returns whether the backward pass is among these stages.
    fn compute_gradients(self) -> bool {
        matches!(self, Stages::Until(last) if last > Stage::Forward)
    }
}

fn role_of(instr: &Instr) -> Role {
    match instr {
        Instr::Op(op) | Instr::Levels(op) => op.role,
        Instr::Loop(inner) if inner.backward => Role::Backward,
        Instr::Loop(_) => Role::Forward,
        Instr::Zero(..) => Role::Backward,
        Instr::Reorder { role, .. } => *role,
    }
}

/// Returns whether an instruction is skipped in runs with a backward pass, because another instruction then computes its
/// results.
fn superseded(instr: &Instr) -> bool {
    matches!(instr, Instr::Op(op) if op.stands_for.as_ref().is_some_and(|note| note.superseded))
}

/// Where the updates are in a plan, relative to the other instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Updates {
    /// The plan has no updates.
    None,
    /// The updates run after all other instructions. Each gradient that an update reads is therefore still in its buffer at the
    /// end.
    Last,
    /// Another instruction runs after the first update, and may overwrite the buffer of a gradient that no later update reads.
    Between,
}

impl Updates {
    pub(crate) fn of(plan: &Plan) -> Self {
        let updates = |instr: &Instr| role_of(instr) == Role::Update;
        match plan.code.iter().position(updates) {
            None => Updates::None,
            Some(first) if plan.code[first..].iter().all(updates) => Updates::Last,
            Some(_) => Updates::Between,
        }
    }
}

impl<'p> RunState<'p> {
    /// Runs the instructions of some stages, in the order of the plan.
    pub(super) fn run_stages(
        &mut self,
        stages: Stages,
        arena: &mut Arena,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        let plan = self.plan;
        // A slot whose lifetime begins after the last instruction of these stages gets no memory; for example, gradients get no
        // memory in an evaluation.
        let end = plan.code.iter().rposition(|i| stages.have(i)).map_or(0, |last| last + 1);
        let mut lane = arena.lane();
        self.reserve_known(&mut lane, end, &mut tools.lists.counts);
        self.reserve(&mut lane, end)?;
        let mut checked = false;
        for (calls, chain) in parts(plan.code.len(), &plan.chains) {
            let instr = &plan.code[calls.start];
            if !stages.have(instr) || (superseded(instr) && stages.compute_gradients()) {
                continue;
            }
            if let Some(chain) = chain {
                self.chain(BlockId(0), &plan.code[calls], chain, &mut lane, tools)?;
                continue;
            }
            if role_of(instr) == Role::Update && !checked {
                self.check_finite(&mut lane, tools)?;
                checked = true;
            }
            self.prepare(instr, &mut lane, &mut tools.workers[0])?;
            self.instruction(instr, &mut lane, tools)?;
            // The level that was just made determines how many rows later slots have, so memory is reserved again.
            if matches!(instr, Instr::Levels(_)) {
                self.reserve_known(&mut lane, end, &mut tools.lists.counts);
                self.reserve(&mut lane, end)?;
            }
        }
        Ok(())
    }

    /// Returns the estimated effort of some stages, as a count of numbers that their calls write, in all and in the calls that
    /// threads share; `usize::MAX` if the effort is unknown before the run.
    pub(super) fn effort(&self, stages: Stages) -> [usize; 2] {
        let code = self.plan.code.iter().filter(|instr| stages.have(instr));
        // The data determines how many rows a made level has, and how many rows an update changes.
        let unknown = |instr: &Instr| matches!(instr, Instr::Levels(_));
        if matches!(stages, Stages::Updates) || code.clone().any(unknown) {
            return [usize::MAX; 2];
        }
        // Every instruction is estimated with the rows of the largest level, since the rows of some levels are known
        // only during the run.
        let rows = self.levels.most_rows().max(self.batch);
        let efforts = || code.clone().map(|instr| instr.effort(rows));
        let large = efforts().filter(|&effort| effort >= self.worth.call);
        [efforts().fold(0, usize::saturating_add), large.fold(0, usize::saturating_add)]
    }

    /// Reserves memory for every buffer, also for buffers of loops, whose size follows from the levels that are known
    /// so far. Without this reservation, the buffers of a loop in a loop would grow from visit to visit, and be copied
    /// each time. `end` is as in [`Self::reserve`]. If the system refuses memory, this function returns no error: the
    /// later reservation for a single variable fails, and its error names the variable.
    fn reserve_known(&self, lane: &mut Lane<'_>, end: usize, counts: &mut Vec<usize>) {
        let needs = &self.plan.needs;
        let source = CountSource { batch: self.batch, levels: &self.levels, frames: &[], fed: &[] };
        source.fill_exactly(needs, counts);
        for of_buffer in needs.buffers.chunk_by(|a, b| a.buffer == b.buffer) {
            let live = of_buffer.iter().filter(|need| need.growth != Growth::Visits && need.first <= end);
            let bytes = live.map(|need| counts[need.quantity].saturating_mul(need.unit)).max().unwrap_or(0);
            let buffer = of_buffer[0].buffer;
            if !lane.try_reserve(buffer, bytes / self.plan.buffers[buffer].size_of()) {
                return;
            }
        }
    }

    /// Reserves memory for the root block slots whose number of rows is known and whose lifetime begins at or before
    /// instruction `end`.
    ///
    /// # Errors
    /// Fails if there is not enough memory for a slot.
    fn reserve(&self, lane: &mut Lane<'_>, end: usize) -> Result<()> {
        let whole = |s: &&Slot| s.home == Home::Whole && s.pool.is_none() && s.life.0 <= end;
        for slot in self.plan.slots.iter().filter(whole) {
            if !matches!(slot.rows, Extent::Alive(_)) {
                self.room_for(slot, self.count(slot.rows, None), lane)?;
            }
        }
        Ok(())
    }

    /// Reserves memory for `rows` rows of a slot.
    ///
    /// # Errors
    /// Fails if there is not enough memory.
    pub(super) fn room_for(&self, slot: &Slot, rows: usize, lane: &mut Lane<'_>) -> Result<()> {
        if rows.checked_mul(slot.width).is_some_and(|n| lane.try_reserve(slot.buffer, n)) {
            return Ok(());
        }
        let got = format!("{rows} rows of {} {}", slot.width, slot.dtype);
        let error = Error::new("memory of a variable", "numbers that memory can hold", got);
        Err(error.variable(self.name(slot)))
    }

    /// Checks, before the first update, that the loss and all gradients that updates read are finite.
    fn check_finite(&self, lane: &mut Lane<'_>, tools: &mut Tools<'_>) -> Result<()> {
        let room = &mut tools.workers[0].room;
        for op in self.plan.code.iter().filter_map(updating) {
            let wrong = |slot: &Slot| Err(op.err(not_finite("gradient")).variable(self.name(slot)));
            for view in &op.reads {
                if let Access::Slot(s) = view.access
                    && !self.plan.slots[s].persistent
                    && !self.is_finite(view, lane, room)
                    && !self.plan.code.iter().filter_map(updating).any(|op| writes_anew(op, s))
                {
                    return wrong(&self.plan.slots[s]);
                }
            }
            for position in op.wiring.inputs.iter().flatten() {
                if let OperandPosition::Pooled(p) = position
                    && let Some(rows) = tools.pool[*p].rows()
                    && !rows_are_finite(rows)?
                    && let Some(slot) = self.pooled_last(*p)
                {
                    return wrong(slot);
                }
            }
        }
        for &s in &self.plan.losses {
            let slot = &self.plan.slots[s];
            let whole = Ref { access: Access::Slot(s), rows: slot.rows, width: slot.width, column: 0 };
            if !self.is_finite(&whole, lane, room) {
                return Err(not_finite("loss").variable(self.name(slot)));
            }
        }
        Ok(())
    }

    /// Returns the slot with this pool number whose lifetime begins last. This slot holds the gradient that an update
    /// reads.
    fn pooled_last(&self, index: usize) -> Option<&Slot> {
        let slots = self.plan.slots.iter().filter(|slot| slot.pool == Some(index));
        slots.max_by_key(|slot| slot.life.0)
    }

    fn name(&self, slot: &Slot) -> &str {
        &self.plan.program.var(slot.var).name
    }

    fn is_finite(&self, view: &Ref, lane: &mut Lane<'_>, room: &mut OperandRoom) -> bool {
        let region = self.region(view, None);
        let operands = lane.operands(room, &[region], &[]);
        match self.dtype(view) {
            DType::F32 => operands.read::<f32>(0).is_none_or(all_finite),
            DType::F64 => operands.read::<f64>(0).is_none_or(all_finite),
            _ => true,
        }
    }
}

fn updating(instr: &Instr) -> Option<&OpInstr> {
    match instr {
        Instr::Op(op) if op.role == Role::Update => Some(op),
        _ => None,
    }
}

/// Returns whether an update operator writes a slot without reading it first. An example is the slot of a learning rate
/// or of a norm that later updates use. When the gradients are checked, this slot has no value yet.
fn writes_anew(op: &OpInstr, slot: usize) -> bool {
    let anew = |(i, r): (usize, &Ref)| {
        r.access == Access::Slot(slot) && !op.op.signature().outputs.get(i).is_some_and(|s| s.updated)
    };
    op.writes.iter().enumerate().any(anew)
}

fn rows_are_finite(rows: &RowBuffer) -> Result<bool> {
    Ok(match rows.dtype() {
        Some(DType::F64) => all_finite(rows.values::<f64>()?),
        Some(_) => all_finite(rows.values::<f32>()?),
        None => true,
    })
}

fn not_finite(what: &str) -> Error {
    Error::of(ErrorKind::NotFinite, what, "finite numbers", "NaN or infinity; nothing was updated")
}
