//! The memory that a plan needs, as terms over the counts of a batch.

use std::any::TypeId;

use crate::executor::plan::{
    BufferNeed, CallNeed, EntryTerm, Growth, Home, InnerLevel, Instr, LevelBound, Loop, LoopRows, Needs,
    OpInstr, PoolNeed, Quantity, Slot,
};
use crate::operator::context::OperandPosition;
use crate::operator::keys::RowKey;
use crate::operator::{BlockId, CallRoom, CallSlot, Extent, LevelId, MatrixUnit, Pass, Spec, StorageBound};
use crate::program::Role;
use crate::tensor::StorageKind;

/// Returns the memory needs of the slots, and of the calls and loops in `code`. `moments[i]` is the moment of
/// instruction `i` of `code`. `keyed` are the blocks whose frames have row keys for instructions outside the block.
pub(crate) fn needs(
    slots: &[Slot],
    pools: &[StorageKind],
    (code, moments): (&[Instr], &[usize]),
    keyed: &[BlockId],
    unit: MatrixUnit,
) -> Needs {
    let (mut loops, mut at_once) = (Vec::new(), Vec::new());
    collect(code, false, &mut |instr, in_steps| {
        loops.push(instr);
        if !in_steps {
            at_once.push(instr.desc.block);
        }
    });
    let mut calls = Vec::new();
    for (&moment, instr) in moments.iter().zip(code) {
        gather_calls(std::slice::from_ref(instr), false, &mut |call, in_loop| {
            calls.push((moment, call, in_loop))
        });
    }
    let made = calls.iter().flat_map(|(_, call, _)| call.made.iter().map(|&(level, _)| level)).collect();
    let mut counting = Counting { loops, at_once, made, needs: Needs { unit, ..Needs::default() } };
    for slot in slots.iter().filter(|slot| slot.pool.is_none() && !slot.persistent) {
        counting.slot(slot);
    }
    counting.needs.buffers.sort_by_key(|need| need.buffer);
    let mut seen: Vec<BlockId> = Vec::new();
    for instr in counting.loops.clone() {
        // The loops of the backward pass use the frames of the forward pass.
        if !seen.contains(&instr.desc.block) {
            seen.push(instr.desc.block);
            counting.frame(instr, instr.random || keyed.contains(&instr.desc.block));
        }
    }
    let mut pools = Pools { slots, kinds: pools, needs: vec![None; slots.len()] };
    let mut scratch: Vec<(TypeId, usize)> = Vec::new();
    for &(moment, call, in_loop) in &calls {
        counting.level_bounds(call);
        pools.write(moment, call, &mut counting);
        let stored = pools.operands(moment, call, &mut counting);
        counting.call((slots, call), in_loop, &mut scratch, stored);
    }
    counting.needs.pools = pools.needs.into_iter().flatten().collect();
    counting.needs.pools.sort_by_key(|need| need.pool);
    let stores = counting.needs.calls.iter().enumerate().filter_map(|(at, call)| Some((call.prepared?, at)));
    counting.needs.packed = stores.collect();
    counting.needs.packed.sort_unstable();
    counting.needs
}

/// Passes the operator of each instruction to `found`, and whether the operator runs step by step. An operator is left
/// out if another operator computes its results in training.
fn gather_calls<'p>(code: &'p [Instr], in_loop: bool, found: &mut dyn FnMut(&'p OpInstr, bool)) {
    for instr in code {
        match instr {
            Instr::Op(op) if op.stands_for.as_ref().is_some_and(|note| note.superseded) => {}
            Instr::Op(op) | Instr::Levels(op) => found(op, in_loop || op.span == LoopRows::Steps),
            Instr::Loop(inner) => {
                gather_calls(&inner.before, in_loop, found);
                gather_calls(&inner.body, true, found);
                gather_calls(&inner.after, in_loop, found);
            }
            Instr::Zero(..) | Instr::Reorder { .. } => {}
        }
    }
}

/// Passes each loop to `found`, and whether the loop runs in the steps of an outer loop.
fn collect<'p>(code: &'p [Instr], in_steps: bool, found: &mut dyn FnMut(&'p Loop, bool)) {
    for instr in code {
        if let Instr::Loop(inner) = instr {
            found(inner, in_steps || inner.span == LoopRows::Steps);
            collect(&inner.before, in_steps, found);
            collect(&inner.body, true, found);
            collect(&inner.after, in_steps, found);
        }
    }
}

