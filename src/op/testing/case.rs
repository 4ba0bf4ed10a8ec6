//! `Case`: an operator with one of its check cases, and the calls that the checks make with this check case.

use std::sync::Arc;

use super::call::{self, BackwardInput, CallOptions, Weights};
use super::values::{Outcome, cast, is_float, numbers, weights};
use crate::error::Result;
use crate::operator::call::{Direct, InputGradients};
use crate::operator::context::Scratch;
use crate::operator::keys::RowKey;
use crate::operator::{CheckCase, Gradient, MatrixUnit, Mode, Op, Operand, Registry, RunFacts, Spec};
use crate::tensor::{DType, Storage, StorageKind, Variable};

/// The default stream of a call's random numbers. Stream, seed and step are parts of the key that determines a random
/// number.
pub(super) const STREAM: u64 = 5;
pub(super) const SEED: u64 = 11;
pub(super) const STEP: u64 = 3;

/// An operator with one of its check cases, in one mode.
pub(super) struct Case<'a> {
    /// A registry with the checked operators, and with the catalogue's operators, which the programs of the checks use too.
    pub(super) registry: &'a Registry,
    pub(super) kind: &'a str,
    pub(super) op: Arc<dyn Op>,
    pub(super) sample: CheckCase,
    pub(super) mode: Mode,
    /// Whether the check also runs a batch of copies of the check case that is large enough to be divided over threads.
    pub(super) wide: bool,
}

/// A call, the outputs of the call, and made-up gradients of the outputs (the weights of a loss).
pub(super) struct CaseRun {
    pub(super) direct: Direct,
    pub(super) outputs: Vec<Vec<Variable>>,
    pub(super) weights: Weights,
}

/// Returns the salt for the made-up gradient of output `k` of slot `slot`; see [`filled`](super::values::filled).
pub(super) fn salt_of(slot: usize, k: usize) -> usize {
    slot * 10 + k
}

impl CaseRun {
    /// Runs a call of an operator, and makes up gradients (weights) for the outputs.
    pub(super) fn new(direct: Direct) -> Result<Self> {
        let outputs = direct.forward()?;
        let weights = outputs.iter().enumerate().map(|(slot, vars)| {
            vars.iter().enumerate().map(|(k, v)| weights(v, salt_of(slot, k))).collect::<Result<_>>()
        });
        let weights = weights.collect::<Result<_>>()?;
        Ok(CaseRun { direct, outputs, weights })
    }

    /// Returns the gradients of the slots in `wanted`, computed by [`Direct`]. `Direct` passes to the operator only the
    /// values that the operator declares as read.
    pub(super) fn gradients(
        &self,
        wanted: &[usize],
        before: Option<&InputGradients>,
    ) -> Result<InputGradients> {
        self.direct.backward(&self.outputs, &self.weights, &|slot| wanted.contains(&slot), before)
    }

    pub(super) fn gradients_as(
        &self,
        op: &dyn Op,
        wanted: &[usize],
        how: CallOptions<'_>,
    ) -> Result<InputGradients> {
        let given = BackwardInput { outputs: &self.outputs, weights: &self.weights, wanted };
        Ok(call::backward(op, &self.direct, given, how, &mut Scratch::default())?.0)
    }

    /// Returns the loss of the call: Σ weight · output, over all numbers of all outputs.
    pub(super) fn loss(&self, weights: &Weights) -> Result<f64> {
        let mut sum = 0.0;
        for (outputs, weights) in self.outputs.iter().zip(weights) {
            for (output, weights) in outputs.iter().zip(weights) {
                let Some(weights) = weights else { continue };
                let (y, w) = (numbers(output.storage())?, numbers(weights)?);
                sum += y.iter().zip(&w).map(|(y, w)| y * w).sum::<f64>();
            }
        }
        Ok(sum)
    }

    /// Returns whether all inputs and outputs of the call are dense.
    pub(super) fn dense(&self) -> bool {
        let outputs = self.direct.output_specs().iter();
        let mut specs = outputs.chain(self.direct.input_specs()).flatten();
        specs.all(|spec| spec.storage == StorageKind::Dense)
    }
}

