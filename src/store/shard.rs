//! A shard: some rows of a value, with the rule's state, and the compiled update that moves them.

use super::rule::{Rule, VALUE};
use crate::error::{Error, Result};
use crate::executor::{Executor, Run, Scope};
use crate::kernels::arena::Plain;
use crate::program::{Program, Registry, VarId};
use crate::tensor::{Dense, Element, Storage, StorageKind, Variable};

/// The update of a shard by gradients of one storage.
struct Update {
    executor: Executor,
    grad: VarId,
}

impl Update {
    fn new((program, grad): &(Program, VarId), registry: &Registry) -> Result<Self> {
        // Shards are what the threads of a store share out; within one there is one thread.
        Ok(Self { executor: Executor::new(program, registry, &[], 1)?, grad: *grad })
    }
}

/// Some rows of a value.
pub(super) struct Shard {
    scope: Scope,
    dense: Update,
    /// None if the rule refuses gradients of selected rows.
    rows: Option<Update>,
}

impl Shard {
    /// A shard of these rows, whose state starts as the rule says.
    ///
    /// # Errors
    /// If the rule does not fit, or there is no memory for its state.
    pub(super) fn new(value: Dense, rule: &Rule, registry: &Registry) -> Result<Self> {
        let (dtype, dims) = (value.dtype(), value.shape().to_vec());
        let dense = rule.program(registry, (dtype, &dims), StorageKind::Dense)?;
        let rows = match dims.is_empty() {
            true => None,
            false => rule.program(registry, (dtype, &dims), StorageKind::SelectedRows).ok(),
        };
        let mut scope = Scope::new();
        scope.set(VALUE, value)?;
        scope.initialize(&dense.0)?;
        let rows = rows.map(|program| Update::new(&program, registry)).transpose()?;
        Ok(Self { scope, dense: Update::new(&dense, registry)?, rows })
    }

    /// Moves the rows by a gradient, which was found to fit and to be finite.
    pub(super) fn apply(&mut self, gradient: Storage, step: u64) -> Result<()> {
        let update = match gradient.kind() {
            StorageKind::Dense => &mut self.dense,
            kind => match &mut self.rows {
                Some(rows) => rows,
                None => return Err(Error::new("gradient", "a dense one", kind.name())),
            },
        };
        let fed = Variable::new(gradient, None)?;
        update.executor.run(&mut self.scope, &Run::train(&[(update.grad, &fed)], step))
    }

    /// Looks at the numbers of the value, or of a state of the rule by the name of its slot.
    pub(super) fn read<T: Plain + Element, R>(
        &mut self,
        state: Option<&str>,
        look: impl FnOnce(&[T]) -> R,
    ) -> Result<R> {
        self.scope.read(&named(state), look)
    }

    /// Sets a state of the rule.
    pub(super) fn set(&mut self, state: &str, value: Dense) -> Result<()> {
        self.scope.set(&named(Some(state)), value)
    }
}

fn named(state: Option<&str>) -> String {
    state.map_or_else(|| VALUE.to_owned(), |slot| format!("{VALUE}.{slot}"))
}
