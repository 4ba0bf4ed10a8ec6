//! The methods of the builder for carried states: states that pass from batch to batch.

use super::builder::{Builder, DTypeSource};
use super::state::OpenState;
use super::var::Var;
use crate::operator::attributes::Attributes;
use crate::operator::extent::BlockId;
use crate::program::description::carried::wrong;
use crate::program::description::language::CARRY;
use crate::program::description::var_desc::VarRole;
use crate::tensor::DType;

impl Builder {
    /// Declares a carried state: `width` numbers (f32) per sequence that pass from batch to batch. Returns the variable that
    /// holds the state before a batch; [`Self::carry`] sets the state after the batch. Sequence *i* of a batch continues where
    /// sequence *i* of the previous batch ended. Gradients do not flow from a batch into the previous batch (truncated
    /// back-propagation through time).
    ///
    /// A [`Trainer`](crate::train::Trainer) passes the state from batch to batch; every epoch and every evaluation starts with
    /// zeros. A [`Predictor`](crate::predict::Predictor) passes the state from one call of
    /// [`run_on`](crate::predict::Predictor::run_on) to the next call. An [`Executor`](crate::executor::Executor) does not pass
    /// the state: the caller feeds the state before each batch and fetches the state after the batch.
    ///
    /// A batch with fewer sequences than the previous batch continues the previous batch's first sequences; the states of the
    /// remaining sequences are lost. A batch with more sequences than the previous batch is an error.
    ///
    /// ```
    /// use unpadded::layers::Gru;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let before = net.carried_state(16);
    /// let (h, last) = net.gru_states(x, Gru::new(16).initial(before));
    /// net.carry(before, last);
    /// let program = net.finish()?;
    /// assert_eq!(program.carried_states().next().map(|state| state.before), Some(before.id()));
    /// # let _ = h;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Records the errors of [`Self::carried_state_of`].
    #[track_caller]
    pub fn carried_state(&self, width: usize) -> Var {
        let name = self.layer_name("state", None);
        self.carried_state_of(&name, DType::F32, &[width])
    }

    /// Declares a carried state with the name `name`, the dtype `dtype` and rows of the shape `dims`. `dtype` is a dtype, or a
    /// variable that has the wanted dtype.
    ///
    /// # Errors
    /// Records an error if the name is taken, if the method is called in a step block, or if there are too many dimensions.
    /// [`Self::finish`] fails if no [`Self::carry`] sets the state after the batch.
    #[track_caller]
    pub fn carried_state_of(&self, name: &str, dtype: impl Into<DTypeSource>, dims: &[usize]) -> Var {
        let Some(dtype) = self.dtype(dtype) else { return self.unknown() };
        let (before, line) = (self.feed(name, dtype, dims, 0), self.here());
        if !before.is_unknown() {
            let open = OpenState { before: before.id, is_carried: false, line };
            self.state.borrow_mut().carried.push(open);
        }
        before
    }

    /// Sets the value of a [carried state](Self::carried_state) after the batch to the variable `after`.
    ///
    /// # Errors
    /// Records an error if `before` is no carried state or already has a `carry`, or if `after` has another dtype or shape than
    /// `before`. The method cannot be called in a step block.
    #[track_caller]
    pub fn carry(&self, before: Var, after: Var) {
        let Some(id) = self.known(before) else {
            if after != before {
                self.known(after);
            }
            return;
        };
        let outcome = {
            let mut state = self.state.borrow_mut();
            let found = state.carried.iter_mut().find(|open| open.before == id);
            let outcome = found.map(|open| std::mem::replace(&mut open.is_carried, true));
            match outcome {
                None => Err(wrong("a variable of `carried_state`", "another variable")),
                Some(true) => Err(wrong("one `carry`", "a second `carry`")),
                Some(false) if self.block != BlockId(0) => {
                    Err(wrong("`carry` in the root block", "`carry` in a step block"))
                }
                Some(false) => Ok(()),
            }
            .map_err(|e| e.variable(&state.program.var(id).name))
        };
        if self.fitting(outcome).is_some() {
            let inputs: [(&str, &[Var]); 2] = [(CARRY.inputs[0], &[after]), (CARRY.inputs[1], &[before])];
            let out: Var = self.append(CARRY.kind, &inputs, Attributes::new());
            if !out.is_unknown() {
                self.state.borrow_mut().program.vars[out.id.0 as usize].role = VarRole::Carried;
            }
        }
    }
}
