//! The integration tests: one binary, so that it links once.

// A test says what it expects by panicking; clippy knows only `#[test]` functions, not their helpers.
#![allow(clippy::unwrap_used)]

/// A value with some of its public fields changed: a struct that may grow has no literal outside of its crate.
macro_rules! with {
    ($value_of:expr, $($field:ident $(: $value:expr)?),* $(,)?) => {{
        let mut value_of = $value_of;
        $(value_of.$field = with!(@ $field $(, $value)?);)*
        value_of
    }};
    (@ $field:ident) => { $field };
    (@ $field:ident, $value:expr) => { $value };
}

mod blocks;
mod caller_lines;
mod carried;
mod catalogue;
mod cells;
mod chains;
mod checkpoint;
mod comparisons;
#[path = "../conformance/mod.rs"]
mod conformance;
mod damage;
mod documents;
mod elsewhere;
mod exact;
mod exact_refused;
mod exact_settings;
mod executor;
mod expressions;
mod fine_tuning;
mod fixture;
mod fuse;
mod generator;
mod golden;
mod golden_rules;
// The programs have the line breaks of their pages.
#[rustfmt::skip]
mod guide;
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
mod not_a_number;
mod operator_page;
mod parity;
mod parity_cells;
mod parity_losses;
mod parity_optim;
mod plain;
mod predictor;
mod profile;
mod public_items;
mod quantized;
mod queue;
mod ranks;
mod refused;
mod row_sparse;
mod sampled_losses;
mod saved_program;
mod saving;
mod sessions;
mod shape_errors;
mod snapshots;
mod sparse;
mod sparse_mistakes;
mod sparse_saved;
mod step_blocks;
mod store;
mod store_exact;
mod store_saved;
mod store_workers;
mod stored_bf16;
mod structured;
mod thorough;
mod tidy;
mod tied;
mod trained;
mod trainer;
mod update_rules;
mod user_operator;
mod user_rule;
#[cfg(feature = "safetensors")]
mod weights;
mod windows;
