//! The contexts of an operator's calls. A context gives access to the operands, the LoD, the facts of the run and scratch memory.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use super::entries::PooledStorage;
use super::keys::{Keys, RowKey};
use super::levels::LevelTable;
use super::literals::{Literals, literal_methods};
use super::signature::{Signature, Slot};
use super::slots::{MissingSlot, name_of};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::kernels::arena::{Operands, Plain};
use crate::kernels::random::{RowStream, fill_uniform, fill_uniform_53};
use crate::kernels::{Assign, MatrixUnit, View, ViewMut};
use crate::lod::Lod;
use crate::operator::extent::Spec;
use crate::tensor::DType;

/// Whether a run trains or infers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Dropout and similar operators are active.
    Train,
    /// Dropout and similar operators return their input unchanged.
    #[default]
    Infer,
}

/// Facts about the run that an operator may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunFacts {
    /// Whether the run trains or infers.
    pub mode: Mode,
    /// The number of the training step, counted from 0.
    pub step: u64,
    /// The seed of the program's random operators.
    pub seed: u64,
    /// The number of threads that the operator may use in the call.
    pub threads: usize,
    /// The unit that computes matrix products in f32.
    pub unit: MatrixUnit,
}

/// The location of a variable's value among the operands of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperandPosition {
    /// The variable is not bound, or the call does not need its value.
    Absent,
    /// The value is dense; the field is the index of its view among the call's read views or write views.
    Dense(usize),
    /// The value is not dense; the field is the index of its buffer in the pool.
    Pooled(usize),
}

/// The locations of all operands of a call, by slot and by variable of the slot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wiring {
    pub(crate) inputs: Vec<Vec<OperandPosition>>,
    pub(crate) outputs: Vec<Vec<OperandPosition>>,
    pub(crate) output_gradients: Vec<Vec<OperandPosition>>,
    pub(crate) input_gradients: Vec<Vec<(OperandPosition, Assign)>>,
    /// Whether `forward` adds its output to the contents of the output's buffer instead of overwriting them.
    pub(crate) adds: bool,
    /// The input slots whose value is in the buffer that receives the gradient of the slot.
    pub(crate) in_place: Vec<usize>,
    /// The locations of the outputs, if a backward call also computes the outputs.
    pub(crate) results: Vec<Vec<OperandPosition>>,
    pub(crate) missing: MissingSlot,
}

impl Wiring {
    /// Returns the location of variable `k` of a slot; notes that the slot is missing if the operator lacks it.
    fn position(&self, list: &[Vec<OperandPosition>], slot: usize, k: usize) -> OperandPosition {
        self.missing.slot(list, slot).get(k).copied().unwrap_or(OperandPosition::Absent)
    }
}

/// A thread's memory that operators reuse from call to call, with one value per type.
#[derive(Default)]
pub struct Scratch(Vec<Box<dyn Any + Send>>);

impl Scratch {
    /// Returns the value of type `S`; the first call creates the value by `Default`.
    pub fn get<S: Default + Send + 'static>(&mut self) -> &mut S {
        // A `Scratch` has few values, so a linear search is faster than a hash table.
        let known = self.0.iter().position(|value| value.is::<S>());
        if known.is_none() {
            self.0.push(Box::<S>::default());
        }
        let at = known.unwrap_or(self.0.len() - 1);
        self.0[at].downcast_mut::<S>().unwrap_or_else(|| unreachable!("it was found by its type"))
    }
}

/// The value that [`Op::prepare`](crate::operator::Op::prepare) stores for the following calls of the operator.
#[derive(Default)]
pub(crate) struct CallCache {
    value: Option<Box<dyn Any + Send + Sync>>,
    /// Whether the value was stored for the following calls. If not, the value is memory to reuse.
    kept: bool,
}

