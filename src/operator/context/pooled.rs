//! Access to operands that are not dense (selected rows and sparse matrices) in the contexts of `forward` and `backward`.

use arrayvec::ArrayVec;

use super::{Backward, Call, CallInputs, Forward, OperandPosition};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::kernels::Assign;
use crate::operator::entries::{CsrBuffer, PooledStorage};
use crate::operator::rows::{RowBuffer, RowValue};
use crate::operator::slots::name_of;
use crate::operator::table::{RowTable, no_table};

/// The maximum number of row-sparse variables in one update: the parameter and its optimizer states.
pub(crate) const MOST_TABLES: usize = 8;

impl CallInputs<'_> {
    /// Returns the selected rows in input slot `slot`; `None` if the input has another storage.
    pub fn rows(&self, slot: usize) -> Option<&RowBuffer> {
        self.rows_at(slot, 0)
    }

    /// Returns the selected rows of variable `k` of input slot `slot`; `None` if the variable has another storage.
    pub(crate) fn rows_at(&self, slot: usize, k: usize) -> Option<&RowBuffer> {
        self.pooled(self.call.wiring.missing.slot(&self.call.wiring.inputs, slot).get(k)?)?.rows()
    }

    /// Returns the sparse matrix (csr or coo) in input slot `slot`; `None` if the input has another storage.
    pub fn csr(&self, slot: usize) -> Option<&CsrBuffer> {
        self.csr_at(slot, 0)
    }

    /// Returns the sparse matrix of variable `k` of input slot `slot`; `None` if the variable has another storage.
    pub(crate) fn csr_at(&self, slot: usize, k: usize) -> Option<&CsrBuffer> {
        self.pooled(self.call.wiring.missing.slot(&self.call.wiring.inputs, slot).get(k)?)?.csr()
    }

    /// Returns the row-sparse parameter in input slot `slot`; `None` if the input is no row-sparse parameter.
    pub(crate) fn table(&self, slot: usize) -> Option<&RowTable> {
        self.pooled(self.call.wiring.missing.slot(&self.call.wiring.inputs, slot).first()?)?.table()
    }

    fn pooled(&self, position: &OperandPosition) -> Option<&PooledStorage> {
        match position {
            OperandPosition::Pooled(i) => self.pool.get(*i),
            _ => None,
        }
    }

    /// Takes an operand out of the pool, so that it can be written while other operands are read; returns `None` if the
    /// operand is not in the pool. [`Self::give_back`] puts the operand back into the pool. A single method that takes a
    /// closure would be compiled again for each closure, so there are two methods.
    fn lend(&mut self, position: OperandPosition) -> Option<(usize, PooledStorage)> {
        let OperandPosition::Pooled(i) = position else { return None };
        // The replacement is an empty value, which allocates no memory.
        Some((i, std::mem::replace(self.pool.get_mut(i)?, PooledStorage::Rows(RowBuffer::default()))))
    }

    fn give_back(&mut self, position: usize, pooled: PooledStorage) {
        self.pool[position] = pooled;
    }
}

