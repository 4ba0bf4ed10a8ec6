//! The levels of sequences in a step block: levels that come from outside the block, and levels that its operators make.

use super::columns::Columns;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::compile::source::Source;
use crate::executor::plan::{InnerLevel, MadeLevel, OpId};
use crate::executor::rewrite::classes::Class;
use crate::operator::{LevelId, VarId};
use crate::program::StepDesc;

/// The levels of sequences in a step block.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepLevels {
    /// The levels of step inputs and static inputs; an upper level comes before the levels below it.
    pub(crate) inner: Vec<InnerLevel>,
    /// The levels that operators of the block make.
    pub(crate) made: Vec<MadeLevel>,
    /// The levels of step inputs: the rows of all steps together have a LoD with these levels.
    over_all: Vec<LevelId>,
}

impl StepLevels {
    /// Collects the levels that come from outside a step block.
    pub(crate) fn new(source: &Source<'_>, step: &StepDesc) -> Result<Self> {
        let mut inner: Vec<InnerLevel> = Vec::new();
        let pairs = step.inputs.iter().map(|p| (p, false)).chain(step.statics.iter().map(|p| (p, true)));
        for (pair, statics) in pairs {
            let (outer_spec, to) = (source.program.spec(pair.outer)?, source.program.spec(pair.inner)?);
            let skipped = outer_spec.lod.len().checked_sub(to.lod.len()).ok_or_else(|| {
                Error::of(ErrorKind::Program, "levels in a step", "no more than outside", to.to_string())
            })?;
            let mut above = None;
            for (&outer, &level) in outer_spec.lod[skipped..].iter().zip(&to.lod) {
                let known = inner.iter().position(|l| l.inner == level);
                above = Some(known.unwrap_or_else(|| {
                    inner.push(InnerLevel { outer, inner: level, above, statics });
                    inner.len() - 1
                }));
            }
        }
        let over_all = step.levels.iter().map(|(_, inner)| *inner).collect();
        Ok(Self { inner, made: Vec::new(), over_all })
    }

    /// Adds the levels that an operator makes, and returns the variables that decide the offsets of these levels; `None` if the
    /// operator makes no levels.
    pub(crate) fn make(
        &mut self,
        source: &Source<'_>,
        id: OpId,
        class: Class,
        columns: &Columns,
    ) -> Result<Option<Vec<VarId>>> {
        let Some(parsed) = source.parsed(id).filter(|parsed| !parsed.made.is_empty()) else {
            return Ok(None);
        };
        if class == Class::Constant {
            let (what, got) =
                ("operator that makes sequences in a step", "an operator without such an input");
            return Err(Error::of(ErrorKind::Program, what, "an input with rows of the step", got));
        }
        for &(level, upper) in &parsed.made {
            let above = upper.map(|upper| self.position(upper)).transpose()?;
            let over_all = upper.is_none_or(|upper| self.is_over_all(upper));
            self.made.push(MadeLevel { level, above, over_all });
        }
        let slots = parsed.facts.lod.deciding().unwrap_or(&[]);
        let names = slots.iter().map(|&slot| parsed.signature.inputs[slot].name);
        let vars = names.flat_map(|name| source.desc(id).input(name));
        Ok(Some(vars.map(|&var| columns.whole_of(var)).collect()))
    }

    /// Returns the position of a level in a list: first the levels from outside, then the made levels.
    fn position(&self, level: LevelId) -> Result<usize> {
        let outside = self.inner.iter().position(|inner| inner.inner == level);
        let here = self.made.iter().position(|made| made.level == level).map(|i| self.inner.len() + i);
        outside.or(here).ok_or_else(|| {
            let (what, got) = ("level above a level that is made in a step", format!("level {}", level.0));
            Error::of(ErrorKind::Program, what, "a level of the step", got)
        })
    }

    /// Returns whether the rows of all steps together have a LoD with this level. They have a LoD with this level if
    /// the level comes from a step input, or if an operator makes the level below a level of a step input.
    fn is_over_all(&self, level: LevelId) -> bool {
        self.over_all.contains(&level) || self.made.iter().any(|made| made.level == level && made.over_all)
    }

    /// Returns whether a variable has a level that exists only in one step, not over all steps together.
    pub(crate) fn foreign(&self, source: &Source<'_>, var: VarId) -> bool {
        let levels = source.program.var(var).spec().map_or(&[][..], |spec| &spec.lod);
        !levels.iter().all(|&level| self.is_over_all(level))
    }
}
