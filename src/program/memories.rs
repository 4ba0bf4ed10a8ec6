//! Memories of a step block: what passes from step to step.

use super::attributes::Attributes;
use super::builder::{Builder, State, Var, at};
use super::extent::{Extent, Levels, Spec, VarId, rows_of_step};
use super::step::{OpenMemory, Step};
use super::var_desc::VarRole;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::DType;

fn empty_memory(got: String) -> Error {
    Error::new("row of a memory", "at least one number", got)
}

impl Step {
    /// A memory of `width` numbers a row that starts at zero: of the dtype of the step's first input if that is a float,
    /// else f32.
    ///
    /// # Errors
    /// If `width` is 0.
    #[track_caller]
    pub fn memory(&self, width: usize) -> Result<Var> {
        let input = {
            let state = self.state.borrow();
            let step = state.open.iter().find(|step| step.block == self.block);
            step.and_then(|step| state.program.spec(step.first_input()?).ok()).map(|spec| spec.dtype)
        };
        self.memory_of(input.filter(|dtype| dtype.is_float()).unwrap_or(DType::F32), &[width])
    }

    /// A memory of any dtype and row shape that starts at zero.
    ///
    /// # Errors
    /// If a row has no numbers, or there are too many dimensions.
    #[track_caller]
    pub fn memory_of(&self, dtype: DType, dims: &[usize]) -> Result<Var> {
        let caller = self.here();
        if dims.contains(&0) {
            return Err(at(empty_memory(format!("{dims:?}")), caller));
        }
        let spec = Spec::rows_of(dtype, Extent::Alive(self.block), dims, Levels::new())
            .map_err(|e| at(e, caller))?;
        self.add_memory(spec, None).map_err(|e| at(e, caller))
    }

    /// A memory that starts with the rows of an outer variable, one a sequence.
    ///
    /// # Errors
    /// If it has not one row a sequence, or rows without numbers.
    #[track_caller]
    pub fn memory_from(&self, initial: Var) -> Result<Var> {
        let caller = self.here();
        self.initial(initial)
            .and_then(|(id, spec)| self.add_memory(spec, Some(id)))
            .map_err(|e| at(e, caller))
    }

    fn initial(&self, initial: Var) -> Result<(VarId, Spec)> {
        let (parent, above, sequences) = {
            let state = self.state.borrow();
            let step = state.open.iter().find(|s| s.block == self.block);
            let Some(step) = step else {
                return Err(Error::of(
                    ErrorKind::Program,
                    "step",
                    "one that is being built",
                    "a finished one",
                ));
            };
            (step.parent, step.above.clone(), step.sequences)
        };
        let outside = Builder { block: parent, ..self.builder.clone() };
        let id = outside.resolve(initial)?;
        let spec = self.state.borrow().program.spec(id)?.clone();
        if spec.lod != above || spec.rows() != sequences {
            let error = Error::new("initial memory", rows_of_step(sequences), spec.to_string());
            return Err(error.variable(self.name_of(initial)));
        }
        if spec.width() == 0 {
            return Err(empty_memory(spec.to_string()).variable(self.name_of(initial)));
        }
        let mut shape = spec.shape.clone();
        shape[0] = Extent::Alive(self.block);
        Ok((id, Spec { shape, lod: Levels::new(), ..spec }))
    }

    fn add_memory(&self, spec: Spec, initial: Option<VarId>) -> Result<Var> {
        let state = &mut *self.state.borrow_mut();
        let previous = state.program.add_computed("memory", self.block, spec, VarRole::Step, false);
        let Some(step) = state.open.iter_mut().find(|s| s.block == self.block) else {
            return Err(Error::of(ErrorKind::Program, "step", "one that is being built", "a finished one"));
        };
        step.memories.push(OpenMemory { previous, initial, next: None, last: None });
        Ok(self.var(previous))
    }

    /// Says what `memory` holds at the next step.
    ///
    /// # Errors
    /// If `memory` is none, was updated before, or the shapes differ.
    #[track_caller]
    pub fn update(&self, memory: Var, next: Var) -> Result<()> {
        let caller = self.here();
        // What is appended in closures is the caller's too.
        let net = self.called_from(caller);
        let outcome = (|| {
            self.own(memory)?;
            self.own(next)?;
            let mut id = net.computed_here(next)?;
            let name = self.name_of(memory);
            let taken = self.with_memory(memory, |m, others| {
                if m.next.is_some() {
                    let expected = "one `update` in the step";
                    return Err(
                        Error::of(ErrorKind::Program, "memory", expected, "a second one").variable(name)
                    );
                }
                Ok(others.contains(&Some(id)))
            })?;
            if taken {
                // Two memories with one next value: the second gets a copy, so that each has a gradient of its own.
                let copy: Var = net.append("assign", &[("x", &[self.var(id)])], Attributes::new())?;
                id = copy.id;
            }
            let program = &self.state.borrow().program;
            let (want, got) = (program.spec(memory.id)?, program.spec(id)?);
            if want != got {
                return Err(Error::new("update of a memory", want.to_string(), got.to_string())
                    .variable(&program.var(next.id).name));
            }
            Ok(id)
        })()
        .and_then(|id| {
            self.with_memory(memory, |m, _| {
                m.next = Some(id);
                Ok(())
            })
        });
        outcome.map_err(|e| at(e, caller))
    }

    /// What `memory` holds after each sequence's last step, one row a sequence, to be returned from the step block. A
    /// sequence without steps keeps what the memory started with.
    ///
    /// # Errors
    /// If `memory` is none.
    #[track_caller]
    pub fn last(&self, memory: Var) -> Result<Var> {
        let caller = self.here();
        let known = self.with_memory(memory, |m, _| Ok(m.last)).map_err(|e| at(e, caller))?;
        if let Some(id) = known {
            return Ok(self.var(id));
        }
        let id = {
            let State { program, open, .. } = &mut *self.state.borrow_mut();
            let spec = program.spec(memory.id)?.clone();
            let name = format!("{}.last", program.var(memory.id).name);
            open.iter().find(|s| s.block == self.block).map(|step| {
                let mut shape = spec.shape.clone();
                shape[0] = step.sequences;
                let spec = Spec { shape, lod: step.above.clone(), ..spec };
                program.add_computed(&name, step.parent, spec, VarRole::Computed, false)
            })
        };
        self.with_memory(memory, |m, _| {
            m.last = id;
            Ok(())
        })?;
        id.map(|id| self.var(id))
            .ok_or_else(|| at(Error::new("step", "one that is being built", "a finished one"), caller))
    }

    fn with_memory<T>(
        &self,
        memory: Var,
        change: impl FnOnce(&mut OpenMemory, &[Option<VarId>]) -> Result<T>,
    ) -> Result<T> {
        let state = &mut *self.state.borrow_mut();
        let name = state.program.var(memory.id).name.clone();
        let step = state.open.iter_mut().find(|s| s.block == self.block);
        let memories = step.map_or(&mut [][..], |s| &mut s.memories);
        let taken: Vec<Option<VarId>> = memories.iter().map(|m| m.next).collect();
        match memories.iter_mut().find(|m| m.previous == memory.id) {
            Some(m) => change(m, &taken),
            None => Err(Error::of(ErrorKind::Program, "memory", "one made by this step", "another variable")
                .variable(name)),
        }
    }
}
