//! The slots of an operator: which variables it takes, and in which storages.

use std::fmt;

use crate::tensor::StorageKind;

/// The slots of an operator. Forward calls number them from 0 in this order.
#[derive(Debug, Clone, Copy)]
pub struct Signature {
    /// The input slots.
    pub inputs: &'static [Slot],
    /// The output slots.
    pub outputs: &'static [Slot],
    /// The combinations of storages for which the operator has kernels; if empty, every input is dense.
    pub kernels: &'static [Kernel],
}

/// A combination of storages: the storages that each input slot takes, in order. Input slots after the last listed one take dense
/// variables.
pub type Kernel = &'static [&'static [StorageKind]];

/// In a [`Kernel`]: a dense input.
pub const DENSE: &[StorageKind] = &[StorageKind::Dense];
/// Selected rows.
pub const ROWS: &[StorageKind] = &[StorageKind::SelectedRows];
/// A sparse matrix: csr, or coo, which is stored like csr in a program.
pub const CSR: &[StorageKind] = &[StorageKind::Csr, StorageKind::Coo];
/// Dense, or a sparse matrix.
pub const DENSE_OR_CSR: &[StorageKind] = &[StorageKind::Dense, StorageKind::Csr, StorageKind::Coo];
/// Dense or selected rows; the variables of one slot may be of both.
pub const DENSE_OR_ROWS: &[StorageKind] = &[StorageKind::Dense, StorageKind::SelectedRows];

impl Signature {
    /// Checks that there is a kernel for inputs in these storages.
    ///
    /// # Errors
    /// If no kernel fits: the first input that does not fit, and the storages that kernels accept for it, given the inputs before
    /// it.
    pub(crate) fn kernel(&self, inputs: &[Vec<StorageKind>]) -> std::result::Result<(), NoKernel> {
        let takes = |kernel: Kernel, slot: usize| kernel.get(slot).copied().unwrap_or(DENSE);
        let mut left: Vec<Kernel> = if self.kernels.is_empty() { vec![&[]] } else { self.kernels.to_vec() };
        for (slot, (declared, given)) in self.inputs.iter().zip(inputs).enumerate() {
            if declared.any_storage || declared.literal {
                continue;
            }
            for (number, storage) in given.iter().enumerate() {
                let fits = |kernel: &Kernel| takes(kernel, slot).contains(storage);
                if !left.iter().any(fits) {
                    let mut expected: Vec<StorageKind> = Vec::new();
                    for &storage in left.iter().flat_map(|kernel| takes(kernel, slot)) {
                        if !expected.contains(&storage) {
                            expected.push(storage);
                        }
                    }
                    return Err(NoKernel { slot, number, expected });
                }
                left.retain(fits);
            }
        }
        Ok(())
    }
}

impl Signature {
    /// The inputs, by slot and number, that have to be made dense so that a kernel fits: the fewest, or none if a kernel
    /// fits already. `None` if no conversion helps.
    pub(crate) fn conversions(&self, inputs: &[Vec<StorageKind>]) -> Option<Vec<(usize, usize)>> {
        let every = [&[][..]];
        let kernels: &[Kernel] = if self.kernels.is_empty() { &every } else { self.kernels };
        let of = |kernel: &Kernel| {
            let mut dense = Vec::new();
            for (slot, (declared, given)) in self.inputs.iter().zip(inputs).enumerate() {
                let takes = kernel.get(slot).copied().unwrap_or(DENSE);
                for (number, storage) in given.iter().enumerate() {
                    if declared.any_storage || declared.literal || takes.contains(storage) {
                        continue;
                    }
                    if *storage == StorageKind::Dense || !takes.contains(&StorageKind::Dense) {
                        return None;
                    }
                    dense.push((slot, number));
                }
            }
            Some(dense)
        };
        kernels.iter().filter_map(of).min_by_key(Vec::len)
    }
}

