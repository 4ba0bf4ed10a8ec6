//! Counts the copies of programs and the compilations of a thread, for tests.

use std::cell::Cell;

thread_local! {
    static COUNTS: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
}

/// A field of [`Program`](super::Program) that counts the copies of the program.
#[derive(Debug, Default, PartialEq)]
pub(in crate::program) struct CopyCounter;

impl Clone for CopyCounter {
    fn clone(&self) -> Self {
        COUNTS.set([COUNTS.get()[0] + 1, COUNTS.get()[1]]);
        Self
    }
}

pub(crate) fn count_compilation() {
    COUNTS.set([COUNTS.get()[0], COUNTS.get()[1] + 1]);
}

/// Returns the copies and the compilations since the last call.
pub(crate) fn taken() -> [usize; 2] {
    COUNTS.replace([0; 2])
}