impl CallCache {
    fn slot<S: Default + Send + Sync + 'static>(&mut self) -> &mut S {
        self.kept = true;
        if !self.value.as_ref().is_some_and(|b| b.is::<S>()) {
            self.value = Some(Box::<S>::default());
        }
        match self.value.as_mut().and_then(|b| b.downcast_mut::<S>()) {
            Some(value) => value,
            None => unreachable!("it was just made"),
        }
    }

    pub(crate) fn get<S: 'static>(&self) -> Option<&S> {
        self.value.as_ref().filter(|_| self.kept)?.downcast_ref::<S>()
    }

    /// Marks the value as memory to reuse.
    pub(crate) fn clear(&mut self) {
        self.kept = false;
    }

    /// Returns whether [`Op::prepare`](crate::operator::Op::prepare) stored a value.
    #[cfg(feature = "testing")]
    pub(crate) fn is_kept(&self) -> bool {
        self.kept
    }
}

/// The kind of calls that [`Op::prepare`](crate::operator::Op::prepare) prepares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// The following calls are calls of `forward`.
    Forward,
    /// The following calls are calls of `backward`.
    Backward,
}

/// The data that all calls of one operator share.
pub(crate) struct Call<'a> {
    pub(crate) signature: Signature,
    pub(crate) wiring: &'a Wiring,
    pub(crate) inputs: &'a [Vec<Spec>],
    pub(crate) literals: Literals<'a>,
    pub(crate) outputs: &'a [Vec<Spec>],
    pub(crate) levels: &'a LevelTable,
    pub(crate) run: RunFacts,
    pub(crate) stream: u64,
    pub(crate) keys: Keys<'a>,
    /// The range of sequences of this call, if a sequence-wise operator is called on a part of the batch; `None` means all
    /// sequences.
    pub(crate) sequences: Option<Range<usize>>,
    pub(crate) prepared: Option<&'a CallCache>,
}

/// The sequences of a call, as ranges of rows of the call's views.
#[derive(Debug, Clone, Copy)]
pub struct Sequences<'a> {
    offsets: &'a [usize],
}

impl<'a> Sequences<'a> {
    /// Returns the sequences that `offsets` delimit; there is one offset more than there are sequences.
    pub(crate) fn new(offsets: &'a [usize]) -> Self {
        Self { offsets }
    }

    /// Returns the offset of each sequence's first row in the batch, then the end of the last sequence. The rows of the call's
    /// views are counted from 0: subtract the first offset to convert an offset into a row of the views, as [`Self::rows`] does.
    pub(crate) fn offsets(&self) -> &'a [usize] {
        self.offsets
    }

    /// Returns the number of sequences in this call.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Returns whether the call has no sequences.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the rows of sequence `i`, counted from the first row of the call's views.
    pub fn rows(&self, i: usize) -> Range<usize> {
        let base = self.offsets[0];
        self.offsets[i] - base..self.offsets[i + 1] - base
    }

    /// Iterates over the sequences: the range of rows of each sequence in the call's views.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Range<usize>> + use<'a> {
        (0..self.len()).map(move |i| self.rows(i))
    }
}

/// The inputs and the facts of a call, which the contexts [`Forward`], [`Backward`] and [`NewLevels`] share: each of them
/// dereferences to this type.
pub struct CallInputs<'a> {
    pub(crate) call: Call<'a>,
    operands: Operands<'a>,
    pool: &'a mut [PooledStorage],
    /// Why a slot may have no view, for messages.
    absent: &'static str,
}

