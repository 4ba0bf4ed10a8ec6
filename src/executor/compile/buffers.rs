//! Assigns buffers to slots: slots of one dtype whose lifetimes do not overlap share a buffer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use super::slots::SlotDesc;
use crate::executor::plan::Home;
use crate::operator::Extent;
use crate::tensor::DType;

/// Lifetimes that do not overlap, first to last.
type Lives = BTreeMap<usize, usize>;
type Life = (usize, usize);

/// The intersections of `lives` with one lifetime.
fn overlap(lives: &Lives, (first, last): Life) -> impl Iterator<Item = Life> {
    let before = lives.range(..first).next_back();
    let all = before.into_iter().chain(lives.range(first..=last));
    all.filter(move |(_, end)| **end >= first).map(move |(&from, &to)| (from.max(first), to.min(last)))
}

/// The buffers of one dtype during assignment: a tree whose nodes know when all of their buffers are taken, so that buffers
/// need not be searched one by one, as in long chains whose values wait for their gradients.
#[derive(Default)]
struct BufferTree {
    /// The number of each buffer among the buffers of all dtypes.
    numbers: Vec<usize>,
    /// The buffers, then pairs of buffers, then pairs of pairs, up to one node for all.
    levels: Vec<Vec<Lives>>,
}

impl BufferTree {
    /// The last buffer that is free for a lifetime.
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

    /// Adds a buffer, taken for a lifetime.
    fn add(&mut self, number: usize, life: Life) {
        let buffer = self.numbers.len();
        self.numbers.push(number);
        for level in 0.. {
            if level == self.levels.len() {
                // The level below had one node for all buffers: the new level's first node starts with its lifetimes.
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

    /// Takes a free buffer for a lifetime.
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

/// Extends the lifetimes of slots in chains, which run chunk by chunk between two moments each. All of a chain's calls run
/// on the first rows before the first call runs on the others, so a slot that the chain touches lives from the chain's
/// beginning to its end. Slots that begin in a chain and have the same row layout may still follow one another in one
/// buffer, row by row, as if there were no chain. The second list names, for each slot, the slot whose buffer it takes over;
/// that slot lives as long as all of its successors.
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
    // Each slot belongs to the chain in which its lifetime begins. A chain does not overwrite values from before it: to find the
    // row at which a call failed, the chain runs again from these values.
    let chain_of = |(s, slot): (usize, &SlotDesc)| {
        let own = !slot.persistent && slot.pool.is_none() && slot.alias.is_none() && !aliased.contains(&s);
        let known = !own || slot.rows.known().is_some();
        let life = own_lives[s];
        if known { None } else { with(life.0).map(|chain| (chain, life, s)) }
    };
    let mut touched: Vec<(usize, Life, usize)> = slots.iter().enumerate().filter_map(chain_of).collect();
    touched.sort_unstable();
    // By chain and by row layout: the moment until which each buffer is taken, and its first slot.
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

/// The buffer of each slot, and the dtypes of the buffers. A slot that is not dense has no buffer: its entry is 0. The largest
/// slots come first, and each takes the smallest buffer that is free while it lives; so large slots share buffers with one
/// another, and small slots do not prevent it. `chains` are the moments between which calls run chunk by chunk.
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
        // A persistent slot is exchanged with the scope's buffer, and so must have its buffer alone.
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
    for (s, place) in places.iter().enumerate() {
        if let Some(first) = *place {
            of_slot[s] = of_slot[first];
        }
    }
    // An alias comes after its slot.
    for (s, slot) in slots.iter().enumerate() {
        if let Some(of) = slot.alias {
            of_slot[s] = of_slot[of];
        }
    }
    (of_slot, dtypes)
}

/// The estimated size of a slot, to compare with other slots: the batch is not known yet.
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

    /// A slot that a chain touches lives as long as the chain, but slots of the same row layout may follow one another.
    #[test]
    fn slots_of_a_chain() {
        let lives = [(1, 3), (3, 4), (4, 5), (5, 6), (6, 7), (4, 5)];
        let buffers = |chains: &[Life], widths: [usize; 6]| assign(&widths.map(slot), &lives, chains).0;
        let distinct = |buffers: &[usize]| buffers.iter().collect::<BTreeSet<_>>().len();
        // At most three live at once.
        assert_eq!(distinct(&buffers(&[], [8; 6])), 3);
        // In a chain from the third moment to the sixth they follow one another row by row, except the slot that existed before.
        assert_eq!(distinct(&buffers(&[(3, 6)], [8; 6])), 4);
        assert_eq!(buffers(&[(3, 6)], [8; 6])[1], buffers(&[(3, 6)], [8; 6])[3]);
        // With other widths, no slot that the chain touches follows another in its buffer.
        let others = buffers(&[(3, 6)], [8, 7, 6, 5, 4, 3]);
        assert_eq!(distinct(&others), 6, "{others:?}");
    }

    /// The tree finds the last free buffer, as a search through all buffers does.
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
