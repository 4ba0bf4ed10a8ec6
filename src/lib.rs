//! Sequence models over variable-length text, without padding.

pub mod error;

pub use error::{Error, ErrorKind, Place, Result};
