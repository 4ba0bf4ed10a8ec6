//! Slots that an operator uses although it lacks them, or although no variable is bound: the call then returns an error.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::extent::{Levels, Shape, Spec};
use super::signature::{Signature, Slot};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{DType, StorageKind};

/// The spec that a context returns for a slot without a variable; the call then fails.
pub(crate) static NOTHING: Spec = Spec {
    dtype: DType::Bool,
    shape: Shape::new_const(),
    lod: Levels::new_const(),
    storage: StorageKind::Dense,
};

/// The slot without a variable that a call used, plus 1; 0 if there is none.
#[derive(Debug, Default)]
pub(crate) struct MissingSlot(AtomicUsize);

impl Clone for MissingSlot {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl MissingSlot {
    /// Returns the variables of a slot; notes that the slot is missing if the operator lacks it.
    pub(crate) fn slot<'a, T>(&self, lists: &'a [Vec<T>], slot: usize) -> &'a [T] {
        lists.get(slot).map_or_else(|| self.without(slot, &[][..]), Vec::as_slice)
    }

    /// Returns the spec of variable `k` of a slot; notes that the slot is missing if there is no such variable.
    pub(crate) fn spec<'a>(&self, lists: &'a [Vec<Spec>], slot: usize, k: usize) -> &'a Spec {
        self.slot(lists, slot).get(k).unwrap_or_else(|| self.without(slot, &NOTHING))
    }

    #[cold]
    fn without<T>(&self, slot: usize, instead: T) -> T {
        self.0.store(slot.saturating_add(1), Ordering::Relaxed);
        instead
    }

    /// Returns the outcome of a call, or an error if the call used a slot without a variable.
    pub(crate) fn checked<T>(&self, signature: Signature, outcome: Result<T>) -> Result<T> {
        match self.0.load(Ordering::Relaxed) {
            0 => outcome,
            slot => {
                self.0.store(0, Ordering::Relaxed);
                Err(missing_slot(signature, slot - 1))
            }
        }
    }
}

/// Returns the error that an operator uses a slot without a variable.
pub(crate) fn missing_slot(signature: Signature, slot: usize) -> Error {
    let names: Vec<&str> = signature.inputs.iter().chain(signature.outputs).map(|slot| slot.name).collect();
    let expected = format!("a variable in a slot of the operator ({})", names.join(", "));
    Error::of(ErrorKind::Program, format!("slot {slot}, which the operator uses"), expected, "none")
}

/// Returns the name of a slot for messages; an empty name if the operator lacks the slot, because the call then fails anyway.
pub(crate) fn name_of(slots: &'static [Slot], slot: usize) -> &'static str {
    slots.get(slot).map_or("", |slot| slot.name)
}
