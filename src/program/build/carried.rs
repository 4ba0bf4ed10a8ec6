//! States that pass from batch to batch, as a language model's over a long text: how a program says which feed has what
//! before a batch, and which variable is that after it.
//!
//! It is said by an operator whose output has the role [`VarRole::Carried`]: the feed stands in its slot `before`.

use std::collections::HashSet;
use std::panic::Location;

use super::builder::{Builder, DTypeOf};
use super::var::Var;
use crate::error::{Error, ErrorKind, Result};
use crate::program::description::op_desc::{OpDesc, Role};
use crate::program::description::program::{Program, malformed};
use crate::program::description::var_desc::VarRole;
use crate::program::spec::attributes::Attributes;
use crate::program::spec::extent::{BlockId, Extent, Spec, VarId};
use crate::tensor::{DType, StorageKind};

/// A state that passes from batch to batch, one row a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedState {
    /// The feed that has it before a batch.
    pub before: VarId,
    /// What it is after the batch.
    pub after: VarId,
    /// The line of the user's code that said so.
    pub caller: String,
}

/// The input slot of what is before.
const BEFORE: &str = "before";

impl CarriedState {
    /// What an operator of the root block says.
    fn of(program: &Program, op: &OpDesc) -> Option<Self> {
        let is = |id: &VarId| program.vars.get(id.0 as usize).is_some_and(|v| v.role == VarRole::Carried);
        let (after, before) = (op.writes().find(is)?, op.input(BEFORE).first().copied()?);
        Some(Self { before, after, caller: op.caller.clone() })
    }
}

/// A carried state of a program that is being built.
pub(super) struct OpenState {
    before: VarId,
    /// What it is after the batch was said.
    said: bool,
    line: &'static Location<'static>,
}

impl OpenState {
    /// What is wrong if no more is said of it.
    pub(super) fn missing(&self, program: &Program) -> Option<Error> {
        let error = || wrong("what it is after the batch, by `carry`", "nothing of it");
        (!self.said).then(|| error().called(self.line).variable(&program.var(self.before).name))
    }
}

fn wrong(expected: &str, got: &str) -> Error {
    Error::of(ErrorKind::Program, "carried state", expected, got)
}

impl Builder {
    /// A state of `width` numbers (f32), one row a sequence, that passes from batch to batch: this is what it is before a
    /// batch; [`Self::carry`] says what it is after it. Sequence *i* of a batch goes on where sequence *i* of the one
    /// before ended. No gradient passes (truncated back-propagation through time).
    ///
    /// A [`Trainer`](crate::train::Trainer) carries it, from zeros at the start of each epoch and evaluation; a
    /// [`Predictor`](crate::predict::Predictor) carries it from one [`run_on`](crate::predict::Predictor::run_on) to the next.
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
    /// As [`Self::carried_state_of`].
    #[track_caller]
    pub fn carried_state(&self, width: usize) -> Var {
        let name = self.layer_name("state", None);
        self.carried_state_of(&name, DType::F32, &[width])
    }

    /// The same with a name for its feed, of any dtype, or that of a variable, and any row shape.
    ///
    /// # Errors
    /// If the name is taken, in a step block, or if there are too many dimensions; if nothing says what it is after the
    /// batch.
    #[track_caller]
    pub fn carried_state_of(&self, name: &str, dtype: impl Into<DTypeOf>, dims: &[usize]) -> Var {
        let Some(dtype) = self.dtype(dtype) else { return self.unknown() };
        let (before, line) = (self.feed(name, dtype, dims, 0), self.here());
        if !before.is_unknown() {
            let open = OpenState { before: before.id, said: false, line };
            self.state.borrow_mut().carried.push(open);
        }
        before
    }

    /// Says what a [carried state](Self::carried_state) is after the batch.
    ///
    /// # Errors
    /// If `before` is none, or it was said before; if `after` has another dtype or shape; in a step block.
    #[track_caller]
    pub fn carry(&self, before: Var, after: Var) {
        let Some(id) = self.known(before) else {
            if after != before {
                self.known(after);
            }
            return;
        };
        let said = {
            let mut state = self.state.borrow_mut();
            let found = state.carried.iter_mut().find(|open| open.before == id);
            let said = found.map(|open| std::mem::replace(&mut open.said, true));
            match said {
                None => Err(wrong("a variable of `carried_state`", "another one")),
                Some(true) => Err(wrong("one `carry`", "a second one")),
                Some(false) if self.block != BlockId(0) => {
                    Err(wrong("`carry` in the root block", "one in a step block"))
                }
                Some(false) => Ok(()),
            }
            .map_err(|e| e.variable(&state.program.var(id).name))
        };
        if self.fitting(said).is_some() {
            let out: Var = self.append("carry", &[("x", &[after]), (BEFORE, &[before])], Attributes::new());
            if !out.is_unknown() {
                self.state.borrow_mut().program.var_mut(out.id).role = VarRole::Carried;
            }
        }
    }
}

impl Program {
    /// The states that pass from batch to batch, in the order in which the program says so.
    pub fn carried_states(&self) -> impl Iterator<Item = CarriedState> + '_ {
        self.root().ops.iter().filter_map(|op| CarriedState::of(self, op))
    }

    /// Checks that what is said to be carried is: of a feed with one row a sequence, to a variable like it, each once.
    pub(in crate::program) fn check_carried(&self) -> Result<()> {
        let (mut feeds, mut afters) = (HashSet::new(), HashSet::new());
        for (number, block) in self.blocks.iter().enumerate() {
            for op in &block.ops {
                for after in op.writes().filter(|&id| id != VarId::NONE) {
                    let desc = self.has_var(after)?;
                    if desc.role == VarRole::Carried {
                        let fed = self.carried_by(op, number).map_err(|e| e.variable(&desc.name))?;
                        if !feeds.insert(fed) || !afters.insert(after) {
                            let error = wrong("each feed, and what it becomes, once", "one twice");
                            return Err(error.variable(&desc.name));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The feed whose state an operator of a block carries.
    fn carried_by(&self, op: &OpDesc, block: usize) -> Result<VarId> {
        if block != 0 || op.role != Role::Forward {
            return Err(wrong("a forward operator of the root block", "another one"));
        }
        let (&[before], [after]) = (op.input(BEFORE), &*op.writes().collect::<Vec<_>>()) else {
            return Err(wrong("one feed in the slot `before`, and one output", "another number"));
        };
        let (fed, made) = (self.has_var(before)?, self.has_var(*after)?);
        let shown = |spec: Option<&Spec>| spec.map_or_else(|| "a literal".to_owned(), Spec::to_string);
        let row = |spec: &&Spec| {
            spec.lod.is_empty()
                && spec.shape.first() == Some(&Extent::Batch)
                && spec.storage == StorageKind::Dense
        };
        let Some(spec) = fed.spec().filter(row).filter(|_| fed.role == VarRole::Feed) else {
            let got = format!("`{}`, {}", fed.name, shown(fed.spec()));
            return Err(malformed("carried state", "a feed with one row a sequence", got));
        };
        if made.spec() != Some(spec) {
            let expected = format!("{spec}, as the feed `{}`", fed.name);
            return Err(malformed("carried state", expected, shown(made.spec())));
        }
        Ok(before)
    }
}
