//! Which slots share a buffer: those of one dtype whose lifetimes do not overlap.

use std::collections::BTreeMap;

use super::compile::FOREVER;
use super::plan::{Home, Plan, Slot};
use crate::program::Extent;
use crate::tensor::DType;

/// The buffers of one dtype that slots share, while they are dealt.
struct Shared {
    /// What is in each: its number among all, and the lifetimes of what it holds, first to last.
    buffers: Vec<(usize, BTreeMap<usize, usize>)>,
    taken: Taken,
}

impl Shared {
    /// The last buffer that is free for a lifetime.
    fn free(&self, (first, last): (usize, usize)) -> Option<usize> {
        // At some time all of them are taken, as in a long chain whose values wait for their gradients.
        if self.taken.most(first, last) == self.buffers.len() {
            return None;
        }
        // What a buffer holds does not overlap, so what begins last before the end also ends last.
        let takes = |(_, lives): &(usize, BTreeMap<usize, usize>)| {
            lives.range(..=last).next_back().is_none_or(|(_, &end)| end < first)
        };
        self.buffers.iter().rposition(takes)
    }
}

/// How many buffers are taken at each time: a tree over the times whose nodes have the most of theirs.
struct Taken {
    times: usize,
    most: Vec<usize>,
    /// What holds for all times of a node and is not in those below it.
    more: Vec<usize>,
}

impl Taken {
    fn new(times: usize) -> Self {
        let times = times.next_power_of_two();
        Self { times, most: vec![0; 2 * times], more: vec![0; 2 * times] }
    }

    /// One more buffer is taken from the first to the last time.
    fn add(&mut self, first: usize, last: usize) {
        self.add_below(1, (0, self.times - 1), (first, last));
    }

    fn add_below(&mut self, node: usize, (from, to): (usize, usize), life: (usize, usize)) {
        if life.1 < from || to < life.0 {
            return;
        }
        if life.0 <= from && to <= life.1 {
            self.most[node] += 1;
            self.more[node] += 1;
            return;
        }
        let middle = from + (to - from) / 2;
        self.add_below(2 * node, (from, middle), life);
        self.add_below(2 * node + 1, (middle + 1, to), life);
        self.most[node] = self.more[node] + self.most[2 * node].max(self.most[2 * node + 1]);
    }

    /// The most that are taken at one time from the first to the last.
    fn most(&self, first: usize, last: usize) -> usize {
        self.most_below(1, (0, self.times - 1), (first, last))
    }

    fn most_below(&self, node: usize, (from, to): (usize, usize), life: (usize, usize)) -> usize {
        if life.1 < from || to < life.0 {
            return 0;
        }
        if life.0 <= from && to <= life.1 {
            return self.most[node];
        }
        let middle = from + (to - from) / 2;
        let left = self.most_below(2 * node, (from, middle), life);
        self.more[node] + left.max(self.most_below(2 * node + 1, (middle + 1, to), life))
    }
}

/// Gives every slot a buffer. The largest slots come first, and each takes the smallest buffer that is free while it
/// lives; so the large ones share with one another, and small ones do not keep them from it.
pub(super) fn assign(plan: &mut Plan) {
    let own = |s: &usize| plan.slots[*s].pool.is_none() && plan.slots[*s].alias.is_none();
    let mut order: Vec<usize> = (0..plan.slots.len()).filter(own).collect();
    order.sort_by_key(|&s| (std::cmp::Reverse(size(&plan.slots[s])), plan.slots[s].life, s));
    let known = plan.slots.iter().flat_map(|s| [s.life.0, s.life.1]).filter(|&time| time != FOREVER);
    let end = known.max().unwrap_or(0) + 1;
    let mut dtypes: Vec<DType> = Vec::new();
    let mut shared: Vec<(DType, Shared)> = Vec::new();
    for s in order {
        let slot = &mut plan.slots[s];
        // A persistent one is exchanged with the scope's, which must find it alone.
        if slot.persistent {
            slot.buffer = dtypes.len();
            dtypes.push(slot.dtype);
            continue;
        }
        let at = shared.iter().position(|(dtype, _)| *dtype == slot.dtype).unwrap_or_else(|| {
            shared.push((slot.dtype, Shared { buffers: Vec::new(), taken: Taken::new(end + 1) }));
            shared.len() - 1
        });
        let of_dtype = &mut shared[at].1;
        let life = (slot.life.0.min(end), slot.life.1.min(end));
        let free = of_dtype.free(life).unwrap_or_else(|| {
            of_dtype.buffers.push((dtypes.len(), BTreeMap::new()));
            dtypes.push(slot.dtype);
            of_dtype.buffers.len() - 1
        });
        let (number, lives) = &mut of_dtype.buffers[free];
        slot.buffer = *number;
        lives.insert(life.0, life.1);
        of_dtype.taken.add(life.0, life.1);
    }
    // An alias comes after the slot it is of.
    for s in 0..plan.slots.len() {
        if let Some(of) = plan.slots[s].alias {
            plan.slots[s].buffer = plan.slots[of].buffer;
        }
    }
    plan.buffers = dtypes;
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
