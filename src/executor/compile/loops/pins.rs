//! Pins: operators of a step block that must stay in its loop, whatever their dependencies.

use super::levels::StepLevels;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::compile::source::Source;
use crate::executor::plan::{OpId, Pin};
use crate::executor::rewrite::classes::Class;
use crate::operator::Reach;

/// Returns whether an operator, or an operator of a `recurrent`'s step block, draws random numbers.
pub(super) fn draws(source: &Source<'_>, id: OpId) -> bool {
    match &source.desc(id).step {
        Some(step) => source.ops(step.block).any(|(inner, _)| draws(source, inner)),
        None => source.parsed(id).is_some_and(|parsed| parsed.facts.random),
    }
}

/// The reason why an operator must stay in the loop regardless of dependencies; `None` if it need not.
pub(super) fn stays(source: &Source<'_>, levels: &StepLevels, id: OpId, class: Class) -> Result<Option<Pin>> {
    let op = source.desc(id);
    // Whole sub-sequences of static inputs have no LoD over all steps at once.
    let foreign = || {
        let mut vars = op.reads().chain(op.writes());
        class == Class::Step && vars.any(|var| levels.foreign(source, var))
    };
    let Some(parsed) = source.parsed(id) else { return Ok(foreign().then_some(Pin::Foreign)) };
    let facts = parsed.facts;
    if facts.reach == Reach::Batch && class != Class::Constant {
        let got = format!("`{}`, whose result depends on the whole batch", op.kind);
        let expected = "a row- or sequence-wise one";
        return Err(Error::of(ErrorKind::Program, "operator in a step block", expected, got));
    }
    if class == Class::Sequence && !parsed.made.is_empty() {
        return Ok(Some(Pin::Makes));
    }
    Ok((facts.reach == Reach::Sequence && foreign()).then_some(Pin::Foreign))
}
