//! The registry with which a program was built in this process. A compiler that uses the same registry need not infer the shapes
//! again, because each operator was checked when it was appended.

use std::fmt;

use crate::operator::registry::Registry;

/// The registry whose shape rules gave the shapes of all variables; `None` if a file or a change of a variable may have given them.
/// It is not saved with the program and not compared.
#[derive(Clone, Default)]
pub(in crate::program) struct BuiltBy(pub(in crate::program) Option<Registry>);

impl BuiltBy {
    /// Records that an operator was appended; `is_first` if the program had no operator before.
    pub(super) fn appended(&mut self, registry: &Registry, is_first: bool) {
        match is_first {
            true => self.0 = Some(registry.clone()),
            false => drop(self.0.take_if(|known| !known.is_clone_of(registry))),
        }
    }
}

impl PartialEq for BuiltBy {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for BuiltBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "this process" } else { "unknown" })
    }
}
