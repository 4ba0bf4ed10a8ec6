//! The contract of an operator: its declarations, its methods, and the contexts of its calls. The module also has the properties
//! of a value before it is computed: dimensions, LoD levels, attributes.
//!
//! Read the trait [`Op`] first. The module `operator` does not depend on programs: an operator can also be called on values,
//! without a program ([`call`]).

pub(crate) mod attributes;
pub(crate) mod call;
pub(crate) mod context;
pub(crate) mod cost;
pub(crate) mod declare;
pub(crate) mod entries;
pub(crate) mod extent;
pub(crate) mod facts;
pub(crate) mod hints;
pub(crate) mod infer;
pub(crate) mod keys;
pub(crate) mod levels;
pub(crate) mod literals;
pub(crate) mod memory;
pub(crate) mod op;
pub(crate) mod precision;
pub(crate) mod registry;
pub(crate) mod rows;
pub(crate) mod sample;
pub(crate) mod shapes;
pub(crate) mod signature;
pub(crate) mod size;
pub(crate) mod slots;
pub(crate) mod table;

pub use attributes::{Attributes, Literal, LiteralRef};
pub(crate) use context::MOST_TABLES;
pub use context::{Backward, CallInputs, Forward, Mode, NewLevels, Pass, Prepare, RunFacts, Sequences};
pub use cost::{Cost, Work};
pub use declare::{Declaration, DeclaredOp};
pub use entries::CsrBuffer;
pub(crate) use extent::Levels;
pub use extent::{BlockId, Extent, LevelId, Shape, Spec, VarId};
pub(crate) use facts::ReadSlots;
pub use facts::{Debt, Facts, Gradient, LodEffect, Reach, StorageBound};
pub(crate) use hints::{Fusion, Merge};
pub use hints::{Hints, Pieces, Total};
pub use memory::{CallMemory, CallSizes};
pub(crate) use memory::{CallRoom, CallSlot};
pub use op::Op;
pub(crate) use op::Operators;
pub use precision::{MatrixUnit, Precision};
pub use registry::Registry;
pub use rows::{RowBuffer, RowValue};
pub use sample::{CheckCase, Operand};
pub use shapes::InferShape;
pub use signature::{Arity, CSR, DENSE, DENSE_OR_CSR, DENSE_OR_ROWS, Kernel, ROWS, Signature, Slot};
pub use size::Size;
pub(crate) use table::{RowTable, TableRows};
