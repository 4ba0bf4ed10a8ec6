//! The contract of an operator.
//!
//! One operator family is one file; the file carries, in this order, the declaration ([`operator!`](crate::operator!):
//! formula, slots, attributes, method) and the trait [`Op`]. A user's crate does the same and registers the type in a
//! [`Registry`](crate::operator::Registry).

use std::sync::Arc;

use super::context::{Backward, Forward, NewLevels, Prepare};
use super::cost::{Cost, Work};
use super::declare::{Declaration, DeclaredOp};
use super::facts::{Debt, Facts, Gradient, StorageBound};
use super::hints::Hints;
use super::sample::CheckCase;
use super::shapes::InferShape;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::attributes::Attributes;
use crate::operator::extent::Spec;

/// The operators of a [`Registry`](crate::operator::Registry), as one of them sees them.
pub trait Operators {
    /// What each operator type says of itself, by kind.
    fn declarations(&self) -> Vec<&'static Declaration>;

    /// Reads an operator.
    ///
    /// # Errors
    /// If the kind is not registered or the attributes are wrong.
    fn operator(&self, kind: &str, attributes: &Attributes) -> Result<Arc<dyn Op>>;
}

/// An operator with its attributes.
///
/// - `infer_shape` runs when the operator is appended, so that its errors point at the user's line, and again, for
///   operators that make new sequences from offsets, at every run, with the offsets known. ONE rule serves both. Offsets
///   that the data decides come from `levels` instead.
/// - `forward` WRITES its outputs whole: what they hold on entry is undefined (may be NaN), unless the slot is
///   declared [`Slot::updated`](crate::operator::Slot::updated).
/// - `backward` computes only the gradients that are asked for, and for each WRITES or ADDS as the request says.
///   Each may be asked for alone.
/// - Both take `&self`, may be called at the same time on disjoint ranges of rows (for a sequence-wise operator: of
///   whole sequences), and must give a row (a sequence) THE SAME BITS whatever else is in the batch, unless the
///   facts say [`Facts::batch_dependent`].
/// - Both are TOTAL: no sequence, an empty sequence, an empty batch, a row of zeros (the state that a loop starts from) are
///   defined, never a panic or a NaN.
pub trait Op: DeclaredOp {
    /// What the compiler may assume: row-wise, with the LoD of the first input slot, if nothing else is said.
    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    /// Sets the spec of every output: shape, dtype, LoD and storage. Nobody else compares the inputs: where two are read row
    /// by row, call [`InferShape::same_rows`] and [`InferShape::same_dtype`].
    ///
    /// # Errors
    /// If the inputs do not fit; the error names the slot, what was expected and what came.
    fn infer_shape(&self, shapes: &mut InferShape<'_>) -> Result<()>;

    /// Computes the offsets of the levels that `infer_shape` makes by [`InferShape::level_from_data`], from the slots
    /// that [`LodEffect::FromData`](crate::operator::LodEffect::FromData) names. It runs before `forward`, when no output has
    /// room yet. In a step block it runs for all steps, one after the other, before the first step does anything else.
    ///
    /// # Errors
    /// As `forward`.
    fn levels(&self, _run: &mut NewLevels<'_>) -> Result<()> {
        let expected = "an operator that computes them (`Op::levels`)";
        Err(Error::of(ErrorKind::Program, "offsets from data", expected, "one that does not"))
    }

    /// Computes the outputs.
    ///
    /// # Errors
    /// Only for what the data decides: an id out of range, a length that does not divide.
    fn forward(&self, run: &mut Forward<'_>) -> Result<()>;

    /// Computes the gradients that are asked for.
    ///
    /// # Errors
    /// As `forward`; and if the operator has no gradient.
    fn backward(&self, _run: &mut Backward<'_>) -> Result<()> {
        Err(Error::of(ErrorKind::Program, "gradient", "an operator that has one", "an operator without"))
    }

    /// What the gradient of input slot `wrt` is like, for inputs of these specs: how it is stored, which forward values
    /// `backward` reads for it, and what else the compiler may use. By default it is dense and reads everything.
    fn gradient(&self, _wrt: usize, _inputs: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_all()
    }

    /// How much output slot `output` stores at most if it is sparse: see
    /// [`Program::storage_report`](crate::Program::storage_report).
    fn stored(&self, _output: usize) -> StorageBound {
        StorageBound::Everything
    }

    /// How much the gradient of input slot `wrt` stores at most if the input is dense and its gradient selected rows.
    fn stored_gradient(&self, _wrt: usize) -> StorageBound {
        StorageBound::Everything
    }

    /// Of an update rule: what a row owes that has no gradient, while gradients are selected rows and the
    /// [mode](crate::optimizer::SparseMode) is exact. A rule that says [`Debt::Later`] has the optional slots `history` and `settled`, and
    /// the method [`Self::settle`].
    fn owes(&self) -> Debt {
        Debt::Nothing
    }

    /// Of an update rule whose rows [owe moves](Self::owes): rows make these, in a call of the operator `settle`, whose slots `run`
    /// has: `ids` and `history` are read, `param`, `state` (one for each other slot that the rule updates) and `settled` are
    /// updated. [`update_rule!`](crate::update_rule) writes it.
    ///
    /// # Errors
    /// As `forward`. By default always.
    fn settle(&self, _run: &mut Forward<'_>) -> Result<()> {
        let expected = "an update rule that makes them (`Op::settle`)";
        Err(Error::of(ErrorKind::Program, "moves that rows owe", expected, "one that does not"))
    }

    /// Finds the operators that attributes name, when the operator is read by a registry, which has `operators`.
    ///
    /// # Errors
    /// If one is not registered or does not fit.
    fn resolve(&mut self, _operators: &dyn Operators) -> Result<()> {
        Ok(())
    }

    /// The input slot whose numbers say which rows are read of a table in input slot `table`: ids, or the columns of a sparse
    /// matrix. `None`: all of them are.
    fn rows_read(&self, _table: usize) -> Option<usize> {
        None
    }

    /// What the compiler may do with calls of this operator beyond running them; by default nothing.
    fn hints(&self) -> Hints {
        Hints::default()
    }

    /// What a call costs, for [profiles](crate::executor::Profile). By default: one operation for each number that it
    /// writes, and the bytes of everything that is bound to the call.
    fn cost(&self, work: &Work<'_>) -> Cost {
        work.touched()
    }

    /// Called once before many calls (all steps of a loop, and runs between which nobody writes the constants) whose constant
    /// inputs do not change: packs weights. What it leaves MUST follow from these inputs and the attributes alone.
    ///
    /// # Errors
    /// As `forward`.
    fn prepare(&self, _prepare: &mut Prepare<'_>) -> Result<()> {
        Ok(())
    }

    /// Small cases that show what it does and that it is held to: shapes, gradients, empty sequences, several LoD levels. The
    /// module `op::testing` reads them, and refuses an operator without any; nothing else does.
    ///
    /// # Errors
    /// If one cannot be made, which is a failure of the operator's.
    fn samples() -> Result<Vec<CheckCase>>
    where
        Self: Sized,
    {
        Ok(Vec::new())
    }
}
