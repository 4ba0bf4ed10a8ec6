//! The names of a builder: the open scopes, and the names of layers.

use std::collections::{HashMap, HashSet};
use std::panic::Location;

use crate::program::description::program::Program;

/// The names of a builder's layers and scopes, and the lines of its layer calls.
#[derive(Default)]
pub(super) struct Scopes {
    /// The open scopes, each with its full name, outermost first.
    pub(super) open: Vec<String>,
    /// The line of each layer call that is in progress, outermost first.
    pub(super) lines: Vec<&'static Location<'static>>,
    /// Names that a new layer cannot have: names of layers, and each prefix of a variable's name that ends before a dot.
    taken: HashSet<String>,
    /// The number of variables whose prefixes are in `taken`.
    seen: usize,
    /// For each wished name, the number to try next. Names are never freed, so lower numbers stay taken.
    counts: HashMap<String, usize>,
}

impl Scopes {
    /// The full name of an item in the open scope.
    pub(super) fn whole(&self, name: &str) -> String {
        match self.open.last() {
            Some(scope) if !scope.is_empty() => format!("{scope}.{name}"),
            _ => name.to_owned(),
        }
    }

    /// Reserves a free name for a layer in the open scope: `wish`, or `wish_2` and so on if `wish` is taken; if `wish` is
    /// `None`, the kind and a count.
    pub(super) fn layer_name(&mut self, program: &Program, kind: &str, wish: Option<&str>) -> String {
        for (_, var) in program.vars().skip(self.seen) {
            let starts = var.name.match_indices('.').map(|(end, _)| &var.name[..end]);
            let new: Vec<String> =
                starts.filter(|start| !self.taken.contains(*start)).map(str::to_owned).collect();
            self.taken.extend(new);
        }
        self.seen = program.vars().len();
        let base = self.whole(wish.unwrap_or(kind));
        // A wished name and an equal kind have separate counts.
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
