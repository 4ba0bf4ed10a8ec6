//! Scopes hold the parameters and the optimizer state, which are kept from run to run.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::kernels::Extent2;
use crate::kernels::arena::{Arena, OperandRoom, Plain, Region};
use crate::operator::entries::PooledStorage;
use crate::operator::{RowTable, Spec};
use crate::program::description::initialize;
use crate::program::{Program, VarDesc, VarKind};
use crate::reserve;
use crate::tensor::{DType, Dense, Element, Storage, StorageKind, elements, with_element};

/// The persistent variables of programs, by name. Several programs may share a scope, for example a training program and an
/// inference program. A clone of a scope has its own copy of the values.
#[derive(Default, Clone)]
pub struct Scope {
    arena: Arena,
    /// The row-sparse variables; clones of a scope share the memory of a variable until one of the clones writes the
    /// variable.
    tables: Vec<PooledStorage>,
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum InScope {
    /// The location of a dense variable: its buffer.
    Buffer(usize),
    /// The location of a row-sparse variable: its index among the tables of the scope.
    Table(usize),
}

#[derive(Debug, Clone)]
struct Entry {
    slot: InScope,
    dtype: DType,
    dims: Vec<usize>,
}

impl Entry {
    fn storage(&self) -> StorageKind {
        match self.slot {
            InScope::Buffer(_) => StorageKind::Dense,
            InScope::Table(_) => StorageKind::SelectedRows,
        }
    }

    /// Returns the dtype, shape and storage of the entry as text, for messages.
    fn shown(&self) -> String {
        shown(self.storage(), self.dtype, &self.dims)
    }
}

/// Returns a spec as text, such as `f32[5, 2]` or `f32[5, 2] selected_rows`.
fn shown(storage: StorageKind, dtype: DType, dims: &[usize]) -> String {
    let storage = if storage == StorageKind::Dense { String::new() } else { format!(" {storage}") };
    format!("{dtype}{dims:?}{storage}")
}

impl Scope {
    /// Returns a scope without variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a scope with every persistent variable of `program`, each with its initial value.
    ///
    /// # Errors
    /// Fails if an initialiser is not registered, or does not fit the variable.
    #[track_caller]
    pub fn of(program: &Program) -> Result<Self> {
        let mut scope = Self::new();
        scope.initialize(program)?;
        Ok(scope)
    }

    /// Adds the persistent variables of `program` that the scope does not have yet, each with its initial value.
    ///
    /// # Errors
    /// Fails if an initialiser is not registered or does not fit the variable, or if the scope has a variable of this
    /// name with another shape or dtype.
    #[track_caller]
    pub fn initialize(&mut self, program: &Program) -> Result<()> {
        let mut kept = program.vars().filter(|(_, var)| var.persistable);
        kept.try_for_each(|(_, var)| self.initialize_one(program, var)).at_caller()
    }

    fn initialize_one(&mut self, program: &Program, var: &VarDesc) -> Result<()> {
        let VarKind::Tensor(spec) = &var.kind else { return Ok(()) };
        let dims = dims_of(spec).map_err(|e| e.variable(&var.name))?;
        if self.entries.contains_key(&var.name) {
            return self.find(&var.name, spec).map(drop);
        }
        match spec.storage {
            StorageKind::Dense => {
                // The initial values are computed in the variable's final buffer, since memory may be too small for a second
                // copy of a large table.
                if let Some(how) = &var.initializer {
                    initialize::check(how, &dims).map_err(|e| e.variable(&var.name))?;
                }
                self.add(&var.name, spec.dtype, dims.clone()).map_err(|e| e.variable(&var.name))?;
                with_element!(spec.dtype, T => self.write::<T, _>(&var.name, |out| match &var.initializer {
                    Some(how) => initialize::evaluate_in(how, &dims, program.seed, &var.name, out),
                    None => {
                        out.fill(T::default());
                        Ok(())
                    }
                })?)
            }
            StorageKind::SelectedRows => {
                let start = initialize::start_of(var, &dims, program.seed)?;
                let table = RowTable::new(spec.dtype, &dims, start).map_err(|e| e.variable(&var.name))?;
                let slot = InScope::Table(self.tables.len());
                self.tables.push(PooledStorage::Table(Arc::new(table)));
                self.entries.insert(var.name.clone(), Entry { slot, dtype: spec.dtype, dims });
                Ok(())
            }
            other => {
                let expected = "dense, or selected rows";
                Err(Error::new("storage of a persistent variable", expected, other.to_string())
                    .variable(&var.name))
            }
        }
    }

    /// Sets the value of a program's variable; the scope need not have the variable yet.
    ///
    /// # Errors
    /// Fails as [`Self::set`] does.
    #[track_caller]
    pub fn set_of(&mut self, program: &Program, name: &str, value: Storage) -> Result<()> {
        if value.kind() == StorageKind::SelectedRows
            && !self.entries.contains_key(name)
            && let Some(id) = program.find(name)
        {
            self.initialize_one(program, program.var(id)).at_caller()?;
        }
        self.set(name, value)
    }