impl Case<'_> {
    pub(super) fn run_facts(&self) -> RunFacts {
        RunFacts { mode: self.mode, step: STEP, seed: SEED, threads: 1, unit: MatrixUnit::F32 }
    }

    /// Returns the operands of the check case, with all floats cast to `dtype`. The floats are rounded to f32 first, so that
    /// the operands hold equal numbers in f32 and in f64.
    pub(super) fn operands(&self, dtype: DType) -> Result<Vec<Operand>> {
        let cast = |o: &Operand| match o.fixed {
            true => Ok(o.clone()),
            false => Ok(Operand { value: cast(&cast(&o.value, DType::F32)?, dtype)?, ..o.clone() }),
        };
        self.sample.operands.iter().map(cast).collect()
    }

    pub(super) fn run(
        &self,
        operands: &[Operand],
        numbers: &[u64],
        keys: Option<Vec<RowKey>>,
    ) -> Result<CaseRun> {
        let direct = Direct::new(self.op.clone(), operands)?;
        CaseRun::new(direct.run_as(self.run_facts(), numbers).keyed(STREAM, keys))
    }

    pub(super) fn run_sample(&self, dtype: DType) -> Result<CaseRun> {
        self.run(&self.operands(dtype)?, &self.numbers(), None)
    }

    /// Runs the check case in f32, with matrix products by a unit.
    pub(super) fn run_by(&self, unit: MatrixUnit) -> Result<CaseRun> {
        let direct = Direct::new(self.op.clone(), &self.operands(DType::F32)?)?;
        let facts = RunFacts { unit, ..self.run_facts() };
        CaseRun::new(direct.run_as(facts, &self.numbers()).keyed(STREAM, None))
    }

    /// Returns the number of sequences in the check case's batch.
    pub(super) fn batch(&self) -> usize {
        self.sample.operands.iter().find(|o| o.batched).map_or(0, |o| o.value.batch_size())
    }

    /// Returns the index in the data set of each sequence of the batch.
    pub(super) fn numbers(&self) -> Vec<u64> {
        (0..self.batch() as u64).map(|i| 100 + 7 * i).collect()
    }

    /// Returns the input slots whose gradient can be requested.
    pub(super) fn slots(&self, ran: &CaseRun) -> Vec<usize> {
        graded(&*self.op, &ran.direct)
    }

    pub(super) fn input_name(&self, slot: usize) -> &'static str {
        self.op.signature().inputs[slot].name
    }

    pub(super) fn output_name(&self, slot: usize) -> &'static str {
        self.op.signature().outputs[slot].name
    }

    /// Returns whether the operator changes an input in place, as an update rule does.
    pub(super) fn updates(&self) -> bool {
        self.op.signature().outputs.iter().any(|slot| slot.updated)
    }

    pub(super) fn gradient(&self, ran: &CaseRun, slot: usize) -> Gradient {
        self.op.gradient(slot, ran.direct.input_specs())
    }
}

impl Case<'_> {
    /// Returns the storage that the gradient of an input must have: for a sparse input the storage of the input, for a dense
    /// input the declared storage.
    pub(super) fn gradient_storage(&self, ran: &CaseRun, slot: usize, spec: &Spec) -> StorageKind {
        match spec.storage {
            StorageKind::Dense => self.gradient(ran, slot).storage,
            own => own,
        }
    }
}

/// Returns the input slots of a call whose gradient can be requested.
pub(super) fn graded(op: &dyn Op, direct: &Direct) -> Vec<usize> {
    let slots = op.signature().inputs.iter().zip(direct.inputs()).enumerate();
    let float = |vars: &[Variable]| vars.iter().any(|v| is_float(v.dtype()));
    slots.filter(|(_, (slot, vars))| slot.gradient && float(vars)).map(|(i, _)| i).collect()
}

/// For each operand that has a gradient, calls `hold` with the operand's slot, the operand's index in the slot, and the
/// operand's gradients in `got` and in `expected`.
pub(super) fn each(
    got: &InputGradients,
    expected: &InputGradients,
    slots: &[usize],
    mut hold: impl FnMut(usize, usize, &Storage, &Storage) -> Outcome,
) -> Outcome {
    for &slot in slots {
        for (k, pair) in got[slot].iter().zip(&expected[slot]).enumerate() {
            if let (Some(a), Some(b)) = pair {
                hold(slot, k, a, b)?;
            }
        }
    }
    Ok(())
}
