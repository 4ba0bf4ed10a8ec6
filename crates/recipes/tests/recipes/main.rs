//! The tests of recipes: one binary, so that it links once.

// A test says what it expects by panicking; clippy knows only `#[test]` functions, not their helpers.
#![allow(clippy::unwrap_used)]

mod caller_lines;
#[path = "../../../../tests/it/caller_lines/calls.rs"]
mod calls;
mod data_memory;
// The programs have the line breaks of their pages.
#[rustfmt::skip]
mod guide;
#[path = "../../../../tests/it/models.rs"]
mod models;
#[cfg(feature = "parquet")]
mod parquet;
mod read_alike;
mod recipes;
#[path = "../../../../tests/it/refused.rs"]
mod refused;
mod scores;
mod tagged;
#[cfg(feature = "tokenizers")]
#[path = "../../../../tests/it/thorough.rs"]
mod thorough;
mod tokenizers;
