//! The memory that a plan needs, as terms: a number of bytes, times a count of the batch.

use std::sync::Arc;

use crate::operator::{CallMemory, CallSizes, CallSlot, Extent, LevelId, MatrixUnit, Op, Pass, Spec, VarId};

/// A count of a batch, on which the sizes of buffers depend.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Quantity {
    /// The number 1.
    One,
    Batch,
    /// The number of rows of a level of the root block.
    Rows(LevelId),
    /// The length of the longest sequence of a level of the root block.
    Longest(LevelId),
    /// The number of rows that a static input has over all steps of a loop: each sequence of the loop has the rows of its static
    /// sequence once per step. `rows` are levels of the root block, top first.
    Repeated {
        over: LevelId,
        rows: Vec<LevelId>,
    },
    /// The largest number of rows that a step of a loop has in a level below the loop's level. `rows` are levels of the root block,
    /// top first.
    LargestStep {
        over: LevelId,
        rows: Vec<LevelId>,
    },
    Larger(Box<[Quantity; 2]>),
    /// The number of rows that a static input of a loop in a loop has over all steps of all visits. Before the run, the product of
    /// two quantities is the upper bound.
    Visits {
        level: LevelId,
        most: Box<[Quantity; 2]>,
    },
    /// The number of rows of a level that an operator of a step block makes.
    Made(LevelId),
    /// The largest number of rows that one step has in a level that an operator of a step block makes.
    LargestMade(LevelId),
    /// The number of entries, or of selected rows, of a sparse feed.
    Fed(VarId),
}

/// The bytes that a slot needs in its buffer: `unit` times the value of a quantity.
#[derive(Debug, Clone)]
pub(crate) struct BufferNeed {
    pub(crate) buffer: usize,
    /// The first instruction of the root block that uses the slot. A run that ends before this instruction does not
    /// reserve the slot.
    pub(crate) first: usize,
    /// The index of the quantity in [`Needs::quantities`].
    pub(crate) quantity: usize,
    pub(crate) unit: usize,
    pub(crate) growth: Growth,
}

/// When the buffer of a slot grows to the slot's size. A buffer that grows keeps its contents, so its old and its new
/// memory exist at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    Before,
    /// Once an operator of the root block has made a level.
    Once,
    /// From visit to visit of a loop, because the need is an upper bound, or is known only during the visits.
    Visits,
}

/// A term of a number of entries: the index of a quantity, and the factor by which the quantity is multiplied.
pub(crate) type EntryTerm = (usize, usize);

/// The maximum number of bytes of a value that is not dense.
#[derive(Debug, Clone)]
pub(crate) struct PoolNeed {
    pub(crate) pool: usize,
    /// The terms whose sum is the number of entries, or of selected rows.
    pub(crate) entries: Vec<EntryTerm>,
    pub(crate) entry: usize,
    /// The term of the offsets of a matrix, in bytes; 0 bytes for selected rows.
    pub(crate) offsets: EntryTerm,
    /// Whether a call appends the entries one after another, so that the memory grows to at most twice the entries.
    pub(crate) appended: bool,
}

impl PoolNeed {
    pub(crate) fn entries(&self, values: &[usize]) -> usize {
        let counts = self.entries.iter().map(|&(quantity, factor)| values[quantity].saturating_mul(factor));
        counts.fold(0, usize::saturating_add)
    }

    /// Returns whether the memory grows while it holds entries.
    pub(crate) fn grows(&self) -> bool {
        self.appended || self.entries.len() > 1
    }

    pub(crate) fn bytes(&self, values: &[usize]) -> usize {
        let offsets = values[self.offsets.0].saturating_add(2).saturating_mul(self.offsets.1);
        let factor = if self.grows() { 2 } else { 1 };
        self.entries(values).saturating_mul(self.entry * factor).saturating_add(offsets)
    }
}

/// An upper bound for the size of a level whose offsets depend on values.
#[derive(Debug, Clone)]
pub(crate) struct LevelBound {
    pub(crate) level: LevelId,
    /// The maximum number of rows: a sum of quantities, each multiplied by a factor.
    pub(crate) rows: Vec<(Quantity, usize)>,
    /// The maximum length of a sequence: a sum of quantities, each multiplied by a factor.
    pub(crate) longest: Vec<(Quantity, usize)>,
}

