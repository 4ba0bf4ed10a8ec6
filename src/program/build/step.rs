//! Step blocks: a closure that says what one step does, run unpadded over every sequence.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::panic::Location;

use super::builder::{Builder, State, finished};
use super::naming::Opened;
use super::var::Var;
use super::vars::Vars;
use crate::error::{Error, ErrorKind, Place, Result};
use crate::program::description::op_desc::{Bound, Memory, OpDesc, Pair, RECURRENT, Role, StepDesc};
use crate::program::description::program::Program;
use crate::program::description::var_desc::VarRole;
use crate::program::spec::attributes::Attributes;
use crate::program::spec::extent::{BlockId, Extent, LevelId, Levels, Spec, VarId, rows_of_step};

/// A step block that is being built.
pub(super) struct OpenStep {
    pub(super) block: BlockId,
    pub(super) parent: BlockId,
    /// Levels above the one whose sequences are run.
    pub(super) above: Levels,
    /// What counts the sequences that are run.
    pub(super) sequences: Extent,
    /// The level whose sequences are run; `None` if the step inputs do not fit or are unknown.
    over: Option<LevelId>,
    /// Of the `recurrent`, for errors.
    place: Place,
    desc: StepDesc,
    memories: Vec<OpenMemory>,
    /// The number of each memory by its variable, and what is some memory's next value.
    numbers: HashMap<VarId, usize>,
    pub(super) taken: HashSet<VarId>,
    /// The final values that were asked for.
    lasts: HashSet<VarId>,
    /// The static inputs, by the outer variable.
    captured: HashMap<VarId, VarId>,
}

#[derive(Clone, Copy)]
pub(super) struct OpenMemory {
    pub(super) previous: VarId,
    pub(super) initial: Option<VarId>,
    pub(super) next: Next,
    /// The outer variable of its final value, once it was asked for.
    pub(super) last: Option<VarId>,
}

