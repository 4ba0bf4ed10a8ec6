//! One variable, a tuple or a list of them: what operators give, what goes into a step and what comes out.

use super::builder::Var;
use crate::error::{Error, ErrorKind, Result};

/// One or several variables: what an operator gives, what goes into a step and what comes out.
pub trait Vars: Sized {
    /// As a list.
    fn list(&self) -> Vec<Var>;
    /// From a list of the same length.
    ///
    /// # Errors
    /// If the length differs.
    fn from_list(vars: &[Var]) -> Result<Self>;
}

fn wrong_count<T>(expected: usize, got: usize) -> Result<T> {
    Err(Error::of(ErrorKind::Program, "number of variables", expected.to_string(), got.to_string()))
}

impl Vars for Var {
    fn list(&self) -> Vec<Var> {
        vec![*self]
    }
    fn from_list(vars: &[Var]) -> Result<Self> {
        if let [var] = vars { Ok(*var) } else { wrong_count(1, vars.len()) }
    }
}

impl Vars for Vec<Var> {
    fn list(&self) -> Vec<Var> {
        self.clone()
    }
    fn from_list(vars: &[Var]) -> Result<Self> {
        Ok(vars.to_vec())
    }
}

macro_rules! vars_for_tuples {
    ($($count:literal => $($name:ident)+),+) => {$(
        impl Vars for ($(vars_for_tuples!(@ $name Var),)+) {
            fn list(&self) -> Vec<Var> {
                let ($($name,)+) = *self;
                vec![$($name),+]
            }
            fn from_list(vars: &[Var]) -> Result<Self> {
                if let [$($name),+] = *vars { Ok(($($name,)+)) } else { wrong_count($count, vars.len()) }
            }
        }
    )+};
    (@ $name:ident $type:ty) => { $type };
}
vars_for_tuples!(2 => a b, 3 => a b c, 4 => a b c d, 5 => a b c d e, 6 => a b c d e f);