/// The first input that no kernel fits.
pub(crate) struct NoKernel {
    /// The slot of the input.
    pub(crate) slot: usize,
    /// The number of the variable in the slot.
    pub(crate) number: usize,
    /// The storages that kernels accept for this input, given the inputs before it.
    pub(crate) expected: Vec<StorageKind>,
}

/// The number of variables that a slot takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    /// Exactly one.
    One,
    /// One or none.
    Optional,
    /// One or more, in order.
    Many,
    /// None, one or more, in order.
    Any,
}

impl Arity {
    /// Returns whether `count` variables may be bound.
    pub(crate) const fn takes(self, count: usize) -> bool {
        match self {
            Arity::One => count == 1,
            Arity::Optional => count <= 1,
            Arity::Many => count >= 1,
            Arity::Any => true,
        }
    }
}

impl fmt::Display for Arity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arity::One => "one variable",
            Arity::Optional => "at most one variable",
            Arity::Many => "at least one variable",
            Arity::Any => "any number of variables",
        })
    }
}

/// A named input or output of an operator.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    /// The slot's name, such as `"x"`.
    pub name: &'static str,
    /// The number of variables that the slot takes.
    pub arity: Arity,
    /// Whether the input has a gradient; ids, labels and the like have none.
    pub gradient: bool,
    /// An output whose value on entry is read and changed in place: parameters under an update rule.
    pub updated: bool,
    /// The operator reads only the shape and the LoD of this input, never a number.
    pub shape_only: bool,
    /// An input that takes literals of the program, and no tensor.
    pub literal: bool,
    /// An input that may be stored in any way, since only its LoD is read.
    pub any_storage: bool,
    /// The slot may hold a row-sparse parameter ([`Builder::row_sparse_parameter`](crate::Builder::row_sparse_parameter)), or, if
    /// the slot is updated, the optimizer's state for such a parameter.
    pub table: bool,
}

impl Slot {
    /// The kind of value that the slot takes, as messages print it.
    pub(crate) fn wanted(&self) -> &'static str {
        if self.literal { "a literal" } else { "a tensor" }
    }

    /// One variable.
    pub const fn one(name: &'static str) -> Self {
        Slot {
            name,
            arity: Arity::One,
            gradient: true,
            updated: false,
            shape_only: false,
            literal: false,
            any_storage: false,
            table: false,
        }
    }

    /// One variable or none.
    pub const fn optional(name: &'static str) -> Self {
        Slot { arity: Arity::Optional, ..Self::one(name) }
    }

    /// One or more variables.
    pub const fn many(name: &'static str) -> Self {
        Slot { arity: Arity::Many, ..Self::one(name) }
    }

    /// None, one or more variables.
    pub const fn any(name: &'static str) -> Self {
        Slot { arity: Arity::Any, ..Self::one(name) }
    }

    /// One [literal](crate::Builder::literal): a value that the program carries, read by `literal` of the contexts.
    pub const fn literal(name: &'static str) -> Self {
        Self::one(name).literals()
    }

    /// Makes the input slot take literals in place of tensors; the slot then has no specs.
    #[must_use]
    pub const fn literals(self) -> Self {
        Slot { literal: true, gradient: false, ..self }
    }

    /// Declares that the input has no gradient.
    #[must_use]
    pub const fn without_gradient(self) -> Self {
        Slot { gradient: false, ..self }
    }

    /// Marks the output as changed in place.
    #[must_use]
    pub const fn updated(self) -> Self {
        Slot { updated: true, ..self }
    }

    /// Declares that the operator reads no number of the input: the input may be bound before its value is computed.
    #[must_use]
    pub const fn shape_only(self) -> Self {
        Slot { shape_only: true, ..self }
    }

    /// Lets the slot hold a row-sparse parameter: read by `table` of the contexts, or updated by
    /// [`Forward::update_tables`](crate::operator::Forward::update_tables).
    #[must_use]
    pub const fn table(self) -> Self {
        Slot { table: true, ..self }
    }

    /// Lets the input be stored in any way: only its LoD is read.
    #[must_use]
    pub const fn any_storage(self) -> Self {
        Slot { any_storage: true, ..self }
    }
}
