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

/// The operators of a [`Registry`](crate::operator::Registry), for an operator whose attributes name other operators.
pub trait Operators {
    /// The declaration of each operator type, by kind.
    fn declarations(&self) -> Vec<&'static Declaration>;

    /// Makes the operator of a kind from its attributes.
    ///
    /// # Errors
    /// If the kind is not registered or the attributes are wrong.
    fn operator(&self, kind: &str, attributes: &Attributes) -> Result<Arc<dyn Op>>;
}

/// An operator with its attributes.
///
/// - `infer_shape` runs when the operator is appended, so that its errors point at the user's line; and again at every
///   run, with known offsets, for operators that make new sequences from offsets. ONE rule serves both. Offsets that
///   depend on data come from `levels` instead.
/// - `forward` WRITES its outputs whole: their contents on entry are undefined (may be NaN), unless the slot is
///   declared [`Slot::updated`](crate::operator::Slot::updated).
/// - `backward` computes only the wanted gradients, and WRITES or ADDS each gradient, as [`Backward::gradient`] says. Each
///   gradient may be requested alone.
/// - Both take `&self`, may be called at the same time on disjoint ranges of rows (for a sequence-wise operator: of
///   whole sequences), and must give a row (a sequence) THE SAME BITS whatever else is in the batch, unless the
///   facts say [`Facts::batch_dependent`].
/// - Both are TOTAL: no sequence, an empty sequence, an empty batch, a row of zeros (the state that a loop starts from) are
///   defined, never a panic or a NaN.
/// - The operator's constants give the numbers of its slots. The methods of the contexts panic at a slot number that the operator
///   does not declare, and if a view for writing is taken twice in one call.
pub trait Op: DeclaredOp {
    /// The facts that the compiler may rely on. By default: row-wise, with the LoD of the first input slot.
    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    /// Sets the spec of every output: shape, dtype, LoD and storage. Nothing else compares the inputs: if two of them are
    /// read row by row, call [`InferShape::same_rows`] and [`InferShape::same_dtype`].
    ///
    /// # Errors
    /// If the inputs do not fit; the error names the slot, what was expected and what was found.
    fn infer_shape(&self, shapes: &mut InferShape<'_>) -> Result<()>;

    /// Computes the offsets of the levels that `infer_shape` makes by [`InferShape::level_from_data`], from the slots that
    /// [`LodEffect::FromData`](crate::operator::LodEffect::FromData) names. It runs before `forward`, when the outputs have no
    /// memory yet. In a step block it runs for all steps, one after the other, before `forward` runs in the first step.
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
    /// Only for errors in the data: an id out of range, a length that does not divide.
    fn forward(&self, run: &mut Forward<'_>) -> Result<()>;

    /// Computes the wanted gradients.
    ///
    /// # Errors
    /// As `forward`; and if the operator has no gradient.
    fn backward(&self, _run: &mut Backward<'_>) -> Result<()> {
        Err(Error::of(ErrorKind::Program, "gradient", "an operator that has one", "an operator without"))
    }

    /// The gradient of input slot `wrt` for inputs of these specs: how it is stored, which forward values `backward` reads for
    /// it, and what else the compiler may use. By default the gradient is dense, and `backward` reads all forward values for it.
    fn gradient(&self, _wrt: usize, _inputs: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_all()
    }

    /// The upper bound of the numbers that output slot `output` stores if it is sparse: see
    /// [`Program::storage_report`](crate::Program::storage_report).
    fn stored(&self, _output: usize) -> StorageBound {
        StorageBound::Everything
    }

    /// The upper bound of the rows in the gradient of input slot `wrt`, if the input is dense and its gradient selected rows.
    fn stored_gradient(&self, _wrt: usize) -> StorageBound {
        StorageBound::Everything
    }

    /// For an update rule: the update that a row without a gradient misses, if gradients are selected rows and the
    /// [mode](crate::optimizer::SparseMode) is exact. A rule that returns [`Debt::Later`] has the optional slots `history` and
    /// `settled`, and the method [`Self::settle`].
    fn owes(&self) -> Debt {
        Debt::Nothing
    }

    /// For an update rule with [postponed updates](Self::owes): makes the updates that rows have missed, in a call of the
    /// operator `settle`. The slots of `run` are the slots of `settle`: `ids` and `history` are read; `param`, `state` (one for
    /// each other slot that the rule updates) and `settled` are updated. [`update_rule!`](crate::update_rule) writes this method.
    ///
    /// # Errors
    /// As `forward`. The default always fails.
    fn settle(&self, _run: &mut Forward<'_>) -> Result<()> {
        let expected = "an update rule that makes them (`Op::settle`)";
        Err(Error::of(ErrorKind::Program, "moves that rows owe", expected, "one that does not"))
    }

    /// Resolves the operators that attributes name, when a registry with these `operators` reads this operator.
    ///
    /// # Errors
    /// If an operator is not registered or does not fit.
    fn resolve(&mut self, _operators: &dyn Operators) -> Result<()> {
        Ok(())
    }

    /// The input slot whose numbers select the rows of input slot `table` that the operator reads: ids, or the columns of a
    /// sparse matrix. `None`: the operator reads all rows.
    fn rows_read(&self, _table: usize) -> Option<usize> {
        None
    }

    /// Hints for the compiler beyond running the calls; none by default.
    fn hints(&self) -> Hints {
        Hints::default()
    }

    /// The cost of a call, for [profiles](crate::executor::Profile). By default: one operation for each number that it
    /// writes, and the bytes of everything that is bound to the call.
    fn cost(&self, work: &Work<'_>) -> Cost {
        work.touched()
    }

    /// Prepares many calls whose constant inputs do not change, as by packing weights. It is called once for all steps of a loop,
    /// and for all runs until a constant is written. The prepared value MUST follow from these inputs and the attributes alone.
    ///
    /// # Errors
    /// As `forward`.
    fn prepare(&self, _prepare: &mut Prepare<'_>) -> Result<()> {
        Ok(())
    }

    /// Check cases: small cases that show the operator's behaviour and on which it is checked: shapes, gradients, empty
    /// sequences, several LoD levels. Only `op::testing` reads them; it refuses an operator without check cases.
    ///
    /// # Errors
    /// If a case cannot be made, which is an error in the operator.
    fn samples() -> Result<Vec<CheckCase>>
    where
        Self: Sized,
    {
        Ok(Vec::new())
    }
}