impl<'a> CallInputs<'a> {
    /// Returns the view of the variable in input slot `slot`.
    ///
    /// # Errors
    /// Fails if the variable does not hold `T`, is not bound, or is not among the values that the operator declares to
    /// read.
    #[track_caller]
    pub fn input<T: Plain>(&self, slot: usize) -> Result<View<'a, T>> {
        self.input_at(slot, 0)
    }

    /// Returns the view of variable `k` of input slot `slot`.
    ///
    /// # Errors
    /// Fails under the conditions of [`Self::input`].
    #[track_caller]
    pub fn input_at<T: Plain>(&self, slot: usize, k: usize) -> Result<View<'a, T>> {
        let Call { wiring, inputs, signature, .. } = &self.call;
        self.read(wiring.position(&wiring.inputs, slot, k), signature.inputs, inputs, (slot, k)).at_caller()
    }

    /// Returns the view of the variable in an optional input slot. Returns `None` if no variable is bound, or
    /// if the operator does not declare to read the slot.
    ///
    /// # Errors
    /// Fails if the variable in the slot does not hold `T`.
    #[track_caller]
    pub fn optional<T: Plain>(&self, slot: usize) -> Result<Option<View<'a, T>>> {
        match self.call.wiring.position(&self.call.wiring.inputs, slot, 0) {
            OperandPosition::Absent => Ok(None),
            _ => self.input(slot).map(Some).at_caller(),
        }
    }

    /// Returns the number of variables in input slot `slot`.
    pub fn count(&self, slot: usize) -> usize {
        self.call.wiring.missing.slot(self.call.inputs, slot).len()
    }

    /// Returns the spec of the variable in input slot `slot`.
    pub fn input_spec(&self, slot: usize) -> &'a Spec {
        self.input_spec_at(slot, 0)
    }

    /// Returns the spec of variable `k` of input slot `slot`.
    pub fn input_spec_at(&self, slot: usize, k: usize) -> &'a Spec {
        self.call.wiring.missing.spec(self.call.inputs, slot, k)
    }

    /// Returns the spec of the variable in output slot `slot`.
    pub fn output_spec(&self, slot: usize) -> &'a Spec {
        self.call.wiring.missing.spec(self.call.outputs, slot, 0)
    }

    /// Returns the dtype of the variable in input slot `slot`.
    pub fn dtype(&self, slot: usize) -> DType {
        self.input_spec(slot).dtype
    }

    /// Returns the LoD of input slot `slot` for the whole batch, even if the call covers only some sequences; `None` if
    /// the variable has no LoD.
    pub fn lod(&self, slot: usize) -> Option<&'a Arc<Lod>> {
        self.lod_at(slot, 0)
    }

    /// Returns the LoD of variable `k` of input slot `slot` for the whole batch; `None` if the variable has no LoD.
    pub fn lod_at(&self, slot: usize, k: usize) -> Option<&'a Arc<Lod>> {
        self.call.levels.lod(&self.call.wiring.missing.slot(self.call.inputs, slot).get(k)?.lod)
    }

    /// Returns the sequences that this call covers, at the last LoD level of input slot `slot`.
    ///
    /// # Errors
    /// Fails if the variable has no LoD.
    #[track_caller]
    pub fn sequences(&self, slot: usize) -> Result<Sequences<'a>> {
        self.sequences_at(slot, 0)
    }

    /// Returns the sequences that this call covers, at the last LoD level of variable `k` of input slot `slot`.
    ///
    /// # Errors
    /// Fails if the variable has no LoD.
    #[track_caller]
    pub(crate) fn sequences_at(&self, slot: usize, k: usize) -> Result<Sequences<'a>> {
        let Some(lod) = self.lod_at(slot, k) else {
            let what = format!("input `{}`", name_of(self.call.signature.inputs, slot));
            return Err(Error::new(what, "a LoD", "none"));
        };
        let offsets = lod.offsets();
        Ok(Sequences::new(match &self.call.sequences {
            Some(range) => &offsets[range.start..=range.end],
            None => offsets,
        }))
    }

    /// Returns the facts of the run, such as the mode and the seed.
    pub fn run(&self) -> RunFacts {
        self.call.run
    }

    /// Returns the value that [`Op::prepare`](crate::operator::Op::prepare) stored. Returns `None` if there is no such
    /// value, for example because the inputs are not constant.
    pub fn prepared<S: 'static>(&self) -> Option<&'a S> {
        self.call.prepared?.get()
    }

    /// Fills `out` with random numbers in [0, 1) for row `row`, one number per column. The random numbers depend on
    /// the seed, the step, the operator, the column, the index of the row's top-level sequence in the data set, and
    /// the row's position in this sequence. The random numbers do not depend on the batch, the threads or earlier
    /// calls.
    pub fn uniform(&self, row: usize, out: &mut [f32]) {
        let RowKey { sequence, position } = self.call.keys.get(row);
        let RunFacts { seed, step, .. } = self.call.run;
        fill_uniform(RowStream { seed, step, operator: self.call.stream, sequence, position }, out);
    }

    /// Fills `out` as [`Self::uniform`] does, but with 53 random bits per number instead of 24.
    pub(crate) fn uniform_53(&self, row: usize, out: &mut [f64]) {
        let RowKey { sequence, position } = self.call.keys.get(row);
        let RunFacts { seed, step, .. } = self.call.run;
        fill_uniform_53(RowStream { seed, step, operator: self.call.stream, sequence, position }, out);
    }

    /// Fills `out` as [`Self::uniform`] does, but with the same numbers for all rows of a top-level sequence.
    pub(crate) fn uniform_of_sequence(&self, row: usize, out: &mut [f32]) {
        let sequence = self.call.keys.get(row).sequence;
        let RunFacts { seed, step, .. } = self.call.run;
        let operator = self.call.stream;
        fill_uniform(RowStream { seed, step, operator, sequence, position: 0 }, out);
    }

    fn read<T: Plain>(
        &self,
        position: OperandPosition,
        slots: &'static [Slot],
        specs: &[Vec<Spec>],
        (slot, k): (usize, usize),
    ) -> Result<View<'a, T>> {
        let view = match position {
            OperandPosition::Dense(i) => self.operands.read(i),
            _ => None,
        };
        view.ok_or_else(|| match position {
            OperandPosition::Absent => another::<T>(name_of(slots, slot), self.absent),
            _ => another::<T>(name_of(slots, slot), &held(specs, slot, k)),
        })
    }
}
mod new_levels;
mod pooled;
mod prepare;
mod rounded;

