//! The tests of files of text: one binary, so that it links once.

// A test says what it expects by panicking; clippy knows only `#[test]` functions, not their helpers.
#![allow(clippy::unwrap_used)]

mod caller_lines;
#[path = "../../../../tests/it/caller_lines/calls.rs"]
mod calls;
mod datasets;
#[path = "../../../../tests/it/models.rs"]
mod models;
mod parquet;
#[path = "../../../../tests/it/refused.rs"]
mod refused;
mod sparse_data;
#[cfg(feature = "parquet")]
#[path = "../../../../tests/it/thorough.rs"]
mod thorough;
