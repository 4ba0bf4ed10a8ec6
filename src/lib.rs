//! Sequence models over variable-length text, without padding.

pub mod error;
pub mod executor;
pub mod kernels;
pub mod layers;
pub mod lod;
pub mod ops;
pub mod optimizer;
pub mod program;
pub mod tensor;
pub mod wire;

pub use error::{Error, ErrorKind, Place, Result};
pub use lod::{Lod, SeqPos};
pub use program::{Builder, Mode, Program, Registry, Var};
pub use tensor::{DType, Variable};
