//! Programs as plain data: variables, operators and blocks.
//!
//! A program can be read, printed, saved and compared with no operator known; only building, differentiating and
//! running it ask a [`Registry`](crate::operator::Registry) for the operators behind the names.
//!
//! # The rooms, bottom up
//!
//! A room uses only those above it in this list.
//!
//! | room | what it holds |
//! |---|---|
//! | [`description`] | the program: variables, operators, blocks; what is well formed; how it is shown |
//! | [`transform`] | from a program to another: gradients, inference |
//! | [`construction`] | the builder, its variables, step blocks |

pub mod construction;
pub mod description;
pub mod save;
pub(crate) mod stored;
pub mod transform;

pub use construction::builder::{Builder, DTypeSource};
pub use construction::open_step::Recurrence;
pub use construction::step::Step;
pub use construction::term::Term;
pub use construction::var::Var;
pub use construction::vars::{Outputs, Vars};
pub use construction::warning::{Fallback, Warning};
pub use description::carried::CarriedState;
pub use description::language::RECURRENT;
pub use description::op_desc::{
    Memory, MemoryGradient, OpDesc, Role, SlotVars, StepDesc, StepGradient, VarPair,
};
pub use description::program::{Append, Block, Program};
pub use description::storage_report::{Entries, StorageReport, StoredVariable};
pub use description::var_desc::{Initializer, StopGradient, VarDesc, VarKind, VarRole, grad_name};
pub use transform::backward;
pub(crate) use transform::decided::decided_late;
pub use transform::stepped::StepProgram;
pub use transform::streamed::{WindowPass, WindowProgram, WindowState};
pub(crate) use transform::terms::{LossTerms, TotalVar};
