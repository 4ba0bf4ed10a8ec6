//! Groups of variables (one, an array, a tuple or a list) as outputs of operators and as inputs and outputs of step blocks.

use super::var::Var;

/// One variable, or an array, a tuple or a list of variables: the inputs or outputs of a step block.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no variable of a program, nor an array, a tuple or a list of them",
    note = "a step block takes and returns variables: does its closure end with the output of the step?"
)]
pub trait Vars: Sized {
    /// Returns the variables as a list.
    fn list(&self) -> Vec<Var>;
    /// Returns a group of the same form with the variables `vars`, one for each variable of [`Self::list`]. If `vars` has fewer
    /// variables than the group, the remaining variables of the group are kept.
    #[must_use]
    fn with(&self, vars: &[Var]) -> Self;
}

/// The result type of a call that appends an operator: one variable, an array, a tuple or a list.
pub trait Outputs: Sized {
    /// Builds the result from an operator's outputs in the order of the slots; `None` if this type cannot hold this number of
    /// outputs.
    fn of(vars: &[Var]) -> Option<Self>;
    /// Returns the result of a refused call: `unknown` in every position. A list has one `unknown` per output slot.
    fn unknown(unknown: Var, slots: usize) -> Self;
}

/// Returns unknown variables, for a method that is called on a variable whose builder is not on this thread.
#[doc(hidden)]
pub fn unknown_of<V: Outputs>(var: Var) -> V {
    V::unknown(Var::unknown(var.builder), 1)
}

impl Vars for Var {
    fn list(&self) -> Vec<Var> {
        vec![*self]
    }
    fn with(&self, vars: &[Var]) -> Self {
        vars.first().copied().unwrap_or(*self)
    }
}

impl Outputs for Var {
    fn of(vars: &[Var]) -> Option<Self> {
        if let [var] = vars { Some(*var) } else { None }
    }
    fn unknown(unknown: Var, _: usize) -> Self {
        unknown
    }
}

impl Vars for Vec<Var> {
    fn list(&self) -> Vec<Var> {
        self.clone()
    }
    fn with(&self, vars: &[Var]) -> Self {
        self.iter().enumerate().map(|(i, var)| vars.get(i).copied().unwrap_or(*var)).collect()
    }
}

impl Outputs for Vec<Var> {
    fn of(vars: &[Var]) -> Option<Self> {
        Some(vars.to_vec())
    }
    fn unknown(unknown: Var, slots: usize) -> Self {
        vec![unknown; slots]
    }
}

impl<const N: usize> Vars for [Var; N] {
    fn list(&self) -> Vec<Var> {
        self.to_vec()
    }
    fn with(&self, vars: &[Var]) -> Self {
        std::array::from_fn(|i| vars.get(i).copied().unwrap_or(self[i]))
    }
}

impl<const N: usize> Outputs for [Var; N] {
    fn of(vars: &[Var]) -> Option<Self> {
        vars.try_into().ok()
    }
    fn unknown(unknown: Var, _: usize) -> Self {
        [unknown; N]
    }
}

/// The output of a layer, with the layer's `N` states.
impl<const N: usize> Vars for (Var, [Var; N]) {
    fn list(&self) -> Vec<Var> {
        std::iter::once(self.0).chain(self.1).collect()
    }
    fn with(&self, vars: &[Var]) -> Self {
        (self.0.with(vars), self.1.with(vars.get(1..).unwrap_or_default()))
    }
}

impl<const N: usize> Outputs for (Var, [Var; N]) {
    fn of(vars: &[Var]) -> Option<Self> {
        let (first, rest) = vars.split_first()?;
        Some((*first, rest.try_into().ok()?))
    }
    fn unknown(unknown: Var, _: usize) -> Self {
        (unknown, [unknown; N])
    }
}

macro_rules! tuples {
    ($($($name:ident)+),+) => {$(
        impl Vars for ($(tuples!(@ $name Var),)+) {
            fn list(&self) -> Vec<Var> {
                let ($($name,)+) = *self;
                vec![$($name),+]
            }
            fn with(&self, vars: &[Var]) -> Self {
                let ($($name,)+) = *self;
                let mut vars = vars.iter();
                ($(vars.next().copied().unwrap_or($name),)+)
            }
        }

        impl Outputs for ($(tuples!(@ $name Var),)+) {
            fn of(vars: &[Var]) -> Option<Self> {
                if let [$($name),+] = *vars { Some(($($name,)+)) } else { None }
            }
            fn unknown(unknown: Var, _: usize) -> Self {
                ($(tuples!(@ $name unknown),)+)
            }
        }
    )+};
    (@ $name:ident $in_its_place:tt) => { $in_its_place };
}
tuples!(a b, a b c, a b c d, a b c d e, a b c d e f);
