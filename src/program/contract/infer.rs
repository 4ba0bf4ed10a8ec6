//! The context of [`Op::infer_shape`]: specs in, specs out, in both phases.

use std::sync::Arc;

use super::facts::{LodEffect, Reach};
use super::literals::Literals;
use super::op::Op;
use super::signature::{Arity, Signature};
use crate::error::{Error, ErrorKind, Result};
use crate::lod::Lod;
use crate::program::spec::attributes::Literal;
use crate::program::spec::extent::{Extent, LevelId, Levels, MAX_LEVELS, Spec};
use crate::tensor::DType;

/// The levels of a run: for each level of the program, the LoD that ends with it.
#[derive(Debug, Default, Clone)]
pub struct LevelTable(Vec<Option<Arc<Lod>>>);

impl LevelTable {
    /// The LoD that ends with `level`, if it is bound.
    pub fn get(&self, level: LevelId) -> Option<&Arc<Lod>> {
        self.0.get(level.0 as usize)?.as_ref()
    }

    /// Binds or replaces one.
    pub fn set(&mut self, level: LevelId, lod: Option<Arc<Lod>>) {
        *self.slot(level) = lod;
    }

    /// The LoD of a variable with these levels.
    pub fn lod(&self, levels: &[LevelId]) -> Option<&Arc<Lod>> {
        self.get(*levels.last()?)
    }

    /// Unbinds all.
    pub fn clear(&mut self) {
        self.0.fill(None);
    }

    /// The place of one, made if need be.
    pub fn slot(&mut self, level: LevelId) -> &mut Option<Arc<Lod>> {
        let index = level.0 as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        &mut self.0[index]
    }
}

/// A level that an operator makes, and the one above it.
pub(crate) type Made = (LevelId, Option<LevelId>);

/// Levels of the outputs that no input has, in the order they were made.
pub(crate) fn made_levels(inputs: &[Vec<Spec>], outputs: &[Vec<Spec>]) -> Vec<Made> {
    let mut made: Vec<Made> = Vec::new();
    for lod in outputs.iter().flatten().map(|spec| &spec.lod) {
        for (k, &level) in lod.iter().enumerate() {
            let known = inputs.iter().flatten().any(|spec| spec.lod.contains(&level));
            if !known && !made.iter().any(|(other, _)| *other == level) {
                made.push((level, k.checked_sub(1).map(|above| lod[above])));
            }
        }
    }
    made.sort();
    made
}

/// Binds the levels that an operator makes from data to the offsets that it computed, in the memory of what is bound.
/// `top` is the number of sequences where there is no level above.
pub(crate) fn bind_made(
    table: &mut LevelTable,
    made: &[Made],
    offsets: &[Vec<usize>],
    top: usize,
) -> Result<()> {
    for (k, &(level, upper)) in made.iter().enumerate() {
        let offsets = offsets.get(k).map_or(&[][..], Vec::as_slice);
        if upper.is_none() && offsets.len() != top + 1 {
            return Err(Error::new("offsets from data", format!("{}", top + 1), offsets.len().to_string()));
        }
        let above = upper.and_then(|upper| table.get(upper).cloned());
        Lod::rebuild(table.slot(level), above, |out| out.extend_from_slice(offsets))?;
    }
    Ok(())
}

/// Runs an operator's shape rule, and holds it to what the operator declares: the specs of its outputs.
pub(crate) fn infer(
    op: &dyn Op,
    inputs: (&[Vec<Spec>], &[Vec<Literal>]),
    top: Extent,
    phase: Phase<'_>,
) -> Result<Vec<Vec<Spec>>> {
    let mut shapes = InferShape::new(op.signature(), inputs, top, phase);
    op.infer_shape(&mut shapes)?;
    shapes.finish(op)
}

#[track_caller]
fn room_below(upper: &[LevelId]) -> Result<()> {
    if upper.len() >= MAX_LEVELS {
        return Err(Error::new("LoD", format!("at most {MAX_LEVELS} levels"), "one more"));
    }
    Ok(())
}

fn fresh(next: &mut u32) -> LevelId {
    let id = LevelId(*next);
    *next += 1;
    id
}

/// Where new levels come from.
pub(crate) enum Phase<'a> {
    /// The program is being built: a new level is a new name.
    Build {
        /// The next free name.
        next: &'a mut u32,
    },
    /// The program runs: the names are known, the offsets are computed.
    Run {
        /// The levels that this operator made when it was appended, in order.
        made: &'a [Made],
        /// All levels of the run.
        table: &'a mut LevelTable,
    },
}

/// What an operator's shape rule reads and sets.
pub struct InferShape<'a> {
    signature: Signature,
    inputs: &'a [Vec<Spec>],
    literals: &'a [Vec<Literal>],
    outputs: Vec<Vec<Spec>>,
    top: Extent,
    phase: Phase<'a>,
    made: usize,
    from_data: Vec<Made>,
}

