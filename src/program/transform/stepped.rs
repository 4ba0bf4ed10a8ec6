//! Stepped programs: inference row by row. Each run of the step program computes the next row of every sequence.

use std::collections::{HashMap, HashSet};

use crate::error::{AtCaller, Error, Place, Result};
use crate::operator::extent::{BlockId, Extent, LevelId, Spec, VarId};
use crate::operator::facts::{Facts, Reach};
use crate::operator::registry::Registry;
use crate::program::description::op_desc::{OpDesc, SlotVars, StepDesc, VarPair};
use crate::program::description::program::{Program, malformed};
use crate::program::description::var_desc::{VarDesc, VarKind, VarRole};
use crate::program::transform::streamed::WindowState;

/// The two programs that run inference row by row: see [`Program::stepped`]. The programs `before` and `step` have the variables
/// of the original program, with the same ids.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepProgram {
    /// The program that runs once before all steps: it has every operator that depends neither on rows of the sequences nor on a
    /// memory, even if the operator is in a step block. An operator that computes a memory's next value is always in `step`.
    pub before: Program,
    /// The program that runs at every step. A variable with the rows of the sequences has one row per sequence in the step
    /// program.
    pub step: Program,
    /// The feeds of `step` that have the same value at every step: variables of `before`, either computed or fed.
    pub(crate) kept: Vec<VarId>,
    /// The memories. Each memory has a feed of `step` for its value, a variable with its next value, and a variable with its
    /// value for the first step (`None` for zeros).
    pub(crate) memories: Vec<WindowState>,
    /// The variables of `step` that hold the outputs, in the order of the call's argument `outputs`.
    pub(crate) outputs: Vec<VarId>,
}

impl Program {
    /// Returns two programs that compute `outputs` row by row, with results that are bit-identical to the original program's
    /// results. The operators of each step block over the sequences become operators of the step program, and the step block's
    /// memories become feeds and fetches. Values that do not depend on the rows of the sequences are computed once, even if a
    /// step block computes them. Examples are an encoder's states, and the keys of an attention to these states. An output may
    /// also be a variable of a step block, if the step block is needed for another output.
    ///
    /// ```
    /// use unpadded::layers::Gru;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[3], 1);
    /// let (forth, back) = (x.gru(4), x.gru(Gru::new(4).backwards()));
    /// let (registry, y) = (net.registry(), forth.linear(2));
    /// let program = net.finish()?;
    /// let stepped = program.stepped(&registry, &[y.id()])?;
    /// assert_eq!(stepped.step.spec(x.id())?.to_string(), "f32[batch, 3]");
    /// let error = program.stepped(&registry, &[back.id()]).unwrap_err().to_string();
    /// assert!(error.contains("from the first row on, got a loop that runs from the end"), "{error}");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the outputs do not have the rows of the same sequences, or if no feed with one level has these rows. Fails if an
    /// operator needs other rows of a sequence than the current row (a loop from the end, a look-ahead, a pool); the error names
    /// the operator. Fails if an output does not have one row at each step, or if [`Program::inference`] fails.
    #[doc(hidden)]
    #[track_caller]
    pub fn stepped(&self, registry: &Registry, outputs: &[VarId]) -> Result<StepProgram> {
        self.row_by_row(registry, outputs).at_caller()
    }

    fn row_by_row(&self, registry: &Registry, outputs: &[VarId]) -> Result<StepProgram> {
        let outside = |var: &VarId| self.vars.get(var.0 as usize).is_none_or(|desc| desc.block == BlockId(0));
        let of_rows: Vec<VarId> = outputs.iter().copied().filter(outside).collect();
        let mut program = self.inference(&of_rows)?;
        program.shape_source = Default::default();
        let level = self.stepped_level(&of_rows)?;
        let ops = std::mem::take(&mut program.blocks[0].ops);
        let mut stepping = RowStepper {
            program,
            registry,
            level,
            late: HashSet::new(),
            same: HashMap::new(),
            levels: HashMap::new(),
            opened: HashSet::new(),
            memories: Vec::new(),
            before: Vec::new(),
            step: Vec::new(),
        };
        for (number, op) in ops.into_iter().enumerate() {
            stepping.root(number, op)?;
        }
        stepping.finish(outputs)
    }

