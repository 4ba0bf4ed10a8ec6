//! Access to the error that a wrong call returned, or recorded.

// Several test binaries have this module, and each uses its own part of it.
#![allow(dead_code)]

use unpadded::program::Vars;
use unpadded::{Builder, Error, Result, Var};

/// The outcome of a call: a result, or variables of a builder.
pub(crate) trait Outcome: Sized {
    /// Returns the error, if any: for variables, the last error of the builder, which made a variable unknown.
    fn error(self) -> Option<Error>;

    /// The error of a call that does not fit.
    #[track_caller]
    fn refused(self) -> Error {
        self.error().expect("it was built")
    }
}

impl<T> Outcome for Result<T> {
    fn error(self) -> Option<Error> {
        self.err()
    }
}

fn written(vars: &[Var]) -> Option<Error> {
    let unknown = vars.iter().find(|var| format!("{var:?}") == "unknown")?;
    Some(last(&Builder::of(*unknown)?))
}

macro_rules! outcomes {
    ($($(#[$generic:ident])? $type:ty),*) => {$(
        impl $(<const $generic: usize>)? Outcome for $type {
            fn error(self) -> Option<Error> {
                written(&self.list())
            }
        }
    )*};
}
outcomes!(
    Var,
    (Var, Var),
    (Var, Var, Var),
    #[N]
    [Var; N],
    Vec<Var>
);

/// The last error of a builder.
pub(crate) fn last(net: &Builder) -> Error {
    net.check().unwrap_err().all().last().unwrap().clone()
}

/// The result of a call that gives no variable.
pub(crate) fn noted<T>(net: &Builder, call: impl FnOnce() -> T) -> Result<T> {
    let count = || net.check().err().map_or(0, |errors| errors.all().count());
    let before = count();
    let made = call();
    if count() > before { Err(last(net)) } else { Ok(made) }
}
