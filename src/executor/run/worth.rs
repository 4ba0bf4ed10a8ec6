//! Thresholds of effort: threads share only work above a threshold, since waking threads takes time.
//!
//! An idle thread falls asleep after about 20 µs. Waking it costs the waking thread about 10 µs, and the woken thread
//! starts about 30 µs later. A run that uses the thread pool waits for one thread to wake, and the caller of the run
//! must be woken at the end. (The times were measured on two cores of a virtual machine.) Therefore a small amount of
//! work stays on the thread that has it.

/// The minimum [effort](crate::executor::plan::Effort) at which work is divided over threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Worth {
    /// The minimum effort of a run that uses several threads; a smaller run stays on the caller's thread. Work of this effort
    /// takes about one millisecond on one thread.
    pub(crate) run: usize,
    /// The minimum effort, in calls that threads share, of a run that uses several threads.
    pub(crate) large: usize,
    /// The minimum effort of a loop, summed over its steps, at which threads share the steps.
    pub(crate) steps: usize,
    /// The minimum effort of a call, or of a move of rows, that threads share.
    pub(crate) call: usize,
    /// The maximum number of rows in a chunk of a chain, even if more rows would fit into the cache.
    pub(crate) chunk: usize,
}

impl Worth {
    /// Thresholds for tests that divide work of any size, so that small programs cover the division over threads.
    pub(crate) const EVERYTHING: Self = Self { run: 0, large: 0, steps: 1, call: 1, chunk: 4 };
}

impl Default for Worth {
    fn default() -> Self {
        Self { run: 1 << 21, large: 3 << 18, steps: 1 << 17, call: 1 << 16, chunk: usize::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::Worth;
    use crate::executor::plan::Effort;
    use crate::executor::run::call::few_rows;
    use crate::operator::Extent;

    /// One row through a linear layer of 512 × 10,000: two threads run it, and divide its columns.
    #[test]
    fn a_product_of_one_row_is_worth_a_thread() {
        let (row, packed) = (10_000 + 512 * 10_000 / 16, 4 * 512 * 10_000);
        let effort = Effort { rows: Extent::Known(1), row, packed };
        let Worth { call, large, .. } = Worth::default();
        assert!(effort.of(1) > call && effort.of(0) == 0 && few_rows(1, 2, packed));
        // A token of two LSTM(512) over 10,000 words reads 35 MB of weights.
        assert!(Effort { packed: 35_000_000, row: 0, ..effort }.of(1) >= large);
        assert!(!few_rows(2, 2, 0) && few_rows(2, 2, usize::MAX) && !few_rows(1, 1, usize::MAX));
    }
}
