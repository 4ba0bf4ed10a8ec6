//! The context of [`Op::prepare`](crate::operator::Op::prepare).

use std::ops::Range;

use super::{CallCache, Pass};
use crate::kernels::arena::{Operands, Plain};
use crate::kernels::{MatrixUnit, View};
use crate::operator::extent::Spec;
use crate::operator::literals::{Literals, literal_methods};
use crate::operator::slots::NOTHING;
use crate::tensor::DType;

/// The context of a call of [`Op::prepare`](crate::operator::Op::prepare).
pub struct Prepare<'a> {
    pub(crate) pass: Pass,
    pub(crate) operands: Operands<'a>,
    /// For each input slot, the indices of the read views of its variables; empty unless all variables of the slot are
    /// constant.
    pub(crate) constants: &'a [Range<usize>],
    pub(crate) inputs: &'a [Vec<Spec>],
    pub(crate) literals: Literals<'a>,
    /// For each input slot, whether its gradient is needed; empty in a forward pass.
    pub(crate) wanted: &'a [bool],
    pub(crate) unit: MatrixUnit,
    pub(crate) threads: usize,
    pub(crate) prepared: &'a mut CallCache,
}

impl<'a> Prepare<'a> {
    /// Returns the kind of the prepared calls: calls of `forward` or calls of `backward`.
    pub(crate) fn pass(&self) -> Pass {
        self.pass
    }

    pub(crate) fn unit(&self) -> MatrixUnit {
        self.unit
    }

    /// Returns the number of threads that the operator may use to prepare.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Returns whether the prepared calls of `backward` compute the gradient of input slot `slot`.
    pub(crate) fn wants(&self, slot: usize) -> bool {
        self.wanted.get(slot).copied().unwrap_or(false)
    }

    /// Returns the view of the variable in input slot `slot`; `None` unless all variables of the slot are constant during the
    /// prepared calls.
    pub fn constant<T: Plain>(&self, slot: usize) -> Option<View<'a, T>> {
        self.constant_at(slot, 0)
    }

    /// Returns the view of variable `k` of input slot `slot`; `None` unless all variables of the slot are constant during the
    /// prepared calls.
    pub fn constant_at<T: Plain>(&self, slot: usize, k: usize) -> Option<View<'a, T>> {
        self.operands.read(self.constants.get(slot)?.clone().nth(k)?)
    }

    /// Returns the number of variables in input slot `slot`.
    pub(crate) fn count(&self, slot: usize) -> usize {
        self.inputs.get(slot).map_or(0, Vec::len)
    }

    /// Returns the dtype of the variable in input slot `slot`.
    pub fn dtype(&self, slot: usize) -> DType {
        self.inputs.get(slot).and_then(|specs| specs.first()).unwrap_or(&NOTHING).dtype
    }

    /// Returns the prepared value of type `S`, to be filled; the following calls read the value by `prepared` of their contexts.
    /// The memory of the prepared value is reused from run to run.
    pub fn keep<S: Default + Send + Sync + 'static>(&mut self) -> &mut S {
        self.prepared.slot()
    }
}

literal_methods!(Prepare: |prepare: &Prepare<'a>| prepare.literals);
