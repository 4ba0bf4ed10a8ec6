//! Update rules: how a parameter changes by its gradient.

pub(super) mod adagrad;
pub(super) mod adam;
mod engine;
pub(super) mod global_norm;
pub(super) mod history;
pub(super) mod learning_rate;
pub(super) mod owed;
pub(super) mod rule;
pub(super) mod settle;
pub(super) mod sgd;
