//! Which slots share a buffer: those of one dtype whose lifetimes do not overlap.

use super::plan::{Home, Plan, Slot};
use crate::program::Extent;
use crate::tensor::DType;

/// A buffer while slots are dealt to it: its dtype and the lifetimes of what it holds.
struct Shared {
    dtype: DType,
    lives: Vec<(usize, usize)>,
}

impl Shared {
    fn takes(&self, slot: &Slot) -> bool {
        let (first, last) = slot.life;
        self.dtype == slot.dtype && self.lives.iter().all(|life| life.1 < first || last < life.0)
    }
}

/// Gives every slot a buffer. The largest slots come first, and each takes the smallest buffer that is free while it
/// lives; so the large ones share with one another, and small ones do not keep them from it.
pub(super) fn assign(plan: &mut Plan) {
    let own = |s: &usize| plan.slots[*s].pool.is_none() && plan.slots[*s].alias.is_none();
    let mut order: Vec<usize> = (0..plan.slots.len()).filter(own).collect();
    order.sort_by_key(|&s| (std::cmp::Reverse(size(&plan.slots[s])), plan.slots[s].life, s));
    let mut buffers: Vec<Shared> = Vec::new();
    for s in order {
        let slot = &mut plan.slots[s];
        // A persistent one is exchanged with the scope's, which must find it alone.
        let life = if slot.persistent { (0, usize::MAX) } else { slot.life };
        let free = if slot.persistent { None } else { buffers.iter().rposition(|b| b.takes(slot)) };
        slot.buffer = free.unwrap_or_else(|| {
            buffers.push(Shared { dtype: slot.dtype, lives: Vec::new() });
            buffers.len() - 1
        });
        buffers[slot.buffer].lives.push(life);
    }
    // An alias comes after the slot it is of.
    for s in 0..plan.slots.len() {
        if let Some(of) = plan.slots[s].alias {
            plan.slots[s].buffer = plan.slots[of].buffer;
        }
    }
    plan.buffers = buffers.into_iter().map(|b| b.dtype).collect();
}

/// About how large a slot will be, to compare with others: the batch is not known yet.
fn size(slot: &Slot) -> usize {
    const SEQUENCES: usize = 64;
    const ROWS: usize = 4096;
    let rows = match (slot.home, slot.rows) {
        (_, Extent::Known(n)) => n,
        (Home::Stepped(_), _) | (Home::Whole, Extent::Rows(_) | Extent::Data(_)) => ROWS,
        _ => SEQUENCES,
    };
    rows.saturating_mul(slot.width).saturating_mul(slot.dtype.size_of())
}
