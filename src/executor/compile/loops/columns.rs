//! Columns: variables of step blocks that are columns of other variables, and so have no memory of their own.

use std::collections::HashMap;

use crate::executor::plan::Views;
use crate::operator::VarId;

/// Variables that are columns of another variable, or all of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Columns {
    of: Views,
    /// Variables that were made columns of a variable; some may be columns of another variable by now.
    parts: HashMap<VarId, Vec<VarId>>,
}

impl Columns {
    /// The variable whose memory holds `var`.
    pub(crate) fn whole_of(&self, var: VarId) -> VarId {
        self.place_of(var).0
    }

    /// The variable whose memory holds `var`, and the first column of `var` in that variable.
    pub(crate) fn place_of(&self, var: VarId) -> (VarId, usize) {
        self.of.get(&var).copied().unwrap_or((var, 0))
    }

    pub(crate) fn contains(&self, var: VarId) -> bool {
        self.of.contains_key(&var)
    }

    /// Makes a variable a view of columns of another variable, from column `column` on.
    pub(crate) fn view(&mut self, part: VarId, (whole, column): (VarId, usize)) {
        self.of.insert(part, (whole, column));
        self.parts.entry(whole).or_default().push(part);
    }

    /// The variables that are columns of a variable, or are all of it.
    pub(crate) fn parts_of(&self, whole: VarId) -> impl Iterator<Item = VarId> {
        let of = move |part: &VarId| self.of.get(part).is_some_and(|(of, _)| *of == whole);
        self.parts.get(&whole).into_iter().flatten().copied().filter(of)
    }

    /// All views, each with the whole variable and the first column in it.
    pub(crate) fn all(&self) -> &Views {
        &self.of
    }
}
