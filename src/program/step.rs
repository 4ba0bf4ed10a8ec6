//! Step blocks: a closure that says what one step does, run unpadded over every sequence.

use std::ops::Deref;
use std::panic::Location;

use super::attributes::Attributes;
use super::builder::{Builder, Var};
use super::extent::{BlockId, Extent, LevelId, Levels, Spec, VarId, rows_of_step};
use super::op_desc::{Bound, Memory, OpDesc, Pair, RECURRENT, Role, StepDesc};
use super::program::Program;
use super::var_desc::VarRole;
use super::vars::Vars;
use crate::error::{Error, ErrorKind, Place, Result};

/// A step block that is being built.
#[derive(Clone)]
pub(super) struct OpenStep {
    pub(super) block: BlockId,
    pub(super) parent: BlockId,
    /// Levels above the one whose sequences are run.
    pub(super) above: Levels,
    level: LevelId,
    /// What counts the sequences that are run.
    pub(super) sequences: Extent,
    desc: StepDesc,
    pub(super) memories: Vec<OpenMemory>,
}

#[derive(Clone, Copy)]
pub(super) struct OpenMemory {
    pub(super) previous: VarId,
    pub(super) initial: Option<VarId>,
    pub(super) next: Option<VarId>,
    /// The outer variable of its final value, once it was asked for.
    pub(super) last: Option<VarId>,
}

/// Options of a recurrent: which level's sequences run, and from which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recurrence {
    /// The LoD level of the first step input whose sequences are run, from 0 at the top; the last one without it.
    pub level: Option<usize>,
    /// Each sequence runs from its own end.
    pub reverse: bool,
}

/// A builder inside a step block. It is a [`Builder`]; on top it has memories.
pub struct Step {
    pub(super) builder: Builder,
}

impl Deref for Step {
    type Target = Builder;
    fn deref(&self) -> &Builder {
        &self.builder
    }
}

impl Builder {
    /// Runs a step block over every sequence (last level) of `inputs`, unpadded: `step_block` gets each input's row at
    /// this step and returns what is wanted of every step, which comes out in the rows and LoD of the input, or final
    /// memories ([`Step::last`]), one row a sequence.
    ///
    /// # Errors
    /// If the inputs have no LoD or different ones, a memory is not updated, or anything in the block fails.
    #[track_caller]
    pub fn recurrent<I: Vars, O: Vars>(
        &self,
        inputs: I,
        step_block: impl FnOnce(&Step, I) -> Result<O>,
    ) -> Result<O> {
        let caller = self.here();
        self.run_step(Recurrence::default(), inputs, step_block, caller)
    }

    /// [`Self::recurrent`] with options: over another level, so that a step's entry is a whole (sub-)sequence, or
    /// from the end.
    ///
    /// # Errors
    /// As [`Self::recurrent`].
    #[track_caller]
    pub fn recurrent_with<I: Vars, O: Vars>(
        &self,
        options: Recurrence,
        inputs: I,
        step_block: impl FnOnce(&Step, I) -> Result<O>,
    ) -> Result<O> {
        let caller = self.here();
        self.run_step(options, inputs, step_block, caller)
    }

    fn run_step<I: Vars, O: Vars>(
        &self,
        options: Recurrence,
        inputs: I,
        step_block: impl FnOnce(&Step, I) -> Result<O>,
        caller: &'static Location<'static>,
    ) -> Result<O> {
        let number = self.state.borrow().program.block(self.block).ops.len();
        let place = || Place {
            operator: Some(format!("{RECURRENT} #{number}")),
            block: (self.block.0 > 0).then_some(self.block.0 as usize),
            caller: Some(caller.to_string()),
            variable: None,
        };
        let outer: Vec<VarId> = inputs
            .list()
            .iter()
            .map(|&v| self.resolve(v))
            .collect::<Result<_>>()
            .map_err(|e| e.at(place()))?;
        let (program, around) = {
            let state = self.state.borrow();
            (state.program.clone(), state.open.clone())
        };
        let inner = self.open(options, &outer).map_err(|e| e.at(place()));
        let outcome = inner.and_then(|(block, inner)| {
            let step = Step { builder: Builder { block, ..self.clone() } };
            let vars: Vec<Var> = inner.iter().map(|&id| self.var(id)).collect();
            let out = step_block(&step, I::from_list(&vars)?)?;
            let closed = self.close(&out.list(), caller).map_err(|e| e.at(place()))?;
            O::from_list(&closed)
        });
        if outcome.is_err() {
            // Nothing of a step that failed stays behind, nor what the steps around it captured for it.
            let state = &mut *self.state.borrow_mut();
            (state.program, state.open) = (program, around);
        }
        outcome
    }

