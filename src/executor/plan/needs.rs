//! The memory that a plan needs, as terms: a number of bytes, times a count of the batch.

use std::sync::Arc;

use crate::operator::{CallMemory, CallSizes, Extent, LevelId, Op, Pass, Spec};

/// A count of a batch, on which the sizes of buffers depend.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Quantity {
    /// The number 1.
    One,
    /// The number of sequences of the batch.
    Batch,
    /// The number of rows of a level of the root block.
    Rows(LevelId),
    /// The length of the longest sequence of a level of the root block.
    Longest(LevelId),
    /// The number of rows that a static input has over all steps of a loop: each sequence of the loop has the rows of its static
    /// sequence once per step. `rows` are levels of the root block, top first.
    Repeated { over: LevelId, rows: Vec<LevelId> },
    /// The largest number of rows that a step of a loop has in a level below the loop's level. `rows` are levels of the root block,
    /// top first.
    LargestStep { over: LevelId, rows: Vec<LevelId> },
    /// The larger of two quantities.
    Larger(Box<[Quantity; 2]>),
    /// The product of two quantities: an upper bound, for a loop in a loop.
    Product(Box<[Quantity; 2]>),
    /// The number of rows of a level that an operator of a step block makes.
    Made(LevelId),
}

/// The bytes of a slot in its buffer: `unit` for each of a quantity.
#[derive(Debug, Clone)]
pub(crate) struct BufferNeed {
    pub(crate) buffer: usize,
    /// The first instruction of the root block that uses the slot: a run that ends before it does not reserve the slot.
    pub(crate) first: usize,
    /// The index of the quantity in [`Needs::quantities`].
    pub(crate) quantity: usize,
    pub(crate) unit: usize,
    /// Whether the need is exact; an upper bound is not reserved before the run.
    pub(crate) exact: bool,
}

/// The bytes of a value that is not dense: `unit` for each of a quantity. A value may have several such terms.
#[derive(Debug, Clone)]
pub(crate) struct PoolNeed {
    pub(crate) pool: usize,
    pub(crate) slot: usize,
    pub(crate) quantity: usize,
    /// The number of entries for each of the quantity.
    pub(crate) factor: usize,
    /// The bytes of an entry.
    pub(crate) entry: usize,
}

/// A call whose operator declares memory beside its operands.
pub(crate) struct CallNeed {
    pub(crate) op: Arc<dyn Op>,
    /// The number of the operator's kind and pass: such calls share their scratch memory.
    pub(crate) kind: usize,
    pub(crate) pass: Pass,
    /// The number of the store for the call's packed constants.
    pub(crate) prepared: Option<usize>,
    pub(crate) wanted: Vec<bool>,
    pub(crate) inputs: Vec<Vec<Spec>>,
    pub(crate) outputs: Vec<Vec<Spec>>,
    /// For each extent of the call's rows, the index of its quantity.
    pub(crate) rows: Vec<(Extent, usize)>,
    /// For each sparse input: its slot, and the index and the factor of a quantity that counts its entries.
    pub(crate) stored: Vec<(usize, usize, usize)>,
    /// For each last level of an input, the index of the quantity of its longest sequence.
    pub(crate) longest: Vec<(LevelId, usize)>,
}

impl CallNeed {
    /// Computes the memory of the call; `values` has the value of each quantity.
    pub(crate) fn memory(&self, values: &[usize], threads: usize) -> CallMemory {
        let known = |extent: Extent| self.rows.iter().find(|(known, _)| *known == extent);
        let rows = |extent: Extent| match extent {
            Extent::Known(rows) => rows,
            extent => known(extent).map_or(0, |(_, quantity)| values[*quantity]),
        };
        let stored = |slot: usize| {
            let terms = self.stored.iter().filter(|(of, ..)| *of == slot);
            terms.map(|&(_, quantity, factor)| values[quantity].saturating_mul(factor)).sum::<usize>()
        };
        let longest = |level: LevelId| {
            let known = self.longest.iter().find(|(known, _)| *known == level);
            known.map_or(0, |(_, quantity)| values[*quantity])
        };
        self.op.memory(&CallSizes {
            pass: self.pass,
            threads,
            prepared: self.prepared.is_some(),
            wanted: &self.wanted,
            inputs: &self.inputs,
            outputs: &self.outputs,
            rows: &rows,
            stored: &stored,
            longest: &longest,
        })
    }
}

/// The memory that a plan needs beside persistent variables.
#[derive(Default)]
pub(crate) struct Needs {
    pub(crate) quantities: Vec<Quantity>,
    /// The needs of the buffers, in ascending order of the buffers: a buffer has the size of its largest need.
    pub(crate) buffers: Vec<BufferNeed>,
    /// The needs of the values that are not dense, in ascending order of the pool numbers and of the slots. A pool number has
    /// the size of its largest slot.
    pub(crate) pools: Vec<PoolNeed>,
    /// The calls whose operators declare memory, in ascending order of the kinds.
    pub(crate) calls: Vec<CallNeed>,
    /// The stores for packed constants, in ascending order, each with a call (an index of `calls`) that uses the store.
    pub(crate) packed: Vec<(usize, usize)>,
    /// The bytes of the row orders, levels and row keys of loops: the index of a quantity, and the bytes for each of it.
    pub(crate) orders: Vec<(usize, usize)>,
}

impl Needs {
    /// Returns the index of a quantity, which is added if it is new.
    pub(crate) fn index(&mut self, quantity: Quantity) -> usize {
        self.quantities.iter().position(|known| *known == quantity).unwrap_or_else(|| {
            self.quantities.push(quantity);
            self.quantities.len() - 1
        })
    }
}
