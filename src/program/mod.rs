//! Programs as plain data: variables, operators and blocks.
//!
//! Reading, printing, saving and comparing a program requires no registry of operators. Only building, differentiating and
//! running a program require a [`Registry`](crate::operator::Registry), which contains the operators by kind.

pub(crate) mod construction;
#[cfg(test)]
pub(crate) mod counted;
pub(crate) mod description;
pub(crate) mod save;
pub(crate) mod stored;
pub(crate) mod transform;

pub use crate::operator::{BlockId, LevelId, VarId};
pub(crate) use construction::builder::Builder;
pub use construction::builder::DTypeSource;
pub use construction::open_step::Recurrence;
pub use construction::step::Step;
pub use construction::term::Term;
pub(crate) use construction::var::Var;
pub use construction::vars::{Outputs, Vars};
pub use construction::warning::Warning;
pub use description::carried::CarriedState;
pub use description::language::RECURRENT;
pub use description::op_desc::{Memory, OpDesc, Role, SlotVars, StepDesc, StepGradient, VarPair};
pub(crate) use description::program::Program;
pub use description::program::{Append, Block};
pub use description::storage_report::{Entries, StorageReport, StoredVariable};
pub use description::var_desc::{Initializer, StopGradient, VarDesc, VarKind, VarRole, grad_name};
pub use transform::backward;
pub(crate) use transform::coded::CodedParameter;
pub(crate) use transform::decided::decided_late;
pub(crate) use transform::local::LocalRows;
pub(crate) use transform::stepped::StepProgram;
pub(crate) use transform::streamed::{WindowPass, WindowProgram, WindowState};
pub(crate) use transform::terms::{LossTerms, TotalVar};
