//! The integration tests: one binary, so that it links once.

// A test says what it expects by panicking; clippy knows only `#[test]` functions, not their helpers.
#![allow(clippy::unwrap_used)]

mod caller_lines;
mod carried;
mod catalogue;
mod cells;
mod chains;
mod checkpoint;
mod comparisons;
mod damage;
mod datasets;
mod documents;
mod executor;
mod expressions;
mod fine_tuning;
mod fixture;
mod fuse;
mod golden;
mod halves;
mod hostile_program;
mod inference;
mod invariance;
mod kill;
mod levels_from_data;
mod listing;
mod literals;
mod lod_laws;
mod merge;
mod mistakes;
mod models;
mod parity;
mod parity_cells;
mod parity_optim;
mod predictor;
mod profile;
mod refused;
mod row_sparse;
mod saved_program;
mod saving;
mod shape_errors;
mod sparse;
mod sparse_data;
mod sparse_saved;
mod step_blocks;
mod store;
mod store_saved;
mod store_training;
mod thorough;
mod tidy;
mod tied;
mod trained;
mod trainer;
mod update_rules;
mod user_operator;
mod windows;
