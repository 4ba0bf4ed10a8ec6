//! The contract of an operator: what it declares, what it is asked, and what it sees when it is called; and what is known of a value
//! before it is computed: dimensions, levels, attributes.
//!
//! Begin with the trait [`Op`]. Nothing here knows programs: an operator is called on values as well ([`call`]).

pub mod attributes;
pub mod call;
pub mod context;
pub mod cost;
pub mod declare;
pub mod entries;
pub mod extent;
pub mod facts;
pub mod hints;
pub(crate) mod infer;
pub(crate) mod keys;
pub(crate) mod levels;
pub(crate) mod literals;
pub mod op;
pub mod registry;
pub mod rows;
pub mod sample;
pub mod shapes;
pub mod signature;
pub mod size;
pub mod table;

pub use attributes::{Attributes, Literal, LiteralRef};
pub use context::{Backward, Forward, MOST_TABLES, Mode, NewLevels, Pass, Prepare, RunFacts, Sequences};
pub use cost::{Cost, Work};
pub use declare::{Declaration, DeclaredOp};
pub use entries::CsrBuffer;
pub use extent::{BlockId, Extent, LevelId, Levels, Shape, Spec, VarId};
pub use facts::{Debt, Facts, Gradient, LodEffect, Reach, ReadSlots, StorageBound};
pub use hints::{Fusion, Hints, Merge, Pieces, Total};
pub use keys::RowKey;
pub use op::{Op, Operators};
pub use registry::Registry;
pub use rows::{RowBuffer, RowValue};
pub use sample::{CheckCase, Operand};
pub use shapes::InferShape;
pub use signature::{Arity, CSR, DENSE, DENSE_OR_CSR, DENSE_OR_ROWS, Kernel, ROWS, Signature, Slot};
pub use size::Size;
pub use table::{RowTable, TableRows};
