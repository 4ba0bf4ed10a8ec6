//! The stages of a run: the instructions of each stage, and the check of every gradient before the first update.

use crate::error::{Error, ErrorKind, Result};
use crate::executor::plan::{Access, Home, Instr, OpInstr, Plan, Ref, Slot, parts};
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

/// The stages to run now.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stages {
    /// All stages up to this one.
    Until(Stage),
    /// The updates of a run that stopped at its gradients.
    Updates,
}

impl Stages {
    /// Returns whether operators of `stage`, or of a later stage, run.
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

    /// Returns whether gradients are computed now.
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

/// Returns whether an instruction is skipped in a run that computes gradients, since another instruction then computes the same
/// results.
fn superseded(instr: &Instr) -> bool {
    matches!(instr, Instr::Op(op) if op.stands_for.as_ref().is_some_and(|note| note.superseded))
}

/// The position of the updates in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Updates {
    /// There are no updates.
    None,
    /// The updates run after all other instructions. Every gradient that an update reads is then still in its buffer.
    Last,
    /// Another instruction runs after the first update, and may use the buffer of a gradient that is no longer needed.
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
    /// Runs the instructions of some stages.
    pub(super) fn run_stages(
        &mut self,
        stages: Stages,
        arena: &mut Arena,
        tools: &mut Tools<'_>,
    ) -> Result<()> {
        let plan = self.plan;
        // Slots whose life begins after the last instruction of the stages take no memory: gradients, in an evaluation.
        let end = plan.code.iter().rposition(|i| stages.have(i)).map_or(0, |last| last + 1);
        let mut lane = arena.lane();
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
            // A level that an operator makes determines how many rows the operator will write.
            if matches!(instr, Instr::Levels(_)) {
                self.reserve(&mut lane, end)?;
            }
        }
        Ok(())
    }

    /// The estimated effort of some stages, counted in numbers that they write; `usize::MAX` if the effort is not known before
    /// the run.
    pub(super) fn effort(&self, stages: Stages) -> usize {
        let code = self.plan.code.iter().filter(|instr| stages.have(instr));
        // The data decides how many rows a new level has, and how many rows an update changes.
        let unknown = |instr: &Instr| matches!(instr, Instr::Levels(_));
        if matches!(stages, Stages::Updates) || code.clone().any(unknown) {
            return usize::MAX;
        }
        // Use the number of rows of the largest level for all: the rows of some levels are known only during the run.
        let rows = self.levels.most_rows().max(self.batch);
        code.map(|instr| instr.effort(rows)).fold(0, usize::saturating_add)
    }

    /// Reserves room for every slot of the root block whose rows are known, and whose life begins before instruction `end`
    /// has run.
    ///
    /// # Errors
    /// If memory does not suffice for a slot.
    fn reserve(&self, lane: &mut Lane<'_>, end: usize) -> Result<()> {
        let whole = |s: &&Slot| s.home == Home::Whole && s.pool.is_none() && s.life.0 <= end;
        for slot in self.plan.slots.iter().filter(whole) {
            if !matches!(slot.rows, Extent::Alive(_)) {
                let rows = self.count(slot.rows, None);
                let room = rows.checked_mul(slot.width).is_some_and(|n| lane.try_reserve(slot.buffer, n));
                if !room {
                    let got = format!("{rows} rows of {} {}", slot.width, slot.dtype);
                    let error = Error::new("memory of a variable", "numbers that memory can hold", got);
                    return Err(error.variable(self.name(slot)));
                }
            }
        }
        Ok(())
    }

    /// Checks that the loss, and every gradient that an update reads, is finite, before the first update.
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
            for place in op.wiring.inputs.iter().flatten() {
                if let OperandPosition::Pooled(p) = place
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

    /// The slot that has a number in the pool last: if an update reads a gradient, the gradient lives to the end.
    fn pooled_last(&self, place: usize) -> Option<&Slot> {
        let slots = self.plan.slots.iter().filter(|slot| slot.pool == Some(place));
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

/// Returns whether an update writes a slot that it does not read: a learning rate or a norm, say, which updates compute for
/// updates. Such a slot has no value yet when the gradients are checked.
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
