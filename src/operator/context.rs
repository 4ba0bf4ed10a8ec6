//! The contexts of an operator's calls: views of its slots, the LoD, the facts of the run, and scratch memory.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use super::entries::PooledStorage;
use super::keys::{Keys, RowKey};
use super::levels::LevelTable;
use super::literals::{Literals, literal_methods};
use super::signature::Signature;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::kernels::arena::{Operands, Plain};
use crate::kernels::random::{RowStream, fill_uniform, fill_uniform_53};
use crate::kernels::{Assign, View, ViewMut};
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

/// Facts of the run that an operator may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunFacts {
    /// Train or infer.
    pub mode: Mode,
    /// The number of the training step, from 0.
    pub step: u64,
    /// The seed of the program's random operators.
    pub seed: u64,
    /// The number of threads that the operator may use in this call.
    pub threads: usize,
}

/// The location of a variable's value among the operands of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperandPosition {
    /// Not bound, or not needed.
    Absent,
    /// A dense value: the number of its view among the call's read views or write views.
    Dense(usize),
    /// A value that is not dense: the number of its buffer in the pool.
    Pooled(usize),
}

/// The location of every slot of a call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wiring {
    pub(crate) inputs: Vec<Vec<OperandPosition>>,
    pub(crate) outputs: Vec<Vec<OperandPosition>>,
    pub(crate) output_gradients: Vec<Vec<OperandPosition>>,
    pub(crate) input_gradients: Vec<Vec<(OperandPosition, Assign)>>,
    /// Whether `forward` adds its output to the contents of the output's buffer, instead of writing over them.
    pub(crate) adds: bool,
    /// The input slots whose value is in the buffer that receives the slot's gradient.
    pub(crate) in_place: Vec<usize>,
    /// The locations of the outputs, if a backward call computes them too.
    pub(crate) results: Vec<Vec<OperandPosition>>,
}

/// Memory of a thread that operators reuse from call to call, one value per type.
#[derive(Default)]
pub struct Scratch(Vec<Box<dyn Any + Send>>);

impl Scratch {
    /// The value of type `S`; the first call creates it by `Default`.
    pub fn get<S: Default + Send + 'static>(&mut self) -> &mut S {
        // There are few values: a linear search is faster than a table.
        let known = self.0.iter().position(|value| value.is::<S>());
        if known.is_none() {
            self.0.push(Box::<S>::default());
        }
        let at = known.unwrap_or(self.0.len() - 1);
        self.0[at].downcast_mut::<S>().unwrap_or_else(|| unreachable!("it was found by its type"))
    }
}

/// The value that [`Op::prepare`](crate::operator::Op::prepare) leaves for the calls after it.
#[derive(Default)]
pub(crate) struct CallCache(Option<Box<dyn Any + Send + Sync>>);

impl CallCache {
    fn slot<S: Default + Send + Sync + 'static>(&mut self) -> &mut S {
        if !self.0.as_ref().is_some_and(|b| b.is::<S>()) {
            self.0 = Some(Box::<S>::default());
        }
        match self.0.as_mut().and_then(|b| b.downcast_mut::<S>()) {
            Some(value) => value,
            None => unreachable!("it was just made"),
        }
    }

    pub(crate) fn get<S: 'static>(&self) -> Option<&S> {
        self.0.as_ref()?.downcast_ref::<S>()
    }

    /// Returns whether [`Op::prepare`](crate::operator::Op::prepare) left a value.
    #[cfg(feature = "testing")]
    pub(crate) fn is_kept(&self) -> bool {
        self.0.is_some()
    }
}

/// The pass that a preparation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// The calls that follow are `forward`.
    Forward,
    /// The calls that follow are `backward`.
    Backward,
}

/// The data common to all calls of one operator.
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
    /// The sequences of this call, for a range of a sequence-wise operator; `None` means all.
    pub(crate) sequences: Option<Range<usize>>,
    pub(crate) prepared: Option<&'a CallCache>,
}

/// The sequences of a call, as ranges of rows of the call's views.
#[derive(Debug, Clone, Copy)]
pub struct Sequences<'a> {
    offsets: &'a [usize],
}

