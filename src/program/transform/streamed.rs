//! Streamed programs: inference over long sequences in windows of a few rows each. A value that passes from window to window is
//! fetched after one window and fed to the next window.

use std::collections::{HashMap, HashSet};

use crate::error::{AtCaller, Error, Place, Result};
use crate::operator::extent::{BlockId, Extent, LevelId, Spec, VarId};
use crate::operator::facts::Reach;
use crate::operator::hints::Pieces;
use crate::operator::infer::infer;
use crate::operator::registry::Registry;
use crate::operator::shapes::{InputSlots, Phase};
use crate::program::description::op_desc::{OpDesc, SlotVars, StepDesc};
use crate::program::description::program::{Program, malformed};
use crate::program::description::var_desc::{StopGradient, VarRole};
use crate::tensor::StorageKind;

/// The programs that run long sequences in windows of a few rows each: see [`Program::streamed`]. All programs have the variables
/// of the original program, with the same ids.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WindowProgram {
    /// The LoD level whose sequences are divided into windows.
    pub(crate) level: LevelId,
    /// The passes over the windows: at most one pass from the first window to the last, and at most one pass from the last window
    /// to the first.
    pub passes: Vec<WindowPass>,
    /// The program that runs once after all passes. The caller feeds this program the variables in [`WindowPass::reached`] of
    /// every pass.
    pub rest: Program,
}

/// A pass over all windows of the sequences, in one direction.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WindowPass {
    /// The program that runs once per window.
    pub program: Program,
    /// Whether the pass starts at the end: the window with the last rows of each sequence runs first.
    pub(crate) from_end: bool,
    /// The values that pass from one window to the next window of the pass.
    pub(crate) carried: Vec<WindowState>,
    /// The outputs of this pass that have the rows of the sequences: each run gives the rows of one window.
    pub(crate) rows: Vec<VarId>,
    /// The variables of this pass whose values are complete only after the last window, such as a mean with one row per sequence.
    pub(crate) reached: Vec<VarId>,
}

/// A value that passes from one window to the next window, or from one step to the next step, with one row per sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) struct WindowState {
    /// The feed that takes the value after the previous window.
    pub(crate) fed: VarId,
    /// The variable that holds the value after this window.
    pub(crate) left: VarId,
    /// The variable that holds the value for the first window; it does not depend on the rows of the sequences. `None` means
    /// zeros.
    pub(crate) start: Option<VarId>,
}

/// The time at which the value of a variable of the root block becomes known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Availability {
    /// The value is known before the first window.
    Always,
    /// The variable has the rows of the sequences; each window knows some of these rows.
    Rows(Way),
    /// The value is known after the last window.
    AtLast,
}

/// The order in which the windows of a pass run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Any,
    Forth,
    FromEnd,
}

impl Way {
    /// Returns the order that fits both operators; fails if one requires the first window first and the other requires the last
    /// window first.
    fn with(self, other: Way) -> Result<Way> {
        match (self, other) {
            (Way::Any, way) | (way, Way::Any) => Ok(way),
            (a, b) if a == b => Ok(a),
            _ => Err(cannot(
                "rows that are known in one order",
                "some from the first on and some from the end",
            )),
        }
    }
}

impl Program {
    /// Returns programs that compute `outputs` in windows of a few rows each, with results that are bit-identical to the original
    /// program's results. Each memory of a step block starts with the value of a feed, and its last value can be fetched. An
    /// operator that makes one row per sequence reads each sequence [piece by piece](crate::operator::Hints::pieces).
    ///
    /// Every `recurrent` must run over sequences of a feed. If a `recurrent` reads rows that another `recurrent` computes, both
    /// must run in the same direction. Every other operator on rows of the sequences must be row-wise, or must be able to read a
    /// sequence in pieces.
    ///
    /// ```
    /// use unpadded::layers::Gru;
    /// use unpadded::ops::Pool;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[3], 1);
    /// let (forth, back) = (x.gru(4), x.gru(Gru::new(4).backwards()));
    /// let pools = [forth.sequence_pool(Pool::Mean), back.sequence_pool(Pool::First)];
    /// let (both, mixed) = (net.concat(&pools), net.concat(&[forth, back]));
    /// let registry = net.registry();
    /// let program = net.finish()?;
    /// let streamed = program.streamed(&registry, &[both.id()])?;
    /// assert_eq!(streamed.passes.len(), 2);
    /// let error = program.streamed(&registry, &[mixed.id()]).unwrap_err().to_string();
    /// assert!(error.contains("got some from the first on and some from the end"), "{error}");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails with an error that names the first operator that cannot run in windows, and the reason. Fails if
    /// [`Program::inference`] fails.
    #[doc(hidden)]
    #[track_caller]
    pub fn streamed(&self, registry: &Registry, outputs: &[VarId]) -> Result<WindowProgram> {
        self.in_windows(registry, outputs).at_caller()
    }