    /// Returns the names of all variables, in ascending order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Returns a copy of the value of a dense variable; [`Self::value`] works for any variable.
    ///
    /// # Errors
    /// Fails if the scope has no variable of this name, or if the variable is row-sparse.
    #[track_caller]
    pub fn get(&mut self, name: &str) -> Result<Dense> {
        match self.value(name).at_caller()? {
            Storage::Dense(dense) => Ok(dense),
            other => {
                let expected = "a dense variable; `Scope::value` returns the touched rows of this variable";
                let got = shown(other.kind(), other.dtype(), other.shape());
                Err(Error::new("variable in the scope", expected, got).variable(name)).at_caller()
            }
        }
    }

    /// Returns a copy of a variable's value. The value of a row-sparse parameter, or of its optimizer state, contains only the
    /// touched rows, by ascending row number; every other row still has its initial value.
    ///
    /// # Errors
    /// Fails if the scope has no variable of this name.
    #[track_caller]
    pub fn value(&mut self, name: &str) -> Result<Storage> {
        let entry = self.entry(name).at_caller()?.clone();
        let buffer = match entry.slot {
            InScope::Buffer(buffer) => buffer,
            InScope::Table(i) => {
                let rows = self.tables[i].table().map(RowTable::to_selected_rows);
                return rows.unwrap_or_else(|| Err(gone(name))).map(Storage::from).at_caller();
            }
        };
        let (region, elements) = whole(buffer, &entry.dims);
        let mut room = OperandRoom::default();
        let mut lane = self.arena.lane();
        let operands = lane.operands(&mut room, &[region], &[]);
        with_element!(entry.dtype, T => {
            let numbers = operands.read::<T>(0).and_then(|v| v.contiguous()).unwrap_or(&[]);
            debug_assert_eq!(numbers.len(), elements);
            let mut copy = reserve::vector(numbers.len(), "copy of a parameter")?;
            copy.extend_from_slice(numbers);
            Ok(Dense::from_vec(&entry.dims, copy)?.into())
        })
    }

    /// Sets a variable's value. An existing variable keeps its shape, dtype and storage. A row-sparse variable takes selected
    /// rows: the rows that differ from their initial values. If a row index occurs several times, its rows are added up.
    ///
    /// # Errors
    /// Fails if the variable exists with another shape, dtype or storage. Also fails if the variable does not exist and
    /// the value is not dense, because only a program ([`Self::initialize`]) defines the initial values of a row-sparse
    /// variable.
    #[track_caller]
    pub fn set(&mut self, name: &str, value: impl Into<Storage>) -> Result<()> {
        self.set_value(name, value.into()).map_err(|e| e.variable(name)).at_caller()
    }

    fn set_value(&mut self, name: &str, value: Storage) -> Result<()> {
        let got = || shown(value.kind(), value.dtype(), value.shape());
        if let Some(entry) = self.entries.get(name)
            && (entry.storage(), entry.dtype, &*entry.dims) != (value.kind(), value.dtype(), value.shape())
        {
            return Err(Error::new("value", entry.shown(), got()));
        }
        let value = match (value, self.entries.get(name).map(|entry| entry.slot)) {
            (Storage::SelectedRows(rows), Some(InScope::Table(i))) => {
                return self.tables[i].table_mut().map_or_else(|| Err(gone(name)), |table| table.set(rows));
            }
            (Storage::Dense(dense), _) => dense,
            (other, _) => {
                let expected =
                    "a dense value, or a row-sparse variable of a program that the scope was initialised for";
                return Err(Error::new("value", expected, shown(other.kind(), other.dtype(), other.shape())));
            }
        };
        if !self.entries.contains_key(name) {
            self.add(name, value.dtype(), value.shape().to_vec())?;
        }
        with_element!(value.dtype(), T => {
            let numbers = value.as_slice::<T>()?;
            self.write::<T, _>(name, |out| out.copy_from_slice(numbers))
        })
    }

    /// Returns a row-sparse variable.
    ///
    /// # Errors
    /// Fails if the scope has no row-sparse variable of this name.
    pub(crate) fn table(&mut self, name: &str) -> Result<&mut RowTable> {
        let slot = self.entry(name)?.slot;
        let InScope::Table(i) = slot else { return Err(gone(name)) };
        self.tables[i].table_mut().ok_or_else(|| gone(name))
    }