impl<'a> Sequences<'a> {
    /// The sequences that `offsets` delimit: one offset more than there are sequences.
    pub fn new(offsets: &'a [usize]) -> Self {
        Self { offsets }
    }

    /// The offset of each sequence's first row, then the end of the last sequence. Rows of the call's views start at 0: subtract
    /// the first offset, as [`Self::rows`] does.
    pub fn offsets(&self) -> &'a [usize] {
        self.offsets
    }

    /// The number of sequences.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Returns whether there is no sequence.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows of sequence `i`, relative to the call's views.
    pub fn rows(&self, i: usize) -> Range<usize> {
        let base = self.offsets[0];
        self.offsets[i] - base..self.offsets[i + 1] - base
    }

    /// The rows of each sequence.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Range<usize>> + use<'a> {
        (0..self.len()).map(move |i| self.rows(i))
    }
}

macro_rules! shared_methods {
    ($context:ident, $absent:literal) => {
        impl<'a> $context<'a> {
            /// The variable of input slot `slot`.
            ///
            /// # Errors
            /// If the variable does not hold `T`, is not bound, or is not among the values that the operator declares to read.
            #[track_caller]
            pub fn input<T: Plain>(&self, slot: usize) -> Result<View<'a, T>> {
                self.input_at(slot, 0)
            }

            /// Variable `k` of input slot `slot`.
            ///
            /// # Errors
            /// As [`Self::input`].
            #[track_caller]
            pub fn input_at<T: Plain>(&self, slot: usize, k: usize) -> Result<View<'a, T>> {
                let place = self.call.wiring.inputs[slot].get(k).copied().unwrap_or(OperandPosition::Absent);
                let spec = self.call.inputs[slot].get(k);
                self.read(place, self.call.signature.inputs[slot].name, spec).at_caller()
            }

            /// The variable of an optional input slot; `None` if no variable is bound, or the operator does not declare to read
            /// it.
            ///
            /// # Errors
            /// If the slot does not hold `T`.
            #[track_caller]
            pub fn optional<T: Plain>(&self, slot: usize) -> Result<Option<View<'a, T>>> {
                match self.call.wiring.inputs[slot].first() {
                    None | Some(OperandPosition::Absent) => Ok(None),
                    Some(&place) => {
                        let spec = self.call.inputs[slot].first();
                        self.read(place, self.call.signature.inputs[slot].name, spec).map(Some).at_caller()
                    }
                }
            }

            /// The number of variables in input slot `slot`.
            pub fn count(&self, slot: usize) -> usize {
                self.call.inputs[slot].len()
            }

            /// The spec of input slot `slot`.
            pub fn input_spec(&self, slot: usize) -> &'a Spec {
                &self.call.inputs[slot][0]
            }

            /// The spec of variable `k` of input slot `slot`.
            pub fn input_spec_at(&self, slot: usize, k: usize) -> &'a Spec {
                &self.call.inputs[slot][k]
            }

            /// The spec of output slot `slot`.
            pub fn output_spec(&self, slot: usize) -> &'a Spec {
                &self.call.outputs[slot][0]
            }

            /// The dtype of input slot `slot`.
            pub fn dtype(&self, slot: usize) -> DType {
                self.call.inputs[slot][0].dtype
            }

            /// The LoD of input slot `slot` for the whole batch, even if the call covers only some sequences; `None` without a
            /// LoD.
            pub fn lod(&self, slot: usize) -> Option<&'a Arc<Lod>> {
                self.lod_at(slot, 0)
            }

            /// The LoD of variable `k` of input slot `slot` for the whole batch, as [`Self::lod`].
            pub fn lod_at(&self, slot: usize, k: usize) -> Option<&'a Arc<Lod>> {
                self.call.levels.lod(&self.call.inputs[slot].get(k)?.lod)
            }

            /// The sequences (last level) of input slot `slot` in this call.
            ///
            /// # Errors
            /// If the variable has no LoD.
            #[track_caller]
            pub fn sequences(&self, slot: usize) -> Result<Sequences<'a>> {
                self.sequences_at(slot, 0)
            }

            /// The sequences (last level) of variable `k` of input slot `slot` in this call.
            ///
            /// # Errors
            /// If the variable has no LoD.
            #[track_caller]
            pub(crate) fn sequences_at(&self, slot: usize, k: usize) -> Result<Sequences<'a>> {
                let Some(lod) = self.lod_at(slot, k) else {
                    let what = format!("input `{}`", self.call.signature.inputs[slot].name);
                    return Err(Error::new(what, "a LoD", "none"));
                };
                let offsets = lod.offsets();
                Ok(Sequences::new(match &self.call.sequences {
                    Some(range) => &offsets[range.start..=range.end],
                    None => offsets,
                }))
            }

            /// Facts of the run.
            pub fn run(&self) -> RunFacts {
                self.call.run
            }

            /// The value that [`Op::prepare`](crate::operator::Op::prepare) left; `None` if it left none, as when the inputs that
            /// it needs are not constant.
            pub fn prepared<S: 'static>(&self) -> Option<&'a S> {
                self.call.prepared?.get()
            }

            /// Fills `out` with random numbers in [0, 1), one per column, for a row. They depend on the seed, the step, the
            /// operator, the number of the row's top-level sequence, the row's position in this sequence, and the column; not on
            /// the batch, the threads or earlier calls.
            pub fn uniform(&self, row: usize, out: &mut [f32]) {
                let RowKey { sequence, position } = self.call.keys.get(row);
                let RunFacts { seed, step, .. } = self.call.run;
                fill_uniform(RowStream { seed, step, operator: self.call.stream, sequence, position }, out);
            }

            /// [`Self::uniform`] with 53 random bits in each number instead of 24.
            pub fn uniform_53(&self, row: usize, out: &mut [f64]) {
                let RowKey { sequence, position } = self.call.keys.get(row);
                let RunFacts { seed, step, .. } = self.call.run;
                fill_uniform_53(
                    RowStream { seed, step, operator: self.call.stream, sequence, position },
                    out,
                );
            }

            /// [`Self::uniform`] with the same numbers for all rows of a top-level sequence.
            pub fn uniform_of_sequence(&self, row: usize, out: &mut [f32]) {
                let sequence = self.call.keys.get(row).sequence;
                let RunFacts { seed, step, .. } = self.call.run;
                let operator = self.call.stream;
                fill_uniform(RowStream { seed, step, operator, sequence, position: 0 }, out);
            }

            fn read<T: Plain>(
                &self,
                place: OperandPosition,
                name: &str,
                spec: Option<&Spec>,
            ) -> Result<View<'a, T>> {
                let view = match place {
                    OperandPosition::Dense(i) => self.operands.read(i),
                    _ => None,
                };
                view.ok_or_else(|| match place {
                    OperandPosition::Absent => another::<T>(name, $absent),
                    _ => another::<T>(name, &held(spec)),
                })
            }
        }
    };
}

