//! Which slots share a buffer: those of one dtype whose lifetimes do not overlap.

use super::plan::Plan;
use crate::tensor::DType;

/// Gives every slot a buffer. A slot that starts takes the free buffer that held rows of the same kind, else any free
/// one of its dtype, else a new one.
pub(super) fn assign(plan: &mut Plan) {
    let mut order: Vec<usize> = (0..plan.slots.len())
        .filter(|&s| plan.slots[s].pool.is_none() && plan.slots[s].alias.is_none())
        .collect();
    order.sort_by_key(|&s| (plan.slots[s].life.0, s));
    // (buffer, busy until, the slot it last held)
    let mut buffers: Vec<(DType, usize, usize)> = Vec::new();
    for s in order {
        let slot = &plan.slots[s];
        let free = |&(dtype, until, _): &(DType, usize, usize)| dtype == slot.dtype && until < slot.life.0;
        let alike = |&(_, _, last): &(DType, usize, usize)| {
            let held = &plan.slots[last];
            held.rows == slot.rows && held.width == slot.width
        };
        let found = if slot.persistent {
            None
        } else {
            let mut candidates = buffers.iter().enumerate().filter(|(_, b)| free(b));
            let first = candidates.clone().next();
            candidates.find(|(_, b)| alike(b)).or(first).map(|(i, _)| i)
        };
        let until = if slot.persistent { usize::MAX } else { slot.life.1 };
        let buffer = found.unwrap_or_else(|| {
            buffers.push((slot.dtype, 0, s));
            buffers.len() - 1
        });
        buffers[buffer] = (slot.dtype, until, s);
        plan.slots[s].buffer = buffer;
    }
    // An alias comes after the slot it is of.
    for s in 0..plan.slots.len() {
        if let Some(of) = plan.slots[s].alias {
            plan.slots[s].buffer = plan.slots[of].buffer;
        }
    }
    plan.buffers = buffers.into_iter().map(|(dtype, _, _)| dtype).collect();
}
