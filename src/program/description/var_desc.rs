//! The description of a variable.

use crate::operator::attributes::{Attributes, Literal};
use crate::operator::extent::{BlockId, Spec, VarId};
use crate::tensor::StorageKind;
use crate::tensor::named::named;

/// The description of a variable, before anything runs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct VarDesc {
    /// Its name, unique in the program.
    pub name: String,
    /// The block it belongs to.
    pub block: BlockId,
    /// A tensor, or a value of the program itself.
    pub kind: VarKind,
    /// The role of the variable.
    pub role: VarRole,
    /// The value lives from run to run, and is saved in a checkpoint.
    pub persistable: bool,
    /// An optimizer may change it.
    pub trainable: bool,
    /// No gradient passes it.
    pub stop_gradient: bool,
    /// The initialiser, if the variable is persistable.
    pub initializer: Option<Initializer>,
    /// The variable whose gradient it is.
    pub gradient_of: Option<VarId>,
}

impl VarDesc {
    /// A variable that lives for one run, passes gradients and is not trained; set the fields for anything else.
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
    /// A scalar, a string or a list of them, with its value.
    Literal(Literal),
}

/// The source of a variable's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VarRole {
    /// The caller gives it at every run.
    Feed,
    /// It is kept in the scope.
    Parameter,
    /// A state of the optimizer, kept in the scope.
    State,
    /// An operator computes it.
    Computed,
    /// A step block's view of an outer variable: a step input, a static input or a memory.
    Step,
    /// A literal.
    Literal,
    /// An operator computes it: the value after this batch of a state that passes from batch to batch
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
    /// Returns whether an operator computes it.
    pub(in crate::program) fn is_computed(self) -> bool {
        matches!(self, VarRole::Computed | VarRole::Carried)
    }
}

/// The choice whether a gradient passes a computed variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopGradient {
    /// None passes.
    Yes,
    /// It passes if the variable holds floats.
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
    /// An initialiser by name.
    pub fn new(kind: &str, attributes: Attributes) -> Self {
        Self { kind: kind.to_owned(), attributes }
    }
}

impl VarDesc {
    /// Its spec, if it is a tensor.
    pub fn spec(&self) -> Option<&Spec> {
        match &self.kind {
            VarKind::Tensor(spec) => Some(spec),
            VarKind::Literal(_) => None,
        }
    }

    /// Returns whether the variable is a row-sparse parameter, or the optimizer's state beside one: kept from run to run,
    /// with only the touched rows in memory.
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
