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

/// How often the loop of a step block runs in one run of the program: once or many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visits {
    Once,
    /// The loop is inside another recurrent loop, and runs at each step of the outer loop.
    Many,
}

/// A step block (the body of a recurrent loop) as the input of its analysis.
pub(crate) struct StepBlock<'a> {
    pub(crate) source: &'a Source<'a>,
    pub(crate) step: &'a StepDesc,
    /// The variables of the block that leave a step: their values are passed to the next step or to a variable outside the
    /// block.
    pub(crate) leaving: HashSet<VarId>,
}

impl<'a> StepBlock<'a> {
    pub(crate) fn new(source: &'a Source<'a>, step: &'a StepDesc) -> Self {
        let nexts = step.memories.iter().map(|m| m.next);
        let leaving = nexts.chain(step.outputs.iter().map(|p| p.inner)).collect();
        Self { source, step, leaving }
    }

    pub(crate) fn ops(&self) -> impl DoubleEndedIterator<Item = (OpId, &'a OpDesc)> {
        self.source.ops(self.step.block)
    }
}

/// The results of analysing a step block.
pub(crate) struct Forward {
    pub(crate) visits: Visits,
    /// The class of each variable of the block: constant, one row per sequence, or one row per step.
    pub(crate) classes: Classes,
    /// The levels of sequences in the block, and the levels that the operators of the block make.
    pub(crate) levels: StepLevels,
    /// The scheduling units of the block; each unit has its time (before, in or after the loop) and the reason.
    pub(crate) units: Vec<Unit>,
    pub(crate) columns: Columns,
    /// The numbers of the operators that add their output to the existing contents of the output's buffer.
    pub(crate) adds: HashSet<usize>,
    /// The variables that the backward pass reads; if it reads columns of a variable, the whole variable is listed.
    pub(crate) saved: SavedValues,
    /// The place in memory (home) of each variable that the block computes, in the order in which the variables are first
    /// written.
    pub(crate) homes: Vec<(VarId, Home)>,
    /// The memories whose previous values are read by operators outside the loop, as one array over all steps.
    pub(crate) spread: HashSet<VarId>,
    /// Step blocks whose loops run inside this loop, once per step.
    pub(crate) stepwise: HashSet<BlockId>,
}

impl Forward {
    /// Returns the class of a variable; for a gradient, the class of its forward variable.
    pub(crate) fn class(&self, source: &Source<'_>, var: VarId) -> Class {
        self.classes.get(source.program, source.program.var(var).gradient_of.unwrap_or(var))
    }
}

/// The gradient block of a step block as the input of its analysis.
pub(crate) struct GradientBlock<'a> {
    pub(crate) source: &'a Source<'a>,
    pub(crate) step: &'a StepDesc,
    pub(crate) gradient: &'a StepGradient,
    pub(crate) forward: &'a Forward,
    /// The gradients that leave a step of the gradient block, or enter a step from outside.
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

    pub(crate) fn ops(&self) -> impl DoubleEndedIterator<Item = (OpId, &'a OpDesc)> {
        self.source.ops(self.gradient.block)
    }

    /// Returns the class of a variable; for a gradient, the class of its forward variable.
    pub(crate) fn class(&self, var: VarId) -> Class {
        self.forward.class(self.source, var)
    }

    /// Returns whether a gradient belongs to this gradient block and does not leave its step.
    pub(crate) fn is_inside(&self, var: VarId) -> bool {
        self.source.program.var(var).block == self.gradient.block && !self.leaving.contains(&var)
    }
}

/// Maps each gradient that equals another gradient, number for number, to that other gradient. A gradient that is a value of
/// the map is never a key of the map.
#[derive(Debug, Clone, Default)]
pub(crate) struct EqualGradients(pub(crate) HashMap<VarId, VarId>);

impl EqualGradients {
    /// Returns the gradient whose memory holds the gradient `var`; `var` itself if it has its own memory.
    pub(crate) fn resolve(&self, var: VarId) -> VarId {
        self.0.get(&var).copied().unwrap_or(var)
    }

    pub(crate) fn contains(&self, var: VarId) -> bool {
        self.0.contains_key(&var)
    }
}

/// The results of analysing a gradient block.
pub(crate) struct Backward {
    /// The scheduling units of the gradient block; each unit has its time (before, in or after the loop) and the reason.
    pub(crate) units: Vec<Unit>,
    pub(crate) same: EqualGradients,
    /// The gradients that are stored as columns of another gradient.
    pub(crate) columns: Columns,
    /// Pairs of a backward operator's number and an input slot: the gradient of the input overwrites the input's value in
    /// memory.
    pub(crate) overwrites: HashSet<(usize, usize)>,
    /// The place in memory (home) of each gradient of the block, sorted by variable number.
    pub(crate) homes: Vec<(VarId, GradientHome)>,
    /// How the backward loop reads the previous values of each memory.
    pub(crate) memories: Vec<MemoryReads>,
}

/// The place where a gradient is stored in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GradientHome {
    /// The gradient has memory of its own.
    Own(Home),
    /// The gradient overwrites this forward value, which no later call reads.
    Over(VarId),
}

/// How a backward loop reads the previous values of a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryReads {
    Not,
    AtEachStep,
    /// Operators outside the loop read the previous values as one array; operators in the loop may read them, too.
    AsOneArray,
}