impl Forward<'_> {
    /// Calls `fill` to fill the selected rows of output slot `slot`; `fill` can read the inputs.
    ///
    /// # Errors
    /// Fails if `fill` fails, or if the output has another storage.
    #[track_caller]
    pub fn fill_rows(
        &mut self,
        slot: usize,
        fill: impl FnOnce(&Self, &mut RowBuffer) -> Result<()>,
    ) -> Result<()> {
        let (position, mut pooled) = self.lend_output(slot).at_caller()?;
        let outcome = pooled.rows_mut().map(|rows| fill(self, rows));
        self.inputs.give_back(position, pooled);
        outcome.unwrap_or_else(|| Err(self.output_stored_otherwise(slot))).at_caller()
    }

    /// Calls `fill` to fill the sparse matrix of output slot `slot`; `fill` can read the inputs.
    ///
    /// # Errors
    /// Fails if `fill` fails, or if the output has another storage.
    #[track_caller]
    pub fn fill_csr(
        &mut self,
        slot: usize,
        fill: impl FnOnce(&Self, &mut CsrBuffer) -> Result<()>,
    ) -> Result<()> {
        let (position, mut pooled) = self.lend_output(slot).at_caller()?;
        let outcome = pooled.csr_mut().map(|csr| fill(self, csr));
        self.inputs.give_back(position, pooled);
        outcome.unwrap_or_else(|| Err(self.output_stored_otherwise(slot))).at_caller()
    }

    /// Returns the gradient in input slot `rows`, stored as selected rows, and the row-sparse variables in the output slots
    /// `tables`, which the operator updates in place.
    ///
    /// # Errors
    /// Fails if the gradient is not selected rows, or if an output is not row-sparse.
    #[track_caller]
    pub(crate) fn update_tables<const N: usize>(
        &mut self,
        rows: usize,
        tables: [usize; N],
    ) -> Result<(&RowBuffer, [&mut RowTable; N])> {
        const { assert!(N <= MOST_TABLES, "more tables than an update operator has") };
        let (rows, tables) = self.tables(rows, &tables)?;
        let mut tables = tables.into_iter();
        Ok((rows, [(); N].map(|()| tables.next().unwrap_or_else(|| unreachable!("none is missing")))))
    }

    /// Does the work of [`Self::update_tables`] for a list of at most [`MOST_TABLES`] tables.
    #[track_caller]
    pub(crate) fn tables(
        &mut self,
        rows: usize,
        tables: &[usize],
    ) -> Result<(&RowBuffer, ArrayVec<&mut RowTable, MOST_TABLES>)> {
        let CallInputs { call: Call { wiring, signature, .. }, pool, .. } = &mut self.inputs;
        let rows_at = wiring.position(&wiring.inputs, rows, 0);
        let at = |slot: usize| wiring.position(&wiring.outputs, slot, 0);
        let mut found_rows = None;
        let mut found: ArrayVec<Option<&mut RowTable>, MOST_TABLES> = tables.iter().map(|_| None).collect();
        // Each operand has its own position in the pool, so the loop finds each operand once.
        for (i, pooled) in pool.iter_mut().enumerate() {
            let here = OperandPosition::Pooled(i);
            if here == rows_at {
                found_rows = pooled.rows();
            } else if let Some(k) = tables.iter().position(|&slot| at(slot) == here) {
                found[k] = pooled.table_mut();
            }
        }
        let missing = found.iter().position(Option::is_none);
        let (Some(found_rows), None) = (found_rows, missing) else {
            return Err(match missing {
                Some(k) => no_table(name_of(signature.outputs, tables[k])),
                None => other_storage(name_of(signature.inputs, rows)),
            })
            .at_caller();
        };
        Ok((found_rows, found.into_iter().flatten().collect()))
    }

    fn lend_output(&mut self, slot: usize) -> Result<(usize, PooledStorage)> {
        let position = self.call.wiring.position(&self.call.wiring.outputs, slot, 0);
        self.inputs.lend(position).ok_or_else(|| self.output_stored_otherwise(slot))
    }

    fn output_stored_otherwise(&self, slot: usize) -> Error {
        other_storage(name_of(self.call.signature.outputs, slot))
    }
}

fn other_storage(slot: &str) -> Error {
    let got = "a variable in another storage";
    Error::of(ErrorKind::Program, format!("slot `{slot}`"), "the storage that the shape rule gave", got)
}

