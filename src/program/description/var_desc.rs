//! The description of a variable of a program.

use crate::operator::attributes::{Attributes, Literal};
use crate::operator::extent::{BlockId, Spec, VarId};
use crate::tensor::StorageKind;
use crate::tensor::named::named;

/// The description of a variable: everything that is known about the variable before a run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct VarDesc {
    /// The variable's name, which is unique in the program.
    pub name: String,
    /// The number of the block that the variable belongs to.
    pub block: BlockId,
    /// The kind of the variable: a tensor or a literal.
    pub kind: VarKind,
    /// The source of the variable's value.
    pub role: VarRole,
    /// Whether the variable's value is kept from run to run and saved in a checkpoint.
    pub persistable: bool,
    /// Whether an optimizer may change the variable's value.
    pub trainable: bool,
    /// Whether gradients stop at the variable.
    pub stop_gradient: bool,
    /// The initialiser of a persistable variable; `None` for a variable that is not persistable.
    pub initializer: Option<Initializer>,
    /// If this variable is a gradient, the variable to which the gradient belongs; else `None`.
    pub gradient_of: Option<VarId>,
}

impl VarDesc {
    /// Returns the description of a variable that is not persistable, not trainable and does not stop gradients. Change the
    /// fields of the result to describe another variable.
    pub fn new(name: impl Into<String>, block: BlockId, kind: VarKind, role: VarRole) -> Self {
        Self {
            name: name.into(),
            block,
            kind,
            role,
            persistable: false,
            trainable: false,
            stop_gradient: false,
            initializer: None,
            gradient_of: None,
        }
    }
}

/// The kind of a variable: a tensor, or a literal.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum VarKind {
    /// A tensor in any storage, with its spec.
    Tensor(Spec),
    /// A constant of the program, with its value: a scalar, a string, or a list of scalars or strings.
    Literal(Literal),
}

/// The source of a variable's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VarRole {
    /// The caller feeds the variable's value at every run.
    Feed,
    /// The variable is a parameter of the model; the scope keeps its value.
    Parameter,
    /// The variable is a state of the optimizer; the scope keeps its value.
    State,
    /// An operator computes the variable's value.
    Computed,
    /// The variable is a step block's view of an outer variable: a step input, a static input or a memory's previous value.
    Step,
    /// The variable is a literal of the program; the program contains its value.
    Literal,
    /// The variable is the value of a carried state after the batch, which an operator computes
    /// ([`Program::carried_states`](crate::program::Program::carried_states)).
    Carried,
}

named!(
    VarRole,
    "role",
    Feed = "feed",
    Parameter = "parameter",
    State = "state",
    Computed = "computed",
    Step = "step",
    Literal = "literal",
    Carried = "carried",
);

impl VarRole {
    /// Returns whether an operator computes a variable of this role.
    pub(crate) fn is_computed(self) -> bool {
        matches!(self, VarRole::Computed | VarRole::Carried)
    }
}

/// Whether gradients stop at a variable that an operator computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopGradient {
    /// Gradients stop at the variable.
    Yes,
    /// Gradients pass if the variable holds floats; a variable of another dtype has no gradient.
    No,
}

impl From<bool> for StopGradient {
    fn from(stop: bool) -> Self {
        if stop { StopGradient::Yes } else { StopGradient::No }
    }
}

/// The initialiser of a persistable variable: its kind and its attributes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Initializer {
    /// The kind of the initialiser, such as `"uniform"`.
    pub(crate) kind: String,
    pub(crate) attributes: Attributes,
}

impl Initializer {
    /// Returns an initialiser of the kind `kind` with these attributes.
    pub fn new(kind: &str, attributes: Attributes) -> Self {
        Self { kind: kind.to_owned(), attributes }
    }
}

impl VarDesc {
    /// Returns the spec of a tensor; `None` if the variable is a literal.
    pub fn spec(&self) -> Option<&Spec> {
        match &self.kind {
            VarKind::Tensor(spec) => Some(spec),
            VarKind::Literal(_) => None,
        }
    }

    /// Returns whether the variable is a row-sparse parameter, or an optimizer's state for a row-sparse parameter. A row-sparse
    /// variable stores only the touched rows in memory.
    pub(crate) fn is_row_sparse(&self) -> bool {
        self.persistable && self.spec().is_some_and(|spec| spec.storage == StorageKind::SelectedRows)
    }

    /// Returns the variable's number of LoD levels.
    pub fn lod_level(&self) -> usize {
        self.spec().map_or(0, |spec| spec.lod.len())
    }
}

/// Returns the name of the gradient of the variable `name`.
pub fn grad_name(name: &str) -> String {
    format!("{name}@grad")
}
