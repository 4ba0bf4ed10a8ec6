//! Local rows: the part of an inference program that computes each row from one entry of the feeds alone, such as a word with
//! its characters. Equal entries have equal rows, whatever the other entries of the batch are.

use std::collections::{BTreeSet, HashSet};

use crate::error::Result;
use crate::operator::attributes::Attributes;
use crate::operator::extent::{BlockId, Extent, LevelId, Levels, Spec, VarId};
use crate::operator::facts::Reach;
use crate::operator::registry::Registry;
use crate::program::description::op_desc::{OpDesc, Role, SlotVars, VarPair};
use crate::program::description::program::Program;
use crate::program::description::var_desc::{StopGradient, VarKind, VarRole};
use crate::tensor::{DType, StorageKind};

/// An inference program in two programs: see [`Program::local_rows`].
pub(crate) struct LocalRows {
    /// The feeds whose ids make up the entries; with two levels, an entry is an inner sequence.
    pub(crate) feeds: Vec<VarId>,
    /// The program that computes the rows of distinct entries.
    pub(crate) first: Program,
    /// The other operators. They look up rows by `index`, a feed with the number of each entry of the batch.
    pub(crate) rest: Program,
    pub(crate) index: VarId,
    /// Each variable of `first` whose rows are looked up, with the variable of `rest` for the table of rows, and its width.
    pub(crate) tables: Vec<(VarId, VarId, usize)>,
}

impl Program {
    /// Divides an inference program into the operators on single entries, and the other operators; `numbers` is the size of all
    /// tables in numbers. A row-wise operator at the start of a step block, such as the product of an LSTM's input, is moved to
    /// the operators on entries. Returns `None` if this saves no product.
    pub(crate) fn local_rows(
        self,
        registry: &Registry,
        outputs: &[VarId],
        numbers: usize,
    ) -> Result<Option<LocalRows>> {
        let shape = |id: VarId| self.var(id).spec().map(|spec| (spec.dtype, spec.shape.len(), &spec.lod));
        let is_ids =
            |id: &VarId| matches!(shape(*id), Some((DType::I64, 1, lod)) if (1..=2).contains(&lod.len()));
        let feeds = self.reads().into_iter().filter(|id| self.var(*id).role == VarRole::Feed && is_ids(id));
        let feeds: Vec<VarId> = feeds.collect();
        let Some(level) = feeds.first().and_then(|&id| Some(self.var(id).spec()?.lod[0])) else {
            return Ok(None);
        };
        let mut all = self;
        let index = Spec::rows_of(DType::I64, Extent::Rows(level), &[], [level].into_iter().collect())?;
        let index = all.add_computed("entries", BlockId(0), index, VarRole::Feed, StopGradient::Yes);
        let local = feeds.iter().copied().collect();
        let mut making =
            EntryDivision { all, registry, level, index, local, tables: Vec::new(), saves: false };
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for op in std::mem::take(&mut making.all.blocks[0].ops) {
            if making.is_local(&op, false)? {
                making.local.extend(op.writes());
                first.push(op);
            } else {
                rest.push(making.without_input(op, &mut first)?);
            }
        }
        let read = rest.iter().flat_map(OpDesc::reads).chain(outputs.iter().copied());
        let read: BTreeSet<VarId> =
            read.filter(|id| making.local.contains(id) && !feeds.contains(id)).collect();
        for id in read {
            let op = making.look_up(id, index, id)?;
            rest.insert(0, op);
        }
        let EntryDivision { mut all, tables, saves, .. } = making;
        let rows = numbers / tables.iter().map(|(.., width)| width).sum::<usize>().max(1);
        let is_row = |id: VarId| {
            all.var(id).spec().is_some_and(|spec| {
                (spec.dtype, spec.storage, spec.shape.len()) == (DType::F32, StorageKind::Dense, 2)
                    && spec.lod[..] == [level]
            })
        };
        let is_level = |id: &VarId| all.var(*id).spec().is_some_and(|spec| spec.lod[0] == level);
        if !saves
            || tables.is_empty()
            || rows < LEAST
            || !feeds.iter().all(is_level)
            || !tables.iter().all(|(id, ..)| is_row(*id))
        {
            return Ok(None);
        }
        for (_, table, width) in &tables {
            all.var_mut(*table).kind = VarKind::Tensor(Spec::fixed(DType::F32, &[rows.min(MOST), *width])?);
        }
        let mut before = all.clone();
        (before.blocks[0].ops, all.blocks[0].ops) = (first, rest);
        let first = before.into_inference(&tables.iter().map(|(id, ..)| *id).collect::<Vec<_>>())?;
        let (read, mut feeds) = (first.reads(), feeds);
        feeds.retain(|id| read.contains(id));
        Ok(Some(LocalRows { feeds, first, rest: all.into_inference(outputs)?, index, tables }))
    }
}

/// The maximum number of rows of a table.
const MOST: usize = 1 << 14;
/// The minimum number of rows of a table: with fewer, a batch would seldom fit.
const LEAST: usize = 1 << 10;

struct EntryDivision<'a> {
    all: Program,
    registry: &'a Registry,
    /// The level whose entries are the local entries.
    level: LevelId,
    index: VarId,
    /// The variables of which each row depends on one entry only.
    local: HashSet<VarId>,
    tables: Vec<(VarId, VarId, usize)>,
    /// Whether an operator on entries multiplies by a matrix.
    saves: bool,
}

