//! What the analyses of a step block, and of its gradient block, read.

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

/// How often the loop of a step block runs in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visits {
    Once,
    /// It is in the loop of another block: at each of its steps.
    Many,
}

/// A step block.
pub(crate) struct StepBlock<'a> {
    pub(crate) source: &'a Source<'a>,
    pub(crate) step: &'a StepDesc,
    /// What leaves a step: to the next one, or out of the block.
    pub(crate) leaving: HashSet<VarId>,
}

impl<'a> StepBlock<'a> {
    pub(crate) fn new(source: &'a Source<'a>, step: &'a StepDesc) -> Self {
        let nexts = step.memories.iter().map(|m| m.next);
        let leaving = nexts.chain(step.outputs.iter().map(|p| p.inner)).collect();
        Self { source, step, leaving }
    }

    /// Its operators.
    pub(crate) fn ops(&self) -> impl DoubleEndedIterator<Item = (OpId, &'a OpDesc)> {
        self.source.ops(self.step.block)
    }
}

/// What was found of a step block.
pub(crate) struct Forward {
    pub(crate) visits: Visits,
    /// What its variables have rows for.
    pub(crate) classes: Classes,
    /// Its levels, and those that operators of it make.
    pub(crate) levels: StepLevels,
    /// What runs when, and why.
    pub(crate) units: Vec<Unit>,
    pub(crate) columns: Columns,
    /// Operators that add their output to what is there.
    pub(crate) adds: HashSet<usize>,
    /// What the backward pass reads, wholes in the place of their columns.
    pub(crate) saved: SavedValues,
    /// Where the variables that it computes live, in the order in which they are first written.
    pub(crate) homes: Vec<(VarId, Home)>,
    /// Memories whose previous values are read outside the loop, as one array.
    pub(crate) spread: HashSet<VarId>,
    /// Blocks whose loops run inside this loop, step by step.
    pub(crate) stepwise: HashSet<BlockId>,
}

impl Forward {
    /// What a variable, or the variable that it is the gradient of, has rows for.
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
    /// What leaves a step, or comes to it from elsewhere.
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

    /// Its operators.
    pub(crate) fn ops(&self) -> impl DoubleEndedIterator<Item = (OpId, &'a OpDesc)> {
        self.source.ops(self.gradient.block)
    }

    /// What a gradient, or a forward value, has rows for.
    pub(crate) fn class(&self, var: VarId) -> Class {
        self.forward.class(self.source, var)
    }

    /// Whether a gradient is of this block and stays in its step.
    pub(crate) fn is_inside(&self, var: VarId) -> bool {
        self.source.program.var(var).block == self.gradient.block && !self.leaving.contains(&var)
    }
}

/// Gradient to the gradient that it is, number for number, which is no further one.
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

/// What was found of a gradient block.
pub(crate) struct Backward {
    /// What runs when, and why.
    pub(crate) units: Vec<Unit>,
    pub(crate) same: EqualGradients,
    /// Of gradients.
    pub(crate) columns: Columns,
    /// Backward operators, with an input slot whose value lies where its gradient goes.
    pub(crate) overwrites: HashSet<(usize, usize)>,
    /// Where its gradients live, by number.
    pub(crate) homes: Vec<(VarId, GradientHome)>,
    /// Memories whose previous values are read, at each step or as one array.
    pub(crate) memories: Vec<MemoryReads>,
}

/// Where a gradient lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GradientHome {
    /// In memory of its own.
    Own(Home),
    /// In the memory of the forward value, which nothing else reads any more.
    Over(VarId),
}

/// How a backward loop reads the previous values of a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryReads {
    Not,
    AtEachStep,
    /// Outside the loop too, as one array.
    AsOneArray,
}