    fn in_windows(&self, registry: &Registry, outputs: &[VarId]) -> Result<WindowProgram> {
        let mut program = self.inference(outputs)?;
        program.shape_source = Default::default();
        let level = program.window_level(outputs)?;
        let mut rest = program.clone();
        let ops = std::mem::take(&mut program.blocks[0].ops);
        rest.blocks[0].ops.clear();
        let mut making = Making { program, registry, level, known: HashMap::new(), carried: Vec::new() };
        let mut at_windows = Vec::with_capacity(ops.len());
        let mut reached: Vec<(Way, VarId)> = Vec::new();
        for (number, op) in ops.into_iter().enumerate() {
            let place = Place {
                operator: Some(format!("{} #{number}", op.kind)),
                caller: Some(op.caller.clone()),
                ..Place::default()
            };
            let (known, made) = making.op(op.clone()).map_err(|e| e.at(place))?;
            if let Availability::Rows(way) = known {
                reached.extend(
                    op.writes().filter(|&v| making.known(v) == Availability::AtLast).map(|v| (way, v)),
                );
            } else {
                rest.blocks[0].ops.push(op);
            }
            // Operators on values that are known before the first window run at every window, since a window may read their
            // outputs.
            if known != Availability::AtLast {
                at_windows.push(made);
            }
        }
        for &(_, var) in &reached {
            rest.vars[var.0 as usize].role = VarRole::Feed;
        }
        let of_rows = |var: VarId| matches!(making.known(var), Availability::Rows(_));
        let at_last: Vec<VarId> = outputs.iter().copied().filter(|&var| !of_rows(var)).collect();
        let rest = rest.inference(&at_last)?;
        let read = rest.reads();
        let asked: HashSet<VarId> = at_last.into_iter().collect();
        reached.retain(|(_, var)| read.contains(var) || asked.contains(var));
        making.program.blocks[0].ops = at_windows;
        let mut passes = Vec::new();
        for from_end in [false, true] {
            let here = |way: Way| (way == Way::FromEnd) == from_end;
            let with_rows = |&var: &VarId| matches!(making.known(var), Availability::Rows(way) if here(way));
            let rows: Vec<VarId> = outputs.iter().copied().filter(with_rows).collect();
            let reached: Vec<VarId> = reached.iter().filter(|(way, _)| here(*way)).map(|(_, v)| *v).collect();
            if rows.is_empty() && reached.is_empty() {
                continue;
            }
            let program = making.program.inference(&[&rows[..], &reached].concat())?;
            let written: HashSet<VarId> = program.root().ops.iter().flat_map(OpDesc::writes).collect();
            let carried = making.carried.iter().filter(|c| written.contains(&c.left)).copied().collect();
            passes.push(WindowPass { program, from_end, carried, rows, reached });
        }
        Ok(WindowProgram { level, passes, rest })
    }

