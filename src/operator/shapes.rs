//! The context of [`Op::infer_shape`](crate::operator::Op::infer_shape): reads the specs of the inputs and sets the specs of the
//! outputs, when a program is built and when it runs.

use super::levels::{LevelTable, MadeLevelIds};
use super::literals::{Literals, literal_methods};
use super::signature::Signature;
use crate::error::{Error, Result};
use crate::lod::Lod;
use crate::operator::attributes::Literal;
use crate::operator::extent::{Extent, LevelId, Levels, MAX_LEVELS, Spec};
use crate::tensor::DType;

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

/// The phase in which a shape rule runs: it decides where new levels come from.
pub(crate) enum Phase<'a> {
    /// The program is being built: a new level is a new name.
    Build {
        /// The next free name.
        next: &'a mut u32,
    },
    /// The program runs: the names are known, the offsets are computed.
    Run {
        /// The levels that this operator made when it was appended, in order.
        made: &'a [MadeLevelIds],
        /// All levels of the run.
        table: &'a mut LevelTable,
    },
}

/// The contents of an operator's input slots, by slot, in order.
#[derive(Clone, Copy)]
pub(crate) struct InputSlots<'a> {
    /// The specs of each slot's tensors.
    pub(crate) specs: &'a [Vec<Spec>],
    /// The literals of each slot; empty if no slot has literals.
    pub(crate) literals: &'a [Vec<Literal>],
}

/// The specs that an operator's shape rule reads and sets.
pub struct InferShape<'a> {
    pub(super) signature: Signature,
    pub(super) inputs: &'a [Vec<Spec>],
    literals: &'a [Vec<Literal>],
    pub(super) outputs: Vec<Vec<Spec>>,
    top: Extent,
    pub(super) phase: Phase<'a>,
    pub(super) made: usize,
    pub(super) from_data: Vec<MadeLevelIds>,
}

/// Advice for variables with equally many levels but different sequences.
const OTHER_SEQUENCES: &str = "feeds have the same sequences by `feed_like`, padded arrays by `sequence_unpad_as` of a variable with \
                               these sequences, also in a step block";

impl<'a> InferShape<'a> {
    pub(super) fn new(signature: Signature, inputs: InputSlots<'a>, top: Extent, phase: Phase<'a>) -> Self {
        let InputSlots { specs: inputs, literals } = inputs;
        let outputs = vec![Vec::new(); signature.outputs.len()];
        Self { signature, inputs, literals, outputs, top, phase, made: 0, from_data: Vec::new() }
    }

