//! The storage report: the storage and the size in bytes of every variable of a program, before any run.

use std::collections::HashMap;
use std::fmt;

use super::language::TO_DENSE;
use super::op_desc::Role;
use super::program::Program;
use super::var_desc::{VarRole, grad_name};
use crate::error::{AtCaller, Result};
use crate::operator::extent::{Extent, Spec, VarId};
use crate::operator::facts::StorageBound;
use crate::operator::registry::Registry;
use crate::operator::signature::Slot;
use crate::operator::size::Size;
use crate::tensor::StorageKind;

/// An upper bound on the number of entries that a sparse variable stores. Csr and coo variables store matrix entries; selected
/// rows store rows.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Entries {
    /// The variable is a feed: it stores exactly the entries that the caller feeds.
    Fed,
    /// The variable stores the same number of entries as another variable.
    As(VarId),
    /// The variable stores at most the sum of the entries of the listed variables; for a dense variable, the number of its rows
    /// is added.
    Together(Vec<VarId>),
    /// The variable stores at most the number of entries of the listed variable with the fewest entries.
    Least(Vec<VarId>),
    /// The variable stores at most all numbers (csr, coo) or all rows (selected rows) of its shape.
    Everything,
}

/// A variable in the report of [`Program::storage_report`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredVariable {
    /// The number of the variable.
    pub var: VarId,
    /// The name of the variable.
    pub name: String,
    /// The variable's dtype, shape, LoD levels and storage.
    pub spec: Spec,
    /// The variable's size in bytes, as a function of extents (numbers of rows and of entries). For a sparse variable, the extent
    /// `Extent::Data` with the variable's number counts the stored entries.
    pub size: Size,
    /// The upper bound on the number of stored entries; `None` for a dense variable.
    pub entries: Option<Entries>,
    /// If the variable is a dense copy of a sparse variable: the operator and the slot that read the copy; else `None`.
    pub fallback: Option<String>,
}

/// The storage and the size of every tensor of a program: see [`Program::storage_report`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageReport {
    variables: Vec<StoredVariable>,
}

impl StorageReport {
    /// Returns the variables of the report, in the order of the program.
    pub fn variables(&self) -> &[StoredVariable] {
        &self.variables
    }

    /// Iterates over the dense copies of variables for which an operator has no kernel.
    pub fn fallbacks(&self) -> impl Iterator<Item = &StoredVariable> {
        self.variables.iter().filter(|variable| variable.fallback.is_some())
    }

    /// Returns the report of one variable; `None` for a literal or a variable of a step block.
    pub fn get(&self, var: impl Into<VarId>) -> Option<&StoredVariable> {
        let var = var.into();
        self.variables.iter().find(|variable| variable.var == var)
    }

    /// Returns the maximum number of entries that a variable can store in a run. `rows` returns the number of rows that an extent
    /// counts; `fed` returns the number of entries of a feed. For a dense variable, `most` returns the number of rows.
    pub fn most(&self, var: VarId, rows: &impl Fn(Extent) -> usize, fed: &impl Fn(VarId) -> usize) -> usize {
        let Some(variable) = self.get(var) else { return 0 };
        let count = rows(variable.spec.rows());
        let most = |vars: &[VarId]| vars.iter().map(|&var| self.most(var, rows, fed)).collect::<Vec<_>>();
        let everything = match variable.spec.storage {
            StorageKind::Dense => return count,
            StorageKind::SelectedRows => count,
            StorageKind::Csr | StorageKind::Coo => count.saturating_mul(variable.spec.width()),
        };
        let bound = match &variable.entries {
            None | Some(Entries::Everything) => everything,
            Some(Entries::Fed) => return fed(var),
            Some(Entries::As(other)) => self.most(*other, rows, fed),
            Some(Entries::Together(vars)) => most(vars).into_iter().fold(0, usize::saturating_add),
            Some(Entries::Least(vars)) => most(vars).into_iter().min().unwrap_or(everything),
        };
        bound.min(everything)
    }

    fn name(&self, var: VarId) -> &str {
        self.get(var).map_or("?", |variable| &variable.name)
    }

    fn note(&self, variable: &StoredVariable) -> String {
        let list = |vars: &[VarId], between: &str| {
            let counts: Vec<String> = vars.iter().map(|&var| self.count(var)).collect();
            counts.join(between)
        };
        match &variable.entries {
            None => String::new(),
            Some(Entries::Fed) => ", as many as are fed".to_owned(),
            Some(Entries::As(other)) => format!(", as many as `{}`", self.name(*other)),
            Some(Entries::Together(vars)) => format!(", at most {}", list(vars, " + ")),
            Some(Entries::Least(vars)) => format!(", at most the least of {}", list(vars, " and ")),
            Some(Entries::Everything) => match variable.spec.storage {
                StorageKind::SelectedRows => format!(", at most {} rows", variable.spec.rows()),
                _ => format!(", at most {} × {}", variable.spec.rows(), variable.spec.width()),
            },
        }
    }

    /// Returns the text for a variable in a bound: the number of its rows if it is dense, else "the entries of" and its name.
    fn count(&self, var: VarId) -> String {
        match self.get(var) {
            Some(variable) if variable.spec.storage == StorageKind::Dense => {
                format!("{} rows", variable.spec.rows())
            }
            _ => format!("the entries of `{}`", self.name(var)),
        }
    }
}

