//! Parameters and optimizer state: what lives from run to run.

use std::collections::BTreeMap;

use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::kernels::Extent2;
use crate::kernels::arena::{Arena, OperandRoom, Region};
use crate::program::description::initialize;
use crate::program::{Program, Spec, VarKind};
use crate::tensor::{DType, Dense, with_element};

/// The persistent variables of programs, by name. Several programs (one that trains, one that infers) may share it. A clone
/// has copies of their values.
#[derive(Default, Clone)]
pub struct Scope {
    arena: Arena,
    entries: BTreeMap<String, Entry>,
}

/// Where a scope has a variable.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InScope {
    buffer: usize,
}

#[derive(Debug, Clone)]
struct Entry {
    buffer: usize,
    dtype: DType,
    dims: Vec<usize>,
}

impl Scope {
    /// An empty scope.
    pub fn new() -> Self {
        Self::default()
    }

    /// A scope with every persistent variable of `program`, initialised.
    ///
    /// # Errors
    /// If an initialiser is unknown or does not fit.
    #[track_caller]
    pub fn of(program: &Program) -> Result<Self> {
        let mut scope = Self::new();
        scope.initialize(program)?;
        Ok(scope)
    }

    /// Adds and initialises the persistent variables of `program` that are not here yet.
    ///
    /// # Errors
    /// If an initialiser is unknown or does not fit, or a variable is here with another shape or dtype.
    #[track_caller]
    pub fn initialize(&mut self, program: &Program) -> Result<()> {
        for (_, var) in program.vars().filter(|(_, v)| v.persistable) {
            let VarKind::Tensor(spec) = &var.kind else { continue };
            let dims = dims_of(spec).map_err(|e| e.variable(&var.name)).at_caller()?;
            if self.entries.contains_key(&var.name) {
                self.find(&var.name, spec).at_caller()?;
                continue;
            }
            let value = match &var.initializer {
                Some(how) => initialize::evaluate(how, &dims, spec.dtype, program.seed, &var.name)?,
                None => Dense::zeros(spec.dtype, &dims)?,
            };
            self.set(&var.name, value)?;
        }
        Ok(())
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// A copy of a variable's value.
    ///
    /// # Errors
    /// If there is none of that name.
    #[track_caller]
    pub fn get(&mut self, name: &str) -> Result<Dense> {
        let entry = self.entry(name).at_caller()?.clone();
        let (region, elements) = whole(&entry);
        let mut room = OperandRoom::default();
        let mut lane = self.arena.lane();
        let operands = lane.operands(&mut room, &[region], &[]);
        with_element!(entry.dtype, T => {
            let numbers = operands.read::<T>(0).and_then(|v| v.contiguous()).unwrap_or(&[]);
            debug_assert_eq!(numbers.len(), elements);
            Dense::from_vec(&entry.dims, numbers.to_vec())
        })
    }

    /// Sets a variable's value; one that is here keeps its shape and dtype.
    ///
    /// # Errors
    /// If it is here with another shape or dtype.
    #[track_caller]
    pub fn set(&mut self, name: &str, value: impl Into<Dense>) -> Result<()> {
        let value = value.into();
        let entry = match self.entries.get(name) {
            Some(entry) if entry.dtype == value.dtype() && entry.dims == value.shape() => entry.clone(),
            Some(entry) => {
                let got = format!("{}{:?}", value.dtype(), value.shape());
                return Err(
                    Error::new("value", format!("{}{:?}", entry.dtype, entry.dims), got).variable(name)
                );
            }
            None => {
                let buffer = with_element!(value.dtype(), T => self.arena.add::<T>());
                self.arena.reserve(buffer, value.len());
                let entry = Entry { buffer, dtype: value.dtype(), dims: value.shape().to_vec() };
                self.entries.insert(name.to_owned(), entry.clone());
                entry
            }
        };
        let (region, _) = whole(&entry);
        let mut room = OperandRoom::default();
        self.arena.own(entry.buffer);
        let mut lane = self.arena.lane();
        let mut operands = lane.operands(&mut room, &[], &[region]);
        with_element!(entry.dtype, T => {
            if let Some(to) = operands.write::<T>(0).as_mut().and_then(|v| v.contiguous()) {
                to.copy_from_slice(value.as_slice::<T>()?);
            }
            Ok(())
        })
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        self.entries.get(name).ok_or_else(|| {
            Error::of(ErrorKind::Program, "scope", "the variable, initialised or loaded", "none")
                .variable(name)
        })
    }

    /// Finds a variable and checks that it fits; returns what [`Self::own`] and [`Self::lend`] want to know, for as long as
    /// the scope lives.
    ///
    /// # Errors
    /// If it is not here, or of another shape or dtype.
    pub(crate) fn find(&self, name: &str, spec: &Spec) -> Result<InScope> {
        let entry = self.entry(name)?;
        let known = spec.shape.iter().map(|e| e.known());
        if entry.dtype != spec.dtype || !known.eq(entry.dims.iter().map(|&n| Some(n))) {
            let got = format!("{}{:?}", entry.dtype, entry.dims);
            return Err(Error::new("value in the scope", spec.to_string(), got).variable(name));
        }
        Ok(InScope { buffer: entry.buffer })
    }

    /// Lets clones of this scope have the values that are here now in the same memory, until one of them writes a value.
    pub(crate) fn make_common(&mut self) {
        self.arena.make_common();
    }

    /// Makes a variable's value one that a run may write, by a copy if clones have it too.
    pub(crate) fn own(&mut self, variable: InScope) {
        self.arena.own(variable.buffer);
    }

    /// Exchanges a variable's buffer with one of an executor's.
    pub(crate) fn lend(&mut self, variable: InScope, arena: &mut Arena, buffer: usize) {
        arena.exchange(buffer, &mut self.arena, variable.buffer);
    }
}

fn dims_of(spec: &Spec) -> Result<Vec<usize>> {
    let dims: Option<Vec<usize>> = spec.shape.iter().map(|e| e.known()).collect();
    dims.ok_or_else(|| Error::new("persistent variable", "known dimensions", spec.to_string()))
}

fn whole(entry: &Entry) -> (Region, usize) {
    let elements = entry.dims.iter().product();
    let extent = Extent2 { rows: 1, width: elements, stride: elements };
    (Region { buffer: entry.buffer, extent, ..Region::default() }, elements)
}
