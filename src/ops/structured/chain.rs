//! The inputs that all operators on linear chains (`linear_chain_crf`, `crf_marginals`, `viterbi_decode`) have, and check cases
//! for these operators.

use crate::kernels::{ChainRoom, Transitions};
use crate::ops::prelude::*;

/// The cost per number of an operator on chains or frames, relative to an ordinary operator. The operator takes about ten
/// nanoseconds per number.
pub(super) const HEAVY: usize = 20;

/// Slot numbers of the inputs `emissions` and `transitions`, in all operators on linear chains.
pub(super) const EMISSIONS: usize = 0;
pub(super) const TRANSITIONS: usize = 1;

/// Checks the emissions `[rows, tags]`, which must have a LoD, the transitions `[tags + 2, tags]`, and the indices of forbidden
/// transitions. Returns the emissions' spec with one row per sequence.
pub(super) fn check(s: &InferShape<'_>, forbidden: &[i64]) -> Result<Spec> {
    s.is_float(EMISSIONS)?;
    s.has_lod(EMISSIONS)?;
    s.same_dtype(EMISSIONS, TRANSITIONS)?;
    let emissions = s.input(EMISSIONS);
    let tags = emissions.width();
    if emissions.shape.len() != 2 || tags == 0 {
        return Err(s.mismatch(EMISSIONS, "rows of a score for each tag, at least one, shape [rows, tags]"));
    }
    s.constant(TRANSITIONS, &[tags + 2, tags])?;
    let places = ((tags + 2) * tags) as i64;
    if let Some(index) = forbidden.iter().find(|index| !(0..places).contains(index)) {
        let expected = format!("places of transitions [{}, {tags}], from 0 to below {places}", tags + 2);
        return Err(Error::new("attribute `forbidden`", expected, index.to_string()));
    }
    emissions.drop_level(s.top())
}

/// Returns the memory of the scratch value `S`: for each thread, the transitions, and `room` bytes for the longest sequence.
pub(super) fn memory<S: 'static>(sizes: &CallSizes<'_>, room: usize) -> CallMemory {
    let (_, tags) = sizes.input(EMISSIONS);
    CallMemory::default()
        .scratch::<S>(sizes.threads().saturating_mul(Transitions::bytes_of(tags)))
        .scratch::<S>(sizes.threads().saturating_mul(room))
}

/// Returns the number of bytes for the sums over all paths of the longest sequence.
pub(super) fn sums_of_longest(sizes: &CallSizes<'_>) -> usize {
    ChainRoom::bytes_of(sizes.longest(EMISSIONS), sizes.input(EMISSIONS).1)
}

/// Prepares the transitions of a run: reads the scores, and marks the transitions in `forbidden`.
pub(super) fn prepare<'a, T: RowValue>(
    run: &Forward<'_>,
    forbidden: &[i64],
    transitions: &'a mut Transitions,
) -> Result<&'a Transitions> {
    transitions.prepare(run.input::<T>(TRANSITIONS)?, forbidden);
    Ok(transitions)
}

/// Makes check cases with sequences of emissions and with transitions, for `tags` tags; `bind` adds further operands.
pub(super) fn samples(
    attributes: &Attributes,
    tags: usize,
    bind: impl Fn(CheckCase, &Variable) -> Result<CheckCase>,
) -> Result<Vec<CheckCase>> {
    CheckCase::of_sequences(attributes, |sample, lod| {
        let emissions = Variable::sequences(numbers(lod.rows(), tags, 2) * 2.0, lod)?;
        let transitions = Variable::dense(numbers(tags + 2, tags, 5));
        bind(sample.batch("emissions", emissions.clone()).constant("transitions", transitions), &emissions)
    })
}

/// Makes a tag, a number less than `tags`, for each row of the emissions.
pub(super) fn some_tags(emissions: &Variable, tags: usize) -> Result<Variable> {
    let tag = |row: usize| (row * row + row / 3) as i64 % tags as i64;
    let tags = Array1::from_shape_fn(emissions.rows(), tag);
    Variable::new(crate::tensor::Dense::from(tags), emissions.lod().cloned())
}
