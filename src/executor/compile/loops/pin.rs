//! Which operators of a step block must stay in its loop, whatever depends on what.

use crate::error::{Error, ErrorKind, Result};
use crate::executor::compile::Compiler;
use crate::executor::plan::Pin;
use crate::executor::rewrite::classes::Class;
use crate::program::{OpDesc, RECURRENT, Reach, StepDesc};

impl Compiler<'_> {
    /// Whether an operator, or one of a `recurrent`'s step block, draws random numbers.
    pub(crate) fn draws(&self, op: &OpDesc) -> Result<bool> {
        let Some(step) = &op.step else { return Ok(self.parse(op)?.facts().random) };
        for op in &self.program.block(step.block).ops {
            if self.draws(op)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Why an operator must stay in the loop for reasons of its own, if it must.
    pub(crate) fn stays(&self, op: &OpDesc, step: &StepDesc, class: Class) -> Result<Option<Pin>> {
        // Whole sub-sequences of static inputs have no LoD over all steps at once.
        let foreign = || op.reads().chain(op.writes()).any(|v| self.foreign(v, step));
        if op.kind == RECURRENT {
            return Ok((class == Class::Step && foreign()).then_some(Pin::Foreign));
        }
        let facts = self.parse(op)?.facts();
        if facts.reach == Reach::Batch && class != Class::Constant {
            let got = format!("`{}`, whose result depends on the whole batch", op.kind);
            return Err(Error::of(
                ErrorKind::Program,
                "operator in a step block",
                "a row- or sequence-wise one",
                got,
            ));
        }
        let makes = class == Class::Sequence && !self.makes(op)?.is_empty();
        let foreign = facts.reach == Reach::Sequence && class == Class::Step && foreign();
        Ok(makes.then_some(Pin::Makes).or(foreign.then_some(Pin::Foreign)))
    }
}