pub use new_levels::NewLevels;
pub(crate) use pooled::MOST_TABLES;
pub use prepare::Prepare;

/// Returns the dtype and the storage of variable `k` of a slot as text, for a message.
fn held(specs: &[Vec<Spec>], slot: usize, k: usize) -> String {
    let spec = specs.get(slot).and_then(|list| list.get(k));
    spec.map_or_else(|| "nothing".to_owned(), |spec| format!("{}, {}", spec.dtype, spec.storage))
}

/// Returns the error that the variable of slot `slot` does not hold `T`.
fn another<T>(slot: &str, got: &str) -> Error {
    Error::of(ErrorKind::Program, format!("slot `{slot}`"), std::any::type_name::<T>(), got)
}

/// Makes a context dereference to the inputs of its call.
macro_rules! derefs_to_inputs {
    ($context:ident) => {
        impl<'a> std::ops::Deref for $context<'a> {
            type Target = $crate::operator::context::CallInputs<'a>;

            fn deref(&self) -> &Self::Target {
                &self.inputs
            }
        }
    };
}
use derefs_to_inputs;

/// The context of a call of [`Op::forward`](crate::operator::Op::forward).
pub struct Forward<'a> {
    inputs: CallInputs<'a>,
    scratch: &'a mut Scratch,
}
derefs_to_inputs!(Forward);

impl<'a> Forward<'a> {
    pub(crate) fn new(
        call: Call<'a>,
        operands: Operands<'a>,
        pool: &'a mut [PooledStorage],
        scratch: &'a mut Scratch,
    ) -> Self {
        Self { inputs: CallInputs { call, operands, pool, absent: "nothing bound" }, scratch }
    }

