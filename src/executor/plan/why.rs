//! Why an operator of a step block runs when it does.

use std::fmt;

use crate::operator::VarId;

/// Why an operator of a step block runs when it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimingReason {
    /// Nothing that differs from step to step by another step's doing reaches it.
    Apart,
    /// The first variable reaches it: it comes from another step, or is computed at every step. And it reaches the
    /// second, which goes to another step or is read at every step.
    Between(VarId, VarId),
    /// The variable reaches it, and no step needs what it computes.
    Sinks(VarId),
    /// For a reason of its own.
    Pinned(Pin),
    /// Offsets of sequences that are made in the step depend on it, so that it runs before the loop.
    Decides,
}

/// Why an operator stays in the loop, whatever depends on what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pin {
    /// It reads or writes rows of sequences and rows of steps.
    Mixed,
    /// It has a row a sequence, but its loop runs many times in a loop around it, and the values of every visit are
    /// needed again.
    Repeated,
    /// It has a row a sequence, but leaves the step, where every entry has one.
    Leaves,
    /// It has a row a sequence, but draws other random numbers at every step.
    Random,
    /// It makes sequences of what is the same at every step.
    Makes,
    /// Its sequences are not those of a step input, so that there is no LoD over all steps.
    Foreign,
    /// It writes what a step passes to another.
    Passes,
    /// A loop that runs inside the step.
    Stepwise,
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pin::Mixed => "mixes rows of sequences with rows of steps",
            Pin::Repeated => "has a row a sequence, but each visit of the loop around has its own",
            Pin::Leaves => "has a row a sequence, but leaves the step, where every entry has one",
            Pin::Random => "has a row a sequence, but draws other numbers at every step",
            Pin::Makes => "makes other sequences at every step",
            Pin::Foreign => "its sequences have no LoD over all steps at once",
            Pin::Passes => "writes what the step passes on",
            Pin::Stepwise => "a loop that a memory reaches runs inside the step",
        })
    }
}
