//! Update rules: the operators by which an optimizer changes a parameter according to its gradient.

mod adadelta;
mod adagrad;
mod adam;
mod adamax;
pub(super) mod average;
mod block;
pub(super) mod clip_gradient;
pub(crate) mod decay;
mod drift;
pub(crate) mod element;
mod engine;
mod ftrl;
pub(super) mod global_norm;
pub(super) mod history;
mod lamb;
pub(super) mod learning_rate;
mod lion;
mod nadam;
pub(crate) mod owed;
mod rmsprop;
pub(crate) mod rule;
pub(crate) mod schedule;
pub mod settings;
pub(super) mod settle;
mod sgd;

use crate::operator::registry::OperatorEntry;

/// The operators of all update rules, for the catalogue.
pub(super) const RULES: [fn() -> OperatorEntry; 10] = [
    OperatorEntry::of::<adadelta::Adadelta>,
    OperatorEntry::of::<adagrad::Adagrad>,
    OperatorEntry::of::<adam::Adam>,
    OperatorEntry::of::<adamax::Adamax>,
    OperatorEntry::of::<ftrl::Ftrl>,
    OperatorEntry::of::<lamb::Lamb>,
    OperatorEntry::of::<lion::Lion>,
    OperatorEntry::of::<nadam::NAdam>,
    OperatorEntry::of::<rmsprop::RmsProp>,
    OperatorEntry::of::<sgd::Sgd>,
];
