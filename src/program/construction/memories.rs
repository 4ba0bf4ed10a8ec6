//! Memories of a step block: values that pass from one step of a sequence to the next step.

use super::builder::DTypeSource;
use super::open_step::{NextMemory, OpenMemory, OpenStep};
use super::state::{State, finished};
use super::step::Step;
use super::var::Var;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::extent::{Extent, Levels, Spec, VarId, rows_of_step};
use crate::program::description::var_desc::{StopGradient, VarRole};
use crate::tensor::{DType, StorageKind};

fn empty_memory(got: String) -> Error {
    Error::new("row of a memory", "at least one number", got)
}

impl Step {
    /// Makes a memory of `width` numbers per row that starts at zero. The memory has the dtype of the step's first input; if that
    /// input holds no floats, the memory is f32.
    ///
    /// # Errors
    /// Records an error if `width` is 0.
    #[track_caller]
    pub fn memory(&self, width: usize) -> Var {
        let input = {
            let state = self.state.borrow();
            let step = state.open.iter().find(|step| step.block == self.block);
            step.and_then(|step| state.program.spec(step.first_input()?).ok()).map(|spec| spec.dtype)
        };
        self.memory_of(input.filter(|dtype| dtype.is_float()).unwrap_or(DType::F32), &[width])
    }

    /// Makes a memory with rows of the shape `dims` that starts at zero. `dtype` is a dtype, or a variable that has the wanted
    /// dtype.
    ///
    /// # Errors
    /// Records an error if a row of the shape `dims` has no numbers, or if there are too many dimensions.
    #[track_caller]
    pub fn memory_of(&self, dtype: impl Into<DTypeSource>, dims: &[usize]) -> Var {
        let Some(dtype) = self.dtype(dtype) else { return self.unknown() };
        let spec = match dims.contains(&0) {
            true => Err(empty_memory(format!("{dims:?}"))),
            false => Spec::rows_of(dtype, Extent::Alive(self.block), dims, Levels::new()),
        };
        let added = spec.and_then(|spec| self.add_memory(spec, None));
        self.made(added)
    }

    /// Makes a memory that starts with the value of an outer variable, which has one row per sequence.
    ///
    /// # Errors
    /// Records an error if the variable does not have one row per sequence, or if a row of the variable has no numbers.
    #[track_caller]
    pub fn memory_from(&self, initial: Var) -> Var {
        let found = self.state.borrow_mut().initial(self, initial);
        let added = match found {
            Ok(Some((id, spec))) => self.add_memory(spec, Some(id)),
            Ok(None) => return self.unknown(),
            Err(error) => Err(error),
        };
        self.made(added)
    }

    fn add_memory(&self, spec: Spec, initial: Option<VarId>) -> Result<VarId> {
        let state = &mut *self.state.borrow_mut();
        let previous =
            state.program.add_computed("memory", self.block, spec, VarRole::Step, StopGradient::No);
        let memory = OpenMemory { previous, initial, next: NextMemory::None, last: None };
        state.building(self)?.add_memory(memory);
        Ok(previous)
    }

    /// Sets the value of `memory` at the next step to `after`.
    ///
    /// # Errors
    /// Records an error if `memory` is no memory or has another `update` already, or if the shapes of `memory` and `after`
    /// differ.
    #[track_caller]
    pub fn update(&self, memory: Var, after: Var) {
        let caller = self.here();
        let Some(id) = self.known(memory) else {
            // `after` may belong to another builder, which is a second error.
            if after != memory {
                self.known(after);
            }
            return;
        };
        // If `next` appends a copy of `after`, the copy names the line of the call of `update`.
        let line = self.called_from(caller);
        let next = self.next(id, after);
        drop(line);
        let state = &mut *self.state.borrow_mut();
        let after = state.own(after).ok().flatten();
        if let Ok(memory) = state.memory(self, id) {
            memory.next = next;
        } else if let Some(Ok(memory)) = after.map(|after| state.memory(self, after)) {
            // The two arguments were swapped, and the error about this is recorded already. Marking the memory `after` as updated
            // prevents a second error about a missing `update`.
            memory.next = NextMemory::Unknown;
        }
    }

