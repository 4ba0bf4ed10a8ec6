//! Assigns buffers to slots: slots of one dtype whose lifetimes do not overlap share a buffer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use super::slots::SlotDesc;
use crate::executor::plan::Home;
use crate::operator::Extent;
use crate::tensor::DType;

/// The lifetimes during which one buffer is taken: first moment → last moment. No two lifetimes overlap.
type Lives = BTreeMap<usize, usize>;
type Life = (usize, usize);

/// Returns, for each lifetime in `lives` that overlaps a given lifetime, the moments that both have in common.
fn overlap(lives: &Lives, (first, last): Life) -> impl Iterator<Item = Life> {
    let before = lives.range(..first).next_back();
    let all = before.into_iter().chain(lives.range(first..=last));
    all.filter(move |(_, end)| **end >= first).map(move |(&from, &to)| (from.max(first), to.min(last)))
}

/// The buffers of one dtype, as a tree, while buffers are assigned. A node has the lifetimes during which every buffer
/// below it is taken, so the search for a free buffer skips whole subtrees.
#[derive(Default)]
struct BufferTree {
    /// The plan-wide number of each buffer (the plan numbers the buffers of all dtypes together).
    numbers: Vec<usize>,
    /// Level 0 has one node per buffer; each node of a higher level covers two nodes of the level below.
    levels: Vec<Vec<Lives>>,
}

impl BufferTree {
    /// Returns the last buffer that is free during a lifetime.
    fn free(&self, life: Life) -> Option<usize> {
        let top = self.levels.len().checked_sub(1)?;
        self.free_below((top, 0), life)
    }

    fn free_below(&self, (level, at): (usize, usize), life: Life) -> Option<usize> {
        let taken = self.levels[level].get(at)?;
        if overlap(taken, life).next().is_some() {
            return None;
        }
        match level.checked_sub(1) {
            None => Some(at),
            Some(below) => {
                let right = self.free_below((below, 2 * at + 1), life);
                right.or_else(|| self.free_below((below, 2 * at), life))
            }
        }
    }

    /// Adds a buffer that is taken during a lifetime.
    fn add(&mut self, number: usize, life: Life) {
        let buffer = self.numbers.len();
        self.numbers.push(number);
        for level in 0.. {
            if level == self.levels.len() {
                // The level below had one node for all buffers: the first node of the new level copies the lifetimes of that
                // node.
                let all = level.checked_sub(1).and_then(|below| self.levels[below].first().cloned());
                self.levels.push(all.into_iter().collect());
            }
            let (nodes, at) = (&mut self.levels[level], buffer >> level);
            match nodes.get_mut(at) {
                Some(taken) => *taken = overlap(taken, life).collect(),
                None => nodes.push(Lives::from([life])),
            }
            if nodes.len() == 1 {
                return;
            }
        }
    }

    /// Marks a free buffer as taken during a lifetime.
    fn take(&mut self, buffer: usize, life: Life) {
        let mut taken = vec![life];
        for level in 0..self.levels.len() {
            if let Some(below) = level.checked_sub(1)
                && let Some(beside) = self.levels[below].get(buffer >> below ^ 1)
            {
                taken = taken.iter().flat_map(|&life| overlap(beside, life)).collect();
            }
            self.levels[level][buffer >> level].extend(taken.iter().copied());
        }
    }
}