impl Backward<'_> {
    /// Returns the forward value of output slot `slot` if it is a sparse matrix; `None` if the output has another storage.
    pub(crate) fn output_csr(&self, slot: usize) -> Option<&CsrBuffer> {
        self.pooled(self.call.wiring.missing.slot(&self.call.wiring.outputs, slot).first()?)?.csr()
    }

    /// Returns the forward value of output slot `slot` if it is selected rows; `None` if the output has another storage.
    pub(crate) fn output_rows(&self, slot: usize) -> Option<&RowBuffer> {
        self.pooled(self.call.wiring.missing.slot(&self.call.wiring.outputs, slot).first()?)?.rows()
    }

    /// Returns the gradient of output slot `slot`, if the output is a sparse matrix. The gradient has the output's entries, in
    /// the same order. Returns `None` if no gradient reaches the output.
    pub fn output_gradient_csr(&self, slot: usize) -> Option<&CsrBuffer> {
        self.pooled(self.call.wiring.missing.slot(&self.call.wiring.output_gradients, slot).first()?)?.csr()
    }

    /// Returns the gradient of output slot `slot`, if the output is selected rows. The gradient has the output's rows, in the
    /// same order. Returns `None` if no gradient reaches the output.
    pub fn output_gradient_rows(&self, slot: usize) -> Option<&RowBuffer> {
        self.pooled(self.call.wiring.missing.slot(&self.call.wiring.output_gradients, slot).first()?)?.rows()
    }

    /// Returns the buffer for a gradient that is stored as selected rows, although its input is dense, and whether `backward`
    /// must overwrite the buffer or append rows. Returns `None` if the gradient is not needed or has another storage.
    pub fn gradient_rows(&mut self, slot: usize) -> Option<(&mut RowBuffer, Assign)> {
        match self.call.wiring.missing.slot(&self.call.wiring.input_gradients, slot).first() {
            Some(&(OperandPosition::Pooled(i), assign)) => {
                self.inputs.pool.get_mut(i)?.rows_mut().map(|rows| (rows, assign))
            }
            _ => None,
        }
    }

    /// Calls `fill` to write or add the gradient of variable `k` of a sparse input slot; `fill` can read the other operands.
    /// `fill` gets one number for each number that the variable stores, in the variable's order. The gradient has exactly the
    /// variable's entries, since an update never changes numbers that are not stored. Returns whether the gradient is needed;
    /// if it is not, `fill` is not called.
    ///
    /// # Errors
    /// Fails if `fill` fails, if the variable holds another dtype, or if the operator does not declare to read the variable.
    #[track_caller]
    pub(crate) fn fill_gradient<T: RowValue>(
        &mut self,
        slot: usize,
        k: usize,
        fill: impl FnOnce(&Self, &mut [T], Assign) -> Result<()>,
    ) -> Result<bool> {
        let Some(&(position, assign)) =
            self.call.wiring.missing.slot(&self.call.wiring.input_gradients, slot).get(k)
        else {
            return Ok(false);
        };
        let Some((position, mut gradient)) = self.inputs.lend(position) else { return Ok(false) };
        let outcome =
            self.zeroed::<T>((slot, k), &mut gradient, assign).and_then(|to| fill(self, to, assign));
        self.inputs.give_back(position, gradient);
        outcome.map(|()| true).at_caller()
    }

    /// Returns the numbers of the gradient of variable `k` of input slot `slot`: one for each number that the variable
    /// stores. The numbers are set to zero if the gradient must be overwritten, or if it is still empty, as before the first
    /// step of a loop.
    fn zeroed<'g, T: RowValue>(
        &self,
        (slot, k): (usize, usize),
        gradient: &'g mut PooledStorage,
        assign: Assign,
    ) -> Result<&'g mut [T]> {
        let value = self
            .call
            .wiring
            .missing
            .slot(&self.call.wiring.inputs, slot)
            .get(k)
            .and_then(|position| self.pooled(position));
        let value = value.ok_or_else(|| other_storage(name_of(self.call.signature.inputs, slot)))?;
        if assign == Assign::Write || gradient.numbers() != value.numbers() {
            gradient.zeros_at::<T>(value)?;
        }
        gradient.numbers_mut::<T>()
    }
}