impl fmt::Display for StorageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for variable in &self.variables {
            let StoredVariable { name, spec, size, fallback, .. } = variable;
            write!(f, "{name}: {spec}: {size}{}", self.note(variable))?;
            match fallback {
                Some(operand) => writeln!(f, "; made dense for `{operand}`")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

impl Program {
    /// Returns a report of every tensor outside step blocks: its storage, its bytes as a function of rows and stored entries, and
    /// whether it is a dense copy. The report is computed without a run. The sizes in the report agree with
    /// [`Executor::bytes_of`](crate::executor::Executor::bytes_of) after a run.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let bags = net.feed_csr("bags", DType::F32, 1000, 0);
    /// bags.tanh().softmax(); // tanh stays csr, softmax has no zeros
    /// let report = net.program()?.storage_report(&net.registry())?;
    /// let message = "bags: f32[batch, 1000] csr: 8 + 8 × batch + 12 × data0 bytes, as many as are fed\n\
    ///             sparse_tanh: f32[batch, 1000] csr: 8 + 8 × batch + 12 × data1 bytes, as many as `bags`\n\
    ///             to_dense: f32[batch, 1000]: 4000 × batch bytes; made dense for `softmax.x`\n\
    ///             softmax: f32[batch, 1000]: 4000 × batch bytes\n";
    /// assert_eq!(report.to_string(), message);
    /// assert_eq!(report.fallbacks().map(|dense| dense.size.bytes(64, 0)).sum::<usize>(), 256_000);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if an operator of the program is not in the registry.
    #[track_caller]
    pub fn storage_report(&self, registry: &Registry) -> Result<StorageReport> {
        let bounds = self.bounds(registry).at_caller()?;
        let mut fallbacks: HashMap<VarId, String> = HashMap::new();
        let ops = &self.root().ops;
        for op in ops.iter().filter(|op| op.kind == TO_DENSE.kind && op.role == Role::Forward) {
            if let Ok(operator) = op.attributes.text(TO_DENSE.attributes[0]) {
                fallbacks.extend(op.writes().map(|var| (var, operator.to_owned())));
            }
        }
        let mut variables = Vec::new();
        for (var, desc) in self.vars().filter(|(_, desc)| desc.block.0 == 0) {
            let Some(spec) = desc.spec() else { continue };
            let sparse = spec.storage != StorageKind::Dense;
            let known = match (desc.role, desc.gradient_of) {
                (VarRole::Feed, _) => Entries::Fed,
                (_, Some(operator))
                    if self.spec(operator)?.storage != StorageKind::Dense
                        && !self.var(operator).is_row_sparse() =>
                {
                    Entries::As(operator)
                }
                _ => bounds.get(&var).cloned().unwrap_or(Entries::Everything),
            };
            variables.push(StoredVariable {
                var,
                name: desc.name.clone(),
                spec: spec.clone(),
                size: Size::of(spec, Extent::Data(var.0)),
                entries: sparse.then_some(known),
                fallback: fallbacks.remove(&var),
            });
        }
        Ok(StorageReport { variables })
    }

    /// Returns the bounds on stored entries that operators declare for sparse outputs and for gradients in selected rows.
    fn bounds(&self, registry: &Registry) -> Result<HashMap<VarId, Entries>> {
        let mut bounds: HashMap<VarId, Entries> = HashMap::new();
        let sparse = |var: VarId| {
            let spec = self.var(var).spec();
            spec.is_some_and(|spec| spec.storage != StorageKind::Dense)
        };
        for op in self.root().ops.iter().filter(|op| op.step.is_none()) {
            let instance = registry.parse(&op.kind, &op.attributes)?;
            let signature = instance.signature();
            let inputs = Self::slots_of(signature.inputs, &op.inputs, "");
            let vars_of = |slots: &[usize]| -> Vec<VarId> {
                slots.iter().filter_map(|&slot| inputs.get(slot)).flatten().copied().collect()
            };
            let entries = |stored: StorageBound| match stored {
                StorageBound::Everything | StorageBound::PerRow(..) => Entries::Everything,
                StorageBound::Together(slots) => match vars_of(slots)[..] {
                    [one] if sparse(one) => Entries::As(one),
                    _ => Entries::Together(vars_of(slots)),
                },
                StorageBound::Least(slots) => {
                    let least: Vec<VarId> = vars_of(slots).into_iter().filter(|&var| sparse(var)).collect();
                    if let [one] = least[..] { Entries::As(one) } else { Entries::Least(least) }
                }
            };
            let slots = |slots: &[Slot], suffix: &str| Self::slots_of(slots, &op.outputs, suffix);
            match op.role {
                Role::Backward => {
                    for (slot, vars) in slots(signature.inputs, &grad_name("")).iter().enumerate() {
                        for &var in vars.iter().filter(|&&var| var != VarId::NONE && sparse(var)) {
                            let more = entries(instance.stored_gradient(slot));
                            let both = match bounds.remove(&var) {
                                None => more,
                                Some(before) => together(before, more),
                            };
                            bounds.insert(var, both);
                        }
                    }
                }
                _ => {
                    for (slot, vars) in slots(signature.outputs, "").iter().enumerate() {
                        for &var in vars.iter().filter(|&&var| sparse(var) && !self.var(var).persistable) {
                            bounds.entry(var).or_insert_with(|| entries(instance.stored(slot)));
                        }
                    }
                }
            }
        }
        Ok(bounds)
    }
}

/// Returns the bound for the sum of two gradients in selected rows: the sum stores the rows of both gradients.
fn together(a: Entries, b: Entries) -> Entries {
    let vars = |entries: Entries| match entries {
        Entries::As(var) => Some(vec![var]),
        Entries::Together(vars) => Some(vars),
        _ => None,
    };
    match (vars(a), vars(b)) {
        (Some(a), Some(b)) => Entries::Together(a.into_iter().chain(b).collect()),
        _ => Entries::Everything,
    }
}