impl<'a> InferShape<'a> {
    /// The specs of the tensors and the literals of each input slot.
    fn new(
        signature: Signature,
        (inputs, literals): (&'a [Vec<Spec>], &'a [Vec<Literal>]),
        top: Extent,
        phase: Phase<'a>,
    ) -> Self {
        let outputs = vec![Vec::new(); signature.outputs.len()];
        Self { signature, inputs, literals, outputs, top, phase, made: 0, from_data: Vec::new() }
    }

    pub(super) fn bound(&self) -> Literals<'a> {
        Literals { signature: self.signature, values: self.literals }
    }

    /// The spec of input slot `slot`, which takes one variable.
    ///
    /// # Panics
    /// If the slot is optional and empty: use [`Self::optional`]. Or if it takes literals: see [`Self::literal`].
    pub fn input(&self, slot: usize) -> &'a Spec {
        &self.inputs[slot][0]
    }

    /// The spec of an optional input slot.
    pub fn optional(&self, slot: usize) -> Option<&'a Spec> {
        self.inputs[slot].first()
    }

    /// The specs of an input slot that takes many.
    pub fn many(&self, slot: usize) -> &'a [Spec] {
        &self.inputs[slot]
    }

    /// What counts the sequences of the top level here: the batch, or the sequences alive in a step.
    pub fn top(&self) -> Extent {
        self.top
    }

    /// Sets output slot `slot`.
    pub fn set(&mut self, slot: usize, spec: Spec) {
        self.outputs[slot] = vec![spec];
    }

    /// Sets an output slot that takes many.
    pub fn set_many(&mut self, slot: usize, specs: Vec<Spec>) {
        self.outputs[slot] = specs;
    }

    /// Makes a new level of offsets below `upper`. While the program is built that is only a name; when it runs,
    /// `fill` gets the levels of the run and writes the offsets, from 0 to the number of rows.
    ///
    /// # Errors
    /// What `fill` returns, or that its offsets break a rule.
    #[track_caller]
    pub fn new_level(
        &mut self,
        upper: &[LevelId],
        fill: impl FnOnce(&LevelTable, &mut Vec<usize>) -> Result<()>,
    ) -> Result<LevelId> {
        room_below(upper)?;
        match &mut self.phase {
            Phase::Build { next } => {
                self.made += 1;
                Ok(fresh(next))
            }
            Phase::Run { made, table } => {
                let Some(&(id, _)) = made.get(self.made) else {
                    return Err(Error::new("new level", "as many as when the program was built", "more"));
                };
                self.made += 1;
                let above = table.lod(upper).cloned();
                let mut slot = table.slot(id).take();
                let mut outcome = Ok(());
                Lod::rebuild(&mut slot, above, |offsets| outcome = fill(table, offsets))?;
                outcome?;
                table.set(id, slot);
                Ok(id)
            }
        }
    }

    /// Makes a new level below `upper`, whose offsets [`Op::levels`] computes before the operator runs: they depend on
    /// what is in the slots that [`LodEffect::FromData`] names. Each level that such an operator makes is made so: for other
    /// last sequences of an input `x`, `let level = s.level_from_data(x.upper_levels())?` and then
    /// `s.set(Self::OUT, x.with_last_level(level))`.
    ///
    /// # Errors
    /// If `upper` has no room for one more.
    #[track_caller]
    pub fn level_from_data(&mut self, upper: &[LevelId]) -> Result<LevelId> {
        room_below(upper)?;
        let Phase::Build { next } = &mut self.phase else {
            return Err(Error::new("level from data", "a rule that is not asked at a run", "one that is"));
        };
        let id = fresh(next);
        self.made += 1;
        self.from_data.push((id, upper.last().copied()));
        Ok(id)
    }

    /// Checks that input slots `a` and `b` have the same rows: the same LoD, or none and the same count.
    ///
    /// # Errors
    /// If they differ; both are printed.
    #[track_caller]
    pub fn same_rows(&self, a: usize, b: usize) -> Result<()> {
        let (x, y) = (self.input(a), self.input(b));
        if x.lod == y.lod && x.rows() == y.rows() {
            return Ok(());
        }
        let name = self.signature.inputs[b].name;
        Err(Error::new(
            format!("rows and LoD of `{name}`"),
            format!("those of `{}`, {x}", self.signature.inputs[a].name),
            y.to_string(),
        ))
    }

    /// Checks that the variable of input slot `slot` has a LoD.
    ///
    /// # Errors
    /// If it has none.
    #[track_caller]
    pub fn has_lod(&self, slot: usize) -> Result<()> {
        if self.input(slot).lod.is_empty() {
            return Err(self.mismatch(slot, "sequences (a LoD of at least one level)"));
        }
        Ok(())
    }

    /// Checks that input slot `slot` has one of `dtypes`.
    ///
    /// # Errors
    /// If it has another.
    #[track_caller]
    pub fn dtype_in(&self, slot: usize, dtypes: &[DType]) -> Result<()> {
        for (k, spec) in self.inputs[slot].iter().enumerate() {
            if !dtypes.contains(&spec.dtype) {
                let names: Vec<String> = dtypes.iter().map(DType::to_string).collect();
                return Err(self.mismatch_at(slot, k, &format!("dtype {}", names.join(" or "))));
            }
        }
        Ok(())
    }

    /// Checks that input slot `slot` holds f32 or f64.
    ///
    /// # Errors
    /// If it holds something else.
    #[track_caller]
    pub fn is_float(&self, slot: usize) -> Result<()> {
        self.dtype_in(slot, &[DType::F32, DType::F64])
    }

    /// Checks that input slots `a` and `b` have one dtype.
    ///
    /// # Errors
    /// If they differ.
    #[track_caller]
    pub fn same_dtype(&self, a: usize, b: usize) -> Result<()> {
        let expected = self.input(a).dtype;
        if let Some(k) = self.inputs[b].iter().position(|spec| spec.dtype != expected) {
            let name = self.signature.inputs[a].name;
            return Err(self.mismatch_at(b, k, &format!("{expected}, the dtype of `{name}`")));
        }
        Ok(())
    }

    /// Checks that input slot `slot` is a constant (not batched) of the dimensions `dims`.
    ///
    /// # Errors
    /// If it has others.
    #[track_caller]
    pub fn constant(&self, slot: usize, dims: &[usize]) -> Result<()> {
        self.constant_at(slot, 0, dims)
    }

    /// The same of variable `k` of input slot `slot`.
    ///
    /// # Errors
    /// If it has others.
    #[track_caller]
    pub fn constant_at(&self, slot: usize, k: usize, dims: &[usize]) -> Result<()> {
        let spec = &self.inputs[slot][k];
        if spec.lod.is_empty() && spec.shape.iter().map(|e| e.known()).eq(dims.iter().map(|&d| Some(d))) {
            return Ok(());
        }
        Err(self.mismatch_at(slot, k, &format!("a constant of shape {dims:?}")))
    }

    /// An error about the spec of input slot `slot`.
    #[track_caller]
    pub fn mismatch(&self, slot: usize, expected: &str) -> Error {
        self.mismatch_at(slot, 0, expected)
    }

    /// An error about the spec of variable `k` of input slot `slot`.
    #[track_caller]
    pub fn mismatch_at(&self, slot: usize, k: usize, expected: &str) -> Error {
        let given = &self.inputs[slot];
        let number = if given.len() > 1 { format!("[{k}]") } else { String::new() };
        let got = given.get(k).map_or_else(|| "nothing".to_owned(), Spec::to_string);
        Error::new(format!("input `{}`{number}", self.signature.inputs[slot].name), expected, got)
    }

    /// The levels of input slot `slot`.
    pub fn levels(&self, slot: usize) -> &'a Levels {
        &self.input(slot).lod
    }

    fn finish(self, op: &dyn Op) -> Result<Vec<Vec<Spec>>> {
        if matches!(self.phase, Phase::Build { .. }) {
            self.declared(op)?;
        }
        for (slot, specs) in self.signature.outputs.iter().zip(&self.outputs) {
            if slot.arity == Arity::One && specs.len() != 1 {
                return Err(Error::new(
                    format!("output `{}`", slot.name),
                    "a shape from infer_shape",
                    "none",
                ));
            }
        }
        Ok(self.outputs)
    }

    /// Checks that levels are made from data where the operator says so, and only there.
    fn declared(&self, op: &dyn Op) -> Result<()> {
        let facts = op.facts();
        let wrong = |expected: &str, got: &str| {
            Err(Error::of(ErrorKind::Program, "levels that an operator makes from data", expected, got))
        };
        let LodEffect::FromData(slots) = facts.lod else {
            return match self.from_data.is_empty() {
                true => Ok(()),
                false => {
                    wrong("`LodEffect::FromData` among its facts", &format!("`LodEffect::{:?}`", facts.lod))
                }
            };
        };
        if facts.reach == Reach::Row {
            return wrong("a sequence-wise or batch-wide operator", "a row-wise one");
        }
        if slots.iter().any(|&slot| slot >= self.inputs.len()) {
            let got = format!("slots {slots:?} of {}", self.inputs.len());
            return wrong("input slots that it has", &got);
        }
        if self.from_data.is_empty() || self.made != self.from_data.len() {
            return wrong("all its levels to be made so", "others, or none");
        }
        if made_levels(self.inputs, &self.outputs) != self.from_data {
            return wrong("each in an output, below the level that it was made below", "others");
        }
        Ok(())
    }
}
