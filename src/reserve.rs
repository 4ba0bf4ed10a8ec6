//! Fallible reservations: memory whose size comes from outside (files, texts, settings) is reserved here before it is filled,
//! so that a refusal of the system is an error.
//!
//! A reservation and a `Vec::push` call the same global allocator, but only a reservation can return an error. If the
//! system refuses memory to any other call, the allocator of the command ends the process; [`is_fallible`]
//! distinguishes reservations from other calls.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

use crate::error::{AtCaller, Error, ErrorKind, Result};

thread_local! {
    static FALLIBLE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread is allocating memory for a reservation, whose failure becomes an error.
#[doc(hidden)]
pub fn is_fallible() -> bool {
    FALLIBLE.get()
}

/// A guard: while it lives, allocations of this thread may fail, because their failure becomes an error.
struct Fallible {
    before: bool,
}

impl Fallible {
    fn begin() -> Self {
        Self { before: FALLIBLE.replace(true) }
    }
}

impl Drop for Fallible {
    fn drop(&mut self) {
        FALLIBLE.set(self.before);
    }
}

/// Reserves memory for exactly `more` further items; returns `false` and leaves the vector unchanged if the system refuses.
#[must_use]
pub(crate) fn fits_exactly<T>(vector: &mut Vec<T>, more: usize) -> bool {
    let _fallible = Fallible::begin();
    vector.try_reserve_exact(more).is_ok()
}

/// Reserves memory for at least `more` further items, and some more for growth. Returns `false` and leaves the vector
/// unchanged if the system refuses.
#[must_use]
pub fn fits<T>(vector: &mut Vec<T>, more: usize) -> bool {
    if vector.capacity() - vector.len() >= more {
        return true;
    }
    let _fallible = Fallible::begin();
    vector.try_reserve(more).is_ok()
}

/// Reserves memory for at least `more` further items, and some more for growth. `what` names the contents in the error.
///
/// # Errors
/// Fails if the system refuses the memory.
#[track_caller]
pub fn items<T>(vector: &mut Vec<T>, more: usize, what: &str) -> Result<()> {
    match fits(vector, more) {
        true => Ok(()),
        false => Err(refused(what, vector.len().saturating_add(more).saturating_mul(size_of::<T>()))),
    }
}

/// Empties a vector and reserves memory for exactly `n` items of `what`; memory that is too small is given back first.
///
/// # Errors
/// Fails if the system refuses the memory.
#[track_caller]
pub(crate) fn emptied<T>(kept: &mut Vec<T>, n: usize, what: &str) -> Result<()> {
    kept.clear();
    if kept.capacity() < n {
        *kept = Vec::new();
        *kept = vector(n, what)?;
    }
    Ok(())
}

/// Returns an empty vector with capacity for `n` items. `what` names the contents in the error.
///
/// # Errors
/// Fails if the system refuses the memory.
#[track_caller]
pub fn vector<T>(n: usize, what: &str) -> Result<Vec<T>> {
    let mut vector = Vec::new();
    match fits_exactly(&mut vector, n) {
        true => Ok(vector),
        false => Err(refused(what, n.saturating_mul(size_of::<T>()))),
    }
}

/// Reserves memory for at least `more` further entries. `what` names the contents in the error.
///
/// # Errors
/// Fails if the system refuses the memory.
#[track_caller]
pub fn entries<K: Eq + Hash, V, S: BuildHasher>(
    map: &mut HashMap<K, V, S>,
    more: usize,
    what: &str,
) -> Result<()> {
    let _fallible = Fallible::begin();
    let bytes = map.len().saturating_add(more).saturating_mul(size_of::<(K, V)>());
    match map.try_reserve(more) {
        Ok(()) => Ok(()),
        Err(_) => Err(refused(what, bytes)),
    }
}

/// Collects the items of an iterator that can fail. `what` names the contents in the error.
///
/// # Errors
/// Fails with the first error of the iterator, or if the system refuses the memory.
#[track_caller]
pub fn collected<T>(found: impl Iterator<Item = Result<T>>, what: &str) -> Result<Vec<T>> {
    let mut all = Vec::new();
    for item in found {
        let item = item.at_caller()?;
        items(&mut all, 1, what)?;
        all.push(item);
    }
    Ok(all)
}

/// Makes the error for memory that the system refuses.
#[track_caller]
pub fn refused(what: &str, bytes: usize) -> Error {
    Error::of(ErrorKind::Memory, what, "a size that fits into memory", format!("{bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_error_and_allocations_are_fallible_only_meanwhile() {
        let most = usize::MAX / 4;
        let mut kept = vec![7u64];
        let message = items(&mut kept, most, "ids").unwrap_err().to_string();
        assert!(message.starts_with("ids: expected a size that fits into memory, got 18446744"), "{message}");
        assert!(!fits(&mut kept, most) && !fits_exactly(&mut kept, most) && kept == [7]);
        assert!(vector::<u8>(usize::MAX, "line").is_err() && vector::<u8>(3, "line").is_ok());
        assert!(entries(&mut HashMap::<u8, u8>::new(), most, "words").is_err());
        assert!(!is_fallible());
        let (outer, inner) = (Fallible::begin(), Fallible::begin());
        drop(inner);
        assert!(is_fallible());
        drop(outer);
        assert!(!is_fallible());
    }
}