struct Counting<'p> {
    loops: Vec<&'p Loop>,
    /// The blocks with a loop that does not run in the steps of an outer loop.
    at_once: Vec<BlockId>,
    /// The levels that operators make from values.
    made: Vec<LevelId>,
    needs: Needs,
}

impl<'p> Counting<'p> {
    fn slot(&mut self, slot: &Slot) {
        let quantity = match (slot.home, slot.rows) {
            (_, Extent::Known(rows)) => {
                let unit = rows.saturating_mul(slot.width).saturating_mul(slot.dtype.size_of());
                return self.buffer(slot, Quantity::One, unit);
            }
            // The loop of the step block reserves a slot with the rows of `Extent::Alive`. The rows of `Extent::Data`
            // are known only after the operator has run.
            (Home::Whole, Extent::Alive(_)) | (_, Extent::Data(_)) => return,
            (Home::Whole | Home::Stepped(_), rows) => self.total(rows),
            (Home::Sequence(block), Extent::Rows(level)) => self.largest_step(block, level),
            (Home::Sequence(block), _) => self.sequences_of_visit(block),
        };
        self.buffer(slot, quantity, slot.width.saturating_mul(slot.dtype.size_of()));
    }

    fn buffer(&mut self, slot: &Slot, quantity: Quantity, unit: usize) {
        // One visit of a loop inside a loop has only some of the sequences that the quantity counts.
        let visited = match slot.home {
            Home::Sequence(block) => self.of_block(block).is_some_and(|instr| instr.parent.0 > 0),
            Home::Whole | Home::Stepped(_) => false,
        };
        let growth = match &quantity {
            _ if visited => Growth::Visits,
            Quantity::Visits { .. } | Quantity::Larger(_) | Quantity::Made(_) | Quantity::LargestMade(_) => {
                Growth::Visits
            }
            quantity if self.is_made(quantity) => Growth::Once,
            _ => Growth::Before,
        };
        let quantity = self.needs.index(quantity);
        self.needs.buffers.push(BufferNeed {
            buffer: slot.buffer,
            first: slot.life.0,
            quantity,
            unit,
            growth,
        });
    }

    /// Returns whether a quantity counts rows of a level that an operator of the root block makes.
    fn is_made(&self, quantity: &Quantity) -> bool {
        let made = |level: &LevelId| self.made.contains(level);
        match quantity {
            Quantity::Rows(level) | Quantity::Longest(level) => made(level),
            Quantity::Repeated { over, rows } | Quantity::LargestStep { over, rows } => {
                made(over) || rows.iter().any(made)
            }
            _ => false,
        }
    }

    /// Adds the memory of a loop's frame: the row order, the levels and, if `keys` is true, the row keys.
    fn frame(&mut self, instr: &Loop, keys: bool) {
        let key = if keys { size_of::<RowKey>() } else { 0 };
        let word = size_of::<usize>();
        let (rows, longest) = (self.total(Extent::Rows(instr.desc.level)), self.longest(instr.desc.level));
        let sequences = self.sequences(instr.desc.block);
        // The rank table lists the sequences, steps and rows; the frame has the inverse lists of sequences and rows.
        self.order(rows, 2 * word + key);
        self.order(sequences, 2 * word + key);
        self.order(longest, word);
        for inner in &instr.inner {
            let rows = self.total(Extent::Rows(inner.outer));
            let longest = self.longest(instr.desc.level);
            let sequences = match inner.above {
                Some(above) => self.total(Extent::Rows(instr.inner[above].outer)),
                None if inner.statics => self.sequences(instr.desc.block),
                None => self.total(Extent::Rows(instr.desc.level)),
            };
            self.order(rows.clone(), 2 * word + if inner.statics { 0 } else { key });
            if inner.statics {
                let repeated = self.total(Extent::Rows(inner.inner));
                self.order(repeated, key);
            }
            // The rows in the frame's order and their inverse; three lists of offsets: of all steps, of one step, of static sequences.
            self.order(sequences, 3 * word);
            self.order(longest, word);
        }
        for made in &instr.levels {
            let longest = self.longest(instr.desc.level);
            self.order(Quantity::Made(made.level), key);
            let above = match made.above {
                Some(above) if above < instr.inner.len() => {
                    let inner = &instr.inner[above];
                    self.total(Extent::Rows(if inner.statics { inner.inner } else { inner.outer }))
                }
                Some(above) => Quantity::Made(instr.levels[above - instr.inner.len()].level),
                None => self.total(Extent::Rows(instr.desc.level)),
            };
            self.order(above, 3 * word);
            self.order(longest, word);
        }
    }

