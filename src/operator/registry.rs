//! The registry: an explicit list of operator types by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::declare::Declaration;
use super::op::{Op, Operators};
#[cfg(any(feature = "testing", doc))]
use super::sample::CheckCase;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::operator::attributes::Attributes;

/// An operator type: how to read it from a program, and its samples.
#[derive(Clone, Copy)]
pub(crate) struct OperatorEntry {
    declaration: &'static Declaration,
    parse: fn(&Attributes, &Registry) -> Result<Arc<dyn Op>>,
    // Only the feature `testing` reads samples; without the feature, their code is not compiled.
    #[cfg(any(feature = "testing", doc))]
    samples: fn() -> Result<Vec<CheckCase>>,
}

/// The operators that a program may use, by kind. A user's crate adds its own with [`Registry::add`] and gives the
/// registry to the builder, the executor and to loading.
#[derive(Clone, Default)]
pub struct Registry(BTreeMap<&'static str, OperatorEntry>);

impl Registry {
    /// A registry without operators; `ops::catalogue()` has the crate's own.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Adds an operator type.
    ///
    /// # Errors
    /// If its kind is taken.
    #[track_caller]
    pub fn add<O: Op>(&mut self) -> Result<&mut Self> {
        let declaration = O::declaration();
        let entry = OperatorEntry {
            declaration,
            parse: parsed::<O>,
            #[cfg(any(feature = "testing", doc))]
            samples: O::samples,
        };
        if self.0.insert(declaration.kind, entry).is_some() {
            let got = format!("`{}` twice", declaration.kind);
            return Err(Error::of(ErrorKind::Program, "registry", "each kind once", got));
        }
        Ok(self)
    }

    /// Merges the operators of `other` into the registry. If both have a kind, `other`'s operator is kept.
    #[cfg(feature = "testing")]
    pub(crate) fn with(mut self, other: &Registry) -> Self {
        self.0.extend(&other.0);
        self
    }

    /// Reads an operator from its kind and attributes.
    ///
    /// # Errors
    /// If the kind is not registered or the attributes are wrong.
    #[track_caller]
    pub fn parse(&self, kind: &str, attributes: &Attributes) -> Result<Arc<dyn Op>> {
        let Some(entry) = self.0.get(kind) else {
            let known: Vec<&str> = self.0.keys().copied().collect();
            let expected = match &known[..] {
                [] => "none: the registry is empty".to_owned(),
                known => format!("one of {}", known.join(", ")),
            };
            return Err(Error::of(ErrorKind::Program, "operator kind", expected, format!("`{kind}`")));
        };
        (entry.parse)(attributes, self).at_caller()
    }

    /// Checks that the operator of this kind declares all of the attributes. Called only when an operator is appended: a file of
    /// another release may hold an attribute that this release does not know.
    pub(crate) fn check_names(&self, kind: &str, attributes: &Attributes) -> Result<()> {
        let known = self.declaration(kind).map_or(&[][..], |declaration| declaration.attributes);
        let Some((name, _)) = attributes.iter().find(|(name, _)| !known.contains(name)) else {
            return Ok(());
        };
        let expected = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(Error::of(ErrorKind::Program, "names of attributes", expected, format!("`{name}`")))
    }

    /// The kinds whose operators can replace an operator of `kind`: they provide its kernels for other storages.
    pub(crate) fn standing_for(&self, kind: &str) -> impl Iterator<Item = &'static str> {
        let stands = move |entry: &&OperatorEntry| entry.declaration.stands_for.contains(&kind);
        self.0.values().filter(stands).map(|entry| entry.declaration.kind)
    }

    /// The kinds, in ascending order.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// The declaration of an operator type; `None` if the kind is not registered.
    pub fn declaration(&self, kind: &str) -> Option<&'static Declaration> {
        self.0.get(kind).map(|entry| entry.declaration)
    }

    /// The samples of a kind; empty if the kind is not registered. Part of the feature `testing`.
    ///
    /// # Errors
    /// If a sample cannot be made.
    #[cfg(any(feature = "testing", doc))]
    #[track_caller]
    pub fn samples(&self, kind: &str) -> Result<Vec<CheckCase>> {
        self.0.get(kind).map_or_else(|| Ok(Vec::new()), |entry| (entry.samples)()).at_caller()
    }
}

fn parsed<O: Op>(attributes: &Attributes, registry: &Registry) -> Result<Arc<dyn Op>> {
    let mut op = O::parse(attributes)?;
    op.resolve(registry)?;
    Ok(Arc::new(op))
}

impl Operators for Registry {
    fn declarations(&self) -> Vec<&'static Declaration> {
        self.0.values().map(|entry| entry.declaration).collect()
    }

    fn operator(&self, kind: &str, attributes: &Attributes) -> Result<Arc<dyn Op>> {
        self.parse(kind, attributes)
    }
}
