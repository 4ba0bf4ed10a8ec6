//! A program that infers over long sequences window by window: what one window hands to the next is fed and fetched.

use std::collections::HashMap;

use super::extent::{BlockId, Extent, LevelId, Spec, VarId};
use super::infer::{InferShape, Phase};
use super::op::{Pieces, Reach};
use super::op_desc::{Bound, OpDesc, StepDesc};
use super::program::{Program, malformed};
use super::registry::Registry;
use super::var_desc::VarRole;
use crate::error::{Error, Place, Result};
use crate::tensor::StorageKind;

/// The program of one window: some rows of each sequence, then the next ones. See [`Program::streamed`].
#[derive(Debug, Clone)]
pub struct Streamed {
    /// It has the variables of the program it was made of, with their numbers, and those that are carried.
    pub program: Program,
    /// The level whose sequences are cut into windows.
    pub level: LevelId,
    /// What a window hands to the next one.
    pub carried: Vec<Carried>,
}

/// A value that a window hands to the next one, one row a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// The feed that takes what the windows before left.
    pub fed: VarId,
    /// What this window leaves.
    pub left: VarId,
    /// What the first window is fed: a variable of the program that needs no row of the sequences. Zeros without it.
    pub start: Option<VarId>,
}

/// When the value of a variable of the root block is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// At every window, the same.
    Always,
    /// Its rows are those of the sequences: those of a window, with the window.
    Rows,
    /// After the last window.
    AtLast,
}

impl Program {
    /// The part of the program that computes `outputs`, such that its sequences can be run in windows of some rows each,
    /// for the same bits: a memory starts with a feed and its last value is there to be fetched; an operator that makes
    /// one row of a sequence takes it [piece by piece](super::Op::pieces). An output with the rows of the sequences has
    /// those of the window after each run, any other one has its value after the last.
    ///
    /// Every recurrent runs from the first row to the last over sequences that are fed, every operator between is
    /// row-wise, takes pieces, or reads nothing of their rows.
    ///
    /// ```
    /// use unpadded::layers::Gru;
    /// use unpadded::ops::Pool;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[3], 1)?;
    /// let forth = net.gru(x, Gru::new(4))?;
    /// let back = net.gru(x, Gru::new(4).backwards())?;
    /// let (a, b) = (net.sequence_pool(forth, Pool::Mean)?, net.sequence_pool(back, Pool::First)?);
    /// let registry = net.registry();
    /// let program = net.finish();
    /// let streamed = program.streamed(&registry, &[a.id()])?;
    /// assert_eq!(streamed.carried.len(), 3); // the state, the sum so far and its number of rows
    /// let error = program.streamed(&registry, &[b.id()]).unwrap_err().to_string();
    /// assert!(error.contains("got one from the end of each sequence"), "{error}");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first operator that cannot be run so, and why; or as [`Program::inference`].
    pub fn streamed(&self, registry: &Registry, outputs: &[VarId]) -> Result<Streamed> {
        let mut program = self.inference(outputs)?;
        let level = program.cut_level(outputs)?;
        let ops = std::mem::take(&mut program.blocks[0].ops);
        let mut making = Making { program, registry, level, known: HashMap::new(), carried: Vec::new() };
        let mut streamed = Vec::with_capacity(ops.len());
        for (number, op) in ops.into_iter().enumerate() {
            let place = Place {
                operator: Some(format!("{} #{number}", op.kind)),
                caller: Some(op.caller.clone()),
                ..Place::default()
            };
            streamed.push(making.op(op).map_err(|e| e.at(place))?);
        }
        let Making { mut program, carried, .. } = making;
        program.blocks[0].ops = streamed;
        Ok(Streamed { program, level, carried })
    }

    /// The level of the sequences that are fed; there must be one.
    fn cut_level(&self, outputs: &[VarId]) -> Result<LevelId> {
        let mut used = self.reads();
        used.extend(outputs);
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

/// Why a program cannot be run in windows.
fn cannot(expected: impl Into<String>, got: impl Into<String>) -> Error {
    malformed("operator for windows of sequences", expected, got)
}

/// A program that is being rewritten, its root block operator by operator.
struct Making<'a> {
    program: Program,
    registry: &'a Registry,
    level: LevelId,
    /// Of what operators of the root block wrote so far.
    known: HashMap<VarId, Known>,
    carried: Vec<Carried>,
}

impl Making<'_> {
    fn spec(&self, var: VarId) -> Result<&Spec> {
        self.program.spec(var)
    }

    /// Whether a variable has the rows of the sequences that are cut.
    fn cut(&self, var: VarId) -> bool {
        self.program.var(var).spec().is_some_and(|spec| spec.lod[..] == [self.level])
    }

    /// When a variable is known: feeds and parameters always, but for the sequences.
    fn known(&self, var: VarId) -> Known {
        let given = if self.cut(var) { Known::Rows } else { Known::Always };
        self.known.get(&var).copied().unwrap_or(given)
    }