    /// Returns the view to which the variable of output slot `slot` is written. A second call of `output` for the same slot
    /// panics.
    ///
    /// # Errors
    /// Fails if the variable of the slot does not hold `T`.
    #[track_caller]
    pub fn output<T: Plain>(&mut self, slot: usize) -> Result<ViewMut<'a, T>> {
        self.output_at(slot, 0)
    }

    /// Returns the view to which variable `k` of output slot `slot` is written, as [`Self::output`] does.
    ///
    /// # Errors
    /// Fails if the variable of the slot does not hold `T`.
    #[track_caller]
    pub fn output_at<T: Plain>(&mut self, slot: usize, k: usize) -> Result<ViewMut<'a, T>> {
        let view = match self.call.wiring.missing.slot(&self.call.wiring.outputs, slot).get(k) {
            Some(&OperandPosition::Dense(i)) => self.inputs.operands.write(i),
            _ => None,
        };
        let Call { signature, outputs, .. } = &self.call;
        view.ok_or_else(|| another::<T>(name_of(signature.outputs, slot), &held(outputs, slot, k)))
            .at_caller()
    }

    /// Returns whether `forward` must overwrite the contents of the output's buffer, or add its output to them. `forward` must
    /// add only if the operator [accumulates](crate::operator::Hints::accumulates).
    pub fn assign(&self) -> Assign {
        if self.call.wiring.adds { Assign::Add } else { Assign::Write }
    }

    /// Returns the number of variables in output slot `slot`.
    pub fn output_count(&self, slot: usize) -> usize {
        self.call.wiring.missing.slot(self.call.outputs, slot).len()
    }

    /// Returns the thread's memory for intermediate values.
    pub fn scratch(&mut self) -> &mut Scratch {
        self.scratch
    }

    /// Returns the inputs of the call, and the thread's memory for intermediate values.
    pub(crate) fn parts(&mut self) -> (&CallInputs<'a>, &mut Scratch) {
        (&self.inputs, self.scratch)
    }
}

/// The context of a call of [`Op::backward`](crate::operator::Op::backward).
pub struct Backward<'a> {
    inputs: CallInputs<'a>,
    scratch: &'a mut Scratch,
}
derefs_to_inputs!(Backward);

impl<'a> Backward<'a> {
    pub(crate) fn new(
        call: Call<'a>,
        operands: Operands<'a>,
        pool: &'a mut [PooledStorage],
        scratch: &'a mut Scratch,
    ) -> Self {
        let absent = "nothing bound, or a value that `Op::gradient` does not declare as read";
        Self { inputs: CallInputs { call, operands, pool, absent }, scratch }
    }

