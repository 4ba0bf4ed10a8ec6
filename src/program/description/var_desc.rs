//! The description of a variable.

use crate::operator::attributes::{Attributes, Literal};
use crate::operator::extent::{BlockId, Spec, VarId};
use crate::tensor::StorageKind;
use crate::tensor::named::named;

/// The description of a variable, before anything runs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct VarDesc {
    /// The variable's name, unique in the program.
    pub name: String,
    /// The block that the variable belongs to.
    pub block: BlockId,
    /// The kind of the variable: a tensor or a literal.
    pub kind: VarKind,
    /// The source of the variable's value.
    pub role: VarRole,
    /// Whether the value is kept from run to run and saved in a checkpoint.
    pub persistable: bool,
    /// Whether an optimizer may change the value.
    pub trainable: bool,
    /// Whether gradients stop at the variable.
    pub stop_gradient: bool,
    /// The initialiser of a persistable variable; `None` for other variables.
    pub initializer: Option<Initializer>,
    /// The variable whose gradient this variable is; `None` if it is no gradient.
    pub gradient_of: Option<VarId>,
}

impl VarDesc {
    /// A description of a variable that is kept for one run only, is not trained and does not stop gradients. For other
    /// variables, change the fields.
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

/// A tensor, or a value that the program carries.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum VarKind {
    /// A tensor, in any storage.
    Tensor(Spec),
    /// A scalar, a string, or a list of scalars or strings, with its value.
    Literal(Literal),
}

/// The source of a variable's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VarRole {
    /// The caller feeds the value at every run.
    Feed,
    /// A parameter of the model; its value is kept in the scope.
    Parameter,
    /// A state of the optimizer; its value is kept in the scope.
    State,
    /// An operator computes the value.
    Computed,
    /// A step block's view of an outer variable: a step input, a static input or a memory.
    Step,
    /// A literal.
    Literal,
    /// An operator computes the value: a state that passes from batch to batch, as it is after this batch
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
    /// Returns whether an operator computes the variable.
    pub(in crate::program) fn is_computed(self) -> bool {
        matches!(self, VarRole::Computed | VarRole::Carried)
    }
}

/// Whether gradients stop at a computed variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopGradient {
    /// Gradients stop.
    Yes,
    /// Gradients pass if the variable holds floats; other variables have no gradient.
    No,
}

impl From<bool> for StopGradient {
    fn from(stop: bool) -> Self {
        if stop { StopGradient::Yes } else { StopGradient::No }
    }
}

/// The initialiser of a persistable variable: its name and its attributes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Initializer {
    /// The initialiser's name, as `"uniform"`.
    pub kind: String,
    /// The initialiser's attributes.
    pub attributes: Attributes,
}

impl Initializer {
    /// An initialiser of this name, with these attributes.
    pub fn new(kind: &str, attributes: Attributes) -> Self {
        Self { kind: kind.to_owned(), attributes }
    }
}

impl VarDesc {
    /// The spec of a tensor; `None` for a literal.
    pub fn spec(&self) -> Option<&Spec> {
        match &self.kind {
            VarKind::Tensor(spec) => Some(spec),
            VarKind::Literal(_) => None,
        }
    }

    /// Returns whether the variable is a row-sparse parameter, or an optimizer's state of such a parameter: kept from run to
    /// run, with only the touched rows in memory.
    pub(crate) fn is_row_sparse(&self) -> bool {
        self.persistable && self.spec().is_some_and(|spec| spec.storage == StorageKind::SelectedRows)
    }

    /// The number of LoD levels.
    pub fn lod_level(&self) -> usize {
        self.spec().map_or(0, |spec| spec.lod.len())
    }
}

/// The name of a variable's gradient.
pub fn grad_name(name: &str) -> String {
    format!("{name}@grad")
}
