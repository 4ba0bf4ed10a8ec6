//! Step blocks: a closure builds the operators of one step, and the program runs these operators at every step of every sequence,
//! without padding.

use std::ops::Deref;
use std::panic::Location;

use super::builder::Builder;
use super::naming::ScopeGuard;
use super::open_step::{NextMemory, OpenMemory, Recurrence};
use super::state::State;
use super::var::Var;
use super::vars::Vars;
use crate::error::{Error, ErrorKind};
use crate::operator::attributes::Attributes;
use crate::operator::extent::VarId;
use crate::program::description::language::{COPY, RECURRENT};
use crate::program::description::op_desc::{Memory, VarPair};
use crate::program::description::var_desc::VarRole;

/// The builder of a step block: a [`Builder`] with additional methods for memories.
pub struct Step {
    pub(super) builder: Builder,
}

impl Deref for Step {
    type Target = Builder;
    fn deref(&self) -> &Builder {
        &self.builder
    }
}

impl Builder {
    /// Runs a step block over every sequence of the last LoD level of `inputs`, without padding. The closure `step_block`
    /// receives the variables that hold one step's row of each input, and returns the results. A result is a value of every step
    /// or a final memory ([`Step::last`]). A value of every step becomes a variable with the rows and the LoD of `inputs`; a
    /// final memory has one row per sequence.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let (h, last) = net.recurrent(x, |step, x_t| {
    ///     let h_prev = step.memory(16); // starts at zero
    ///     let h = (x_t.linear(16) + h_prev.linear(16)).tanh();
    ///     step.update(h_prev, h);
    ///     (h, step.last(h_prev))
    /// });
    /// # net.check()?;
    /// assert_eq!(net.describe(h), "`tanh.steps`: f32[rows0, 16] lod(0)");
    /// assert_eq!(net.describe(last), "`memory.last`: f32[batch, 16]");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Records an error if the inputs have no LoD or different LoDs, if a memory is not updated, or if an operator of the step
    /// block refuses its inputs. After an error in the step block, only the results that depend on the wrong operator are
    /// unknown.
    #[track_caller]
    pub fn recurrent<I: Vars, O: Vars>(&self, inputs: I, step_block: impl FnOnce(&Step, I) -> O) -> O {
        self.recurrent_with(Recurrence::default(), inputs, step_block)
    }

    /// Runs a step block as [`Self::recurrent`] does, with options. The options can select a LoD level above the last level, so
    /// that each step reads a whole (sub-)sequence, and the reverse direction.
    ///
    /// # Errors
    /// Records the errors of [`Self::recurrent`].
    #[track_caller]
    pub fn recurrent_with<I: Vars, O: Vars>(
        &self,
        options: Recurrence,
        inputs: I,
        step_block: impl FnOnce(&Step, I) -> O,
    ) -> O {
        let (caller, list) = (self.here(), inputs.list());
        let parent = self.home(&list);
        let open = |state: &mut State| {
            let depth = state.open.len();
            let place = state.program.next_place(parent, RECURRENT, caller.to_string());
            (depth, state.open(parent, options, &list, caller, place))
        };
        let (depth, (block, inner)) = open(&mut self.state.borrow_mut());
        // The guard closes the step block, even if the user's closure panics.
        let opened = ScopeGuard::new(self, |_| depth, |state, depth| state.open.truncate(depth));
        let step = Step { builder: Builder { block, ..self.clone() } };
        let inner: Vec<Var> =
            inner.into_iter().map(|id| id.map_or(self.unknown(), |id| self.var(id))).collect();
        let results = step_block(&step, inputs.with(&inner));
        let outputs = step.close(&results.list(), caller);
        drop(opened);
        results.with(&outputs)
    }
}

