//! Checks of predictors, sessions and searches: unknown names, and outputs that are NaN.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{Storage, Variable};

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that can panic runs while a lock of this module is held, so the value is consistent even if the mutex is poisoned.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks that no output has a NaN, which a caller could mistake for a prediction.
#[track_caller]
pub(super) fn numbers(values: &[Variable], outputs: &[impl AsRef<str>]) -> Result<()> {
    for (value, name) in values.iter().zip(outputs) {
        let (stored, position) = match value.storage() {
            Storage::Dense(dense) => (dense, "row"),
            Storage::SelectedRows(rows) => (rows.value(), "stored row"),
            Storage::Csr(csr) => (csr.values(), "entry"),
            Storage::Coo(coo) => (coo.values(), "entry"),
        };
        if let Some((at, number)) = stored.find_float(f64::is_nan) {
            let (what, row) = (format!("output `{}`", name.as_ref()), at / stored.width().max(1));
            let got = format!("{number} in {position} {row}");
            return Err(Error::of(ErrorKind::NotFinite, what, "numbers", got));
        }
    }
    Ok(())
}

pub(super) fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let expected = format!("a known name ({})", listed(known));
    Error::of(ErrorKind::Program, what, expected, format!("`{name}`"))
}

pub(super) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