    fn open(&self, options: Recurrence, outer: &[VarId]) -> Result<(BlockId, Vec<VarId>)> {
        let state = &mut *self.state.borrow_mut();
        let program = &mut state.program;
        let prepare = |program: &mut Program| -> Result<OpenStep> {
            let first = *outer
                .first()
                .ok_or_else(|| Error::of(ErrorKind::Program, "step inputs", "at least one", "none"))?;
            let lod = program.spec(first)?.lod.clone();
            let index = match (options.level, lod.len()) {
                (_, 0) => {
                    let got = program.spec(first)?.to_string();
                    return Err(Error::new("step input", "sequences (a LoD of at least one level)", got)
                        .variable(&program.var(first).name));
                }
                (None, n) => n - 1,
                (Some(level), n) if level < n => level,
                (Some(level), n) => return Err(Error::new("level", format!("below {n}"), level.to_string())),
            };
            let above: Levels = lod[..index].iter().copied().collect();
            let sequences = above.last().map_or(program.top(self.block), |&l| Extent::Rows(l));
            let block = program.add_block(self.block);
            Ok(OpenStep {
                block,
                parent: self.block,
                above,
                level: lod[index],
                sequences,
                desc: StepDesc {
                    block,
                    level: lod[index],
                    reverse: options.reverse,
                    inputs: Vec::new(),
                    statics: Vec::new(),
                    memories: Vec::new(),
                    outputs: Vec::new(),
                    levels: Vec::new(),
                    gradient: None,
                },
                memories: Vec::new(),
            })
        };
        let mut step = prepare(program)?;
        let mut inner = Vec::new();
        for &var in outer {
            let spec = program.spec(var)?.clone();
            let depth = step.above.len();
            if spec.lod.len() <= depth || spec.lod[..depth] != step.above[..] || spec.lod[depth] != step.level
            {
                let first = program.spec(outer[0])?.to_string();
                return Err(Error::new(
                    "step input",
                    format!("the sequences of the first one, {first}"),
                    spec.to_string(),
                )
                .variable(&program.var(var).name));
            }
            let deeper: Vec<LevelId> = spec.lod[depth + 1..].to_vec();
            let id = step.view(program, var, &spec, &deeper)?;
            step.desc.inputs.push(Pair { outer: var, inner: id });
            inner.push(id);
        }
        let block = step.block;
        state.open.push(step);
        Ok((block, inner))
    }

    /// The variable as this block sees it: itself, or the static capture of a batched variable from around.
    pub(super) fn resolve(&self, var: Var) -> Result<VarId> {
        self.own(var)?;
        let state = &mut *self.state.borrow_mut();
        let program = &mut state.program;
        let desc = program.var(var.id);
        let name = desc.name.clone();
        let from = desc.block;
        let known = !desc.spec().is_some_and(Spec::batched);
        if from == self.block || (known && program.encloses(from, self.block)) {
            return Ok(var.id);
        }
        if !program.encloses(from, self.block) {
            let expected = format!("a variable of block {} or of a block around it", self.block.0);
            return Err(Error::of(
                ErrorKind::Program,
                "scope",
                expected,
                format!("one that is inside block {}", from.0),
            )
            .variable(name));
        }
        let mut id = var.id;
        let first = state.open.iter().position(|s| s.parent == from);
        let Some(first) = first else {
            return Err(Error::of(
                ErrorKind::Program,
                "scope",
                "a step that is still being built",
                "a finished one",
            )
            .variable(name));
        };
        for step in &mut state.open[first..] {
            id = step.capture(program, id).map_err(|e| e.variable(&name))?;
            if step.block == self.block {
                break;
            }
        }
        Ok(id)
    }

