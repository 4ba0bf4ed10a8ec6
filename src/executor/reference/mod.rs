//! The reference interpreter, and the diagnosis of numbers that are not finite.

mod diagnose;
mod interpret;
mod rows;
mod values;

pub use diagnose::diagnose;
pub use interpret::interpret;
