//! What a variable holds: numbers in one of four storages, and the offsets beside them.

mod dense;
mod dtype;

pub use dense::Dense;
pub use dtype::{DType, Element};