    /// Returns the view of the forward value of output slot `slot`.
    ///
    /// # Errors
    /// Fails if the value does not hold `T`, or if it is not among the values that the operator declares to read.
    #[track_caller]
    pub fn output<T: Plain>(&self, slot: usize) -> Result<View<'a, T>> {
        let Call { wiring, outputs, signature, .. } = &self.call;
        self.read(wiring.position(&wiring.outputs, slot, 0), signature.outputs, outputs, (slot, 0))
            .at_caller()
    }

    /// Returns the view to which `backward` writes the forward value of output slot `slot`. Returns `None` unless this call must
    /// compute that value in addition to the gradients ([`Hints::joins`](crate::operator::Hints::joins)). A second call of
    /// `result` for the same slot panics.
    ///
    /// # Errors
    /// Fails if the variable of the slot does not hold `T`.
    #[track_caller]
    pub fn result<T: Plain>(&mut self, slot: usize) -> Result<Option<ViewMut<'a, T>>> {
        let Some(&OperandPosition::Dense(i)) = self.call.wiring.results.get(slot).and_then(|s| s.first())
        else {
            return Ok(None);
        };
        let name = name_of(self.call.signature.outputs, slot);
        self.inputs.operands.write(i).map(Some).ok_or_else(|| another::<T>(name, "another")).at_caller()
    }

    /// Returns the gradient of output slot `slot`; `None` (instead of zeros) if no gradient reaches the output.
    ///
    /// # Errors
    /// Fails if the gradient does not hold `T`.
    #[track_caller]
    pub fn output_gradient<T: Plain>(&self, slot: usize) -> Result<Option<View<'a, T>>> {
        self.output_gradient_at(slot, 0)
    }

    /// Returns the gradient of variable `k` of output slot `slot`; `None` if no gradient reaches the variable.
    ///
    /// # Errors
    /// Fails if the gradient does not hold `T`.
    #[track_caller]
    pub fn output_gradient_at<T: Plain>(&self, slot: usize, k: usize) -> Result<Option<View<'a, T>>> {
        let Call { wiring, outputs, signature, .. } = &self.call;
        match wiring.position(&wiring.output_gradients, slot, k) {
            OperandPosition::Absent => Ok(None),
            position => self.read(position, signature.outputs, outputs, (slot, k)).map(Some).at_caller(),
        }
    }

    /// Returns the gradient of output slot `slot`, for an operator that is called only if a gradient reaches this output.
    ///
    /// # Errors
    /// Fails if no gradient reaches the output, or if the gradient does not hold `T`.
    #[track_caller]
    pub(crate) fn dout<T: Plain>(&self, slot: usize) -> Result<View<'a, T>> {
        let missing = || {
            let output = format!("output `{}`", name_of(self.call.signature.outputs, slot));
            Error::new(output, "a gradient", "none")
        };
        self.output_gradient(slot)?.ok_or_else(missing).at_caller()
    }

    /// Returns whether `backward` must compute the gradient of input slot `slot`.
    pub fn wants(&self, slot: usize) -> bool {
        self.call
            .wiring
            .missing
            .slot(&self.call.wiring.input_gradients, slot)
            .iter()
            .any(|(position, _)| *position != OperandPosition::Absent)
    }

    /// Returns the view for the gradient of input slot `slot`, and whether `backward` must overwrite the view or add to it.
    /// Returns `None` if the gradient is not needed or not dense. A second call of `gradient` for the same slot panics.
    ///
    /// # Errors
    /// Fails if the gradient does not hold `T`.
    #[track_caller]
    pub fn gradient<T: Plain>(&mut self, slot: usize) -> Result<Option<(ViewMut<'a, T>, Assign)>> {
        self.gradient_at(slot, 0)
    }

    /// Returns the view for the gradient of variable `k` of input slot `slot`, as [`Self::gradient`] does.
    ///
    /// # Errors
    /// Fails if the gradient does not hold `T`.
    #[track_caller]
    pub fn gradient_at<T: Plain>(
        &mut self,
        slot: usize,
        k: usize,
    ) -> Result<Option<(ViewMut<'a, T>, Assign)>> {
        match self.call.wiring.missing.slot(&self.call.wiring.input_gradients, slot).get(k) {
            Some(&(OperandPosition::Dense(i), assign)) => match self.inputs.operands.write(i) {
                Some(view) => Ok(Some((view, assign))),
                None => Err(Error::of(
                    ErrorKind::Program,
                    format!("gradient of `{}`", name_of(self.call.signature.inputs, slot)),
                    std::any::type_name::<T>(),
                    "another",
                )),
            },
            _ => Ok(None),
        }
    }

    /// Returns whether the value and the gradient of input slot `slot` share one buffer. If so, `backward` overwrites the value
    /// when it writes the gradient. The result is true only if the operator declares
    /// [`Gradient::overwrites`](crate::operator::Gradient::overwrites).
    pub(crate) fn in_place(&self, slot: usize) -> bool {
        self.call.wiring.in_place.contains(&slot)
    }

    /// Returns the thread's memory for intermediate values.
    pub fn scratch(&mut self) -> &mut Scratch {
        self.scratch
    }

    /// Returns the inputs of the call, and the thread's memory for intermediate values.
    pub(crate) fn parts(&mut self) -> (&CallInputs<'a>, &mut Scratch) {
        (&self.inputs, self.scratch)
    }
}

literal_methods!(CallInputs: |run: &CallInputs<'a>| run.call.literals);
