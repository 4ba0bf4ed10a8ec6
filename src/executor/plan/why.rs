//! The reasons why an operator of a step block runs before, in or after the loop.

use std::fmt;

use crate::operator::VarId;

/// The reason why an operator of a step block runs before, in or after the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimingReason {
    /// No value that depends on another step reaches the operator.
    Apart,
    /// The first variable reaches the operator: it comes from another step, or is computed at every step. The operator
    /// reaches the second variable, which the next step reads, or which is read at every step.
    Between(VarId, VarId),
    /// The variable reaches the operator, and no step needs its results.
    Sinks(VarId),
    /// The operator is pinned to the loop.
    Pinned(Pin),
    /// The offsets of sequences that are made in the step depend on the operator, so it runs before the loop.
    Decides,
}

/// The reason why an operator stays in the loop, whatever its dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pin {
    /// The operator reads or writes rows of sequences and rows of steps.
    Mixed,
    /// The operator has one row per sequence, but its loop runs many times in a loop around it, and the backward pass needs the
    /// values of every visit.
    Repeated,
    /// The operator has one row per sequence, but its result leaves the step as an output, which has a row for every entry.
    Leaves,
    /// The operator has one row per sequence, but draws new random numbers at every step.
    Random,
    /// The operator makes sequences from values that are the same at every step.
    Makes,
    /// The operator's sequences do not come from a step input, so there is no LoD over all steps.
    Foreign,
    /// The operator writes a value that a step passes to another step.
    Passes,
    /// The operator is itself a loop, which runs inside the step.
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
