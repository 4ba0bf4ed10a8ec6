//! Programs as plain data: variables, operators and blocks, and the contract that operators keep.
//!
//! A program can be read, printed, saved and compared with no operator known; only building, differentiating and
//! running it ask a [`Registry`] for the operators behind the names.

pub mod attributes;
pub mod backward;
pub mod builder;
pub mod call;
pub mod carried;
pub mod context;
pub mod cost;
mod decided;
mod difference;
pub mod display;
pub mod dot;
pub mod extent;
pub mod infer;
mod inference;
pub mod initialize;
pub(crate) mod keys;
pub(crate) mod literals;
mod memories;
mod names;
mod naming;
pub mod op;
pub mod op_desc;
#[allow(clippy::module_inception)]
mod program;
pub mod registry;
pub mod rows;
pub mod sample;
pub mod save;
pub mod step;
mod stored;
pub mod streamed;
mod term;
mod validate;
pub mod var;
pub mod var_desc;
pub mod vars;

pub use attributes::{Attributes, Literal, LiteralRef};
pub use builder::{Builder, DTypeOf};
pub use carried::CarriedState;
pub use context::{Backward, Forward, Mode, NewLevels, Pass, Prepare, RunFacts, Sequences};
pub use cost::{Cost, Work};
pub(crate) use decided::decided_late;

pub use extent::{BlockId, Extent, LevelId, Levels, Shape, Spec, VarId};
pub use infer::InferShape;
pub use keys::RowKey;
pub use op::{
    Declaration, Declared, Facts, Fusion, Gradient, Hints, LodEffect, Merge, Needs, Op, Pieces, Reach,
    Signature, Slot,
};
pub use op_desc::{Bound, Memory, MemoryGradient, OpDesc, Pair, RECURRENT, Role, StepDesc, StepGradient};
pub use program::{Append, Block, Program};
pub use registry::Registry;
pub use rows::{RowBuffer, RowValue};
pub use sample::{Operand, Sample};
pub use step::{Recurrence, Step};
pub use streamed::{Carried, Streamed, Windowed};
pub use term::Term;
pub use var::Var;
pub use var_desc::{Initializer, VarDesc, VarKind, VarRole, grad_name};
pub use vars::{Outputs, Vars};
