//! The reasons why an operator of a step block runs before, in or after the loop.

use std::fmt;

use crate::operator::VarId;

/// The reason why an operator of a step block runs before, in or after the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimingReason {
    /// The operator depends on no value of another step, so it runs before the loop.
    Apart,
    /// The operator depends on the first variable, which comes from another step or is computed at every step. The second
    /// variable depends on the operator, and is read by the next step or at every step.
    Between(VarId, VarId),
    /// The operator depends on this variable of another step, and no step needs the operator's results, so it runs after the
    /// loop.
    Sinks(VarId),
    /// The operator is pinned to the loop. The reason is not one of its dependencies.
    Pinned(Pin),
    /// The operator helps to decide the offsets of sequences that the step makes, so it runs before the loop.
    Decides,
}

/// A reason why an operator stays in the loop even if its dependencies would let it leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pin {
    /// The operator mixes variables with one row per sequence and variables with one row per step.
    Mixed,
    /// The operator has one row per sequence, but its loop is inside an outer loop and runs many times. The backward pass needs
    /// the values of every run of the inner loop.
    Repeated,
    /// The operator has one row per sequence, but its result leaves the step as an output, which has a row for every entry.
    Leaves,
    /// The operator has one row per sequence, but draws new random numbers at each step.
    Random,
    /// The operator makes sequences from values that do not change from step to step.
    Makes,
    /// The operator works on sequences that do not come from a step input, so the rows of all steps have no common LoD.
    Foreign,
    /// The operator writes a value that the loop passes from one step to another.
    Passes,
    /// The operator is an inner loop that runs once per step of the outer loop.
    Stepwise,
    /// The operator rounds a value that is computed at every step, and stores it in half the memory, or computes such a value.
    Rounds,
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pin::Mixed => "mixes rows of sequences with rows of steps",
            Pin::Repeated => "has one row per sequence, but its loop runs at each step of an outer loop",
            Pin::Leaves => "has one row per sequence, but leaves the step as one row per entry",
            Pin::Random => "has one row per sequence, but draws new numbers at every step",
            Pin::Makes => "makes other sequences at every step",
            Pin::Foreign => "its sequences have no LoD over all steps at once",
            Pin::Passes => "writes what the step passes on",
            Pin::Stepwise => "a loop that depends on a memory runs inside the step",
            Pin::Rounds => "a value of the step is rounded, so that only the rounded value is stored",
        })
    }
}