    /// Returns the LoD level of the feeds whose sequences are divided into windows; there must be exactly one such level.
    fn window_level(&self, outputs: &[VarId]) -> Result<LevelId> {
        let mut used = self.reads();
        used.extend(outputs);
        for desc in outputs.iter().map(|&id| self.var(id)) {
            if let Some(spec) = desc.spec().filter(|spec| spec.storage != StorageKind::Dense) {
                return Err(cannot("dense outputs", spec.to_string()).variable(&desc.name));
            }
        }
        let mut found = None;
        for desc in used.into_iter().map(|id| self.var(id)).filter(|desc| desc.role == VarRole::Feed) {
            let Some(spec) = desc.spec().filter(|spec| !spec.lod.is_empty()) else { continue };
            let wrong = |expected: &str| Err(cannot(expected, spec.to_string()).variable(&desc.name));
            if spec.lod.len() > 1 || spec.storage != StorageKind::Dense {
                return wrong("dense rows of sequences with one level");
            }
            if *found.get_or_insert(spec.lod[0]) != spec.lod[0] {
                return wrong("the sequences of the other feeds");
            }
        }
        found.ok_or_else(|| cannot("a feed of sequences", "none"))
    }
}

/// Returns the error that a program with this operator cannot be run in windows.
fn cannot(expected: impl Into<String>, got: impl Into<String>) -> Error {
    malformed("operator for windows of sequences", expected, got)
}

/// The state of the transformation, which rewrites the operators of the root block one after another.
struct Making<'a> {
    program: Program,
    registry: &'a Registry,
    level: LevelId,
    /// The availability of each variable that a rewritten operator writes.
    known: HashMap<VarId, Availability>,
    carried: Vec<WindowState>,
}

