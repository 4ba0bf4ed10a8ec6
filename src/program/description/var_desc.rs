//! The description of a variable.

use crate::operator::attributes::{Attributes, Literal};
use crate::operator::extent::{BlockId, Spec, VarId};
use crate::tensor::StorageKind;
use crate::tensor::named::named;

/// What a variable is, before anything runs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct VarDesc {
    /// Its name, unique in the program.
    pub name: String,
    /// The block it belongs to.
    pub block: BlockId,
    /// A tensor, or a value of the program itself.
    pub kind: VarKind,
    /// What role it plays.
    pub role: VarRole,
    /// Lives from run to run, and goes into a checkpoint.
    pub persistable: bool,
    /// An optimizer may change it.
    pub trainable: bool,
    /// No gradient passes it.
    pub stop_gradient: bool,
    /// How it starts, if it persists.
    pub initializer: Option<Initializer>,
    /// The variable whose gradient it is.
    pub gradient_of: Option<VarId>,
}

impl VarDesc {
    /// A variable that lives for one run, passes gradients and is not trained; the fields say otherwise.
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

/// Where a variable's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VarRole {
    /// The caller gives it at every run.
    Feed,
    /// It is kept in the scope.
    Parameter,
    /// The optimizer's own, kept in the scope.
    State,
    /// An operator computes it.
    Computed,
    /// A step block's view of an outer variable: a step input, a static input or a memory.
    Step,
    /// A literal.
    Literal,
    /// An operator computes it: what a state that passes from batch to batch is after this one
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
    /// Whether an operator computes it.
    pub(in crate::program) fn is_computed(self) -> bool {
        matches!(self, VarRole::Computed | VarRole::Carried)
    }
}

/// Whether no gradient passes a variable that is computed.
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

/// How a persistable variable starts: the name of an initialiser and its attributes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Initializer {
    /// The initialiser's name, as `"uniform"`.
    pub kind: String,
    /// Its numbers.
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

    /// Whether it is a row-sparse parameter, or the optimizer's state beside one: kept from run to run, by the rows that were
    /// touched.
    pub(crate) fn is_row_sparse(&self) -> bool {
        self.persistable && self.spec().is_some_and(|spec| spec.storage == StorageKind::SelectedRows)
    }

    /// Number of LoD levels.
    pub fn lod_level(&self) -> usize {
        self.spec().map_or(0, |spec| spec.lod.len())
    }
}

/// The name of a variable's gradient.
pub fn grad_name(name: &str) -> String {
    format!("{name}@grad")
}
