//! What a trainer was told, with the line that told it.

use std::ops::{Deref, DerefMut};
use std::panic::Location;

/// What a trainer was told, and the line that told it.
pub(super) struct Setting<T> {
    pub(super) what: T,
    pub(super) line: &'static Location<'static>,
}

impl<T> Setting<T> {
    #[track_caller]
    pub(super) fn new(what: T) -> Self {
        Self { what, line: Location::caller() }
    }
}

impl<T> Deref for Setting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.what
    }
}

impl<T> DerefMut for Setting<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.what
    }
}
