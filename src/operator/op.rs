//! The contract of an operator: the trait [`Op`].
//!
//! Each operator has its own file, with two parts in this order: the declaration by [`operator!`](crate::operator!) (formula,
//! slots, attributes, method) and the implementation of the trait [`Op`]. A user's crate writes its operators in the same way,
//! and registers their types in a [`Registry`](crate::operator::Registry).

use std::sync::Arc;

use super::context::{Backward, Forward, NewLevels, Prepare};
use super::cost::{Cost, Work};
use super::declare::{Declaration, DeclaredOp};
use super::facts::{Debt, Facts, Gradient, StorageBound};
use super::hints::Hints;
use super::memory::{CallMemory, CallSizes};
use super::sample::CheckCase;
use super::shapes::InferShape;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::attributes::Attributes;
use crate::operator::extent::Spec;

/// Access to the operators of a [`Registry`](crate::operator::Registry), for an operator whose attributes name other operators.
pub trait Operators {
    /// Returns the declarations of all operator types, sorted by kind.
    fn declarations(&self) -> Vec<&'static Declaration>;

    /// Makes the operator of the kind `kind` from its attributes.
    ///
    /// # Errors
    /// Fails if the kind is not registered or if the attributes are wrong.
    fn operator(&self, kind: &str, attributes: &Attributes) -> Result<Arc<dyn Op>>;
}

