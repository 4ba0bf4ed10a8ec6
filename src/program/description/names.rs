//! An index of the names in a program. The index finds a variable by its name, and the lowest number that may be free for a name
//! such as `fc_2`, without a search through all variables.
//!
//! The index is not saved with the program and not compared. The index is outdated after
//! [`Program::var_mut`](crate::program::Program::var_mut), and after a program was read from a file. A lookup then searches all
//! variables, until the next variable is added.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use super::var_desc::VarDesc;
use crate::operator::extent::VarId;

#[derive(Clone, Default)]
pub(in crate::program) struct Names {
    state: RandomState,
    /// For each hash of a name, the first variable whose name has this hash.
    first: HashMap<u64, VarId>,
    /// The variables whose names have the same hash as the name of a variable in `first`.
    others: Vec<VarId>,
    /// The number of variables that the index contains.
    indexed: usize,
    /// A variable that may have been renamed after it was indexed, and the name under which the index contains the variable.
    loose: Option<(VarId, String)>,
    numbers: Numbers,
}

/// Two indices always count as equal: a comparison of two programs already compares the names of their variables.
impl PartialEq for Names {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} names", self.indexed)
    }
}

/// The lowest free number, at least 2, for each stem of a numbered name. For example, the name `add_2` has the stem `add`.
#[derive(Clone, Default)]
struct Numbers(HashMap<String, u32>);

/// Splits a numbered name such as `add_2` into the stem and the number; `None` for another name.
fn numbered(name: &str) -> Option<(&str, u32)> {
    let (stem, digits) = name.rsplit_once('_')?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    let number = digits.parse().ok().filter(|&n| plain && n < u32::MAX)?;
    Some((stem, number))
}

impl Numbers {
    fn free(&self, stem: &str) -> u32 {
        self.0.get(stem).copied().unwrap_or(2)
    }

    fn take(&mut self, name: &str, taken: impl Fn(&str) -> bool) {
        let Some((stem, number)) = numbered(name) else { return };
        let mut free = self.free(stem);
        if free == number {
            free += 1;
            while free < u32::MAX && taken(&format!("{stem}_{free}")) {
                free += 1;
            }
            self.0.insert(stem.to_owned(), free);
        }
    }

    fn give_back(&mut self, name: &str) {
        let Some((stem, number)) = numbered(name) else { return };
        if let Some(free) = self.0.get_mut(stem) {
            *free = (*free).min(number.max(2));
        }
    }
}

impl Names {
    /// Returns whether the index contains all variables under their present names.
    pub(super) fn current(&self, vars: &[VarDesc]) -> bool {
        let kept = |(id, name): &(VarId, String)| vars.get(id.0 as usize).is_some_and(|v| v.name == *name);
        self.indexed == vars.len() && self.loose.as_ref().is_none_or(kept)
    }

    /// Returns the variable with this name; if several variables have it, the variable with the lowest number.
    pub(super) fn get(&self, vars: &[VarDesc], name: &str) -> Option<VarId> {
        let known = self.first.get(&self.state.hash_one(name)).into_iter().chain(&self.others);
        known.copied().filter(|id| vars.get(id.0 as usize).is_some_and(|v| v.name == name)).min()
    }

    /// Updates the index: indexes a renamed variable again, and adds new variables.
    pub(in crate::program) fn settle(&mut self, vars: &[VarDesc]) {
        if let Some((id, name)) = self.loose.take()
            && vars.get(id.0 as usize).is_some_and(|var| var.name != name)
        {
            self.remove(id, &name, vars);
            self.insert(id, vars);
        }
        while self.indexed < vars.len() {
            self.insert(VarId(self.indexed as u32), vars);
            self.indexed += 1;
        }
    }

    /// Records that a variable may be renamed later.
    pub(super) fn loosen(&mut self, id: VarId, vars: &[VarDesc]) {
        if self.loose.as_ref().is_none_or(|(known, _)| *known != id) {
            self.settle(vars);
            self.loose = vars.get(id.0 as usize).map(|var| (id, var.name.clone()));
        }
    }

    /// Returns the lowest number that may be free for numbered names with the stem `name`.
    pub(super) fn free_number(&self, vars: &[VarDesc], name: &str) -> u32 {
        if self.current(vars) { self.numbers.free(name) } else { 2 }
    }

    fn insert(&mut self, id: VarId, vars: &[VarDesc]) {
        let name = vars[id.0 as usize].name.as_str();
        let known = *self.first.entry(self.state.hash_one(name)).or_insert(id);
        if known != id {
            self.others.push(id);
        }
        let mut numbers = std::mem::take(&mut self.numbers);
        numbers.take(name, |name| self.get(vars, name).is_some());
        self.numbers = numbers;
    }

    /// Removes a variable from the index, which contains the variable under `name`.
    fn remove(&mut self, id: VarId, name: &str, vars: &[VarDesc]) {
        let hash = self.state.hash_one(name);
        self.others.retain(|&other| other != id);
        if self.first.get(&hash) == Some(&id) {
            self.first.remove(&hash);
            let named = |&other: &VarId| {
                vars.get(other.0 as usize).is_some_and(|var| self.state.hash_one(&var.name) == hash)
            };
            if let Some(next) = self.others.iter().copied().filter(named).min() {
                self.first.insert(hash, next);
                self.others.retain(|&other| other != next);
            }
        }
        if self.get(vars, name).is_none_or(|other| other == id) {
            self.numbers.give_back(name);
        }
    }
}

#[cfg(test)]
mod tests;