mod new_levels;
mod pooled;

pub use new_levels::NewLevels;
pub(crate) use pooled::MOST_TABLES;

/// The dtype and storage of a variable, for a message.
fn held(spec: Option<&Spec>) -> String {
    spec.map_or_else(|| "nothing".to_owned(), |spec| format!("{}, {}", spec.dtype, spec.storage))
}

/// The error that a slot does not hold `T`.
fn another<T>(slot: &str, got: &str) -> Error {
    Error::of(ErrorKind::Program, format!("slot `{slot}`"), std::any::type_name::<T>(), got)
}

/// The context of [`Op::forward`](crate::operator::Op::forward).
pub struct Forward<'a> {
    pub(crate) call: Call<'a>,
    pub(crate) operands: Operands<'a>,
    pub(crate) pool: &'a mut [PooledStorage],
    pub(crate) scratch: &'a mut Scratch,
}
shared_methods!(Forward, "nothing bound");

impl<'a> Forward<'a> {
    /// The view of the variable in output slot `slot`, to be written. Taking it twice in one call panics.
    ///
    /// # Errors
    /// If the slot does not hold `T`.
    #[track_caller]
    pub fn output<T: Plain>(&mut self, slot: usize) -> Result<ViewMut<'a, T>> {
        self.output_at(slot, 0)
    }

    /// The view of variable `k` of output slot `slot`, as [`Self::output`].
    ///
    /// # Errors
    /// If the slot does not hold `T`.
    #[track_caller]
    pub fn output_at<T: Plain>(&mut self, slot: usize, k: usize) -> Result<ViewMut<'a, T>> {
        let view = match self.call.wiring.outputs[slot].get(k) {
            Some(&OperandPosition::Dense(i)) => self.operands.write(i),
            _ => None,
        };
        let spec = self.call.outputs[slot].get(k);
        view.ok_or_else(|| another::<T>(self.call.signature.outputs[slot].name, &held(spec))).at_caller()
    }

    /// Whether `forward` must write its output over the contents of the buffer, or add it to them. It must add only if the
    /// operator [accumulates](crate::operator::Hints::accumulates).
    pub fn assign(&self) -> Assign {
        if self.call.wiring.adds { Assign::Add } else { Assign::Write }
    }

    /// The number of variables in output slot `slot`.
    pub fn output_count(&self, slot: usize) -> usize {
        self.call.outputs[slot].len()
    }

    /// This thread's memory for intermediate values.
    pub fn scratch(&mut self) -> &mut Scratch {
        self.scratch
    }
}