impl EntryDivision<'_> {
    fn is_constant(&self, id: VarId) -> bool {
        matches!(self.all.var(id).role, VarRole::Parameter | VarRole::Literal)
    }

    /// Returns whether each row that an operator writes depends on one entry only; `is_step` for an operator of a step block.
    fn is_local(&mut self, op: &OpDesc, is_step: bool) -> Result<bool> {
        let local = |id: &VarId| self.local.contains(id);
        let has_local = || op.reads().any(|id| local(&id));
        if !(is_step || has_local() && op.reads().all(|id| local(&id) || self.is_constant(id))) {
            return Ok(false);
        }
        let inner = |id: &VarId| self.all.var(*id).spec().is_some_and(|spec| spec.lod.len() == 2);
        let is_inner = op.reads().filter(local).all(|id| inner(&id));
        if let Some(step) = &op.step {
            let outer = |pair: &VarPair| {
                self.all.var(pair.outer).spec().is_some_and(|s| s.lod.last() == Some(&step.level))
            };
            let (mut is_local, saves) = (!is_step && is_inner && step.inputs.iter().all(outer), self.saves);
            for op in self.all.block(step.block).ops.clone() {
                is_local = is_local && self.is_local(&op, true)?;
            }
            self.saves = if is_local { self.saves } else { saves };
            return Ok(is_local);
        }
        let parsed = self.registry.parse(&op.kind, &op.attributes)?;
        let (facts, hints) = (parsed.facts(), parsed.hints());
        let reaches = facts.reach == Reach::Row || (facts.reach == Reach::Sequence && is_inner);
        let is_local = reaches && !facts.batch_dependent && (!facts.random || hints.draws_in_training);
        self.saves |= is_local && hints.accumulates;
        Ok(is_local)
    }

    /// Moves operators on single entries from the start of a step block to `first`.
    fn without_input(&mut self, mut op: OpDesc, first: &mut Vec<OpDesc>) -> Result<OpDesc> {
        let Some(step) = op.step.as_deref_mut().filter(|step| step.level == self.level) else {
            return Ok(op);
        };
        let block = step.block.0 as usize;
        for input in 0..step.inputs.len() {
            let pair = step.inputs[input];
            let ops = &self.all.blocks[block].ops;
            let mut readers = ops.iter().enumerate().filter(|(_, op)| op.reads().any(|id| id == pair.inner));
            let (Some((at, reader)), None) = (readers.next(), readers.next()) else { continue };
            let (mut moved, written) = (reader.clone(), reader.writes().collect::<Vec<_>>());
            let reads = |id| id == pair.inner || self.is_constant(id);
            let is_output = |id| {
                step.outputs.iter().any(|pair| pair.inner == id) || step.memories.iter().any(|m| m.next == id)
            };
            let &[inner] = &written[..] else { continue };
            if !self.local.contains(&pair.outer)
                || moved.step.is_some()
                || !moved.reads().all(reads)
                || is_output(inner)
                || is_output(pair.inner)
            {
                continue;
            }
            let parsed = self.registry.parse(&moved.kind, &moved.attributes)?;
            let is_row_wise = parsed.facts().reach == Reach::Row && parsed.hints().accumulates;
            if !is_row_wise || !self.is_local(&moved, true)? {
                continue;
            }
            let (of_rows, mut spec) = (self.all.spec(pair.outer)?.clone(), self.all.spec(inner)?.clone());
            (spec.shape[0], spec.lod) = (of_rows.shape[0], of_rows.lod);
            let name = self.all.var(inner).name.clone();
            let outer = self.all.add_computed(&name, BlockId(0), spec, VarRole::Computed, StopGradient::Yes);
            let ids = Spec::rows_of(DType::I64, self.all.spec(pair.inner)?.shape[0], &[], Levels::new())?;
            let ids = self.all.add_computed(
                "entries.step",
                BlockId(block as u32),
                ids,
                VarRole::Step,
                StopGradient::Yes,
            );
            for var in moved.inputs.iter_mut().chain(&mut moved.outputs).flat_map(|slot| &mut slot.vars) {
                let same = [(pair.inner, pair.outer), (inner, outer)].into_iter().find(|(old, _)| old == var);
                *var = same.map_or(*var, |(_, new)| new);
            }
            first.push(moved);
            self.all.blocks[block].ops[at] = self.look_up(outer, ids, inner)?;
            step.inputs[input] = VarPair { outer: self.index, inner: ids };
        }
        let inputs: Vec<VarId> = step.inputs.iter().map(|pair| pair.outer).collect();
        let reads = self.all.blocks[block].ops.iter().flat_map(OpDesc::reads);
        let constants: BTreeSet<VarId> =
            reads.filter(|id| self.all.var(*id).block.0 != block as u32).collect();
        for slot in &mut op.inputs {
            match slot.slot.as_str() {
                "x" => slot.vars.clone_from(&inputs),
                "constant" => slot.vars = constants.iter().copied().collect(),
                _ => {}
            }
        }
        Ok(op)
    }

    /// Adds a table with the rows of `rows`, and returns the operator that looks up these rows by `ids`.
    fn look_up(&mut self, rows: VarId, ids: VarId, out: VarId) -> Result<OpDesc> {
        let width = self.all.spec(rows)?.width();
        let (name, spec) =
            (format!("{}.rows", self.all.var(rows).name), Spec::fixed(DType::F32, &[0, width])?);
        let table = self.all.add_computed(&name, BlockId(0), spec, VarRole::Parameter, StopGradient::Yes);
        self.all.var_mut(table).persistable = true;
        self.tables.push((rows, table, width));
        let bound = |slot: &str, var| SlotVars { slot: slot.to_owned(), vars: vec![var] };
        Ok(OpDesc {
            kind: "embedding".to_owned(),
            role: Role::Forward,
            inputs: vec![bound("ids", ids), bound("weight", table)],
            outputs: vec![bound("out", out)],
            attributes: Attributes::new().with("sparse", false),
            step: None,
            caller: String::new(),
        })
    }
}