impl Step {
    /// Closes the innermost step block: checks the memories, binds the outputs, and appends the operator `recurrent`. Returns the
    /// outer variable of each result.
    fn close(&self, results: &[Var], caller: &'static Location<'static>) -> Vec<Var> {
        let _line = self.called_from(caller);
        // Each result and each memory's next value must be the output of an operator in the step block. If a result or a next
        // value is another variable, such as a step input, a copy is appended.
        let mut inside = Vec::new();
        for &var in results {
            let last = self.state.borrow().open.last().is_some_and(|s| s.is_last(var.id));
            let id = match self.known(var) {
                Some(id) if last => Some(id),
                Some(_) => self.computed_here(var),
                None => None,
            };
            inside.push((id, last));
        }
        let state = &mut *self.state.borrow_mut();
        let Some(mut step) = state.open.pop() else { return vec![self.unknown(); results.len()] };
        let State { program, errors, .. } = state;
        step.place.operator = program.next_place(step.parent, RECURRENT, String::new()).operator;
        if step.is_known()
            && let Err(error) = step.drop_sparse(program)
        {
            // The error of `drop_sparse` is that every step input is sparse. The error is recorded only if the step block has no
            // other error: a refused operator may be the operator whose result would have been a dense step input.
            if errors.len() == step.errors {
                errors.push(error.at(step.place.clone()));
            }
            step.over = None;
        }
        for memory in &step.memories {
            if memory.next == NextMemory::None {
                let error = Error::of(ErrorKind::Program, "memory", "one `update` in the step", "none");
                let name = &program.var(memory.previous).name;
                errors.push(error.variable(name).at(step.place.clone()));
            }
        }
        let mut outside = |id: Option<VarId>, last: bool| -> Option<VarId> {
            let (id, _) = (id?, step.over?);
            if last {
                return Some(id);
            }
            if let Some(pair) = step.desc.outputs.iter().find(|p| p.inner == id) {
                return Some(pair.outer);
            }
            let spec = match step.outer_spec(program, id) {
                Ok(spec) => spec,
                Err(error) => {
                    errors.push(error.at(step.place.clone()));
                    return None;
                }
            };
            let name = program.var(id).name.clone();
            let stop = program.var(id).stop_gradient;
            let outer = program.add_computed(
                &format!("{name}.steps"),
                step.parent,
                spec,
                VarRole::Computed,
                stop.into(),
            );
            step.desc.outputs.push(VarPair { outer, inner: id });
            Some(outer)
        };
        let outer: Vec<Option<VarId>> = inside.into_iter().map(|(id, last)| outside(id, last)).collect();
        for memory in &step.memories {
            let &OpenMemory { previous, initial, last, ref next } = memory;
            if let &NextMemory::Known(next) = next {
                step.desc.memories.push(Memory { previous, next, initial, last });
            }
        }
        if step.is_known() {
            let desc = step.finish(program, caller.to_string());
            program.blocks[step.parent.0 as usize].ops.push(desc);
        }
        outer.into_iter().map(|id| id.map_or(self.unknown(), |id| self.var(id))).collect()
    }

    /// Returns `var` if an operator of this step block computes it; else appends a copy and returns the copy.
    pub(super) fn computed_here(&self, var: Var) -> Option<VarId> {
        let resolved = self.state.borrow_mut().resolve(self.block, var);
        let id = self.fitting(resolved)??;
        let state = self.state.borrow();
        let desc = state.program.var(id);
        // The role is `Computed` for a variable of this block that is no view of an outer variable.
        let written = desc.block == self.block && desc.role == VarRole::Computed;
        drop(state);
        if written {
            return Some(id);
        }
        self.copy(id)
    }

    /// Appends a copy of a variable to this step block; returns `None` if the copy is refused, and records the error.
    pub(super) fn copy(&self, id: VarId) -> Option<VarId> {
        let copy: Var = self.append(COPY.kind, &[(COPY.inputs[0], &[self.var(id)])], Attributes::new());
        (!copy.is_unknown()).then_some(copy.id)
    }
}