    /// Adds a call to the needs if the operator of the call declares memory.
    fn call(
        &mut self,
        (slots, call): (&[Slot], &OpInstr),
        in_loop: bool,
        known: &mut Vec<(TypeId, usize)>,
        stored: Vec<(CallSlot, PoolNeed)>,
    ) {
        let mut need = CallNeed {
            op: call.op.clone(),
            in_loop,
            scratch: Vec::new(),
            pass: call.pass,
            prepared: call.prepared,
            wanted: call.wanted.clone(),
            inputs: call.inputs.clone(),
            outputs: call.outputs.clone(),
            rows: Vec::new(),
            stored,
            longest: Vec::new(),
            pairs: call.pairs(slots),
        };
        let specs: Vec<&Spec> = call.inputs.iter().chain(&call.outputs).flatten().collect();
        for spec in specs {
            let rows = spec.rows();
            if rows.known().is_none() && !need.rows.iter().any(|(known, _)| *known == rows) {
                let quantity = if in_loop { self.in_step(rows) } else { self.total(rows) };
                need.rows.push((rows, self.needs.index(quantity)));
            }
            if let Some(&level) = spec.lod.last()
                && !need.longest.iter().any(|(known, _)| *known == level)
            {
                let longest = self.longest(level);
                need.longest.push((level, self.needs.index(longest)));
            }
        }
        // A call is left out if its operator declares no memory for a batch in which each count is 256.
        let memory = need.memory((&vec![256; self.needs.quantities.len()], &[]), self.needs.unit, 2);
        if memory.prepared == 0 && memory.scratch.iter().all(|&(_, bytes)| bytes == 0) {
            return;
        }
        for (at, &(id, _)) in memory.scratch.iter().enumerate() {
            let vector = memory.scratch[..at].iter().filter(|(before, _)| *before == id).count();
            let shared = known.iter().position(|&one| one == (id, vector) && id != TypeId::of::<CallRoom>());
            need.scratch.push(shared.unwrap_or_else(|| {
                known.push((id, vector));
                known.len() - 1
            }));
        }
        self.needs.calls.push(need);
    }

    /// Returns the number of rows that an extent counts in the largest step of a loop.
    fn in_step(&self, rows: Extent) -> Quantity {
        match rows {
            Extent::Alive(block) => self.sequences_of_visit(block),
            Extent::Rows(level) => match self.inner(level) {
                Some((instr, _)) => self.largest_step(instr.desc.block, level),
                None if self.is_made_in_step(level) => Quantity::LargestMade(level),
                None => self.total(rows),
            },
            other => self.total(other),
        }
    }

    /// Returns a term: the number of rows that an extent counts, multiplied by `factor`.
    fn rows_of(&mut self, rows: Extent, factor: usize) -> EntryTerm {
        match rows {
            Extent::Known(rows) => (self.needs.index(Quantity::One), rows.saturating_mul(factor)),
            rows => {
                let total = self.total(rows);
                (self.needs.index(total), factor)
            }
        }
    }

    /// Adds the bounds of the levels that a call makes from values.
    fn level_bounds(&mut self, call: &OpInstr) {
        let Some((slot, factor)) = call.op.most_rows(&call.inputs) else { return };
        let specs = &call.inputs[slot];
        for &(level, _) in &call.made {
            let rows = |spec: &Spec| match spec.rows() {
                Extent::Known(rows) => (Quantity::One, rows.saturating_mul(factor)),
                rows => (self.total(rows), factor),
            };
            let longest = |spec: &Spec| match spec.lod.last() {
                Some(&level) if factor == 1 => (self.longest(level), 1),
                _ => (Quantity::One, factor),
            };
            let (rows, longest) = (specs.iter().map(rows).collect(), specs.iter().map(longest).collect());
            self.needs.bounds.push(LevelBound { level, rows, longest });
        }
    }

