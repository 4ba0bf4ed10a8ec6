//! The contexts' methods for operands that are not dense: selected rows and sparse matrices.

use arrayvec::ArrayVec;

use super::{Backward, Call, Forward, OperandPosition};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::kernels::Assign;
use crate::operator::entries::{CsrBuffer, PooledStorage};
use crate::operator::rows::{RowBuffer, RowValue};
use crate::operator::table::{RowTable, no_table};

/// The maximum number of tables in one update: the parameter and its states.
pub(crate) const MOST_TABLES: usize = 8;

macro_rules! pooled_methods {
    ($context:ident) => {
        impl $context<'_> {
            /// The selected rows of an input slot; `None` if the input has another storage.
            pub fn rows(&self, slot: usize) -> Option<&RowBuffer> {
                self.rows_at(slot, 0)
            }

            /// The selected rows of variable `k` of an input slot; `None` if the variable has another storage.
            pub fn rows_at(&self, slot: usize, k: usize) -> Option<&RowBuffer> {
                self.pooled(self.call.wiring.inputs[slot].get(k)?)?.rows()
            }

            /// The sparse matrix (csr or coo) of an input slot; `None` if the input has another storage.
            pub fn csr(&self, slot: usize) -> Option<&CsrBuffer> {
                self.csr_at(slot, 0)
            }

            /// The sparse matrix of variable `k` of an input slot; `None` if the variable has another storage.
            pub fn csr_at(&self, slot: usize, k: usize) -> Option<&CsrBuffer> {
                self.pooled(self.call.wiring.inputs[slot].get(k)?)?.csr()
            }

            /// The row-sparse parameter of an input slot; `None` if the input is no row-sparse parameter.
            pub fn table(&self, slot: usize) -> Option<&RowTable> {
                self.pooled(self.call.wiring.inputs[slot].first()?)?.table()
            }

            fn pooled(&self, place: &OperandPosition) -> Option<&PooledStorage> {
                match place {
                    OperandPosition::Pooled(i) => self.pool.get(*i),
                    _ => None,
                }
            }
        }
    };
}
pooled_methods!(Forward);
pooled_methods!(Backward);

impl Forward<'_> {
    /// Lets `fill` fill the selected rows of an output slot, while it reads the inputs.
    ///
    /// # Errors
    /// The error of `fill`; or an error if the output has another storage.
    #[track_caller]
    pub fn fill_rows(
        &mut self,
        slot: usize,
        fill: impl FnOnce(&Self, &mut RowBuffer) -> Result<()>,
    ) -> Result<()> {
        let (place, mut pooled) = self.lend_output(slot).at_caller()?;
        let outcome = pooled.rows_mut().map(|rows| fill(self, rows));
        self.give_back(place, pooled);
        outcome.unwrap_or_else(|| Err(self.output_stored_otherwise(slot))).at_caller()
    }

    /// Lets `fill` fill the sparse matrix of an output slot, while it reads the inputs.
    ///
    /// # Errors
    /// The error of `fill`; or an error if the output has another storage.
    #[track_caller]
    pub fn fill_csr(
        &mut self,
        slot: usize,
        fill: impl FnOnce(&Self, &mut CsrBuffer) -> Result<()>,
    ) -> Result<()> {
        let (place, mut pooled) = self.lend_output(slot).at_caller()?;
        let outcome = pooled.csr_mut().map(|csr| fill(self, csr));
        self.give_back(place, pooled);
        outcome.unwrap_or_else(|| Err(self.output_stored_otherwise(slot))).at_caller()
    }

    /// The selected rows of input slot `rows` (a gradient), and the row-sparse variables of the output slots `tables`, which are
    /// updated in place.
    ///
    /// # Errors
    /// If the gradient is not selected rows, or an output is not row-sparse.
    #[track_caller]
    pub fn update_tables<const N: usize>(
        &mut self,
        rows: usize,
        tables: [usize; N],
    ) -> Result<(&RowBuffer, [&mut RowTable; N])> {
        const { assert!(N <= MOST_TABLES, "more tables than an update operator has") };
        let (rows, tables) = self.tables(rows, &tables)?;
        let mut tables = tables.into_iter();
        Ok((rows, [(); N].map(|()| tables.next().unwrap_or_else(|| unreachable!("none is missing")))))
    }

    /// The code of [`Self::update_tables`], for at most [`MOST_TABLES`] tables.
    #[track_caller]
    pub(crate) fn tables(
        &mut self,
        rows: usize,
        tables: &[usize],
    ) -> Result<(&RowBuffer, ArrayVec<&mut RowTable, MOST_TABLES>)> {
        let Call { wiring, signature, .. } = &self.call;
        let rows_at = wiring.inputs[rows].first().copied().unwrap_or(OperandPosition::Absent);
        let at = |slot: usize| wiring.outputs[slot].first().copied().unwrap_or(OperandPosition::Absent);
        let mut found_rows = None;
        let mut found: ArrayVec<Option<&mut RowTable>, MOST_TABLES> = tables.iter().map(|_| None).collect();
        // Each operand has a position of its own, so the loop finds it once.
        for (i, pooled) in self.pool.iter_mut().enumerate() {
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
                Some(k) => no_table(signature.outputs[tables[k]].name),
                None => other_storage(signature.inputs[rows].name),
            })
            .at_caller();
        };
        Ok((found_rows, found.into_iter().flatten().collect()))
    }

    fn lend_output(&mut self, slot: usize) -> Result<(usize, PooledStorage)> {
        let place = self.call.wiring.outputs[slot].first().copied().unwrap_or(OperandPosition::Absent);
        self.lend(place).ok_or_else(|| self.output_stored_otherwise(slot))
    }

    fn output_stored_otherwise(&self, slot: usize) -> Error {
        other_storage(self.call.signature.outputs[slot].name)
    }
}