/// What a memory holds at the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing was said yet.
    None,
    /// What was said does not fit, or is unknown.
    Unknown,
    Known(VarId),
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
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let (h, last) = net.recurrent(x, |step, x_t| {
    ///     let h_prev = step.memory(16); // starts at zero
    ///     let h = (x_t.linear(16) + h_prev.linear(16)).tanh();
    ///     step.update(h_prev, h);
    ///     (h, step.last(h_prev))
    /// });
    /// # net.check()?;
    /// assert_eq!(net.describe(h), "`tanh.steps`: f32[rows0, 16] lod(0)");
    /// assert_eq!(net.describe(last), "`memory.last`: f32[batch, 16]");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the inputs have no LoD or different ones, a memory is not updated, or anything in the block fails. What does not
    /// fit in the block leaves unknown what depends on it, and nothing else.
    #[track_caller]
    pub fn recurrent<I: Vars, O: Vars>(&self, inputs: I, step_block: impl FnOnce(&Step, I) -> O) -> O {
        self.recurrent_with(Recurrence::default(), inputs, step_block)
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
        step_block: impl FnOnce(&Step, I) -> O,
    ) -> O {
        let (caller, list) = (self.here(), inputs.list());
        let open = |state: &mut State| {
            let depth = state.open.len();
            let number = state.program.block(self.block).ops.len();
            let place = Place {
                operator: Some(format!("{RECURRENT} #{number}")),
                block: (self.block.0 > 0).then_some(self.block.0 as usize),
                caller: Some(caller.to_string()),
                variable: None,
            };
            (depth, state.open(self.block, options, &list, caller, place))
        };
        let (depth, (block, inner)) = open(&mut self.state.borrow_mut());
        // Closed also if the block panics.
        let opened = Opened::new(self, |_| depth, |state, depth| state.open.truncate(depth));
        let step = Step { builder: Builder { block, ..self.clone() } };
        let inner: Vec<Var> =
            inner.into_iter().map(|id| id.map_or(self.unknown(), |id| self.var(id))).collect();
        let results = step_block(&step, inputs.with(&inner));
        let outputs = step.close(&results.list(), caller);
        drop(opened);
        results.with(&outputs)
    }
}

impl State {
    /// Opens a step block over variables of `parent`: its number and what its step inputs are there. If one does not fit,
    /// or is unknown, none is known, nor any output of the block, but what is wrong inside is still found.
    fn open(
        &mut self,
        parent: BlockId,
        options: Recurrence,
        inputs: &[Var],
        caller: &'static Location<'static>,
        place: Place,
    ) -> (BlockId, Vec<Option<VarId>>) {
        let mut outer = Vec::new();
        for &var in inputs {
            match self.resolve(parent, var) {
                Ok(id) => outer.extend(id),
                Err(error) => self.errors.push(error.at(place.clone())),
            }
        }
        let block = self.program.add_block(parent);
        self.opened_at.push((block, caller));
        let mut step = OpenStep {
            block,
            parent,
            above: Levels::new(),
            sequences: Extent::Batch,
            over: None,
            place,
            desc: StepDesc {
                block,
                level: LevelId(u32::MAX),
                reverse: options.reverse,
                inputs: Vec::new(),
                statics: Vec::new(),
                memories: Vec::new(),
                outputs: Vec::new(),
                levels: Vec::new(),
                gradient: None,
            },
            memories: Vec::new(),
            numbers: HashMap::new(),
            taken: HashSet::new(),
            lasts: HashSet::new(),
            captured: HashMap::new(),
        };
        let mut inner = vec![None; inputs.len()];
        if outer.len() == inputs.len() {
            match step.bind(&mut self.program, options, &outer) {
                Ok(bound) => inner = bound.into_iter().map(Some).collect(),
                Err(error) => self.errors.push(error.at(step.place.clone())),
            }
        }
        self.open.push(step);
        (block, inner)
    }

    /// The variable as a block sees it: itself, or the static capture of a batched variable from around. `None` if it is
    /// unknown.
    pub(super) fn resolve(&mut self, block: BlockId, var: Var) -> Result<Option<VarId>> {
        let Some(id) = self.own(var)? else { return Ok(None) };
        self.seen(block, id)?;
        let State { program, open, .. } = self;
        let desc = program.var(id);
        let (name, from) = (desc.name.clone(), desc.block);
        if from == block || !desc.spec().is_some_and(Spec::batched) {
            return Ok(Some(id));
        }
        let mut seen = id;
        // The steps from the variable's block down to this one; others may be open that are not among them.
        for step in open {
            if !program.encloses(step.block, block) || program.encloses(step.block, from) {
                continue;
            }
            let Some(inside) = step.capture(program, seen).map_err(|e| e.variable(&name))? else {
                return Ok(None);
            };
            seen = inside;
        }
        if program.var(seen).block != block {
            return Err(finished().variable(name));
        }
        Ok(Some(seen))
    }

    /// Checks that a block sees a variable: its own, or one of a block around it.
    pub(super) fn seen(&self, block: BlockId, id: VarId) -> Result<()> {
        let State { program, open, opened_at, .. } = self;
        let desc = program.var(id);
        let from = desc.block;
        let scope = |expected: String, got: String| {
            Error::of(ErrorKind::Program, "scope", expected, got).variable(&desc.name)
        };
        if open.iter().any(|step| step.parent == block && step.is_last(id)) {
            let got = "the final value of a memory of a step that is not finished";
            return Err(scope("a value that is known by now".into(), got.into()));
        }
        if program.encloses(from, block) {
            return Ok(());
        }
        let writer = program.block(from).ops.iter().find(|op| op.writes().any(|written| written == id));
        let line = opened_at.iter().find(|(step, _)| *step == from).map(|(_, line)| line.to_string());
        let made = writer.map(|op| op.caller.clone()).or(line).unwrap_or_default();
        let expected = format!("a variable of block {} or of a block around it", block.0);
        let error = scope(expected, format!("one that is inside block {}", from.0));
        Err(error.noted(format!("it was made at {made}; what a step returns is known outside")))
    }
}

impl Step {
    /// Ends the innermost step block: checks the memories, binds the outputs, appends the `recurrent`. What the results
    /// are outside.
    fn close(&self, results: &[Var], caller: &'static Location<'static>) -> Vec<Var> {
        let _line = self.called_from(caller);
        // A value that is no operator's own (an input, a memory) is copied, so that every output and every memory's
        // next value is written by one operator.
        let mut inside = Vec::new();
        for &var in results {
            let last = self.state.borrow().open.last().is_some_and(|s| s.is_last(var.id));
            let id = match self.known(var) {
                Some(id) if last => Some(id),
                Some(_) => self.computed_here(var),
                None => None,
            };
            inside.push((id, last));
        }
        let state = &mut *self.state.borrow_mut();
        let Some(mut step) = state.open.pop() else { return vec![self.unknown(); results.len()] };
        let State { program, errors, .. } = state;
        let number = program.block(step.parent).ops.len();
        step.place.operator = Some(format!("{RECURRENT} #{number}"));
        for memory in &step.memories {
            if memory.next == Next::None {
                let error = Error::of(ErrorKind::Program, "memory", "one `update` in the step", "none");
                let name = &program.var(memory.previous).name;
                errors.push(error.variable(name).at(step.place.clone()));
            }
        }
        let mut outside = |id: Option<VarId>, last: bool| -> Option<VarId> {
            let (id, _) = (id?, step.over?);
            if last {
                return Some(id);
            }
            if let Some(pair) = step.desc.outputs.iter().find(|p| p.inner == id) {
                return Some(pair.outer);
            }
            let spec = match step.outer_spec(program, id) {
                Ok(spec) => spec,
                Err(error) => {
                    errors.push(error.at(step.place.clone()));
                    return None;
                }
            };
            let name = program.var(id).name.clone();
            let stop = program.var(id).stop_gradient;
            let outer =
                program.add_computed(&format!("{name}.steps"), step.parent, spec, VarRole::Computed, stop);
            step.desc.outputs.push(Pair { outer, inner: id });
            Some(outer)
        };
        let outer: Vec<Option<VarId>> = inside.into_iter().map(|(id, last)| outside(id, last)).collect();
        for memory in &step.memories {
            let &OpenMemory { previous, initial, last, ref next } = memory;
            if let &Next::Known(next) = next {
                step.desc.memories.push(Memory { previous, next, initial, last });
            }
        }
        if step.is_known() {
            let desc = step.finish(program, caller.to_string());
            program.blocks[step.parent.0 as usize].ops.push(desc);
        }
        outer.into_iter().map(|id| id.map_or(self.unknown(), |id| self.var(id))).collect()
    }

    /// `var`, or a copy of it, so that an operator of this very block has written it and no memory has it yet.
    pub(super) fn computed_here(&self, var: Var) -> Option<VarId> {
        let resolved = self.state.borrow_mut().resolve(self.block, var);
        let id = self.fitting(resolved)??;
        let state = self.state.borrow();
        let desc = state.program.var(id);
        // Inside a block, what is neither its own view nor from around was computed there.
        let written = desc.block == self.block && desc.role == VarRole::Computed;
        drop(state);
        if written {
            return Some(id);
        }
        let copy: Var = self.append("assign", &[("x", &[self.var(id)])], Attributes::new());
        (!copy.is_unknown()).then_some(copy.id)
    }
}

impl OpenStep {
    /// Binds the step inputs: what they are in the block.
    fn bind(&mut self, program: &mut Program, options: Recurrence, outer: &[VarId]) -> Result<Vec<VarId>> {
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
        let (level, depth) = (lod[index], index);
        let above: Levels = lod[..index].iter().copied().collect();
        for &var in outer {
            let spec = program.spec(var)?;
            if spec.lod.len() <= depth || spec.lod[..depth] != above[..] || spec.lod[depth] != level {
                let expected = format!("the sequences of the first one, {}", program.spec(first)?);
                let error = Error::new("step input", expected, spec.to_string());
                return Err(error.variable(&program.var(var).name));
            }
        }
        self.sequences = above.last().map_or(program.top(self.parent), |&l| Extent::Rows(l));
        (self.above, self.over, self.desc.level) = (above, Some(level), level);
        let mut inner = Vec::new();
        for &var in outer {
            let spec = program.spec(var)?.clone();
            let id = self.view(program, var, &spec, &spec.lod[depth + 1..]);
            self.desc.inputs.push(Pair { outer: var, inner: id });
            inner.push(id);
        }
        Ok(inner)
    }

    pub(super) fn first_input(&self) -> Option<VarId> {
        self.desc.inputs.first().map(|pair| pair.inner)
    }

    /// That it is not finished, for a program that is to be.
    pub(super) fn unfinished(&self) -> Error {
        let expected = "to be finished before the program";
        Error::of(ErrorKind::Program, "step", expected, "a program that is finished in it")
            .at(self.place.clone())
    }

    /// Whether it is known over which sequences it runs.
    pub(super) fn is_known(&self) -> bool {
        self.over.is_some()
    }

    pub(super) fn memories(&self) -> &[OpenMemory] {
        &self.memories
    }

    pub(super) fn add_memory(&mut self, memory: OpenMemory) {
        self.numbers.insert(memory.previous, self.memories.len());
        self.memories.push(memory);
    }

    /// The memory that a variable is.
    pub(super) fn memory(&mut self, var: VarId) -> Option<&mut OpenMemory> {
        self.memories.get_mut(*self.numbers.get(&var)?)
    }

    /// A memory's final value has an outer variable now.
    pub(super) fn set_last(&mut self, memory: VarId, last: VarId) {
        if let Some(memory) = self.memory(memory) {
            memory.last = Some(last);
            self.lasts.insert(last);
        }
    }

    fn is_last(&self, var: VarId) -> bool {
        self.lasts.contains(&var)
    }

    /// The step's view of an outer variable, whose levels below the sequences become the step's own.
    fn view(&mut self, program: &mut Program, var: VarId, spec: &Spec, deeper: &[LevelId]) -> VarId {
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
        program.add_computed(&name, self.block, view, VarRole::Step, stop)
    }

    /// A static input: one row, or one whole sub-sequence, for each sequence. `None` if it is not known over which
    /// sequences the block runs.
    fn capture(&mut self, program: &mut Program, var: VarId) -> Result<Option<VarId>> {
        if !self.is_known() {
            return Ok(None);
        }
        if let Some(&inner) = self.captured.get(&var) {
            return Ok(Some(inner));
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
        self.captured.insert(var, inner);
        Ok(Some(inner))
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
        lod.push(self.desc.level);
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
        let mut known = HashSet::new();
        // The blocks inside it were made after it.
        for (id, block) in program.blocks().skip(self.block.0 as usize) {
            if !program.encloses(self.block, id) {
                continue;
            }
            for var in block.ops.iter().flat_map(OpDesc::reads) {
                if !program.encloses(self.block, program.var(var).block) && known.insert(var) {
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