    fn order(&mut self, quantity: Quantity, unit: usize) {
        let index = self.needs.index(quantity);
        match self.needs.orders.iter_mut().find(|(known, _)| *known == index) {
            Some((_, known)) => *known += unit,
            None => self.needs.orders.push((index, unit)),
        }
    }

    fn of_block(&self, block: BlockId) -> Option<&'p Loop> {
        self.loops.iter().copied().find(|instr| instr.desc.block == block)
    }

    /// Returns the loop that binds a level of its step block to a level outside the block, and the binding.
    fn inner(&self, level: LevelId) -> Option<(&'p Loop, &'p InnerLevel)> {
        self.loops.iter().find_map(|&instr| {
            instr
                .inner
                .iter()
                .find(|inner| inner.inner == level && inner.outer != level)
                .map(|inner| (instr, inner))
        })
    }

    fn is_made_in_step(&self, level: LevelId) -> bool {
        self.loops.iter().any(|instr| instr.levels.iter().any(|made| made.level == level))
    }

    /// Returns the number of rows that an extent counts over all steps of all visits.
    fn total(&self, extent: Extent) -> Quantity {
        match extent {
            Extent::Batch => Quantity::Batch,
            Extent::Known(_) | Extent::Data(_) => Quantity::One,
            Extent::Alive(block) => self
                .of_block(block)
                .map_or(Quantity::One, |instr| self.in_loop(block, Extent::Rows(instr.desc.level))),
            Extent::Rows(level) => match self.inner(level) {
                Some((instr, inner)) if inner.statics => self.repeated(instr, inner),
                Some((_, inner)) => self.around(inner.outer),
                None if self.is_made_in_step(level) => Quantity::Made(level),
                None => Quantity::Rows(level),
            },
        }
    }

    /// Returns the number of rows of a level in the block around a loop. The calls of that block run at each step, or
    /// once for all sequences, so a static level of that block counts with the larger of the two numbers of rows.
    fn around(&self, level: LevelId) -> Quantity {
        match self.inner(level) {
            Some((instr, inner)) if inner.statics => {
                Quantity::Larger(Box::new([self.repeated(instr, inner), self.around(inner.outer)]))
            }
            Some((_, inner)) => self.around(inner.outer),
            None => self.total(Extent::Rows(level)),
        }
    }

    /// Returns whether every loop of a block runs in the steps of an outer loop. A visit then has the rows of one step.
    fn is_visited(&self, block: BlockId) -> bool {
        self.of_block(block).is_some() && !self.at_once.contains(&block)
    }

    /// Returns the largest number of sequences of a loop in one visit; an outer loop has all its sequences at step 0.
    fn sequences_of_visit(&self, block: BlockId) -> Quantity {
        match self.of_block(block).filter(|_| self.is_visited(block)).map(|instr| instr.sequences) {
            Some(Extent::Alive(outer)) => self.sequences_of_visit(outer),
            Some(rows) => self.in_step(rows),
            None => self.sequences(block),
        }
    }

    /// Returns the number of sequences of a loop, in all visits together.
    fn sequences(&self, block: BlockId) -> Quantity {
        self.of_block(block).map_or(Quantity::Batch, |instr| self.in_loop(block, instr.sequences))
    }

    /// Returns the number of rows that an extent of the outer block counts for the loops of `block`. A loop that runs
    /// once for all sequences of the outer block, and not at each step, has one row per sequence, and the rows of a
    /// static input once.
    fn in_loop(&self, block: BlockId, extent: Extent) -> Quantity {
        let all = match extent {
            Extent::Rows(level) => self.around(level),
            other => self.total(other),
        };
        // The loops of the backward pass use the rows of the forward pass.
        let of_block = || self.loops.iter().filter(|instr| instr.desc.block == block);
        let backward_alone = of_block().all(|instr| instr.backward);
        let mut loops = of_block().filter(|instr| backward_alone || !instr.backward);
        let once = |instr: &Loop| instr.span == LoopRows::Sequences;
        if !loops.clone().any(|instr| once(instr)) {
            return all;
        }
        let of_sequences = match extent {
            Extent::Alive(outer) => self.sequences(outer),
            Extent::Rows(level) => match self.inner(level) {
                Some((_, inner)) if inner.statics => self.around(inner.outer),
                _ => return all,
            },
            _ => return all,
        };
        if loops.all(|instr| once(instr)) {
            of_sequences
        } else {
            Quantity::Larger(Box::new([all, of_sequences]))
        }
    }

    /// Returns the number of steps of the longest sequence of a level; for a level of a step block, an upper bound.
    fn longest(&self, level: LevelId) -> Quantity {
        match self.inner(level) {
            Some((_, inner)) => self.longest(inner.outer),
            None if self.is_made_in_step(level) => Quantity::Made(level),
            None => Quantity::Longest(level),
        }
    }

    /// Returns the root block's levels for a level of a loop and for the levels above it in the loop, top first. `None`
    /// if the loop runs over a level of an outer step block, or if one of the outer levels belongs to an outer step
    /// block.
    fn root_levels(&self, instr: &Loop, inner: &InnerLevel) -> Option<Vec<LevelId>> {
        if self.inner(instr.desc.level).is_some() || self.is_made_in_step(instr.desc.level) {
            return None;
        }
        let mut levels = Vec::new();
        let mut this = Some(inner);
        while let Some(inner) = this {
            if self.inner(inner.outer).is_some() || self.is_made_in_step(inner.outer) {
                return None;
            }
            levels.push(inner.outer);
            this = inner.above.map(|above| &instr.inner[above]);
        }
        levels.reverse();
        Some(levels)
    }

    fn repeated(&self, instr: &Loop, inner: &InnerLevel) -> Quantity {
        match self.root_levels(instr, inner) {
            Some(rows) => Quantity::Repeated { over: instr.desc.level, rows },
            None => Quantity::Visits {
                level: inner.inner,
                most: Box::new([self.longest(instr.desc.level), self.around(inner.outer)]),
            },
        }
    }

    /// Returns the number of rows of a level in the largest step of a loop; for a static level, in all sequences.
    fn largest_step(&self, block: BlockId, level: LevelId) -> Quantity {
        let found = self.of_block(block).and_then(|instr| {
            instr.inner.iter().find(|inner| inner.inner == level).map(|inner| (instr, inner))
        });
        match found {
            Some((_, inner)) if self.is_visited(block) => self.in_step(Extent::Rows(inner.outer)),
            Some((_, inner)) if inner.statics => self.around(inner.outer),
            Some((instr, inner)) => match self.root_levels(instr, inner) {
                Some(rows) => Quantity::LargestStep { over: instr.desc.level, rows },
                None => self.around(inner.outer),
            },
            None if self.is_made_in_step(level) => Quantity::LargestMade(level),
            None => self.total(Extent::Rows(level)),
        }
    }
}