    /// Returns the next value of `memory`: `var`, or a copy of `var`; records an error if the dtypes or shapes of `memory` and
    /// `var` differ.
    fn next(&self, memory: VarId, var: Var) -> NextMemory {
        let others = {
            let mut state = self.state.borrow_mut();
            let name = state.program.var(memory).name.clone();
            state.memory(self, memory).and_then(|found| match found.next {
                NextMemory::None => Ok(()),
                _ => {
                    let expected = "one `update` in the step";
                    Err(Error::of(ErrorKind::Program, "memory", expected, "a second `update`").variable(name))
                }
            })
        };
        if self.fitting(others).is_none() {
            return NextMemory::Unknown;
        }
        let Some(mut id) = self.computed_here(var) else { return NextMemory::Unknown };
        let taken = {
            let mut state = self.state.borrow_mut();
            state.building(self).is_ok_and(|step| !step.taken.insert(id))
        };
        if taken {
            // If two memories have the same variable as next value, the second memory gets a copy, so that each next value has
            // its own gradient.
            let Some(copy) = self.copy(id) else { return NextMemory::Unknown };
            id = copy;
        }
        let fits = {
            let program = &self.state.borrow().program;
            let specs = program.spec(memory).and_then(|want| Ok((want, program.spec(id)?)));
            specs.and_then(|(want, got)| match want == got {
                true => Ok(()),
                false => Err(Error::new("update of a memory", want.to_string(), got.to_string())
                    .variable(&program.var(var.id).name)),
            })
        };
        self.fitting(fits).map_or(NextMemory::Unknown, |()| NextMemory::Known(id))
    }

    /// Returns the value of `memory` after the last step of each sequence, as a variable with one row per sequence. The closure
    /// of the step block must return this variable. For a sequence without steps, the row is the initial value of the memory.
    ///
    /// # Errors
    /// Records an error if `memory` is no memory of this step block.
    #[track_caller]
    pub fn last(&self, memory: Var) -> Var {
        let Some(id) = self.known(memory) else { return self.unknown() };
        let last = self.state.borrow_mut().last(self, id);
        self.made(last)
    }
}

impl State {
    /// Returns the step block that `step` builds; fails if the step block is finished.
    fn building(&mut self, step: &Step) -> Result<&mut OpenStep> {
        self.open.iter_mut().find(|open| open.block == step.block).ok_or_else(finished)
    }

    fn memory(&mut self, step: &Step, id: VarId) -> Result<&mut OpenMemory> {
        let name = self.program.var(id).name.clone();
        self.building(step)?.memory(id).ok_or_else(|| {
            Error::of(ErrorKind::Program, "memory", "a memory of this step", "another variable")
                .variable(name)
        })
    }

    /// Returns the outer variable that holds the initial value of a memory, and the memory's spec. Returns `None` if the outer
    /// variable is unknown.
    fn initial(&mut self, step: &Step, initial: Var) -> Result<Option<(VarId, Spec)>> {
        let open = self.building(step)?;
        let (parent, above, sequences) = (open.parent, open.above.clone(), open.sequences);
        let known = open.is_known();
        let Some(id) = self.resolve(parent, initial)? else { return Ok(None) };
        if !known {
            return Ok(None);
        }
        let spec = self.program.spec(id)?.clone();
        let name = || self.program.var(initial.id).name.clone();
        if spec.lod != above || spec.rows() != sequences {
            let error = Error::new("initial memory", rows_of_step(sequences), spec.to_string());
            return Err(error.variable(name()));
        }
        if spec.storage != StorageKind::Dense {
            let expected = "dense rows (call `to_dense` first)";
            return Err(Error::new("initial memory", expected, spec.to_string()).variable(name()));
        }
        if spec.width() == 0 {
            return Err(empty_memory(spec.to_string()).variable(name()));
        }
        let mut shape = spec.shape.clone();
        shape[0] = Extent::Alive(step.block);
        Ok(Some((id, Spec { shape, lod: Levels::new(), ..spec })))
    }

    fn last(&mut self, step: &Step, memory: VarId) -> Result<VarId> {
        if let Some(id) = self.memory(step, memory)?.last {
            return Ok(id);
        }
        let open = self.building(step)?;
        let (parent, lod, sequences) = (open.parent, open.above.clone(), open.sequences);
        let spec = self.program.spec(memory)?.clone();
        let name = format!("{}.last", self.program.var(memory).name);
        let mut shape = spec.shape.clone();
        shape[0] = sequences;
        let spec = Spec { shape, lod, ..spec };
        let id = self.program.add_computed(&name, parent, spec, VarRole::Computed, StopGradient::No);
        self.building(step)?.set_last(memory, id);
        Ok(id)
    }
}
