//! The registry with which a program was built in this process. A compiler with the same registry need not infer the shapes again,
//! because each operator was checked when it was appended.

use std::fmt;

use crate::operator::registry::Registry;

/// The registry whose shape rules gave the shapes of all variables; `None` if a file or a change of a variable may have given them.
/// It is neither saved nor compared.
#[derive(Default)]
#[cfg_attr(not(test), derive(Clone))]
pub(in crate::program) struct ShapeSource(pub(super) Option<Registry>);

impl ShapeSource {
    /// Records that an operator was appended; `is_first` if the program had no operator before.
    pub(super) fn append(&mut self, registry: &Registry, is_first: bool) {
        match is_first {
            true => self.0 = Some(registry.clone()),
            false => drop(self.0.take_if(|known| !known.is_clone_of(registry))),
        }
    }
}

#[cfg(test)]
impl Clone for ShapeSource {
    fn clone(&self) -> Self {
        crate::program::counted::COPIES.set(crate::program::counted::COPIES.get() + 1);
        Self(self.0.clone())
    }
}

impl PartialEq for ShapeSource {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for ShapeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "this process" } else { "unknown" })
    }
}
