//! The context of [`Op::infer_shape`](crate::operator::Op::infer_shape), when a program is built and when it runs. An operator
//! reads the specs of its inputs from the context and sets the specs of its outputs.

use std::cell::Cell;

use super::levels::{LevelTable, MadeLevelIds};
use super::literals::{Literals, literal_methods};
use super::signature::Signature;
use super::slots::{NOTHING, name_of};
use crate::error::{AtCaller, Error, Result};
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

/// The phase in which a shape rule runs; the phase determines how new LoD levels are made.
pub(crate) enum Phase<'a> {
    /// The program is being built: a new LoD level only gets an index.
    Build {
        /// The next free index of a LoD level.
        next: &'a mut u32,
    },
    /// The program runs: the levels have indices, and the shape rule computes the offsets of the levels.
    Run {
        /// The LoD levels that the operator made when it was appended, in order.
        made: &'a [MadeLevelIds],
        /// All LoD levels of the run.
        table: &'a mut LevelTable,
    },
}

/// The variables and literals in an operator's input slots, in the order of the slots.
#[derive(Clone, Copy)]
pub(crate) struct InputSlots<'a> {
    /// The specs of the tensors in each input slot.
    pub(crate) specs: &'a [Vec<Spec>],
    /// The literals in each input slot; empty if no slot has literals.
    pub(crate) literals: &'a [Vec<Literal>],
}

/// The context of a shape rule: it reads the specs of the inputs and sets the specs of the outputs.
pub struct InferShape<'a> {
    pub(super) signature: Signature,
    pub(super) inputs: &'a [Vec<Spec>],
    literals: &'a [Vec<Literal>],
    pub(super) outputs: Vec<Vec<Spec>>,
    top: Extent,
    pub(super) phase: Phase<'a>,
    pub(super) made: usize,
    pub(super) from_data: Vec<MadeLevelIds>,
    /// A slot without a variable that the shape rule used: the shape rule then fails.
    pub(super) missing: Cell<Option<usize>>,
}

/// A hint in error messages about two variables with the same number of levels but different sequences.
const OTHER_SEQUENCES: &str = "feeds have the same sequences by `feed_like`, padded arrays by `sequence_unpad_as` of a variable with \
                               these sequences, also in a step block";

impl<'a> InferShape<'a> {
    pub(super) fn new(signature: Signature, inputs: InputSlots<'a>, top: Extent, phase: Phase<'a>) -> Self {
        let InputSlots { specs: inputs, literals } = inputs;
        let outputs = vec![Vec::new(); signature.outputs.len()];
        Self {
            signature,
            inputs,
            literals,
            outputs,
            top,
            phase,
            made: 0,
            from_data: Vec::new(),
            missing: Cell::default(),
        }
    }

