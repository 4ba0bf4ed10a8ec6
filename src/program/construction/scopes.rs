//! The names that a builder gives: open scopes, and names of layers.

use std::collections::{HashMap, HashSet};
use std::panic::Location;

use crate::program::description::program::Program;

/// The names of a builder's layers and scopes, and the lines of its layer calls.
#[derive(Default)]
pub(super) struct Scopes {
    /// The full names of the open scopes, outermost first.
    pub(super) open: Vec<String>,
    /// The source line of each layer call in progress, outermost first.
    pub(super) lines: Vec<&'static Location<'static>>,
    /// Full names that a new layer cannot have: names of other layers, and the part of a variable's name before each dot.
    taken: HashSet<String>,
    /// The number of variables whose name prefixes are in `taken` already.
    seen: usize,
    /// The next number to try for each layer name. A taken name is never freed, so lower numbers are not tried again.
    counts: HashMap<String, usize>,
}

impl Scopes {
    /// Returns the full name of an item in the innermost open scope: the scope's name, a dot and `name`.
    pub(super) fn whole(&self, name: &str) -> String {
        match self.open.last() {
            Some(scope) if !scope.is_empty() => format!("{scope}.{name}"),
            _ => name.to_owned(),
        }
    }

    /// Reserves a free name for a layer in the open scope and returns it. The name is `wish`, or `wish_2` and so on if `wish` is
    /// taken. If `wish` is `None`, the name is the kind and a count.
    pub(super) fn layer_name(&mut self, program: &Program, kind: &str, wish: Option<&str>) -> String {
        for (_, var) in program.vars().skip(self.seen) {
            let starts = var.name.match_indices('.').map(|(end, _)| &var.name[..end]);
            let new: Vec<String> =
                starts.filter(|start| !self.taken.contains(*start)).map(str::to_owned).collect();
            self.taken.extend(new);
        }
        self.seen = program.vars().len();
        let base = self.whole(wish.unwrap_or(kind));
        // A wished name that equals a kind has its own count.
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