    /// Returns the level whose sequences have the outputs' rows; a feed must have this level as its only level.
    fn stepped_level(&self, outputs: &[VarId]) -> Result<LevelId> {
        let mut found = None;
        for desc in outputs.iter().map(|&id| self.var(id)) {
            let Some(spec) = desc.spec() else { continue };
            let wrong = |expected: &str| {
                let error = malformed("output of a program that runs row by row", expected, spec.to_string());
                Err(error.variable(&desc.name))
            };
            let &[level, ..] = &spec.lod[..] else { return wrong("an output with the rows of sequences") };
            if *found.get_or_insert(level) != level {
                return wrong("an output with the rows of the same sequences as the first output");
            }
        }
        let level_of = |desc: &VarDesc| {
            let spec = desc.spec().filter(|_| desc.role == VarRole::Feed)?;
            spec.lod.first().copied().filter(|_| spec.lod.len() == 1)
        };
        let fed = |level: &LevelId| self.vars().any(|(_, desc)| level_of(desc) == Some(*level));
        found.filter(fed).ok_or_else(|| {
            let what = "output of a program that runs row by row";
            malformed(what, "an output of the root block with the rows of a feed that has one level", "none")
        })
    }
}

/// Returns the error that a program with this operator cannot be run row by row.
fn cannot(expected: impl Into<String>, got: impl Into<String>) -> Error {
    malformed("operator of a program that runs row by row", expected, got)
}

/// The state of the transformation, which assigns each operator to the program `before` or to the program `step`.
struct RowStepper<'a> {
    program: Program,
    registry: &'a Registry,
    level: LevelId,
    /// The variables whose values only the program `step` knows.
    late: HashSet<VarId>,
    /// Variables and their replacements in the new programs. A view in a step block is replaced by its outer variable, and an
    /// outer variable that collects the values of all steps is replaced by the step's value.
    same: HashMap<VarId, VarId>,
    /// The outer level of each LoD level of a step block.
    levels: HashMap<LevelId, LevelId>,
    /// The step blocks whose operators were moved to the root block.
    opened: HashSet<BlockId>,
    memories: Vec<WindowState>,
    before: Vec<OpDesc>,
    step: Vec<OpDesc>,
}