    /// The operator that does the same in a window.
    fn op(&mut self, op: OpDesc) -> Result<OpDesc> {
        let reads = |known| op.reads().any(|var| self.known(var) == known);
        let (rows, late) = (reads(Known::Rows), reads(Known::AtLast));
        if rows && late {
            let late = op.reads().find(|&var| self.known(var) == Known::AtLast);
            let error = cannot("values that each window knows", "one that is known after the last row");
            return Err(late.iter().fold(error, |e, &var| e.variable(&self.program.var(var).name)));
        }
        let op = match (rows, op.step.clone()) {
            (true, Some(step)) => self.recurrent(op, *step)?,
            (true, None) => self.over_rows(op)?,
            (false, _) => op,
        };
        for var in op.writes() {
            let spec = self.spec(var)?;
            let at_last = if rows || late { Known::AtLast } else { Known::Always };
            let known = match spec.rows() {
                Extent::Known(_) | Extent::Batch if spec.lod.is_empty() => at_last,
                _ if rows && self.cut(var) => Known::Rows,
                _ => return Err(cannot("the sequences that are fed", "one that makes sequences")),
            };
            self.known.insert(var, known);
        }
        Ok(op)
    }

    /// An operator that reads rows of the sequences, and nothing that is known after them.
    fn over_rows(&mut self, op: OpDesc) -> Result<OpDesc> {
        let parsed = self.registry.parse(&op.kind, &op.attributes)?;
        let facts = parsed.facts();
        let same_rows = |var| self.cut(var) || self.program.var(var).spec().is_some_and(|s| !s.batched());
        if facts.batch_dependent || facts.reach == Reach::Batch {
            return Err(cannot("one that depends on one sequence", "one that reaches over the batch"));
        }
        if facts.reach == Reach::Row && op.reads().all(same_rows) && op.writes().all(|var| self.cut(var)) {
            return Ok(op);
        }
        match parsed.pieces() {
            Some(Pieces { into, carried }) => self.piece(op, into, carried),
            None => Err(cannot("one that takes sequences in pieces", "one that needs them whole")),
        }
    }

    /// The operator of one piece, between what is carried.
    fn piece(&mut self, op: OpDesc, into: &str, carried: &[&str]) -> Result<OpDesc> {
        let mut op = OpDesc { kind: into.to_owned(), ..op };
        let parsed = self.registry.parse(into, &op.attributes)?;
        let signature = parsed.signature();
        let specs = self.program.specs(&Program::slots_of(signature.inputs, &op.inputs, ""))?;
        let made = {
            let phase = Phase::Build { next: &mut self.program.levels.clone() };
            let mut shapes = InferShape::new(signature, &specs, Extent::Batch, phase);
            parsed.infer_shape(&mut shapes)?;
            shapes.finish()?
        };
        for &name in carried {
            let specs = signature.outputs.iter().zip(&made).find(|(slot, _)| slot.name == name);
            let Some(spec) = specs.and_then(|(_, specs)| specs.first()) else {
                return Err(cannot(format!("an output `{name}` of `{into}`"), "none"));
            };
            let left = self.add(&format!("{into}.{name}"), spec.clone(), VarRole::Computed);
            let fed = self.add(&format!("{into}.{name}.before"), spec.clone(), VarRole::Feed);
            op.inputs.push(Bound { slot: name.to_owned(), vars: vec![fed] });
            op.outputs.push(Bound { slot: name.to_owned(), vars: vec![left] });
            self.carried.push(Carried { fed, left, start: None });
        }
        Ok(op)
    }

    /// A recurrent whose memories start with feeds.
    fn recurrent(&mut self, op: OpDesc, mut step: StepDesc) -> Result<OpDesc> {
        if step.reverse {
            return Err(cannot("a recurrent from the first row on", "one from the end of each sequence"));
        }
        if let Some(pair) = step.statics.iter().find(|pair| self.known(pair.outer) == Known::Rows) {
            let error = cannot("a recurrent over the rows", "one that sees whole sequences at every step");
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
            self.carried.push(Carried { fed, left, start });
        }
        let mut op = OpDesc { step: None, ..op };
        let bind = |slots: &mut Vec<Bound>, slot: &str, vars: Vec<VarId>| {
            slots.retain(|bound| bound.slot != slot);
            if !vars.is_empty() {
                slots.push(Bound { slot: slot.to_owned(), vars });
            }
        };
        bind(&mut op.inputs, "initial", step.memories.iter().filter_map(|m| m.initial).collect());
        bind(&mut op.outputs, "last", step.memories.iter().filter_map(|m| m.last).collect());
        Ok(OpDesc { step: Some(Box::new(step)), ..op })
    }

    fn add(&mut self, name: &str, spec: Spec, role: VarRole) -> VarId {
        self.program.add_computed(name, BlockId(0), spec, role, true)
    }
}