    /// Adds the buffer of a dense variable.
    ///
    /// # Errors
    /// Fails if the system refuses the memory.
    fn add(&mut self, name: &str, dtype: DType, dims: Vec<usize>) -> Result<()> {
        let elements = elements(&dims, dtype)?;
        let buffer = with_element!(dtype, T => self.arena.add::<T>());
        if !self.arena.try_reserve(buffer, elements) {
            return Err(reserve::refused("memory of a parameter", elements.saturating_mul(dtype.size_of())));
        }
        self.entries.insert(name.to_owned(), Entry { slot: InScope::Buffer(buffer), dtype, dims });
        Ok(())
    }

    /// Calls a function with the numbers of a dense variable, without a copy.
    ///
    /// # Errors
    /// Fails if the scope has no dense variable of this name and dtype.
    pub(crate) fn read<T: Plain + Element, R>(
        &mut self,
        name: &str,
        look: impl FnOnce(&[T]) -> R,
    ) -> Result<R> {
        let region = self.numbers_of::<T>(name)?;
        let mut room = OperandRoom::default();
        let mut lane = self.arena.lane();
        let operands = lane.operands(&mut room, &[region], &[]);
        Ok(look(operands.read::<T>(0).and_then(|v| v.contiguous()).unwrap_or(&[])))
    }

    /// Calls a function that changes the numbers of a dense variable in place.
    ///
    /// # Errors
    /// Fails if the scope has no dense variable of this name and dtype.
    pub(crate) fn write<T: Plain + Element, R>(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut [T]) -> R,
    ) -> Result<R> {
        let region = self.numbers_of::<T>(name)?;
        let mut room = OperandRoom::default();
        self.arena.own(region.buffer);
        let mut lane = self.arena.lane();
        let mut operands = lane.operands(&mut room, &[], &[region]);
        Ok(change(operands.write::<T>(0).as_mut().and_then(|v| v.contiguous()).unwrap_or(&mut [])))
    }

    fn numbers_of<T: Element>(&self, name: &str) -> Result<Region> {
        let entry = self.entry(name)?;
        match entry.slot {
            InScope::Buffer(buffer) if entry.dtype == T::DTYPE => Ok(whole(buffer, &entry.dims).0),
            _ => Err(Error::new(
                "variable in the scope",
                format!("a dense variable of {}", T::DTYPE),
                entry.shown(),
            )
            .variable(name)),
        }
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        self.entries.get(name).ok_or_else(|| {
            Error::of(ErrorKind::Program, "scope", "the variable, initialised or loaded", "none")
                .variable(name)
        })
    }

    /// Finds a variable and checks its shape and dtype. Returns the variable's location, which [`Self::own`] and
    /// [`Self::lend`] take; the location stays valid as long as the scope exists.
    ///
    /// # Errors
    /// Fails if the scope lacks the variable, or if the variable has another shape or dtype.
    pub(crate) fn find(&self, name: &str, spec: &Spec) -> Result<InScope> {
        let entry = self.entry(name)?;
        let known = spec.shape.iter().map(|e| e.known());
        if (entry.dtype, entry.storage()) != (spec.dtype, spec.storage)
            || !known.eq(entry.dims.iter().map(|&n| Some(n)))
        {
            return Err(Error::new("value in the scope", spec.to_string(), entry.shown()).variable(name));
        }
        Ok(entry.slot)
    }

    /// Lets later clones of this scope share the current values in memory, until a clone writes a value.
    pub(crate) fn make_common(&mut self) {
        self.arena.make_common();
    }

    /// Makes the value of a variable writable for a run; if clones share the value, it is copied first.
    pub(crate) fn own(&mut self, variable: InScope) {
        match variable {
            InScope::Buffer(buffer) => self.arena.own(buffer),
            // A shared table is copied later, when a row is written.
            InScope::Table(_) => {}
        }
    }

    /// Swaps the buffer of a dense variable with a buffer of an executor.
    pub(crate) fn lend(&mut self, variable: InScope, arena: &mut Arena, buffer: usize) {
        if let InScope::Buffer(theirs) = variable {
            arena.exchange(buffer, &mut self.arena, theirs);
        }
    }

    /// Swaps a row-sparse variable with the value that an executor holds for it.
    pub(crate) fn lend_table(&mut self, variable: InScope, slot: &mut PooledStorage) {
        if let InScope::Table(theirs) = variable {
            std::mem::swap(slot, &mut self.tables[theirs]);
        }
    }
}

fn dims_of(spec: &Spec) -> Result<Vec<usize>> {
    let dims: Option<Vec<usize>> = spec.shape.iter().map(|e| e.known()).collect();
    dims.ok_or_else(|| Error::new("persistent variable", "known dimensions", spec.to_string()))
}

fn gone(name: &str) -> Error {
    Error::of(ErrorKind::Program, "scope", "the variable, as it was initialised", "another variable")
        .variable(name)
}

fn whole(buffer: usize, dims: &[usize]) -> (Region, usize) {
    let elements = dims.iter().product();
    let extent = Extent2 { rows: 1, width: elements, stride: elements };
    (Region { buffer, extent, ..Region::default() }, elements)
}