/// Extends the lifetimes of the slots that chains touch. A chain runs chunk by chunk between two moments. All calls of
/// a chain run on the first chunk of rows before any call runs on the second chunk, so the lifetime of a slot that the
/// chain touches covers the whole chain. Slots that begin in the same chain and have the same row layout may still
/// share a buffer one after another, as they could without the chain. Returns the extended lifetimes and, for each
/// slot, the earlier slot whose buffer it takes over (or `None`). The lifetime of the earlier slot is extended to cover
/// the later slot.
fn in_chains(slots: &[SlotDesc], own_lives: &[Life], chains: &[Life]) -> (Vec<Life>, Vec<Option<usize>>) {
    let first_with = |moment: usize| chains.partition_point(|chain| chain.1 < moment);
    let last_with = |moment: usize| chains.partition_point(|chain| chain.0 <= moment).checked_sub(1);
    let with = |moment: usize| {
        Some(first_with(moment)).filter(|&c| chains.get(c).is_some_and(|chain| chain.0 <= moment))
    };
    let wide = |&(first, last): &Life| {
        let end = last_with(last).map(|chain| chains[chain].1).filter(|&end| end >= last);
        (with(first).map_or(first, |chain| chains[chain].0), end.unwrap_or(last))
    };
    let mut lives: Vec<Life> = own_lives.iter().map(wide).collect();
    let mut places = vec![None; slots.len()];
    let aliased: BTreeSet<usize> = slots.iter().filter_map(|slot| slot.alias).collect();
    // A slot belongs to the chain in which the lifetime of the slot begins. A chain never overwrites values from before the
    // chain: to find the row at which a call failed, the chain runs again from these values.
    let chain_of = |(s, slot): (usize, &SlotDesc)| {
        let own = !slot.persistent && slot.pool.is_none() && slot.alias.is_none() && !aliased.contains(&s);
        let known = !own || slot.rows.known().is_some();
        let life = own_lives[s];
        if known { None } else { with(life.0).map(|chain| (chain, life, s)) }
    };
    let mut touched: Vec<(usize, Life, usize)> = slots.iter().enumerate().filter_map(chain_of).collect();
    touched.sort_unstable();
    // For each chain and row layout: the buffers of the chain's slots. An entry for a buffer is the last moment at
    // which the buffer is taken, and the first slot in the buffer.
    let mut taken: HashMap<_, BinaryHeap<Reverse<(usize, usize)>>> = HashMap::new();
    for (chain, life, s) in touched {
        let SlotDesc { dtype, width, rows, home, .. } = slots[s];
        let alike = taken.entry((chain, dtype, width, rows, home)).or_default();
        let free = alike.peek().filter(|Reverse((until, _))| *until < life.0);
        let first = match free.copied() {
            Some(Reverse((_, first))) => {
                alike.pop();
                places[s] = Some(first);
                lives[first].1 = lives[first].1.max(lives[s].1);
                first
            }
            None => s,
        };
        alike.push(Reverse((life.1, first)));
    }
    (lives, places)
}

/// Returns the buffer of each slot, and the dtype of each buffer. A slot that is not dense has no buffer: the returned number
/// is 0. Buffers are assigned to the largest slots first, so that large slots share buffers with large slots. `chains` holds
/// the first and the last moment of each chain of calls that run chunk by chunk.
pub(crate) fn assign(slots: &[SlotDesc], own_lives: &[Life], chains: &[Life]) -> (Vec<usize>, Vec<DType>) {
    let (lives, places) = in_chains(slots, own_lives, chains);
    let mut of_slot = vec![0; slots.len()];
    let own = |s: &usize| slots[*s].pool.is_none() && slots[*s].alias.is_none() && places[*s].is_none();
    let mut order: Vec<usize> = (0..slots.len()).filter(own).collect();
    order.sort_by_key(|&s| (Reverse(size(&slots[s])), own_lives[s], s));
    let mut dtypes: Vec<DType> = Vec::new();
    let mut dealt: Vec<(DType, BufferTree)> = Vec::new();
    for s in order {
        let slot = &slots[s];
        // A persistent slot swaps its buffer with a buffer of the scope, so no other slot may share that buffer.
        if slot.persistent {
            of_slot[s] = dtypes.len();
            dtypes.push(slot.dtype);
            continue;
        }
        let at = dealt.iter().position(|(dtype, _)| *dtype == slot.dtype).unwrap_or_else(|| {
            dealt.push((slot.dtype, BufferTree::default()));
            dealt.len() - 1
        });
        let of_dtype = &mut dealt[at].1;
        of_slot[s] = match of_dtype.free(lives[s]) {
            Some(buffer) => {
                of_dtype.take(buffer, lives[s]);
                of_dtype.numbers[buffer]
            }
            None => {
                of_dtype.add(dtypes.len(), lives[s]);
                dtypes.push(slot.dtype);
                dtypes.len() - 1
            }
        };
    }
    for (s, position) in places.iter().enumerate() {
        if let Some(first) = *position {
            of_slot[s] = of_slot[first];
        }
    }
    // An alias has a higher number than the slot that it aliases, so the buffer of that slot is already known.
    for (s, slot) in slots.iter().enumerate() {
        if let Some(aliased) = slot.alias {
            of_slot[s] = of_slot[aliased];
        }
    }
    (of_slot, dtypes)
}

