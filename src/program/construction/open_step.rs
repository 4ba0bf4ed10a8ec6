//! The state of a step block that is being built: step inputs, static inputs and memories.

use std::collections::{HashMap, HashSet};

use crate::error::{Error, ErrorKind, Place, Result};
use crate::operator::attributes::Attributes;
use crate::operator::extent::{BlockId, Extent, LevelId, Levels, Spec, VarId, rows_of_step};
use crate::program::description::language::RECURRENT;
use crate::program::description::op_desc::{OpDesc, Role, SlotVars, StepDesc, VarPair};
use crate::program::description::program::Program;
use crate::program::description::var_desc::VarRole;
use crate::tensor::StorageKind;

/// Options of [`Builder::recurrent_with`](crate::Builder::recurrent_with): the LoD level whose sequences the steps run over, and
/// the direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recurrence {
    /// The LoD level whose sequences the steps run over: an index into the levels of the first step input, 0 for the top level.
    /// `None` means the last level.
    pub level: Option<usize>,
    /// Whether the steps run over each sequence from the last row to the first row.
    pub reverse: bool,
}

/// The state of a step block that is being built.
#[derive(Clone)]
pub(super) struct OpenStep {
    pub(super) block: BlockId,
    pub(super) parent: BlockId,
    /// The LoD levels above the level `over`, from the top.
    pub(super) above: Levels,
    /// The extent that counts the sequences of the level `over`.
    pub(super) sequences: Extent,
    /// The LoD level whose sequences the steps run over; `None` if the step inputs do not fit or are unknown.
    pub(super) over: Option<LevelId>,
    /// The position of the operator `recurrent` in the program, for error messages.
    pub(super) place: Place,
    pub(super) desc: StepDesc,
    pub(super) memories: Vec<OpenMemory>,
    /// For each variable that holds the previous value of a memory, the index of the memory in `memories`.
    pub(super) numbers: HashMap<VarId, usize>,
    /// The variables that hold the next value of a memory.
    pub(super) taken: HashSet<VarId>,
    /// The outer variables that [`Step::last`](crate::program::Step::last) returned; each holds the final value of a memory.
    pub(super) lasts: HashSet<VarId>,
    /// For each outer variable that is a static input, its view in the step block.
    pub(super) captured: HashMap<VarId, VarId>,
    /// The number of errors that the builder had recorded when the step block was opened.
    pub(super) errors: usize,
}

#[derive(Clone, Copy)]
pub(super) struct OpenMemory {
    pub(super) previous: VarId,
    pub(super) initial: Option<VarId>,
    pub(super) next: NextMemory,
    /// The outer variable that holds the memory's final value; `None` until the user calls `last`.
    pub(super) last: Option<VarId>,
}

/// The variable that becomes the memory's value at the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextMemory {
    /// The user has not called `update` yet.
    None,
    /// The user called `update` with a variable that does not fit or is unknown.
    Unknown,
    Known(VarId),
}

impl OpenStep {
    /// Binds the outer variables `outer` as step inputs; returns the step block's view of each variable.
    pub(super) fn bind(
        &mut self,
        program: &mut Program,
        options: Recurrence,
        outer: &[VarId],
    ) -> Result<Vec<VarId>> {
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
                let expected = format!("the sequences of the first step input, {}", program.spec(first)?);
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
            self.desc.inputs.push(VarPair { outer: var, inner: id });
            inner.push(id);
        }
        Ok(inner)
    }

    pub(super) fn first_input(&self) -> Option<VarId> {
        self.desc.inputs.first().map(|pair| pair.inner)
    }

    /// Returns the error that the program is finished while this step block is still open.
    pub(super) fn unfinished(&self) -> Error {
        let expected = "to be finished before the program";
        Error::of(ErrorKind::Program, "step", expected, "a program that is finished inside the step")
            .at(self.place.clone())
    }

    /// Returns whether an outer variable is a step input, a static input or the initial value of a memory.
    pub(super) fn reads(&self, outer: VarId) -> bool {
        let mut pairs = self.desc.inputs.iter().chain(&self.desc.statics);
        pairs.any(|pair| pair.outer == outer)
            || self.memories.iter().any(|memory| memory.initial == Some(outer))
    }

    /// Returns whether the sequences that the steps run over are known: `false` if a step input does not fit or is unknown.
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

    /// Returns the memory whose previous value is the variable `var`.
    pub(super) fn memory(&mut self, var: VarId) -> Option<&mut OpenMemory> {
        self.memories.get_mut(*self.numbers.get(&var)?)
    }

    /// Records the outer variable `last` that holds a memory's final value.
    pub(super) fn set_last(&mut self, memory: VarId, last: VarId) {
        if let Some(memory) = self.memory(memory) {
            memory.last = Some(last);
            self.lasts.insert(last);
        }
    }

    pub(super) fn is_last(&self, var: VarId) -> bool {
        self.lasts.contains(&var)
    }

    /// Adds a view of an outer variable to the step block, for a step input. Each LoD level in `deeper` gets a corresponding new
    /// level in the step block.
    pub(super) fn view(
        &mut self,
        program: &mut Program,
        var: VarId,
        spec: &Spec,
        deeper: &[LevelId],
    ) -> VarId {
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
        program.add_computed(&name, self.block, view, VarRole::Step, stop.into())
    }

    /// Makes an outer variable a static input: every step of a sequence reads the same row or the same sub-sequence. Returns
    /// `None` if the sequences that the steps run over are unknown.
    pub(super) fn capture(&mut self, program: &mut Program, var: VarId) -> Result<Option<VarId>> {
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
        // A static sub-sequence gets its own LoD levels, even if a step input has the same levels. A view of a step input has
        // only the entries of one step, but a view of a static input is the whole sub-sequence.
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
        let inner = program.add_computed(&name, self.block, view, VarRole::Step, stop.into());
        self.desc.statics.push(VarPair { outer: var, inner });
        self.captured.insert(var, inner);
        Ok(Some(inner))
    }

    /// Returns the spec that an output of the step block has in the outer block. The LoD levels of the output are the levels
    /// down to `over`, then the levels that the output has in the step block.
    pub(super) fn outer_spec(&self, program: &mut Program, inner: VarId) -> Result<Spec> {
        let spec = program.spec(inner)?.clone();
        if spec.storage != StorageKind::Dense {
            let error = Error::new("output of a step", "dense rows", spec.to_string());
            return Err(error.variable(&program.var(inner).name));
        }
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

    /// Returns the operator `recurrent` that runs the step block; all outer variables are bound to its slots.
    pub(super) fn finish(&mut self, program: &Program, caller: String) -> OpDesc {
        let desc = self.desc.clone();
        let outers = |pairs: &[VarPair]| pairs.iter().map(|p| p.outer).collect::<Vec<_>>();
        let mut constants: Vec<VarId> = Vec::new();
        let mut known = HashSet::new();
        // Blocks are numbered in the order of opening, so only blocks with higher numbers can be inside this block.
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
        let bound = |slot: &str, vars: Vec<VarId>| SlotVars { slot: slot.to_owned(), vars };
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
    /// Returns the level in the step block that corresponds to the level `outer` of a static sub-sequence; `None` if no static
    /// input has that level.
    fn static_level(&self, program: &Program, outer: LevelId) -> Option<LevelId> {
        self.statics.iter().find_map(|pair| {
            let (o, i) = (program.var(pair.outer).spec()?, program.var(pair.inner).spec()?);
            let depth = o.lod.len() - i.lod.len();
            let at = o.lod.iter().position(|l| *l == outer)?;
            i.lod.get(at.checked_sub(depth)?).copied()
        })
    }
}