/// A call whose operator declares memory beside its operands.
pub(crate) struct CallNeed {
    pub(crate) op: Arc<dyn Op>,
    /// Whether the call runs step by step in a loop.
    pub(crate) in_loop: bool,
    /// For each scratch vector that the operator declares, its number. Calls whose scratch vectors have the same number
    /// share the memory.
    pub(crate) scratch: Vec<usize>,
    pub(crate) pass: Pass,
    /// The number of the store for the call's packed constants.
    pub(crate) prepared: Option<usize>,
    pub(crate) wanted: Vec<bool>,
    pub(crate) inputs: Vec<Vec<Spec>>,
    pub(crate) outputs: Vec<Vec<Spec>>,
    /// For each extent of the operands' rows, the index of the quantity that counts these rows.
    pub(crate) rows: Vec<(Extent, usize)>,
    /// The slot of each sparse operand, and its need in the pool.
    pub(crate) stored: Vec<(CallSlot, PoolNeed)>,
    /// For the last level of each input and output: the index of a quantity. This quantity is the length of the
    /// longest sequence of the level.
    pub(crate) longest: Vec<(LevelId, usize)>,
    pub(crate) pairs: Vec<CallSlot>,
}

impl CallNeed {
    /// Computes the memory of the call; `values` has the value of each quantity, and `pools` the bytes that each pool
    /// number takes after a run (empty before a run). The order of the scratch sizes is always the same.
    pub(crate) fn memory(
        &self,
        (values, pools): (&[usize], &[usize]),
        unit: MatrixUnit,
        threads: usize,
    ) -> CallMemory {
        let known = |extent: Extent| self.rows.iter().find(|(known, _)| *known == extent);
        let rows = |extent: Extent| match extent {
            Extent::Known(rows) => rows,
            extent => known(extent).map_or(0, |(_, quantity)| values[*quantity]),
        };
        let stored = |slot: CallSlot| {
            let needs = self.stored.iter().filter(|(owner, _)| *owner == slot);
            let most = |need: &PoolNeed| pools.get(need.pool).map_or(usize::MAX, |bytes| bytes / need.entry);
            needs.map(|(_, need)| need.entries(values).min(most(need))).fold(0, usize::saturating_add)
        };
        let longest = |level: LevelId| {
            let known = self.longest.iter().find(|(known, _)| *known == level);
            known.map_or(0, |(_, quantity)| values[*quantity])
        };
        self.op.memory(&CallSizes {
            pass: self.pass,
            threads,
            unit,
            in_loop: self.in_loop,
            prepared: self.prepared.is_some(),
            wanted: &self.wanted,
            inputs: &self.inputs,
            outputs: &self.outputs,
            rows: &rows,
            stored: &stored,
            longest: &longest,
            pairs: &self.pairs,
        })
    }
}

/// The memory that a plan needs beside persistent variables.
#[derive(Default)]
pub(crate) struct Needs {
    /// The unit that computes matrix products.
    pub(crate) unit: MatrixUnit,
    pub(crate) quantities: Vec<Quantity>,
    /// The needs of the buffers, in ascending order of the buffers: a buffer has the size of its largest need.
    pub(crate) buffers: Vec<BufferNeed>,
    /// The needs of the values that are not dense, in ascending order of the pool numbers. The values with one pool number
    /// share a storage, which has the size of the largest of these values.
    pub(crate) pools: Vec<PoolNeed>,
    /// The calls whose operators declare memory.
    pub(crate) calls: Vec<CallNeed>,
    /// The stores for packed constants, in ascending order, each with a call (an index of `calls`) that uses the store.
    pub(crate) packed: Vec<(usize, usize)>,
    /// The bounds for the levels whose offsets depend on values.
    pub(crate) bounds: Vec<LevelBound>,
    /// The bytes of the row orders, levels and row keys of loops, as pairs: the index of a quantity, and the number of
    /// bytes by which the quantity is multiplied.
    pub(crate) orders: Vec<(usize, usize)>,
}

impl Needs {
    /// Returns the index of a quantity; adds the quantity if it is new.
    pub(crate) fn index(&mut self, quantity: Quantity) -> usize {
        self.quantities.iter().position(|known| *known == quantity).unwrap_or_else(|| {
            self.quantities.push(quantity);
            self.quantities.len() - 1
        })
    }
}
