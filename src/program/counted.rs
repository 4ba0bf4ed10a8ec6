//! The copies of programs and the compilations of a thread, for tests.

use std::cell::Cell;

thread_local! {
    pub(crate) static COPIES: Cell<usize> = const { Cell::new(0) };
    pub(crate) static COMPILATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Returns the copies and the compilations since the last call.
pub(crate) fn taken() -> [usize; 2] {
    [COPIES.take(), COMPILATIONS.take()]
}