/// Returns an estimate of a slot's size. The estimate only serves to compare slots, because the number of rows is not
/// known at compile time.
fn size(slot: &SlotDesc) -> usize {
    const SEQUENCES: usize = 64;
    const ROWS: usize = 4096;
    let rows = match (slot.home, slot.rows) {
        (_, Extent::Known(n)) => n,
        (Home::Stepped(_), _) | (Home::Whole, Extent::Rows(_) | Extent::Data(_)) => ROWS,
        _ => SEQUENCES,
    };
    rows.saturating_mul(slot.width).saturating_mul(slot.dtype.size_of())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(width: usize) -> SlotDesc {
        let (rows, home) = (Extent::Batch, Home::Whole);
        let (persistent, alias, pool) = (false, None, None);
        let var = crate::operator::VarId(0);
        SlotDesc { var, dtype: DType::F32, width, rows, home, persistent, alias, pool }
    }

    /// A slot that a chain touches lives as long as the chain, but slots with equal row layouts may share a buffer one after
    /// another.
    #[test]
    fn slots_of_a_chain() {
        let lives = [(1, 3), (3, 4), (4, 5), (5, 6), (6, 7), (4, 5)];
        let buffers = |chains: &[Life], widths: [usize; 6]| assign(&widths.map(slot), &lives, chains).0;
        let distinct = |buffers: &[usize]| buffers.iter().collect::<BTreeSet<_>>().len();
        // Without a chain, at most three slots live at the same moment.
        assert_eq!(distinct(&buffers(&[], [8; 6])), 3);
        // In a chain from moment 3 to moment 6, slots share buffers one after another, except the slot that exists before the
        // chain.
        assert_eq!(distinct(&buffers(&[(3, 6)], [8; 6])), 4);
        assert_eq!(buffers(&[(3, 6)], [8; 6])[1], buffers(&[(3, 6)], [8; 6])[3]);
        // If the slots have different widths, no slot that the chain touches takes over the buffer of another slot.
        let others = buffers(&[(3, 6)], [8, 7, 6, 5, 4, 3]);
        assert_eq!(distinct(&others), 6, "{others:?}");
    }

    /// The tree finds the same buffer as a linear search through all buffers: the last free buffer.
    #[test]
    fn a_slot_gets_the_last_buffer_that_is_free() {
        let mut seed = 1u64;
        let mut draw = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % below
        };
        for times in [1, 5, 40, 200] {
            let mut dealt = BufferTree::default();
            let mut plain: Vec<Vec<(usize, usize)>> = Vec::new();
            let mut reused = 0;
            for _ in 0..300 {
                let first = draw(times);
                let life = (first, (first + draw(1 + times / 3)).min(times - 1));
                let apart = |lives: &Vec<(usize, usize)>| lives.iter().all(|l| l.1 < life.0 || life.1 < l.0);
                let expected = plain.iter().rposition(apart);
                assert_eq!(dealt.free(life), expected, "{life:?}");
                match expected {
                    Some(at) => {
                        dealt.take(at, life);
                        plain[at].push(life);
                        reused += 1;
                    }
                    None => {
                        dealt.add(plain.len(), life);
                        plain.push(vec![life]);
                    }
                }
            }
            assert!(times < 40 || reused > 50, "{times}: {reused}");
        }
    }
}