/// An operator with its attributes: the trait that every operator type implements.
///
/// - `infer_shape` runs when the operator is appended, so that errors name the user's line. For operators that make new
///   sequences from offsets, `infer_shape` runs again at every run, with known offsets: building and running use ONE shape
///   rule. For offsets that depend on data, `levels` computes the offsets.
/// - `forward` WRITES every number of its outputs. The contents of an output before the call are undefined (they may be NaN),
///   unless the slot is declared [`Slot::updated`](crate::operator::Slot::updated).
/// - `backward` computes only the gradients that the call needs. `backward` WRITES or ADDS each gradient, as the result
///   of [`Backward::gradient`] requires. A call of `backward` may need any single gradient alone.
/// - `forward` and `backward` take `&self`. `forward` and `backward` may be called at the same time on disjoint ranges of rows
///   (for a sequence-wise operator: of whole sequences). Each of the two methods must give a row (a sequence) THE SAME BITS in
///   every batch, unless the facts declare [`Facts::batch_dependent`].
/// - `forward` and `backward` are TOTAL: they never panic. They compute defined results without NaN for a batch without
///   sequences, for an empty sequence, and for a row of zeros (with which a loop starts).
/// - The constants of the operator's type, such as `X` and `OUT`, are the indices of its slots. The methods of the contexts
///   panic if a slot index is not declared, or if a view for writing is taken twice in one call.
pub trait Op: DeclaredOp {
    /// Returns the facts about the operator that the compiler relies on. The default facts are: row-wise, with the LoD of the
    /// first input slot.
    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    /// Sets the spec of every output: shape, dtype, LoD levels and storage. Only `infer_shape` compares the inputs: if the
    /// operator reads two inputs row by row, call [`InferShape::same_rows`] and [`InferShape::same_dtype`].
    ///
    /// # Errors
    /// Fails if the inputs do not fit; the error names the slot, the expected spec and the given spec.
    fn infer_shape(&self, shapes: &mut InferShape<'_>) -> Result<()>;

    /// Computes the offsets of the LoD levels that `infer_shape` makes by [`InferShape::level_from_data`]. The offsets depend on
    /// the values in the input slots of [`LodEffect::FromData`](crate::operator::LodEffect::FromData). `levels` runs before
    /// `forward`, when the outputs have no memory yet. In a step block, `levels` runs for all steps, one after the other, before
    /// `forward` runs in the first step.
    ///
    /// # Errors
    /// Fails for errors in the data, as `forward` does.
    fn levels(&self, _run: &mut NewLevels<'_>) -> Result<()> {
        let expected = "an operator that computes offsets (`Op::levels`)";
        Err(Error::of(ErrorKind::Program, "offsets from data", expected, "an operator that does not"))
    }

    /// Computes the outputs of the operator from its inputs.
    ///
    /// # Errors
    /// Fails only for errors in the data, such as an id out of range, or a sequence length that is not a multiple of the
    /// required length.
    fn forward(&self, run: &mut Forward<'_>) -> Result<()>;

    /// Computes the gradients that the call needs.
    ///
    /// # Errors
    /// Fails for errors in the data, as `forward` does, and if the operator has no gradient.
    fn backward(&self, _run: &mut Backward<'_>) -> Result<()> {
        Err(Error::of(ErrorKind::Program, "gradient", "an operator with a gradient", "an operator without"))
    }

    /// Describes the gradient of input slot `wrt` for inputs with these specs: the storage of the gradient, the forward values
    /// that `backward` reads to compute it, and further properties for the compiler. By default, the gradient is dense, and
    /// `backward` reads all forward values.
    fn gradient(&self, _wrt: usize, _inputs: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_all()
    }

    /// Returns an upper bound of the number of entries, or of selected rows, that output slot `output` stores if the
    /// output is sparse: see [`Program::storage_report`](crate::Program::storage_report).
    fn stored(&self, _output: usize) -> StorageBound {
        StorageBound::Everything
    }

    /// Returns an upper bound of the number of rows in the gradient of input slot `wrt`, if the input is dense and its
    /// gradient is selected rows.
    fn stored_gradient(&self, _wrt: usize) -> StorageBound {
        StorageBound::Everything
    }

    /// For an update rule: returns the update that a row misses in a step without a gradient for the row. A row can only miss
    /// updates if gradients are selected rows and the [mode](crate::optimizer::SparseMode) is exact. A rule that returns
    /// [`Debt::Later`] has the optional slots `history` and `settled`, and implements [`Self::settle`].
    fn owes(&self) -> Debt {
        Debt::Nothing
    }

    /// For an update rule with [postponed updates](Self::owes): makes the updates that rows have missed, in a call of the
    /// operator `settle`. The slots of `run` are the slots of the operator `settle`. The method reads `ids` and `history`; it
    /// updates `param`, `settled`, and one `state` for each other slot that the rule updates. The macro
    /// [`update_rule!`](crate::update_rule) writes the method `settle`.
    ///
    /// # Errors
    /// Fails for errors in the data, as `forward` does. The default implementation always fails.
    #[doc(hidden)]
    fn settle(&self, _run: &mut Forward<'_>) -> Result<()> {
        let expected = "an update rule that makes missed updates (`Op::settle`)";
        Err(Error::of(ErrorKind::Program, "updates that rows have missed", expected, "a rule that does not"))
    }

    /// Looks up the operators that the attributes name. A registry with these `operators` calls `resolve` when it makes this
    /// operator.
    ///
    /// # Errors
    /// Fails if an operator is not registered or does not fit.
    #[doc(hidden)]
    fn resolve(&mut self, _operators: &dyn Operators) -> Result<()> {
        Ok(())
    }

    /// For an operator that reads only some rows of input slot `table`: returns the input slot whose values select these
    /// rows, such as `ids` of `embedding`. The values are ids, or the columns of a sparse matrix. Returns `None` if the
    /// operator reads all rows of the table.
    #[doc(hidden)]
    fn rows_read(&self, _table: usize) -> Option<usize> {
        None
    }

    /// Returns hints with which the compiler can make programs faster; the default is no hints.
    fn hints(&self) -> Hints {
        Hints::default()
    }

    /// Returns the cost of a call, for [profiles](crate::executor::Profile). By default, the cost is one operation for each
    /// number that the call writes, and the bytes of all operands of the call.
    fn cost(&self, work: &Work<'_>) -> Cost {
        work.touched()
    }

    /// Returns the memory that a call with these sizes takes beside its operands; none by default. Scratch memory of less than
    /// some kilobytes, such as one row, need not be declared.
    fn memory(&self, _sizes: &CallSizes<'_>) -> CallMemory {
        CallMemory::default()
    }

    /// For an operator that makes new sequences: returns a bound of the number of new rows. The bound is a pair
    /// `(slot, k)`: each row of the variables in input slot `slot` leads to at most `k` new rows. Returns `None` if no
    /// bound is known. If values decide the number of new rows, the bound replaces this number before a run.
    fn most_rows(&self, _inputs: &[Vec<Spec>]) -> Option<(usize, usize)> {
        None
    }

    /// Prepares many calls with the same constant inputs, for example by packing weights. `prepare` is called once for all steps
    /// of a loop, and once for all runs until a constant input is written. The prepared value MUST depend only on the constant
    /// inputs and the attributes.
    ///
    /// # Errors
    /// Fails for errors in the data, as `forward` does.
    fn prepare(&self, _prepare: &mut Prepare<'_>) -> Result<()> {
        Ok(())
    }

    /// Returns the check cases: small calls that show the operator's behaviour. Tests check the operator on these cases: shapes,
    /// gradients, empty sequences, several LoD levels. Only `op::testing` reads the check cases; it refuses an operator without
    /// check cases.
    ///
    /// # Errors
    /// Fails if a check case cannot be made, which is an error in the operator's code.
    fn samples() -> Result<Vec<CheckCase>>
    where
        Self: Sized,
    {
        Ok(Vec::new())
    }
}
