//! Update rules: the operators by which an optimizer changes a parameter according to its gradient.

pub(super) mod adadelta;
pub(super) mod adagrad;
pub(super) mod adam;
pub(super) mod adamax;
pub(super) mod amsgrad;
pub(super) mod average;
mod block;
pub(super) mod clip_gradient;
pub(crate) mod decay;
mod drift;
pub(crate) mod element;
mod engine;
pub(super) mod ftrl;
pub(super) mod global_norm;
pub(super) mod history;
pub(super) mod lamb;
pub(super) mod learning_rate;
pub(super) mod lion;
pub(super) mod nadam;
pub(crate) mod owed;
pub(super) mod rmsprop;
pub(crate) mod rule;
pub(crate) mod schedule;
pub mod settings;
pub(super) mod settle;
pub(super) mod sgd;
