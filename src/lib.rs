//! Sequence models over variable-length text, without padding.

pub mod error;
pub mod lod;

pub use error::{Error, ErrorKind, Place, Result};
pub use lod::{Lod, SeqPos};
