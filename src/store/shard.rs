//! A shard: some rows of a value, with the rule's states of these rows and the compiled update.

use super::merge::checked_finite;
use super::rule::{HISTORY, Rule, SETTLED, VALUE};
use crate::error::{Error, Result};
use crate::executor::{Executor, Run, Scope};
use crate::kernels::arena::Plain;
use crate::operator::{Registry, VarId};
use crate::program::{Program, Role};
use crate::tensor::{Dense, Element, Storage, StorageKind, Variable};

/// The compiled update of a shard, for gradients of one storage (dense or selected rows).
struct Update {
    executor: Executor,
    grad: VarId,
}

impl Update {
    fn new((program, grad): &(Program, VarId), registry: &Registry) -> Result<Self> {
        // The update of a shard uses one thread, since the threads of a store work on different shards.
        Ok(Self { executor: Executor::new(program, registry, &[], 1)?, grad: *grad })
    }
}

/// The compiled programs that apply pending moves: one program for given rows, one for all rows. An exact rule moves every row
/// in each step, but a push of selected rows updates only the selected rows; the moves of the other rows stay pending.
struct Settling {
    some: Executor,
    ids: VarId,
    all: Executor,
    /// Whether some row may have pending moves. There is no history of updates before the first push of selected rows.
    owes: bool,
}

impl Settling {
    fn new(rule: &Rule, update: &Program, registry: &Registry) -> Result<Option<Self>> {
        let Some((mut some, ids)) = rule.settling(update, registry)? else { return Ok(None) };
        let Some(all) = some.settling() else { return Ok(None) };
        // The operators get the role `Update`, since operators with this role run even if no later operator reads the
        // rows that they write.
        some.blocks[0].ops.iter_mut().for_each(|op| op.role = Role::Update);
        let compiled = |program| Executor::new(program, registry, &[], 1);
        Ok(Some(Self { some: compiled(&some)?, ids, all: compiled(&all)?, owes: false }))
    }
}

/// Some rows of a value, with the states and programs that update these rows.
pub(super) struct Shard {
    scope: Scope,
    dense: Update,
    /// The update for gradients of selected rows; `None` if the rule refuses selected rows.
    rows: Option<Update>,
    settling: Option<Settling>,
}

impl Shard {
    /// Makes a shard with the rows `value` and the initial state of the rule.
    ///
    /// # Errors
    /// Returns an error if the rule refuses the value, or if memory is exhausted.
    pub(super) fn new(value: Dense, rule: &Rule, registry: &Registry) -> Result<Self> {
        let (dtype, dims) = (value.dtype(), value.shape().to_vec());
        let value = Storage::from(value);
        // The value is checked again here: selected rows with equal row numbers were added up, and a sum may be infinite.
        checked_finite(&value, "value of a key")?;
        let value = value.into_dense()?;
        let dense = rule.program(registry, (dtype, &dims), StorageKind::Dense)?;
        let rows = match dims.is_empty() {
            true => None,
            false => rule.program(registry, (dtype, &dims), StorageKind::SelectedRows).ok(),
        };
        let mut scope = Scope::new();
        scope.set(VALUE, value)?;
        scope.initialize(&dense.0)?;
        let settling = rows.as_ref().map(|(update, _)| Settling::new(rule, update, registry));
        let settling = settling.transpose()?.flatten();
        let rows = rows.map(|program| Update::new(&program, registry)).transpose()?;
        Ok(Self { scope, dense: Update::new(&dense, registry)?, rows, settling })
    }

    /// Applies the pending moves of the rows with the row numbers `rows`.
    pub(super) fn settle(&mut self, rows: &[i64]) -> Result<()> {
        match &mut self.settling {
            Some(settling) if settling.owes => {
                let ids = Variable::dense(Dense::from_vec(&[rows.len()], rows.to_vec())?);
                settling.some.run(&mut self.scope, &Run::train(&[(settling.ids, &ids)], 0))
            }
            _ => Ok(()),
        }
    }

    /// Applies the pending moves of all rows, and clears the history of updates.
    pub(super) fn settle_all(&mut self) -> Result<()> {
        match &mut self.settling {
            Some(settling) if settling.owes => {
                settling.all.run(&mut self.scope, &Run::train(&[], 0))?;
                for kept in [HISTORY, SETTLED] {
                    self.scope.write::<f64, _>(&named(Some(kept)), |numbers| numbers.fill(0.0))?;
                }
                settling.owes = false;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Updates the rows of the shard by a gradient that was checked.
    pub(super) fn apply(&mut self, gradient: Storage, step: u64) -> Result<()> {
        match &gradient {
            Storage::SelectedRows(rows) => self.settle(rows.row_ids())?,
            _ => self.settle_all()?,
        }
        let update = match gradient.kind() {
            StorageKind::Dense => &mut self.dense,
            kind => match &mut self.rows {
                Some(rows) => rows,
                None => return Err(Error::new("gradient", "a dense gradient", kind.name())),
            },
        };
        if let Some(settling) =
            self.settling.as_mut().filter(|s| !s.owes && gradient.kind() == StorageKind::SelectedRows)
        {
            self.scope.initialize(update.executor.program())?;
            settling.owes = true;
        }
        let fed = Variable::new(gradient, None)?;
        update.executor.run(&mut self.scope, &Run::train(&[(update.grad, &fed)], step))
    }

    /// Calls `look` with the numbers of the value or, if `state` is a slot of the rule, with the numbers of this state.
    pub(super) fn read<T: Plain + Element, R>(
        &mut self,
        state: Option<&str>,
        look: impl FnOnce(&[T]) -> R,
    ) -> Result<R> {
        self.scope.read(&named(state), look)
    }

    /// Sets the rule's state in the slot `state` to `value`.
    pub(super) fn set(&mut self, state: &str, value: Dense) -> Result<()> {
        self.scope.set(&named(Some(state)), value)
    }
}

fn named(state: Option<&str>) -> String {
    state.map_or_else(|| VALUE.to_owned(), |slot| format!("{VALUE}.{slot}"))
}
