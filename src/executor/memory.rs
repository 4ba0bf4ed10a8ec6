//! The memory that a run takes, computed before the run.

use crate::executor::plan::{BufferNeed, Growth, Plan, PoolNeed};
use crate::executor::run::counts::RowCounts;
use crate::operator::CallMemory;
use crate::program::{Program, VarRole};

/// The allowance for small lists, such as the operands of calls.
const LISTS: usize = 64 << 10;

/// The maximum number of scratch vectors that the figures count once for all calls that share them; a further vector
/// counts once per call.
const MOST_SHARED: usize = 128;

/// The memory of a run in bytes, by kind: see [`Executor::memory`](crate::executor::Executor::memory).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MemoryUse {
    /// The parameters.
    pub parameters: usize,
    /// The state of the optimizer, and other variables that are kept from run to run and that no gradient updates.
    pub state: usize,
    /// The values and gradients of the batch. In addition, the old memory of the largest buffer that grows during the
    /// run.
    pub buffers: usize,
    /// The memory that earlier batches left in buffers beyond what this batch needs. While a buffer grows for this batch,
    /// its old memory exists until the contents are copied. `kept` therefore includes the largest such old memory.
    pub kept: usize,
    /// The values and gradients of the batch that are not dense, such as selected rows.
    pub(crate) selected: usize,
    /// The row orders, levels and random keys of loops.
    pub orders: usize,
    /// The weights that operators pack for fast products.
    pub packed: usize,
    /// The scratch memory of all threads.
    pub scratch: usize,
    /// The batch itself, the values of its feeds, and the batches that a loader makes in advance.
    pub batch: usize,
    /// If a step has several batches, or if its batch is divided: the sums of the gradients. Also the messages that carry these
    /// sums to other processes.
    pub(crate) sums: usize,
    /// The data that are held in memory.
    pub data: usize,
    /// The small lists of the executor: an allowance.
    pub lists: usize,
    /// Whether the figures are an upper bound: some sizes depend on values that only the run computes.
    pub(crate) bound: bool,
}

impl MemoryUse {
    /// Returns the sum of all kinds.
    pub fn total(&self) -> usize {
        [self.fixed(), self.of_batch(), self.kept, self.packed, self.scratch, self.lists]
            .into_iter()
            .fold(0, usize::saturating_add)
    }

    /// Returns the maximum memory that an executor keeps after runs with the memory `self`, and after a run with the memory `last`.
    pub(crate) fn or_larger(&self, last: Self) -> Self {
        let buffers = |memory: &Self| memory.buffers.saturating_add(memory.kept);
        Self {
            kept: buffers(self).max(buffers(&last)) - last.buffers,
            selected: self.selected.max(last.selected),
            orders: self.orders.max(last.orders),
            packed: self.packed.max(last.packed),
            scratch: self.scratch.max(last.scratch),
            lists: self.lists.max(last.lists),
            ..last
        }
    }

    /// Returns the memory that no batch changes. It is equal on all machines, as [`Self::of_batch`] is.
    pub(crate) fn fixed(&self) -> usize {
        [self.parameters, self.state, self.sums, self.data].into_iter().fold(0, usize::saturating_add)
    }

    /// Returns the memory that follows from the counts of the batch alone. Packed weights and scratch memory also depend on the
    /// machine and the number of threads.
    pub(crate) fn of_batch(&self) -> usize {
        [self.buffers, self.selected, self.orders, self.batch].into_iter().fold(0, usize::saturating_add)
    }

    /// Returns the memory of the parameters and of the optimizer's state of a program. A row-sparse variable counts with all of its
    /// rows, so that the figures are an upper bound.
    pub fn of_program(program: &Program) -> Self {
        let mut memory = Self::default();
        for (_, var) in program.vars() {
            let Some(spec) = var.spec().filter(|_| var.persistable) else { continue };
            let known = spec.shape.iter().map(|extent| extent.known().unwrap_or(0));
            let mut bytes = known.fold(spec.dtype.size_of(), usize::saturating_mul);
            if var.is_row_sparse() {
                memory.bound = true;
                let ids = spec.rows().known().unwrap_or(0).saturating_mul(size_of::<i64>());
                bytes = bytes.saturating_add(ids);
            }
            let kind =
                if var.role == VarRole::Parameter { &mut memory.parameters } else { &mut memory.state };
            *kind = kind.saturating_add(bytes);
        }
        memory
    }

