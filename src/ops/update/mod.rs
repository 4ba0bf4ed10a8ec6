//! Update rules: how a parameter changes by its gradient.

pub(super) mod adadelta;
pub(super) mod adagrad;
pub(super) mod adam;
pub(super) mod adamax;
pub(super) mod amsgrad;
pub(super) mod average;
mod block;
pub(super) mod clip_gradient;
pub(super) mod decay;
mod drift;
pub(super) mod element;
mod engine;
pub(super) mod ftrl;
pub(super) mod global_norm;
pub(super) mod history;
pub(super) mod lamb;
pub(super) mod learning_rate;
pub(super) mod lion;
pub(super) mod nadam;
pub(super) mod owed;
pub(super) mod rmsprop;
pub(super) mod rule;
pub(super) mod schedule;
pub mod settings;
pub(super) mod settle;
pub(super) mod sgd;