impl Making<'_> {
    fn spec(&self, var: VarId) -> Result<&Spec> {
        self.program.spec(var)
    }

    /// Returns whether a variable has the rows of the sequences that are divided into windows.
    fn windowed(&self, var: VarId) -> bool {
        self.program.var(var).spec().is_some_and(|spec| spec.lod[..] == [self.level])
    }

    /// Returns the availability of a variable. A feed or a parameter is always available, except a feed of sequences: each window
    /// has only some of its rows.
    fn known(&self, var: VarId) -> Availability {
        let given = if self.windowed(var) { Availability::Rows(Way::Any) } else { Availability::Always };
        self.known.get(&var).copied().unwrap_or(given)
    }

    /// Rewrites an operator for one window. Returns the time at which all inputs of the operator are available, and the new
    /// operator.
    fn op(&mut self, op: OpDesc) -> Result<(Availability, OpDesc)> {
        let mut way = None;
        for var in op.reads() {
            if let Availability::Rows(of_var) = self.known(var) {
                way = Some(way.map_or(Ok(of_var), |way: Way| way.with(of_var))?);
            }
        }
        let late = op.reads().find(|&var| self.known(var) == Availability::AtLast);
        if let (Some(_), Some(late)) = (way, late) {
            let error = cannot("values that each window knows", "a value that is known after the last row");
            return Err(error.variable(&self.program.var(late).name));
        }
        let (way, op) = match (way, op.step.clone()) {
            (Some(way), Some(step)) => {
                let way = way.with(if step.reverse { Way::FromEnd } else { Way::Forth })?;
                (Some(way), self.recurrent(op, *step)?)
            }
            (Some(way), None) => (Some(way), self.over_rows(op, way)?),
            (None, _) => (None, op),
        };
        let known = match (way, late) {
            (Some(way), _) => Availability::Rows(way),
            (None, Some(_)) => Availability::AtLast,
            (None, None) => Availability::Always,
        };
        for var in op.writes() {
            let spec = self.spec(var)?;
            let known = match spec.rows() {
                Extent::Known(_) | Extent::Batch if spec.lod.is_empty() => match known {
                    Availability::Always => Availability::Always,
                    _ => Availability::AtLast,
                },
                _ if way.is_some() && self.windowed(var) => known,
                _ => return Err(cannot("the sequences that are fed", "an operator that makes sequences")),
            };
            self.known.insert(var, known);
        }
        Ok((known, op))
    }

    /// Rewrites an operator that reads rows of the sequences and no value that becomes known after the last window.
    fn over_rows(&mut self, op: OpDesc, way: Way) -> Result<OpDesc> {
        let parsed = self.registry.parse(&op.kind, &op.attributes)?;
        let facts = parsed.facts();
        let same_rows = |var| self.windowed(var) || !self.program.var(var).spec().is_some_and(Spec::batched);
        if facts.batch_dependent || facts.reach == Reach::Batch {
            return Err(cannot(
                "an operator that depends on one sequence only",
                "an operator over the whole batch",
            ));
        }
        if facts.reach == Reach::Row && op.reads().all(same_rows) && op.writes().all(|var| self.windowed(var))
        {
            return Ok(op);
        }
        let hints = parsed.hints();
        match if way == Way::FromEnd { hints.pieces_from_end } else { hints.pieces } {
            Some(pieces) => self.piece(op, pieces),
            None => Err(cannot(
                "an operator that takes sequences in pieces",
                "an operator that needs whole sequences",
            )),
        }
    }

    /// Rewrites an operator so that it reads one piece of each sequence. The values that pass from piece to piece become
    /// additional inputs and outputs of the operator.
    fn piece(&mut self, op: OpDesc, pieces: Pieces) -> Result<OpDesc> {
        let Pieces { into, attributes, carried } = pieces;
        let mut op = OpDesc { kind: into.to_owned(), attributes, ..op };
        let parsed = self.registry.parse(into, &op.attributes)?;
        let signature = parsed.signature();
        let inputs = Program::slots_of(signature.inputs, &op.inputs, "");
        self.program.check_bound(signature.inputs, &inputs)?;
        let (specs, literals) = (self.program.specs(&inputs)?, self.program.literals(&inputs));
        let made = {
            let phase = Phase::Build { next: &mut self.program.levels.clone() };
            infer(&*parsed, InputSlots { specs: &specs, literals: &literals }, Extent::Batch, phase)?
        };
        for &name in carried {
            let specs = signature.outputs.iter().zip(&made).find(|(slot, _)| slot.name == name);
            let Some(spec) = specs.and_then(|(_, specs)| specs.first()) else {
                return Err(cannot(format!("an output `{name}` of `{into}`"), "none"));
            };
            let left = self.add(&format!("{into}.{name}"), spec.clone(), VarRole::Computed);
            let fed = self.add(&format!("{into}.{name}.before"), spec.clone(), VarRole::Feed);
            op.inputs.push(SlotVars { slot: name.to_owned(), vars: vec![fed] });
            op.outputs.push(SlotVars { slot: name.to_owned(), vars: vec![left] });
            self.carried.push(WindowState { fed, left, start: None });
        }
        Ok(op)
    }

    /// Rewrites a `recurrent` so that its memories start with the values of feeds.
    fn recurrent(&mut self, op: OpDesc, mut step: StepDesc) -> Result<OpDesc> {
        if let Some(pair) = step.statics.iter().find(|pair| self.windowed(pair.outer)) {
            let error =
                cannot("a recurrent over the rows", "a recurrent that reads whole sequences at every step");
            return Err(error.variable(&self.program.var(pair.outer).name));
        }
        for memory in &mut step.memories {
            let mut spec = self.spec(memory.previous)?.clone();
            let name = self.program.var(memory.previous).name.clone();
            spec.shape[0] = Extent::Batch;
            let fed = self.add(&format!("{name}.before"), spec.clone(), VarRole::Feed);
            let start = memory.initial.replace(fed);
            let left = match memory.last {
                Some(last) => last,
                None => self.add(&format!("{name}.last"), spec, VarRole::Computed),
            };
            memory.last = Some(left);
            self.carried.push(WindowState { fed, left, start });
        }
        let mut op = OpDesc { step: None, ..op };
        let bind = |slots: &mut Vec<SlotVars>, slot: &str, vars: Vec<VarId>| {
            slots.retain(|bound| bound.slot != slot);
            if !vars.is_empty() {
                slots.push(SlotVars { slot: slot.to_owned(), vars });
            }
        };
        bind(&mut op.inputs, "initial", step.memories.iter().filter_map(|m| m.initial).collect());
        bind(&mut op.outputs, "last", step.memories.iter().filter_map(|m| m.last).collect());
        Ok(OpDesc { step: Some(Box::new(step)), ..op })
    }

    fn add(&mut self, name: &str, spec: Spec, role: VarRole) -> VarId {
        self.program.add_computed(name, BlockId(0), spec, role, StopGradient::Yes)
    }
}