    fn bound(&self) -> Literals<'a> {
        Literals { signature: self.signature, values: self.literals }
    }

    /// The spec of input slot `slot`, which takes one variable.
    ///
    /// # Panics
    /// If the slot is optional and empty (use [`Self::optional`]), or if it takes literals (see [`Self::literal`]).
    pub fn input(&self, slot: usize) -> &'a Spec {
        &self.inputs[slot][0]
    }

    /// The spec of an optional input slot; `None` if no variable is bound.
    pub fn optional(&self, slot: usize) -> Option<&'a Spec> {
        self.inputs[slot].first()
    }

    /// The specs of an input slot that takes many variables.
    pub fn many(&self, slot: usize) -> &'a [Spec] {
        &self.inputs[slot]
    }

    /// The extent that counts the top-level sequences: the batch, or in a step block the sequences that have not ended.
    pub fn top(&self) -> Extent {
        self.top
    }

    /// Sets the spec of output slot `slot`, which has one variable.
    pub fn set(&mut self, slot: usize, spec: Spec) {
        self.outputs[slot] = vec![spec];
    }

    /// Sets the specs of an output slot that has many variables.
    pub fn set_many(&mut self, slot: usize, specs: Vec<Spec>) {
        self.outputs[slot] = specs;
    }

    /// Makes a new level of offsets below `upper`. When the program is built, the level is only a name; when it runs, `fill`
    /// gets the levels of the run and writes the offsets, from 0 to the number of rows.
    ///
    /// # Errors
    /// The error of `fill`; or an error if the offsets break a rule.
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

    /// Makes a new level below `upper`. [`Op::levels`](crate::operator::Op::levels) computes its offsets before the operator
    /// runs, from the numbers in the slots that [`LodEffect::FromData`](crate::operator::LodEffect::FromData) names. An
    /// operator that uses this makes all its levels by it. To replace the last level of an input `x`:
    /// `let level = s.level_from_data(x.upper_levels())?`, then `s.set(Self::OUT, x.with_last_level(level))`.
    ///
    /// # Errors
    /// If `upper` has no room for another level.
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

    /// Checks that input slots `a` and `b` have the same rows: the same LoD, or no LoD and the same extent of rows.
    ///
    /// # Errors
    /// If the rows differ; the message prints both specs.
    #[track_caller]
    pub fn same_rows(&self, a: usize, b: usize) -> Result<()> {
        let (x, y) = (self.input(a), self.input(b));
        if x.lod == y.lod && x.rows() == y.rows() {
            return Ok(());
        }
        let (name, other) = (self.signature.inputs[b].name, self.signature.inputs[a].name);
        let error = Error::new(
            format!("rows and LoD of `{name}`"),
            format!("the rows and LoD of `{other}`, {x}"),
            y.to_string(),
        );
        match !x.lod.is_empty() && x.lod.len() == y.lod.len() {
            true => Err(error.noted_in_code(OTHER_SEQUENCES)),
            false => Err(error),
        }
    }

    /// Checks that the variable of input slot `slot` has a LoD.
    ///
    /// # Errors
    /// If the variable has no LoD.
    #[track_caller]
    pub fn has_lod(&self, slot: usize) -> Result<()> {
        if self.input(slot).lod.is_empty() {
            return Err(self.mismatch(slot, "sequences (a LoD of at least one level)"));
        }
        Ok(())
    }

    /// Checks that input slot `slot` has a row for each sequence of the last level of input slot `of`, and the levels above that
    /// level.
    ///
    /// # Errors
    /// If input slot `slot` has other rows or levels, or input slot `of` has no LoD.
    #[track_caller]
    pub fn row_for_each_sequence(&self, slot: usize, of: usize) -> Result<()> {
        self.has_lod(of)?;
        let (rows, sequences) = (self.input(slot), self.input(of).drop_level(self.top())?);
        if rows.lod == sequences.lod && rows.rows() == sequences.rows() {
            return Ok(());
        }
        let (name, of) = (self.signature.inputs[of].name, self.input(of));
        Err(self
            .mismatch(slot, &format!("a row for each sequence of the last level of `{name}`, which is {of}")))
    }

    /// Checks that the dtype of input slot `slot` is one of `dtypes`.
    ///
    /// # Errors
    /// If a variable of the slot has another dtype.
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
    /// If a variable of the slot has another dtype.
    #[track_caller]
    pub fn is_float(&self, slot: usize) -> Result<()> {
        self.dtype_in(slot, &[DType::F32, DType::F64])
    }

    /// Checks that input slots `a` and `b` have the same dtype.
    ///
    /// # Errors
    /// If the dtypes differ.
    #[track_caller]
    pub fn same_dtype(&self, a: usize, b: usize) -> Result<()> {
        let expected = self.input(a).dtype;
        if let Some(k) = self.inputs[b].iter().position(|spec| spec.dtype != expected) {
            let name = self.signature.inputs[a].name;
            return Err(self.mismatch_at(b, k, &format!("{expected}, the dtype of `{name}`")));
        }
        Ok(())
    }

    /// Checks that input slot `slot` is a constant (not batched) with the dimensions `dims`.
    ///
    /// # Errors
    /// If the variable is batched or has other dimensions.
    #[track_caller]
    pub fn constant(&self, slot: usize, dims: &[usize]) -> Result<()> {
        self.constant_at(slot, 0, dims)
    }

    /// Checks that variable `k` of input slot `slot` is a constant (not batched) with the dimensions `dims`.
    ///
    /// # Errors
    /// If the variable is batched or has other dimensions.
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
}

literal_methods!(InferShape: |s: &InferShape<'a>| s.bound());