/// The context of [`Op::backward`](crate::operator::Op::backward).
pub struct Backward<'a> {
    pub(crate) call: Call<'a>,
    pub(crate) operands: Operands<'a>,
    pub(crate) pool: &'a mut [PooledStorage],
    pub(crate) scratch: &'a mut Scratch,
}
shared_methods!(Backward, "nothing bound, or not among what `Op::gradient` says that it reads");

impl<'a> Backward<'a> {
    /// The forward value of output slot `slot`.
    ///
    /// # Errors
    /// If the value does not hold `T`, or is not among the values that the operator declares to read.
    #[track_caller]
    pub fn output<T: Plain>(&self, slot: usize) -> Result<View<'a, T>> {
        let place = self.call.wiring.outputs[slot].first().copied().unwrap_or(OperandPosition::Absent);
        self.read(place, self.call.signature.outputs[slot].name, self.call.outputs[slot].first())
    }

    /// The view for the forward value of output slot `slot`; `None` unless this call must compute that value beside the gradients
    /// ([`Hints::joins`](crate::operator::Hints::joins)). Taking it twice in one call panics.
    ///
    /// # Errors
    /// If the slot does not hold `T`.
    #[track_caller]
    pub fn result<T: Plain>(&mut self, slot: usize) -> Result<Option<ViewMut<'a, T>>> {
        let Some(&OperandPosition::Dense(i)) = self.call.wiring.results.get(slot).and_then(|s| s.first())
        else {
            return Ok(None);
        };
        let name = self.call.signature.outputs[slot].name;
        self.operands.write(i).map(Some).ok_or_else(|| another::<T>(name, "another")).at_caller()
    }

    /// The gradient of output slot `slot`; `None` (not zeros) if no gradient reaches the output.
    ///
    /// # Errors
    /// If the slot does not hold `T`.
    #[track_caller]
    pub fn output_gradient<T: Plain>(&self, slot: usize) -> Result<Option<View<'a, T>>> {
        self.output_gradient_at(slot, 0)
    }

    /// The gradient of variable `k` of output slot `slot`, as [`Self::output_gradient`].
    ///
    /// # Errors
    /// If the slot does not hold `T`.
    #[track_caller]
    pub fn output_gradient_at<T: Plain>(&self, slot: usize, k: usize) -> Result<Option<View<'a, T>>> {
        match self.call.wiring.output_gradients[slot].get(k) {
            None | Some(OperandPosition::Absent) => Ok(None),
            Some(&place) => {
                let spec = self.call.outputs[slot].get(k);
                self.read(place, self.call.signature.outputs[slot].name, spec).map(Some).at_caller()
            }
        }
    }

    /// Returns whether the gradient of input slot `slot` is wanted.
    pub fn wants(&self, slot: usize) -> bool {
        self.call.wiring.input_gradients[slot].iter().any(|(place, _)| *place != OperandPosition::Absent)
    }

    /// The view for the gradient of input slot `slot`, and whether to write or to add the gradient. `None` if the gradient is not
    /// wanted or not dense. Taking the view twice in one call panics.
    ///
    /// # Errors
    /// If the slot does not hold `T`.
    #[track_caller]
    pub fn gradient<T: Plain>(&mut self, slot: usize) -> Result<Option<(ViewMut<'a, T>, Assign)>> {
        self.gradient_at(slot, 0)
    }

    /// The view for the gradient of variable `k` of input slot `slot`, as [`Self::gradient`].
    ///
    /// # Errors
    /// If the slot does not hold `T`.
    #[track_caller]
    pub fn gradient_at<T: Plain>(
        &mut self,
        slot: usize,
        k: usize,
    ) -> Result<Option<(ViewMut<'a, T>, Assign)>> {
        match self.call.wiring.input_gradients[slot].get(k) {
            Some(&(OperandPosition::Dense(i), assign)) => match self.operands.write(i) {
                Some(view) => Ok(Some((view, assign))),
                None => Err(Error::of(
                    ErrorKind::Program,
                    format!("gradient of `{}`", self.call.signature.inputs[slot].name),
                    std::any::type_name::<T>(),
                    "another",
                )),
            },
            _ => Ok(None),
        }
    }

    /// Returns whether the value of input slot `slot` is in the buffer for the slot's gradient, so that `backward` overwrites the
    /// value. True only if the operator declares [`Gradient::overwrites`](crate::operator::Gradient::overwrites).
    pub fn in_place(&self, slot: usize) -> bool {
        self.call.wiring.in_place.contains(&slot)
    }

    /// This thread's memory for intermediate values.
    pub fn scratch(&mut self) -> &mut Scratch {
        self.scratch
    }
}

