//! The inputs and results of the analyses of a step block and of its gradient block.

use std::collections::{HashMap, HashSet};

use super::columns::Columns;
use super::levels::StepLevels;
use super::when::Unit;
use crate::executor::compile::saved::SavedValues;
use crate::executor::compile::source::Source;
use crate::executor::plan::{Home, OpId};
use crate::executor::rewrite::classes::{Class, Classes};
use crate::operator::{BlockId, VarId};
use crate::program::{OpDesc, StepDesc, StepGradient, VarPair};

/// The number of visits of a step block's loop in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visits {
    Once,
    /// The loop is inside the loop of another block, and runs at each step of the outer loop.
    Many,
}

/// A step block.
pub(crate) struct StepBlock<'a> {
    pub(crate) source: &'a Source<'a>,
    pub(crate) step: &'a StepDesc,
    /// The variables that leave a step: to the next step, or out of the block.
    pub(crate) leaving: HashSet<VarId>,
}

impl<'a> StepBlock<'a> {
    pub(crate) fn new(source: &'a Source<'a>, step: &'a StepDesc) -> Self {
        let nexts = step.memories.iter().map(|m| m.next);
        let leaving = nexts.chain(step.outputs.iter().map(|p| p.inner)).collect();
        Self { source, step, leaving }
    }

    /// The operators of the block.
    pub(crate) fn ops(&self) -> impl DoubleEndedIterator<Item = (OpId, &'a OpDesc)> {
        self.source.ops(self.step.block)
    }
}

/// The results of analysing a step block.
pub(crate) struct Forward {
    pub(crate) visits: Visits,
    /// The classes of the block's variables.
    pub(crate) classes: Classes,
    /// The levels of the block, and the levels that its operators make.
    pub(crate) levels: StepLevels,
    /// The units, each with the time at which it runs and the reason.
    pub(crate) units: Vec<Unit>,
    pub(crate) columns: Columns,
    /// The numbers of the operators that add their output to the contents of the buffer.
    pub(crate) adds: HashSet<usize>,
    /// The variables that the backward pass reads; if columns of a variable are read, the whole variable is among them.
    pub(crate) saved: SavedValues,
    /// The home of each variable that the block computes, in the order in which they are first written.
    pub(crate) homes: Vec<(VarId, Home)>,
    /// The memories whose previous values are read as one array by operators outside the loop.
    pub(crate) spread: HashSet<VarId>,
    /// Blocks whose loops run inside this loop, step by step.
    pub(crate) stepwise: HashSet<BlockId>,
}

impl Forward {
    /// The class of a variable, or of the variable of a gradient.
    pub(crate) fn class(&self, source: &Source<'_>, var: VarId) -> Class {
        self.classes.get(source.program, source.program.var(var).gradient_of.unwrap_or(var))
    }
}

/// The gradient block of a step block.
pub(crate) struct GradientBlock<'a> {
    pub(crate) source: &'a Source<'a>,
    pub(crate) step: &'a StepDesc,
    pub(crate) gradient: &'a StepGradient,
    pub(crate) forward: &'a Forward,
    /// The gradients that leave a step, or enter it from outside the step.
    pub(crate) leaving: HashSet<VarId>,
}

impl<'a> GradientBlock<'a> {
    pub(crate) fn new(
        source: &'a Source<'a>,
        step: &'a StepDesc,
        gradient: &'a StepGradient,
        forward: &'a Forward,
    ) -> Self {
        let pairs = gradient.inputs.iter().chain(&gradient.outputs).chain(&gradient.statics);
        let mut leaving: HashSet<VarId> = pairs.map(|p: &VarPair| p.inner).collect();
        leaving.extend(gradient.memories.iter().flat_map(|m| [Some(m.next), m.previous]).flatten());
        Self { source, step, gradient, forward, leaving }
    }

    /// The operators of the block.
    pub(crate) fn ops(&self) -> impl DoubleEndedIterator<Item = (OpId, &'a OpDesc)> {
        self.source.ops(self.gradient.block)
    }

    /// The class of a gradient or of a forward value.
    pub(crate) fn class(&self, var: VarId) -> Class {
        self.forward.class(self.source, var)
    }

    /// Returns whether a gradient belongs to this block and stays in its step.
    pub(crate) fn is_inside(&self, var: VarId) -> bool {
        self.source.program.var(var).block == self.gradient.block && !self.leaving.contains(&var)
    }
}

/// Maps a gradient to another gradient that it equals, number for number. The other gradient equals no further gradient.
#[derive(Debug, Clone, Default)]
pub(crate) struct EqualGradients(pub(crate) HashMap<VarId, VarId>);

impl EqualGradients {
    /// The variable that holds the numbers of `var`.
    pub(crate) fn resolve(&self, var: VarId) -> VarId {
        self.0.get(&var).copied().unwrap_or(var)
    }

    pub(crate) fn contains(&self, var: VarId) -> bool {
        self.0.contains_key(&var)
    }
}

/// The results of analysing a gradient block.
pub(crate) struct Backward {
    /// The units, each with the time at which it runs and the reason.
    pub(crate) units: Vec<Unit>,
    pub(crate) same: EqualGradients,
    /// The gradients that are columns of another gradient.
    pub(crate) columns: Columns,
    /// The numbers of backward operators, each with an input slot whose gradient overwrites the slot's value.
    pub(crate) overwrites: HashSet<(usize, usize)>,
    /// The home of each gradient of the block, in the order of the gradients' numbers.
    pub(crate) homes: Vec<(VarId, GradientHome)>,
    /// How the backward loop reads the previous values of each memory.
    pub(crate) memories: Vec<MemoryReads>,
}

/// The home of a gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GradientHome {
    /// In memory of its own.
    Own(Home),
    /// In the memory of the forward value, which no later call reads.
    Over(VarId),
}

/// The accesses of a backward loop to the previous values of a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryReads {
    Not,
    AtEachStep,
    /// Outside the loop, as one array; perhaps at each step, too.
    AsOneArray,
}
