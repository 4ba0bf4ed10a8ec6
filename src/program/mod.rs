//! Programs as plain data: variables, operators and blocks, and the contract that operators keep.
//!
//! A program can be read, printed, saved and compared with no operator known; only building, differentiating and
//! running it ask a [`Registry`] for the operators behind the names.
//!
//! # The rooms, bottom up
//!
//! A room uses only those above it in this list.
//!
//! | room | what it holds |
//! |---|---|
//! | [`spec`] | shapes, levels, attributes and literals |
//! | [`contract`] | what an operator declares, what it is asked, and what it sees when it is called |
//! | [`description`] | the program: variables, operators, blocks; what is well formed; how it is shown |
//! | [`transform`] | from a program to another: gradients, inference |
//! | [`build`] | the builder, its variables, step blocks |

pub mod build;
pub mod contract;
pub mod description;
pub mod save;
pub mod spec;
pub(crate) mod stored;
pub mod transform;

pub use build::builder::{Builder, DTypeOf};
pub use build::open_step::Recurrence;
pub use build::step::Step;
pub use build::term::Term;
pub use build::var::Var;
pub use build::vars::{Outputs, Vars};
pub use build::warning::{Fallback, Warning};
pub use contract::context::{
    Backward, Forward, MOST_TABLES, Mode, NewLevels, Pass, Prepare, RunFacts, Sequences,
};
pub use contract::cost::{Cost, Work};
pub use contract::declare::{Declaration, Declared};
pub use contract::entries::CsrBuffer;
pub use contract::facts::{Facts, Gradient, LodEffect, Owes, Reach, Reads, Stored};
pub use contract::hints::{Fusion, Hints, Merge, Pieces, Total};
pub use contract::keys::RowKey;
pub use contract::op::{Op, Operators};
pub use contract::registry::Registry;
pub use contract::rows::{RowBuffer, RowValue};
pub use contract::sample::{Operand, Sample};
pub use contract::shapes::InferShape;
pub use contract::signature::{
    Arity, CSR, DENSE, DENSE_OR_CSR, DENSE_OR_ROWS, Kernel, ROWS, Signature, Slot,
};
pub use contract::table::{RowTable, TableRows};
pub use contract::{call, sample};
pub use description::carried::CarriedState;
pub use description::language::RECURRENT;
pub use description::op_desc::{Bound, Memory, MemoryGradient, OpDesc, Pair, Role, StepDesc, StepGradient};
pub use description::program::{Append, Block, Program};
pub use description::storage_report::{Entries, StorageReport, StoredVariable};
pub use description::var_desc::{Initializer, StopGradient, VarDesc, VarKind, VarRole, grad_name};
pub use spec::attributes;
pub use spec::attributes::{Attributes, Literal, LiteralRef};
pub use spec::extent::{BlockId, Extent, LevelId, Levels, Shape, Spec, VarId};
pub use spec::size::Size;
pub use transform::backward;
pub(crate) use transform::decided::decided_late;
pub use transform::stepped::Stepped;
pub use transform::streamed::{Carried, Streamed, Windowed};
pub(crate) use transform::terms::{LossTerms, TotalVar};
