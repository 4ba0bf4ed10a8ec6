//! Pins: the reasons why an operator of a step block must stay in the loop even if its dependencies would let it leave.

use super::levels::StepLevels;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::compile::source::Source;
use crate::executor::plan::{OpId, Pin};
use crate::executor::rewrite::classes::Class;
use crate::operator::Reach;

/// Returns whether an operator draws random numbers; for a `recurrent`, whether an operator of its step block draws
/// random numbers.
pub(super) fn draws(source: &Source<'_>, id: OpId) -> bool {
    match &source.desc(id).step {
        Some(step) => source.ops(step.block).any(|(inner, _)| draws(source, inner)),
        None => source.parsed(id).is_some_and(|parsed| parsed.facts.random),
    }
}

/// Returns the pin of an operator (the reason to stay in the loop); `None` if the dependencies alone decide.
pub(super) fn stays(source: &Source<'_>, levels: &StepLevels, id: OpId, class: Class) -> Result<Option<Pin>> {
    let op = source.desc(id);
    // Sub-sequences of static inputs exist only within one step: the rows of all steps together have no LoD with their
    // level.
    let foreign = || {
        let mut vars = op.reads().chain(op.writes());
        class == Class::Step && vars.any(|var| levels.foreign(source, var))
    };
    let Some(parsed) = source.parsed(id) else { return Ok(foreign().then_some(Pin::Foreign)) };
    let facts = parsed.facts;
    if facts.reach == Reach::Batch && class != Class::Constant {
        let got = format!("`{}`, whose result depends on the whole batch", op.kind);
        let expected = "a row-wise or sequence-wise operator";
        return Err(Error::of(ErrorKind::Program, "operator in a step block", expected, got));
    }
    if class == Class::Sequence && !parsed.made.is_empty() {
        return Ok(Some(Pin::Makes));
    }
    Ok((facts.reach == Reach::Sequence && foreign()).then_some(Pin::Foreign))
}