/// The values that are not dense, by slot.
struct Pools<'p> {
    slots: &'p [Slot],
    kinds: &'p [StorageKind],
    /// The need of each slot that a call has written, or that holds a feed.
    needs: Vec<Option<PoolNeed>>,
}

impl Pools<'_> {
    /// Returns the slot that uses a pool number at a moment; `None` if the scope keeps the value.
    fn slot(&self, pool: usize, moment: usize) -> Option<usize> {
        let uses = |slot: &Slot| slot.pool == Some(pool) && slot.life.0 <= moment && moment <= slot.life.1;
        self.slots.iter().position(uses).filter(|&at| !self.slots[at].persistent)
    }

    /// Returns whether a slot holds selected rows, and not a sparse matrix.
    fn by_rows(&self, slot: usize) -> bool {
        self.slots[slot].pool.is_some_and(|pool| self.kinds[pool] == StorageKind::SelectedRows)
    }

    /// Returns the need of a slot that has no entries yet.
    fn empty(&self, slot: usize, counting: &mut Counting<'_>) -> PoolNeed {
        let Slot { pool, dtype, width, rows, .. } = self.slots[slot];
        let word = size_of::<i64>();
        let (numbers, offsets) = if self.by_rows(slot) { (width, 0) } else { (1, word) };
        let offsets = counting.rows_of(rows, offsets);
        let entry = numbers.saturating_mul(dtype.size_of()).saturating_add(word);
        PoolNeed { pool: pool.unwrap_or(0), entries: Vec::new(), entry, offsets, appended: false }
    }

    /// Returns the need of an operand. An operand that no call has written is a feed.
    fn need(
        &mut self,
        position: OperandPosition,
        moment: usize,
        counting: &mut Counting<'_>,
    ) -> Option<PoolNeed> {
        let slot = self.slot(pool(position)?, moment)?;
        if self.needs[slot].is_none() {
            let mut need = self.empty(slot, counting);
            need.entries.push((counting.needs.index(Quantity::Fed(self.slots[slot].var)), 1));
            self.needs[slot] = Some(need);
        }
        self.needs[slot].clone()
    }

    /// Returns the operands of a call that are not dense, each with its need.
    fn operands(
        &mut self,
        moment: usize,
        call: &OpInstr,
        counting: &mut Counting<'_>,
    ) -> Vec<(CallSlot, PoolNeed)> {
        let mut found = Vec::new();
        let inputs = call.wiring.inputs.iter().enumerate().map(|(k, refs)| (CallSlot::Input(k), refs));
        let outputs = call.wiring.outputs.iter().enumerate().map(|(k, refs)| (CallSlot::Output(k), refs));
        for (slot, positions) in inputs.chain(outputs) {
            for &position in positions {
                found.extend(self.need(position, moment, counting).map(|need| (slot, need)));
            }
        }
        found
    }

    /// Adds the entries that a call writes: to its outputs, or to the gradients of its inputs. An output that a call
    /// updates in place keeps its number of entries.
    fn write(&mut self, moment: usize, call: &OpInstr, counting: &mut Counting<'_>) {
        let wiring = &call.wiring;
        let mut written = Vec::new();
        match call.pass {
            Pass::Forward => {
                for (k, to) in wiring.outputs.iter().enumerate() {
                    written.extend(
                        to.iter().zip(&call.outputs[k]).map(|(&at, spec)| (at, spec, call.op.stored(k))),
                    );
                }
            }
            Pass::Backward => {
                for (k, to) in wiring.input_gradients.iter().enumerate() {
                    let bound = call.op.stored_gradient(k);
                    written.extend(to.iter().zip(&call.inputs[k]).map(|(&(at, _), spec)| (at, spec, bound)));
                }
            }
        }
        for (position, spec, bound) in written {
            let Some(slot) = pool(position).and_then(|number| self.slot(number, moment)) else { continue };
            let updated = call.wiring.inputs.iter().flatten().any(|&input| input == position);
            let updates = call.pass == Pass::Forward && call.role == Role::Update;
            if updated || updates {
                continue;
            }
            let entries = self.entries(slot, call, bound, moment, spec, counting);
            let empty = self.empty(slot, counting);
            // A forward call appends the entries of a matrix one after another; a gradient of a matrix copies the
            // positions of all entries at once.
            let appended = call.pass == Pass::Forward && !self.by_rows(slot);
            let need = self.needs[slot].get_or_insert(empty);
            need.entries.extend(entries);
            need.appended |= appended;
        }
    }

    /// Returns the terms for the number of entries that a call writes to a slot.
    fn entries(
        &mut self,
        slot: usize,
        call: &OpInstr,
        bound: StorageBound,
        moment: usize,
        spec: &Spec,
        counting: &mut Counting<'_>,
    ) -> Vec<EntryTerm> {
        let by_rows = self.by_rows(slot);
        let slots: &[usize] = match &bound {
            StorageBound::Everything => {
                return vec![counting.rows_of(spec.rows(), if by_rows { 1 } else { spec.width() })];
            }
            StorageBound::PerRow(slot, count) => {
                return call.inputs[*slot].iter().map(|spec| counting.rows_of(spec.rows(), *count)).collect();
            }
            StorageBound::Together(slots) | StorageBound::Least(slots) => slots,
        };
        let mut terms = Vec::new();
        for &k in slots {
            for (&position, spec) in call.wiring.inputs[k].iter().zip(&call.inputs[k]) {
                match self.need(position, moment, counting) {
                    Some(need) if matches!(bound, StorageBound::Least(_)) => return need.entries,
                    Some(need) => terms.extend(need.entries),
                    None if matches!(bound, StorageBound::Least(_)) => {}
                    None => terms.push(counting.rows_of(spec.rows(), 1)),
                }
            }
        }
        terms
    }
}

fn pool(position: OperandPosition) -> Option<usize> {
    match position {
        OperandPosition::Pooled(number) => Some(number),
        OperandPosition::Dense(_) | OperandPosition::Absent => None,
    }
}