    /// Ends the innermost step block: checks the memories, binds the outputs, appends the `recurrent`.
    fn close(&self, results: &[Var], caller: &'static Location<'static>) -> Result<Vec<Var>> {
        for &var in results {
            self.own(var)?;
        }
        // A value that is no operator's own (an input, a memory) is copied, so that every output and every memory's
        // next value is written by one operator.
        let block = self.state.borrow().open.last().map_or(self.block, |s| s.block);
        let inside = Builder { block, ..self.called_from(caller) };
        let mut finals = Vec::new();
        let mut outputs = Vec::new();
        for &var in results {
            if self.state.borrow().open.last().is_some_and(|s| s.is_last(var.id)) {
                finals.push(var.id);
            } else {
                outputs.push(inside.computed_here(var)?);
            }
        }
        let state = &mut *self.state.borrow_mut();
        let Some(mut step) = state.open.pop() else {
            return Err(Error::of(ErrorKind::Program, "step", "an open step block", "none"));
        };
        let program = &mut state.program;
        for memory in &step.memories {
            let Some(next) = memory.next else {
                return Err(Error::of(ErrorKind::Program, "memory", "one `update` in the step", "none")
                    .variable(&program.var(memory.previous).name));
            };
            let (want, got) = (program.spec(memory.previous)?, program.spec(next)?);
            if want != got {
                return Err(Error::new("update of a memory", want.to_string(), got.to_string())
                    .variable(&program.var(next).name));
            }
        }
        let mut outer_outputs: Vec<VarId> = Vec::new();
        for &inner in &outputs {
            if let Some(pair) = step.desc.outputs.iter().find(|p| p.inner == inner) {
                outer_outputs.push(pair.outer);
                continue;
            }
            let spec = step.outer_spec(program, inner)?;
            let name = program.var(inner).name.clone();
            let stop = program.var(inner).stop_gradient;
            let outer =
                program.add_computed(&format!("{name}.steps"), step.parent, spec, VarRole::Computed, stop);
            step.desc.outputs.push(Pair { outer, inner });
            outer_outputs.push(outer);
        }
        for memory in &step.memories {
            let Some(next) = memory.next else { continue };
            let &OpenMemory { previous, initial, last, .. } = memory;
            step.desc.memories.push(Memory { previous, next, initial, last });
        }
        let desc = step.finish(program, caller.to_string());
        program.blocks[step.parent.0 as usize].ops.push(desc);
        let mut out = outer_outputs.into_iter();
        let id = |&var: &Var| if finals.contains(&var.id) { Some(var.id) } else { out.next() };
        Ok(results.iter().filter_map(id).map(|id| self.var(id)).collect())
    }

    /// `var`, or a copy of it, so that an operator of this very block has written it and no memory has it yet.
    #[track_caller]
    pub(super) fn computed_here(&self, var: Var) -> Result<VarId> {
        let id = self.resolve(var)?;
        let written =
            self.state.borrow().program.block(self.block).ops.iter().any(|op| op.writes().any(|v| v == id));
        if written {
            Ok(id)
        } else {
            self.append("assign", &[("x", &[self.var(id)])], Attributes::new()).map(Var::id)
        }
    }
}

impl OpenStep {
    pub(super) fn first_input(&self) -> Option<VarId> {
        self.desc.inputs.first().map(|pair| pair.inner)
    }

    fn is_last(&self, var: VarId) -> bool {
        self.memories.iter().any(|m| m.last == Some(var))
    }

    /// The step's view of an outer variable, whose levels below the sequences become the step's own.
    fn view(&mut self, program: &mut Program, var: VarId, spec: &Spec, deeper: &[LevelId]) -> Result<VarId> {
        let mut lod = Levels::new();
        for &outer in deeper {
            let known = self.desc.levels.iter().find(|(o, _)| *o == outer).map(|(_, inner)| *inner);
            lod.push(known.unwrap_or_else(|| {
                let inner = program.add_level();
                self.desc.levels.push((outer, inner));
                inner
            }));
        }
        let mut shape = spec.shape.clone();
        shape[0] = lod.last().map_or(Extent::Alive(self.block), |&l| Extent::Rows(l));
        let view = Spec { shape, lod, ..spec.clone() };
        let desc = program.var(var);
        let (name, stop) = (format!("{}.step", desc.name), desc.stop_gradient);
        Ok(program.add_computed(&name, self.block, view, VarRole::Step, stop))
    }