impl RowStepper<'_> {
    fn levels_of(&self, var: VarId) -> &[LevelId] {
        self.program.var(var).spec().map_or(&[], |spec| &spec.lod)
    }

    /// Returns whether a variable is known only at a step: it has rows of the sequences, or it depends on a variable with such
    /// rows.
    fn is_late(&self, var: VarId) -> bool {
        self.late.contains(&var) || self.levels_of(var).first() == Some(&self.level)
    }

    fn settled(&self, var: VarId) -> VarId {
        self.same.get(&var).copied().unwrap_or(var)
    }

    /// Assigns an operator of the root block to the program `before` or to the program `step`.
    fn root(&mut self, number: usize, op: OpDesc) -> Result<()> {
        let place = Place {
            operator: Some(format!("{} #{number}", op.kind)),
            caller: Some(op.caller.clone()),
            ..Place::default()
        };
        let late = op.reads().any(|var| self.is_late(var));
        let made = match &op.step {
            _ if !late => {
                self.before.push(op);
                return Ok(());
            }
            Some(step) if step.level == self.level => {
                let step = (**step).clone();
                self.open(&step)
            }
            Some(_) => self.whole_loop(op),
            None => self.of_rows(op),
        };
        made.map_err(|e| e.at(place))
    }

    /// Returns the [`Facts`] that an operator declares; fails if the operator cannot run row by row.
    fn facts(&self, op: &OpDesc) -> Result<Facts> {
        let parsed = self.registry.parse(&op.kind, &op.attributes)?;
        let facts = parsed.facts();
        if facts.batch_dependent || facts.reach == Reach::Batch {
            return Err(cannot(
                "an operator that depends on one sequence only",
                "an operator over the whole batch",
            ));
        }
        // The operator's random numbers depend on the row's position in the batch, which a step does not know.
        if facts.random && !parsed.hints().draws_in_training {
            return Err(cannot(
                "an operator that draws nothing in inference",
                "an operator that draws random numbers",
            ));
        }
        Ok(facts)
    }

    /// Assigns a loop over a deeper level to the program `step`, unchanged: each step reads whole sequences of the deeper
    /// level.
    fn whole_loop(&mut self, op: OpDesc) -> Result<()> {
        let aligned = |var: VarId| !self.is_late(var) || self.levels_of(var).first() == Some(&self.level);
        if !op.reads().all(aligned) {
            return Err(cannot("values of the rows so far", "a value that is known after the last row"));
        }
        self.nested(&op)?;
        self.late.extend(op.writes());
        self.step.push(self.renamed(op));
        Ok(())
    }

    /// Checks that the operators of a loop, and of the loops nested in it, can run row by row.
    fn nested(&self, op: &OpDesc) -> Result<()> {
        let ops = op.step.iter().flat_map(|step| &self.program.block(step.block).ops);
        ops.into_iter().try_for_each(|op| match &op.step {
            Some(_) => self.nested(op),
            None => self.facts(op).map(drop),
        })
    }

    /// Assigns an operator of the root block that reads rows of the sequences to the program `step`; fails unless the operator is
    /// row-wise.
    fn of_rows(&mut self, op: OpDesc) -> Result<()> {
        let facts = self.facts(&op)?;
        let has_rows = |var: VarId| self.levels_of(var) == [self.level];
        let constant = |var: VarId| !self.program.var(var).spec().is_some_and(Spec::batched);
        if facts.reach != Reach::Row
            || !op.reads().all(|var| has_rows(var) || constant(var))
            || !op.writes().all(has_rows)
        {
            return Err(cannot(
                "an operator that computes each row from the same row of its inputs",
                "an operator that needs other rows too",
            ));
        }
        self.late.extend(op.writes());
        self.step.push(self.renamed(op));
        Ok(())
    }

    /// Moves the operators of a step block over the sequences to the new programs.
    fn open(&mut self, step: &StepDesc) -> Result<()> {
        if step.reverse {
            return Err(cannot("a loop from the first row on", "a loop that runs from the end"));
        }
        let views = |pairs: &[VarPair]| pairs.iter().map(|p| (p.inner, p.outer)).collect::<Vec<_>>();
        for (inner, outer) in views(&step.inputs).into_iter().chain(views(&step.statics)) {
            let outer = self.settled(outer);
            let (of_inner, of_outer) = (self.levels_of(inner).to_vec(), self.levels_of(outer).to_vec());
            let outside = &of_outer[of_outer.len().saturating_sub(of_inner.len())..];
            self.levels.extend(of_inner.iter().copied().zip(outside.iter().copied()));
            self.same.insert(inner, outer);
        }
        if let Some(pair) = step.statics.iter().find(|pair| self.is_late(self.settled(pair.outer))) {
            let error = cannot("a loop over the rows", "a loop that reads whole sequences at every step");
            return Err(error.variable(&self.program.var(pair.outer).name));
        }
        for memory in &step.memories {
            let start = memory.initial.map(|initial| self.settled(initial));
            if let Some(initial) = start.filter(|&initial| self.is_late(initial)) {
                let error = cannot(
                    "a memory whose initial value is known before the first row",
                    "an initial value from these rows",
                );
                return Err(error.variable(&self.program.var(initial).name));
            }
            self.late.insert(memory.previous);
            self.memories.push(WindowState { fed: memory.previous, left: memory.next, start });
            // No step knows a memory's value after the last row.
            self.late.extend(memory.last);
        }
        self.opened.insert(step.block);
        for (number, op) in
            std::mem::take(&mut self.program.blocks[step.block.0 as usize].ops).into_iter().enumerate()
        {
            let place = Place {
                operator: Some(format!("{} #{number}", op.kind)),
                caller: Some(op.caller.clone()),
                ..self.program.inside(step.block)
            };
            self.inside(op).map_err(|e| e.at(place))?;
        }
        for pair in &step.outputs {
            let inner = self.settled(pair.inner);
            self.same.insert(pair.outer, inner);
            self.late.insert(pair.outer);
        }
        Ok(())
    }

    /// Assigns an operator of a step block to the program `before` or to the program `step`.
    fn inside(&mut self, op: OpDesc) -> Result<()> {
        match &op.step {
            Some(_) => self.nested(&op)?,
            None => drop(self.facts(&op)?),
        }
        let op = self.renamed(op);
        // The program `step` must compute a memory's next value, even if that value does not depend on rows of the sequences.
        let next = op.writes().any(|var| self.memories.iter().any(|memory| memory.left == var));
        if next || op.reads().any(|var| self.is_late(var)) {
            self.late.extend(op.writes());
            self.step.push(op);
        } else {
            self.before.push(op);
        }
        Ok(())
    }

    /// Replaces the step blocks' variables in an operator by the variables of the new programs.
    fn renamed(&self, mut op: OpDesc) -> OpDesc {
        let settle = |var: &mut VarId| *var = self.settled(*var);
        let bound = |bound: &mut SlotVars| bound.vars.iter_mut().for_each(settle);
        op.inputs.iter_mut().for_each(bound);
        op.outputs.iter_mut().for_each(bound);
        if let Some(step) = op.step.as_deref_mut() {
            let pairs = [&mut step.inputs, &mut step.statics, &mut step.outputs];
            pairs.into_iter().flatten().for_each(|pair| settle(&mut pair.outer));
            let ends = step.memories.iter_mut().flat_map(|m| [&mut m.initial, &mut m.last]);
            ends.flatten().for_each(settle);
        }
        op
    }

    /// Returns the outermost level that corresponds to a LoD level of a moved step block.
    fn outside(&self, mut level: LevelId) -> LevelId {
        // The loop is bounded: in a forged program, the map of levels may have cycles.
        for _ in 0..self.levels.len() {
            let Some(&outer) = self.levels.get(&level) else { break };
            level = outer;
        }
        level
    }

    /// Returns the spec that a variable has in the new programs.
    fn spec(&self, spec: &Spec) -> Spec {
        let mut new = spec.clone();
        new.lod = spec.lod.iter().map(|&l| self.outside(l)).filter(|&l| l != self.level).collect();
        if let Some(rows) = new.shape.first_mut() {
            *rows = match *rows {
                Extent::Rows(level) => match self.outside(level) {
                    level if level == self.level => Extent::Batch,
                    level => Extent::Rows(level),
                },
                Extent::Alive(block) if self.opened.contains(&block) => Extent::Batch,
                other => other,
            };
        }
        new
    }

    fn finish(mut self, outputs: &[VarId]) -> Result<StepProgram> {
        let outputs: Vec<VarId> = outputs.iter().map(|&var| self.settled(var)).collect();
        let computed: HashSet<VarId> = self.step.iter().flat_map(OpDesc::writes).collect();
        for &var in &outputs {
            if !computed.contains(&var) {
                let got = match self.is_late(var) {
                    true => "an output that is known after the last row",
                    false => {
                        "an output that depends on no row of the sequences, or that no other output needs"
                    }
                };
                let error = malformed(
                    "output of a program that runs row by row",
                    "an output with a row at each step",
                    got,
                );
                return Err(error.variable(&self.program.var(var).name));
            }
        }
        let mut before = std::mem::take(&mut self.before);
        let mut steps = std::mem::take(&mut self.step);
        for step in before.iter_mut().chain(&mut steps).filter_map(|op| op.step.as_deref_mut()) {
            self.program.blocks[step.block.0 as usize].parent = Some(BlockId(0));
            step.level = self.outside(step.level);
            step.levels.iter_mut().for_each(|(outer, _)| *outer = self.outside(*outer));
        }
        let of_rows = |desc: &VarDesc| {
            desc.role == VarRole::Feed
                && desc.spec().is_some_and(|spec| spec.lod.first() == Some(&self.level))
        };
        let rows: HashSet<VarId> =
            self.program.vars().filter(|(_, desc)| of_rows(desc)).map(|(id, _)| id).collect();
        let specs: Vec<Option<Spec>> =
            self.program.vars.iter().map(|var| var.spec().map(|spec| self.spec(spec))).collect();
        for (var, spec) in self.program.vars.iter_mut().zip(specs) {
            if let Some(spec) = spec {
                var.kind = VarKind::Tensor(spec);
            }
            if self.opened.contains(&var.block) {
                var.block = BlockId(0);
            }
        }
        let mut all = self.program.clone();
        all.blocks[0].ops = steps;
        // The step program omits memories that no output depends on.
        let mut memories: Vec<WindowState> = Vec::new();
        let mut step = loop {
            let left = memories.iter().map(|memory| memory.left);
            let part = all.inference(&outputs.iter().copied().chain(left).collect::<Vec<_>>())?;
            let read = part.reads();
            let needed: Vec<WindowState> =
                self.memories.iter().filter(|m| read.contains(&m.fed)).copied().collect();
            if needed.len() == memories.len() {
                break part;
            }
            memories = needed;
        };
        let written: HashSet<VarId> = step.ops().flat_map(OpDesc::writes).collect();
        let fed: HashSet<VarId> = memories.iter().map(|memory| memory.fed).collect();
        let given = |var: &VarId| {
            let desc = step.var(*var);
            desc.block == BlockId(0) && desc.spec().is_some() && !desc.persistable
        };
        let same = |var: &VarId| !written.contains(var) && !fed.contains(var) && !rows.contains(var);
        let kept: Vec<VarId> = step.reads().into_iter().filter(|var| given(var) && same(var)).collect();
        for &var in kept.iter().chain(&fed) {
            step.vars[var.0 as usize].role = VarRole::Feed;
        }
        let mut once = self.program;
        once.blocks[0].ops = before;
        let starts = memories.iter().filter_map(|memory| memory.start);
        let needed: Vec<VarId> = kept.iter().copied().chain(starts).collect();
        let before = once.inference(&needed)?;
        Ok(StepProgram { before, step, kept, memories, outputs })
    }
}