macro_rules! lending {
    ($context:ident) => {
        impl $context<'_> {
            /// Takes an operand out of the pool, so that other operands can be read while it is written; `None` if it is not in
            /// the pool. [`Self::give_back`] puts it back. There are two methods because one method with a closure would be
            /// compiled again for each closure.
            fn lend(&mut self, place: OperandPosition) -> Option<(usize, PooledStorage)> {
                let OperandPosition::Pooled(i) = place else { return None };
                // An empty value of either kind allocates nothing.
                Some((i, std::mem::replace(self.pool.get_mut(i)?, PooledStorage::Rows(RowBuffer::default()))))
            }

            fn give_back(&mut self, place: usize, pooled: PooledStorage) {
                self.pool[place] = pooled;
            }
        }
    };
}
lending!(Forward);
lending!(Backward);

fn other_storage(slot: &str) -> Error {
    let got = "a variable in another storage";
    Error::of(ErrorKind::Program, format!("slot `{slot}`"), "the storage that the shape rule gave", got)
}

impl Backward<'_> {
    /// The sparse matrix of the forward value of an output slot; `None` if the output has another storage.
    pub fn output_csr(&self, slot: usize) -> Option<&CsrBuffer> {
        self.pooled(self.call.wiring.outputs[slot].first()?)?.csr()
    }

    /// The selected rows of the forward value of an output slot; `None` if the output has another storage.
    pub fn output_rows(&self, slot: usize) -> Option<&RowBuffer> {
        self.pooled(self.call.wiring.outputs[slot].first()?)?.rows()
    }

    /// The gradient of output slot `slot`, if the output is a sparse matrix: it has the output's entries, in their order.
    /// `None` if no gradient reaches the output.
    pub fn output_gradient_csr(&self, slot: usize) -> Option<&CsrBuffer> {
        self.pooled(self.call.wiring.output_gradients[slot].first()?)?.csr()
    }

    /// The gradient of output slot `slot`, if the output is selected rows: it has the output's rows, in their order. `None`
    /// if no gradient reaches the output.
    pub fn output_gradient_rows(&self, slot: usize) -> Option<&RowBuffer> {
        self.pooled(self.call.wiring.output_gradients[slot].first()?)?.rows()
    }

    /// The buffer for the gradient of a dense input as selected rows, and whether to write or to append rows. `None` if the
    /// gradient is not wanted, or has another storage.
    pub fn gradient_rows(&mut self, slot: usize) -> Option<(&mut RowBuffer, Assign)> {
        match self.call.wiring.input_gradients[slot].first() {
            Some(&(OperandPosition::Pooled(i), assign)) => {
                self.pool.get_mut(i)?.rows_mut().map(|rows| (rows, assign))
            }
            _ => None,
        }
    }

    /// Lets `fill` write or add the gradient of variable `k` of a sparse input slot, while it reads the other operands: one
    /// number for each entry of the variable, or for each number of its selected rows, in the variable's order. The gradient has
    /// the variable's entries, since an update never changes numbers that are not stored. Returns whether the gradient is wanted.
    ///
    /// # Errors
    /// The error of `fill`; or an error if the variable holds another dtype, or the operator does not declare to read it.
    #[track_caller]
    pub fn fill_gradient<T: RowValue>(
        &mut self,
        slot: usize,
        k: usize,
        fill: impl FnOnce(&Self, &mut [T], Assign) -> Result<()>,
    ) -> Result<bool> {
        let Some(&(place, assign)) = self.call.wiring.input_gradients[slot].get(k) else { return Ok(false) };
        let Some((place, mut gradient)) = self.lend(place) else { return Ok(false) };
        let outcome =
            self.zeroed::<T>((slot, k), &mut gradient, assign).and_then(|to| fill(self, to, assign));
        self.give_back(place, gradient);
        outcome.map(|()| true).at_caller()
    }

    /// The numbers of a gradient that has the entries of variable `k` of an input slot. They are zeros if the gradient is
    /// written, or if it is still empty, as before the first step of a loop that adds to it.
    fn zeroed<'g, T: RowValue>(
        &self,
        (slot, k): (usize, usize),
        gradient: &'g mut PooledStorage,
        assign: Assign,
    ) -> Result<&'g mut [T]> {
        let of = self.call.wiring.inputs[slot].get(k).and_then(|place| self.pooled(place));
        let of = of.ok_or_else(|| other_storage(self.call.signature.inputs[slot].name))?;
        if assign == Assign::Write || gradient.numbers() != of.numbers() {
            gradient.zeros_at::<T>(of)?;
        }
        gradient.numbers_mut::<T>()
    }
}
