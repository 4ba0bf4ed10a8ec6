//! Row layout: what a recurrent leaves in step-major order is read in that order where possible.
//!
//! A recurrent's outputs, and the gradients it hands back, lie in the order of its rank table. Another recurrent over
//! the same sequences takes them as they lie, and a row-wise operator works on them in that order; only where an
//! operator wants the batch's own order, or a value is fetched, is there a copy ([`Instr::Reorder`]).

use std::collections::HashMap;

use crate::error::Result;
use crate::executor::compile::Compiler;
use crate::executor::compile::loops::Site;
use crate::executor::plan::{Access, Home, Instr, Ref};
use crate::program::{BlockId, Extent, LevelId, OpDesc, Reach, Role, Spec, StepDesc, VarId};

/// An order of rows: that of the sequences of a level, run from one end.
pub(crate) type Order = (LevelId, bool);

/// A variable of the root block whose rows lie in step-major order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ranked {
    pub(crate) order: Order,
    /// The slot, its rows counted as the variable's.
    pub(crate) slot: usize,
    /// The step block whose frame knows the order, and what counts the rows there.
    pub(crate) block: BlockId,
    pub(crate) rows: Extent,
}

/// Which variables lie in step-major order, and the copies that are due.
#[derive(Default)]
pub(crate) struct Layouts {
    ranked: HashMap<VarId, Ranked>,
    /// How many operators of the root block write a gradient.
    contributions: HashMap<VarId, usize>,
    /// To run before the instruction that is being compiled.
    pub(crate) pending: Vec<Instr>,
    /// Blocks whose frames must know the keys of their rows.
    pub(crate) keyed: Vec<BlockId>,
}

impl Layouts {
    /// Counts who writes what.
    pub(crate) fn new<'a>(ops: impl Iterator<Item = &'a OpDesc>) -> Self {
        let mut layouts = Self::default();
        for var in ops.flat_map(OpDesc::writes) {
            *layouts.contributions.entry(var).or_default() += 1;
        }
        layouts
    }
}

/// The order that a step block's loop runs in.
pub(crate) fn order_of(step: &StepDesc) -> Order {
    (step.level, step.reverse)
}

impl Compiler<'_> {
    /// The step-major rows of a variable, if it lies so.
    pub(crate) fn ranked(&self, var: VarId) -> Option<Ranked> {
        self.layouts.ranked.get(&var).copied()
    }

    /// Leaves what a loop wrote for `var` in its order. Only at the root, and for a gradient only if nothing else
    /// adds to it and nobody fetches it.
    pub(crate) fn leave_ranked(
        &mut self,
        var: VarId,
        inner: &Ref,
        step: &StepDesc,
        site: Site,
    ) -> Result<bool> {
        let Access::Slot(slot) = inner.access else { return Ok(false) };
        let shared = self.program.var(var).gradient_of.is_some()
            && (self.layouts.contributions.get(&var) != Some(&1) || self.is_wanted(var));
        if site.block != BlockId(0) || shared {
            return Ok(false);
        }
        let spec = self.program.spec(var)?;
        let alias = self.alias(slot, Home::Whole, spec);
        let ranked = Ranked { order: order_of(step), slot: alias, block: step.block, rows: inner.rows };
        self.layouts.ranked.insert(var, ranked);
        Ok(true)
    }

    /// Gives the step's view of an outer variable the rows as they lie, if that is in the loop's order.
    pub(crate) fn take_ranked(&mut self, outer: VarId, inner: VarId, step: &StepDesc) -> Result<bool> {
        let Some(ranked) = self.ranked(outer).filter(|r| r.order == order_of(step)) else { return Ok(false) };
        self.touch(Access::Slot(ranked.slot));
        let spec = self.program.spec(inner)?;
        let alias = self.alias(ranked.slot, Home::Stepped(step.block), spec);
        self.set_slot(inner, alias);
        Ok(true)
    }

    /// The order in which a row-wise operator of the root block can run on rows as they lie: that of all batched
    /// variables it reads, if what it writes is no wider (a copy is due where the order ends, and should be narrow).
    pub(crate) fn order_for(
        &mut self,
        reach: Reach,
        op: &OpDesc,
        site: Site,
        (reads, writes): (&[VarId], &[VarId]),
    ) -> Result<Option<Ranked>> {
        if reach != Reach::Row || site.block != BlockId(0) || op.role == Role::Update {
            return Ok(None);
        }
        let mut found: Option<Ranked> = None;
        let (mut read_width, mut write_width) = (0, 0);
        for &var in reads {
            let spec = self.program.spec(var)?;
            if !spec.batched() {
                continue;
            }
            read_width += spec.width();
            match (self.ranked(var), found) {
                (Some(r), None) => found = Some(r),
                (Some(r), Some(f)) if r.order == f.order => {}
                _ => return Ok(None),
            }
        }
        for &var in writes {
            let spec = self.program.spec(var)?;
            if !spec.batched() {
                continue;
            }
            write_width += spec.width();
            let gradient = self.program.var(var).gradient_of.is_some();
            if self.is_wanted(var) || (gradient && self.layouts.contributions.get(&var) != Some(&1)) {
                return Ok(None);
            }
        }
        Ok(found.filter(|_| write_width <= read_width))
    }

    /// Where a variable is for an operator that runs in an order.
    pub(crate) fn ranked_reference(&mut self, var: VarId, order: &Ranked, writes: bool) -> Result<Ref> {
        let spec = self.program.spec(var)?;
        if !spec.batched() {
            return self.reference(var);
        }
        let slot = match self.ranked(var) {
            Some(ranked) => ranked.slot,
            None => {
                debug_assert!(writes, "only what is written has no rows yet");
                let slot = self.add_slot(var, spec, Home::Whole);
                self.layouts.ranked.insert(var, Ranked { slot, ..*order });
                slot
            }
        };
        self.touch(Access::Slot(slot));
        Ok(Ref { access: Access::Slot(slot), rows: spec.rows(), width: spec.width(), column: 0 })
    }

    /// Puts a variable into the batch's own order before the current instruction, if it lies otherwise.
    pub(crate) fn need_natural(&mut self, var: VarId) -> Result<()> {
        let Some(ranked) = self.ranked(var).filter(|_| self.access[var.0 as usize].is_none()) else {
            return Ok(());
        };
        let spec = self.program.spec(var)?;
        let slot = self.place(var, Home::Whole)?;
        self.touch(Access::Slot(ranked.slot));
        let view =
            |slot| Ref { access: Access::Slot(slot), rows: spec.rows(), width: spec.width(), column: 0 };
        let gradient = self.program.var(var).gradient_of.is_some();
        let reorder = Instr::Reorder {
            from: view(ranked.slot),
            to: view(slot),
            block: ranked.block,
            rows: ranked.rows,
            role: if gradient { Role::Backward } else { Role::Forward },
            index: 0,
        };
        self.layouts.pending.push(reorder);
        Ok(())
    }

    /// Another view of a slot's buffer.
    fn alias(&mut self, slot: usize, home: Home, spec: &Spec) -> usize {
        let var = self.slots[slot].var;
        let alias = self.add_slot(var, spec, home);
        self.slots[alias].alias = Some(slot);
        alias
    }
}
