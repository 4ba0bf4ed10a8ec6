//! Columns: variables of step blocks that are columns of other variables, and therefore have no memory of their own.

use std::collections::HashMap;

use crate::executor::plan::Views;
use crate::operator::VarId;

/// The variables that are some or all columns of another variable.
#[derive(Debug, Clone, Default)]
pub(crate) struct Columns {
    of: Views,
    /// For each variable, the variables that were made columns of it. The list may contain a variable that a later call of
    /// [`Self::view`] made columns of a third variable; [`Self::parts_of`] skips this variable.
    parts: HashMap<VarId, Vec<VarId>>,
}

impl Columns {
    /// Returns the variable whose memory holds `var`.
    pub(crate) fn whole_of(&self, var: VarId) -> VarId {
        self.position_of(var).0
    }

    /// Returns the variable whose memory holds `var`, and the column of that variable at which `var` begins.
    pub(crate) fn position_of(&self, var: VarId) -> (VarId, usize) {
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

    /// Returns the variables that are some or all columns of a variable.
    pub(crate) fn parts_of(&self, whole: VarId) -> impl Iterator<Item = VarId> {
        let owner = move |part: &VarId| self.of.get(part).is_some_and(|(owner, _)| *owner == whole);
        self.parts.get(&whole).into_iter().flatten().copied().filter(owner)
    }

    /// Returns all variables that are columns of another variable, each with that variable and the first column.
    pub(crate) fn all(&self) -> &Views {
        &self.of
    }
}