/// The context of [`Op::prepare`](crate::operator::Op::prepare).
pub struct Prepare<'a> {
    pub(crate) pass: Pass,
    pub(crate) operands: Operands<'a>,
    /// For each input slot, the numbers of its variables' read views; empty unless all variables of the slot are constant.
    pub(crate) constants: &'a [Range<usize>],
    pub(crate) inputs: &'a [Vec<Spec>],
    pub(crate) literals: Literals<'a>,
    /// For each input slot, whether its gradient is wanted; empty in a forward pass.
    pub(crate) wanted: &'a [bool],
    pub(crate) prepared: &'a mut CallCache,
}

impl<'a> Prepare<'a> {
    /// The pass that the calls are for.
    pub fn pass(&self) -> Pass {
        self.pass
    }

    /// Returns whether the backward calls will compute the gradient of input slot `slot`.
    pub fn wants(&self, slot: usize) -> bool {
        self.wanted.get(slot).copied().unwrap_or(false)
    }

    /// The variable of input slot `slot`; `None` unless every variable of the slot stays the same during the calls.
    pub fn constant<T: Plain>(&self, slot: usize) -> Option<View<'a, T>> {
        self.constant_at(slot, 0)
    }

    /// Variable `k` of input slot `slot`; `None` unless every variable of the slot stays the same during the calls.
    pub fn constant_at<T: Plain>(&self, slot: usize, k: usize) -> Option<View<'a, T>> {
        self.operands.read(self.constants.get(slot)?.clone().nth(k)?)
    }

    /// The number of variables in input slot `slot`.
    pub fn count(&self, slot: usize) -> usize {
        self.inputs[slot].len()
    }

    /// The dtype of input slot `slot`.
    pub fn dtype(&self, slot: usize) -> DType {
        self.inputs[slot][0].dtype
    }

    /// The prepared value, to be filled for the calls (`prepared` of their contexts reads it). Its memory is reused from run to
    /// run.
    pub fn keep<S: Default + Send + Sync + 'static>(&mut self) -> &mut S {
        self.prepared.slot()
    }
}

literal_methods!(Forward: |run: &Forward<'a>| run.call.literals);
literal_methods!(Backward: |run: &Backward<'a>| run.call.literals);
literal_methods!(Prepare: |prepare: &Prepare<'a>| prepare.literals);
