//! The registry: the list of operator types that a program may use, by kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::declare::Declaration;
use super::op::{Op, Operators};
#[cfg(any(feature = "testing", doc))]
use super::sample::CheckCase;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::operator::attributes::Attributes;

/// A registered operator type: its declaration, a function that makes an operator from attributes, and its check cases.
#[derive(Clone, Copy)]
pub(crate) struct OperatorEntry {
    declaration: &'static Declaration,
    parse: fn(&Attributes) -> Result<Arc<dyn Op>>,
    // Only the feature `testing` reads the check cases; without this feature, the code of the check cases is not compiled.
    #[cfg(any(feature = "testing", doc))]
    samples: fn() -> Result<Vec<CheckCase>>,
}

impl OperatorEntry {
    pub(crate) fn of<O: Op>() -> Self {
        Self {
            declaration: O::declaration(),
            parse: |attributes| Ok(Arc::new(O::parse(attributes)?)),
            #[cfg(any(feature = "testing", doc))]
            samples: O::samples,
        }
    }
}

/// The operators that a program may use, by kind. A user's crate adds its operators with [`Registry::add`] and passes the
/// registry to the builder, to the executor and to the functions that load programs.
#[derive(Clone, Default)]
pub struct Registry(Arc<BTreeMap<&'static str, OperatorEntry>>);

impl Registry {
    /// Returns a registry without operators; `ops::catalogue()` returns the registry of this crate's operators.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Returns whether a registry is an unchanged clone of this registry. Two registries with equal operators that were made
    /// separately are not clones.
    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Adds the operator type `O` to the registry.
    ///
    /// # Errors
    /// Fails if the registry already has the kind of `O`.
    #[track_caller]
    pub fn add<O: Op>(&mut self) -> Result<&mut Self> {
        self.insert(OperatorEntry::of::<O>())?;
        Ok(self)
    }

    /// Adds an operator type; the part of [`Registry::add`] that is the same for all types.
    #[track_caller]
    pub(crate) fn insert(&mut self, entry: OperatorEntry) -> Result<()> {
        let kind = entry.declaration.kind;
        match Arc::make_mut(&mut self.0).insert(kind, entry) {
            None => Ok(()),
            Some(_) => {
                Err(Error::of(ErrorKind::Program, "registry", "each kind once", format!("`{kind}` twice")))
            }
        }
    }

    /// Adds the operators of `other` to the registry. If both registries have a kind, the operator of `other` replaces the
    /// operator of this registry.
    #[cfg(feature = "testing")]
    pub(crate) fn with(mut self, other: &Registry) -> Self {
        Arc::make_mut(&mut self.0).extend(other.0.iter());
        self
    }

    /// Makes an operator from its kind and attributes.
    ///
    /// # Errors
    /// Fails if the kind is not registered or if the attributes are wrong.
    #[track_caller]
    pub fn parse(&self, kind: &str, attributes: &Attributes) -> Result<Arc<dyn Op>> {
        let Some(entry) = self.0.get(kind) else {
            let known: Vec<&str> = self.0.keys().copied().collect();
            let expected = match &known[..] {
                [] => "a registered operator, but the registry is empty".to_owned(),
                known => format!("one of {}", known.join(", ")),
            };
            return Err(Error::of(ErrorKind::Program, "operator kind", expected, format!("`{kind}`")));
        };
        let mut op = (entry.parse)(attributes).at_caller()?;
        // The operator was just made, so nothing else holds it.
        Arc::get_mut(&mut op).map_or(Ok(()), |op| op.resolve(self)).at_caller()?;
        Ok(op)
    }

    /// Checks that the operator type of the kind `kind` declares all given attributes. The check of attribute names is only for
    /// operators that are being appended: a file of another release may have an attribute that this release does not declare.
    pub(crate) fn check_names(&self, kind: &str, attributes: &Attributes) -> Result<()> {
        let known = self.declaration(kind).map_or(&[][..], |declaration| declaration.attributes);
        let Some((name, _)) = attributes.iter().find(|(name, _)| !known.contains(name)) else {
            return Ok(());
        };
        let expected = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(Error::of(ErrorKind::Program, "names of attributes", expected, format!("`{name}`")))
    }

    /// Iterates over the kinds that replace `kind` for other storages of the inputs, such as sparse matrices.
    pub(crate) fn standing_for(&self, kind: &str) -> impl Iterator<Item = &'static str> {
        let stands = move |entry: &&OperatorEntry| entry.declaration.stands_for.contains(&kind);
        self.0.values().filter(stands).map(|entry| entry.declaration.kind)
    }

    /// Iterates over the registered kinds, in ascending order.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// Returns the declaration of an operator type; `None` if the kind is not registered.
    pub fn declaration(&self, kind: &str) -> Option<&'static Declaration> {
        self.0.get(kind).map(|entry| entry.declaration)
    }

    /// Returns the check cases of the kind `kind`; an empty list if the kind is not registered. The method is part of the feature
    /// `testing`.
    ///
    /// # Errors
    /// Fails if a check case cannot be made.
    #[cfg(any(feature = "testing", doc))]
    #[track_caller]
    pub fn samples(&self, kind: &str) -> Result<Vec<CheckCase>> {
        self.0.get(kind).map_or_else(|| Ok(Vec::new()), |entry| (entry.samples)()).at_caller()
    }
}

impl Operators for Registry {
    fn declarations(&self) -> Vec<&'static Declaration> {
        self.0.values().map(|entry| entry.declaration).collect()
    }

    fn operator(&self, kind: &str, attributes: &Attributes) -> Result<Arc<dyn Op>> {
        self.parse(kind, attributes)
    }
}
