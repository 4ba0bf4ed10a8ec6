//! The integration tests: one binary, so that it links once.

// A test says what it expects by panicking; clippy knows only `#[test]` functions, not their helpers.
#![allow(clippy::unwrap_used)]

mod catalogue;
mod fixture;
mod lod_laws;
mod parity_optim;
mod shape_errors;
mod step_blocks;
mod tidy;
