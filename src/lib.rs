//! Sequence models over variable-length text, without padding.

pub mod error;
pub mod kernels;

pub use error::{Error, ErrorKind, Place, Result};
