//! What a builder knows of names: the scopes that are open, and the names that layers have.

use std::collections::{HashMap, HashSet};
use std::panic::Location;

use crate::program::description::program::Program;

/// What a builder knows of names.
#[derive(Default)]
pub(super) struct Scopes {
    /// The scopes that are open, each with its whole name, outermost first.
    pub(super) open: Vec<String>,
    /// The line of each layer that is being called, outermost first.
    pub(super) lines: Vec<&'static Location<'static>>,
    /// Names that a new layer may not have: those of layers, and what the variables' names begin with, up to a dot.
    taken: HashSet<String>,
    /// How many variables of the program were looked through.
    seen: usize,
    /// For each wish, the number to try next: a name that is taken stays taken.
    counts: HashMap<String, usize>,
}

impl Scopes {
    /// The name of something in the scope that is open.
    pub(super) fn whole(&self, name: &str) -> String {
        match self.open.last() {
            Some(scope) if !scope.is_empty() => format!("{scope}.{name}"),
            _ => name.to_owned(),
        }
    }

    /// A free name for a layer in the scope that is open, kept for it: `wish`, or `wish_2` and so on; without a wish the
    /// kind and a count.
    pub(super) fn layer_name(&mut self, program: &Program, kind: &str, wish: Option<&str>) -> String {
        for (_, var) in program.vars().skip(self.seen) {
            let starts = var.name.match_indices('.').map(|(end, _)| &var.name[..end]);
            let new: Vec<String> =
                starts.filter(|start| !self.taken.contains(*start)).map(str::to_owned).collect();
            self.taken.extend(new);
        }
        self.seen = program.vars().len();
        let base = self.whole(wish.unwrap_or(kind));
        // A wish and a kind of the same name have counts of their own.
        let key = format!("{base}{}", if wish.is_some() { "" } else { "_" });
        let mut number = self.counts.get(&key).copied().unwrap_or(0);
        loop {
            let name = match (wish, number) {
                (Some(_), 0) => base.clone(),
                (Some(_), n) => format!("{base}_{}", n + 1),
                (None, n) => format!("{base}_{n}"),
            };
            number += 1;
            if self.taken.insert(name.clone()) {
                self.counts.insert(key, number);
                return name;
            }
        }
    }
}