    fn name(&self, slot: usize) -> &'static str {
        name_of(self.signature.inputs, slot)
    }

    fn bound(&self) -> Literals<'a> {
        Literals { signature: self.signature, values: self.literals }
    }

    /// Returns the spec of the variable in input slot `slot`, which takes one variable. If the operator lacks the slot, if the
    /// slot is optional and empty (use [`Self::optional`]), or if it takes literals (see [`Self::literal`]), the call that appends
    /// the operator returns an error.
    pub fn input(&self, slot: usize) -> &'a Spec {
        self.input_at(slot, 0)
    }

    fn input_at(&self, slot: usize, k: usize) -> &'a Spec {
        self.many(slot).get(k).unwrap_or_else(|| self.without(slot, &NOTHING))
    }

    fn without<T>(&self, slot: usize, instead: T) -> T {
        self.missing.set(Some(slot));
        instead
    }

    /// Returns the spec of the variable in an optional input slot; `None` if no variable is bound.
    pub fn optional(&self, slot: usize) -> Option<&'a Spec> {
        self.many(slot).first()
    }

    /// Returns the specs of the variables in an input slot that takes many variables.
    pub fn many(&self, slot: usize) -> &'a [Spec] {
        self.inputs.get(slot).map_or_else(|| self.without(slot, &[][..]), Vec::as_slice)
    }

    /// Returns the extent that counts the top-level sequences: the sequences of the batch, or in a step block the sequences that
    /// have not ended.
    pub fn top(&self) -> Extent {
        self.top
    }

    /// Sets the spec of the variable in output slot `slot`, which has one variable.
    pub fn set(&mut self, slot: usize, spec: Spec) {
        self.set_many(slot, vec![spec]);
    }

    /// Sets the specs of the variables in an output slot that has many variables.
    pub fn set_many(&mut self, slot: usize, specs: Vec<Spec>) {
        match self.outputs.get_mut(slot) {
            Some(output) => *output = specs,
            None => self.without(slot, ()),
        }
    }

    /// Makes a new LoD level below the levels `upper`, and returns the index of the new level. When the program is built, the
    /// new level only gets this index. When the program runs, `fill` reads the levels of the run and writes the offsets of
    /// the new level, from 0 to the number of rows.
    ///
    /// # Errors
    /// Fails if `fill` fails, if the offsets are invalid, or if `upper` has the maximum number of levels already.
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
                outcome.at_caller()?;
                table.set(id, slot);
                Ok(id)
            }
        }
    }

    /// Makes a new LoD level below the levels `upper`; the operator computes its offsets from data.
    /// [`Op::levels`](crate::operator::Op::levels) computes the offsets before `forward` runs, from the values in the input slots
    /// of [`LodEffect::FromData`](crate::operator::LodEffect::FromData). If an operator makes one level by `level_from_data`, it
    /// must make all its new levels by `level_from_data`. The last level of an input `x` is replaced in two calls: `let level =
    /// s.level_from_data(x.upper_levels())?`, then `s.set(Self::OUT, x.with_last_level(level))`.
    ///
    /// # Errors
    /// Fails if `upper` has the maximum number of levels already.
    #[track_caller]
    pub fn level_from_data(&mut self, upper: &[LevelId]) -> Result<LevelId> {
        room_below(upper)?;
        let Phase::Build { next } = &mut self.phase else {
            return Err(Error::new(
                "level from data",
                "a shape rule that runs only when the program is built",
                "a shape rule that runs at every run",
            ));
        };
        let id = fresh(next);
        self.made += 1;
        self.from_data.push((id, upper.last().copied()));
        Ok(id)
    }

    /// Checks that the variables of input slots `a` and `b` have the same rows: the same LoD, or no LoD and the same extent of
    /// rows.
    ///
    /// # Errors
    /// Fails if the rows differ; the error message prints both specs.
    #[track_caller]
    pub fn same_rows(&self, a: usize, b: usize) -> Result<()> {
        let (x, y) = (self.input(a), self.input(b));
        if x.lod == y.lod && x.rows() == y.rows() {
            return Ok(());
        }
        let (name, other) = (self.name(b), self.name(a));
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

    /// Checks that the variable in input slot `slot` has a LoD.
    ///
    /// # Errors
    /// Fails if the variable has no LoD.
    #[track_caller]
    pub fn has_lod(&self, slot: usize) -> Result<()> {
        if self.input(slot).lod.is_empty() {
            return Err(self.mismatch(slot, "sequences (a LoD of at least one level)"));
        }
        Ok(())
    }

    /// Checks that input slot `slot` has one row per sequence of the last level of input slot `other`, and the same levels above
    /// that level.
    ///
    /// # Errors
    /// Fails if input slot `slot` has other rows or levels, or if input slot `other` has no LoD.
    #[track_caller]
    pub fn row_for_each_sequence(&self, slot: usize, other: usize) -> Result<()> {
        self.has_lod(other)?;
        let (rows, sequences) = (self.input(slot), self.input(other).drop_level(self.top())?);
        if rows.lod == sequences.lod && rows.rows() == sequences.rows() {
            return Ok(());
        }
        let (name, other) = (self.name(other), self.input(other));
        Err(self.mismatch(
            slot,
            &format!("a row for each sequence of the last level of `{name}`, which is {other}"),
        ))
    }

    /// Checks that the dtype of each variable in input slot `slot` is one of `dtypes`.
    ///
    /// # Errors
    /// Fails if a variable of the slot has another dtype.
    #[track_caller]
    pub(crate) fn dtype_in(&self, slot: usize, dtypes: &[DType]) -> Result<()> {
        for (k, spec) in self.many(slot).iter().enumerate() {
            if !dtypes.contains(&spec.dtype) {
                let names: Vec<String> = dtypes.iter().map(DType::to_string).collect();
                return Err(self.mismatch_at(slot, k, &format!("dtype {}", names.join(" or "))));
            }
        }
        Ok(())
    }

    /// Checks that each variable in input slot `slot` holds f32 or f64.
    ///
    /// # Errors
    /// Fails if a variable of the slot has another dtype.
    #[track_caller]
    pub fn is_float(&self, slot: usize) -> Result<()> {
        self.dtype_in(slot, &[DType::F32, DType::F64])
    }

    /// Checks that the variables of input slots `a` and `b` have the same dtype.
    ///
    /// # Errors
    /// Fails if the dtypes of the two slots differ.
    #[track_caller]
    pub fn same_dtype(&self, a: usize, b: usize) -> Result<()> {
        let expected = self.input(a).dtype;
        if let Some(k) = self.many(b).iter().position(|spec| spec.dtype != expected) {
            let name = self.name(a);
            return Err(self.mismatch_at(b, k, &format!("{expected}, the dtype of `{name}`")));
        }
        Ok(())
    }

    /// Checks that the variable in input slot `slot` is a constant (not batched) with the dimensions `dims`.
    ///
    /// # Errors
    /// Fails if the variable is batched or has other dimensions.
    #[track_caller]
    pub fn constant(&self, slot: usize, dims: &[usize]) -> Result<()> {
        self.constant_at(slot, 0, dims)
    }

    /// Checks that variable `k` of input slot `slot` is a constant (not batched) with the dimensions `dims`.
    ///
    /// # Errors
    /// Fails if the variable is batched or has other dimensions.
    #[track_caller]
    pub(crate) fn constant_at(&self, slot: usize, k: usize, dims: &[usize]) -> Result<()> {
        let spec = self.input_at(slot, k);
        if spec.lod.is_empty() && spec.shape.iter().map(|e| e.known()).eq(dims.iter().map(|&d| Some(d))) {
            return Ok(());
        }
        Err(self.mismatch_at(slot, k, &format!("a constant of shape {dims:?}")))
    }

    /// Returns an error about the spec of the variable in input slot `slot`.
    #[track_caller]
    pub fn mismatch(&self, slot: usize, expected: &str) -> Error {
        self.mismatch_at(slot, 0, expected)
    }

    /// Returns an error about the spec of variable `k` of input slot `slot`.
    #[track_caller]
    pub(crate) fn mismatch_at(&self, slot: usize, k: usize, expected: &str) -> Error {
        let given = self.many(slot);
        let number = if given.len() > 1 { format!("[{k}]") } else { String::new() };
        let got = given.get(k).map_or_else(|| "nothing".to_owned(), Spec::to_string);
        Error::new(format!("input `{}`{number}", self.name(slot)), expected, got)
    }

    /// Returns the LoD levels of the variable in input slot `slot`.
    pub fn levels(&self, slot: usize) -> &'a Levels {
        &self.input(slot).lod
    }
}

literal_methods!(InferShape: |s: &InferShape<'a>| s.bound());
