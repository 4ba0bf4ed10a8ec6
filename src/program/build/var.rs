//! A variable of the program that is being built, and where its builder is found.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};

use super::builder::{Builder, State};
use crate::error::{Error, ErrorKind};
use crate::program::spec::extent::{BlockId, VarId};

/// A variable of the program that is being built: a small copyable number. What is computed from it is written as in a
/// paper, `(x.linear(16) + h.linear(16)).tanh()`: each operator and layer with one main input is a method, and `+ - * /`
/// take a variable or a number (`f64` or `i32`) on either side. A method appends to the innermost step block that is
/// open, a method of a [`Builder`] to that builder's block.
///
/// A call that does not fit gives an *unknown* variable. What is computed from an unknown variable is unknown too, and
/// no more is said of it: [`Builder::finish`] returns what was wrong.
///
/// A builder lives on one thread. What is asked of a variable whose builder is gone, or on another thread, is an error that
/// this thread keeps for the next [`Builder::check`], [`Builder::finish`] or [`Trainer::new`](crate::train::Trainer::new).
///
/// ```
/// use unpadded::{Builder, DType};
/// let net = Builder::new();
/// let x = net.feed("x", DType::F32, &[8], 1);
/// let y = (1.0 - x.linear(4)).tanh();
/// assert_eq!(format!("{y:?}"), "`tanh`: f32[rows0, 4] lod(0)");
/// assert_eq!(format!("{:?}", x + y), "unknown"); // 8 columns and 4
/// let error = net.finish().unwrap_err().to_string();
/// assert!(error.starts_with("add #3: input `y`: expected rows of 8 numbers, as `x` has, or of one"), "{error}");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Var {
    pub(super) builder: u64,
    pub(super) id: VarId,
}

/// The number that no variable has.
const UNKNOWN: VarId = VarId(u32::MAX);

/// The number that no builder has.
const NO_BUILDER: u64 = u64::MAX;

impl Var {
    /// An unknown variable of a builder.
    pub(super) fn unknown(builder: u64) -> Self {
        Self { builder, id: UNKNOWN }
    }

    /// A variable of a program that was loaded: it has no builder, and a number.
    pub(crate) fn of_program(id: VarId) -> Self {
        Self { builder: NO_BUILDER, id }
    }

    pub(super) fn is_unknown(self) -> bool {
        self.id == UNKNOWN
    }

    /// Its number in the program; that of an unknown variable is no variable's.
    pub fn id(self) -> VarId {
        self.id
    }
}

#[cfg(test)]
impl Var {
    /// The last error of its builder, which made this unknown.
    pub(crate) fn refused(self) -> Error {
        assert!(self.is_unknown(), "it was built: {self:?}");
        Builder::of(self).and_then(|net| net.check().err()?.all().last().cloned()).expect("a refusal")
    }
}

impl From<Var> for VarId {
    fn from(var: Var) -> Self {
        var.id
    }
}

/// Name, dtype, shape and LoD levels, as [`Builder::describe`].
impl fmt::Debug for Var {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = Builder::state_of(self.builder);
        let state = state.as_ref().and_then(|state| state.try_borrow().ok());
        match state {
            Some(state) => f.write_str(&state.describe(*self)),
            None if self.is_unknown() => f.write_str("unknown"),
            None => write!(f, "variable {} of a builder that is not here", self.id.0),
        }
    }
}

/// Builder numbers are the process's, so that a variable is never taken for another builder's.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The builders of this thread.
    static BUILDERS: RefCell<HashMap<u64, Weak<RefCell<State>>>> = RefCell::default();
    /// Errors about variables whose builder is not here.
    static STRAY: RefCell<Vec<Error>> = const { RefCell::new(Vec::new()) };
}

/// The number of a builder; with it goes its entry among those of the thread.
pub(super) struct Number(pub(super) u64);

impl Drop for Number {
    fn drop(&mut self) {
        // Where the thread ends, its list is gone already.
        let _ = BUILDERS.try_with(|builders| builders.try_borrow_mut().map(|mut all| all.remove(&self.0)));
    }
}

/// Puts a new builder's state where its variables find it.
pub(super) fn entered(make: impl FnOnce(Number) -> State) -> Rc<RefCell<State>> {
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let state = Rc::new(RefCell::new(make(Number(number))));
    BUILDERS.with(|builders| builders.borrow_mut().insert(number, Rc::downgrade(&state)));
    state
}

/// The errors about variables whose builder is not here, which this thread has kept.
pub(super) fn stray_errors() -> Vec<Error> {
    STRAY.take()
}

impl Builder {
    /// The builder of a variable, for what is appended to the innermost step block that is open. Methods of [`Var`] that a
    /// crate of one's own adds begin with it; `operator!` writes them.
    ///
    /// `None` if the builder is gone or on another thread; the thread keeps the error.
    #[track_caller]
    pub fn of(var: Var) -> Option<Builder> {
        if let Some(state) = Self::state_of(var.builder) {
            let block = state.borrow().innermost();
            return Some(Builder { number: var.builder, state, block });
        }
        if !var.is_unknown() {
            let got = "one of a builder that was finished or dropped, or is on another thread";
            let error = Error::of(ErrorKind::Program, "variable", "one of a builder of this thread", got);
            let error = error.called(Location::caller());
            STRAY.with_borrow_mut(|errors| errors.push(error));
        }
        None
    }

    fn state_of(number: u64) -> Option<Rc<RefCell<State>>> {
        BUILDERS.try_with(|builders| builders.try_borrow().ok()?.get(&number)?.upgrade()).ok()?
    }
}

impl State {
    /// The block of the innermost step that is open; the root without one.
    pub(super) fn innermost(&self) -> BlockId {
        self.open.last().map_or(BlockId(0), |step| step.block)
    }
}