    /// Computes the memory of a plan's run for a batch; `self` is the memory of the program. `held` returns the current size of a
    /// buffer.
    pub(crate) fn of_run(
        &self,
        plan: &Plan,
        counts: &RowCounts,
        threads: usize,
        held: &dyn Fn(usize) -> usize,
    ) -> Self {
        let bytes_of = |quantity: usize, unit: usize| counts.values[quantity].saturating_mul(unit);
        let needs = &plan.needs;
        let line = |bytes: usize| bytes.checked_next_multiple_of(64).unwrap_or(bytes);
        // A buffer or value that grows while it has contents exists twice until its contents are copied. Only one of
        // them grows at a time.
        let (mut buffers, mut twice, mut kept, mut copied) = (0usize, 0, 0, 0);
        for needs in needs.buffers.chunk_by(|a, b| a.buffer == b.buffer) {
            let bytes = |need: &BufferNeed| bytes_of(need.quantity, need.unit);
            let largest = needs.iter().map(bytes).max().unwrap_or(0);
            buffers = buffers.saturating_add(line(largest));
            let before = held(needs[0].buffer);
            kept += before.saturating_sub(line(largest));
            if before < line(largest) {
                copied = before.max(copied);
            }
            let of_largest = |growth| needs.iter().any(|n| n.growth == growth && bytes(n) == largest);
            let before = match needs {
                _ if of_largest(Growth::Before) => 0,
                _ if of_largest(Growth::Visits) => largest,
                _ => needs.iter().map(bytes).filter(|&bytes| bytes < largest).max().unwrap_or(0),
            };
            twice = twice.max(before);
        }
        let (mut selected, mut appended) = (0usize, 0usize);
        for needs in needs.pools.chunk_by(|a, b| a.pool == b.pool) {
            let bound = || needs.iter().map(|need| need.bytes(&counts.values)).max().unwrap_or(0);
            let bytes = counts.pools.get(needs[0].pool).copied().unwrap_or_else(bound);
            selected = selected.saturating_add(bytes);
            if needs.iter().any(PoolNeed::grows) {
                appended = appended.max(bytes / 2);
            }
        }
        let orders = needs
            .orders
            .iter()
            .map(|&(quantity, unit)| bytes_of(quantity, unit))
            .fold(0, usize::saturating_add);
        let mut memory = Self {
            buffers: buffers.saturating_add(twice),
            kept: kept + copied,
            selected: selected.saturating_add(appended.saturating_sub(twice)),
            orders,
            lists: LISTS,
            bound: self.bound || !counts.is_exact(),
            ..*self
        };
        let mut largest = [0; MOST_SHARED];
        for call in &needs.calls {
            let CallMemory { scratch, bound, .. } =
                call.memory((&counts.values, &counts.pools), needs.unit, threads);
            memory.bound |= bound;
            for (&number, (_, bytes)) in call.scratch.iter().zip(scratch) {
                let before = largest.get(number).copied().unwrap_or(0);
                memory.scratch = memory.scratch.saturating_add(bytes.saturating_sub(before));
                if let Some(largest) = largest.get_mut(number) {
                    *largest = before.max(bytes);
                }
            }
        }
        for of_store in needs.packed.chunk_by(|a, b| a.0 == b.0) {
            let packed = |&(_, call): &(usize, usize)| {
                needs.calls[call].memory((&counts.values, &counts.pools), needs.unit, threads).prepared
            };
            let largest = of_store.iter().map(packed).max().unwrap_or(0);
            memory.packed = memory.packed.saturating_add(largest);
        }
        memory.bound |= counts.pools.is_empty() && !needs.pools.is_empty();
        memory
    }
}
