//! Chains: row-wise calls that follow each other and run chunk by chunk.

use std::fmt;
use std::ops::Range;

/// Calls of a list of instructions that run chunk by chunk.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    pub(crate) calls: Range<usize>,
    /// How many rows a chunk has.
    pub(crate) rows: usize,
    /// Numbers that a row writes.
    pub(crate) width: usize,
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "these {} calls in turn on every {} rows", self.calls.len(), self.rows)
    }
}

/// The instructions of a list: each chain as a whole, all others one by one.
pub(crate) fn parts(
    instructions: usize,
    chains: &[Chain],
) -> impl Iterator<Item = (Range<usize>, Option<&Chain>)> {
    let (mut chains, mut next) = (chains.iter().peekable(), 0);
    std::iter::from_fn(move || {
        let chain = chains.next_if(|chain| chain.calls.start == next);
        let calls = chain.map_or(next..next + 1, |chain| chain.calls.clone());
        next = calls.end;
        (calls.start < instructions).then_some((calls, chain))
    })
}
