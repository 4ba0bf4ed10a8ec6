//! The analyses of all step blocks and gradient blocks that run.

use std::collections::HashMap;

use super::loops::backward::backward;
use super::loops::block::{Backward, Forward, Visits};
use super::loops::forward::forward;
use super::loops::when::Timing;
use super::saved::SavedValues;
use super::source::Source;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::plan::{OpId, Views};
use crate::operator::{BlockId, VarId};

/// The analyses of all step blocks and gradient blocks that run, by block number.
#[derive(Default)]
pub(crate) struct Blocks {
    forward: HashMap<BlockId, Forward>,
    backward: HashMap<BlockId, Backward>,
}

/// Analyses the blocks of all loops that run, outer blocks first.
pub(crate) fn blocks(source: &Source<'_>, saved: &SavedValues) -> Result<Blocks> {
    let mut blocks = Blocks::default();
    for &number in &source.live {
        let id = OpId { block: BlockId(0), number };
        if source.desc(id).step.is_some() {
            blocks.add(source, saved, id, Visits::Once)?;
        }
    }
    Ok(blocks)
}

impl Blocks {
    /// Analyses the block of one loop, and then the blocks of the loops inside it.
    fn add(&mut self, source: &Source<'_>, saved: &SavedValues, id: OpId, visits: Visits) -> Result<()> {
        let at = |e: Error| e.at(source.place(id));
        let (step, gradient) = source.step(id).map_err(at)?;
        let (block, units) = match gradient {
            None => {
                let found = forward(source, saved, step, visits).map_err(at)?;
                let units = found.units.clone();
                self.forward.insert(step.block, found);
                (step.block, units)
            }
            Some(gradient) => {
                let found = backward(source, step, gradient, self.forward(step.block).map_err(at)?);
                let found = found.map_err(at)?;
                let units = found.units.clone();
                self.backward.insert(gradient.block, found);
                (gradient.block, units)
            }
        };
        for unit in units {
            let inner = OpId { block, number: unit.op };
            if source.desc(inner).step.is_some() {
                let again = visits == Visits::Many || unit.when == Timing::Body || unit.steps;
                self.add(source, saved, inner, if again { Visits::Many } else { Visits::Once })?;
            }
        }
        Ok(())
    }

    /// Returns the analysis of a step block (the body of a recurrent loop).
    ///
    /// # Errors
    /// Fails if no forward loop runs the step block before its gradient block.
    pub(crate) fn forward(&self, block: BlockId) -> Result<&Forward> {
        self.forward.get(&block).ok_or_else(|| {
            let (expected, got) = ("a forward loop that runs before", "none");
            Error::of(ErrorKind::Program, "gradient of a recurrent loop", expected, got)
        })
    }

    /// Returns the analysis of a gradient block (the backward pass of a step block).
    ///
    /// # Errors
    /// Fails if the loop of the gradient block does not run.
    pub(crate) fn backward(&self, block: BlockId) -> Result<&Backward> {
        self.backward.get(&block).ok_or_else(|| {
            Error::of(ErrorKind::Program, "gradient block", "a block that runs", format!("block {}", block.0))
        })
    }

    /// Returns the variable whose memory holds `var`, and the column of that variable at which `var` begins.
    pub(crate) fn position_of(&self, block: BlockId, var: VarId) -> (VarId, usize) {
        match (self.forward.get(&block), self.backward.get(&block)) {
            (Some(found), _) => found.columns.position_of(var),
            (_, Some(found)) => found.columns.position_of(found.same.resolve(var)),
            _ => (var, 0),
        }
    }

    /// Returns all variables that are stored as columns of another variable.
    pub(crate) fn views(&self) -> Views {
        let forward = self.forward.values().map(|found| found.columns.all());
        let mut views: Views = forward
            .chain(self.backward.values().map(|found| found.columns.all()))
            .flatten()
            .map(|(&k, &v)| (k, v))
            .collect();
        // A gradient that equals a gradient stored as columns is a view of the same columns.
        for found in self.backward.values() {
            let whole = |(&var, &whole): (&VarId, &VarId)| Some((var, *found.columns.all().get(&whole)?));
            views.extend(found.same.0.iter().filter_map(whole));
        }
        views
    }

    /// Returns pairs of equal gradients: a gradient, and the gradient whose memory it shares. The pairs are sorted by
    /// variable number.
    pub(crate) fn same(&self) -> Vec<(VarId, VarId)> {
        let pairs = self.backward.values().flat_map(|found| &found.same.0);
        let mut same: Vec<(VarId, VarId)> = pairs.map(|(&var, &whole)| (var, whole)).collect();
        same.sort_unstable();
        same
    }
}
