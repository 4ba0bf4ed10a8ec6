//! Sequence models over variable-length text, without padding.

pub mod error;
pub mod lod;
pub mod tensor;

pub use error::{Error, ErrorKind, Place, Result};
pub use lod::{Lod, SeqPos};
pub use tensor::{Coo, Csr, DType, Dense, Element, SelectedRows, Storage, StorageKind, Variable};
