//! The slots of an operator: the variables that it takes and writes, and the storages that it has kernels for.

use std::fmt;

use crate::tensor::StorageKind;

/// The input slots and output slots of an operator. The methods of the contexts number the slots from 0, in this order.
#[derive(Debug, Clone, Copy)]
pub struct Signature {
    /// The input slots of the operator.
    pub inputs: &'static [Slot],
    /// The output slots of the operator.
    pub outputs: &'static [Slot],
    /// The combinations of input storages for which the operator has kernels. An empty list means that every input is dense.
    pub kernels: &'static [Kernel],
}

/// A combination of storages that an operator has a kernel for: the accepted storages of each input slot, in the order of the
/// slots. Input slots that are not listed take dense variables.
pub type Kernel = &'static [&'static [StorageKind]];

/// The entry of a [`Kernel`] for a dense input.
pub const DENSE: &[StorageKind] = &[StorageKind::Dense];
/// The entry of a [`Kernel`] for selected rows.
pub const ROWS: &[StorageKind] = &[StorageKind::SelectedRows];
/// The entry of a [`Kernel`] for a sparse matrix: csr, or coo, which is stored like csr in a program.
pub const CSR: &[StorageKind] = &[StorageKind::Csr, StorageKind::Coo];
/// The entry of a [`Kernel`] for a dense input or a sparse matrix.
pub const DENSE_OR_CSR: &[StorageKind] = &[StorageKind::Dense, StorageKind::Csr, StorageKind::Coo];
/// The entry of a [`Kernel`] for a dense input or selected rows; a slot with several variables may have both.
pub const DENSE_OR_ROWS: &[StorageKind] = &[StorageKind::Dense, StorageKind::SelectedRows];

impl Signature {
    /// Checks that the operator has a kernel for inputs in these storages.
    ///
    /// # Errors
    /// Fails if no kernel fits. The error names the first input that does not fit, and the storages that kernels accept for this
    /// input, given the inputs before it.
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
    /// Returns the fewest inputs that must be made dense so that a kernel fits, each as its slot and its index in the slot.
    /// The list is empty if a kernel already fits. Returns `None` if no conversion to dense makes a kernel fit.
    pub(crate) fn conversions(&self, inputs: &[Vec<StorageKind>]) -> Option<Vec<(usize, usize)>> {
        let every = [&[][..]];
        let kernels: &[Kernel] = if self.kernels.is_empty() { &every } else { self.kernels };
        let conversion = |kernel: &Kernel| {
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
        kernels.iter().filter_map(conversion).min_by_key(Vec::len)
    }
}

/// The error that no kernel fits: the first input that does not fit.
pub(crate) struct NoKernel {
    pub(crate) slot: usize,
    /// The index of the variable in the input slot.
    pub(crate) number: usize,
    /// The storages that kernels accept for this input, given the inputs before it.
    pub(crate) expected: Vec<StorageKind>,
}

/// The number of variables that a slot takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    /// The slot takes exactly one variable.
    One,
    /// The slot takes one variable or none.
    Optional,
    /// The slot takes one or more variables, in order.
    Many,
    /// The slot takes any number of variables, in order.
    Any,
}

impl Arity {
    /// Returns whether `count` variables may be bound to the slot.
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

/// A slot: a named input or output of an operator.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    /// The slot's name, such as `"x"`.
    pub name: &'static str,
    /// The number of variables that the slot takes.
    pub arity: Arity,
    /// Whether the input has a gradient; ids and labels have none, for example.
    pub gradient: bool,
    /// Whether the operator reads the output's value and changes it in place, as an update rule changes a parameter.
    pub updated: bool,
    /// Whether the operator reads only the shape and the LoD of the input, and no number.
    pub shape_only: bool,
    /// Whether the input slot takes literals of the program instead of tensors.
    pub literal: bool,
    /// Whether the input may have any storage, since the operator reads only its LoD.
    pub any_storage: bool,
    /// Whether the slot may hold a row-sparse parameter
    /// ([`Builder::row_sparse_parameter`](crate::Builder::row_sparse_parameter)). A slot that is updated in place may also hold
    /// an optimizer's state for a row-sparse parameter.
    pub table: bool,
    /// The number with which each number of an optimizer's state in the slot starts.
    pub(crate) start: f64,
}

impl Slot {
    /// Returns the kind of value that the slot takes (a literal or a tensor), for messages.
    pub(crate) fn wanted(&self) -> &'static str {
        if self.literal { "a literal" } else { "a tensor" }
    }

    /// Returns a slot that takes exactly one variable.
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
            start: 0.0,
        }
    }

    /// Returns a slot that takes one variable or none.
    pub const fn optional(name: &'static str) -> Self {
        Slot { arity: Arity::Optional, ..Self::one(name) }
    }

    /// Returns a slot that takes one or more variables.
    pub const fn many(name: &'static str) -> Self {
        Slot { arity: Arity::Many, ..Self::one(name) }
    }

    /// Returns a slot that takes any number of variables.
    pub const fn any(name: &'static str) -> Self {
        Slot { arity: Arity::Any, ..Self::one(name) }
    }

    /// Returns an input slot that takes one [literal](crate::Builder::literal), a constant of the program. The operator
    /// reads the literal by the method `literal` of the contexts.
    pub const fn literal(name: &'static str) -> Self {
        Self::one(name).literals()
    }

    /// Makes the input slot take literals instead of tensors; a slot for literals has no specs.
    #[must_use]
    pub const fn literals(self) -> Self {
        Slot { literal: true, gradient: false, ..self }
    }

    /// Declares that the input has no gradient.
    #[must_use]
    pub const fn without_gradient(self) -> Self {
        Slot { gradient: false, ..self }
    }

    /// Declares that the operator changes the output's value in place.
    #[must_use]
    pub const fn updated(self) -> Self {
        Slot { updated: true, ..self }
    }

    /// Declares that the operator reads no number of the input, so that the input may be bound before its value is computed.
    #[must_use]
    pub const fn shape_only(self) -> Self {
        Slot { shape_only: true, ..self }
    }

    /// Sets the number with which each number of an optimizer's state in the slot starts (default: 0).
    #[must_use]
    pub const fn starting_at(self, start: f64) -> Self {
        Slot { start, ..self }
    }

    /// Allows the slot to hold a row-sparse parameter. The operator reads the parameter by the method `table` of the
    /// contexts, or updates the parameter by `Forward::update_tables`.
    #[doc(hidden)]
    #[must_use]
    pub const fn table(self) -> Self {
        Slot { table: true, ..self }
    }

    /// Allows the input to have any storage, because the operator reads only its LoD.
    #[must_use]
    pub const fn any_storage(self) -> Self {
        Slot { any_storage: true, ..self }
    }
}