    /// A static input: one row, or one whole sub-sequence, for each sequence.
    fn capture(&mut self, program: &mut Program, var: VarId) -> Result<VarId> {
        if let Some(pair) = self.desc.statics.iter().find(|p| p.outer == var) {
            return Ok(pair.inner);
        }
        if self.is_last(var) {
            let got = "the final value of a memory of this very step";
            return Err(Error::of(
                ErrorKind::Program,
                "static input of a step",
                "a value known before the step",
                got,
            ));
        }
        let spec = program.spec(var)?.clone();
        let depth = self.above.len();
        let fits = spec.lod.len() >= depth
            && spec.lod[..depth] == self.above[..]
            && (spec.lod.len() > depth || spec.rows() == self.sequences);
        if !fits {
            let expected = format!("{}, or one sub-sequence", rows_of_step(self.sequences));
            return Err(Error::new("static input of a step", expected, spec.to_string()));
        }
        // A static sub-sequence has its own levels even where a step input has the same ones: there they are cut to
        // one step's entries, here they are whole.
        let deeper: Vec<LevelId> = spec.lod[depth..].to_vec();
        let mut lod = Levels::new();
        for &outer in &deeper {
            let known = self.desc.static_level(program, outer);
            lod.push(match known {
                Some(level) => level,
                None => program.add_level(),
            });
        }
        let mut shape = spec.shape.clone();
        shape[0] = lod.last().map_or(Extent::Alive(self.block), |&l| Extent::Rows(l));
        let view = Spec { shape, lod, ..spec };
        let desc = program.var(var);
        let (name, stop) = (format!("{}.static", desc.name), desc.stop_gradient);
        let inner = program.add_computed(&name, self.block, view, VarRole::Step, stop);
        self.desc.statics.push(Pair { outer: var, inner });
        Ok(inner)
    }

    /// The outer spec of an output: the levels down to the sequences, then the step's deeper ones.
    fn outer_spec(&self, program: &mut Program, inner: VarId) -> Result<Spec> {
        let spec = program.spec(inner)?.clone();
        if !spec.batched() {
            let expected = "a value with a row (or a sub-sequence) for each sequence";
            return Err(
                Error::new("output of a step", expected, spec.to_string()).variable(&program.var(inner).name)
            );
        }
        let mut lod = self.above.clone();
        lod.push(self.level);
        for level in &spec.lod {
            let outer = self.desc.levels.iter().find(|(_, i)| i == level).map(|(o, _)| *o);
            let Some(outer) = outer else {
                return Err(Error::new(
                    "output of a step",
                    "rows, or sub-sequences of a step input",
                    "sub-sequences made inside the step",
                )
                .variable(&program.var(inner).name));
            };
            lod.try_push(outer).map_err(|_| Error::new("LoD", "fewer levels", "one more"))?;
        }
        let mut shape = spec.shape.clone();
        shape[0] = lod.last().map_or(self.sequences, |&l| Extent::Rows(l));
        Ok(Spec { shape, lod, ..spec })
    }

    /// The operator with all its outer variables in slots.
    fn finish(&mut self, program: &Program, caller: String) -> OpDesc {
        let desc = self.desc.clone();
        let outers = |pairs: &[Pair]| pairs.iter().map(|p| p.outer).collect::<Vec<_>>();
        let mut constants: Vec<VarId> = Vec::new();
        for (id, block) in program.blocks() {
            if !program.encloses(self.block, id) {
                continue;
            }
            for var in block.ops.iter().flat_map(OpDesc::reads) {
                if !program.encloses(self.block, program.var(var).block) && !constants.contains(&var) {
                    constants.push(var);
                }
            }
        }
        let bound = |slot: &str, vars: Vec<VarId>| Bound { slot: slot.to_owned(), vars };
        let mut inputs = vec![
            bound("x", outers(&desc.inputs)),
            bound("static", outers(&desc.statics)),
            bound("initial", desc.memories.iter().filter_map(|m| m.initial).collect()),
            bound("constant", constants),
        ];
        let mut outputs = vec![
            bound("out", outers(&desc.outputs)),
            bound("last", desc.memories.iter().filter_map(|m| m.last).collect()),
        ];
        inputs.retain(|b| !b.vars.is_empty());
        outputs.retain(|b| !b.vars.is_empty());
        OpDesc {
            kind: RECURRENT.to_owned(),
            role: Role::Forward,
            inputs,
            outputs,
            attributes: Attributes::new(),
            step: Some(Box::new(desc)),
            caller,
        }
    }
}

impl StepDesc {
    /// The level that a captured sub-sequence's outer level has in the step, if one was captured before.
    fn static_level(&self, program: &Program, outer: LevelId) -> Option<LevelId> {
        self.statics.iter().find_map(|pair| {
            let (o, i) = (program.var(pair.outer).spec()?, program.var(pair.inner).spec()?);
            let depth = o.lod.len() - i.lod.len();
            let at = o.lod.iter().position(|l| *l == outer)?;
            i.lod.get(at.checked_sub(depth)?).copied()
        })
    }
}
